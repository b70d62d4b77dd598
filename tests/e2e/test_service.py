"""`run` as a service: files that change in every way under traffic, certificates that rotate, a full disk, a restart."""
import json
import os
import resource
import signal
import ssl
import threading
import time

import httpx
import pytest

from grid import Grid, eventually, free_port
from test_run import Engine, Gateway, certificate, east, west  # noqa: F401 (fixtures)

CHAT = {'model': 'east', 'messages': [{'role': 'user', 'content': 'hello'}]}


class Traffic:
    """Requests one after the other until the block ends; what was answered, and what went wrong."""

    def __init__(self, ask):
        self.ask, self.good, self.failed = ask, 0, []
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.go)

    def go(self):
        while not self.done.is_set():
            try:
                answer = self.ask()
                if answer.status_code == 200:
                    self.good += 1
                else:
                    self.failed.append((answer.status_code, answer.text))
            except httpx.HTTPError as error:
                self.failed.append(error)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join(60)


def test_a_thousand_replacements_cost_no_request_and_no_stream():
    slow = ('--prefill-tps', '1000000', '--decode-tps', '25')
    with Grid(site_options=slow) as grid:
        events, began = [], threading.Event()

        def stream():
            body = {'model': 'llama', 'max_tokens': 300, 'stream': True, 'messages': [{'role': 'user', 'content': 'long'}]}
            with httpx.stream('POST', grid.url + '/v1/chat/completions', json=body, timeout=60) as answer:
                for line in answer.iter_lines():
                    began.set()
                    if line.startswith('data: '):
                        events.append(line)
        reading = threading.Thread(target=stream)
        reading.start()
        assert began.wait(20)
        candidates = [{'kind': 'inference_model', 'name': 'llama', 'site': s.name, 'cluster': s.cluster}
                      for s in grid.sites.values()]
        client = httpx.Client(base_url=grid.url, timeout=60)
        with client, Traffic(lambda: client.post('/v1/completions', json={'model': 'llama', 'prompt': 'x', 'max_tokens': 1})
                             ) as traffic:
            for i in range(1000):
                grid.serving_extra = {'candidates': candidates[i % 2:] if i % 10 else candidates + [
                    dict(candidates[0], name='model-%d' % i)], 'load_window_ms': 1000 + i}
                grid.write_serving()
                time.sleep(0.004)  # a little over the pace of 1,000 a minute: the point is to be quick
            last = dict(candidates[1], name='the-last')
            grid.serving_extra = {'candidates': [last] + candidates}
            grid.write_serving()
            began_at = time.monotonic()
            eventually(lambda: client.post('/v1/completions', json={'model': 'llama', 'prompt': 'x', 'max_tokens': 1},
                                           headers={'x-model': 'the-last'}).status_code == 200, 5, 'the last one in force')
            took = time.monotonic() - began_at
        reading.join(60)
        assert took < 2, took
        assert traffic.failed == [] and traffic.good > 50
        assert events[-1] == 'data: [DONE]' and sum('"content"' in e for e in events) >= 300
        told = grid.ops.get('/grid').json()['reload']
        assert told['result'] == 'applied'
        assert grid.metrics()['grid_serving_config_reload_total{result="rejected"}'] == 0


def serving_of(gateway, engines, extra=''):
    """The text that the gateway would have for these."""
    gateway.write_serving(engines, extra)
    return (gateway.folder / 'serving.yaml').read_text()


def test_the_swap_of_a_mounted_volume_is_followed(tmp_path, east, west):
    with Gateway(tmp_path, {'east': east}) as gateway:
        texts = {'1': (tmp_path / 'serving.yaml').read_text()}
        texts['2'] = texts['1'].replace('name: east', 'name: renamed')
        for version, text in texts.items():
            (tmp_path / ('..' + version)).mkdir()
            (tmp_path / ('..' + version) / 'serving.yaml').write_text(text)

        def swap(version):
            os.symlink('..' + version, tmp_path / '..tmp')
            os.rename(tmp_path / '..tmp', tmp_path / '..data')
        swap('1')
        os.symlink('..data/serving.yaml', tmp_path / 'link')
        os.rename(tmp_path / 'link', tmp_path / 'serving.yaml')
        swap('2')
        began_at = time.monotonic()
        eventually(lambda: gateway.ask('renamed').status_code == 200, 5, 'the second version')
        assert time.monotonic() - began_at < 2
        swap('1')
        eventually(lambda: gateway.ask('east').status_code == 200, 5, 'the first version again')
        assert 'refused' not in gateway.said()


