"""The edge of a gateway: roles, credentials of sites, other origins, Envoy's own filters, the access log, spans."""
import base64
import contextlib
import hashlib
import hmac
import http.server
import json
import ssl
import subprocess
import threading

import httpx
import pytest

from grid import BINARY, eventually
from test_run import Engine, Gateway, certificate, east, west  # noqa: F401 (fixtures)

CHAT = {'model': 'east', 'messages': [{'role': 'user', 'content': 'a secret of mine'}]}


def test_a_site_gets_its_own_credential_and_no_other(tmp_path, east, west):
    (tmp_path / 'east.key').write_text('sk-east-1\n')
    with Gateway(tmp_path, {'west': west, 'east': east}, tls='    credential: {bearer_path: east.key}\n') as gateway:
        def sent(engine, model, headers):
            engine.heads.clear()
            assert httpx.post(gateway.url + '/v1/chat/completions', json=dict(CHAT, model=model),
                              headers=headers).status_code == 200
            return [h.get_all('authorization') for h in engine.heads if h['content-type']]
        assert sent(east, 'east', {'authorization': 'Bearer of-the-client'}) == [['Bearer sk-east-1']]
        assert sent(east, 'east', {}) == [['Bearer sk-east-1']]
        assert sent(west, 'west', {'authorization': 'Bearer of-the-client'}) == [['Bearer of-the-client']]
        assert sent(west, 'west', {}) == [None]
        before = (gateway.state / 'cds.json').read_text()
        gateway.write('east.key', 'sk-east-2')
        assert gateway.revision(1)['result'] == 'applied'
        eventually(lambda: sent(east, 'east', {}) == [['Bearer sk-east-2']], 5, 'the new credential')
        assert (gateway.state / 'cds.json').read_text() == before, 'no cluster changes, so no connection is lost'
        gateway.write('east.key', 'two words')
        told = gateway.revision(2)
        assert told['result'] == 'rejected'
        assert 'serving.yaml:10: clusters[1].credential.bearer_path' in told['error'] and 'one word' in told['error']
        gateway.write_serving({'west': west, 'east': east}, '    credential: {bearer_path: east.key}\nload_window_ms: 9\n')
        assert gateway.revision(3)['result'] == 'applied', 'the other file is followed all the same'
        assert sent(east, 'east', {}) == [['Bearer sk-east-2']]
        gateway.write('east.key', 'sk-east-3')
        assert gateway.revision(4) == {'revision': 4, 'result': 'applied', 'error': ''}
        eventually(lambda: sent(east, 'east', {}) == [['Bearer sk-east-3']], 5, 'the third credential')
        assert 'sk-' not in gateway.said()
        for path in gateway.state.rglob('*'):
            assert path.is_dir() or path.stat().st_mode & 0o077 == 0, path
            assert path.parent.name == 'sds' or path.is_dir() or 'sk-east' not in path.read_text()


# ---- roles

@contextlib.contextmanager
def provider(folder, engine, peers='[east.example]', extra=''):
    folder.mkdir()
    certificates = {n: certificate(folder, n) for n in ('localhost', 'east.example', 'stranger.example')}
    (folder / 'peers.pem').write_text(''.join(open(certificates[n][0], encoding='ascii').read()
                                              for n in ('east.example', 'stranger.example')))
    tls = 'tls: {cert_path: localhost.pem, key_path: localhost.key, client_ca_path: peers.pem}\n'
    with Gateway(folder, {'local': engine}, extra='role: provider\npeers_allowed: %s\n%s%s' % (peers, tls, extra)) as gateway:
        gateway.certificates = certificates
        yield gateway


def call(gateway, who, method, path, **options):
    trust = ssl.create_default_context(cafile=gateway.certificates['localhost'][0])
    if who:
        trust.load_cert_chain(*gateway.certificates[who])
    with httpx.Client(verify=trust, timeout=20) as client:
        return client.request(method, 'https://localhost:%d%s' % (gateway.port, path), **options)


