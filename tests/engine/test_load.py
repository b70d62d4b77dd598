"""Load of real engines, read from their own /metrics, against what a match is worth: load wins when it must and not before.

An engine runs four requests at once; each further one waits, and that is its queue. The queue is made by long requests, one
rung after the other, and at each rung talks that the engine holds are asked. A match is worth a tenth of a request a block here.
"""
import math
import select
import socket
import time

import httpx
import pytest

from apis import Chat
from engines import INTERVAL_MS, RUN_AT_ONCE, WORTH_OF_A_BLOCK
from grid import eventually, prose, series

WINDOW_MS = 3000
TALKS = {'short': 16, 'long': 36}   # blocks: worth 1.6 and 3.6 requests that wait
TOP = 5
POLL_S = 2                          # the longest that a poll waits for its answer
LONG = {'model': 'llama', 'prompt': 'x', 'max_tokens': 8000, 'ignore_eos': True}


class Held:
    """Long requests at an engine, as many as wanted; one that ends is sent again by `keep`."""

    def __init__(self, engine):
        self.engine, self.sockets = engine, []

    def send(self):
        host, port = self.engine.address.split(':')
        body = httpx.Request('POST', 'http://x', json=LONG).content
        s = socket.create_connection((host, int(port)), 30)
        s.sendall(b'POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n'
                  % len(body) + body)
        return s

    def keep(self, wanted):
        ended = select.select(self.sockets, [], [], 0)[0]
        for s in ended:
            self.sockets.remove(s)
            s.close()
        while len(self.sockets) < wanted:
            self.sockets.append(self.send())

    def drop(self):
        for s in self.sockets:
            s.close()
        self.sockets = []


@pytest.fixture
def window(pair):
    """A short window, so that a rung is soon forgotten."""
    pair.usual['load_window_ms'] = pair.serving_extra['load_window_ms'] = WINDOW_MS
    yield
    pair.usual['load_window_ms'] = pair.serving_extra['load_window_ms'] = 15000
    pair.write_serving()


@pytest.fixture
def held(pair):
    held = Held(pair.sites['west'])
    yield held
    held.drop()


def decide(pair, body):
    """The gateway's decision about a body. Whoever asked leaves as soon as it stands, so that it adds nothing to the queue."""
    before = pair.decision()['number']

    def found():
        newest = pair.decision()
        return newest if newest['number'] > before else None
    with socket.create_connection(('127.0.0.1', pair.port), 30) as s:
        content = httpx.Request('POST', 'http://x', json=body).content
        s.sendall(b'POST /v1/chat/completions HTTP/1.1\r\nhost: grid\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n'
                  % len(content) + content)
        return eventually(found, 60, 'a decision')


def at_rung(pair, held, waiting, body):
    """The decision about a body while west has so many waiting in the gateway's eyes, and east none."""
    def stands():
        held.keep(RUN_AT_ONCE + waiting if waiting else 0)
        return pair.depth('west') == waiting and pair.depth('east') == 0
    while True:
        eventually(stands, 120, 'a queue of %d' % waiting)
        made = decide(pair, body)
        if (made['holder_depth'], made['other_depth']) == (waiting, 0):
            return made


def test_load_wins_at_the_right_moment(pair, window, held, table):
    api = Chat()
    bodies = {name: api.body([prose('load ' + name, 256 * blocks)]) for name, blocks in TALKS.items()}
    pair.send_new_work_to('west')
    for body in bodies.values():
        answer = httpx.post(pair.url + api.path, json=body, timeout=120)
        assert (answer.status_code, answer.headers['x-grid-site']) == (200, 'west')
    pair.send_new_work_to('east')
    lines, moved = [], {}
    for waiting in range(TOP + 1):
        for name, body in bodies.items():
            if name in moved:
                continue            # both engines hold it now
            made = at_rung(pair, held, waiting, body)
            assert made['run'] >= TALKS[name] and made['worth'] == pytest.approx(made['run'] * WORTH_OF_A_BLOCK)
            lines.append('%7d %-6s %6.1f %-14s %s' % (waiting, name, made['worth'], made['outcome'], made['site']))
            if waiting > made['worth']:
                moved[name] = waiting
                assert (made['outcome'], made['site']) == ('load_override', 'east'), 'the queue is longer than the match is worth'
            else:
                assert (made['outcome'], made['site']) == ('sticky', 'west'), 'the match is worth the queue'
    assert moved == {'short': 2, 'long': 4}
    table('load against a match, by the engine\'s own queue', '%7s %-6s %6s %-14s %s' % ('waiting', 'talk', 'worth', 'outcome', 'to'),
          *lines)


def looked(pair):
    """West's queue in the gateway's eyes, and the polls of it that were answered, from one page."""
    page = series(pair.ops.get('/metrics').text)
    return (page['grid_route_site_score{site="west",cluster="pool-west"}'],
            page['grid_signal_polls_total{cluster="pool-west",result="ok"}'])


def test_when_the_gateway_sees_a_queue_and_its_end(pair, window, held, table):
    """A queue is seen at the next poll that is answered, and believed for the window after its end. Told in polls, since an engine
    on a busy machine answers them late."""
    pair.send_new_work_to('west')
    held.keep(RUN_AT_ONCE + TOP)
    eventually(lambda: held.engine.waiting() >= TOP, 120, 'a queue')
    start, polls = time.monotonic(), looked(pair)[1]
    _, seen_polls = eventually(lambda: (lambda at: at if TOP <= at[0] < math.inf else None)(looked(pair)), 120, 'the queue seen')
    late = time.monotonic() - start
    assert seen_polls - polls <= 2, 'the poll that runs, and the next'
    assert pair.goes_to(pair.url) == 'east', 'new work follows the queue'
    _, polls = looked(pair)
    while True:
        sampled = time.monotonic()  # before the newest sample, at most
        if looked(pair)[1] > polls:
            break
    held.drop()
    eventually(lambda: held.engine.waiting() == 0, 120, 'the end of the queue')
    gone = time.monotonic()
    past = None
    while True:
        depth, polls = looked(pair)
        now = time.monotonic()
        if depth == 0:
            break
        if now - sampled < WINDOW_MS / 1000:
            assert depth >= TOP, 'the worst of the window counts'
        if now - gone > WINDOW_MS / 1000 + POLL_S:
            past = polls if past is None else past
            assert polls - past <= 2, 'past the window it is gone with the next poll'
        assert now - gone < 120
        time.sleep(0.02)
    assert now - sampled >= WINDOW_MS / 1000, 'not before'
    assert pair.goes_to(pair.url) == 'west'
    table('a queue in the gateway\'s eyes', '%-34s %s' % ('', 'seconds'),
          '%-34s %.2f' % ('seen after the engine shows it', late), '%-34s %.2f' % ('believed after its end', now - gone))
