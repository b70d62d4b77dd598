"""Hostile clients, broken sites, unlucky operators: nothing may crash, leak, hang, miscount or fail others."""
import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time

import hpack
import httpx
import pytest
from hyperframe import frame as frames

from grid import Grid, eventually, prose

CLOSE = b'connection: close\r\n'


class Upstream:
    """A server that says what a test wants, byte for byte: answer(head, body) gives the bytes, or None to hang up."""

    def __init__(self, answer):
        self.answer, self.heads, self.stopped = answer, [], threading.Event()
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.address = '127.0.0.1:%d' % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with contextlib.suppress(OSError), connection, connection.makefile('rb') as stream:
            while not self.stopped.is_set():
                head = b''.join(iter(lambda: stream.readline().rstrip(b'\r\n') + b'\n', b'\n')).lower()
                if not head:
                    return
                self.heads.append(head)
                said = self.answer(head, self.read_body(head, stream))
                for piece in [said] if isinstance(said, bytes) else said or ():
                    connection.sendall(piece)
                if not isinstance(said, bytes):
                    return

    @staticmethod
    def read_body(head, stream):
        length = re.search(rb'content-length: (\d+)', head)
        if length:
            return stream.read(int(length.group(1)))
        body, more = b'', b'transfer-encoding: chunked' in head
        while more:
            more = int(stream.readline(), 16)
            body += stream.read(more + 2)[:more]
        return body

    def stop(self):
        self.stopped.set()
        self.listener.close()


@pytest.fixture
def upstream():
    made = []

    def make(answer):
        made.append(Upstream(answer))
        return made[-1]
    yield make
    for one in made:
        one.stop()


def serving_of(addresses, **signals):
    """A serving config of other clusters than the grid's own sites."""
    return {'candidates': [{'kind': 'inference_model', 'name': 'llama', 'site': name, 'cluster': name}
                           for name in addresses],
            'clusters': [{'name': name, 'endpoints': [address], 'signals': signals or False}
                         for name, address in addresses.items()], 'local_site': next(iter(addresses))}


def say(body=b'{}', extra=b'', status=b'200 OK'):
    return (b'HTTP/1.1 %s\r\n%scontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s'
            % (status, extra, len(body), body))


def chat_body(size, model_last=False):
    """A chat body of exactly `size` bytes."""
    parts = ['"model":"llama"', '"messages":[{"role":"user","content":"@"}]']
    text = '{%s}' % ','.join(reversed(parts) if model_last else parts)
    return text.replace('@', 'x' * (size - len(text) + 1)).encode()


def post(body, headers=b'', path=b'/v1/chat/completions'):
    return (b'POST %s HTTP/1.1\r\nhost: grid\r\ncontent-type: application/json\r\n%scontent-length: %d\r\n\r\n'
            % (path, headers, len(body)) + body)


def post_chunked(body, headers=b'', trailers=b'', step=1000):
    pieces = [body[i:i + step] for i in range(0, len(body), step)]
    return (b'POST /v1/chat/completions HTTP/1.1\r\nhost: grid\r\ntransfer-encoding: chunked\r\n%s\r\n' % headers
            + b''.join(b'%x\r\n%s\r\n' % (len(p), p) for p in pieces) + b'0\r\n%s\r\n' % trailers)


def ask_raw(grid, data, port=None):
    """All that the gateway answers until it closes the connection."""
    with socket.create_connection(('127.0.0.1', port or grid.port), timeout=20) as s:
        with contextlib.suppress(ConnectionError):
            s.sendall(data)
        out = b''
        with contextlib.suppress(ConnectionError):
            while got := s.recv(65536):
                out += got
        return out


def statuses(answer):
    return [int(s) for s in re.findall(rb'HTTP/1\.1 (\d+) ', answer)]


def envoy_of(grid):
    return int(subprocess.run(['pgrep', '-P', str(grid.process.pid)], capture_output=True, text=True, check=True).stdout)


def resident_mib(pid):
    with open('/proc/%d/status' % pid, encoding='ascii') as f:
        return int(re.search(r'VmRSS:\s+(\d+)', f.read()).group(1)) / 1024


def active(grid):
    return grid.admin.get('/stats?filter=^http.ingress.downstream_rq_active$').text.strip().endswith(': 0')


