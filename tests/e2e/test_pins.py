"""`grid-gateway replay` and `explain` on stored responses and conversations: what the cases leave open.

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
KEY = '5a' * 32
SERVING = {'local_site': 'east', 'window_secs': 60, 'load_window_ms': 30000, 'peers': [], 'candidates': [
    {'kind': 'inference_model', 'name': 'llama', 'site': site, 'cluster': 'pool ' + site} for site in ('west', 'east')]}
LOAD = {'op': 'load', 'serving': SERVING, 'tag_keys_hex': [KEY], 'max_body_bytes': 1 << 21}
TYPE = {'Content-Type': 'application/json'}


class Replay:
    """A process that is asked line by line."""

    def __init__(self):
        self.process = subprocess.Popen([BINARY, 'replay'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self):
        assert self.ask(**LOAD)['ok']
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(timeout=60) == 0

    def ask(self, op, **fields):
        self.process.stdin.write(json.dumps({'op': op, **fields}).encode() + b'\n')
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def tag(self, ident, site='east', kind='resp'):
        return self.ask('tag', kind=kind, site=site, cluster='pool ' + site, id=ident)['tagged']


@pytest.fixture
def replay():
    with Replay() as process:
        yield process


def sent(answer):
    return base64.b64decode(answer['body_b64'])


def test_what_the_cluster_gets_of_a_body(replay):
    body = '{"input": "x\\u00e9",\t"previous_response_id":"%s"}' % replay.tag('abc')
    want = '{"input": "x\\u00e9",\t"previous_response_id":"resp_abc"}'
    headers = {**TYPE, 'Accept-Encoding': 'gzip', 'X-Grid-Site': 'west', 'x-grid-anything': '1', 'X-Other': 'stays',
               'Content-Length': str(len(body))}
    for chunk in (1, 7, 1000):
        got = replay.ask('request', id=str(chunk), path='/v1/responses?a=b', headers=headers, body=body, chunk=chunk)
        assert (got['action'], got['site'], got['cluster']) == ('forward', 'east', 'pool east')
        assert (got['keyed'], got['reason'], got['outcome'], got['candidates']) == (False, 'stored_state', None, [])
        assert got['path'] == '/v1/responses?a=b'
        assert got['headers'] == {'content-type': 'application/json', 'x-other': 'stays', 'content-length': str(len(want))}
        assert sent(got) == want.encode()


def test_a_large_body_keeps_every_other_byte(replay):
    text = 'y' * (1 << 20)
    head, tail = b'{"input":"%s","conversation":{"id":"' % text.encode(), b'"},"x":1} '
    body = head + replay.tag('c1', kind='conv').encode() + tail
    got = replay.ask('request', id='1', path='/v1/responses', headers=TYPE, body=body.decode(), chunk=65536)
    assert sent(got) == head + b'conv_c1' + tail


def test_what_the_cluster_gets_of_a_path(replay):
    got = replay.ask('request', id='1', method='GET', path='/v1/responses/%s/input_items?limit=5' % replay.tag('a.b'),
                     headers={'Accept-Encoding': 'br'})
    assert got['path'] == '/v1/responses/resp_a.b/input_items?limit=5'
    assert (got['body_b64'], got['headers'], got['candidates']) == (None, {}, [])


def test_other_requests_keep_their_accept_encoding(replay):
    got = replay.ask('request', id='1', path='/v1/chat/completions', headers={'Accept-Encoding': 'gzip'},
                     body='{"model":"llama","messages":[]}')
    assert got['headers'] == {'accept-encoding': 'gzip'}
    got = replay.ask('request', id='2', path='/v1/conversations', headers={'Accept-Encoding': 'gzip'}, body='{}')
    assert (got['cluster'], got['headers'], got['outcome']) == ('pool east', {}, None)


@pytest.mark.parametrize('chunk', [1, 5, 1000])
def test_what_the_client_gets_of_an_answer(replay, chunk):
    replay.ask('request', id='1', path='/v1/conversations', headers=TYPE, body='{}')
    body = '{"id":"conv_1","metadata":{"id":"conv_2"}}'
    got = replay.ask('answer', id='1', status=200, headers={**TYPE, 'Content-Length': str(len(body)), 'X-Y': 'z'}, body=body,
                     chunk=chunk)
    assert sent(got).decode() == body.replace('conv_1', replay.tag('1', kind='conv'))
    assert (got['tagged'], got['headers']) == (1, {'content-type': 'application/json', 'x-y': 'z'})


@pytest.mark.parametrize('status, headers', [(404, {}), (500, {}), (200, {'Content-Encoding': 'gzip'})])
def test_answers_that_pass_untouched(replay, status, headers):
    replay.ask('request', id='1', path='/v1/conversations', headers=TYPE, body='{}')
    body = '{"id":"conv_1"}'
    got = replay.ask('answer', id='1', status=status, headers={'Content-Length': str(len(body)), **headers}, body=body)
    assert (sent(got).decode(), got['tagged'], got['headers']['content-length']) == (body, 0, str(len(body)))
    assert replay.ask('metrics')['grid_untagged_answers_total'] == (1 if headers else 0)


def test_a_choice_made_elsewhere_does_not_move_a_pin(replay):
    got = replay.ask('request', id='1', path='/v1/responses', headers=TYPE, cluster='pool west',
                     body=json.dumps({'model': 'llama', 'previous_response_id': replay.tag('abc')}))
    assert got['cluster'] == 'pool east'


def test_errors_and_refusals_quote_no_tag(replay):
    tagged = replay.tag('abc', site='gone')
    for fields in ({'method': 'GET', 'path': '/v1/responses/' + tagged},
                   {'path': '/v1/responses', 'body': json.dumps({'previous_response_id': tagged})}):
        got = replay.ask('request', id='1', headers={}, **fields)
        assert got['status'] == 404 and got['site'] is None
        assert tagged not in json.dumps(got)


# ---- explain

def explain(tmp_path, path, body, *more):
    serving = tmp_path / 'serving.json'
    serving.write_text(json.dumps(SERVING))
    done = subprocess.run([BINARY, 'explain', '--serving', str(serving), '--path', path, *more, '-'],
                          input=body.encode(), capture_output=True, timeout=60, check=True)
    return done.stdout.decode()


def test_explain_tells_of_pins(tmp_path, replay):
    path, none = '/v1/responses/%s/cancel' % replay.tag('abc'), ''
    got = json.loads(explain(tmp_path, path, none, '--json'))
    assert (got['action'], got['cluster'], got['pinned']) == ('forward', 'pool east', True)
    assert got['path'] == '/v1/responses/resp_abc/cancel'
    words = explain(tmp_path, path, none)
    assert 'given out by this cluster' in words and '/v1/responses/resp_abc/cancel' in words
    words = explain(tmp_path, '/v1/responses', json.dumps({'previous_response_id': replay.tag('abc', site='west')}))
    assert 'cluster pool west' in words and 'given out by this cluster' in words
    words = explain(tmp_path, '/v1/responses/resp_abc', none)
    assert 'status 404' in words and 'not_found' in words and 'genuine tag' in words
    words = explain(tmp_path, '/v1/conversations?x', '{}')
    assert 'a new conversation: the local site' in words and 'cluster pool east' in words
