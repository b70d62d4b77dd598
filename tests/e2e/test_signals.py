"""Queue depths of real polls: several engines of one cluster, one that hangs, one that restarts."""
import time

import pytest

from grid import Grid, Site, eventually, prose


def polled(grid, cluster):
    return next(p for p in grid.ops.get('/grid').json()['polls'] if p['cluster'] == cluster)


@pytest.fixture
def pool():
    """One site of three engines beside one of a single engine."""
    with Grid(sites=('east', 'west'), serving={'load_window_ms': 600}) as grid:
        engines = [grid.sites['east']] + [Site('east-%d' % i, grid.folder, grid.site_options) for i in (2, 3)]
        for engine in engines[1:]:
            grid.stack.callback(engine.stop)
        serving = {
            'local_site': 'east', 'window_secs': 600, 'load_window_ms': 600,
            'candidates': [{'kind': 'inference_model', 'name': 'llama', 'site': s, 'cluster': 'pool-' + s}
                           for s in ('east', 'west')],
            'clusters': [{'name': 'pool-east', 'endpoints': [e.address for e in engines],
                          'signals': {'interval_ms': 100, 'timeout_ms': 300}},
                         {'name': 'pool-west', 'endpoints': [grid.sites['west'].address], 'signals': {'interval_ms': 100}}]}
        grid.write('serving.json', serving)
        eventually(lambda: polled(grid, 'pool-east')['targets'] == 3, what='three engines to be asked')
        yield grid, engines


def test_every_engine_is_asked_and_one_that_hangs_delays_nobody(pool):
    grid, engines = pool
    for engine, waiting in zip(engines, (9, 3, 0)):
        engine.load(waiting)
    eventually(lambda: grid.metrics().get('grid_route_queue_depth{site="east",cluster="pool-east"}') == 4,
               what='the average of the three')
    engines[2].fault(delay_ms=60000, path='/metrics')
    eventually(lambda: grid.metrics().get('grid_route_queue_depth{site="east",cluster="pool-east"}') == 6,
               what='the average of the two that answer')
    assert grid.metrics()['grid_signal_sample_age_seconds{cluster="pool-east"}'] < 1
    assert grid.metrics()['grid_signal_sample_age_seconds{cluster="pool-west"}'] < 1
    assert polled(grid, 'pool-east')['unreachable'] > 0
    engines[2].heal()
    eventually(lambda: grid.metrics().get('grid_route_queue_depth{site="east",cluster="pool-east"}') == 4,
               what='the third to be back')
    assert not [n for n in grid.admin.get('/stats').text.splitlines() if n.startswith('cluster.grid_poll|')]


def test_an_engine_that_restarts_has_its_blocks_forgotten(pool):
    grid, engines = pool
    text = prose('restart', 5000)
    sites = {grid.chat(text).headers['x-grid-site'] for _ in range(3)}
    assert len(sites) == 1
    (site,) = sites
    held = lambda: {s['site']: s['entries'] for s in grid.ops.get('/grid').json()['sites']}[site]
    assert held() > 10
    seen = polled(grid, 'pool-' + site)['ok']
    eventually(lambda: polled(grid, 'pool-' + site)['ok'] > seen + 6, what='its engines to be asked since')
    engine = grid.sites['west'] if site == 'west' else engines[0]
    for e in engines if site == 'east' else [engine]:
        e.http.post('/sim/reset').raise_for_status()
    eventually(lambda: held() == 0, what='the blocks to be forgotten')
    assert grid.metrics()['grid_route_cluster_resets_total'] >= 1
    assert polled(grid, 'pool-' + site)['resets'] >= 1


def test_a_lying_engine_is_unmeasured(pool):
    grid, _ = pool
    west = grid.sites['west']
    for body, result in (('vllm:num_requests_waiting NaN\n', 'no_metric'), ('<html>', 'no_metric'),
                         ('x 1\n' * 300000, 'too_big')):
        before = polled(grid, 'pool-west')[result]
        west.fault(status=200, body=body, path='/metrics')
        eventually(lambda: polled(grid, 'pool-west')[result] > before + 1, what=result)
        assert polled(grid, 'pool-west')['why']
    eventually(lambda: 'grid_route_queue_depth{site="west",cluster="pool-west"}' not in grid.metrics(),
               what='the depth to be gone')
    before = time.monotonic()
    assert grid.chat('still served').status_code == 200 and time.monotonic() - before < 2
    west.heal()
    eventually(lambda: 'grid_route_queue_depth{site="west",cluster="pool-west"}' in grid.metrics(), what='its depth')
