"""The keys of the command against the slow twin of tests/twin: reasons, numbers of keys, and how far two bodies agree.

Bodies are made at random and then bent at random. GRID_TEST_SEED repeats a run, GRID_TEST_ROUNDS sets its length,
GRID_REPLAY names another command.
"""
import base64
import json
import os
import pathlib
import random
import shlex
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / 'tests' / 'twin'))

import keying_twin as twin  # noqa: E402

PATHS = {'chat': '/v1/chat/completions', 'completions': '/v1/completions', 'messages': '/v1/messages',
         'responses': '/v1/responses'}
BINARY = os.environ.get('GRID_GATEWAY', str(ROOT / 'build' / 'release' / 'grid-gateway'))
COMMAND = shlex.split(os.environ['GRID_REPLAY']) if 'GRID_REPLAY' in os.environ else [BINARY, 'replay']
SEED = int(os.environ.get('GRID_TEST_SEED') or random.SystemRandom().randrange(1 << 32))
ROUNDS = int(os.environ.get('GRID_TEST_ROUNDS') or 400)


class Replay:
    def __init__(self):
        self.process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def keys(self, api, body, chunk=0):
        line = {'op': 'keys', 'path': PATHS[api], 'body_b64': base64.b64encode(body).decode()}
        if chunk:
            line['chunk'] = chunk
        self.process.stdin.write(json.dumps(line).encode() + b'\n')
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)


@pytest.fixture(scope='module')
def replay():
    one = Replay()
    yield one
    one.close()