def test_a_file_that_is_being_written_is_waited_for(tmp_path, east, west):
    with Gateway(tmp_path, {'west': west, 'east': east}) as gateway:
        text = (tmp_path / 'serving.yaml').read_text()
        lines = (text + 'load_window_ms: 4000\n').splitlines(keepends=True)
        for _ in range(3):
            with open(tmp_path / 'serving.yaml', 'w', encoding='utf-8') as f:
                for line in lines:  # a slow writer: at each of these moments half a file is there
                    f.write(line)
                    f.flush()
                    time.sleep(0.05)
            began_at = time.monotonic()
            eventually(lambda: gateway.reload() is not None, 5, 'the whole file')
            assert time.monotonic() - began_at < 2
        assert 'refused' not in gateway.said(), gateway.said()
        assert gateway.ask('east').status_code == 200


def test_an_empty_a_cut_and_a_deleted_file_leave_the_last_good_one(tmp_path, east):
    with Gateway(tmp_path, {'east': east}) as gateway:
        good = (tmp_path / 'serving.yaml').read_text()
        for number, (text, says) in enumerate([('', 'must be a mapping'), (good[:40], 'serving.yaml:'),
                                               (good[:good.index('clusters')], 'serving.yaml:1: window_secs: missing'),
                                               ('{"local_site": "e', 'syntax')], 1):
            gateway.write('serving.yaml', text)
            told = gateway.revision(number)
            assert told['result'] == 'rejected' and says in told['error']
            assert gateway.ask('east').status_code == 200
        os.remove(tmp_path / 'serving.yaml')
        assert 'cannot read' in gateway.revision(5)['error']
        gateway.write('serving.yaml', good)
        assert gateway.revision(6) == {'revision': 6, 'result': 'reused', 'error': ''}
        assert gateway.ask('east').status_code == 200
        metrics = httpx.get('http://127.0.0.1:%d/metrics' % gateway.ops).text
        assert 'grid_serving_config_reload_total{result="rejected"} 5' in metrics


def test_a_refusal_that_stands_is_told_once(tmp_path, east):
    with Gateway(tmp_path, {'east': east}) as gateway:
        good = (tmp_path / 'serving.yaml').read_text()
        gateway.write('serving.yaml', good + '    credential: {bearer_path: later.key}\n')
        assert 'later.key' in gateway.revision(1)['error']
        for _ in range(20):
            gateway.process.send_signal(signal.SIGHUP)
        gateway.write_gateway('# a comment\n')
        assert gateway.revision(2)['result'] == 'reused'
        gateway.write('later.key', 'sk-later')
        gateway.process.send_signal(signal.SIGHUP)
        told = eventually(lambda: gateway.reload()['revision'] > 2 and gateway.reload(), 10, 'the key that came')
        assert (told['revision'], told['result'], told['error']) == (3, 'applied', '')
        of_run = [line for line in gateway.said().splitlines() if 'later.key' in line and 'warning' not in line]
        assert len(of_run) == 1, 'the module, which logs too, is told at most once'
        assert gateway.said().count('later.key') <= 2


def test_the_retention_of_samples_waits_for_a_restart(tmp_path, east, west):
    with Gateway(tmp_path, {'east': east}) as gateway:
        gateway.write_serving({'east': east, 'west': west}, 'window_secs: 7\n')
        told = gateway.revision(1)
        assert 'serving.yaml:10: window_secs: a change of it needs a restart; 60 stays in force' in told['error']
        eventually(lambda: gateway.ask('west').status_code == 200, 5, 'the rest of the file')
        assert json.loads((gateway.state / 'serving.json').read_text())['window_secs'] == 60