def test_a_provider_forwards_its_paths_to_its_peers_and_nothing_else(tmp_path):
    with Engine('local') as engine, provider(tmp_path / 'p', engine) as gateway:
        for who in (None, 'stranger.example'):
            with pytest.raises(httpx.HTTPError):
                call(gateway, who, 'GET', '/v1/models')
        assert call(gateway, 'east.example', 'GET', '/v1/models').status_code == 200
        for path in ('/v1/chat/completions', '/v1/completions', '/v1/messages?beta=true', '/v1/embeddings'):
            assert call(gateway, 'east.example', 'POST', path, json=CHAT).json() == {'from': 'local'}, path
        seen = len(engine.heads)
        for path in ('/v1/responses', '/v1/responses/resp_x', '/v1/conversations/conv_x/items', '/v1/models/a', '/metrics', '/',
                     '/v1/chat/completions/', '/v1//chat/completions', '/V1/models'):
            answer = call(gateway, 'east.example', 'GET', path)
            assert answer.status_code == 404, path
            assert answer.json()['error']['type'] == 'invalid_request_error'
            assert answer.headers['content-type'] == 'application/json'
        for method in ('PUT', 'DELETE', 'OPTIONS', 'PATCH', 'HEAD'):
            answer = call(gateway, 'east.example', method, '/v1/chat/completions')
            assert (answer.status_code, answer.headers['allow']) == (405, 'GET, POST'), method
        assert call(gateway, 'east.example', 'PUT', '/v1/models').json()['error']['code'] == 'method_not_allowed'
        assert call(gateway, 'east.example', 'PUT', '/v1/messages').json()['type'] == 'error'
        assert len(engine.heads) == seen, 'none of these reached the backend'


def test_what_a_provider_forwards_to_and_whom_it_knows_are_hot(tmp_path):
    with Engine('local') as engine, Engine('other') as other, provider(tmp_path / 'p', engine) as gateway:
        gateway.write_serving({'local': other})
        assert gateway.revision(1)['result'] == 'applied'
        eventually(lambda: call(gateway, 'east.example', 'POST', '/v1/completions', json=CHAT).json() == {'from': 'other'}, 5,
                   'the other backend')
        serving = (gateway.folder / 'serving.yaml').read_text()
        gateway.write('serving.yaml', serving.replace('cluster: pool-local}', 'cluster: pool-local, admission: none}'))
        answer = eventually(lambda: [a for a in [call(gateway, 'east.example', 'POST', '/v1/completions', json=CHAT)]
                                     if a.status_code == 503], 5, 'the drain')[0]
        assert answer.headers['retry-after'] == '5' and answer.json()['error']['type'] == 'server_error'
        gateway.write('serving.yaml', serving)
        eventually(lambda: call(gateway, 'east.example', 'GET', '/v1/models').status_code == 200, 5, 'the return')
        text = (gateway.folder / 'gateway.yaml').read_text()
        gateway.write('gateway.yaml', text.replace('[east.example]', '[stranger.example]')
                      + 'allowed_paths: [/v1/embeddings]\n')

        def swapped():
            try:
                return call(gateway, 'stranger.example', 'POST', '/v1/embeddings', json=CHAT).status_code == 200
            except httpx.HTTPError:
                return False
        eventually(swapped, 5, 'the other peer')
        assert call(gateway, 'stranger.example', 'GET', '/v1/models').status_code == 404
        with pytest.raises(httpx.HTTPError):
            call(gateway, 'east.example', 'POST', '/v1/embeddings', json=CHAT)
        gateway.write('gateway.yaml', text.replace('role: provider\n', '').replace('peers_allowed: [east.example]\n', ''))
        eventually(lambda: 'role: a change of it needs a restart' in gateway.said(), 5, 'the refusal')