class Maker:
    """Random bodies as pairs of (name, value) so that members may be repeated and reordered; spelled at random."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def words(self, most):
        kinds = ['plain words go here ', 'caf\u00e9 \u6f22\u5b57 \U0001f600 ', 'line\nline\t"quoted" \\ / ', 'a']
        return self.random.choice(kinds) * self.random.randrange(0, most)

    def value(self, depth=0):
        pick = self.random.randrange(8 if depth < 3 else 5)
        if pick < 2:
            return self.words(4)
        if pick == 2:
            return self.random.choice([0, -1.5, 1e100, 12345678901234567890])
        if pick < 5:
            return self.random.choice([None, True, False])
        if pick == 5:
            return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        names = ['b', 'a', 'aa', '\u00e9', '\U0001f600', '\uff5e', '', 'type', '"']
        return Pairs((self.random.choice(names), self.value(depth + 1)) for _ in range(self.random.randrange(6)))

    def text(self):
        return self.words(self.random.choice([3, 40, 200]))

    def arguments(self):
        return self.random.choice([self.text, lambda: json.dumps({'b': [1, {'z': 1, 'y': 2}], 'a': self.words(3)}), self.value])()

    def uuid(self):
        return [('uuid', self.random.choice(['u1', None, 5]))] if self.random.random() < .2 else []

    def chat_part(self):
        kind = self.random.choice(['text', 'text', 'refusal', 'image_url', 'video_url', 'input_audio', 'file', 'image_embeds'])
        value = {'text': self.text, 'refusal': self.text, 'file': lambda: Pairs([('filename', 'f'), ('file_id', self.words(3))]),
                 'input_audio': lambda: Pairs([('data', self.words(9))]), 'image_embeds': self.value
                 }.get(kind, lambda: Pairs([('url', self.words(9)), ('detail', 'low')]))()
        return Pairs([('type', kind), (kind, value)] + self.uuid())

    def call(self):
        if self.random.random() < .3:
            return Pairs([('type', 'custom'), ('custom', Pairs([('name', 'g'), ('input', self.arguments())]))])
        return Pairs([('id', self.words(2)), ('function', Pairs([('name', self.words(2)), ('arguments', self.arguments())]))])

    def content(self, part):
        return self.random.choice([self.text, self.text, lambda: [part() for _ in range(self.random.randrange(4))], lambda: None])()

    def chat(self):
        messages = [Pairs([('role', self.random.choice(['user', 'system', 'r\u00f4le'])), ('content', self.content(self.chat_part)),
                           ('name', 'x')] + ([('tool_calls', [self.call() for _ in range(2)])] if self.random.random() < .3 else []))
                    for _ in range(self.random.randrange(6))]
        extra = [(n, self.value()) for n in ('tools', 'documents', 'chat_template', 'chat_template_kwargs', 'seed')
                 if self.random.random() < .3]
        return Pairs([('messages', messages)] + extra)

    def completions(self):
        return Pairs([('prompt', self.random.choice([self.text, lambda: [self.text()], self.value])())])

    def block(self, depth=0):
        kind = self.random.choice(['text', 'text', 'image', 'document', 'tool_use', 'tool_result', 'thinking'])
        more = {'text': lambda: [('text', self.random.choice(['', '', 'x-anthropic-billing-header: ']) + self.text())],
                'tool_use': lambda: [('name', 'f'), ('input', self.value())],
                'tool_result': lambda: [('content', self.content(lambda: self.block(depth + 1)) if depth < 12 else 'r')],
                'thinking': list}.get(kind, lambda: [('source', Pairs([('media_type', 'm'), (self.random.choice(['data', 'url', 'file_id']), self.words(9))]))])()
        return Pairs([('type', kind)] + more + self.uuid())

    def messages(self):
        turns = [Pairs([('role', 'user'), ('content', self.content(self.block))]) for _ in range(self.random.randrange(5))]
        return Pairs([('messages', turns), ('system', self.content(self.block)), ('tools', self.value())])

    def response_part(self):
        kind = self.random.choice(['input_text', 'output_text', 'refusal', 'input_image', 'input_file', 'input_audio'])
        more = {'input_image': lambda: [('image_url', self.words(9))], 'refusal': lambda: [('refusal', self.text())],
                'input_file': lambda: [(self.random.choice(['file_data', 'file_id', 'file_url']), self.words(9))],
                'input_audio': lambda: [('input_audio', Pairs([('data', 'd')]))]}.get(kind, lambda: [('text', self.text())])()
        return Pairs([('type', kind)] + more + self.uuid())

    def item(self):
        kind = self.random.choice(['message', None, 'function_call', 'function_call_output', 'custom_tool_call',
                                   'custom_tool_call_output', 'reasoning'])
        more = {'function_call': lambda: [('name', 'f'), ('arguments', self.arguments())], 'reasoning': list,
                'custom_tool_call': lambda: [('name', 'f'), ('input', self.arguments())],
                'function_call_output': lambda: [('output', self.value())],
                'custom_tool_call_output': lambda: [('output', self.text())]
                }.get(kind, lambda: [('role', 'user'), ('content', self.content(self.response_part))])()
        return Pairs(([('type', kind)] if kind else []) + more)

    def responses(self):
        extra = [(n, self.random.choice([self.value, self.text])()) for n in ('tools', 'instructions') if self.random.random() < .4]
        extra += [(n, self.random.choice([None, None, 'x'])) for n in ('previous_response_id', 'prompt') if self.random.random() < .1]
        return Pairs([('input', self.random.choice([self.text, lambda: [self.item() for _ in range(self.random.randrange(5))]])())] + extra)

    def body(self, api):
        top = getattr(self, api)()
        if self.random.random() < .95:
            top.append(('model', 'llama'))
        if self.random.random() < .1:
            top.append(('cache_salt', self.random.choice(['', 's', None, 5])))
        return top

    # -- bending

    def places(self, value, out):
        if isinstance(value, Pairs):
            out.append(value)
            for _, inner in value:
                self.places(inner, out)
        elif isinstance(value, list):
            out.append(value)
            for inner in value:
                self.places(inner, out)
        return out

    def bend(self, top):
        where = self.random.choice(self.places(top, []))
        if not where:
            return
        at = self.random.randrange(len(where))
        how = self.random.randrange(5)
        if how == 0:
            self.random.shuffle(where) if isinstance(where, Pairs) else where.append(where[at])
        elif how == 1:
            del where[at]
        elif how == 2 and isinstance(where, Pairs):
            where.append(where[at])
        elif isinstance(where, Pairs):
            name, value = where[at]
            where[at] = (name, value + self.words(3) if isinstance(value, str) and how == 3 else self.value())
        else:
            where[at] = self.value()

    # -- spelling

    def space(self):
        return self.random.choice(['', '', '', ' ', '\n'])

    def spell_text(self, text):
        return ''.join('\\u%04x' % ord(c) if c < '\uffff' and self.random.random() < self.escapes else json.dumps(c, ensure_ascii=False)[1:-1]
                       for c in text)

    def spell(self, value):
        if isinstance(value, Pairs):
            inner = ','.join('%s"%s"%s:%s' % (self.space(), self.spell_text(n), self.space(), self.spell(v)) for n, v in value)
            return '{%s%s}%s' % (inner, self.space(), self.space())
        if isinstance(value, list):
            return '[%s%s]%s' % (self.space(), ','.join(self.spell(v) for v in value), self.space())
        if isinstance(value, str):
            return '"%s"' % self.spell_text(value)
        return self.space() + json.dumps(value)

    def bytes_of(self, value):
        self.escapes = self.random.choice([0, 0, 0, .02])
        body = bytearray(self.spell(value).encode('utf-8'))
        chance = self.random.random()
        if body and chance < .05:
            body[self.random.randrange(len(body))] = self.random.choice(b'\xff\x80"\\{}[],:0 ')
        elif chance < .07:
            del body[self.random.randrange(len(body)):]
        return bytes(body)


class Pairs(list):
    """An object's members."""