@pytest.mark.parametrize('extra, field', [
    ('tls: {cert_path: localhost.pem, key_path: localhost.key}\n', 'tls'),
    ('cors: {allow_origins: ["*"]}\n', 'cors'),
    ('tracing: {endpoint: "127.0.0.1:1"}\n', 'tracing'),
    ('max_connections: 7\n', 'max_connections'),
    ('timeouts: {idle_ms: 5}\n', 'timeouts'),
])
def test_what_only_a_restart_changes_is_refused_by_name(tmp_path, east, extra, field):
    certificate(tmp_path, 'localhost')
    with Gateway(tmp_path, {'east': east}) as gateway:
        gateway.write_gateway(extra)
        told = gateway.revision(1)
        assert told['result'] == 'rejected'
        assert 'gateway.yaml:6: %s: a change of it needs a restart' % field in told['error']
        assert gateway.ask('east').status_code == 200


def test_ports_are_not_hot(tmp_path, east):
    with Gateway(tmp_path, {'east': east}) as gateway:
        text = (tmp_path / 'gateway.yaml').read_text()
        for field in ('listen', 'admin', 'ops'):
            old = next(line for line in text.splitlines() if line.startswith(field))
            gateway.write('gateway.yaml', text.replace(old, '%s: 127.0.0.1:%d' % (field, free_port())))
            eventually(lambda f=field: ': %s: a change of it needs a restart' % f in gateway.said(), 5, field)
        assert gateway.ask('east').status_code == 200


def served(gateway, ca):
    """Whether a new connection is served under the certificate."""
    try:
        trust = ssl.create_default_context(cafile=ca)
        return httpx.get('https://localhost:%d/v1/models' % gateway.port, verify=trust).status_code == 200
    except httpx.HTTPError:
        return False


def test_certificates_rotate_under_a_request_that_runs(tmp_path, east):
    certificate(tmp_path, 'localhost')
    fresh = tmp_path / 'fresh'
    fresh.mkdir()
    certificate(fresh, 'localhost')
    old, new = str(tmp_path / 'old.pem'), str(fresh / 'localhost.pem')
    os.link(tmp_path / 'localhost.pem', old)
    with Gateway(tmp_path, {'east': east}, extra='tls: {cert_path: localhost.pem, key_path: localhost.key}\n') as gateway:
        assert served(gateway, old) and not served(gateway, new)
        with httpx.Client(verify=ssl.create_default_context(cafile=old), timeout=60) as client:
            url = 'https://localhost:%d/v1/chat/completions' % gateway.port
            east.go.clear()
            answers = []
            asking = threading.Thread(target=lambda: answers.append(client.post(url, json=CHAT)))
            asking.start()
            assert east.seen.wait(20)
            gateway.write('localhost.pem', open(new, encoding='ascii').read())
            told = eventually(lambda: (gateway.reload() or {}).get('result') == 'rejected' and gateway.reload(), 20,
                              'the refusal of a certificate with another key')
            assert 'Envoy refused a change' in told['error']
            assert served(gateway, old), 'the old pair serves on'
            gateway.write('localhost.key', (fresh / 'localhost.key').read_text())
            began_at = time.monotonic()
            eventually(lambda: served(gateway, new), 5, 'the new certificate')
            assert time.monotonic() - began_at < 2
            gateway.write('localhost.key', (fresh / 'localhost.key').read_text()[:100])
            eventually(lambda: 'a block in it is not whole' in gateway.said(), 5, 'the word of half a key')
            assert served(gateway, new)
            assert not answers
            east.go.set()
            asking.join(20)
            assert answers[0].json() == {'from': 'east'}, 'the request from before all of it'
            assert client.post(url, json=CHAT).status_code == 200, 'on the same connection'


