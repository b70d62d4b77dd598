"""Stored responses and conversations through two gateways that share a key: an id finds its way home by itself.

Every test runs with the official SDKs for Python and for JavaScript. The sites' queues are set so that a request without an
id would go to the other site, and each step is asked of the replica that did not make the id.
"""
import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import tempfile

import httpx
import openai
import pytest

from grid import BINARY, Grid, eventually, free_port, prose

NODE = os.path.join(os.path.dirname(__file__), 'node')
TAGGED_ID = re.compile(r'(resp|conv)_(east|west)\.[0-9a-f]{8}\.[0-9a-f]{16}\.[0-9a-f]{16}')   # at least so long
TAGGED = re.compile(TAGGED_ID.pattern + r'[0-9a-f]{16}')
BUSY = 40
SERVING = {'load_window_ms': 2000}
EVENTS = ['response.created', 'response.in_progress', 'response.output_item.added', 'response.content_part.added',
          'response.output_text.delta', 'response.output_text.done', 'response.content_part.done', 'response.output_item.done',
          'response.completed']


class Pair(Grid):
    """Two sites behind two replicas: the grid's own, and a second with the same serving config and the same key."""

    def start(self):
        self.usual = dict(self.serving_extra)
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        key = os.path.join(folder, 'key')
        with open(key, 'wb') as f:
            f.write(secrets.token_bytes(32))
        self.affinity['tag_key_path'] = key
        super().start()
        admin, ops, port = free_port(), free_port(), free_port()
        with open(os.path.join(self.folder, 'gateway.json'), encoding='utf-8') as f:
            config = json.load(f)
        config.update(listen='127.0.0.1:%d' % port, admin='127.0.0.1:%d' % admin, ops='127.0.0.1:%d' % ops)
        self.write('second.json', config)
        self.second_log = self.stack.enter_context(open(os.path.join(self.folder, 'second.log'), 'w+', encoding='utf-8'))
        self.second = subprocess.Popen([BINARY, 'run', '-c', os.path.join(self.folder, 'second.json')],
                                       stdout=self.second_log, stderr=subprocess.STDOUT)
        self.stack.callback(self.stop_second)
        self.urls = [self.url, 'http://127.0.0.1:%d' % port]
        self.all_ops = [self.ops, self.stack.enter_context(httpx.Client(base_url='http://127.0.0.1:%d' % ops, timeout=10))]
        eventually(self.second_ready, 60, 'the second gateway')

    def serve(self, admission=None, **serving):
        """Another serving config for both replicas; a queue that is gone is forgotten soon."""
        self.admission, self.serving_extra = admission or {}, dict(self.usual, **serving)
        self.write_serving()

    def second_ready(self):
        assert self.second.poll() is None, 'the second gateway ended'
        with contextlib.suppress(httpx.HTTPError):
            return self.all_ops[1].get('/ready').status_code == 200

    def stop_second(self):
        for _ in range(2):
            self.second.send_signal(signal.SIGINT)
        try:
            self.second.wait(10)
        except subprocess.TimeoutExpired:
            self.second.kill()
            self.second.wait()

    def send_new_work_to(self, site):
        """Queues that make both replicas prefer a site, as long as no id says otherwise."""
        for name, one in self.sites.items():
            one.load(0 if name == site else BUSY)
        for name, one in self.sites.items():
            score = 'grid_route_site_score{site="%s",cluster="%s"} %d\n' % (name, one.cluster, 0 if name == site else BUSY)
            for ops in self.all_ops:
                eventually(lambda: score in ops.get('/metrics').text, what=score)
        for url in self.urls:
            answer = httpx.post(url + '/v1/completions', json={'model': 'llama', 'prompt': 'x', 'max_tokens': 1})
            assert answer.headers['x-grid-site'] == site

    def affinity_counts(self):
        return [[line for line in ops.get('/metrics').text.splitlines() if line.startswith('grid_route_prefix_affinity_total')]
                for ops in self.all_ops]


