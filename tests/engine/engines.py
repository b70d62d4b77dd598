"""Two real engines behind two gateways: how they are started, stopped, steered and asked. tests/engine/run prepares them.

The engine is vllm on the CPU with a tiny model and its response store on. New work is sent to one of them by the order of the
candidates, which decides between equal queues; nothing here depends on how soon a busy machine answers.
"""
import contextlib
import os
import signal
import subprocess

import httpx

from grid import ROOT, eventually, free_port, series
from test_stored import Pair

ROOM = os.path.join(ROOT, os.environ.get('ENGINE_ROOM', os.path.join('build', 'engine')))
PYTHON = os.path.join(ROOM, 'venv', 'bin', 'python')
BLOCK_TOKENS = 32                   # of an engine's cache; the smallest that vllm takes on the CPU
BLOCK_BYTES = 256                   # of the gateway's keys
START_S = 900                       # two engines at once on two busy cores
RUN_AT_ONCE = 4
INTERVAL_MS = 250
WORTH_OF_A_BLOCK = 0.1              # in queued requests
AFFINITY = {'prefill_tokens_per_second': 640, 'queued_request_seconds': 1}
ENVIRONMENT = {
    'HF_HUB_OFFLINE': '1', 'TRANSFORMERS_OFFLINE': '1', 'VLLM_NO_USAGE_STATS': '1', 'DO_NOT_TRACK': '1',
    'VLLM_TARGET_DEVICE': 'cpu', 'VLLM_CPU_KVCACHE_SPACE': '1', 'VLLM_CPU_OMP_THREADS_BIND': 'nobind',
    'OMP_NUM_THREADS': '1', 'VLLM_ENABLE_RESPONSES_API_STORE': '1'}
OPTIONS = ['--model', os.path.join(ROOM, 'model'), '--served-model-name', 'llama', '--host', '127.0.0.1',
           '--max-model-len', '8192', '--max-num-seqs', str(RUN_AT_ONCE), '--enable-prefix-caching', '--enforce-eager',
           '--block-size', str(BLOCK_TOKENS), '--enable-prompt-tokens-details', '--enable-auto-tool-choice',
           '--tool-call-parser', 'hermes', '--tool-strict-level', 'parameter']


class Engine:
    """One real engine, in the place of a simulated site."""

    def __init__(self, name):
        self.name, self.cluster, self.address = name, 'pool-' + name, '127.0.0.1:%d' % free_port()
        self.log_path = os.path.join(ROOM, name + '.log')
        self.log = open(self.log_path, 'w', encoding='utf-8')
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [PYTHON, '-m', 'vllm.entrypoints.openai.api_server', '--port', self.address.split(':')[1], *OPTIONS],
            env=dict(os.environ, **ENVIRONMENT), stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT,
            start_new_session=True)

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.kill()
        self.log.close()

    def answers(self, path):
        """Whether the engine answers there; fails when its process has ended."""
        if self.process.poll() is not None:
            with open(self.log_path, encoding='utf-8', errors='replace') as f:
                raise AssertionError('engine %s ended with %d:\n%s' % (self.name, self.process.returncode, f.read()[-3000:]))
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get('http://%s%s' % (self.address, path), timeout=5).status_code == 200

    def waiting(self):
        """The requests that wait, as the engine's own page of metrics says."""
        page = series(httpx.get('http://%s/metrics' % self.address, timeout=30).text)
        return sum(value for name, value in page.items() if name.startswith('vllm:num_requests_waiting{'))


class EnginePair(Pair):
    def make_site(self, name):
        return Engine(name)

    def start(self):
        super().start()
        for engine in self.sites.values():
            eventually(lambda: engine.answers('/health'), START_S, 'engine ' + engine.name)

    def depth(self, site, gateway=0):
        """The queue that a gateway holds against a site: the worst of its window."""
        name = 'grid_route_site_score{site="%s",cluster="pool-%s"}' % (site, site)
        return series(self.all_ops[gateway].get('/metrics').text)[name]

    def is_idle(self):
        return all(self.depth(site, gateway) == 0 for site in self.names for gateway in range(2))

    def in_force(self):
        """Whether both gateways have the window of the serving config."""
        return all(ops.get('/grid').json()['history']['window_ms'] == self.serving_extra['load_window_ms'] for ops in self.all_ops)

    def send_new_work_to(self, site):
        """The site first among equals, and equals: both engines measured and without a queue in the eyes of both gateways."""
        self.sites = dict(sorted(self.sites.items(), key=lambda one: one[0] != site))
        self.write_serving()
        eventually(lambda: self.in_force() and self.is_idle() and all(self.goes_to(url) == site for url in self.urls), 300,
                   'new work to ' + site)

    def goes_to(self, url):
        answer = httpx.post(url + '/v1/completions', json={'model': 'llama', 'prompt': 'x', 'max_tokens': 1}, timeout=60)
        return answer.headers.get('x-grid-site')

    def decision(self, gateway=0):
        """A gateway's newest decision, from its page."""
        return self.all_ops[gateway].get('/grid').json()['recent'][0]
