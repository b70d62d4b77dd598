"""What `run` did with a change of its files: the counter, /grid and the log tell the same."""
import os

from grid import Grid, eventually, series

RELOADS = 'grid_serving_config_reload_total{result="%s"}'


def counts(grid):
    values = series(grid.ops.get('/metrics').text)
    return tuple(int(values[RELOADS % result]) for result in ('applied', 'reused', 'rejected'))


def in_envoy(grid):
    values = series(grid.admin.get('/stats/prometheus').text)
    return tuple(int(values.get(RELOADS % result, 0)) for result in ('applied', 'reused', 'rejected'))


def expect(grid, want):
    eventually(lambda: counts(grid) == want, 20, 'applied, reused, rejected = %r' % (want,))
    eventually(lambda: in_envoy(grid) == want, 20, 'the same in the store of Envoy')
    return grid.ops.get('/grid').json()['reload']


def test_refused_repeated_and_applied_changes_are_counted_and_shown():
    with Grid() as grid:
        assert counts(grid) == (0, 0, 0)
        good = grid.serving_extra

        grid.serving_extra = dict(good, candidates=7)
        grid.write_serving()
        last = expect(grid, (0, 0, 1))
        assert last['result'] == 'rejected'
        assert 'candidates' in last['error']
        assert grid.ops.get('/ready').status_code == 200

        grid.serving_extra = good
        grid.write_serving()
        last = expect(grid, (0, 1, 1))
        assert (last['result'], last['error']) == ('reused', '')

        grid.serving_extra = dict(good, load_window_ms=500000)
        grid.write_serving()
        last = expect(grid, (1, 1, 1))
        assert (last['result'], last['error'], last['count']) == ('applied', '', 4)

        grid.write('gateway.json', {'listen': 5})
        last = expect(grid, (1, 1, 2))
        assert last['result'] == 'rejected'
        assert os.path.join(grid.folder, 'gateway.json') in last['error']
