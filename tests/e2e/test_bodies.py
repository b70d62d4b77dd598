"""Bodies of every size and form reach the site byte for byte, over each protocol."""
import json
import socket

import httpx
import pytest

from grid import Grid, prose

MIB = 1 << 20


@pytest.fixture(scope='module')
def grid():
    with Grid() as g:
        yield g


def echo(grid, body, headers=None, client=None, path='/v1/chat/completions', check=True):
    """Sends the body and checks that the site got those bytes."""
    answer = (client or grid.http).post(path, content=body, headers=dict({'x-sim-echo': '1', 'x-model': 'llama',
                                        'content-type': 'application/json'}, **(headers or {})))
    assert answer.status_code == 200, answer.text[:300]
    if check:
        assert answer.content == (body if isinstance(body, bytes) else b''.join(body_parts(body)))
    return answer


def body_parts(body):
    return list(body)


def padded(size):
    """A chat body of exactly `size` bytes."""
    frame = '{"model":"llama","messages":[{"role":"user","content":"%s"}]}'
    return (frame % ('x' * (size - len(frame) + 2))).encode()


@pytest.mark.parametrize('size', [0, 1, 1000, 16384, 65536, MIB - 1, MIB, MIB + 1, 3 * MIB])
def test_sizes(grid, size):
    body = padded(size) if size > 100 else b'{' * size
    assert len(body) == size
    echo(grid, body)


def test_64_mib(grid):
    body = padded(64 * MIB)
    answer = echo(grid, body)
    assert len(answer.content) == 64 * MIB


def test_over_the_limit_with_a_model_streams_on(grid):
    body = padded(64 * MIB + 1)
    answer, outcome = grid.counted(lambda: echo(grid, body))
    assert outcome == 'not_applicable'
    assert len(answer.content) == len(body)


def test_over_the_limit_without_a_model_is_413(grid):
    body = b'{"messages":[{"role":"user","content":"' + b'x' * (66 * MIB) + b'"}],"model":"llama"}'
    answer = grid.http.post('/v1/chat/completions', content=body, headers={'content-type': 'application/json'})
    assert answer.status_code == 413
    assert answer.json()['error']['code'] == 'body_too_large'


@pytest.mark.parametrize('body', [b'not json', b'[1,2,3]', b'\xff\xfe', b'{"model":"llama"', b'{"model":"llama"} x',
                                  b'\xef\xbb\xbf{"model":"llama"}'])
def test_what_is_no_json_is_forwarded_untouched(grid, body):
    _, outcome = grid.counted(lambda: echo(grid, body))
    assert outcome == 'not_applicable'


def test_token_arrays_are_forwarded_untouched(grid):
    body = json.dumps({'model': 'llama', 'prompt': list(range(50000))}).encode()
    _, outcome = grid.counted(lambda: echo(grid, body, path='/v1/completions'))
    assert outcome == 'not_applicable'


def test_other_content_types_are_not_held(grid):
    body = b'--x\r\ncontent-disposition: form-data; name="file"\r\n\r\n' + b'\x00\x01' * 50000 + b'\r\n--x--\r\n'
    echo(grid, body, {'content-type': 'multipart/form-data; boundary=x'}, path='/v1/audio/transcriptions')


def test_chunked_http1(grid):
    """Chunks that cut JSON anywhere: the prompt still sticks, the bytes still arrive."""
    body = json.dumps({'model': 'llama', 'max_tokens': 2,
                       'messages': [{'role': 'user', 'content': prose('chunked', 4000)}]}).encode()

    def pieces():
        for start in range(0, len(body), 97):
            yield body[start:start + 97]
    outcomes = []
    for _ in range(2):
        answer, outcome = grid.counted(lambda: grid.http.post('/v1/chat/completions', content=pieces(),
                                                              headers={'content-type': 'application/json'}))
        assert answer.status_code == 200
        outcomes.append(outcome)
    assert outcomes == ['no_match', 'sticky']
    whole = grid.http.post('/v1/chat/completions', content=pieces(),
                           headers={'content-type': 'application/json', 'x-sim-echo': '1'})
    assert whole.content == body


def test_one_byte_at_a_time(grid):
    """A raw HTTP/1.1 client that writes its body byte by byte."""
    body = b'{"model":"llama","max_tokens":1,"messages":[{"role":"user","content":"slow"}]}'
    with socket.create_connection(('127.0.0.1', grid.port), 10) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.sendall(b'POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-sim-echo: 1\r\nconnection: close\r\n'
                  b'content-type: application/json\r\ncontent-length: %d\r\n\r\n' % len(body))
        for i in range(len(body)):
            s.sendall(body[i:i + 1])
        got = b''
        while piece := s.recv(65536):
            got += piece
    assert got.startswith(b'HTTP/1.1 200')
    assert got.endswith(body)


def test_http2(grid):
    with httpx.Client(base_url=grid.url, http1=False, http2=True, timeout=60) as client:
        for size in (200, 70000, 3 * MIB):
            answer = echo(grid, padded(size), client=client)
            assert answer.http_version == 'HTTP/2'
        text = prose('http2', 4000)
        body = {'model': 'llama', 'max_tokens': 2, 'messages': [{'role': 'user', 'content': text}]}
        first = client.post('/v1/chat/completions', json=body)
        answer, outcome = grid.counted(lambda: client.post('/v1/chat/completions', json=body))
        assert outcome == 'sticky'
        assert answer.headers['x-grid-site'] == first.headers['x-grid-site']


def test_a_stream_arrives_as_it_is_written():
    """Events are passed on one by one: the first is there long before the last is made."""
    import time
    with Grid(site_options=('--prefill-tps', '1000000', '--decode-tps', '20')) as grid:
        body = {'model': 'llama', 'stream': True, 'max_tokens': 20, 'messages': [{'role': 'user', 'content': 'count'}]}
        start, first, last, events = time.monotonic(), None, None, []
        with grid.http.stream('POST', '/v1/chat/completions', json=body) as answer:
            assert answer.headers['content-type'].startswith('text/event-stream')
            for line in answer.iter_lines():
                if line.startswith('data:'):
                    last = time.monotonic() - start
                    first = last if first is None else first
                    events.append(line)
        assert events[-1] == 'data: [DONE]'
        assert len(events) > 20
        assert last - first > 0.5, 'twenty tokens at twenty a second take a second'


def test_concurrent_64_mib_bodies_do_not_melt(grid):
    """Two at once, so that the process is bounded by what it is sent and no more."""
    import concurrent.futures
    body = padded(48 * MIB)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        sizes = list(pool.map(lambda _: len(echo(grid, body, check=False).content), range(2)))
    assert sizes == [len(body)] * 2
