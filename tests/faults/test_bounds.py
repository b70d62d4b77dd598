"""What a replica holds at most: the index of a hundred clusters, full, by its own word and by the process's resident memory."""
import os
import re
import threading

import httpx
import pytest

import load  # noqa: F401 (finds grid.py)
from grid import Grid

CLUSTERS, CAPACITY, KEYS = 100, 16384, 512
MOST_BYTES = 64             # an entry


class Many(Grid):
    """One site under a hundred names. The header says a model, of which the one name comes first and the next one second."""

    def write_serving(self):
        address, names = self.sites['east'].address, ['c%02d' % i for i in range(CLUSTERS)]
        self.serving_extra = {
            'candidates': [{'kind': 'inference_model', 'name': n, 'site': 'east', 'cluster': c}
                           for n, after in zip(names, names[1:] + names[:1]) for c in (n, after)],
            'clusters': [{'name': n, 'endpoints': [address], 'signals': False} for n in names]}
        super().write_serving()


def resident(grid):
    with open('/proc/%d/task/%d/children' % (grid.process.pid, grid.process.pid), encoding='ascii') as f:
        pid = f.read().split()[0]
    with open('/proc/%s/status' % pid, encoding='ascii') as f:
        return int(re.search(r'VmRSS:\s+(\d+) kB', f.read()).group(1)) * 1024


def fill(grid, name, prompts):
    """Prompts of 512 blocks that no other shares; in hex, so the text is its own JSON."""
    with httpx.Client(base_url=grid.url, timeout=60) as client:
        for _ in range(prompts):
            body = '{"model":"llama","max_tokens":1,"messages":[{"role":"user","content":"%s"}]}' % os.urandom(67000).hex()
            answer = client.post('/v1/chat/completions', content=body,
                                 headers={'content-type': 'application/json', 'x-model': name})
            assert (answer.status_code, answer.headers['x-grid-backend']) == (200, name), answer.text


@pytest.mark.timeout(600)
def test_a_hundred_full_clusters():
    with Many(sites=('east',), site_options=('--prefill-tps', '1000000000', '--cache-blocks', '1000')) as grid:
        fill(grid, 'c00', 64)               # buffers and connections are there from now on, and the first cluster is full
        before = resident(grid)
        held = grid.ops.get('/grid').json()['sites']
        assert next(s for s in held if s['cluster'] == 'c00')['entries'] == CAPACITY, 'full twice over, and no more than its bound'
        assert sum(s['entries'] for s in held) == CAPACITY
        halves = [threading.Thread(target=lambda names: [fill(grid, n, CAPACITY // KEYS) for n in names],
                                   args=(['c%02d' % i for i in range(start, CLUSTERS, 2)],)) for start in (1, 2)]
        for t in halves:
            t.start()
        for t in halves:
            t.join()
        sites = grid.ops.get('/grid').json()['sites']
        entries, told = sum(s['entries'] for s in sites), sum(s['index_bytes'] for s in sites)
        grown = resident(grid) - before
        fresh = entries - CAPACITY
        print('%d entries: %.1f bytes each by /grid, %.1f by resident memory' % (entries, told / entries, grown / fresh))
        load.NOTES.append('%d clusters of %d entries: %.1f bytes an entry by /grid, %.1f by resident memory' % (
            CLUSTERS, CAPACITY, told / entries, grown / fresh))
        assert entries == CLUSTERS * CAPACITY
        assert told / entries <= MOST_BYTES and all(abs(s['bytes_per_entry'] - told / entries) < 0.1 for s in sites)
        assert grown / fresh <= MOST_BYTES
        assert grown / fresh >= told / entries / 2, 'what /grid tells is really there'
