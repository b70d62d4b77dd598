"""What is around the gateway fails under load: its own Envoy, the clock, names, the network."""
import contextlib
import os
import random
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest

import load as common
from load import HEALTH, MODELS, SITES, Load, eventually, grid_of
from wire import LossyWire

HERE = os.path.dirname(os.path.abspath(__file__))
YEAR_S = 365 * 86400
HEALTHY = 'grid_cluster_healthy_hosts{cluster="pool-east"}'


def envoy_of(grid):
    with open('/proc/%d/task/%d/children' % (grid.process.pid, grid.process.pid), encoding='ascii') as f:
        return int(f.read().split()[0])


def test_envoy_killed():
    """Every request that runs is lost, and no client waits for an answer that cannot come; the command ends and says why."""
    with grid_of() as grid:
        with Load(grid) as load:
            since = time.monotonic()
            os.kill(envoy_of(grid), signal.SIGKILL)
            assert grid.process.wait(20) == 128 + signal.SIGKILL
            load.more(60)
        grid.errors.seek(0)
        assert 'grid-gateway: Envoy was ended by signal 9' in grid.errors.read()
        failed = [s for s in load.seen if s.outcome != 'ok']
        assert {s.outcome for s in failed} <= {'broken', 'refused'} and all(s.end >= since for s in failed)
        common.ROWS.append(('Envoy killed', len(load.seen), len(load.seen) - len(failed), len(failed),
                            '%d requests from then on' % len(failed), 'gone; exit status 137'))


def test_the_clock_jumps(tmp_path):
    """The wall clock only: nothing moves the monotonic one. A year ahead, then two back."""
    shim, clock = tmp_path / 'jump.so', tmp_path / 'clock'
    subprocess.run(['gcc', '-O1', '-shared', '-fPIC', '-o', shim, os.path.join(HERE, 'jump.c')], check=True)
    clock.write_text('0')
    with grid_of(env={'LD_PRELOAD': str(shim), 'GRID_JUMP': str(clock)}) as grid:
        with Load(grid) as load:
            made = load.ask('POST', '/v1/responses', {'model': MODELS['east'], 'input': 'hello'}, affinity=True).json()['id']
            polls = 'grid_signal_polls_total{cluster="pool-east",result="ok"}'
            for offset in (YEAR_S, -YEAR_S, 0):
                temporary = tmp_path / 'clock.new'
                temporary.write_text(str(offset))
                os.rename(temporary, clock)
                before = grid.metrics()[polls]
                load.more(60)
                eventually(lambda b=before: grid.metrics()[polls] > b + 3, what='queues to be asked on')
                found = grid.metrics()
                for site in SITES:
                    score = 'grid_route_site_score{site="%s",cluster="pool-%s"}' % (site, site)
                    assert found[score] != float('inf'), 'measured, whatever the wall clock says'
                assert load.ask('GET', '/v1/responses/' + made).status_code == 200
        load.close('the clock jumps')
        load.judge(None, set(), 0)
        years = {s.line['time'][:4] for s in load.seen}
        assert len(years) == 3, 'the gateway was under those clocks: %s' % years


class Names:
    """A name server that knows one name, or does not any more."""

    def __init__(self, address):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((address, 53))
        self.known, self.asked = True, 0
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                query, peer = self.socket.recvfrom(512)
                end = query.index(b'\0', 12) + 5
                is_a = query[end - 4:end - 2] == b'\0\x01'
                answers = self.known and is_a
                self.asked += 1
                head = query[:2] + struct.pack('>HHHHH', 0x8580 | (0 if self.known else 3), 1, answers, 0, 0)
                record = b'\xc0\x0c\0\x01\0\x01' + struct.pack('>IH', 1, 4) + socket.inet_aton('127.0.0.1') if answers else b''
                self.socket.sendto(head + query[12:end] + record, peer)

    def stop(self):
        self.socket.close()