class Answer:
    def __init__(self, site=None, value=None, status=200, code=None, retry_after=None, message=''):
        self.site, self.value, self.status = site, value, status
        self.code, self.retry_after, self.message = code, retry_after, message


class PythonSdk:
    """Calls are named as in the SDK for Python: 'responses.input_items.list'."""

    def __init__(self, urls):
        self.clients = [openai.OpenAI(base_url=url + '/v1', api_key='none', max_retries=0, timeout=120) for url in urls]

    def ask(self, gateway, call, *ids, **fields):
        *path, verb = call.split('.')
        target = self.clients[gateway]
        for name in path:
            target = getattr(target, name)
        try:
            raw = getattr(target.with_raw_response, verb)(*ids, **fields)
            value = raw.parse()
            if hasattr(value, 'to_dict') and not hasattr(value, 'has_next_page'):
                value = value.to_dict(warnings=False)
            elif value is not None:
                value = [one.to_dict(warnings=False) for one in value]
            return Answer(raw.headers.get('x-grid-site'), value)
        except openai.APIStatusError as e:
            return Answer(status=e.status_code, code=e.code, retry_after=e.response.headers.get('retry-after'),
                          message=e.message)

    def close(self):
        for client in self.clients:
            client.close()


class NodeSdk:
    """The same calls of the SDK for JavaScript, by tests/e2e/node/sdk.mjs."""
    command, folder, sdk, root = ['node', 'sdk.mjs'], NODE, 'openai', '/v1'

    def __init__(self, urls):
        self.urls = urls
        self.process = subprocess.Popen(self.command, cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, gateway, call, *ids, **fields):
        path = [re.sub(r'_(\w)', lambda m: m[1].upper(), name) for name in call.split('.')]
        args = [*ids, fields] if fields else ids
        line = {'sdk': self.sdk, 'url': self.urls[gateway] + self.root, 'call': path, 'args': args}
        self.process.stdin.write(json.dumps(line) + '\n')
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert 'failure' not in answer, answer['failure']
        if isinstance(answer.get('value'), dict):
            answer['value'].pop('output_text', None)    # the SDK's own addition, to some answers
        return Answer(**answer)

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(10) == 0
        self.process.stdout.close()


@pytest.fixture(scope='module')
def pair():
    with Pair(serving=SERVING) as grid:
        yield grid


@pytest.fixture(params=[PythonSdk, NodeSdk], ids=['python', 'node'])
def sdk(request, pair):
    client = request.param(pair.urls)
    yield client
    client.close()
    for site in pair.sites.values():
        site.load(0)


def text_of(response):
    return response['output'][0]['content'][0]['text']


def cached(response):
    return response['usage']['input_tokens_details']['cached_tokens']


def create(sdk, gateway, text, **fields):
    """A response that is not streamed, and the site that made it."""
    answer = sdk.ask(gateway, 'responses.create', model='llama', input=text, **fields)
    assert answer.status == 200, answer.message
    return answer.value, answer.site


def stream(sdk, gateway, text, **fields):
    """The same from a stream; its events have been looked at."""
    answer = sdk.ask(gateway, 'responses.create', model='llama', input=text, stream=True, **fields)
    assert answer.status == 200, answer.message
    events = answer.value
    response = events[-1]['response']
    kinds = [event['type'] for event in events]
    assert [kind for i, kind in enumerate(kinds) if i == 0 or kind != kinds[i - 1]] == EVENTS
    assert [event['sequence_number'] for event in events] == list(range(len(events)))
    assert {event['response']['id'] for event in events if 'response' in event} == {response['id']}
    assert ''.join(event['delta'] for event in events if 'delta' in event) == text_of(response)
    assert all('.' not in event['item_id'] for event in events if 'item_id' in event), 'ids of items stay as they are'
    return response, answer.site