def test_a_gateway_behind_a_gateway(tmp_path):
    with Engine('local') as engine, provider(tmp_path / 'p', engine) as inner:
        by_name = Engine.__new__(Engine)
        by_name.address = 'localhost:%d' % inner.port
        tls = '    tls: {ca_path: p/localhost.pem, cert_path: p/east.example.pem, key_path: p/east.example.key}\n'
        with Gateway(tmp_path, {'west': by_name}, tls=tls) as outer:
            answer = httpx.post(outer.url + '/v1/chat/completions', json=dict(CHAT, model='west'), timeout=20)
            assert answer.json() == {'from': 'local'}
            assert answer.headers.get_list('x-grid-site') == ['west']
            assert httpx.post(outer.url + '/v1/rerank', json=dict(CHAT, model='west')).status_code == 404


# ---- other origins

def test_pages_of_other_origins(tmp_path, east):
    def preflight(gateway, origin):
        return httpx.options(gateway.url + '/v1/chat/completions',
                             headers={'origin': origin, 'access-control-request-method': 'POST'})
    extra = 'cors: {allow_origins: ["https://chat.example"], max_age_secs: 60}\n'
    with Gateway(tmp_path, {'east': east}, extra=extra) as gateway:
        seen = preflight(gateway, 'https://chat.example')
        assert seen.status_code == 200
        assert seen.headers['access-control-allow-origin'] == 'https://chat.example'
        assert 'POST' in seen.headers['access-control-allow-methods'] and seen.headers['access-control-max-age'] == '60'
        assert {'authorization', 'x-model'} <= set(seen.headers['access-control-allow-headers'].split(', '))
        assert preflight(gateway, 'https://evil.example').status_code == 405
        answer = httpx.post(gateway.url + '/v1/chat/completions', json=CHAT, headers={'origin': 'https://chat.example'})
        assert answer.headers['access-control-allow-origin'] == 'https://chat.example'
        assert 'x-grid-site' in answer.headers['access-control-expose-headers']
        plain = httpx.options(gateway.url + '/v1/chat/completions')
        assert plain.status_code == 405 and plain.headers['allow']
    other = tmp_path / 'any'
    other.mkdir()
    with Gateway(other, {'east': east}, extra='cors: {allow_origins: ["*"]}\n') as gateway:
        assert preflight(gateway, 'https://any.example').headers['access-control-allow-origin'] in (
            '*', 'https://any.example')


# ---- Envoy's own filters

LIMIT = """\
http_filters_before:
  - name: envoy.filters.http.local_ratelimit
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
      stat_prefix: clients
      token_bucket: {max_tokens: 3, tokens_per_fill: 3, fill_interval: 3600s}
      filter_enabled: {default_value: {numerator: 100}}
      filter_enforced: {default_value: {numerator: 100}}
"""
JWT = """\
http_filters_before:
  - name: envoy.filters.http.jwt_authn
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication
      providers:
        ours: {issuer: ours, forward: true, local_jwks: {inline_string: '%s'}}
      rules: [{match: {prefix: /}, requires: {provider_name: ours}}]
"""


def test_a_rate_limit_before_the_routing(tmp_path, east):
    with Gateway(tmp_path, {'east': east}, extra=LIMIT) as gateway:
        statuses = [gateway.ask('east').status_code for _ in range(5)]
        assert statuses == [200, 200, 200, 429, 429]


def test_json_web_tokens_before_the_routing(tmp_path, east):
    def coded(raw):
        return base64.urlsafe_b64encode(raw).rstrip(b'=')
    secret = b'a key of thirty-two bytes, or so'
    keys = {'keys': [{'kty': 'oct', 'alg': 'HS256', 'kid': 'a', 'k': coded(secret).decode()}]}
    head = coded(b'{"alg":"HS256","kid":"a","typ":"JWT"}') + b'.' + coded(b'{"iss":"ours","exp":9999999999}')
    token = (head + b'.' + coded(hmac.new(secret, head, hashlib.sha256).digest())).decode()
    with Gateway(tmp_path, {'east': east}, extra=JWT % json.dumps(keys)) as gateway:
        assert gateway.ask('east').status_code == 401
        assert httpx.post(gateway.url + '/v1/chat/completions', json=CHAT,
                          headers={'authorization': 'Bearer ' + token}).status_code == 200
        assert httpx.post(gateway.url + '/v1/chat/completions', json=CHAT,
                          headers={'authorization': 'Bearer ' + token[:-2]}).status_code == 401
        assert not east.heads or 'Bearer ' + token in [h['authorization'] for h in east.heads]


