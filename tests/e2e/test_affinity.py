"""A conversation through a real Envoy: where its turns go, and why."""
import contextlib
import json

import pytest

from grid import Grid, blocks_of, eventually, prose


@pytest.fixture(scope='module')
def grid():
    with Grid() as g:
        yield g


def turn(client, messages, stream):
    """One turn by the official SDK: the site, the answer's text, the cached tokens that the engine reports."""
    options = {'stream_options': {'include_usage': True}} if stream else {}
    raw = client.chat.completions.with_raw_response.create(model='llama', messages=messages, max_tokens=8, stream=stream,
                                                           **options)
    site = raw.headers['x-grid-site']
    if not stream:
        answer = raw.parse()
        return site, answer.choices[0].message.content, answer.usage.prompt_tokens_details.cached_tokens
    text, cached = '', None
    for event in raw.parse():
        if event.choices and event.choices[0].delta.content:
            text += event.choices[0].delta.content
        if event.usage:
            cached = event.usage.prompt_tokens_details.cached_tokens
    return site, text, cached


@pytest.mark.parametrize('stream', [False, True])
def test_six_turns_stick_from_turn_two(grid, stream):
    client = grid.openai()
    messages = [{'role': 'system', 'content': prose('system %s' % stream, 4000)}]
    sites = []
    for number in range(6):
        messages.append({'role': 'user', 'content': prose('turn %d %s' % (number, stream), 300)})
        (site, text, cached), outcome = grid.counted(lambda: turn(client, messages, stream))
        messages.append({'role': 'assistant', 'content': text})
        sites.append(site)
        assert outcome == ('sticky' if number else 'no_match')
        assert (cached > 900) == (number > 0), 'the engine itself must report the hit'
        assert text
    assert len(set(sites)) == 1


def test_a_second_conversation_goes_by_load(grid):
    first = grid.chat(prose('spread 1', 3000))
    busy = first.headers['x-grid-site']
    other = 'west' if busy == 'east' else 'east'
    try:
        grid.set_depth(busy, 0.5)
        answer, outcome = grid.counted(lambda: grid.chat(prose('spread 2', 3000)))
    finally:
        grid.sites[busy].load(0)
    assert answer.headers['x-grid-site'] == other
    assert outcome == 'no_match'


def test_load_wins_strictly_above_the_worth():
    with Grid() as grid:
        text = prose('gate', 10000)
        body = json.dumps({'model': 'llama', 'max_tokens': 4, 'messages': [{'role': 'user', 'content': text}]})
        worth = blocks_of(body) * 64 / 10000 / 2
        assert 0.1 < worth < 0.2
        post = lambda: grid.http.post('/v1/chat/completions', content=body, headers={'content-type': 'application/json'})
        site = post().headers['x-grid-site']
        other = 'west' if site == 'east' else 'east'
        grid.set_depth(site, worth)
        answer, outcome = grid.counted(post)
        assert (answer.headers['x-grid-site'], outcome) == (site, 'sticky'), 'a queue of exactly the worth stays'
        grid.set_depth(site, worth + 0.001)
        answer, outcome = grid.counted(post)
        assert (answer.headers['x-grid-site'], outcome) == (other, 'load_override')


def test_an_identical_three_block_prompt_never_sticks(grid):
    text = next(t for t in (prose('short', n) for n in range(600, 1300, 50)) if blocks_of(
        json.dumps({'messages': [{'role': 'user', 'content': t}], 'model': 'llama'})) == 3)
    for _ in range(5):
        answer, outcome = grid.counted(lambda: grid.chat(text))
        assert answer.status_code == 200
        assert outcome == 'no_match'


@pytest.mark.parametrize('status', [429, 500])
def test_a_refusal_makes_the_site_forgotten(grid, status):
    text = prose('forget %d' % status, 4000)
    site = grid.chat(text).headers['x-grid-site']
    _, outcome = grid.counted(lambda: grid.chat(text))
    assert outcome == 'sticky'
    answer, outcome = grid.counted(lambda: grid.chat(text, headers={'x-sim-fault': 'status=%d' % status}))
    assert (answer.status_code, outcome, answer.headers['x-grid-site']) == (status, 'sticky', site)
    _, outcome = grid.counted(lambda: grid.chat(text))
    assert outcome == 'no_match'


