"""A site that does not take a request: who answers, what is counted, and what is never sent twice."""
import json

import pytest

from grid import Grid, prose


def failovers(grid):
    found = grid.metrics()
    return {s.name: int(found['grid_route_failovers_total{site="%s",cluster="%s"}' % (s.name, s.cluster)])
            for s in grid.sites.values()}


def entries(grid):
    return {s['cluster']: s['entries'] for s in grid.ops.get('/grid').json()['sites']}


def kill(site):
    site.process.kill()
    site.process.wait()


@pytest.fixture
def grid():
    with Grid(serving={'window_secs': 600}) as g:
        yield g


def body_of(size):
    frame = {'model': 'llama', 'max_tokens': 4, 'messages': [{'role': 'user', 'content': ''}]}
    frame['messages'][0]['content'] = prose('large', size - len(json.dumps(frame)))
    body = json.dumps(frame).encode()
    assert len(body) == size
    return body


def test_a_dead_site_costs_no_request(grid):
    text = prose('dead', 6000)
    assert [grid.chat(text).headers['x-grid-site'] for _ in range(2)] == ['east', 'east']
    held = entries(grid)
    assert held['pool-east'] > 20 and held['pool-west'] == 0
    kill(grid.sites['east'])
    answer = grid.chat(text)
    assert answer.status_code == 200 and answer.headers['x-grid-site'] == 'west'
    assert answer.headers['x-grid-backend'] == 'pool-west' and answer.headers['x-sim-site'] == 'west'
    assert failovers(grid) == {'east': 1, 'west': 0}
    assert grid.metrics()['grid_route_decisions_total{site="west",cluster="pool-west",reason="failover"}'] == 1
    now = entries(grid)
    assert now['pool-east'] == 0 and now['pool-west'] == held['pool-east']
    assert sum(grid.outcomes().values()) == 3, 'the outcome is counted once'
    assert grid.chat(text).headers['x-grid-site'] == 'west'      # it holds the prompt now
    assert failovers(grid) == {'east': 1, 'west': 0}


def test_streams_fail_over_too(grid):
    kill(grid.sites['east'])
    for client in (grid.openai(), grid.openai()):
        words = [c.choices[0].delta.content or '' for c in client.chat.completions.create(
            model='llama', max_tokens=8, stream=True, messages=[{'role': 'user', 'content': 'hello'}])]
        assert len(words) >= 8
    assert failovers(grid)['east'] >= 1


def test_the_last_candidate_is_reached_over_two_dead_ones():
    with Grid(sites=('east', 'north', 'west')) as grid:
        kill(grid.sites['east']), kill(grid.sites['north'])
        answer = grid.chat(prose('two', 3000))
        assert answer.headers.get('x-grid-site') == 'west', answer.text
        assert failovers(grid) == {'east': 1, 'north': 1, 'west': 0}
        kill(grid.sites['west'])
        answer = grid.chat('and none is left')
        assert answer.status_code == 503 and answer.json()['error']['code'] == 'upstream_unavailable'


@pytest.mark.parametrize('size, taken', [(1 << 20, True), ((1 << 20) + 1, False)])
def test_only_a_body_of_a_mebibyte_is_kept_for_another_site(grid, size, taken):
    body = body_of(size)
    kill(grid.sites['east'])
    answer = grid.http.post('/v1/chat/completions', content=body, headers={'content-type': 'application/json'})
    assert (answer.status_code == 200) == taken
    assert failovers(grid)['east'] == taken
    if not taken:
        assert answer.status_code == 503 and answer.headers['x-grid-site'] == 'east'
        assert answer.json()['error']['code'] == 'upstream_unavailable'


@pytest.mark.parametrize('limit, size, taken', [(2000, 2000, True), (2000, 2001, False), (0, 200, False), (3 << 20, 3 << 20, True)])
def test_the_bound_of_such_a_body_is_a_setting(limit, size, taken):
    with Grid(gateway={'failover_max_body_bytes': limit}) as grid:
        assert grid.ops.get('/grid').json()['settings']['failover_max_body_bytes'] == limit
        kill(grid.sites['east'])
        answer = grid.http.post('/v1/chat/completions', content=b'{"model":"llama","messages":[]}'.ljust(size),
                                headers={'content-type': 'application/json'})
        assert answer.headers['x-grid-site'] == ('west' if taken else 'east') and (answer.status_code == 503) != taken
        if limit == 0:
            answer = grid.http.get('/v1/other', headers={'x-model': 'llama'})
            assert answer.headers['x-grid-site'] == 'west', 'a request without a body goes on all the same'