def test_a_name_is_gone(tmp_path):
    """A site known by its name; the name goes, and comes back."""
    (tmp_path / 'resolv.conf').write_text('nameserver 127.0.0.53\n')
    within = ('unshare', '-m', 'sh', '-c', 'mount --bind "$0" /etc/resolv.conf && exec "$@"', str(tmp_path / 'resolv.conf'))
    tried = subprocess.run([*within, 'true'], capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip('no mount namespace for a name server of our own: %s' % tried.stderr.strip())
    try:
        names = Names('127.0.0.53')
    except OSError as error:
        pytest.skip('no name server on 127.0.0.53: %s' % error)
    grid = grid_of(wrap=within, clusters={})

    def by_name(name, make=grid.make_site):
        site = make(name)
        if name == 'east':
            site.address = 'east.grid.test:' + site.address.split(':')[1]
        return site
    grid.make_site = by_name
    try:
        with grid:
            with Load(grid) as load:
                assert load.probe('east')[1] == 'east', 'the name is known'
                since = time.monotonic()
                names.known = False
                eventually(lambda: grid.metrics()[HEALTHY] == 0, 60, 'the end of the name to be seen')
                seen = time.monotonic()
                load.more(100)
                assert load.probe('east')[1] != 'east'
                names.known = True
                eventually(lambda: grid.metrics()[HEALTHY] == 1, 60, 'the name to be seen again')
                eventually(lambda: load.probe('east')[1] == 'east', what='a request there')
                load.more(60)
            load.close('name gone and back')
            # Only what an id leads there fails, while there is no address.
            load.judge('east', set(), since, seen, pinned={'503'})
    finally:
        names.stop()


@pytest.fixture
def wire():
    seed = random.randrange(1 << 30)
    print('seed', seed)
    try:
        one = LossyWire(seed)
    except OSError as error:
        subprocess.run(['ip', 'netns', 'del', LossyWire.NAME], capture_output=True)
        pytest.skip('no network namespace with a wire of our own: %s' % error)
    yield one
    one.stop()


def behind(wire):
    """The grid with site east at the other end of the wire."""
    grid = grid_of(clusters={'health': dict(HEALTH['health'], timeout_ms=1000)})

    def there(name, make=grid.make_site):
        if name != 'east':
            return make(name)
        command, ours = ('ip', 'netns', 'exec', wire.NAME), common.grid_module.BINARY
        wrapper = os.path.join(grid.folder, 'in-namespace')
        with open(wrapper, 'w', encoding='utf-8') as f:
            f.write('#!/bin/sh\nexec %s %s "$@" --listen %s:0\n' % (' '.join(command), ours, wire.THEIRS))
        os.chmod(wrapper, 0o755)
        common.grid_module.BINARY = wrapper
        try:
            return make(name)
        finally:
            common.grid_module.BINARY = ours
    grid.make_site = there
    return grid


def test_packets_are_lost(wire):
    with behind(wire) as grid:
        with Load(grid) as load:
            assert load.probe('east')[1] == 'east'
            since = time.monotonic()
            wire.loss = 0.1
            load.more(600)
            wire.loss = 0.0
            load.more(60)
        load.close('10 %% of packets lost (%d)' % wire.lost)
        assert wire.lost > 0
        # TCP mends it. What the site may have seen is not sent again, so a reset would be told; here there is none.
        load.judge('east', set(), since, pinned={'503'})


def test_a_partition(wire):
    with behind(wire) as grid:
        with Load(grid) as load:
            # A request that the site has and is silent about: its connection ends for want of an answer to TCP's probes.
            grid.sites['east'].fault(delay_ms=600000, path='/v1/completions')
            received, answers = grid.sites['east'].state()['received'], []
            silent = threading.Thread(target=lambda: answers.append(load.ask('POST', '/v1/completions', {
                'model': MODELS['east'], 'prompt': 'hello'}, affinity=True)))
            silent.start()
            eventually(lambda: grid.sites['east'].state()['received'] > received + 20, what='the site to have it')
            since = time.monotonic()
            wire.loss = 1.0
            eventually(lambda: grid.metrics()[HEALTHY] == 0, what='it to be seen')
            seen = time.monotonic()
            eventually(lambda: any(s.outcome == 'timeout' for s in list(load.seen)), what='the patience of clients to end')
            load.more(150)
            silent.join(60)
            assert answers and (answers[0].status_code, answers[0].headers['x-grid-site']) == (503, 'east')
            wire.loss = 0.0
            eventually(lambda: load.probe('east')[1] == 'east', 60, 'a request there again')
            load.more(60)
        load.close('partition')
        load.judge('east', {'timeout', '503'}, since, seen, pinned={'timeout', '503'}, at_least=1)
