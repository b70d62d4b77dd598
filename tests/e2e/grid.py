"""A grid for a test: simulated sites, a gateway in front of them, and what a test asks of both.

    with Grid(sites=('east', 'west')) as grid:
        client = grid.openai()
        ...

Every process gets free ports and a folder of its own, is waited for by a condition, and is gone when the block ends.
"""
import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time

import httpx
import openai

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.environ.get('GRID_GATEWAY', os.path.join(ROOT, 'build', 'release', 'grid-gateway'))
OUTCOMES = ('sticky', 'no_match', 'load_override', 'exploration', 'not_applicable')


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def eventually(condition, seconds=20, what='the condition'):
    """The condition's first true value; fails when there is none in time."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError('%s did not come true in %d s' % (what, seconds))
        time.sleep(0.02)


def series(text):
    """The lines of an exposition as a mapping from name with labels to number."""
    out = {}
    for line in text.splitlines():
        if line and not line.startswith('#'):
            name, _, value = line.rpartition(' ')
            out[name] = float(value)
    return out


class Site:
    """One simulated engine."""

    def __init__(self, name, folder, options=()):
        self.name, self.cluster = name, 'pool-' + name
        self.log = open(os.path.join(folder, name + '.log'), 'w+', encoding='utf-8')
        self.process = subprocess.Popen([BINARY, 'sim-site', '--listen', '127.0.0.1:0', '--name', name, '--model', 'llama',
                                         *options], stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        assert line.startswith('listening on '), 'sim-site %s said %r' % (name, line)
        self.address = line.split()[-1]
        self.http = httpx.Client(base_url='http://' + self.address, timeout=10)

    def state(self):
        return self.http.get('/sim/state').json()

    def load(self, waiting):
        self.http.post('/sim/load', json={'waiting': waiting}).raise_for_status()

    def fault(self, **fault):
        self.http.post('/sim/faults', json=fault).raise_for_status()

    def heal(self):
        self.http.delete('/sim/faults').raise_for_status()

    def stop(self):
        self.http.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()


class Grid:
    """Sites and a gateway. Settings of prefix_affinity, of the gateway's file and of the serving config may be given, and of `run`
    its options, what it is started by, and its environment. `apart`: standard error has a file of its own, `errors`, so that no
    line of it gets between two parts of a long one of the access log."""

    def __init__(self, sites=('east', 'west'), affinity=None, gateway=None, serving=None, site_options=('--prefill-tps',
                 '1000000', '--decode-tps', '5000'), admission=None, clusters=None, options=(), wrap=(), env=None, apart=False):
        self.names, self.affinity = sites, dict({'exploration': 0}, **(affinity or {}))
        self.gateway_extra, self.serving_extra = gateway or {}, serving or {}
        self.site_options, self.admission, self.cluster_extra = site_options, admission or {}, clusters or {}
        self.options, self.wrap, self.env, self.apart = options, wrap, dict(os.environ, **(env or {})), apart

    def __enter__(self):
        self.stack = contextlib.ExitStack()
        try:
            self.start()
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *_):
        self.stack.close()

    def start(self):
        self.folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        self.sites = {}
        for name in self.names:
            self.sites[name] = self.make_site(name)
            self.stack.callback(self.sites[name].stop)
        self.port, self.admin_port, self.ops_port = free_port(), free_port(), free_port()
        self.write_serving()
        self.write('gateway.json', dict({
            'listen': '127.0.0.1:%d' % self.port, 'admin': '127.0.0.1:%d' % self.admin_port,
            'ops': '127.0.0.1:%d' % self.ops_port, 'concurrency': 1,
            'serving_config_path': os.path.join(self.folder, 'serving.json'),
            'grid_site_route': {'prefix_affinity': self.affinity}}, **self.gateway_extra))
        self.log = self.errors = self.stack.enter_context(open(os.path.join(self.folder, 'gateway.log'), 'w+', encoding='utf-8'))
        if self.apart:
            self.errors = self.stack.enter_context(open(os.path.join(self.folder, 'gateway.errors'), 'w+', encoding='utf-8'))
        self.process = subprocess.Popen([*self.wrap, BINARY, 'run', '-c', os.path.join(self.folder, 'gateway.json'),
                                         *self.options], stdout=self.log, stderr=self.errors, env=self.env)
        self.stack.callback(self.stop)
        self.url = 'http://127.0.0.1:%d' % self.port
        self.http = self.stack.enter_context(httpx.Client(base_url=self.url, timeout=60))
        self.ops = self.stack.enter_context(httpx.Client(base_url='http://127.0.0.1:%d' % self.ops_port, timeout=10))
        self.admin = self.stack.enter_context(httpx.Client(base_url='http://127.0.0.1:%d' % self.admin_port, timeout=10))
        eventually(self.ready, 60, 'the gateway')

    def make_site(self, name):
        return Site(name, self.folder, self.site_options)

    def write(self, name, value):
        temporary = os.path.join(self.folder, '.' + name)
        with open(temporary, 'w', encoding='utf-8') as f:
            json.dump(value, f)
        os.rename(temporary, os.path.join(self.folder, name))

    def write_serving(self):
        self.write('serving.json', dict({
            'local_site': self.names[0], 'window_secs': 600, 'load_window_ms': 600000,
            'candidates': [{'kind': 'inference_model', 'name': 'llama', 'site': s.name, 'cluster': s.cluster,
                            'admission': self.admission.get(s.name, 'new_and_existing')} for s in self.sites.values()],
            'clusters': [dict({'name': s.cluster, 'endpoints': [s.address], 'signals': {'interval_ms': 100}},
                              **self.cluster_extra) for s in self.sites.values()]}, **self.serving_extra))

    def ready(self):
        if self.process.poll() is not None:
            self.errors.seek(0)
            raise AssertionError('the gateway ended with %d: %s' % (self.process.returncode, self.errors.read()[-3000:]))
        with contextlib.suppress(httpx.HTTPError):
            return self.ops.get('/ready').status_code == 200

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    # -- asking

    def openai(self, **options):
        client = openai.OpenAI(base_url=self.url + '/v1', api_key='none', max_retries=0, **options)
        self.stack.callback(client.close)
        return client

    def metrics(self):
        return series(self.ops.get('/metrics').text)

    def outcomes(self):
        found = self.metrics()
        return {o: int(found['grid_route_prefix_affinity_total{outcome="%s"}' % o]) for o in OUTCOMES}

    def score(self, site):
        cluster = self.sites[site].cluster
        return self.metrics()['grid_route_site_score{site="%s",cluster="%s"}' % (site, cluster)]

    def set_depth(self, site, depth):
        """Lets a site report a queue and waits until the order of sites knows."""
        self.sites[site].load(depth)
        eventually(lambda: self.score(site) == depth, what='%s at depth %r' % (site, depth))

    def chat(self, text, headers=None, **extra):
        body = dict({'model': 'llama', 'max_tokens': 4, 'messages': [{'role': 'user', 'content': text}]}, **extra)
        return self.http.post('/v1/chat/completions', json=body, headers=headers)

    def counted(self, request):
        """The request's answer, and the one outcome that it counted in (None: in none)."""
        before = self.outcomes()
        answer = request()
        after = self.outcomes()
        changed = {o: after[o] - before[o] for o in OUTCOMES if after[o] != before[o]}
        assert sum(changed.values()) <= 1, changed
        return answer, next(iter(changed), None)


def prose(name, length):
    """Text that no other name shares a block of."""
    import hashlib
    out, block = [], name.encode()
    while sum(map(len, out)) < length:
        block = hashlib.sha256(block).digest()
        out.append(''.join('abcdefghijklmnopqrstuvwxyz      '[b % 32] for b in block))
    return ''.join(out)[:length]


def blocks_of(body, path='/v1/chat/completions'):
    """How many keys the gateway's own core gives the body."""
    line = json.dumps({'op': 'keys', 'path': path, 'headers': {}, 'body': body})
    out = subprocess.run([BINARY, 'replay'], input=line + '\n', capture_output=True, text=True, check=True).stdout
    return len(json.loads(out)['keys'])