def test_a_full_disk_stops_a_change_and_no_request(tmp_path, east, west):
    with Gateway(tmp_path, {'east': east}) as gateway:
        limit = os.path.getsize(gateway.errors.name) + 4000  # the log is such a file too
        many = {'east': east, 'west': west}
        extra = ''.join('  - name: c%d\n    endpoints: ["127.0.0.1:1"]\n' % i for i in range(200))
        resource.prlimit(gateway.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        gateway.write_serving(many, extra)
        told = gateway.revision(1)
        assert told['result'] == 'rejected' and 'cds.json: File too large' in told['error']
        assert gateway.ask('east').status_code == 200 and gateway.ask('west').status_code == 404
        for _ in range(5):
            gateway.process.send_signal(signal.SIGHUP)
            gateway.ask('east')
        assert gateway.said().count('grid-gateway: refused') == 1
        resource.prlimit(gateway.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        gateway.process.send_signal(signal.SIGHUP)
        assert gateway.revision(2) == {'revision': 2, 'result': 'applied', 'error': ''}
        eventually(lambda: gateway.ask('west').status_code == 200, 5, 'west, now that there is room')
        assert list(gateway.state.glob('*.new')) == []


class Balancer:
    """Sends each request to a replica that says it is ready; one that takes no connection is passed over."""

    def __init__(self, gateways):
        self.gateways, self.turn = gateways, 0
        self.client = httpx.Client(timeout=60)

    def ask(self):
        for _ in range(200):
            self.turn += 1
            gateway = self.gateways[self.turn % len(self.gateways)]
            try:
                if self.client.get('http://127.0.0.1:%d/ready' % gateway.ops).status_code != 200:
                    continue
                return self.client.post(gateway.url + '/v1/chat/completions', json=CHAT)
            except httpx.ConnectError:
                pass
            except httpx.HTTPError as error:
                if error.request.url.path != '/ready':
                    raise
        raise AssertionError('no replica is ready')


def test_a_rolling_restart_fails_no_request(tmp_path, east):
    folders = [tmp_path / 'a', tmp_path / 'b']
    for folder in folders:
        folder.mkdir()
    with Gateway(folders[0], {'east': east}) as first, Gateway(folders[1], {'east': east}) as second:
        with Traffic(Balancer([first, second]).ask) as traffic:
            for gateway in (first, second):
                before = traffic.good
                eventually(lambda b=before: traffic.good > b + 20, 20, 'traffic')
                gateway.process.send_signal(signal.SIGTERM)
                assert gateway.process.wait(60) == 0
                gateway.process.stdout.close()
                gateway.start()
                assert gateway.line.startswith('grid-gateway: serving on')
            before = traffic.good
            eventually(lambda: traffic.good > before + 20, 20, 'traffic at the end')
        assert traffic.failed == []
        assert 'requests cut' not in first.said() + second.said()


def test_envoy_killed_is_the_end_and_is_said(tmp_path, east):
    with Gateway(tmp_path, {'east': east}) as gateway:
        os.kill(gateway.envoy(), signal.SIGKILL)
        assert gateway.process.wait(20) == 128 + 9
        assert 'Envoy was ended by signal 9' in gateway.said()


def test_connections_have_a_bound(tmp_path, east):
    with Gateway(tmp_path, {'east': east}, extra='max_connections: 2\n') as gateway:
        clients = [httpx.Client(timeout=20) for _ in range(3)]
        url = gateway.url + '/v1/chat/completions'
        try:
            assert [c.post(url, json=CHAT).status_code for c in clients[:2]] == [200, 200]
            with pytest.raises(httpx.HTTPError):
                clients[2].post(url, json=CHAT)
            assert clients[0].post(url, json=CHAT).status_code == 200, 'those that are there go on'
            clients[1].close()

            def admitted():
                try:
                    return clients[2].post(url, json=CHAT).status_code == 200
                except httpx.HTTPError:
                    return False
            eventually(admitted, 20, 'the place that became free')
        finally:
            for client in clients:
                client.close()


def test_memory_has_a_bound(tmp_path, east):
    with Gateway(tmp_path, {'east': east}, extra='max_heap_bytes: 1000000\n') as gateway:
        answer = eventually(lambda: [a for a in [gateway.ask('east')] if a.status_code == 503], 20, 'the refusal')[0]
        assert answer.json()['error']['code'] == 'overloaded' and answer.headers['retry-after'] == '5'


def test_equal_configurations_are_rendered_the_same(tmp_path, east, west):
    (tmp_path / 'key').write_text('sk-1')
    tls = '    credential: {bearer_path: key}\n    health: {path: /health}\n'
    with Gateway(tmp_path, {'west': west, 'east': east}, tls=tls, extra='cors: {allow_origins: ["*"]}\n') as gateway:
        names = ('cds.json', 'envoy.json', 'plugin.json', 'serving.json')
        before = {n: (gateway.state / n).read_text() for n in names}
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(60) == 0
        assert not (gateway.state / 'sds').exists(), 'secrets do not outlive the gateway'
        gateway.process.stdout.close()
        gateway.start()
        assert {n: (gateway.state / n).read_text() for n in names} == before