def test_ten_turns_stay_at_the_site_that_began(sdk, pair):
    pair.send_new_work_to('west')
    first, site = create(sdk, 0, prose('turn 0 of ' + type(sdk).__name__, 2000))
    assert site == 'west' and TAGGED.fullmatch(first['id']) and first['id'].startswith('resp_west.')
    turns = [first]
    pair.send_new_work_to('east')
    before = pair.affinity_counts()
    for number in range(1, 11):
        turn = stream if number % 2 else create
        previous = turns[-1]
        text = prose('turn %d of %s' % (number, type(sdk).__name__), 300)
        response, site = turn(sdk, number % 2, text, previous_response_id=previous['id'])
        assert site == 'west', 'a request without an id goes to east'
        assert TAGGED.fullmatch(response['id']) and response['id'] not in {turn['id'] for turn in turns}
        assert response['previous_response_id'] == previous['id'], 'the client sees the id that it sent'
        assert cached(response) >= previous['usage']['input_tokens'] - 16, 'the engine held the whole history'
        turns.append(response)
    for number, turn in enumerate(turns):
        found = sdk.ask((number + 1) % 2, 'responses.retrieve', turn['id'])
        assert (found.site, found.value) == ('west', turn), 'an answer read again is the same, to the last byte of its id'
        items = sdk.ask(number % 2, 'responses.input_items.list', turn['id'], limit=10)
        assert items.site == 'west' and len(items.value) == 1 and items.value[0]['id'].startswith('msg_')
    for turn in turns:
        assert sdk.ask(0, 'responses.delete', turn['id']).site == 'west'
        gone = sdk.ask(1, 'responses.retrieve', turn['id'])
        assert gone.status == 404 and 'not found' in gone.message, "the site's own 404"
    assert pair.affinity_counts() == before, 'pinned requests count in no outcome'


def test_a_background_response_is_cancelled_where_it_runs(sdk, pair):
    pair.send_new_work_to('west')
    begun = pair.sites['west'].state()['aborted']
    response, site = create(sdk, 0, 'count', background=True, max_output_tokens=100000)
    assert (site, response['status']) == ('west', 'queued')
    pair.send_new_work_to('east')
    eventually(lambda: sdk.ask(1, 'responses.retrieve', response['id']).value['status'] == 'in_progress')
    cancelled = sdk.ask(1, 'responses.cancel', response['id'])
    assert (cancelled.site, cancelled.value['status'], cancelled.value['id']) == ('west', 'cancelled', response['id'])
    assert sdk.ask(0, 'responses.retrieve', response['id']).value['status'] == 'cancelled'
    assert pair.sites['west'].state()['aborted'] == begun + 1 and pair.sites['west'].state()['running'] == 0
    again = sdk.ask(0, 'responses.cancel', response['id'])
    assert again.status == 400 and 'synchronous' in again.message, "the site's own refusal, untouched"


def test_a_background_stream_is_taken_up_again_at_the_other_replica(sdk, pair):
    pair.send_new_work_to('west')
    response, _ = stream(sdk, 0, 'count', background=True, max_output_tokens=12)
    pair.send_new_work_to('east')
    rest = sdk.ask(1, 'responses.retrieve', response['id'], stream=True, starting_after=10)
    assert [event['sequence_number'] for event in rest.value] == list(range(11, 20)), 'the query was kept'
    assert rest.value[-1]['response'] == response


