"""Stored state byte for byte through a real Envoy: what sites get of requests, what clients get of answers."""
import base64
import contextlib
import gzip
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import threading

import httpx
import pytest

from grid import Grid, eventually

MIB = 1 << 20
CLUSTER = 'pool-script'
TAG = b'east.%s..' % hashlib.sha256(CLUSTER.encode()).hexdigest()[:8].encode()
JSON = b'content-type: application/json\r\n'
EVENTS = b'content-type: text/event-stream\r\n'


class Script:
    """A site that says what a test wants. `answer` gets a Seen and a function that sends bytes at once."""

    def __init__(self):
        self.answer, self.seen = None, []
        self.listener = socket.create_server(('127.0.0.1', 0), backlog=64)
        self.address = '127.0.0.1:%d' % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with contextlib.suppress(OSError), connection, connection.makefile('rb') as stream:
            while True:
                first = stream.readline()
                if not first:
                    return
                method, path, _ = first.split(b' ', 2)
                headers = {}
                while line := stream.readline().rstrip(b'\r\n'):
                    name, _, value = line.partition(b': ')
                    headers[name.lower().decode()] = value
                if self.answer(self.note(method, path, headers, read_body(headers, stream)), connection.sendall) == 'hang up':
                    return

    def note(self, method, path, headers, body):
        self.seen.append({'method': method, 'path': path, 'headers': headers, 'body': body})
        return self.seen[-1]

    def stop(self):
        self.listener.close()


def read_body(headers, stream):
    if 'content-length' in headers:
        return stream.read(int(headers['content-length']))
    pieces, more = [], 'transfer-encoding' in headers
    while more:
        more = int(stream.readline(), 16)
        pieces.append(stream.read(more + 2)[:more])
    return b''.join(pieces)


def whole(body, headers=JSON, status=b'200 OK'):
    return b'HTTP/1.1 %s\r\n%scontent-length: %d\r\n\r\n%s' % (status, headers, len(body), body)


def chunk(piece):
    return b'%x\r\n%s\r\n' % (len(piece), piece)


def chunked(headers=JSON):
    return b'HTTP/1.1 200 OK\r\n%stransfer-encoding: chunked\r\n\r\n' % headers


@pytest.fixture(scope='module')
def site():
    script = Script()
    yield script
    script.stop()


@pytest.fixture(scope='module')
def grid(site):
    serving = {'candidates': [{'kind': 'inference_model', 'name': 'llama', 'site': 'east', 'cluster': CLUSTER}],
               'clusters': [{'name': CLUSTER, 'endpoints': [site.address], 'signals': False}], 'local_site': 'east'}
    with Grid(serving=serving) as g:
        yield g


@pytest.fixture(params=['HTTP/1.1', 'HTTP/2'])
def client(request, grid):
    two = request.param == 'HTTP/2'
    with httpx.Client(base_url=grid.url, http1=not two, http2=two, timeout=60) as c:
        c.protocol = request.param
        yield c


def says(site, data):
    """The site answers every request with these bytes."""
    def answer(_, send):
        send(data)
    site.answer, site.seen = answer, []


def create(client, body, headers=None, path='/v1/responses'):
    return client.post(path, content=body, headers=dict({'content-type': 'application/json'}, **(headers or {})))


def pieces_of(body, step):
    for start in range(0, len(body), step):
        yield body[start:start + step]


def envoy_of(grid):
    return int(subprocess.run(['pgrep', '-P', str(grid.process.pid)], capture_output=True, text=True, check=True).stdout)


def resident_mib(pid):
    with open('/proc/%d/status' % pid, encoding='ascii') as f:
        return int(re.search(r'VmRSS:\s+(\d+)', f.read()).group(1)) / 1024


# ---- requests ---------------------------------------------------------------------------------------------------------

BODIES = [
    b'{"model":"llama","input":"hi","previous_response_id":"resp_@abc"}',
    b'{"previous_response_id" : "resp_@abc", "conversation":{"x":[1], "id":"conv_@c"}, "input":"resp_e.x..y","model":"llama"}',
    b'{"conversation":"conv_@c","metadata":{"id":"resp_q"},"model":"llama","input":"\\u00e9 \xc3\xa9"}',
]


