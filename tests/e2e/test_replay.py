"""`grid-gateway replay`: the points of its protocol that the conformance cases leave open.

The binary comes from GRID_GATEWAY or build/release/grid-gateway. Nothing listens: these tests need no network.
"""
import base64
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get('GRID_GATEWAY', str(ROOT / 'build' / 'release' / 'grid-gateway'))
CHAT = '/v1/chat/completions'
TIMEOUT_S = 120


def serving(*clusters, model='llama', **more):
    candidates = [{'kind': 'inference_model', 'name': model, 'site': 'site-' + c, 'cluster': c} for c in clusters]
    return {'local_site': 'east', 'window_secs': 60, 'load_window_ms': 30000, 'candidates': candidates, 'peers': [], **more}


def prompt(text, model='llama'):
    return json.dumps({'model': model, 'messages': [{'role': 'user', 'content': text}]})


def replay(*lines, args=(), expect=0):
    """Sends lines (objects, or text as it is), returns the answers."""
    data = b''.join((x if isinstance(x, bytes) else (x if isinstance(x, str) else json.dumps(x)).encode()) + b'\n'
                    for x in lines)
    done = subprocess.run([BINARY, 'replay', *args], input=data, capture_output=True, timeout=TIMEOUT_S)
    assert done.returncode == expect, done.stderr.decode()
    answers = [json.loads(x) for x in done.stdout.splitlines()]
    assert len(answers) == len(lines)
    return answers


def refused(answer, field):
    assert answer['ok'] is False
    assert answer['error']['field'] == field, answer
    assert answer['error']['message']


LONG = 'a long and quiet story about a gateway ' * 60
LOAD = {'op': 'load', 'plugin': {'prefix_affinity': {'exploration': 0}}, 'serving': serving('pool-a', 'pool-b')}


def ask(ident='r1', text=LONG, **more):
    return {'op': 'request', 'id': ident, 'path': CHAT, 'headers': {}, 'body': prompt(text), **more}


# ---- lines and the clock

@pytest.mark.parametrize('line, field', [
    ('', ''),
    ('{', ''),
    ('[]', ''),
    ('7', ''),
    (b'{"op":"metrics","at":\xff}', ''),
    ('{"op":"metrics","op":"metrics"}', ''),
    ({}, 'op'),
    ({'op': 7}, 'op'),
    ({'op': 'dance'}, 'op'),
    ({'op': 'metrics', 'colour': 1}, 'colour'),
    ({'op': 'metrics', 'at': -1}, 'at'),
    ({'op': 'metrics', 'at': 1.5}, 'at'),
    ({'op': 'signal', 'depth': 1}, 'cluster'),
    ({'op': 'signal', 'cluster': 'x'}, 'depth'),
    ({'op': 'signal', 'cluster': 'x', 'depth': '1'}, 'depth'),
    ({'op': 'request', 'path': CHAT}, 'id'),
    ({'op': 'request', 'id': 'a'}, 'path'),
    ({'op': 'request', 'id': 'a', 'path': CHAT, 'headers': {'a': 1}}, 'headers'),
    ({'op': 'request', 'id': 'a', 'path': CHAT, 'body': 'x', 'body_b64': 'eA=='}, 'body_b64'),
    ({'op': 'request', 'id': 'a', 'path': CHAT, 'body_b64': 'eA='}, 'body_b64'),
    ({'op': 'request', 'id': 'a', 'path': CHAT, 'body_b64': 'e*A='}, 'body_b64'),
    ({'op': 'request', 'id': 'a', 'path': CHAT, 'body': 'x', 'chunk': 0}, 'chunk'),
    ({'op': 'request', 'id': 'a', 'path': CHAT, 'cluster': 'nowhere'}, 'cluster'),
    ({'op': 'answer', 'id': 'a', 'status': 200}, 'id'),
    ({'op': 'abandon', 'id': 'a'}, 'id'),
    ({'op': 'load', 'plugin': 7}, 'plugin'),
    ({'op': 'load', 'plugin': {}, 'plugin_text': '{}'}, 'plugin_text'),
    ({'op': 'load', 'max_body_bytes': 0}, 'max_body_bytes'),
    ({'op': 'load', 'tag_keys_hex': ['00' * 31]}, 'tag_keys_hex[0]'),
    ({'op': 'load', 'tag_keys_hex': ['00' * 32, 'zz' * 32]}, 'tag_keys_hex[1]'),
    ({'op': 'load', 'tag_keys_hex': 'ab'}, 'tag_keys_hex'),
])
def test_a_line_that_is_not_understood(line, field):
    bad, good = replay(line, {'op': 'metrics'}, expect=1)
    refused(bad, field)
    assert 'grid_route_prefix_affinity_total' in good


