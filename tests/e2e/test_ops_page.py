"""The ops listener for a person with curl: the page's files, the last decisions, and where a request would go."""
import json
import subprocess

import httpx
import pytest
from grid import BINARY, Grid, eventually, prose

CHAT = '/explain/v1/chat/completions'


def chat_body(name, length=4000, model='llama'):
    return {'model': model, 'messages': [{'role': 'user', 'content': prose(name, length)}]}


@pytest.fixture(scope='module')
def grid():
    with Grid(sites=('east', 'west')) as grid:
        yield grid


def state(grid):
    return grid.ops.get('/grid').json()


def test_the_page_and_its_files(grid):
    page = grid.ops.get('/', headers={'accept': 'text/html,*/*'})
    assert page.headers['content-type'] == 'text/html; charset=utf-8' and '<title>Grid Gateway</title>' in page.text
    assert grid.ops.get('/').headers['content-type'].startswith('text/plain')
    for path, kind in (('/grid.js', 'text/javascript'), ('/grid.css', 'text/css'), ('/grid.svg', 'image/svg+xml')):
        assert path in page.text
        assert grid.ops.get(path).headers['content-type'].startswith(kind)
        assert grid.ops.post(path).status_code in (404, 405)
    policy = page.headers['content-security-policy']
    assert "default-src 'none'" in policy and 'unsafe' not in policy and "frame-ancestors 'none'" in policy
    for name in ('x-content-type-options', 'x-frame-options', 'referrer-policy', 'cross-origin-resource-policy'):
        assert name in page.headers
    assert 'http' not in page.text.replace('http-equiv', ''), 'nothing from elsewhere'


def test_decisions_are_listed_newest_first(grid):
    text = prose('listed', 4000)
    for _ in range(2):
        grid.chat(text).raise_for_status()
    grid.chat('short')
    grid.http.post('/v1/chat/completions', json=chat_body('x', model='nobody'))
    refused, short, second, first = state(grid)['recent'][:4]
    assert (refused['status'], refused['code'], refused['site']) == (404, 'model_not_found', None)
    assert (short['outcome'], short['reason'], short['blocks']) == ('not_applicable', 'too_short', 0)
    assert (first['outcome'], first['run'], first['worth']) == ('no_match', 0, None)
    assert second['outcome'] == 'sticky' and second['run'] == second['blocks'] == first['blocks'] > 10
    assert second['worth'] == pytest.approx(second['run'] * 64 / 10000 / 2)
    assert second['site'] == first['site'] and second['depth'] == 0 and not second['pinned'] and second['attempts'] == 1
    assert [line['number'] for line in state(grid)['recent'][:4]] == sorted((refused['number'] - i for i in range(4)), reverse=True)
    assert 0 <= refused['age_ms'] <= first['age_ms'] < 60000


def test_the_list_is_bounded_and_has_no_text(grid):
    secret = 'quagga-treacle-unlikely'
    for i in range(110):
        grid.chat(secret * 20 + str(i))
    page = grid.ops.get('/grid')
    assert len(page.json()['recent']) == 100
    assert secret not in page.text


def test_a_request_that_went_on_is_listed_again(grid):
    east = grid.sites['east']
    grid.set_depth('west', 3)
    east.process.kill()
    east.process.wait()
    grid.chat(prose('went on', 3000)).raise_for_status()
    last, before = state(grid)['recent'][:2]
    assert (before['site'], before['attempts'], last['site'], last['attempts']) == ('east', 1, 'west', 2)


def test_depths_and_outcomes_over_time():
    with Grid(sites=('east', 'west'), serving={'load_window_ms': 15000}) as grid:
        grid.set_depth('west', 5)
        grid.chat(prose('time', 3000))
        grid.chat('short')

        def points(cluster):
            return next((d['points'] for d in state(grid)['history']['depths'] if d['cluster'] == cluster), [None])
        eventually(lambda: points('pool-west')[-1] == 5, what='the depth')
        assert state(grid)['history']['window_ms'] == 15000 and state(grid)['history']['step_ms'] == 250
        assert len(points('pool-east')) == 60 and points('pool-east')[-1] == 0
        outcomes = eventually(lambda: (lambda o: o if sum(map(sum, o['points'])) >= 2 else None)(state(grid)['history']['outcomes']),
                              what='the outcomes')
        assert outcomes['names'] == ['sticky', 'no_match', 'load_override', 'exploration', 'not_applicable', 'other']
        assert [sum(column) for column in zip(*outcomes['points'])] == [0, 1, 0, 0, 1, 0]
        grid.sites['west'].process.kill()
        eventually(lambda: points('pool-west')[-1] is None, 30, 'an old sample is no depth')
        assert 5 in points('pool-west') or points('pool-west').count(None) > 50


# ---- where a request would go ----

@pytest.fixture(scope='module')
def pair():
    with Grid(sites=('east', 'west')) as grid:
        yield grid


