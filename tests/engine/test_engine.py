"""Stored responses of two real engines behind two gateways that share a key. tests/engine/run prepares and starts it.

The engine is vllm on the CPU with a tiny model and its response store on. Its queue cannot be set as a simulated site's
can, so a site is made busy by work: more short requests at once than it runs.
"""
import contextlib
import os
import signal
import subprocess
import threading

import httpx
import pytest

from grid import ROOT, eventually, free_port, prose
from test_stored import TAGGED_ID, NodeSdk, Pair, PythonSdk

ROOM = os.path.join(ROOT, os.environ.get('ENGINE_ROOM', os.path.join('build', 'engine')))
BLOCK_TOKENS = 32
START_S = 900                       # two engines at once on two busy cores
RUN_AT_ONCE = 4
WORKERS = RUN_AT_ONCE + 4           # so that some wait
ENVIRONMENT = {
    'HF_HUB_OFFLINE': '1', 'TRANSFORMERS_OFFLINE': '1', 'VLLM_NO_USAGE_STATS': '1', 'DO_NOT_TRACK': '1',
    'VLLM_TARGET_DEVICE': 'cpu', 'VLLM_CPU_KVCACHE_SPACE': '1', 'VLLM_CPU_OMP_THREADS_BIND': 'nobind',
    'OMP_NUM_THREADS': '1', 'VLLM_ENABLE_RESPONSES_API_STORE': '1'}
OPTIONS = ['--model', os.path.join(ROOM, 'model'), '--served-model-name', 'llama', '--host', '127.0.0.1',
           '--max-model-len', '8192', '--max-num-seqs', str(RUN_AT_ONCE), '--enable-prefix-caching', '--enforce-eager',
           '--block-size', str(BLOCK_TOKENS), '--enable-prompt-tokens-details']
ANSWER = {'temperature': 0.8, 'max_output_tokens': 16}     # without chance an untrained model often says nothing


class Engine:
    """One real engine, in the place of a simulated site."""

    def __init__(self, name):
        self.name, self.cluster, self.address = name, 'pool-' + name, '127.0.0.1:%d' % free_port()
        self.log_path = os.path.join(ROOM, name + '.log')
        self.log = open(self.log_path, 'w', encoding='utf-8')
        self.process = subprocess.Popen(
            [os.path.join(ROOM, 'venv', 'bin', 'python'), '-m', 'vllm.entrypoints.openai.api_server', '--port',
             self.address.split(':')[1], *OPTIONS], env=dict(os.environ, **ENVIRONMENT), stdin=subprocess.DEVNULL,
            stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True)
        self.workers, self.working = [], threading.Event()

    def healthy(self):
        if self.process.poll() is not None:
            with open(self.log_path, encoding='utf-8', errors='replace') as f:
                raise AssertionError('engine %s ended with %d:\n%s' % (self.name, self.process.returncode, f.read()[-3000:]))
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get('http://%s/health' % self.address, timeout=5).status_code == 200

    def work(self):
        body = {'model': 'llama', 'prompt': 'x', 'max_tokens': 64, 'ignore_eos': True}
        with httpx.Client(timeout=120) as client:
            while self.working.is_set():
                client.post('http://%s/v1/completions' % self.address, json=body)

    def set_busy(self, busy):
        if busy and not self.workers:
            self.working.set()
            self.workers = [threading.Thread(target=self.work) for _ in range(WORKERS)]
            for worker in self.workers:
                worker.start()
        elif not busy:
            self.working.clear()
            for worker in self.workers:
                worker.join()
            self.workers = []

    def stop(self):
        self.set_busy(False)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()


class EnginePair(Pair):
    def make_site(self, name):
        return Engine(name)

    def start(self):
        super().start()
        for engine in self.sites.values():
            eventually(engine.healthy, START_S, 'engine ' + engine.name)

    def send_new_work_to(self, site):
        for engine in self.sites.values():
            engine.set_busy(engine.name != site)
        eventually(lambda: all(self.goes_to(url) == site for url in self.urls * 3), 120, 'new work to ' + site)

    def goes_to(self, url):
        answer = httpx.post(url + '/v1/completions', json={'model': 'llama', 'prompt': 'x', 'max_tokens': 1}, timeout=60)
        return answer.headers.get('x-grid-site')


@pytest.fixture(scope='module')
def pair():
    window = {'load_window_ms': 4000}
    with EnginePair(serving=window, clusters={'signals': {'interval_ms': 250}}) as grid:
        yield grid


@pytest.fixture(params=[PythonSdk, NodeSdk], ids=['python', 'node'])
def sdk(request, pair):
    client = request.param(pair.urls)
    yield client
    client.close()
    for engine in pair.sites.values():
        engine.set_busy(False)


