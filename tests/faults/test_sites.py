"""Sites that fail under load: what clients saw, what the counters said, and that nothing was lost that was not there."""
import os
import signal
import time

import pytest

from load import MODELS, Load, eventually, grid_of
from wire import Relay

HEALTHY = 'grid_cluster_healthy_hosts{cluster="pool-east"}'


@pytest.fixture
def grid():
    with grid_of() as g:
        yield g


def kill(site):
    site.process.kill()
    site.process.wait()


def test_killed(grid):
    with Load(grid) as load:
        since = time.monotonic()
        kill(grid.sites['east'])
        dead = time.monotonic()
        load.more(150)
    load.close('killed')
    # What was under way there is lost; what starts when it is dead goes on to another site, all but what an id leads there.
    load.judge('east', {'broken', '503'}, since, dead, pinned={'503'})
    assert load.gateway['failover'] > 0


def test_killed_and_back(grid):
    address = grid.sites['east'].address
    with Load(grid) as load:
        since = time.monotonic()
        kill(grid.sites['east'])
        dead = time.monotonic()
        load.more(60)
        grid.site_options = (*grid.site_options, '--listen', address)
        grid.sites['east'] = grid.make_site('east')
        grid.stack.callback(grid.sites['east'].stop)
        eventually(lambda: grid.metrics()[HEALTHY] == 1, what='the site to be seen again')
        eventually(lambda: load.probe('east')[1] == 'east', what='a request there')
        load.more(100)
    load.close('killed and back')
    # 404: it came back without what it had stored, which is for it to say.
    load.judge('east', {'broken', '503'}, since, dead, pinned={'503', '404'})


def test_what_is_led_to_a_dead_site(grid):
    with Load(grid, kinds=('plain', 'stream')) as load:
        made = load.ask('POST', '/v1/responses', {'model': MODELS['east'], 'input': 'hello'}, affinity=True).json()['id']
        kill(grid.sites['east'])

        def asked():
            return [load.ask('GET', '/v1/responses/' + made), load.ask('DELETE', '/v1/responses/' + made),
                    load.ask('POST', '/v1/responses/%s/cancel' % made),
                    load.ask('POST', '/v1/responses', {'model': MODELS['east'], 'input': 'on', 'previous_response_id': made})]
        before = asked()        # health checks may not have seen it yet
        eventually(lambda: grid.metrics()[HEALTHY] == 0, what='it to be seen')
        answers = before + [a for _ in range(20) for a in asked()]
        for answer in answers:
            assert (answer.status_code, answer.headers['retry-after'], answer.headers['content-type']) == (
                503, '5', 'application/json'), answer.text
            assert answer.headers['x-grid-site'] == 'east'
            error = answer.json()['error']
            assert (error['type'], error['code']) == ('server_error', 'upstream_unavailable'), error
        assert grid.metrics()['grid_route_decisions_total{site="east",cluster="pool-east",reason="pinned"}'] == len(answers)
        load.more(40)
    load.close('led to a dead site')
    load.judge('east', {'broken', '503'}, 0)


def test_frozen(grid):
    east = grid.sites['east'].process.pid
    with Load(grid) as load:
        since = time.monotonic()
        os.kill(east, signal.SIGSTOP)
        try:
            eventually(lambda: grid.metrics()[HEALTHY] == 0, what='it to be seen')
            seen = time.monotonic()
            eventually(lambda: any(s.outcome == 'timeout' for s in list(load.seen)), what='the patience of clients to end')
            load.more(150)
        finally:
            os.kill(east, signal.SIGCONT)
    load.close('frozen')
    # Once health checks have seen it nothing new goes there, but for what an id leads there: told at once.
    load.judge('east', {'timeout'}, since, seen, pinned={'timeout', '503'}, at_least=1)


@pytest.mark.parametrize('name, fault, outcomes', [
    ('500', {'status': 500}, {'500'}), ('429', {'status': 429}, {'429'}),
    ('garbage', {'status': 200, 'body': '\x01garbage'}, {'nonsense', 'short'}), ('slow', {'delay_ms': 400}, set()),
    ('reset', {'reset': True}, {'503'}), ('reset in a stream', {'drop_after_events': 2}, {'broken', '503'})])
def test_fault(grid, name, fault, outcomes):
    with Load(grid) as load:
        since = time.monotonic()
        grid.sites['east'].fault(**fault)
        load.more(150)
        grid.sites['east'].heal()
        healed = time.monotonic()
        load.more(60)
        eventually(lambda: load.probe('east')[1] == 'east', what='a request there')
    load.close(name)
    load.judge('east', outcomes, since, healed, pinned=outcomes | {'503'}, at_least=1 if outcomes else 0)
    if not name.startswith('reset'):
        assert load.gateway['failover'] == 0, 'what a site answered is not sent elsewhere'


def test_half_answers():
    grid = grid_of()
    relays = []

    def behind_a_relay(name, make=grid.make_site):
        site = make(name)
        if name == 'east':
            relays.append(Relay(site.address))
            site.address = relays[0].address
        return site
    grid.make_site = behind_a_relay
    with grid, Load(grid) as load:
        since = time.monotonic()
        relays[0].cut = 230         # the head and a little of the body; a health check's answer is shorter
        load.more(150)
        relays[0].cut = None
        healed = time.monotonic()
        load.more(100)
        load.end()
        load.close('half answers')
    # A client must see that it is half: an end like any other is no outcome here.
    load.judge('east', {'broken', '503'}, since, healed, pinned={'broken', '503'}, at_least=1)


def test_every_site_dead_and_one_back(grid):
    with Load(grid, kinds=('plain', 'sdk')) as load:
        for site in grid.sites.values():
            os.kill(site.process.pid, signal.SIGSTOP)
        eventually(lambda: all(v == 0 for k, v in grid.metrics().items() if k.startswith('grid_cluster_healthy_hosts')),
                   what='all to be seen')
        dead = time.monotonic()
        load.more(30)
        os.kill(grid.sites['north'].process.pid, signal.SIGCONT)
        eventually(lambda: grid.metrics()['grid_cluster_healthy_hosts{cluster="pool-north"}'] == 1, what='one to be back')
        back = time.monotonic()
        load.more(100)
        for site in grid.sites.values():
            os.kill(site.process.pid, signal.SIGCONT)
    load.close('all dead, one back', affinity=False)
    late = [s for s in load.seen if s.outcome != 'ok' and s.start > back]
    assert not late, late[:5]
    assert {s.outcome for s in load.seen if s.outcome != 'ok' and dead < s.start} <= {'503'}
    assert {s.outcome for s in load.seen if s.outcome != 'ok'} <= {'503', 'timeout'}