def judge(replay, api, body, chunk):
    want = twin.look(api, body)
    got = replay.keys(api, body)
    assert (got['reason'], len(got['keys'])) == (want.reason, len(want.stream) // twin.BLOCK), body
    assert replay.keys(api, body, chunk) == got, (chunk, body)
    return want, got['keys']


@pytest.mark.parametrize('api', PATHS)
def test_keys_agree_with_the_twin(replay, api):
    print('seed', SEED)
    maker = Maker('%d %s' % (SEED, api))
    readable = 0
    for _ in range(ROUNDS):
        top = maker.body(api)
        first = maker.bytes_of(top)
        for _ in range(maker.random.randrange(3)):
            maker.bend(top)
        second = maker.bytes_of(top)
        chunk = maker.random.choice([1, 2, 3, 7, 61, 300])
        (want_a, keys_a), (want_b, keys_b) = judge(replay, api, first, chunk), judge(replay, api, second, chunk)
        if not keys_a or not keys_b:
            continue
        readable += 1
        shared = next((i for i, (a, b) in enumerate(zip(keys_a, keys_b)) if a != b), min(len(keys_a), len(keys_b)))
        assert shared == twin.shared_blocks(want_a, want_b), (first, second)
        assert not set(keys_a[shared:]) & set(keys_b[shared:])
    assert readable > ROUNDS // 20


def chat_of(text):
    return b'{"model":"m","messages":[{"role":"u","content":"' + text + b'"},{"role":7}]}'


@pytest.mark.parametrize('tail', [b'', b'\xff', b'\\ud800'])
def test_the_cap_to_the_byte(replay, tail):
    for length in range(131072 - 40, 131072 + 3):
        judge(replay, 'chat', chat_of(b'x' * length + tail), 4096)


@pytest.mark.parametrize('over', [-1, 0, 1, 2])
def test_the_canonical_limit_to_the_byte(replay, over):
    fill = b'y' * (16384 + over)
    judge(replay, 'chat', b'{"model":"m","messages":[],"tools":["' + fill[4:] + b'"]}', 1000)
    judge(replay, 'responses', b'{"model":"m","input":[{"type":"function_call","name":"f","arguments":"' + fill[2:] + b'"}]}', 1000)


@pytest.mark.parametrize('depth', [127, 128, 129, 200])
def test_depth_of_canonical_values(replay, depth):
    nest = b'[' * depth + b']' * depth
    judge(replay, 'chat', b'{"model":"m","tools":' + nest + b',"messages":[]}', 7)
    judge(replay, 'responses', b'{"model":"m","input":[{"type":"function_call","name":"f","arguments":"' + nest + b'"}]}', 7)
