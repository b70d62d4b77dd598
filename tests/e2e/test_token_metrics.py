"""Times, tokens and predictions on /metrics, of answers that went through Envoy from engines that report them."""
import json

import pytest

from grid import Grid, eventually, prose

SITES = ('east', 'west')
SLOW = ('--prefill-tps', '20000', '--decode-tps', '100')


def labels(site, **more):
    return '{%s}' % ','.join('%s="%s"' % (k, v) for k, v in dict(site=site, cluster='pool-' + site, **more).items())


@pytest.fixture(scope='module')
def grid():
    with Grid(sites=SITES, site_options=SLOW, gateway={'access_log': True}, apart=True) as grid:
        yield grid


def ask(grid, path, body, stream):
    answer = grid.http.post(path, json=dict(body, model='llama', stream=stream))
    answer.raise_for_status()
    return answer


def turns(name, extra):
    text = prose(name, 12000)
    for more in ('', ' and then?', ' and after that?'):
        yield extra(text + more)


def chat(text):
    return {'messages': [{'role': 'user', 'content': text}], 'max_tokens': 8, 'stream_options': {'include_usage': True}}


def responses(text):
    return {'input': text, 'max_output_tokens': 8, 'store': False}


def completions(text):
    return {'prompt': text, 'max_tokens': 8, 'stream_options': {'include_usage': True}}


@pytest.mark.parametrize('path,body', [('/v1/chat/completions', chat), ('/v1/responses', responses),
                                       ('/v1/completions', completions)])
@pytest.mark.parametrize('stream', [True, False])
def test_tokens_reported_and_predicted(grid, path, body, stream):
    """Three turns: the first is a miss as predicted, the others are hits as predicted; the sums are the sites' own."""
    before, sites = grid.metrics(), {s: grid.sites[s].state() for s in SITES}
    for turn in turns(path + str(stream), body):
        answer = ask(grid, path, turn if stream else {k: v for k, v in turn.items() if k != 'stream_options'}, stream)
        site = answer.headers['x-grid-site']
    after, now = grid.metrics(), {s: grid.sites[s].state() for s in SITES}

    def grew(name, **more):
        series = name + labels(site, **more)
        return after[series] - before.get(series, 0)

    told = {k: now[site][k] - sites[site][k] for k in ('prompt_tokens', 'cached_tokens')}
    assert told['cached_tokens'] > told['prompt_tokens'] / 2
    # A site's first answer in a run may come before it ever told of cached tokens; a simulated one tells always.
    assert grew('grid_route_prompt_tokens_total') == told['prompt_tokens']
    assert grew('grid_route_reported_cached_tokens_total') == told['cached_tokens']
    assert grew('grid_route_cache_predictions_total', result='right_miss') == 1
    assert grew('grid_route_cache_predictions_total', result='right_hit') == 2
    predicted = grew('grid_route_predicted_cached_tokens_total')
    assert abs(predicted - told['cached_tokens']) < 0.25 * told['prompt_tokens'], (predicted, told)


def test_times_of_streams(grid):
    """A prompt of some 3,000 tokens is read in 150 ms, and 8 tokens are written 10 ms apart."""
    before = grid.metrics()
    site = ask(grid, '/v1/chat/completions', chat(prose('times', 12000)), True).headers['x-grid-site']
    after = grid.metrics()

    def grew(name):
        series = name + labels(site, outcome='no_match')
        return after[series] - before.get(series, 0)

    assert grew('grid_route_first_token_seconds_count') == 1
    assert 0.1 < grew('grid_route_first_token_seconds_sum') < 2
    assert 3 <= grew('grid_route_token_gap_seconds_count') <= 8
    assert 0.04 < grew('grid_route_token_gap_seconds_sum') < 2


def test_an_answer_that_is_no_stream_has_no_first_token(grid):
    before = grid.metrics()
    ask(grid, '/v1/chat/completions', {'messages': [{'role': 'user', 'content': 'short'}]}, False)
    after = grid.metrics()
    assert {k: v for k, v in after.items() if 'first_token' in k} == {k: v for k, v in before.items() if 'first_token' in k}


def test_time_in_the_filter(grid):
    """Each request that was sent on and each answer is counted once, and took microseconds, not the engine's time."""
    before = grid.metrics()
    for i in range(5):
        ask(grid, '/v1/chat/completions', chat(prose('filter%d' % i, 12000)), True)
    grid.http.get('/v1/models')  # the gateway's own answer: no time of a site's

    def grew(name):
        return grid.metrics()[name] - before[name]

    eventually(lambda: grew('grid_filter_response_seconds_count') == 5, what='five answers counted')
    assert grew('grid_filter_request_seconds_count') == 5
    for side in ('request', 'response'):
        assert 0 < grew('grid_filter_%s_seconds_sum' % side) < 0.1


def test_blocks(grid):
    before = grid.metrics()
    for turn in turns('blocks', chat):
        ask(grid, '/v1/chat/completions', turn, True)
    after = grid.metrics()
    matched = after['grid_route_matched_blocks_sum'] - before['grid_route_matched_blocks_sum']
    keyed = after['grid_route_keyed_blocks_total'] - before['grid_route_keyed_blocks_total']
    assert after['grid_route_matched_blocks_count'] - before['grid_route_matched_blocks_count'] == 3
    assert after['grid_route_matched_blocks_bucket{le="0"}'] - before['grid_route_matched_blocks_bucket{le="0"}'] == 1
    assert 0.6 < matched / keyed < 0.7


def test_series_are_bounded(grid):
    """No label is a request's: neither other models, paths and headers nor many conversations add a series."""
    for i in range(20):
        grid.http.post('/v1/chat/completions?x=%d' % i, json={'model': 'nobody-%d' % i, 'messages': []}, headers={'x-user': str(i)})
        ask(grid, '/v1/chat/completions', chat(prose('bound%d' % i, 600)), True)
    # The figures of docs/operations.md.
    series = grid.metrics()
    times = {s for s in series if s.startswith(('grid_route_first_token', 'grid_route_token_gap'))}
    led = {(site, outcome) for site in SITES for outcome in ('no_match', 'sticky', 'load_override', 'exploration', 'not_applicable',
                                                             'pinned', 'none') if any(labels(site, outcome=outcome)[1:-1] in s for s in times)}
    assert len(led) >= 2 and len(times) == 30 * len(led)
    rest = set(series) - times
    of_pairs = {s for s in rest if 'site="' in s and 'site=""' not in s}
    of_clusters = {s for s in rest - of_pairs if 'cluster="pool-' in s}
    assert len(of_pairs) == 15 * len(SITES)
    assert len(of_clusters) <= 11 * len(SITES)
    assert len(rest - of_pairs - of_clusters) == 79


def test_the_log_says_what_the_engine_reported():
    with Grid(sites=SITES, gateway={'access_log': True}, apart=True) as grid:
        for turn in turns('log', chat):
            ask(grid, '/v1/chat/completions', turn, True)
        grid.chat('no stream')
        grid.stop()

        def logged():
            grid.log.seek(0)
            return [json.loads(line) for line in grid.log.read().splitlines() if line.startswith('{"')]
        lines = eventually(lambda: len(logged()) == 4 and logged(), what='four lines of the log')
    assert [line['outcome'] for line in lines] == ['no_match', 'sticky', 'sticky', 'not_applicable']
    assert lines[0]['cached_tokens'] == 0 and lines[3]['prompt_tokens'] > 0
    for line in lines[1:3]:
        assert line['prompt_tokens'] > 2000 and line['cached_tokens'] > 0.9 * line['prompt_tokens']