@pytest.mark.parametrize('number', range(len(BODIES)))
@pytest.mark.parametrize('step', [0, 1, 7, 30])
def test_ids_in_bodies_lose_their_tag_and_nothing_else(grid, site, client, number, step):
    says(site, whole(b'{}'))
    body, want = BODIES[number].replace(b'@', TAG), BODIES[number].replace(b'@', b'')
    answer = create(client, pieces_of(body, step) if step else body)
    assert answer.status_code == 200 and answer.http_version == client.protocol
    seen = site.seen[0]
    assert seen['body'] == want
    assert ('content-length' in seen['headers']) == (not step)
    assert step or int(seen['headers']['content-length']) == len(want)
    assert answer.headers['x-grid-site'] == 'east'


def test_a_raw_client_may_cut_its_body_anywhere(grid, site):
    """Two writes, the cut at every byte of the id's surroundings."""
    says(site, whole(b'{}'))
    body, want = BODIES[0].replace(b'@', TAG), BODIES[0].replace(b'@', b'')
    with socket.create_connection(('127.0.0.1', grid.port), 20) as s, s.makefile('rb') as stream:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for cut in range(body.index(b'previous') - 2, len(body) + 1):
            s.sendall(b'POST /v1/responses HTTP/1.1\r\nhost: grid\r\n' + JSON + b'content-length: %d\r\n\r\n' % len(body)
                      + body[:cut])
            s.sendall(body[cut:])
            assert stream.readline().startswith(b'HTTP/1.1 200'), cut
            headers = b''.join(iter(stream.readline, b'\r\n'))
            stream.read(len(b'{}') if b'content-length' in headers else 0)
            if b'chunked' in headers:
                while int(stream.readline(), 16):
                    stream.readline()
                stream.readline()
            assert site.seen[-1]['body'] == want, cut


@pytest.mark.parametrize('where', ['first', 'last'])
def test_64_mib_with_an_id(grid, site, client, where):
    says(site, whole(b'{}'))
    head, tail = (b'{"previous_response_id":"resp_@abc","model":"llama","input":"', b'"}')
    if where == 'last':
        head, tail = b'{"model":"llama","input":"', b'","previous_response_id":"resp_@abc"}'
    head, tail = head.replace(b'@', TAG), tail.replace(b'@', TAG)
    body = head + (b'0123456789abcdef' * (4 * MIB))[:64 * MIB - len(head) - len(tail)] + tail
    before = resident_mib(envoy_of(grid))
    answer = create(client, pieces_of(body, 65536), {'content-length': str(len(body))})
    assert answer.status_code == 200, answer.text
    assert site.seen[0]['body'] == body.replace(TAG, b'')
    assert resident_mib(envoy_of(grid)) < before + 230, 'one copy for the buffer, one on its way out, some slack'


def test_http2_trailers_end_a_body(grid, site):
    """A length, a body with an id, trailers: what HTTP/2 clients of gRPC habits send."""
    import h2.connection
    says(site, whole(b'{}'))
    body, want = BODIES[0].replace(b'@', TAG), BODIES[0].replace(b'@', b'')
    with socket.create_connection(('127.0.0.1', grid.port), 20) as s:
        http = h2.connection.H2Connection()
        http.initiate_connection()
        http.send_headers(1, [(':method', 'POST'), (':path', '/v1/responses'), (':scheme', 'http'), (':authority', 'grid'),
                              ('content-type', 'application/json'), ('content-length', str(len(body)))])
        http.send_data(1, body[:40])
        http.send_data(1, body[40:])
        http.send_headers(1, [('x-checksum', '1')], end_stream=True)
        s.sendall(http.data_to_send())
        eventually(lambda: site.seen, what='the request at the site')
    assert site.seen[0]['body'] == want
    assert int(site.seen[0]['headers']['content-length']) == len(want)


