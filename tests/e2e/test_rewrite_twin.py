"""Tagged answers against the slow twin of tests/twin: the same bytes come out, whatever the answer and its pieces.

Answers are made at random, spelled at random and then bent at random. GRID_TEST_SEED repeats a run, GRID_TEST_ROUNDS sets
its length.
"""
import json
import os
import pathlib
import random
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / 'tests' / 'twin'))

import answers_twin as twin  # noqa: E402

TAG = b'east.0a1b2c3d.9f8e7d6c5b4a3928.'
LINES = os.environ.get('GRID_REWRITE_LINES', str(ROOT / 'build' / 'release' / 'rewrite_lines'))
SEED = int(os.environ.get('GRID_TEST_SEED') or random.SystemRandom().randrange(1 << 32))
ROUNDS = int(os.environ.get('GRID_TEST_ROUNDS') or 3000)
PIECES = [1, 2, 3, 5, 7, 64, 0]


class Tagger:
    def __init__(self):
        self.process = subprocess.Popen([LINES, TAG.decode()], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def tagged(self, body, sse, piece):
        self.process.stdin.write(b'%d %d %s\n' % (sse, piece, body.hex().encode()))
        self.process.stdin.flush()
        return bytes.fromhex(self.process.stdout.readline().decode())

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(10) == 0


@pytest.fixture(scope='module')
def tagger():
    one = Tagger()
    yield one
    one.close()


class Maker:
    """Random answers as bytes, thick with names and values that matter or nearly do."""

    NAMES = [b'id', b'response', b'conversation', b'response_id', b'previous_response_id', b'conversation_id', b'output',
             b'metadata', b'data', b'i', b'ids', b'previous_response_idx', b'Id', b'', b'\\u0069d', b'id\\\\', b'caf\xc3\xa9']
    STARTS = [b'resp_', b'conv_', b'resp_', b'conv_', b'resp', b'con', b'Resp_', b'msg_', b'\\u0072esp_', b'']
    RESTS = [b'abc', b'', b'e', b'east.', TAG[:-1], TAG, TAG + b'1', TAG + TAG, b'east.0a1b2c3e', b'west.0a1b2c3d..x', b'\\"', b'\\\\',
             b'\\u0065ast.', b'east\\u002e', b' ', b'\xff', b'","id":"resp_', b'\xf0\x9f\x98\x80']

    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, things):
        return things[self.random.randrange(len(things))]

    def space(self):
        return self.pick([b'', b'', b'', b'', b' ', b'\n', b'\t', b'\r\n'])

    def scalar(self):
        return self.pick([b'null', b'true', b'false', b'0', b'-1.5e+3', b'12345678901234567890', b'NaN', b'-Infinity'])

    def value(self, depth):
        kind = self.random.randrange(10 if depth < 5 else 6)
        if kind < 5:
            return b'"%s%s"' % (self.pick(self.STARTS), self.pick(self.RESTS[:-2] if kind else self.RESTS))
        if kind == 5:
            return self.scalar()
        if kind == 6:
            return b'[%s%s]' % (self.space(), (b',' + self.space()).join(self.value(depth + 1) + self.space()
                                                                       for _ in range(self.random.randrange(4))))
        return self.thing(depth + 1)

    def thing(self, depth=0):
        members = []
        for _ in range(self.random.randrange(1 if depth else 2, 6)):
            name = self.pick(self.NAMES[:3] if self.random.random() < .6 else self.NAMES)
            members.append(b'%s"%s"%s:%s%s%s' % (self.space(), name, self.space(), self.space(), self.value(depth), self.space()))
        return b'{%s}' % b','.join(members) if members else b'{ }'

    def text(self):
        body = bytearray(self.thing() if self.random.random() < .95 else self.value(0))
        chance = self.random.random()
        if body and chance < .25:
            at = self.random.randrange(len(body))
            junk = self.pick([b'\x00', b'\xff', b'"', b'\\', b'{', b'}', b'[', b']', b',', b':', b'0', b'-', b'\n', b'e', b'1e', b'tru'])
            body[at:at + self.random.randrange(2)] = junk
        elif chance < .35:
            del body[self.random.randrange(len(body)):]
        elif chance < .4:
            body += self.text()
        return bytes(body)

    def answer(self):
        return self.pick([b''] * 12 + [b' ', b'\r\n', twin.BOM, b'\xef\xbb']) + self.text()

    def event(self, end):
        lines, text = [], self.text()
        for line in text.replace(b'\r\n', b'\n').split(b'\n'):
            lines.append(self.pick([b'data: ', b'data: ', b'data: ', b'data:', b'data:  ']) + line)
            if self.random.random() < .1:
                lines.append(self.pick([b': x', b'id: {"id":"resp_1"}', b'data', b'data:', b'datax: {', b'dat', b' data: {']))
        if self.random.random() < .6:
            lines.insert(0, b'event: response.created')
        if self.random.random() < .05:
            lines.append(b'')
        ends = [end] if self.random.random() < .8 else [b'\n', b'\r', b'\r\n']
        return b''.join(line + self.pick(ends) for line in lines + [b''])

    def stream(self):
        end = self.pick([b'\n', b'\r\n', b'\r'])
        body = self.pick([b'', b'', b'', b'', end, twin.BOM, b'\xef']) + b''.join(self.event(end) for _ in range(self.random.randrange(1, 6)))
        if self.random.random() < .2:
            body = body[:self.random.randrange(len(body) + 1)]
        return body


def judge(tagger, body, sse, pieces):
    want = twin.tagged(body, sse, TAG)
    for piece in pieces:
        got = tagger.tagged(body, sse, piece)
        assert got == want, (sse, piece, body)
    assert tagger.tagged(want, sse, 0) == want, (sse, want)
    return (len(want) - len(body)) // len(TAG)


@pytest.mark.parametrize('kind', ['answer', 'stream'])
def test_tagged_answers_agree_with_the_twin(tagger, kind):
    print('seed', SEED)
    maker = Maker('%d %s' % (SEED, kind))
    touched = 0
    for _ in range(ROUNDS):
        body = getattr(maker, kind)()
        sse = maker.random.random() < (.5 if kind == 'stream' else .1)
        touched += judge(tagger, body, sse, [0, maker.pick(PIECES)]) > 0
    assert touched > ROUNDS // 6  # else the answers are not worth much


def test_the_answers_that_engines_send(tagger):
    seen = 0
    for path in sorted((ROOT / 'tests' / 'cases' / 'bodies').glob('*.json')):
        case = json.loads(path.read_text(encoding='utf-8'))
        if not path.name.startswith(('ans-', 'sse-')):
            continue
        if 'events' in case:
            judge(tagger, ''.join(case['events']).encode(), True, PIECES)
        else:
            for spelled in (json.dumps(case['response']), json.dumps(case['response'], indent=1)):
                judge(tagger, spelled.encode(), False, PIECES)
        seen += 1
    assert seen > 5


@pytest.mark.parametrize('opening, middle, closing', [(b'[', b'', b']'), (b'{"x":', b'1', b'}'),
                                                     (b'{"response":', b'{"id":"resp_1"}', b'}')])
def test_deep_nesting(tagger, opening, middle, closing):
    for depth in (63, 64, 65, 66, 5000):
        for name in (b'x', b'response'):
            body = b'{"%s":%s%s%s,"id":"resp_1"}' % (name, opening * depth, middle, closing * depth)
            assert judge(tagger, body, False, [0, 7]) >= 1
