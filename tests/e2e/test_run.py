"""`grid-gateway run`: its start, its stop, and how it follows its files. A plain HTTP server stands for the sites."""
import contextlib
import http.client
import http.server
import json
import os
import signal
import ssl
import subprocess
import threading

import httpx
import pytest

from grid import BINARY, eventually, free_port


class Engine(contextlib.AbstractContextManager):
    """Answers a chat request with its own name; holds the answer back while `go` is not set."""

    def __init__(self, name, tls=None):
        engine = self
        self.go, self.seen, self.heads = threading.Event(), threading.Event(), []
        self.go.set()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def do_GET(self):
                engine.heads.append(self.headers)
                self.reply(b'vllm:num_requests_waiting 0\n')

            def do_POST(self):
                self.rfile.read(int(self.headers.get('content-length', 0)))
                engine.heads.append(self.headers)
                engine.seen.set()
                engine.go.wait(60)
                self.reply(json.dumps({'from': name}).encode())

            def reply(self, body):
                self.send_response(200)
                self.send_header('content-length', str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # a peer that went away
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.address = '127.0.0.1:%d' % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __exit__(self, *_):
        self.go.set()
        self.server.shutdown()
        self.server.server_close()


class Gateway(contextlib.AbstractContextManager):
    def __init__(self, folder, engines, options=(), extra='', wait=True, admin=None, tls=''):
        self.folder, self.engines = folder, engines
        self.port, self.ops = free_port(), free_port()
        self.admin = admin or '127.0.0.1:%d' % free_port()
        self.url = 'http://127.0.0.1:%d' % self.port
        self.state = folder / 'state'
        self.write_serving(engines, tls)
        self.write_gateway(extra)
        self.errors = open(folder / 'errors', 'w+', encoding='utf-8')
        self.options = options
        self.start(wait)

    def start(self, wait=True):
        """Again, on the same ports, when it has ended."""
        self.process = subprocess.Popen([BINARY, 'run', '-c', str(self.folder / 'gateway.yaml'), '--state-dir', str(self.state),
                                         *self.options], stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.line = self.process.stdout.readline() if wait else ''

    def write(self, name, text):
        fresh = self.folder / (name + '.fresh')
        fresh.write_text(text)
        os.rename(fresh, self.folder / name)

    def write_gateway(self, extra=''):
        self.write('gateway.yaml', 'listen: 127.0.0.1:%d\nadmin: %s\nops: 127.0.0.1:%d\nconcurrency: 1\n'
                                   'serving_config_path: serving.yaml\n%s' % (self.port, self.admin, self.ops, extra))

    def write_serving(self, engines, extra=''):
        lines = ['local_site: %s' % next(iter(engines)), 'candidates:']
        lines += ['  - {kind: inference_model, name: %s, site: %s, cluster: pool-%s}' % (n, n, n) for n in engines]
        lines += ['clusters:'] + ['  - name: pool-%s\n    endpoints: ["%s"]' % (n, e.address)
                                  for n, e in engines.items()]
        self.write('serving.yaml', '\n'.join(lines) + '\n' + extra)

    def ask(self, model):
        return httpx.post(self.url + '/v1/chat/completions', timeout=60,
                          json={'model': model, 'messages': [{'role': 'user', 'content': 'hello'}]})

    def reload(self):
        """What became of the last change, or None."""
        path = self.state / 'reload.json'
        return json.loads(path.read_text()) if path.exists() else None

    def revision(self, number):
        return eventually(lambda: (self.reload() or {}).get('revision') == number and self.reload(), 20,
                          'change %d' % number)

    def said(self):
        self.errors.flush()
        with open(self.errors.name, encoding='utf-8') as f:
            return f.read()

    def envoy(self):
        """The process that `run` started."""
        with open('/proc/%d/task/%d/children' % (self.process.pid, self.process.pid), encoding='ascii') as f:
            return int(f.read().split()[0])

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()


def ask_quietly(gateway):
    with contextlib.suppress(httpx.HTTPError):
        gateway.ask('east')


def is_alive(pid):
    try:
        with open('/proc/%d/stat' % pid, encoding='ascii') as f:
            return f.read().rpartition(')')[2].split()[0] not in 'ZX'
    except FileNotFoundError:
        return False


@pytest.fixture
def east():
    with Engine('east') as engine:
        yield engine


@pytest.fixture
def west():
    with Engine('west') as engine:
        yield engine


def test_it_says_that_it_serves_and_serves(tmp_path, east):
    with Gateway(tmp_path, {'east': east}) as gateway:
        assert gateway.line == 'grid-gateway: serving on %s\n' % gateway.url
        answer = gateway.ask('east')
        assert answer.json() == {'from': 'east'}
        assert answer.headers['x-grid-site'] == 'east'
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(20) == 0
        assert gateway.process.stdout.read() == '', 'one line on standard output, no more'


def test_a_wrong_configuration_does_not_start(tmp_path, east):
    with Gateway(tmp_path, {'east': east}, extra='role: provider\n', wait=False) as gateway:
        assert gateway.process.wait(20) == 1
        assert 'gateway.yaml:6: role: provider needs mutual TLS' in gateway.said()


@pytest.mark.parametrize('admin', [None, 'unix:%s/admin'])
def test_a_port_in_use_is_refused_with_its_line(tmp_path_factory, east, admin):
    tmp_path = tmp_path_factory.mktemp('busy')
    with Gateway(tmp_path, {'east': east}, admin=admin and admin % tmp_path) as gateway:
        done = subprocess.run([BINARY, 'run', '-c', 'gateway.yaml', '--state-dir', 'other'], cwd=tmp_path,
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert done.stderr.splitlines() == ['gateway.yaml:1: listen: 127.0.0.1:%d is in use' % gateway.port,
                                            'gateway.yaml:2: admin: %s is in use' % gateway.admin,
                                            'gateway.yaml:3: ops: 127.0.0.1:%d is in use' % gateway.ops]
        assert gateway.ask('east').status_code == 200


def test_a_file_that_is_gone_is_told_once(tmp_path, east, west):
    with Gateway(tmp_path, {'east': east}) as gateway:
        says = 'serving.yaml:1: file: cannot read: No such file or directory'
        os.remove(tmp_path / 'serving.yaml')
        told = gateway.revision(1)
        assert told['result'] == 'rejected' and says in told['error'] and says in gateway.said()
        assert gateway.ask('east').status_code == 200
        gateway.process.send_signal(signal.SIGHUP)
        gateway.write_gateway('grid_site_route: {model_header: x-which}\n')
        told = gateway.revision(2)
        assert told['result'] == 'applied' and says in told['error'], 'the other file is followed, the loss still stands'
        gateway.write_serving({'east': east, 'west': west})
        assert gateway.revision(3) == {'revision': 3, 'result': 'applied', 'error': ''}


def test_a_folder_of_its_own_is_gone_at_the_end(tmp_path, east):
    runtime = tmp_path / 'runtime'
    runtime.mkdir()
    with Gateway(tmp_path, {'east': east}) as gateway:
        gateway.process.send_signal(signal.SIGTERM)
        gateway.process.wait(20)
        done = subprocess.Popen([BINARY, 'run', '-c', str(tmp_path / 'gateway.yaml')], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True, env=dict(os.environ, XDG_RUNTIME_DIR=str(runtime)))
        assert 'serving on' in done.stdout.readline()
        assert len(list(runtime.iterdir())) == 1
        done.send_signal(signal.SIGTERM)
        assert done.wait(20) == 0
        done.stdout.close()
        assert not list(runtime.iterdir())


def test_one_gateway_a_state_folder(tmp_path, east):
    with Gateway(tmp_path, {'east': east}) as gateway:
        done = subprocess.run([BINARY, 'run', '-c', str(tmp_path / 'gateway.yaml'), '--state-dir', str(gateway.state)],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert 'another gateway runs in it' in done.stderr


@pytest.mark.parametrize('how, status', [(signal.SIGKILL, 128 + 9), (signal.SIGTERM, 0)])
def test_the_end_of_envoy_is_the_end_of_the_command(tmp_path, east, how, status):
    with Gateway(tmp_path, {'east': east}) as gateway:
        os.kill(gateway.envoy(), how)
        assert gateway.process.wait(20) == status


def test_envoy_ends_with_the_command(tmp_path, east):
    with Gateway(tmp_path, {'east': east}) as gateway:
        envoy = gateway.envoy()
        gateway.process.kill()
        gateway.process.wait()
        eventually(lambda: not is_alive(envoy), 20, 'the end of Envoy')


def test_another_version_of_envoy_is_refused_with_both_named(tmp_path, east, monkeypatch):
    fake = tmp_path / 'envoy'
    fake.write_text('#!/bin/sh\necho "$0  version: 0123abcd/1.39.2/Clean/RELEASE/BoringSSL"\n')
    fake.chmod(0o755)
    monkeypatch.setenv('GRID_ENVOY', str(fake))
    with Gateway(tmp_path, {'east': east}, wait=False) as gateway:
        assert gateway.process.wait(20) == 1
        assert '1.39.2' in gateway.said() and '1.40.0' in gateway.said()


def test_a_stop_lets_running_requests_end(tmp_path, east):
    with Gateway(tmp_path, {'east': east}) as gateway:
        east.go.clear()
        answers = []
        asking = threading.Thread(target=lambda: answers.append(gateway.ask('east')))
        asking.start()
        assert east.seen.wait(20)
        gateway.process.send_signal(signal.SIGTERM)
        eventually(lambda: 'draining' in gateway.said(), 20, 'the drain')
        asked = [0]

        def waits():
            """Whether `run` has asked Envoy five times for its active requests, ours not counted."""
            asked[0] += 1
            stat = httpx.get('http://%s/stats?filter=http.admin.downstream_rq_total' % gateway.admin).text
            return int(stat.split(': ')[1]) - asked[0] > before + 5
        before = int(httpx.get('http://%s/stats?filter=http.admin.downstream_rq_total' % gateway.admin).text.split(': ')[1])
        eventually(waits, 20, 'its waiting')
        assert gateway.process.poll() is None
        east.go.set()
        asking.join(20)
        assert answers and answers[0].json() == {'from': 'east'}
        assert gateway.process.wait(20) == 0


def test_the_drain_has_a_limit(tmp_path, east):
    with Gateway(tmp_path, {'east': east}, options=('--drain-seconds', '1')) as gateway:
        east.go.clear()
        failed = []

        def ask():
            try:
                gateway.ask('east')
            except httpx.HTTPError as error:
                failed.append(error)
        asking = threading.Thread(target=ask)
        asking.start()
        assert east.seen.wait(20)
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(20) == 0
        asking.join(20)
        assert failed
        assert 'requests cut: 1' in gateway.said()


def test_a_second_signal_stops_at_once(tmp_path, east):
    with Gateway(tmp_path, {'east': east}, options=('--drain-seconds', '600')) as gateway:
        east.go.clear()
        asking = threading.Thread(target=ask_quietly, args=(gateway,))
        asking.start()
        assert east.seen.wait(20)
        gateway.process.send_signal(signal.SIGINT)
        eventually(lambda: 'draining' in gateway.said(), 20, 'the drain')
        gateway.process.send_signal(signal.SIGINT)
        assert gateway.process.wait(20) == 0
        asking.join(20)


def test_a_site_that_is_added_is_served_and_one_that_is_dropped_is_not(tmp_path, east, west):
    with Gateway(tmp_path, {'east': east}) as gateway:
        assert gateway.ask('west').status_code == 404
        gateway.write_serving({'east': east, 'west': west})
        assert gateway.revision(1)['result'] == 'applied'
        eventually(lambda: gateway.ask('west').status_code == 200, 20, 'west')
        assert gateway.ask('west').json() == {'from': 'west'}
        gateway.write_serving({'west': west})
        assert gateway.revision(2)['result'] == 'applied'
        eventually(lambda: gateway.ask('east').status_code == 404, 20, 'the end of east')
        assert gateway.ask('west').status_code == 200
        clusters = [c['name'] for c in json.loads((gateway.state / 'cds.json').read_text())['resources']]
        assert clusters == ['pool-west', 'pool-east'], 'a dropped cluster stays for a while'
        eventually(lambda: 'pool-east' not in (gateway.state / 'cds.json').read_text(), 30, 'the drop of its cluster')


def test_a_bad_file_leaves_the_last_good_one_in_force(tmp_path, east, west):
    with Gateway(tmp_path, {'east': east}) as gateway:
        gateway.write_serving({'east': east, 'west': west}, extra='nonsense: 1\n')
        told = gateway.revision(1)
        assert told['result'] == 'rejected'
        assert 'serving.yaml:10: nonsense' in told['error'] and 'serving.yaml:10: nonsense' in gateway.said()
        assert gateway.ask('east').status_code == 200
        assert gateway.ask('west').status_code == 404
        gateway.write_serving({'east': east, 'west': west})
        assert gateway.revision(2)['result'] == 'applied'
        eventually(lambda: gateway.ask('west').status_code == 200, 20, 'west')


def test_a_comment_changes_nothing(tmp_path, east):
    with Gateway(tmp_path, {'east': east}) as gateway:
        before = os.stat(gateway.state / 'serving.json').st_mtime_ns
        gateway.write_serving({'east': east}, extra='# a comment\n')
        assert gateway.revision(1)['result'] == 'reused'
        assert os.stat(gateway.state / 'serving.json').st_mtime_ns == before


def test_settings_are_followed_and_ports_are_not(tmp_path, east, west):
    with Gateway(tmp_path, {'east': east}) as gateway:
        gateway.write_gateway('grid_site_route: {model_header: x-which}\n')
        assert gateway.revision(1)['result'] == 'applied'

        def by_header():
            return httpx.post(gateway.url + '/v1/other', headers={'x-which': 'east'}, timeout=20).status_code
        eventually(lambda: by_header() == 200, 20, 'the new header')
        gateway.write_gateway('grid_site_route: {model_header: x-which}\nlog_level: error\n')
        told = gateway.revision(2)
        assert told['result'] == 'rejected' and 'gateway.yaml:7: log_level: a change of it needs' in told['error']
        assert by_header() == 200
        gateway.write_serving({'east': east, 'west': west})
        eventually(lambda: gateway.ask('west').status_code == 200, 20, 'west, though the other file waits for a restart')


def test_a_file_written_in_place_is_followed(tmp_path, east, west):
    with Gateway(tmp_path, {'east': east}) as gateway:
        gateway.write_serving({'east': east, 'west': west})
        text = (tmp_path / 'serving.yaml').read_text()
        gateway.revision(1)
        (tmp_path / 'serving.yaml').write_text(text + '# in place\n')
        assert gateway.revision(2)['result'] == 'reused'


def certificate(folder, name):
    """A self-signed certificate for the name: paths of certificate and key."""
    cert, key = str(folder / (name + '.pem')), str(folder / (name + '.key'))
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2',
                    '-keyout', key, '-out', cert, '-subj', '/CN=' + name, '-addext', 'subjectAltName=DNS:' + name],
                   check=True, capture_output=True, timeout=60)
    return cert, key


def test_tls_to_clients_and_to_a_site_with_certificates_on_all_sides(tmp_path):
    site, server, client = (certificate(tmp_path, n) for n in ('site.example', 'localhost', 'client.example'))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*site)
    context.load_verify_locations(client[0])
    context.verify_mode = ssl.CERT_REQUIRED
    with Engine('east', context) as east:
        by_name = Engine.__new__(Engine)
        by_name.address = 'localhost:' + east.address.split(':')[1]
        extra = 'tls: {cert_path: localhost.pem, key_path: localhost.key, client_ca_path: client.example.pem}\n'
        right = 'ca_path: site.example.pem, cert_path: client.example.pem, key_path: client.example.key'
        with Gateway(tmp_path, {'east': by_name}, extra=extra,
                     tls='    tls: {%s, server_name: site.example}\n' % right) as gateway:
            assert gateway.line.startswith('grid-gateway: serving on https://127.0.0.1:')
            trust = ssl.create_default_context(cafile=server[0])
            with pytest.raises(httpx.HTTPError), httpx.Client(verify=trust) as bare:
                bare.get('https://localhost:%d/v1/models' % gateway.port)
            trust.load_cert_chain(*client)
            with httpx.Client(verify=trust, http2=True) as known:
                answer = known.post('https://localhost:%d/v1/completions' % gateway.port,
                                    json={'model': 'east', 'prompt': 'x'})
                assert answer.json() == {'from': 'east'}
                assert answer.http_version == 'HTTP/2'
                gateway.write_serving({'east': by_name}, '    tls: {%s, server_name: other.example}\n' % right)
                assert gateway.revision(1)['result'] == 'applied'
                eventually(lambda: known.post('https://localhost:%d/v1/completions' % gateway.port,
                                              json={'model': 'east', 'prompt': 'x'}).status_code == 503, 20,
                           'the refusal of a certificate for another name')


def test_the_admin_on_a_unix_socket(tmp_path, east):
    socket = tmp_path / 'admin.sock'
    with Gateway(tmp_path, {'east': east}, admin='unix:%s' % socket) as gateway:
        assert gateway.ask('east').status_code == 200
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(20) == 0
        assert 'draining' in gateway.said()


def test_answers_that_envoy_makes_by_itself_are_json(tmp_path, east):
    def raw(head):
        connection = http.client.HTTPConnection('127.0.0.1', gateway.port, timeout=20)
        connection.connect()
        connection.sock.sendall(head)
        answer = http.client.HTTPResponse(connection.sock)
        answer.begin()
        body = json.loads(answer.read())
        connection.close()
        return answer.status, answer.headers['content-type'], body['error'].get('code'), body['error']['type']
    upgrade = b'host: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n'
    bad, kind = 'invalid_request_error', 'application/json'
    with Gateway(tmp_path, {'east': east}, extra='timeouts: {request_body_ms: 500}\n') as gateway:
        assert raw(b'GET /v1/responses HTTP/1.1\r\n' + upgrade) == (426, kind, 'unsupported_upgrade', bad)
        assert raw(b'GET /v1/chat/completions HTTP/1.1\r\n' + upgrade) == (400, kind, 'unsupported_upgrade', bad)
        assert raw(b'GET /v1/messages HTTP/1.1\r\n' + upgrade) == (400, kind, None, bad)
        assert raw(b'GET / HTTP/1.1\r\n\r\n') == (400, kind, 'bad_request', bad)
        assert raw(b'GET / HTTP/1.1\r\nhost: a\r\nx: ' + b'a' * 120000 + b'\r\n\r\n')[:3] == (431, kind,
                                                                                          'headers_too_large')
        assert raw(b'POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{')[:3] == (408, kind,
                                                                                             'request_timeout')
        answer = gateway.ask('nobody')
        assert (answer.status_code, answer.json()['error']['code']) == (404, 'model_not_found')


def test_the_command_line():
    def status(*args):
        return subprocess.run([BINARY, 'run', *args], capture_output=True, text=True, timeout=60)
    assert status().returncode == 2
    assert status('-c', 'x', '--drain-seconds', 'many').returncode == 2
    assert status('-c', 'x', '--linger-seconds', '-1').returncode == 2
    assert status('-c', 'x', 'y').returncode == 2
    assert status('-c', '/nonexistent/gateway.yaml').returncode == 1
    shown = status('--help')
    assert shown.returncode == 0 and 'Exit status' in shown.stdout and shown.stderr == ''