def test_odd_requests_on_one_connection():
    body = chat_body(300)
    with Grid() as grid:
        assert statuses(ask_raw(grid, post(body) + post(body) + post_chunked(body, CLOSE, b'x-t: 1\r\n'))) == [200, 200, 200]
        assert statuses(ask_raw(grid, post(body.replace(b'llama', b'nobody')) + post(body, CLOSE))) == [404, 200]
        assert statuses(ask_raw(grid, post(body, b'expect: 100-continue\r\n' + CLOSE))) == [100, 200]
        for bad in (b'\x00\x01\r\n\r\n', b'POST / HTTP/1.1\r\n\r\n', post(body, b'content-length: 3\r\n'),
                    post(body, b'transfer-encoding: chunked\r\n'), post(body, path=b'/v1/chat/completions#x')):
            answer = ask_raw(grid, bad)
            assert statuses(answer) == [400] and b'"code":"bad_request"' in answer, bad[:60]
        answer = ask_raw(grid, post(body, b''.join(b'x-%d: 1\r\n' % i for i in range(150))))
        assert statuses(answer) == [431] and b'"code":"headers_too_large"' in answer


def test_many_headers_and_forged_ones_never_reach_a_site(upstream):
    site = upstream(lambda head, body: say())
    with Grid(sites=('east',), serving=serving_of({'fake': site.address})) as grid:
        for n in (60, 65, 90):
            site.heads.clear()
            forged = b''.join(b'X-Grid-%d: 1\r\nx-kept-%d: 1\r\n' % (i, i) for i in range(n // 2))
            answer = ask_raw(grid, post(chat_body(300), CLOSE + forged + b'x-grid-site: me\r\n'))
            assert statuses(answer) == [200] and b'x-grid-site: fake' in answer
            assert b'x-grid-' not in site.heads[0] and site.heads[0].count(b'x-kept-') == n // 2


def test_no_header_of_a_client_steers_envoy(upstream):
    site = upstream(lambda head, body: time.sleep(0.05) or say())  # far over the 1 ms that the client asks for
    steering = {'timeout-ms': '1', 'per-try-timeout-ms': '1', 'alt-stat-name': 'mine'}
    headers = {'x-envoy-upstream-rq-' + name: value for name, value in steering.items()}
    with Grid(sites=('east',), serving=serving_of({'a': site.address, 'b': site.address})) as grid:
        text = prose('steered', 4000)
        assert grid.chat(text).status_code == 200
        for peer in ({}, {'x-forwarded-for': '10.0.0.1'}, {'x-forwarded-for': '127.0.0.1'}):
            answer, outcome = grid.counted(lambda extra=peer: grid.chat(text, dict(headers, **extra)))
            assert (answer.status_code, outcome) == (200, 'sticky'), 'a timeout would drop the blocks'
        assert b'x-envoy' not in b''.join(site.heads)


def test_http_1_0(upstream):
    body, site = chat_body(3000), upstream(lambda head, body: say(body))
    chunks = upstream(lambda head, body: [b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n', b'2\r\n{}\r\n',
                                          b'0\r\n\r\n'])
    for address, end in ((site.address, body), (chunks.address, b'\r\n\r\n{}')):
        with Grid(sites=('east',), serving=serving_of({'a': address})) as grid:
            for host in (b'', b'host: grid\r\n'):  # as old clients and reverse proxies ask
                asked = post(body).replace(b'HTTP/1.1\r\nhost: grid\r\n', b'HTTP/1.0\r\n' + host)
                answer = ask_raw(grid, asked)
                assert re.match(rb'HTTP/1\.[01] 200 ', answer) and answer.endswith(end), answer[:200]
            probe = b'GET /ready HTTP/1.0\r\n\r\n'
            assert re.match(rb'HTTP/1\.[01] 200 ', ask_raw(grid, probe, grid.ops_port))


class H2:
    """One HTTP/2 connection, frame by frame, on which a test sends what no well-behaved client would."""

    def __init__(self, grid):
        self.socket = socket.create_connection(('127.0.0.1', grid.port), timeout=20)
        self.stream, self.encoder, self.decoder = -1, hpack.Encoder(), hpack.Decoder()
        self.socket.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + frames.SettingsFrame(0).serialize())

    def close(self):
        self.socket.close()

    def read(self, size):
        out = b''
        while len(out) < size:
            got = self.socket.recv(size - len(out))
            if not got:
                raise EOFError
            out += got
        return memoryview(out)

    def ask(self, headers, body=None):
        """The answer's status and body, or what was closed instead and why."""
        self.stream, status, got = self.stream + 2, None, b''
        said = frames.HeadersFrame(self.stream, data=self.encoder.encode(headers), flags=['END_HEADERS']).serialize()
        if body is not None:
            said += frames.DataFrame(self.stream, data=body, flags=['END_STREAM']).serialize()
        self.socket.sendall(said)
        while True:
            try:
                frame, size = frames.Frame.parse_frame_header(self.read(9))
                frame.parse_body(self.read(size))
            except EOFError:
                return 'connection', None
            if isinstance(frame, frames.GoAwayFrame) and frame.error_code:
                return 'connection', frame.error_code
            if isinstance(frame, frames.HeadersFrame):
                fields = dict(self.decoder.decode(frame.data))
                status = int(fields.get(':status', status))
            if frame.stream_id == self.stream and isinstance(frame, frames.DataFrame):
                got += frame.data
            if frame.stream_id == self.stream and isinstance(frame, frames.RstStreamFrame):
                return ('stream', frame.error_code) if status is None else (status, got)
            if frame.stream_id == self.stream and 'END_STREAM' in frame.flags:
                return status, got


def test_http2_that_is_wrong_costs_its_own_stream_only():
    body = chat_body(300)
    with Grid() as grid, contextlib.closing(H2(grid)) as client:
        good = [(':method', 'POST'), (':scheme', 'http'), (':authority', 'grid'), (':path', '/v1/chat/completions'),
                ('content-type', 'application/json')]
        assert client.ask(good, body)[0] == 200
        for wrong in (('content-length', '3'), ('Upper-Case', '1'), ('connection', 'close'), ('x-nul', 'a\0b')):
            said = client.ask(good + [wrong], body)
            assert said[0] in (400, 'stream'), (wrong, said)
            assert client.ask(good, body)[0] == 200, wrong


def test_http2_connect_is_answered_at_once():
    connect, rest = (':method', 'CONNECT'), [(':scheme', 'http'), (':authority', 'grid')]
    with Grid() as grid:
        for path, status in (('/v1/responses', 426), ('/v1/chat/completions', 400)):
            with contextlib.closing(H2(grid)) as client:  # no end of the stream: it is answered at the headers
                got = client.ask([connect, (':protocol', 'websocket'), *rest, (':path', path)])
                assert got[0] == status and json.loads(got[1])['error']['code'] == 'unsupported_upgrade', (path, got)
        with contextlib.closing(H2(grid)) as client:
            got = client.ask([connect, (':authority', 'grid:443')])
            assert got[0] == 404 and json.loads(got[1])['error']['code'] == 'not_found', 'no tunnel'
        assert grid.chat('still here').status_code == 200


def test_bodies_around_the_limit(upstream):
    limit, seen = 5000, []
    site = upstream(lambda head, body: seen.append(body) or say())
    with Grid(sites=('east',), serving=serving_of({'a': site.address, 'b': site.address}),
              gateway={'max_body_bytes': limit}) as grid:
        for size in (limit - 1, limit, limit + 1, 3000000):
            body = chat_body(size)
            assert statuses(ask_raw(grid, post(body, CLOSE))) == [200] and seen[-1] == body
            assert statuses(ask_raw(grid, post(body, CLOSE + b'x-model: llama\r\n'))) == [200] and seen[-1] == body
            assert statuses(ask_raw(grid, post_chunked(body, CLOSE))) == [200] and seen[-1] == body
            if size <= limit:
                assert statuses(ask_raw(grid, post(body, CLOSE, b'/v1/responses'))) == [200]
        # What is refused is sent in part only: a client that is still sending may lose the answer to a reset.
        answer = ask_raw(grid, post(chat_body(3000000), CLOSE, b'/v1/responses')[:2 * limit])
        assert statuses(answer) == [413] and b'"code":"body_too_large"' in answer
        answer = ask_raw(grid, post(chat_body(3000000, model_last=True), CLOSE)[:2 * limit])
        assert statuses(answer) == [413] and b'"code":"body_too_large"' in answer
        assert grid.metrics()['grid_route_unkeyed_total{reason="body_too_large"}'] == 6


def test_a_slow_body_is_given_up():
    with Grid(gateway={'timeouts': {'request_body_ms': 500}}) as grid:
        whole = post(chat_body(300))
        for path, shape in ((b'/v1/chat/completions', b'"code":"request_timeout"'), (b'/v1/messages', b'"type":"error"')):
            answer = ask_raw(grid, whole.replace(b'/v1/chat/completions', path)[:-5])
            assert statuses(answer) == [408] and shape in answer


@pytest.mark.parametrize('said, want', [
    (b'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n' + say(), 200),
    ([b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nx-t: 1\r\n\r\n'], 200),
    (say(extra=b'x-grid-site: evil\r\nx-grid-site: evil\r\n'), 200),
    ([b'HTTP/1.1 200 OK\r\ncontent-le'], 502),
    ([b'\x00\xff nonsense\r\n\r\n'], 502),
    ([say(b'full', status=b'413 Too Large')], 413),
    ([], 503)])
def test_odd_answers_of_a_site(upstream, said, want):
    check_odd_answer(upstream, said, want, ('a',))


@pytest.mark.parametrize('said', [[b'HTTP/1.1 200 OK\r\ncontent-le'], [b'\x00\xff nonsense\r\n\r\n'], []])
def test_odd_answers_beside_a_second_site(upstream, said):
    """Another site might take a request that did not get through; this one did, so it is asked once."""
    check_odd_answer(upstream, said, 503, ('a', 'b'))


def check_odd_answer(upstream, said, want, clusters):
    asked = []
    site = upstream(lambda head, body: (asked.append(body) if body else None, said)[1])
    with Grid(sites=('east',), serving=serving_of({name: site.address for name in clusters})) as grid:
        for path in (b'/v1/chat/completions', b'/v1/messages'):
            answer = ask_raw(grid, post(chat_body(3000), CLOSE, path))
            assert statuses(answer)[-1] == want and b'evil' not in answer
            assert answer.count(b'x-grid-site: ') == 1
            assert len(asked) == 1
            asked.clear()
            if want in (502, 503):
                assert (b'"code":"upstream_unavailable"' if b'chat' in path else b'"type":"error"') in answer


def test_a_site_with_broken_metrics_delays_no_other(upstream):
    def endless(head, body):
        yield b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n'
        while True:
            yield b'10000\r\n%s\r\n' % (b'#' * 65535 + b'\n')

    over = threading.Event()

    def silent(head, body):
        over.wait()

    def redirected(head, body):
        return say(status=b'302 Found', extra=b'location: /metrics\r\n')

    def metric(text):
        return lambda head, body: say(b'vllm:num_requests_waiting ' + text + b'\n')
    broken = {'endless': endless, 'silent': silent, 'redirected': redirected, 'gone': lambda head, body: None,
              'garbage': lambda head, body: say(bytes(range(256)) * 200), 'nan': metric(b'NaN'), 'huge': metric(b'1e308')}
    made = {name: upstream(answer).address for name, answer in broken.items()}
    good = upstream(metric(b'3')).address
    with Grid(sites=('east',), serving=serving_of(dict(made, good=good), interval_ms=50)) as grid:
        polls = 'grid_signal_polls_total{cluster="good",result="ok"}'
        before, start = grid.metrics()[polls], time.monotonic()
        eventually(lambda: grid.metrics()[polls] >= before + 20, 10, 'twenty polls of the good site')
        assert time.monotonic() - start < 5
        scores = grid.metrics()
        assert scores['grid_route_site_score{site="good",cluster="good"}'] == 3
        for name in made:
            assert scores['grid_route_site_score{site="%s",cluster="%s"}' % (name, name)] == float('inf'), name
        assert resident_mib(envoy_of(grid)) < 400
    over.set()


def hang_up(port, seed, count):
    """Clients that leave: inside the head or body, before the answer, with a reset, in a stream."""
    dice = random.Random(seed)
    for _ in range(count):
        body = json.dumps({'model': 'llama', 'stream': True, 'max_tokens': 100, 'messages': [
            {'role': 'user', 'content': 'x' * dice.choice((10, 3000, 60000))}]}).encode()
        whole, how = post(body), dice.randrange(4)
        with contextlib.suppress(OSError), socket.create_connection(('127.0.0.1', port), timeout=10) as s:
            s.sendall(whole[:dice.randrange(1, len(whole))] if how == 0 else whole)
            if how == 1:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b'\1\0\0\0\0\0\0\0')
            if how == 3:
                s.recv(100)


def in_threads(n, work):
    threads = [threading.Thread(target=work, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def test_clients_that_leave_cost_nothing_and_counters_are_exact():
    seed = random.randrange(1 << 30)
    print('seed', seed)
    with Grid(gateway={'concurrency': 2}) as grid:
        envoy = envoy_of(grid)
        in_threads(4, lambda i: hang_up(grid.port, seed + i, 75))
        eventually(lambda: active(grid), what='all requests over')
        settled = resident_mib(envoy)
        in_threads(4, lambda i: hang_up(grid.port, seed - i, 150))
        eventually(lambda: active(grid), what='all requests over')
        assert resident_mib(envoy) < settled + 24
        before, each, bad = grid.outcomes(), 50, []

        def work(i):
            with httpx.Client(base_url=grid.url, timeout=30) as client:
                for k in range(each):
                    text = prose('conversation %d' % (k % 10), 2000)
                    answer = client.post('/v1/chat/completions', json={
                        'model': 'llama', 'max_tokens': 1, 'messages': [{'role': 'user', 'content': text}]})
                    if answer.status_code != 200:
                        bad.append(answer.text)
        in_threads(6, work)
        after = grid.outcomes()
        assert not bad and sum(after.values()) - sum(before.values()) == 6 * each
        assert envoy_of(grid) == envoy


def odd_configs(good, dice):
    """Texts that a serving file may have for a moment: good, other, half, wrong."""
    changed = json.loads(good)
    kind = dice.randrange(6)
    if kind == 0:
        return good[:dice.randrange(len(good))]
    if kind == 1:
        return dice.choice(('', '{"a":1}', '\x01 [', '[' * 1000))
    if kind == 2:
        changed['candidates'], changed['clusters'] = changed['candidates'][1:], changed['clusters'][1:]
    if kind == 3:
        for one in changed['clusters']:
            one['name'] += '-new'
        for one in changed['candidates']:
            one['cluster'] += '-new'
    if kind == 4:
        changed['clusters'][0]['signals'] = {'interval_ms': dice.randrange(50, 300)}
    return json.dumps(changed)


def test_a_storm_of_reloads_fails_no_request():
    seed = random.randrange(1 << 30)
    print('seed', seed)
    with Grid(gateway={'concurrency': 2}) as grid:
        path, dice, stop = os.path.join(grid.folder, 'serving.json'), random.Random(seed), threading.Event()
        good_answers, bad = [], []
        with open(path, encoding='utf-8') as f:
            good = f.read()

        def work(i):
            with httpx.Client(base_url=grid.url, timeout=30) as client:
                while not stop.is_set():
                    answer = client.post('/v1/chat/completions', json={
                        'model': 'llama', 'max_tokens': 2,
                        'messages': [{'role': 'user', 'content': prose('r%d' % i, 2000)}]})
                    (good_answers if answer.status_code == 200 else bad).append(answer.text)

        def storm():
            for _ in range(30):
                text = odd_configs(good, dice)
                if dice.random() < 0.5:  # written in place, in two halves
                    with open(path, 'w', encoding='utf-8') as f:
                        f.write(text[:len(text) // 2])
                        f.flush()
                        stop.wait(0.02)
                        f.write(text[len(text) // 2:])
                else:
                    with open(path + '.new', 'w', encoding='utf-8') as f:
                        f.write(text)
                    os.rename(path + '.new', path)
                stop.wait(dice.random() * 0.3)  # the pace of the storm
            stop.set()
        threading.Thread(target=storm).start()
        in_threads(3, work)
        assert not bad and good_answers
        final = json.loads(good)
        final['candidates'].append(dict(final['candidates'][0], name='proof'))
        grid.write('serving.json', final)
        eventually(lambda: 'proof' in grid.http.get('/v1/models').text, what='the last config in force')


def test_dead_sites_answer_as_the_api_does():
    with Grid() as grid:
        for site in grid.sites.values():
            site.process.kill()
            site.process.wait()
        answer = grid.chat('anyone?')
        assert answer.status_code == 503 and answer.headers['retry-after'] == '5'
        assert answer.json()['error']['code'] == 'upstream_unavailable'
        assert grid.http.get('/v1/models').status_code == 200


def test_envoy_does_not_outlive_a_killed_command_with_open_streams():
    with Grid(site_options=('--prefill-tps', '100000', '--decode-tps', '5')) as grid:
        envoy = envoy_of(grid)
        body = {'model': 'llama', 'stream': True, 'max_tokens': 500, 'messages': [{'role': 'user', 'content': 'x'}]}
        with grid.http.stream('POST', '/v1/chat/completions', json=body) as answer:
            assert answer.status_code == 200
            grid.process.send_signal(signal.SIGKILL)
            grid.process.wait()

            def gone():
                with contextlib.suppress(OSError), open('/proc/%d/stat' % envoy, encoding='utf-8') as f:
                    return f.read().rsplit(') ', 1)[1][0] == 'Z'
                return True
            eventually(gone, 10, 'the end of Envoy')