@pytest.mark.parametrize('path', ['/v1/responses/resp_@abc', '/v1/responses/resp_@a.b.c/input_items?limit=2&after=msg_%2F&x',
                                  '/v1/conversations/conv_@c1/items/msg_1?a=resp_%s' % TAG.decode()])
def test_paths_lose_their_tag_and_keep_the_rest(grid, site, client, path):
    says(site, whole(b'{"id":"msg_1"}'))
    tag = TAG.decode()
    answer = client.get(path.replace('@', tag), headers={'accept-encoding': 'gzip, br'})
    assert answer.status_code == 200
    assert site.seen[0]['path'].decode() == path.replace('@', '')
    assert 'accept-encoding' not in site.seen[0]['headers']


def test_paths_are_normalized_and_slashes_are_not(grid, site):
    """Dot segments never reach a site, nor does a slash in an id become one; the rest arrives as it was sent."""
    says(site, whole(b'{}'))
    for path, want in ((b'/v1/x/../responses/resp_%sa/can%%2fcel', b'/v1/responses/resp_a/can%2fcel'),
                       (b'/v1/responses/resp_%sa%%2f..%%2fb', b'404'),
                       (b'/v1/responses/resp_%sa%%2Eb', b'/v1/responses/resp_a.b'),
                       (b'/v1/responses/resp_%sa//x', b'/v1/responses/resp_a//x'),
                       (b'/v1/responses/resp_%sa/../../models', None)):
        site.seen.clear()
        with socket.create_connection(('127.0.0.1', grid.port), 20) as s:
            s.sendall(b'GET %s HTTP/1.1\r\nhost: grid\r\nconnection: close\r\n\r\n' % (path % TAG))
            answer = b''.join(iter(lambda: s.recv(65536), b''))
        if want == b'404':
            assert answer.startswith(b'HTTP/1.1 404') and not site.seen
        elif want is None:
            assert not site.seen or b'resp_' not in site.seen[0]['path']
        else:
            assert answer.startswith(b'HTTP/1.1 200'), (path, answer)
            assert site.seen[0]['path'] == want


def test_refusals_are_the_same_bytes(grid, site, client):
    says(site, whole(b'{}'))
    paths = ['/v1/responses/' + rest for rest in
             ('resp_abc', 'resp_east.00000000..abc', 'resp_' + TAG.decode(), 'resp_' + TAG.decode()[:-1] + '0123..abc',
              'resp_' + TAG.decode().upper() + 'abc', 'resp_%s%%2e' % TAG.decode()[:-1], '/x', 'compact/x',
              'resp_west.' + TAG.decode().split('.')[1] + '..a')]
    answers = [client.get(p) for p in paths]
    kept = [(a.status_code, a.content, sorted((k, v) for k, v in a.headers.items() if k != 'date')) for a in answers]
    assert kept[0][0] == 404 and all(k == kept[0] for k in kept), kept
    assert not site.seen


# ---- coded requests ---------------------------------------------------------------------------------------------------

def zstd(body):
    """Blocks as they are and, of one byte repeated, run lengths: a frame that any decoder takes."""
    out = [b'\x28\xb5\x2f\xfd\x00\x58']  # no size, no checksum, a window of 2 MiB
    for start in range(0, max(len(body), 1), 100000):
        block = body[start:start + 100000]
        run = len(block) > 1000 and block == block[:1] * len(block)
        last = start + 100000 >= len(body)
        out.append((last | run << 1 | len(block) << 3).to_bytes(3, 'little') + (block[:1] if run else block))
    return b''.join(out)


def brotli(body):
    """Meta-blocks as they are: the window's bits first, then length, a flag, the bytes; the last one empty."""
    out, bits, n = bytearray(), 0, 0

    def put(value, width):
        nonlocal bits, n
        bits, n = bits | value << n, n + width
        while n >= 8:
            out.append(bits & 255)
            bits, n = bits >> 8, n - 8

    def align():
        put(0, -n % 8)
    put(0, 1)  # a window of 64 KiB
    for start in range(0, len(body), 65536):
        block = body[start:start + 65536]
        put(0, 1), put(0, 2), put(len(block) - 1, 16), put(1, 1), align()
        out.extend(block)
    put(3, 2), align()
    return bytes(out)