def test_conversations_begin_at_home_and_stay(sdk, pair):
    pair.send_new_work_to('west')
    talk = sdk.ask(0, 'conversations.create', metadata={'topic': 'resp_east.'},
                   items=[{'role': 'user', 'content': prose('talk of ' + type(sdk).__name__, 2000)}])
    name = talk.value['id']
    assert talk.site == 'east', 'the local site, whatever its queue'
    assert TAGGED.fullmatch(name) and name.startswith('conv_east.')
    before = pair.affinity_counts()
    first, site = create(sdk, 1, 'one', conversation=name)
    assert (site, first['conversation']['id']) == ('east', name) and first['id'].startswith('resp_east.')
    second, site = stream(sdk, 0, 'two', conversation={'id': name})
    assert (site, second['conversation']['id']) == ('east', name)
    assert cached(second) >= first['usage']['input_tokens'] - 16
    added = sdk.ask(1, 'conversations.items.create', name, items=[{'role': 'user', 'content': 'conv_east.x resp_y'}])
    assert added.site == 'east'
    item = added.value['data'][0]
    items = sdk.ask(0, 'conversations.items.list', name, order='asc', limit=2).value
    assert [i['content'][0]['text'] for i in items[1:]] == ['one', text_of(first), 'two', text_of(second), 'conv_east.x resp_y']
    found = sdk.ask(0, 'conversations.items.retrieve', item['id'], conversation_id=name)
    assert (found.site, found.value['content']) == ('east', item['content'])
    assert sdk.ask(1, 'conversations.items.delete', item['id'], conversation_id=name).value['id'] == name
    assert sdk.ask(1, 'conversations.items.retrieve', item['id'], conversation_id=name).status == 404
    assert sdk.ask(0, 'conversations.update', name, metadata={'a': 'b'}).value['metadata'] == {'a': 'b'}
    assert sdk.ask(1, 'conversations.retrieve', name).value == dict(talk.value, metadata={'a': 'b'})
    deleted = sdk.ask(1, 'conversations.delete', name)
    assert (deleted.site, deleted.value['deleted'], deleted.value['id']) == ('east', True, name)
    assert sdk.ask(0, 'conversations.retrieve', name).status == 404
    assert pair.affinity_counts() == before


def test_counting_and_compacting_follow_the_id_in_the_body(sdk, pair):
    pair.send_new_work_to('west')
    response, _ = create(sdk, 0, prose('compact', 1000))
    pair.send_new_work_to('east')
    counted = sdk.ask(1, 'responses.input_tokens.count', model='llama', input='more', previous_response_id=response['id'])
    assert counted.site == 'west' and counted.value['input_tokens'] > response['usage']['input_tokens']
    compacted = sdk.ask(1, 'responses.compact', model='llama', previous_response_id=response['id'])
    assert compacted.site == 'west' and [item['type'] for item in compacted.value['output']] == ['message', 'compaction']
    assert sdk.ask(1, 'responses.input_tokens.count', model='llama', input='x').site == 'east', 'by load without an id'


def refusals(sdk, gateway, response, talk):
    """What a client is told about a response and a conversation, whatever it asks of them."""
    item = {'role': 'user', 'content': 'x'}
    return [sdk.ask(gateway, 'responses.retrieve', response), sdk.ask(gateway, 'responses.input_items.list', response),
            sdk.ask(gateway, 'responses.cancel', response), sdk.ask(gateway, 'responses.delete', response),
            sdk.ask(gateway, 'conversations.retrieve', talk), sdk.ask(gateway, 'conversations.items.create', talk, items=[item]),
            sdk.ask(gateway, 'conversations.delete', talk),
            sdk.ask(gateway, 'responses.create', model='llama', input='x', conversation=talk),
            sdk.ask(gateway, 'responses.create', model='llama', input='x', previous_response_id=response),
            sdk.ask(gateway, 'responses.create', model='llama', input='x', previous_response_id=response, stream=True)]


def wait_for(sdk, response, status):
    for gateway in range(2):
        eventually(lambda: sdk.ask(gateway, 'responses.retrieve', response).status == status, what='status %d' % status)


@pytest.fixture
def usual(pair):
    yield
    pair.serve()


