"""What the access log says of a request, and that it tells nobody an id."""
import hashlib
import json
import socket

from grid import Grid

HEAD = 'host: grid\r\ncontent-type: application/json\r\n'
MODEL = 'x-model: llama\r\n'
UPGRADE = 'connection: upgrade\r\nupgrade: websocket\r\n'
TAG = 'east.%s.' % hashlib.sha256(b'pool-east').hexdigest()[:8]


def ask(grid, method, path, headers, body='', waits=True):
    with socket.create_connection(('127.0.0.1', grid.port), 20) as s:
        s.sendall(('%s %s HTTP/1.1\r\n%sconnection: close\r\n\r\n%s' % (method, path, headers, body)).encode())
        while waits and s.recv(65536):
            pass


def logged(grid):
    """All lines of the access log: Envoy writes what it holds back when it ends."""
    grid.stop()
    grid.log.seek(0)
    return [json.loads(line) for line in grid.log.read().splitlines() if line.startswith('{"')]


def test_no_tag_is_ever_logged():
    tagged = 'resp_%s.abc' % TAG
    half = 'content-length: 9\r\n'
    with Grid(sites=('east',), gateway={'access_log': True, 'timeouts': {'request_body_ms': 500}}) as grid:
        for path in ('/v1/responses/' + tagged, '//v1/responses/' + tagged, '/openai/v1/responses/' + tagged,
                     '/v1%2fresponses/' + tagged, '/v1/models/' + tagged, '/v1/conversations/conv_' + tagged[5:],
                     '/v1/responses/resp_%s.%s' % (TAG, tagged[5:])):
            for headers in (HEAD, HEAD + MODEL, HEAD + UPGRADE):
                ask(grid, 'GET', path, headers)
        ask(grid, 'GET', '/v1/responses/' + tagged, MODEL)  # without a host
        cancel = '/v1/responses/%s/cancel' % tagged
        ask(grid, 'POST', cancel, HEAD + half, '{')
        ask(grid, 'POST', cancel, HEAD + half, '{', waits=False)
        ask(grid, 'POST', cancel, HEAD + 'transfer-encoding: chunked\r\n', 'x\r\n\r\n')
        ask(grid, 'OPTIONS', '/v1/responses/' + tagged, HEAD + 'origin: http://a\r\naccess-control-request-method: GET\r\n')
        lines = logged(grid)
    assert len(lines) == 26
    assert not [line for line in lines if TAG in json.dumps(line)]


def test_other_paths_are_logged_as_they_are():
    with Grid(sites=('east',), gateway={'access_log': True}) as grid:
        paths = ['/v1/models', '/v1/models/llama', '/v1/responses/resp_abc', '/v1/files/a.b', '/resp_/a.b', '/v1/r%22%5c']
        for path in paths:
            ask(grid, 'GET', path + '?key=secret', HEAD)
        lines = logged(grid)
    assert [line['path'] for line in lines] == [path.replace('resp_abc', '*') for path in paths]
    assert 'secret' not in json.dumps(lines)