ENCODERS = {'gzip': gzip.compress, 'zstd': zstd, 'br': brotli, 'GZIP': gzip.compress}


@pytest.mark.parametrize('coding', ENCODERS)
@pytest.mark.parametrize('step', [0, 5])
def test_coded_bodies_arrive_plain_and_their_ids_are_found(grid, site, client, coding, step):
    says(site, whole(b'{"id":"resp_new"}'))
    body = BODIES[1].replace(b'@', TAG)
    coded = ENCODERS[coding](body)
    answer = create(client, pieces_of(coded, step) if step else coded,
                    {'content-encoding': coding, 'cache-control': 'no-transform'})
    assert answer.status_code == 200, answer.text
    assert answer.json() == {'id': 'resp_%snew' % TAG.decode()}
    assert site.seen[0]['body'] == BODIES[1].replace(b'@', b'')
    assert 'content-encoding' not in site.seen[0]['headers']
    assert int(site.seen[0]['headers'].get('content-length', len(site.seen[0]['body']))) == len(site.seen[0]['body'])


# The same 1.5 KB create with `previous_response_id` at its end, as the zstd and brotli programs compress it.
COMPRESSED = {
    'zstd': 'KLUv/WSOBoUFAFJKIBlwzwP+KzfUIF4GSWP44D8pINXXcplK/8MLWXu99oqRcxEUjuI5AGcfetP8GoqN/6TUe23+0mh5pZobk3UQ'
            'JMhhFMQgBNyyBti9Sw98GJqQ36/fitu7jc/2UgeyTyylKz3dTvo0t67+t/m1S1obW/i1vdSMza3hBKVsfi0dolNjAQ4oYONYrAYQ'
            'GOH//78Rfcs4BsGzYJZieRbMIhZnwSzEQlfSmer0SpUCoO0B4P82iA==',
    'br': 'G40H4BwHdow8wDi/RTNqXao3mw8PpwojqAIE/m0HzPu76aAs3dV5AUmg/IACDrJNvOEFh7UGC0gm7S8EBQf3uUCh2eC4L3apDs2k'
            'CIXqR951pP9gyF8xznnPd8Pzo3pq5WTQfyT8dFlMMkwKTCpMGkw6TAZMJkwWTDZUsgNYWj6F6Wdo2iOss6zyXZjH68YlM9VNJS44'
            'L+pr21sbfg==',
}


@pytest.mark.parametrize('coding', COMPRESSED)
def test_what_real_encoders_make_is_read(coding, site):
    """The fixture names the cluster pool-east."""
    says(site, whole(b'{}'))
    serving = {'candidates': [{'kind': 'inference_model', 'name': 'llama', 'site': 'east', 'cluster': 'pool-east'}],
               'clusters': [{'name': 'pool-east', 'endpoints': [site.address], 'signals': False}], 'local_site': 'east'}
    with Grid(serving=serving) as grid:
        answer = create(grid.http, base64.b64decode(COMPRESSED[coding]), {'content-encoding': coding})
        assert answer.status_code == 200, answer.text
        got = json.loads(site.seen[0]['body'])
        assert got['previous_response_id'] == 'resp_fixture' and len(got['input']) == 12


@pytest.mark.parametrize('coding', ['gzip', 'zstd', 'br'])
def test_coded_chats_stick(site, coding):
    """Keys are those of the plain body."""
    with Grid() as plain:
        body = json.dumps({'model': 'llama', 'max_tokens': 1,
                           'messages': [{'role': 'user', 'content': 'a long story %s ' % coding * 300}]}).encode()
        first, outcome = plain.counted(lambda: create(plain.http, body, path='/v1/chat/completions'))
        assert first.status_code == 200 and outcome == 'no_match'
        again, outcome = plain.counted(lambda: create(plain.http, ENCODERS[coding](body), {'content-encoding': coding},
                                                      '/v1/chat/completions'))
        assert again.status_code == 200 and outcome == 'sticky'