def create(sdk, gateway, text, stream=False, **fields):
    """A whole response, and the site that made it."""
    extra = {'stream': True} if stream else {}
    answer = sdk.ask(gateway, 'responses.create', model='llama', input=text, **extra, **dict(ANSWER, **fields))
    assert answer.status == 200, answer.message
    if not stream:
        return answer.value, answer.site
    ids = {event['response']['id'] for event in answer.value if 'response' in event}
    assert len(ids) == 1 and answer.value[0]['type'] == 'response.created'
    assert answer.value[-1]['type'] == 'response.completed'
    return answer.value[-1]['response'], answer.site


def test_a_talk_stays_at_its_engine(sdk, pair):
    pair.send_new_work_to('west')
    first, site = create(sdk, 0, prose('engine ' + type(sdk).__name__, 1500))
    assert site == 'west' and first['id'].startswith('resp_west.') and TAGGED_ID.match(first['id'])
    turns = [first]
    pair.send_new_work_to('east')
    for number in range(1, 6):
        before = turns[-1]
        text = prose('engine turn %d %s' % (number, type(sdk).__name__), 200)
        response, site = create(sdk, number % 2, text, stream=number % 2 == 1, previous_response_id=before['id'])
        cached = response['usage']['input_tokens_details']['cached_tokens']
        assert site == 'west' and response['id'].startswith('resp_west.')
        assert cached >= before['usage']['input_tokens'] // BLOCK_TOKENS * BLOCK_TOKENS > 0, 'it has the whole history'
        turns.append(response)
    assert len({turn['id'] for turn in turns}) == len(turns)
    for number, turn in enumerate(turns):
        found = sdk.ask((number + 1) % 2, 'responses.retrieve', turn['id'])
        assert (found.status, found.site) == (200, 'west')
        assert (found.value['id'], found.value['output'], found.value['usage']) == (turn['id'], turn['output'], turn['usage'])


def test_a_background_response_is_cancelled_where_it_runs(sdk, pair):
    pair.send_new_work_to('west')
    response, site = create(sdk, 0, 'count', background=True, max_output_tokens=8000, extra_body={'ignore_eos': True}) \
        if isinstance(sdk, PythonSdk) else create(sdk, 0, 'count', background=True, max_output_tokens=8000, ignore_eos=True)
    assert site == 'west' and response['status'] in ('queued', 'in_progress')
    pair.send_new_work_to('east')
    found = sdk.ask(1, 'responses.retrieve', response['id'])
    assert (found.status, found.site, found.value['id']) == (200, 'west', response['id'])
    cancelled = sdk.ask(1, 'responses.cancel', response['id'])
    assert (cancelled.status, cancelled.value['status'], cancelled.value['id']) == (200, 'cancelled', response['id'])
    assert sdk.ask(0, 'responses.retrieve', response['id']).value['status'] == 'cancelled'
    again = sdk.ask(0, 'responses.cancel', response['id'])
    assert again.status == 400 and 'synchronous' in again.message, "the engine's own refusal, untouched"


def test_a_background_stream_is_taken_up_at_the_other_replica(sdk, pair):
    pair.send_new_work_to('west')
    response, _ = create(sdk, 0, 'count', stream=True, background=True)
    pair.send_new_work_to('east')
    rest = sdk.ask(1, 'responses.retrieve', response['id'], stream=True, starting_after=2)
    assert rest.status == 200 and [event['sequence_number'] for event in rest.value][0] == 3
    assert rest.value[-1]['response']['id'] == response['id']


def test_an_engine_withdrawn_drained_and_back(sdk, pair):
    pair.send_new_work_to('west')
    response, _ = create(sdk, 0, 'keep this')
    ask = lambda gateway: sdk.ask(gateway, 'responses.retrieve', response['id'])
    more = lambda gateway: sdk.ask(gateway, 'responses.create', model='llama', input='x', previous_response_id=response['id'],
                                   **ANSWER)
    here = {'kind': 'inference_model', 'name': 'llama', 'site': 'east', 'cluster': 'pool-east'}
    for serving, status, retry_after in (({'candidates': [here]}, 404, None), ({'admission': {'west': 'existing_only'}}, 503, '5'),
                                         ({}, 200, None)):
        pair.serve(**serving)
        for gateway in range(2):
            eventually(lambda: ask(gateway).status == status, what='status %d' % status)
            assert ask(gateway).retry_after == retry_after
            told = more(gateway)
            assert (told.status, told.retry_after) == (status, retry_after), told.message
    assert ask(0).value['output'] == response['output']


def test_what_the_engine_does_not_hold(sdk, pair):
    response, site = create(sdk, 0, 'x', store=False)
    assert TAGGED_ID.match(response['id'])
    gone = sdk.ask(1, 'responses.retrieve', response['id'])
    assert gone.status == 404 and 'not found' in gone.message
    received = sdk.ask(1, 'responses.retrieve', 'resp_' + response['id'].rsplit('.', 1)[1])
    assert (received.status, received.code) == (404, 'not_found'), "without its tag it is the gateway's 404"