def test_errors_quote_no_prompt():
    answer, = replay('{"op":"keys","path":"/v1/chat/completions","body":"SECRET" x}', expect=1)
    assert 'SECRET' not in json.dumps(answer)


def test_a_refused_line_does_not_move_the_clock():
    answers = replay(LOAD, {'op': 'metrics', 'at': 100}, {'op': 'answer', 'id': 'none', 'status': 200, 'at': 900},
                     {'op': 'metrics', 'at': 500}, {'op': 'metrics', 'at': 499}, expect=1)
    refused(answers[2], 'id')
    assert 'grid_route_prefix_affinity_total' in answers[3]
    refused(answers[4], 'at')


def test_the_last_line_needs_no_newline(tmp_path):
    path = tmp_path / 'history.jsonl'
    path.write_text('{"op":"metrics"}\n{"op":"metrics"}')
    done = subprocess.run([BINARY, 'replay', str(path)], capture_output=True, timeout=TIMEOUT_S)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 2


def test_answers_are_flushed_line_by_line():
    with subprocess.Popen([BINARY, 'replay'], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
        for _ in range(3):
            p.stdin.write(b'{"op":"metrics"}\n')
            p.stdin.flush()
            assert p.stdout.readline().endswith(b'}\n')
        p.stdin.close()
        assert p.wait(TIMEOUT_S) == 0


# ---- load

def test_a_refused_load_changes_nothing():
    bad = {'op': 'load', 'plugin': {'prefix_affinity': {'threshold': 7}}, 'serving': serving('pool-z')}
    worse = {'op': 'load', 'serving': {**serving('pool-z'), 'colour': 1}, 'max_body_bytes': 10}
    answers = replay(LOAD, bad, worse, ask(peek=True), expect=1)
    refused(answers[1], 'prefix_affinity.threshold')
    refused(answers[2], 'colour')
    assert [c['cluster'] for c in answers[3]['candidates']] == ['pool-a', 'pool-b']
    assert answers[3]['keyed'] is True


def test_load_keeps_what_is_absent():
    answers = replay(LOAD, {'op': 'load', 'plugin_text': 'prefix_affinity:\n  enabled: false\n'},
                     {'op': 'load', 'max_body_bytes': 100000}, ask(peek=True))
    assert answers[3]['reason'] == 'disabled'
    assert len(answers[3]['candidates']) == 2


def test_yaml_and_json_texts():
    text = ('local_site: east\nwindow_secs: 60\nload_window_ms: 30000\npeers: []\ncandidates:\n'
            '  - {kind: inference_model, name: 007, site: east, cluster: no}\n')
    answers = replay({'op': 'load', 'serving_text': text},
                     {'op': 'request', 'id': 'a', 'path': CHAT, 'headers': {'X-Model': '007'}, 'body': '{}'},
                     {'op': 'load', 'serving_text': json.dumps(serving('pool-b'))}, ask('b'))
    assert answers[1]['cluster'] == 'no'
    assert answers[3]['cluster'] == 'pool-b'


def test_a_text_that_is_no_yaml():
    answer, = replay({'op': 'load', 'plugin_text': 'a: [1'}, expect=1)
    refused(answer, 'plugin_text')


@pytest.mark.parametrize('size, right', [(31, False), (32, True), (None, False)])
def test_key_files(tmp_path, size, right):
    path = tmp_path / 'tag.key'
    if size is not None:
        path.write_bytes(b'k' * size)
    load = {'op': 'load', 'plugin': {'prefix_affinity': {'tag_key_path': str(path)}}}
    answer, = replay(load, expect=0 if right else 1)
    if right:
        assert answer == {'ok': True}
    else:
        refused(answer, 'prefix_affinity.tag_key_path')
        assert str(path) in answer['error']['message']


def test_keys_in_a_load_outrank_key_files(tmp_path):
    missing = {'op': 'load', 'plugin': {'prefix_affinity': {'tag_key_path': str(tmp_path / 'none')}}}
    answers = replay({'op': 'load', 'tag_keys_hex': ['ab' * 32, 'CD' * 40]}, missing)
    assert answers == [{'ok': True}, {'ok': True}]


# ---- requests

def test_before_any_load():
    request, keys, runs = replay(ask(), {'op': 'keys', 'path': CHAT, 'headers': {}, 'body': prompt(LONG)},
                                 {'op': 'runs', 'path': CHAT, 'headers': {}, 'body': prompt(LONG)})
    assert (request['action'], request['status'], request['site'], request['path']) == ('reply', 404, None, None)
    assert request['candidates'] == [] and request['outcome'] is None and request['worth'] is None
    assert json.loads(request['body'])['error']['code'] == 'no_route'
    assert request['headers']['content-type'] == 'application/json'
    assert keys['keyed'] and keys['api'] == 'chat' and keys['model'] == 'llama' and keys['reason'] is None
    assert runs == {'blocks': len(keys['keys']), 'runs': {}}


def test_what_a_request_answers():
    headers = {'X-Model': 'llama', 'X-Many': ['1', '2'], 'X-Grid-Site': 'forged', 'x-grid-backend': 'forged'}
    load, signal, got = replay(LOAD, {'op': 'signal', 'cluster': 'pool-a', 'depth': 0.1}, ask('r1', headers=headers))
    assert load == {'ok': True} and signal == {'ok': True}
    assert list(got) == ['id', 'api', 'model', 'keyed', 'reason', 'action', 'site', 'cluster', 'path', 'headers',
                         'body_b64', 'outcome', 'blocks', 'candidates', 'worth']
    assert got['headers'] == {'x-model': 'llama', 'x-many': ['1', '2']}
    assert got['body_b64'] is None and got['path'] == CHAT
    assert got['candidates'] == [
        {'site': 'site-pool-a', 'cluster': 'pool-a', 'admitted': True, 'depth': 0.1, 'run': 0},
        {'site': 'site-pool-b', 'cluster': 'pool-b', 'admitted': True, 'depth': None, 'run': 0}]
    assert got['outcome'] == 'no_match' and got['worth'] is None


def test_numbers_read_back_exactly():
    depths = [0.1, 1 / 3, 5e-324, 2.2250738585072014e-308, 99999.00000000001, 7]
    lines = [LOAD]
    for i, depth in enumerate(depths):
        at = 40000 * (i + 1)
        lines += [{'op': 'signal', 'at': at, 'cluster': 'pool-a', 'depth': depth}, ask(peek=True)]
    answers = replay(*lines)
    got = [[c['depth'] for c in a['candidates'] if c['cluster'] == 'pool-a'][0] for a in answers[2::2]]
    assert got == depths
    raw = subprocess.run([BINARY, 'replay'], input='\n'.join(map(json.dumps, lines[:3])).encode(), capture_output=True,
                         timeout=TIMEOUT_S).stdout
    assert b'"depth":0.1,' in raw


def test_sticking_and_its_answer():
    answers = replay(LOAD, ask('r1', cluster='pool-b'), {'op': 'answer', 'id': 'r1', 'status': 200,
                                                         'headers': {'Content-Type': 'text/plain'}, 'body': 'hé'},
                     ask('r2'), {'op': 'answer', 'id': 'r2', 'status': 503}, ask('r3'), {'op': 'abandon', 'id': 'r3'},
                     {'op': 'metrics'})
    blocks = answers[1]['blocks']
    assert blocks >= 4 and answers[1]['outcome'] is None and answers[1]['cluster'] == 'pool-b'
    assert answers[2] == {'id': 'r1', 'status': 200, 'headers': {'content-type': 'text/plain'},
                          'body_b64': base64.b64encode('hé'.encode()).decode(), 'tagged': 0, 'confirmed': blocks, 'dropped': 0}
    assert (answers[3]['cluster'], answers[3]['outcome']) == ('pool-b', 'sticky')
    assert answers[3]['worth'] == blocks * 64 / 10000 / 2
    assert [c['run'] for c in answers[3]['candidates']] == [0, blocks]
    assert (answers[4]['confirmed'], answers[4]['dropped']) == (0, blocks)
    assert answers[5]['outcome'] == 'no_match'
    assert answers[6] == {'ok': True}
    assert answers[7]['grid_route_prefix_affinity_total'] == {
        'sticky': 1, 'no_match': 1, 'load_override': 0, 'exploration': 0, 'not_applicable': 0}


def test_runs_are_shown_for_a_forced_request_too():
    answers = replay(LOAD, ask('r1', cluster='pool-b'), {'op': 'answer', 'id': 'r1', 'status': 200},
                     ask('r2', cluster='pool-a'))
    assert {c['cluster']: c['run'] for c in answers[3]['candidates']} == {'pool-a': 0, 'pool-b': answers[3]['blocks']}


@pytest.mark.parametrize('status, kind', [(200, 'confirmed'), (299, 'confirmed'), (429, 'dropped'), (500, 'dropped'),
                                          (502, 'dropped'), (504, 'dropped'), (404, None), (301, None)])
def test_what_an_answer_teaches(status, kind):
    answers = replay(LOAD, ask('r1'), {'op': 'answer', 'id': 'r1', 'status': status})
    counts = {k: answers[2][k] for k in ('confirmed', 'dropped')}
    assert counts == {k: answers[1]['blocks'] if k == kind else 0 for k in counts}


def test_ids():
    answers = replay(LOAD, ask('r1'), ask('r1'), {'op': 'answer', 'id': 'r1', 'status': 99},
                     {'op': 'answer', 'id': 'r1', 'status': 200}, {'op': 'answer', 'id': 'r1', 'status': 200}, ask('r1'),
                     ask('p', peek=True), {'op': 'abandon', 'id': 'p'}, expect=1)
    assert answers[1]['action'] == 'forward'
    refused(answers[2], 'id')
    refused(answers[3], 'status')
    assert answers[4]['confirmed'] > 0
    refused(answers[5], 'id')
    assert answers[6]['action'] == 'forward'
    refused(answers[8], 'id')


def test_peek_changes_nothing():
    lines = [LOAD] + [ask(peek=True)] * 3 + [{'op': 'metrics'}]
    metrics = replay(*lines)[-1]
    assert set(metrics['grid_route_prefix_affinity_total'].values()) == {0}
    text = json.dumps(metrics)
    assert 'reason=\\"routed\\"":1' not in text


def test_series_with_several_labels():
    metrics = replay(LOAD, ask('r1'), {'op': 'metrics'})[-1]
    decisions = {k: v for k, v in metrics['grid_route_decisions_total'].items() if v}
    assert list(decisions.values()) == [1]
    label, = decisions
    assert sorted(label.split(',')) == ['cluster="pool-a"', 'reason="routed"', 'site="site-pool-a"']


def test_pieces_and_base64_give_the_same_keys():
    body = prompt(LONG + 'é\U0001f600')
    coded = base64.b64encode(body.encode()).decode()
    fields = {'op': 'keys', 'path': CHAT, 'headers': {}}
    first, *others = replay({**fields, 'body': body}, {**fields, 'body_b64': coded}, {**fields, 'body': body, 'chunk': 1},
                            {**fields, 'body_b64': coded, 'chunk': 7}, {**fields, 'body': body, 'chunk': 1 << 40})
    assert first['keys'] and all(len(k) == 16 for k in first['keys'])
    for other in others:
        assert other['keys'] == first['keys']


def test_the_seed_fixes_the_keys():
    line = {'op': 'keys', 'path': CHAT, 'headers': {}, 'body': prompt(LONG)}
    default, zero, one, again = (replay(line, args=a)[0]['keys'] for a in ([], ['--seed', '0'], ['--seed', '1'],
                                                                          ['--seed', '1']))
    assert default == zero and one == again and not set(one) & set(zero)


def test_a_body_over_the_limit():
    big = prompt('x' * 4000)
    lines = [LOAD, {'op': 'load', 'max_body_bytes': 1000}, ask('a', body=big),
             ask('b', body=big, headers={'x-model': 'llama'}), ask('c', body=json.dumps({'pad': 'x' * 4000}))]
    answers = replay(*lines)
    assert (answers[2]['action'], answers[2]['reason']) == ('forward', 'body_too_large')
    assert (answers[3]['action'], answers[3]['reason']) == ('forward', 'body_too_large')
    assert (answers[4]['action'], answers[4]['status']) == ('reply', 413)


@pytest.mark.parametrize('over', [0, 1])
def test_a_body_of_64_mib(over):
    head, tail = '{"model":"llama","messages":[{"role":"user","content":"', '"}]}'
    size = (64 << 20) + over
    body = head + 'y' * (size - len(head) - len(tail)) + tail
    coded = base64.b64encode(body.encode()).decode()
    got = replay(LOAD, {'op': 'request', 'id': 'a', 'path': CHAT, 'headers': {}, 'body_b64': coded})[1]
    assert (got['action'], got['reason']) == ('forward', 'body_too_large' if over else None)
    assert got['blocks'] == (0 if over else 512)


@pytest.mark.parametrize('fields, reason', [
    ({'path': '/v1/embeddings', 'body': '{"input":"x"}'}, 'not_a_prompt_path'),
    ({'path': CHAT, 'method': 'GET'}, 'method'),
    ({'path': CHAT}, 'empty'),
    ({'path': CHAT, 'body': ''}, 'empty'),
    ({'path': CHAT, 'body': 'hello'}, 'not_json'),
    ({'path': CHAT, 'body': prompt('hi')}, 'too_short'),
    ({'path': '/v1/completions', 'body': '{"prompt":[1,2,3]}'}, 'token_array'),
])
def test_reasons(fields, reason):
    request = {'op': 'request', 'id': 'a', 'headers': {'x-model': 'llama'}, **fields}
    keys = {'op': 'keys', 'headers': {'x-model': 'llama'}, **fields}
    _, got, keyed = replay(LOAD, request, keys)
    assert (got['keyed'], got['reason'], got['blocks']) == (False, reason, 0)
    assert (keyed['keyed'], keyed['reason'], keyed['keys']) == (False, reason, [])
    assert (got['api'] is None) == (reason == 'not_a_prompt_path')


def test_an_upgrade_is_answered():
    headers = {'x-model': 'llama', 'Upgrade': 'websocket', 'Connection': 'keep-alive, Upgrade'}
    got = replay(LOAD, {'op': 'request', 'id': 'a', 'method': 'GET', 'path': '/v1/responses', 'headers': headers})[1]
    assert (got['action'], got['status']) == ('reply', 426)


def test_bytes_that_are_no_utf8():
    body = base64.b64encode(b'{"messages":[{"role":"user","content":"\xff' + b'z' * 2000 + b'"}]}').decode()
    got = replay(LOAD, {'op': 'request', 'id': 'a', 'path': CHAT, 'headers': {'x-model': 'llama'}, 'body_b64': body})[1]
    assert (got['action'], got['reason'], got['body_b64']) == ('forward', 'bad_utf8', None)


def test_signals_that_are_not_kept_are_no_mistake():
    answers = replay(LOAD, {'op': 'signal', 'cluster': 'nowhere', 'depth': 1},
                     {'op': 'signal', 'at': 1000, 'cluster': 'pool-a', 'depth': 5},
                     {'op': 'signal', 'cluster': 'pool-a', 'depth': 9, 'stamp': 1000}, ask(peek=True))
    assert answers[1] == answers[3] == {'ok': True}
    assert [c['depth'] for c in answers[4]['candidates']] == [5, None]


def test_exploration_repeats_with_the_seed():
    lines = [{'op': 'load', 'plugin': {'prefix_affinity': {'exploration': 0.5}}, 'serving': serving('pool-a', 'pool-b')}]
    lines += [ask('r%d' % i) for i in range(64)]
    runs = [[a['outcome'] for a in replay(*lines, args=['--seed', s])[1:]] for s in ('3', '3', '4')]
    assert runs[0] == runs[1] != runs[2]
    assert {'exploration', 'no_match'} == set(runs[0])