def test_a_site_withdrawn_drained_and_back(sdk, pair, usual):
    pair.serve(local_site='west')
    talk = eventually(lambda: next((t for t in [sdk.ask(0, 'conversations.create', metadata={'a': 'b'}).value]
                                    if t and t['id'].startswith('conv_west.')), None), what='a conversation in the west')['id']
    pair.send_new_work_to('west')
    response, site = create(sdk, 0, prose('drained', 1000))
    assert site == 'west'

    here = {'kind': 'inference_model', 'name': 'llama', 'site': 'east', 'cluster': 'pool-east'}
    pair.serve(candidates=[here])
    wait_for(sdk, response['id'], 404)
    received = pair.sites['west'].state()['received'], pair.sites['east'].state()['received']
    forged = response['id'].replace('.', '.f', 1)[:len(response['id'])]
    for gateway in range(2):
        told = refusals(sdk, gateway, response['id'], talk)
        assert {(one.status, one.retry_after) for one in told} == {(404, None)}
        assert {one.code for one in told[-2:]} == {'previous_response_not_found'}
        assert told[0].message == sdk.ask(gateway, 'responses.retrieve', forged).message, 'no 404 tells why'
    assert (pair.sites['west'].state()['received'], pair.sites['east'].state()['received']) == received, 'nothing went out'

    pair.serve(admission={'west': 'existing_only'})
    wait_for(sdk, response['id'], 503)
    for gateway in range(2):
        told = refusals(sdk, gateway, response['id'], talk)
        assert {(one.status, one.retry_after, one.code) for one in told} == {(503, '5', 'site_unavailable')}
        assert sdk.ask(gateway, 'responses.create', model='llama', input='x').site == 'east', 'new work goes on'
    assert pair.sites['west'].state()['received'] == received[0]

    pair.serve()
    wait_for(sdk, response['id'], 200)
    for gateway in range(2):
        assert sdk.ask(gateway, 'responses.retrieve', response['id']).value == response
        assert sdk.ask(gateway, 'conversations.retrieve', talk).value['id'] == talk
    more, site = create(sdk, 1, 'more', previous_response_id=response['id'])
    assert site == 'west' and cached(more) >= response['usage']['input_tokens'] - 16


def test_one_id_at_two_sites_is_two_responses(sdk, pair):
    made = {}
    for site in ('west', 'east'):
        pair.send_new_work_to(site)
        made[site], _ = create(sdk, 0, 'made in the ' + site, extra_body={'request_id': 'resp_mine'}) \
            if isinstance(sdk, PythonSdk) else create(sdk, 0, 'made in the ' + site, request_id='resp_mine')
        assert re.fullmatch(r'resp_%s\.\w{8}\.\w{16}\.mine' % site, made[site]['id'])
    for site, response in made.items():
        items = sdk.ask(1, 'responses.input_items.list', response['id']).value
        assert items[0]['content'][0]['text'] == 'made in the ' + site
        assert sdk.ask(1, 'responses.retrieve', response['id']).value == response


def test_an_id_that_was_altered_is_not_found(sdk, pair):
    response, site = create(sdk, 0, 'x')
    prefix, mark, mac, rest = response['id'].split('.')
    other = 'west' if site == 'east' else 'east'
    flipped = mac[:-1] + ('0' if mac[-1] != '0' else '1')
    received = sum(one.state()['received'] for one in pair.sites.values())
    for wrong in ('.'.join((prefix, mark, flipped, rest)), '.'.join((prefix, mark, mac.upper() + 'A', rest)),
                  '.'.join((prefix, mark, '', rest)), '.'.join(('resp_' + other, mark, mac, rest)), 'resp_' + rest):
        for told in (sdk.ask(1, 'responses.retrieve', wrong), sdk.ask(1, 'responses.delete', wrong)):
            assert (told.status, told.code) == (404, 'not_found'), wrong
        if '.' in wrong:
            told = sdk.ask(1, 'responses.create', model='llama', input='x', previous_response_id=wrong)
            assert (told.status, told.code) == (404, 'previous_response_not_found'), wrong
    assert sum(one.state()['received'] for one in pair.sites.values()) == received
    assert sdk.ask(1, 'responses.retrieve', response['id']).status == 200
