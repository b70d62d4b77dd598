"""An engine that is killed and started again in the middle: its cache is gone. How soon the gateway knows, and what it costs.

Envoy leaves a host alone that it could not connect to five times, polls included: for 5 s at first and 30 s at most, looked at
every second. Until then the engine gets no request, so that nothing is foreseen of it; at its first poll its blocks are forgotten.
"""
import json
import time

import httpx
import pytest

from apis import Chat
from engines import BLOCK_TOKENS, INTERVAL_MS, START_S
from grid import eventually, prose

TIMEOUT_MS = 2000                   # of a poll, the default
EJECTED_MS = 30000 + 1000           # the longest, and how often Envoy looks
API = Chat()


def turn(pair, gateway, text):
    """Site, tokens of the prompt, cached tokens, seconds to the first token, and the decision."""
    start, first, usage = time.monotonic(), None, None
    body = dict(API.body([text]), **API.streamed())
    with httpx.stream('POST', pair.urls[gateway] + API.path, json=body, timeout=120) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            if line.startswith('data: {'):
                event = json.loads(line[6:])
                usage = event.get('usage') or usage
                if first is None and event['choices'] and 'role' not in event['choices'][0]['delta']:
                    first = time.monotonic() - start
        site = answer.headers['x-grid-site']
    return {'site': site, 'tokens': usage['prompt_tokens'], 'cached': API.cached({'usage': usage}), 'first': first,
            'outcome': pair.decision(gateway)['outcome']}


def resets(pair):
    return [sum(float(line.split()[-1]) for line in ops.get('/metrics').text.splitlines()
                if line.startswith('grid_route_cluster_resets_total')) for ops in pair.all_ops]


@pytest.fixture
def west(pair):
    """The engine to restart; it runs for the tests that follow, whatever becomes of this one."""
    west = pair.sites['west']
    yield west
    if west.process.poll() is not None:
        west.start()
        eventually(lambda: west.answers('/health'), START_S, 'the engine started again')


def test_an_engine_restarted_in_the_middle(pair, west, table):
    rows = []

    def take(what, gateway, text):
        told = turn(pair, gateway, text)
        rows.append('%-44s %-5s %-9s %6d %6d %8.0f' % (what, told['site'], told['outcome'], told['tokens'], told['cached'],
                                                     1000 * told['first']))
        return told
    pair.send_new_work_to('west')
    talks = [prose('restart %d' % number, 9000) for number in range(3)]
    for gateway, text in ((0, talks[0]), (1, talks[1]), (0, talks[2])):
        told = take('first turn', gateway, text)
        assert (told['site'], told['outcome'], told['cached']) == ('west', 'no_match', 0)
        told = take('the same again', gateway, text)
        assert (told['site'], told['outcome']) == ('west', 'sticky')
        assert told['cached'] == (told['tokens'] - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    before = resets(pair)

    west.kill()
    told = take('while it is down', 0, talks[2])
    assert (told['site'], told['cached']) == ('east', 0), 'it goes on to the other engine'
    told = take('again, while it is down', 0, talks[2])
    assert told['site'] == 'east' and told['cached'] > 0
    assert told['outcome'] in ('sticky', None), 'None, in no outcome, once Envoy leaves the dead host alone: one site to choose'
    assert resets(pair) == before
    started = time.monotonic()
    west.start()
    up = eventually(lambda: west.answers('/metrics') and time.monotonic(), START_S, 'the engine started again')
    known = [None, None]

    def all_know():
        for gateway, count in enumerate(resets(pair)):
            if count > before[gateway] and not known[gateway]:
                known[gateway] = time.monotonic()
        return all(known)
    eventually(all_know, 60, 'both replicas know of the restart')
    late = [max(0, moment - up) for moment in known]
    assert resets(pair) == [count + 1 for count in before]
    eventually(pair.is_idle, 60, 'two measured engines')
    for gateway in range(2):
        told = take('first turn after the restart', gateway, talks[gateway])
        assert (told['site'], told['outcome'], told['cached']) == ('west', 'no_match', 0), 'nothing is foreseen, nothing is there'
        told = take('the same again', gateway, talks[gateway])
        assert (told['site'], told['outcome']) == ('west', 'sticky') and told['cached'] > 0
    told = take('the talk that went on to the other engine', 0, talks[2])
    assert (told['site'], told['outcome']) == ('east', 'sticky') and told['cached'] > 0
    table('an engine restarted in the middle', '%-44s %-5s %-9s %6s %6s %8s' % ('', 'site', 'outcome', 'tokens', 'cached', 'first ms'), *rows,
          'down to up: %.1f s; then known to the replicas after %.2f s and %.2f s' % (up - started, *late))
    assert max(late) < (EJECTED_MS + INTERVAL_MS + TIMEOUT_MS) / 1000, 'until Envoy lets it in, an interval, and a poll'
