"""The fuzz corpora, replayed through the command and through the slow twin of tests/twin.

What coverage led the fuzzers to is read a second time by code that was written apart: the reason, the number of keys, and which
keys of all these bodies are equal must be the same. GRID_TWIN_CORPUS names a folder of grown corpora to replay instead
(docs/hacking.md); its folders are called as those of tests/fuzz/corpus.
"""
import hashlib
import json
import os
import pathlib
import sys

import pytest
from test_twin import PATHS, ROOT, Replay, twin

CORPUS = pathlib.Path(os.environ.get('GRID_TWIN_CORPUS') or ROOT / 'tests' / 'fuzz' / 'corpus')
APIS = (None, 'chat', 'completions', 'messages', 'responses')  # enum grid_api
DEPTH = 200000  # frames of Python: the twin recurses, and a fuzzer likes brackets


@pytest.fixture(scope='module')
def replay():
    one, limit = Replay(), sys.getrecursionlimit()
    sys.setrecursionlimit(DEPTH)
    yield one
    sys.setrecursionlimit(limit)
    one.close()


LAST = {'chat': b'messages', 'completions': b'prompt', 'messages': b'messages', 'responses': b'input'}


def longer(api, body):
    """The body with two blocks more at the end of its prompt, so that all that was in it comes to stand in whole blocks."""
    try:
        root = twin.Parser(body).whole()
    except twin.Bad:
        return None
    last = [node for name, node in root.value if name == LAST[api]][-1:] if root.kind == 'object' else []
    if not last or last[0].kind not in ('string', 'array'):
        return None
    at, text = last[0].end - 1, b'x' * 512
    if last[0].kind == 'array':
        text = b'{"role":"user","content":"' + text + b'"}' if api != 'completions' else b'"' + text + b'"'
        text = (b',' if last[0].value else b'') + text
    return body[:at] + text + body[at:]


def of_prompt(data):
    """As fuzz_prompt.c reads it: API, size of slices, body."""
    if len(data) >= 2 and APIS[data[0] % len(APIS)]:
        api, body, chunk = APIS[data[0] % len(APIS)], data[2:], data[1] % 64 + 1
        yield api, body, chunk
        more = longer(api, body)
        if more:
            yield api, more, chunk


def of_json(data):
    """As fuzz_json.c: size of slices, any text. It is tried as a body, and as what stands unread in one."""
    if data:
        yield 'chat', data[1:], data[0] % 64 + 1
        yield 'chat', b'{"model":"m","messages":[{"role":"user","content":"' + b'x' * 256 + b'","unread":' + data[1:] + b'}]}', 64


def of_canonical(data):
    """As fuzz_canonical.c: size of slices, a value. It is tried as tools, and as the text of a call's arguments."""
    chunk, value = data[0] % 64 + 1 if data else 1, data[1:]
    tail = b',"messages":[{"role":"user","content":"' + b'x' * 256 + b'"}]}'
    yield 'chat', b'{"model":"m","tools":' + value + tail, chunk
    text = json.dumps(value.decode('utf-8', 'surrogateescape')).encode()
    yield 'responses', b'{"model":"m","input":[{"type":"function_call","name":"f","arguments":' + text + b'},{"role":"user","content":"' + \
        b'x' * 512 + b'"}]}', chunk


@pytest.mark.parametrize('target,bodies_of', [('prompt', of_prompt), ('json', of_json), ('canonical', of_canonical)])
def test_corpus_agrees_with_the_twin(replay, target, bodies_of):
    compared = keyed = 0
    key_of, text_of = {}, {}  # each block with all before it has one key, and each key one such block
    for path in sorted((CORPUS / target).iterdir()):
        for api, body, chunk in bodies_of(path.read_bytes()):
            want, got = twin.look(api, body), replay.keys(api, body)
            where = (path.name, api, body)
            assert (got['reason'], len(got['keys'])) == (want.reason, len(want.stream) // twin.BLOCK), where
            assert replay.keys(api, body, chunk) == got, where
            compared, keyed = compared + 1, keyed + bool(got['keys'])
            head = hashlib.sha256(repr((want.model, want.salt)).encode())
            for i, key in enumerate(got['keys']):
                head.update(want.stream[i * twin.BLOCK:(i + 1) * twin.BLOCK])
                text = head.digest()
                assert key_of.setdefault(text, key) == key and text_of.setdefault(key, text) == text, where
    print('%s: %d bodies compared, %d with keys, %d different keys' % (target, compared, keyed, len(text_of)))
    assert compared > 0 and keyed > 0
    assert set(PATHS) == set(APIS[1:])
