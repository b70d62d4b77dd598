"""Sites that fail under load: what clients saw, what the counters said, and that nothing was lost that was not there.

Run by `make faults`. Each case prints how many requests were sent, answered and failed.
"""
import collections
import contextlib
import os
import signal
import sys
import threading
import time

import httpx
import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'e2e'))
from grid import Grid, eventually, prose  # noqa: E402

CLIENTS = 12
HEALTH = {'health': {'path': '/health', 'interval_ms': 500, 'timeout_ms': 300}}


class Load:
    """Clients that ask without a pause, every other one for a stream, and note what became of each request."""

    def __init__(self, grid):
        self.grid, self.stopping, self.lock = grid, threading.Event(), threading.Lock()
        self.seen = []              # (when it ended, status or name of the error, site)
        self.threads = [threading.Thread(target=self.run, args=(i,), daemon=True) for i in range(CLIENTS)]

    def run(self, number):
        with httpx.Client(base_url=self.grid.url, timeout=8) as client:
            for turn in range(1 << 30):
                if self.stopping.is_set():
                    return
                body = {'model': 'llama', 'max_tokens': 8, 'stream': bool(number % 2),
                        'messages': [{'role': 'user', 'content': prose('client %d %d' % (number, turn % 4), 2000)}]}
                site = None
                try:
                    with client.stream('POST', '/v1/chat/completions', json=body) as answer:
                        site, status = answer.headers.get('x-grid-site'), answer.status_code
                        text = answer.read()
                        if status == 200 and number % 2 and b'[DONE]' not in text:
                            status = 'cut stream'
                except httpx.HTTPError as e:
                    status = type(e).__name__
                with self.lock:
                    self.seen.append((time.monotonic(), status, site))

    def __enter__(self):
        for t in self.threads:
            t.start()
        eventually(lambda: len(self.seen) > 5 * CLIENTS, what='the load to run')
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for t in self.threads:
            t.join(20)

    def more(self, n):
        before = len(self.seen)
        eventually(lambda: len(self.seen) > before + n, 40, 'more requests to end')


def report(name, load, grid):
    counts = collections.Counter(status for _, status, _ in load.seen)
    found = grid.metrics()
    moved = int(sum(v for k, v in found.items() if k.startswith('grid_route_failovers_total')))
    decided = int(sum(v for k, v in found.items() if k.startswith('grid_route_decisions_total') and 'failover' not in k))
    failed = sum(n for status, n in counts.items() if status != 200)
    print('\n%-24s sent %d, answered %d, failed %d %s; failovers %d' % (
        name, len(load.seen), counts[200], failed, {str(k): v for k, v in counts.items() if k != 200}, moved))
    assert decided == len(load.seen), 'the counters add up to the requests sent'
    return counts, moved


def lost(load, site):
    """Failed requests that were not at the site at fault."""
    return [s for s in load.seen if s[1] != 200 and s[2] not in (site, None)]


@pytest.fixture
def grid():
    with Grid(sites=('east', 'west', 'north'), clusters=HEALTH) as g:
        yield g


def test_killed(grid):
    with Load(grid) as load:
        grid.sites['east'].process.kill()
        grid.sites['east'].process.wait()
        killed = time.monotonic()
        load.more(200)
    counts, _ = report('killed', load, grid)
    assert not lost(load, 'east') and counts[200] >= len(load.seen) - CLIENTS, 'at most what was under way there'
    late = [(i, round(t - killed, 3), s, site) for i, (t, s, site) in enumerate(load.seen) if s != 200 and t > killed + 2]
    assert not late, 'two seconds later nobody notices'


def test_frozen(grid):
    with Load(grid) as load:
        os.kill(grid.sites['east'].process.pid, signal.SIGSTOP)
        try:
            load.more(150)
            eventually(lambda: grid.metrics()['grid_cluster_healthy_hosts{cluster="pool-east"}'] == 0, what='it to be seen')
            load.more(50)
        finally:
            os.kill(grid.sites['east'].process.pid, signal.SIGCONT)
    counts, _ = report('frozen', load, grid)
    assert not lost(load, 'east') and counts[200] >= len(load.seen) - 2 * CLIENTS


@pytest.mark.parametrize('name, fault, seen', [
    ('500', {'status': 500}, {500}), ('429', {'status': 429}, {429}), ('garbage', {'status': 200, 'body': '\x01garbage'}, {200}),
    ('slow', {'delay_ms': 400}, {200}), ('reset', {'reset': True}, {503}),
    ('reset in a stream', {'drop_after_events': 2}, {'cut stream', 'RemoteProtocolError', 503})])
def test_fault(grid, name, fault, seen):
    with Load(grid) as load:
        grid.sites['east'].fault(**fault)
        load.more(150)
        grid.sites['east'].heal()
        load.more(60)
    counts, moved = report(name, load, grid)
    assert not lost(load, 'east')
    assert set(counts) - {200, 'cut stream'} <= seen, counts
    if name != 'reset':
        assert moved == 0, 'what a site answered is not sent elsewhere'
    with contextlib.suppress(AssertionError):
        eventually(lambda: grid.chat('healed').status_code == 200, 5)
    assert grid.chat('healed').status_code == 200