def explained(grid, body, path='/v1/chat/completions', **options):
    answer = grid.ops.post('/explain' + path, **(dict(json=body) if isinstance(body, dict) else dict(content=body)), **options)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_it_says_what_the_command_says(pair, tmp_path):
    body = chat_body('same')
    (tmp_path / 'body.json').write_text(json.dumps(body))
    pair.chat(prose('same', 4000)).raise_for_status()
    pair.set_depth('east', 2)
    told = explained(pair, body)
    command = [BINARY, 'explain', '--serving', pair.folder + '/serving.json', '--json', '--held', 'pool-east', '--depth', 'pool-east=2',
               '--depth', 'pool-west=0', str(tmp_path / 'body.json')]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert told['decision'] == said
    assert told['decision']['outcome'] == 'load_override' and told['decision']['site'] == 'west'
    assert len(told['keys']) == told['decision']['blocks'] and told['block_bytes'] == 256
    pair.set_depth('east', 0)


def test_keys_tell_where_two_bodies_part(pair):
    one, two = (explained(pair, {'model': 'llama', 'messages': [{'role': 'user', 'content': prose('head', 2560) + tail * 600}]})['keys']
                for tail in 'ab')
    same = next(i for i, (a, b) in enumerate(zip(one, two)) if a != b)
    assert 8 <= same <= 11 and len(one) == len(two)


def test_asking_changes_nothing(pair):
    body, before, lines = chat_body('unseen'), pair.metrics(), state(pair)['recent']
    for _ in range(3):
        assert explained(pair, body)['decision']['outcome'] == 'no_match'
    explained(pair, b'{"model": "nobody"}')
    after = pair.metrics()
    counters = [n for n in before if n.startswith(('grid_route_prefix', 'grid_route_decisions', 'grid_route_unkeyed', 'grid_index'))]
    assert counters and {n: before[n] for n in counters} == {n: after[n] for n in counters}
    assert [r['number'] for r in state(pair)['recent']] == [r['number'] for r in lines]


def test_headers_and_path_count_as_they_do_in_a_request(pair):
    body = {'messages': chat_body('header')['messages']}
    assert explained(pair, body, headers={'X-Model': 'llama'})['decision']['model'] == 'llama'
    assert explained(pair, body)['decision']['status'] == 400
    assert explained(pair, {'model': 'llama', 'prompt': prose('p', 2000)}, '/v1/completions?x=1')['decision']['api'] == 'completions'
    told = explained(pair, {'model': 'llama'}, '/v1/conversations')['decision']
    assert 'conversation' in told['why'] and told['site'] == 'east'
    assert explained(pair, b'')['decision']['reason'] == 'empty'
    assert explained(pair, b'{')['decision']['reason'] == 'not_json'


def test_a_body_comes_in_pieces_or_is_refused_for_its_length(pair):
    whole = explained(pair, chat_body('pieces', 60000))
    text = json.dumps(chat_body('pieces', 60000)).encode()
    pieces = pair.ops.post(CHAT, content=(text[i:i + 999] for i in range(0, len(text), 999))).json()
    assert pieces['keys'] == whole['keys']
    answer = pair.ops.post(CHAT, content=b'{"model":"llama","messages":[{"role":"user","content":"' + b'x' * (8 << 20))
    assert answer.status_code == 413 and '8 MiB' in answer.json()['error']
    assert pair.ops.get('/ready').status_code == 200


def test_who_may_ask(pair):
    def ask(method='POST', path=CHAT, **headers):
        return pair.ops.request(method, path, content=b'{"model":"llama"}', headers={k.replace('_', '-'): v for k, v in headers.items()})
    here = 'http://127.0.0.1:%d' % pair.ops_port
    assert ask().status_code == ask(origin=here, sec_fetch_site='same-origin').status_code == 200
    for headers in ({'origin': 'http://evil.example'}, {'origin': 'null'}, {'origin': 'http://127.0.0.1:%d' % pair.port},
                    {'sec_fetch_site': 'cross-site'}, {'host': 'evil.example', 'sec_fetch_site': 'same-origin'}):
        assert ask(**headers).status_code == 403, headers
    answer = ask('GET')
    assert answer.status_code == 405 and answer.headers['allow'] == 'POST'
    assert ask('OPTIONS').status_code == 405
    assert ask(path='/explain').status_code == 404


def test_what_is_asked_is_not_written_down(pair):
    secret = 'okapi-marzipan-unlikely'
    explained(pair, chat_body('x') | {'user': secret, 'model': secret})
    explained(pair, (secret * 100).encode())
    pair.log.flush()
    with open(pair.log.name, encoding='utf-8', errors='replace') as f:
        assert secret not in f.read()
    assert secret not in pair.ops.get('/grid').text + pair.ops.get('/metrics').text


def test_only_on_a_loopback_address():
    class Open(Grid):
        def write(self, name, value):
            if name == 'gateway.json':
                value['ops'] = '0.0.0.0:%d' % self.ops_port
            super().write(name, value)
    with Open(sites=('east',)) as grid:
        answer = httpx.post('http://127.0.0.1:%d%s' % (grid.ops_port, CHAT), json=chat_body('x'))
        assert answer.status_code == 403 and 'loopback' in answer.json()['error']
        assert state(grid)['explain'] is False