def test_a_streamed_body_goes_on_when_its_length_is_said(grid):
    kill(grid.sites['east'])
    headers = {'content-type': 'application/octet-stream', 'x-model': 'llama'}
    answer = grid.http.post('/v1/embeddings', content=b'x' * 1000, headers=headers)
    assert answer.headers['x-grid-site'] == 'west'
    answer = grid.http.post('/v1/embeddings', content=iter([b'x' * 1000]), headers=headers)
    assert answer.status_code == 503 and answer.headers['x-grid-site'] == 'east'


def test_the_only_site_of_a_model_is_not_tried_twice():
    with Grid(sites=('east',)) as grid:
        kill(grid.sites['east'])
        answer = grid.chat('hello')
        assert answer.status_code == 503 and failovers(grid) == {'east': 0}


def test_answers_of_a_site_are_no_failure_to_hand_over(grid):
    for status in (429, 500, 503):
        grid.sites['east'].fault(status=status, times=1)
        answer = grid.chat('hello %d' % status)
        assert answer.status_code == status and answer.headers['x-grid-site'] == 'east'
    assert grid.sites['west'].state()['received'] == 0 and failovers(grid) == {'east': 0, 'west': 0}


def test_what_the_site_may_have_seen_is_not_sent_again(grid):
    grid.sites['east'].fault(reset=True, times=1)                 # the connection is new: it read the request
    answer = grid.chat('hello')
    assert answer.status_code == 503 and answer.json()['error']['code'] == 'upstream_unavailable'
    assert grid.sites['east'].state()['received'] == 1 and grid.sites['west'].state()['received'] == 0
    assert grid.chat('hello').status_code == 200
    grid.sites['east'].fault(reset=True, delay_ms=900, times=1)   # an old connection, but the site was at work
    assert grid.chat('hello').status_code == 503
    assert grid.sites['east'].state()['received'] == 3 and grid.sites['west'].state()['received'] == 0
    assert failovers(grid) == {'east': 0, 'west': 0}


def test_a_connection_closed_while_idle_is_no_failure(grid):
    text = prose('idle', 4000)
    assert grid.chat(text).headers['x-grid-site'] == 'east'
    held = entries(grid)['pool-east']
    grid.sites['east'].fault(reset=True, times=1)
    answer = grid.chat(text)
    assert answer.status_code == 200 and answer.headers['x-grid-site'] == 'east'
    assert grid.sites['east'].state()['received'] == 3, 'sent again, on another connection'
    assert grid.sites['west'].state()['received'] == 0
    assert entries(grid)['pool-east'] == held and failovers(grid) == {'east': 0, 'west': 0}
    grid.sites['east'].fault(reset=True, times=2)                 # once, not twice
    assert grid.chat(text).status_code == 503
    assert grid.sites['east'].state()['received'] == 5


def test_an_idle_connection_under_a_large_body_drops_nothing(grid):
    body = body_of(2 << 20)
    headers = {'content-type': 'application/json'}
    assert grid.http.post('/v1/chat/completions', content=body, headers=headers).status_code == 200
    held = entries(grid)['pool-east']
    grid.sites['east'].fault(reset=True, times=1)
    assert grid.http.post('/v1/chat/completions', content=body, headers=headers).status_code == 503
    assert held > 0 and entries(grid)['pool-east'] == held


def test_a_client_cannot_ask_for_retries(grid):
    grid.sites['east'].fault(status=503, times=2)
    answer = grid.chat('hello', headers={'x-envoy-retry-on': '5xx,reset', 'x-envoy-max-retries': '3'})
    assert answer.status_code == 503 and grid.sites['east'].state()['received'] == 1
    echoed = grid.chat('hello', headers={'x-sim-fault': 'delay=1', 'x-sim-echo': '1'})
    assert 'x-envoy' not in echoed.headers.get('x-sim-headers', '').lower()