def test_a_bad_request_forgets_nothing(grid):
    text = prose('bad request', 4000)
    grid.chat(text)
    grid.chat(text, headers={'x-sim-fault': 'status=400'})
    _, outcome = grid.counted(lambda: grid.chat(text))
    assert outcome == 'sticky'


def test_a_client_that_leaves_teaches_nothing():
    with Grid(site_options=('--prefill-tps', '1000000', '--decode-tps', '5000')) as grid:
        text = prose('leaver', 4000)
        with pytest.raises(Exception, match='(?i)time'):
            grid.http.post('/v1/chat/completions', json={'model': 'llama', 'messages': [{'role': 'user', 'content': text}]},
                           headers={'x-sim-fault': 'delay=20000'}, timeout=0.5)
        eventually(lambda: all(s.state()['running'] == 0 for s in grid.sites.values()), what='the request to be gone')
        _, outcome = grid.counted(lambda: grid.chat(text))
        assert outcome == 'no_match'


def test_token_arrays_and_short_bodies_go_by_load(grid):
    for body in ({'model': 'llama', 'prompt': list(range(2000))}, {'model': 'llama', 'prompt': 'hi'}):
        answer, outcome = grid.counted(lambda: grid.http.post('/v1/completions', json=dict(body, max_tokens=2)))
        assert outcome == 'not_applicable'
        assert answer.headers['x-grid-site'] in grid.sites


def test_completions_stick_too(grid):
    body = {'model': 'llama', 'prompt': prose('completion', 4000), 'max_tokens': 2}
    first = grid.http.post('/v1/completions', json=body)
    answer, outcome = grid.counted(lambda: grid.http.post('/v1/completions', json=body))
    assert outcome == 'sticky'
    assert answer.headers['x-grid-site'] == first.headers['x-grid-site']
    assert answer.json()['usage']['prompt_tokens_details']['cached_tokens'] > 900


def test_affinity_off_counts_nothing():
    with Grid(affinity={'enabled': False}) as grid:
        text = prose('off', 4000)
        for _ in range(2):
            _, outcome = grid.counted(lambda: grid.chat(text))
            assert outcome is None
        assert all(n == 0 for n in grid.outcomes().values())


def test_a_drained_site_is_no_candidate():
    with Grid(admission={'east': 'existing_only'}) as grid:
        for number in range(4):
            answer, outcome = grid.counted(lambda: grid.chat(prose('drain %d' % number, 2000)))
            assert answer.headers['x-grid-site'] == 'west'
            assert outcome is None


def test_only_the_clusters_that_are_named_have_a_route():
    with Grid(gateway={'grid_site_route': {'clusters': ['pool-west'], 'prefix_affinity': {}}}) as grid:
        for number in range(4):
            answer, outcome = grid.counted(lambda: grid.chat(prose('route %d' % number, 2000)))
            assert answer.headers['x-grid-site'] == 'west'
            assert outcome is None


@pytest.mark.parametrize('spread', [False, True])
def test_idle_sites_share_new_conversations(spread):
    """Four long streams begin while every queue is empty: with spread_ties each goes where fewest are open, else all to the first."""
    with Grid(affinity={'spread_ties': spread}, site_options=('--decode-tps', '20')) as grid, contextlib.ExitStack() as stack:
        sites = []
        for i in range(4):
            body = {'model': 'llama', 'stream': True, 'max_tokens': 400, 'messages': [{'role': 'user', 'content': prose('tie %d' % i, 3000)}]}
            sites.append(stack.enter_context(grid.http.stream('POST', '/v1/chat/completions', json=body)).headers['x-grid-site'])
            series = 'grid_route_open_requests{site="%s",cluster="pool-%s"}'
            assert [grid.metrics()[series % (s, s)] for s in ('east', 'west')] == [sites.count('east'), sites.count('west')]
        assert sites == (['east', 'west'] * 2 if spread else ['east'] * 4)
        stack.close()
        eventually(lambda: sum(v for k, v in grid.metrics().items() if k.startswith('grid_route_open_requests')) == 0,
                   what='streams that were left')