@pytest.mark.parametrize('coding', ['deflate', 'compress', 'x-unknown'])
def test_other_codings_are_refused_where_an_id_could_hide(grid, site, client, coding):
    says(site, whole(b'{}'))
    answer = create(client, b'whatever', {'content-encoding': coding})
    assert answer.status_code == 415 and answer.json()['error']['code'] == 'unsupported_content_encoding', answer.text
    assert not site.seen
    answer = create(client, b'whatever', {'content-encoding': coding, 'x-model': 'llama'}, '/v1/chat/completions')
    assert answer.status_code == 200
    assert site.seen[0]['body'] == b'whatever' and site.seen[0]['headers']['content-encoding'] == coding.encode()


@pytest.mark.parametrize('coding', ['gzip', 'zstd', 'br'])
def test_a_body_that_decodes_to_no_json_is_refused(grid, site, client, coding):
    """Broken, cut or far too small for what it says: never half of it to a site."""
    says(site, whole(b'{}'))
    good = ENCODERS[coding](json.dumps({'model': 'llama', 'input': 'x' * 3000 + 'yz' * 9000}).encode())
    for bad in (good[:len(good) // 2], b'no such coding' * 20, good[:20] + b'\xff' * 10 + good[30:]):
        for model in ({}, {'x-model': 'llama'}):
            answer = create(client, bad, dict({'content-encoding': coding}, **model))
            assert answer.status_code == 400, (answer.text, site.seen)
            assert answer.json()['error']['type'] == 'invalid_request_error'
    assert not site.seen


def test_the_limit_counts_decoded_bytes(site):
    says(site, whole(b'{}'))
    serving = {'candidates': [{'kind': 'inference_model', 'name': 'llama', 'site': 'east', 'cluster': CLUSTER}],
               'clusters': [{'name': CLUSTER, 'endpoints': [site.address], 'signals': False}], 'local_site': 'east'}
    with Grid(serving=serving, gateway={'max_body_bytes': 2 * MIB}) as grid:
        text = ''.join(hashlib.sha256(b'%d' % i).hexdigest() for i in range(70000))
        for coding in ('gzip', 'zstd', 'br'):
            for size, status in ((2 * MIB, 200), (2 * MIB + 1, 413)):
                body = b'{"model":"llama","input":"' + text[:size - 28].encode() + b'"}'
                assert len(body) == size
                answer = create(grid.http, ENCODERS[coding](body), {'content-encoding': coding})
                assert answer.status_code == status, (coding, size, answer.text)
        before = resident_mib(envoy_of(grid))
        for bomb, coding in ((gzip.compress(b' ' * (300 * MIB)), 'gzip'), (zstd(b' ' * (300 * MIB)), 'zstd')):
            answer = create(grid.http, bomb, {'content-encoding': coding})
            assert answer.status_code in (400, 413), (coding, answer.text)
        assert resident_mib(envoy_of(grid)) < before + 150


def test_answers_are_never_decoded_and_codings_never_asked_for(grid, site, client):
    coded = gzip.compress(b'{"choices":[]}')
    says(site, whole(coded, JSON + b'content-encoding: gzip\r\n'))
    for asked in ({'accept-encoding': 'gzip'}, {'accept-encoding': 'identity'}):
        with client.stream('POST', '/v1/chat/completions', content=b'{"model":"llama","messages":[]}',
                           headers=dict({'content-type': 'application/json'}, **asked)) as answer:
            assert b''.join(answer.iter_raw()) == coded
            assert answer.headers['content-encoding'] == 'gzip'
        assert site.seen[-1]['headers']['accept-encoding'].decode() == asked['accept-encoding']


# ---- answers ----------------------------------------------------------------------------------------------------------

CREATED = b'{"id":"resp_@abc","object":"response","previous_response_id":null,"output":[{"id":"resp_no"}],"text":"resp_x"}'
CREATE = b'{"model":"llama","input":"hi"}'


def test_an_answer_gets_its_tag(grid, site, client):
    says(site, whole(CREATED.replace(b'@', b'')))
    answer = create(client, CREATE)
    assert answer.content == CREATED.replace(b'@', TAG)
    assert 'content-length' not in answer.headers
    assert 'accept-encoding' not in site.seen[0]['headers']
    says(site, whole(CREATED.replace(b'@', TAG)))
    assert create(client, CREATE).content == CREATED.replace(b'@', TAG), 'a gateway behind a gateway'


DIGESTS = b'etag: "x"\r\ncontent-md5: x\r\ndigest: x\r\ncontent-digest: x\r\nrepr-digest: x\r\n'


def test_headers_that_speak_of_other_bytes_do_not_pass(grid, site, client):
    names = ('etag', 'content-md5', 'digest', 'content-digest', 'repr-digest')
    says(site, whole(CREATED.replace(b'@', b''), JSON + DIGESTS))
    answer = create(client, CREATE)
    assert answer.content == CREATED.replace(b'@', TAG) and not [n for n in names if n in answer.headers]
    path = '/v1/responses/resp_%sabc' % TAG.decode()
    says(site, b'HTTP/1.1 200 OK\r\n' + JSON + DIGESTS + b'content-length: 999\r\n\r\n')
    answer = client.head(path)
    assert answer.status_code == 200 and 'content-length' not in answer.headers and 'etag' not in answer.headers


@pytest.mark.parametrize('status, coding', [
    (b'206 Partial Content', b''), (b'200 OK', b'content-encoding: gzip\r\ncontent-encoding: identity\r\n'),
    (b'200 OK', b'content-encoding: identity\r\ncontent-encoding: gzip\r\n')])
def test_parts_and_coded_answers_pass_untouched(grid, site, client, status, coding):
    body = CREATED.replace(b'@', b'')
    says(site, whole(body, JSON + DIGESTS + coding, status))
    with client.stream('POST', '/v1/responses', content=CREATE, headers={'content-type': 'application/json'}) as answer:
        assert b''.join(answer.iter_raw()) == body
        assert int(answer.headers['content-length']) == len(body) and answer.headers['etag'] == '"x"'


@pytest.mark.parametrize('sse', [False, True])
def test_a_site_may_write_byte_by_byte(grid, site, client, sse):
    body = (b'event: response.created\ndata: {"response":%s}\n\n' % CREATED) * 2 if sse else CREATED

    def answer(_, send):
        send(chunked(EVENTS if sse else JSON))
        for i in range(len(plain)):
            send(chunk(plain[i:i + 1]))
        send(chunk(b''))
    plain = body.replace(b'@', b'')
    site.answer = answer
    assert create(client, CREATE).content == body.replace(b'@', TAG)


def test_an_event_is_there_before_the_next_is_made(grid, site, client):
    """The site waits for the client to have each event, so one that is held back would never come."""
    events = [b'data: {"type":"response.created","response":{"id":"resp_@a"}}\n\n',
              b'data: {"type":"response.output_text.delta","delta":"resp_"}\n\n',
              b'data: {"type":"response.completed","response":{"id":"resp_@a","output":[]}}\n\n']
    turn = threading.Semaphore(0)

    def answer(_, send):
        send(chunked(EVENTS))
        for event in events:
            send(chunk(event.replace(b'@', b'')))
            if not turn.acquire(timeout=20):
                return 'hang up'
        send(chunk(b''))
    site.answer = answer
    got, want = b'', b''
    with client.stream('POST', '/v1/responses', content=CREATE, headers={'content-type': 'application/json'}) as answer:
        bytes_in = answer.iter_raw()
        for event in events:
            want += event.replace(b'@', TAG)
            while len(got) < len(want):
                got += next(bytes_in)
            assert got == want
            turn.release()
        assert b''.join(bytes_in) == b''


def test_events_are_known_by_their_bytes(grid, site, client):
    body = b'\n: hello\ndata: {"response":{"id":"resp_@a"}}\n\n'
    says(site, whole(body.replace(b'@', b''), b'content-type: text/plain\r\n'))
    assert create(client, CREATE).content == body.replace(b'@', TAG)


@pytest.mark.parametrize('cut', [b'{"id":"resp_', b'{"id":"resp_' + TAG[:7], b'{"id":"resp_' + TAG, b'{"id":"re', b'{'])
def test_an_answer_that_ends_within_an_id_loses_nothing(grid, site, client, cut):
    def answer(_, send):
        send(b'HTTP/1.1 200 OK\r\n' + JSON + b'connection: close\r\n\r\n')
        send(cut)
        return 'hang up'
    site.answer = answer
    assert create(client, CREATE).content == cut


def test_a_site_that_dies_within_an_id(grid, site, client):
    """The client has all that went ahead of the id, and sees that the answer was cut off."""
    event, begun = b'data: {"response":{"id":"resp_@a"}}\n\n', threading.Event()

    def answer(_, send):
        send(chunked(EVENTS) + chunk(event.replace(b'@', b'')))
        begun.wait(20)
        send(chunk(b'data: {"response":{"id":"resp_'))
        return 'hang up'
    site.answer, got = answer, b''
    with pytest.raises(httpx.RemoteProtocolError):
        with client.stream('POST', '/v1/responses', content=CREATE, headers={'content-type': 'application/json'}) as answer:
            for piece in answer.iter_raw():
                got += piece
                begun.set()
    assert got.startswith(event.replace(b'@', TAG))


def test_coded_answers_pass_and_are_counted(grid, site, client):
    def untagged():
        return grid.metrics()['grid_untagged_answers_total']
    before, coded = untagged(), gzip.compress(CREATED)
    says(site, whole(coded, JSON + b'content-encoding: gzip\r\n'))
    with client.stream('POST', '/v1/responses', content=CREATE, headers={'content-type': 'application/json'}) as answer:
        assert b''.join(answer.iter_raw()) == coded
        assert int(answer.headers['content-length']) == len(coded)
    eventually(lambda: untagged() == before + 1, what='the count')


@pytest.mark.parametrize('status', [b'400 Bad Request', b'404 Not Found', b'429 Too Many', b'500 Oops', b'503 Busy'])
def test_errors_of_sites_pass_untouched(grid, site, client, status):
    body = b'{"id":"resp_abc","error":{"message":"no"}}'
    says(site, whole(body, status=status))
    answer = create(client, CREATE)
    assert answer.status_code == int(status[:3]) and answer.content == body
    assert int(answer.headers['content-length']) == len(body)


def test_answers_without_a_body(grid, site, client):
    path = '/v1/responses/resp_%sabc' % TAG.decode()
    says(site, b'HTTP/1.1 204 No Content\r\n\r\n')
    assert client.delete(path).status_code == 204
    says(site, b'HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n')
    answer = client.head(path)
    assert answer.status_code == 200 and 'content-length' not in answer.headers      # of a body that would be longer
    says(site, b'HTTP/1.1 100 Continue\r\n\r\n' + whole(CREATED.replace(b'@', b'')))
    assert client.get(path).content == CREATED.replace(b'@', TAG)


@pytest.mark.parametrize('size', [MIB - 1, MIB, MIB + 1, 16 * MIB])
def test_answers_that_grow_over_envoys_buffers(grid, site, client, size):
    """Envoy's limits: 1 MiB for HTTP/1, 16 MiB for HTTP/2. Nothing is buffered, so nothing meets them."""
    head, tail = b'{"object":"response","text":"', b'","id":"resp_@abc"}'
    body = head + b'x' * (size - len(head) - len(tail) + 1) + tail
    says(site, whole(body.replace(b'@', b'')))
    assert create(client, CREATE).content == body.replace(b'@', TAG)


def test_a_long_answer_takes_no_memory(grid, site, client):
    """100 MiB of events, read slowly: Envoy holds a window of it at most."""
    event = b'data: {"type":"response.output_text.delta","response":{"id":"resp_@a"},"delta":"%s"}\n\n' % (b'd' * 8000)
    n = 100 * MIB // len(event)

    def answer(_, send):
        send(chunked(EVENTS))
        for _ in range(n):
            send(chunk(event.replace(b'@', b'')))
        send(chunk(b''))
    site.answer = answer
    pid, want = envoy_of(grid), hashlib.sha256(event.replace(b'@', TAG) * n).hexdigest()
    digest, most, count, before = hashlib.sha256(), 0, 0, resident_mib(pid)
    with client.stream('POST', '/v1/responses', content=CREATE, headers={'content-type': 'application/json'}) as answer:
        for piece in answer.iter_raw():
            digest.update(piece)
            count += 1
            if count % 50 == 0:
                most = max(most, resident_mib(pid))
    assert digest.hexdigest() == want
    assert most < before + 40, (before, most)


def http2_site(pieces):
    """A site that speaks HTTP/2: these pieces, then trailers. Returns its port."""
    import h2.config
    import h2.connection
    import h2.events
    import h2.exceptions
    listener = socket.create_server(('127.0.0.1', 0))

    def serve(connection):
        http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        http.initiate_connection()
        with contextlib.suppress(OSError, h2.exceptions.ProtocolError), connection:  # HTTP/1.1, ahead of the change
            connection.sendall(http.data_to_send())
            while data := connection.recv(65536):
                for event in http.receive_data(data):
                    if isinstance(event, h2.events.StreamEnded):
                        http.send_headers(event.stream_id, [(':status', '200'), ('content-type', 'application/json')])
                        for piece in pieces:
                            http.send_data(event.stream_id, piece)
                        http.send_headers(event.stream_id, [('x-checksum', '1')], end_stream=True)
                connection.sendall(http.data_to_send())

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()
    return listener


@pytest.mark.parametrize('answer', [b'{"id":"resp_@a","object":"response"}', b'{"id":"resp_'])
def test_trailers_of_a_site(answer, tmp_path):
    """Our own rendering speaks HTTP/1.1 to sites; where Envoy is told otherwise, what is held goes ahead of trailers."""
    plain = answer.replace(b'@', b'')
    listener = http2_site(list(pieces_of(plain, 5)))
    port = listener.getsockname()[1]
    serving = {'candidates': [{'kind': 'inference_model', 'name': 'llama', 'site': 'east', 'cluster': CLUSTER}],
               'clusters': [{'name': CLUSTER, 'endpoints': ['127.0.0.1:%d' % port], 'signals': False}],
               'local_site': 'east'}
    with Grid(serving=serving) as grid:
        with open('/proc/%d/cmdline' % envoy_of(grid), encoding='utf-8') as f:
            cds = re.search('([^\0]*)/envoy.json', f.read()).group(1) + '/cds.json'
        with open(cds, encoding='utf-8') as f:
            text = f.read()
        assert text.count('"http_protocol_options": {}') == 1
        (tmp_path / 'cds.json').write_text(text.replace('"http_protocol_options": {}', '"http2_protocol_options": {}'))
        shutil.copy(tmp_path / 'cds.json', cds + '.new')
        os.rename(cds + '.new', cds)

        def asked():
            with contextlib.suppress(httpx.HTTPError):
                got = create(grid.http, CREATE)
                return got if got.status_code == 200 else None
        assert eventually(asked, what='an answer over HTTP/2').content == answer.replace(b'@', TAG)
    listener.close()


# ---- upgrades ---------------------------------------------------------------------------------------------------------

def test_upgrades_are_refused_at_the_head(grid, site):
    says(site, whole(b'{}'))
    for path, status in ((b'/v1/responses', 426), (b'/v1/chat/completions', 400)):
        with socket.create_connection(('127.0.0.1', grid.port), 20) as s:
            s.sendall(b'GET %s HTTP/1.1\r\nhost: grid\r\nconnection: upgrade\r\nupgrade: websocket\r\n'
                      b'sec-websocket-key: x\r\nsec-websocket-version: 13\r\n\r\n' % path)
            answer = s.recv(65536)
        assert answer.startswith(b'HTTP/1.1 %d ' % status) and b'unsupported_upgrade' in answer
    assert not site.seen
