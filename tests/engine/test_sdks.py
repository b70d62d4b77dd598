"""The official SDKs of OpenAI and of Anthropic, for Python and for JavaScript, against real engines through the gateway."""
import json

import pytest

from anthropic_sdks import NodeAnthropic, PythonAnthropic
from apis import APIS, CHANCE, TOOL
from engines import BLOCK_TOKENS
from grid import prose
from test_stored import NodeSdk, PythonSdk

SDKS = {'openai-python': PythonSdk, 'openai-node': NodeSdk, 'anthropic-python': PythonAnthropic, 'anthropic-node': NodeAnthropic}
PAIRS = [(name, api) for name in SDKS for api in APIS if (api.name == 'messages') == name.startswith('anthropic')]
WITH_TOOLS = [(name, api) for name, api in PAIRS if api.name != 'completions']


def label(pair):
    return '%s-%s' % (pair[0], pair[1].name)


@pytest.fixture(params=PAIRS, ids=label)
def client(request, pair):
    name, api = request.param
    made = Client(SDKS[name](pair.urls), api, request.node.name)
    yield made
    made.sdk.close()


class Client:
    """An SDK and one of its APIs."""

    def __init__(self, sdk, api, name):
        self.sdk, self.api, self.name = sdk, api, name

    def send(self, **fields):
        """`extra`: fields that the SDK does not know."""
        extra = fields.pop('extra', {})
        if isinstance(self.sdk, (PythonSdk, PythonAnthropic)):
            extra = {'extra_body': extra} if extra else {}
        return self.sdk.ask(0, self.api.call, **fields, **extra)

    def ask(self, turns, stream=False, **fields):
        """A good answer, its site, and the tokens that the engine found in its cache."""
        answer = self.send(**self.api.body(turns), **(self.api.streamed() if stream else {}), **fields)
        assert answer.status == 200, answer.message
        value = self.api.whole(answer.value) if stream else answer.value
        return value, answer.site, self.api.cached(value)


def test_a_talk_stays_with_its_cache(client, pair):
    """Streamed and not. The history alone leads it: no id is sent."""
    api = client.api
    pair.send_new_work_to('west')
    turns = [prose('begin ' + client.name, 2500)]
    value, site, cached = client.ask(turns)
    assert (site, cached, pair.decision()['outcome']) == ('west', 0, 'no_match')
    before = api.prompt_tokens(value)
    pair.send_new_work_to('east')
    for number in range(1, 4):
        stream = number % 2 == 1
        turns += [api.text(value) or 'nothing', prose('turn %d %s' % (number, client.name), 300)]
        reply, site, cached = client.ask(turns, stream)
        assert (site, pair.decision()['outcome']) == ('west', 'sticky')
        assert cached >= before // BLOCK_TOKENS * BLOCK_TOKENS > 0, 'the engine had all of the history'
        before = api.prompt_tokens(reply)
        value = value if stream else reply
    assert pair.goes_to(pair.url) == 'east', 'new work goes elsewhere'


def test_a_salt_parts_what_is_alike(client, pair):
    """cache_salt: no hit across salts, neither predicted nor at the engine; with one salt both."""
    pair.send_new_work_to('east')
    turns = [prose('salted ' + client.name, 2500)]
    for salt, outcome in (({}, 'no_match'), ({}, 'sticky'), ('red', 'no_match'), ('red', 'sticky'), ('blue', 'no_match'),
                          ('red', 'sticky'), ({}, 'sticky')):
        _, site, cached = client.ask(turns, extra={'cache_salt': salt} if salt else {})
        assert (site, pair.decision()['outcome'], cached > 0) == ('east', outcome, outcome == 'sticky'), salt


def test_refusals_of_engine_and_gateway(client, pair):
    answer = client.send(**client.api.body([prose('too long', 40000)]))
    assert answer.status == 400 and '8192' in answer.message, 'more tokens than the engine takes'
    unknown = client.send(**dict(client.api.body(['x']), model='nobody'))
    assert unknown.status == 404 and 'No site of this grid serves the model' in unknown.message, "the gateway's own"


# ---- tools: the engine is made to call one, and the talk goes on with its result ----

def tool_call(client):
    """The fields that offer the tool and ask for it; a talk's items that say what it was called with and gave."""
    name, text = client.api.name, prose('tools ' + client.name, 2500)
    user = {'role': 'user', 'content': text}
    if name == 'chat':
        call = dict(CHANCE, model='llama', max_tokens=1500, messages=[user], tools=[{'type': 'function', 'function': TOOL}])
        return dict(call, tool_choice={'type': 'function', 'function': {'name': 'weather'}})
    if name == 'messages':
        tool = dict(name=TOOL['name'], description=TOOL['description'], input_schema=TOOL['parameters'])
        return {'model': 'llama', 'max_tokens': 1500, 'messages': [user], 'tools': [tool],
                'tool_choice': {'type': 'tool', 'name': 'weather'}}
    call = dict(CHANCE, model='llama', max_output_tokens=1500, input=[user], tools=[dict(TOOL, type='function')])
    return dict(call, tool_choice={'type': 'function', 'name': 'weather'})


def called_with(api, value):
    """The call as the engine made it, and the items that a talk goes on with."""
    if api.name == 'chat':
        message = value['choices'][0]['message']
        call, = message['tool_calls']
        assert call['function']['name'] == 'weather'
        more = [{'role': 'assistant', 'tool_calls': [call]}, {'role': 'tool', 'tool_call_id': call['id'], 'content': 'rain'}]
        return json.loads(call['function']['arguments']), more
    if api.name == 'messages':
        call, = (part for part in value['content'] if part['type'] == 'tool_use')
        assert call['name'] == 'weather' and value['stop_reason'] == 'tool_use'
        result = {'type': 'tool_result', 'tool_use_id': call['id'], 'content': 'rain'}
        return call['input'], [{'role': 'assistant', 'content': [call]}, {'role': 'user', 'content': [result]}]
    call, = (item for item in value['output'] if item['type'] == 'function_call')
    assert call['name'] == 'weather'
    call = {name: call[name] for name in ('type', 'call_id', 'name', 'arguments')}
    result = {'type': 'function_call_output', 'call_id': call['call_id'], 'output': 'rain'}
    return json.loads(call['arguments']), [call, result]


@pytest.mark.parametrize('client', WITH_TOOLS, ids=label, indirect=True)
def test_a_tool_is_called_and_its_result_goes_home(client, pair):
    api = client.api
    pair.send_new_work_to('west')
    fields = tool_call(client)
    answer = client.send(**fields)
    assert answer.status == 200, answer.message
    assert answer.site == 'west'
    arguments, more = called_with(api, answer.value)
    assert arguments in ({'city': 'Bern'}, {'city': 'Oslo'})
    pair.send_new_work_to('east')
    items = 'input' if api.name == 'responses' else 'messages'
    fields[items] = fields[items] + more
    fields.pop('tool_choice')
    fields['max_output_tokens' if api.name == 'responses' else 'max_tokens'] = 8
    reply = client.send(**fields)
    assert reply.status == 200, reply.message
    assert (reply.site, pair.decision()['outcome']) == ('west', 'sticky')
    assert api.cached(reply.value) >= api.prompt_tokens(answer.value) // BLOCK_TOKENS * BLOCK_TOKENS > 0