def test_check_lets_envoy_judge_them(tmp_path, east):
    with Gateway(tmp_path, {'east': east}, extra=LIMIT.replace('3600s', '0.001s'), wait=False) as gateway:
        gateway.process.kill()
        done = subprocess.run([BINARY, 'check', '-c', str(tmp_path / 'gateway.yaml')], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert 'Envoy refuses the configuration' in done.stderr and 'fill' in done.stderr


# ---- log and spans

def test_a_line_of_the_access_log_tells_the_decision_and_no_text(tmp_path, east):
    with Gateway(tmp_path, {'east': east}, extra='access_log: true\n') as gateway:
        assert httpx.post(gateway.url + '/v1/chat/completions?key=sk-query', json=CHAT,
                          headers={'x-request-id': 'the-id', 'authorization': 'Bearer sk-head'}).status_code == 200
        text = gateway.process.stdout.readline()
        line = json.loads(text)
        assert (line['status'], line['path'], line['method']) == (200, '/v1/chat/completions', 'POST')
        assert (line['request_id'], line['upstream_cluster']) == ('the-id', 'pool-east')
        assert line['duration_ms'] >= line['first_byte_ms'] >= 0 and line['bytes_in'] > 0
        assert (line['site'], line['cluster'], line['attempts'], line['pinned']) == ('east', 'pool-east', 1, False)
        assert (line['reason'], line['blocks'], line['run'], line['tagged']) == ('too_short', 0, 0, 0)
        assert {'outcome', 'worth', 'depth', 'flags', 'details'} <= set(line)
        for secret in ('secret of mine', 'sk-query', 'sk-head'):
            assert secret not in text
        stored = '/v1/responses/resp_east.00000000..abc'
        httpx.get(gateway.url + stored)
        text = gateway.process.stdout.readline()
        assert 'abc' not in text and json.loads(text)['path'] == '/v1/responses/*'


class Collector(contextlib.AbstractContextManager):
    """Takes spans over HTTP."""

    def __init__(self):
        collector = self
        self.got = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def do_POST(self):
                size, body = int(self.headers.get('content-length', 0)), b''
                while self.headers['transfer-encoding']:
                    size = int(self.rfile.readline(), 16)
                    body += self.rfile.read(size + 2)[:size]
                    if size == 0:
                        break
                collector.got.append((self.path, body or self.rfile.read(size)))
                self.send_response(200)
                self.send_header('content-length', '0')
                self.end_headers()

            def log_message(self, *_):
                pass
        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def test_spans_go_to_the_collector(tmp_path, east):
    with Collector() as collector:
        extra = 'tracing: {endpoint: "127.0.0.1:%d", protocol: http, path: /otlp, service_name: edge-7}\n'
        with Gateway(tmp_path, {'east': east}, extra=extra % collector.server.server_address[1]) as gateway:
            trace = '0af7651916cd43dd8448eb211c80319c'
            assert httpx.post(gateway.url + '/v1/chat/completions?key=sk-query', json=CHAT,
                              headers={'traceparent': '00-%s-b7ad6b7169203331-01' % trace}).status_code == 200
            httpx.get(gateway.url + '/v1/responses/resp_east.00000000..abcdef')
            spans = eventually(lambda: collector.got and len(b''.join(b for _, b in collector.got)) > 500 and
                               b''.join(b for _, b in collector.got), 20, 'spans')
            assert collector.got[0][0] == '/otlp'
            assert b'grid.site' in spans and b'grid.attempts' in spans and b'pool-east' in spans
            assert b'edge-7' in spans and bytes.fromhex(trace) in spans
            for secret in (b'sk-query', b'secret of mine', b'abcdef'):
                assert secret not in spans
            asked = next(h for h in east.heads if h['content-type'])
            assert asked['traceparent'].split('-')[1] == trace, 'the trace goes on to the site'
