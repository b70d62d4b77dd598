"""Stored responses of two real engines behind two gateways that share a key: an id leads home, wherever new work goes."""
import pytest

from engines import BLOCK_TOKENS
from grid import eventually, prose
from test_stored import TAGGED_ID, NodeSdk, PythonSdk

ANSWER = {'temperature': 0.8, 'max_output_tokens': 16}     # without chance an untrained model often says nothing


@pytest.fixture(params=[PythonSdk, NodeSdk], ids=['python', 'node'])
def sdk(request, pair):
    client = request.param(pair.urls)
    yield client
    client.close()


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
