"""Models that a cluster calls otherwise: what its engine gets, byte for byte, and who may take over from whom."""
import gzip
import hashlib
import json

import pytest

from grid import Grid, eventually, prose
from test_stored_bytes import MIB, chunked, client, create, pieces_of, says, site, whole  # noqa: F401 (fixtures)

NAME = 'meta/Llama "3" \\ \u00e9'
TOKEN = rb'"meta/Llama \"3\" \\ ' + '\u00e9"'.encode()
CLUSTER = 'pool-script'
TAG = b'east.%s..' % hashlib.sha256(CLUSTER.encode()).hexdigest()[:8].encode()


def candidates(*names):
    return [{'kind': 'inference_model', 'name': n, 'site': 'east', 'cluster': CLUSTER} for n in names]


@pytest.fixture(scope='module')
def grid(site):
    serving = {'candidates': candidates('llama', 'ascii', 'plain'), 'local_site': 'east',
               'clusters': [{'name': CLUSTER, 'endpoints': [site.address], 'signals': False,
                             'model_alias': {'llama': NAME, 'ascii': 'meta/ascii'}}]}
    with Grid(serving=serving, gateway={'max_body_bytes': 4 * MIB}) as g:
        yield g


# What a client sends and what the engine gets, where '#' is the model's token. The second of each pair, if there is one,
# has something else in the place of the first's '#'.
BODIES = [
    ('/v1/chat/completions', b'{"model":#,"messages":[{"role":"user","content":"hi","model":"llama"}]}'),
    ('/v1/chat/completions', b'{"messages":[],"metadata":{"model":"llama"} , "mod\\u0065l" :\n # }'),
    ('/v1/chat/completions', b'{"model":"plain","messages":[],"model":#}'),
    ('/v1/completions', b'{"prompt":"\\"model\\":\\"llama\\" \xc3\xa9","model":#}'),
    ('/v1/messages', b'{"model":#,"max_tokens":1,"system":"llama","messages":[]}'),
    ('/v1/embeddings', b'{"input":["llama"],"model":#}'),
    ('/v1/responses', b'{"model":#,"input":"resp_x.y.z.w","previous_response_id":"resp_@abc"}'),
    ('/v1/responses', b'{"conversation":{"id":"conv_@c"},"previous_response_id":"resp_@abc","model":#}'),
]


@pytest.mark.parametrize('number', range(len(BODIES)))
@pytest.mark.parametrize('step', [0, 1, 13])
def test_the_engine_gets_its_own_name_and_nothing_else_changes(grid, site, client, number, step):
    says(site, whole(b'{"model":"as the engine says"}'))
    path, pattern = BODIES[number]
    body, want = pattern.replace(b'#', b'"llama"').replace(b'@', TAG), pattern.replace(b'#', TOKEN).replace(b'@', b'')
    answer = create(client, pieces_of(body, step) if step else body, path=path)
    assert answer.status_code == 200 and answer.json()['model'] == 'as the engine says'
    seen = site.seen[0]
    assert seen['body'] == want
    assert seen['headers'].get('content-length') == (None if step else b'%d' % len(want))
    assert 'x-model' not in seen['headers'] and answer.headers['x-grid-backend'] == CLUSTER


@pytest.mark.parametrize('where', ['first', 'last'])
@pytest.mark.parametrize('headers', [{}, {'x-model': 'ascii'}])
def test_two_mebibytes(grid, site, client, where, headers):
    says(site, whole(b'{}'))
    text = b'2 mebibyte ' * (2 * MIB // 11)
    for path in ('/v1/chat/completions', '/v1/embeddings'):
        pattern = (b'{"model":#,"input":"%s"}' if where == 'first' else b'{"input":"%s","model":#}') % text
        answer = create(client, pattern.replace(b'#', b'"ascii"'), headers, path)
        assert answer.status_code == 200
        assert site.seen[-1]['body'] == pattern.replace(b'#', b'"meta/ascii"')
        assert int(site.seen[-1]['headers']['content-length']) == len(site.seen[-1]['body'])


def test_a_body_over_the_limit_is_changed_or_refused(grid, site, client):
    says(site, whole(b'{}'))
    text = b'x' * (5 * MIB)
    body = b'{"model":"ascii","input":"%s"}' % text
    answer = create(client, body, {'x-model': 'ascii'}, '/v1/embeddings')
    assert answer.status_code == 200 and site.seen[-1]['body'] == body.replace(b'"ascii"', b'"meta/ascii"')
    answer = create(client, b'{"input":"%s","model":"ascii"}' % text, {'x-model': 'ascii'}, '/v1/embeddings')
    assert answer.status_code == 413 and answer.json()['error']['code'] == 'body_too_large'
    body = b'{"input":"%s","model":"plain"}' % text
    answer = create(client, body, {'x-model': 'plain'}, '/v1/embeddings')
    assert answer.status_code == 200 and site.seen[-1]['body'] == body, 'a model without another name streams on'
    assert len(site.seen) == 2


@pytest.mark.parametrize('coding, encode', [('gzip', gzip.compress)])
def test_a_coded_body_goes_on_plain_and_changed(grid, site, client, coding, encode):
    says(site, whole(b'{}'))
    for headers in ({}, {'x-model': 'llama'}):
        create(client, encode(b'{"model":"llama","input":"x"}'), dict({'content-encoding': coding}, **headers), '/v1/embeddings')
        assert site.seen[-1]['body'] == b'{"model":%s,"input":"x"}' % TOKEN
        assert 'content-encoding' not in site.seen[-1]['headers']


def test_the_header_says_the_name_too(grid, site, client):
    says(site, whole(b'{}'))
    assert client.get('/v1/other', headers={'x-model': 'ascii'}).status_code == 200
    assert site.seen[-1]['headers']['x-model'] == b'meta/ascii' and site.seen[-1]['body'] == b''
    headers = [('x-model', 'ascii'), ('x-model', 'ascii'), ('content-type', 'application/json')]
    client.post('/v1/embeddings', content=b'{"model":"else","input":"x"}', headers=headers)
    assert site.seen[-1]['headers']['x-model'] == b'meta/ascii'
    assert site.seen[-1]['body'] == b'{"model":"meta/ascii","input":"x"}'
    create(client, b'{"input":"x"}', {'x-model': 'llama'}, '/v1/embeddings')
    assert 'x-model' not in site.seen[-1]['headers'], 'no header says it: it is not ASCII'
    assert site.seen[-1]['body'] == b'{"input":"x"}'
    create(client, b'{"model":"plain"}', {'x-model': 'plain'}, '/v1/embeddings')
    assert site.seen[-1]['headers']['x-model'] == b'plain' and site.seen[-1]['body'] == b'{"model":"plain"}'
    form = b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nascii\r\n--b--\r\n'
    create(client, form, {'x-model': 'ascii', 'content-type': 'multipart/form-data; boundary=b'}, '/v1/audio/transcriptions')
    assert site.seen[-1]['body'] == form and site.seen[-1]['headers']['x-model'] == b'meta/ascii'


def test_models_are_listed_and_admitted_by_the_name_that_is_asked_for(grid, site, client):
    says(site, whole(b'{}'))
    assert [m['id'] for m in client.get('/v1/models').json()['data']] == ['ascii', 'llama', 'plain']
    answer = create(client, b'{"model":"meta/ascii"}', path='/v1/embeddings')
    assert answer.status_code == 404 and answer.json()['error']['code'] == 'model_not_found'
    assert not site.seen
    page = grid.ops.get('/grid').json()
    assert page['model_alias'] == {CLUSTER: {'llama': NAME, 'ascii': 'meta/ascii'}}


def test_an_sdk_streams_as_ever(grid, site):
    def answer(seen, send):
        asked = json.loads(seen['body'])['model']
        send(chunked(b'content-type: text/event-stream\r\n'))
        event = b'data: %s\n\n' % json.dumps({'id': 'c', 'object': 'chat.completion.chunk', 'created': 0, 'model': asked, 'choices': [
            {'index': 0, 'delta': {'content': 'word'}, 'finish_reason': None}]}).encode()
        send(b''.join(b'%x\r\n%s\r\n' % (len(p), p) for p in (event, event, b'data: [DONE]\n\n')) + b'0\r\n\r\n')
    site.answer, site.seen = answer, []
    chunks = list(grid.openai().chat.completions.create(model='llama', stream=True,
                                                        messages=[{'role': 'user', 'content': 'hello'}]))
    assert [(c.model, c.choices[0].delta.content) for c in chunks] == [(NAME, 'word')] * 2


# ---- several clusters -------------------------------------------------------------------------------------------------

def three(aliases, **more):
    """Sites east, north and west, each with its own name for llama, or none."""
    class Aliased(Grid):
        def write_serving(self):
            self.cluster_extra = {}
            super().write_serving()
            with open(self.folder + '/serving.json', encoding='utf-8') as f:
                serving = json.load(f)
            for cluster, alias in zip(serving['clusters'], aliases):
                cluster['model_alias'] = {'llama': alias} if alias else None
            self.write('serving.json', serving)
    options = [('--model', a) if a else () for a in aliases]
    grid = Aliased(sites=('east', 'north', 'west'), **more)
    grid.make_site = lambda name: Grid.make_site(grid, name)
    names = dict(zip(grid.names, options))

    def make(name):
        grid.site_options = ('--prefill-tps', '1000000', '--decode-tps', '5000') + names[name]
        return Grid.make_site(grid, name)
    grid.make_site = make
    return grid


def kill(site):
    site.process.kill()
    site.process.wait()


def test_a_conversation_sticks_over_sites_with_other_names():
    """Keys are of the name that is asked for, so the gate may send a prompt from one name to the other."""
    with three(['east-llama', None, 'west-llama'], affinity={'queued_request_seconds': 1}) as grid:
        text = prose('names', 9000)
        first = grid.chat(text)
        assert first.headers['x-grid-site'] == 'east' and first.json()['model'] == 'east-llama', first.text
        answer, outcome = grid.counted(lambda: grid.chat(text))
        assert outcome == 'sticky' and answer.headers['x-grid-site'] == 'east'
        grid.set_depth('east', 50)
        answer, outcome = grid.counted(lambda: grid.chat(text))
        assert outcome == 'load_override' and answer.json()['model'] == 'llama'


@pytest.mark.parametrize('aliases, served', [
    (['same', None, 'same'], 'west'), ([None, 'other', None], 'west'), (['one', None, 'two'], None),
    (['one', 'two', None], None), ([None, None, 'x'], 'north')])
def test_failover_goes_to_a_site_that_calls_it_the_same(aliases, served):
    """The request was changed for the first site; Envoy holds no other copy of it."""
    with three(aliases) as grid:
        kill(grid.sites['east'])
        answer = grid.chat('hello')
        if served:
            assert answer.status_code == 200 and answer.headers['x-grid-site'] == served, answer.text
            assert answer.json()['model'] == (aliases[('east', 'north', 'west').index(served)] or 'llama')
        else:
            assert answer.status_code == 503 and answer.headers['x-grid-site'] == 'east'
            assert [grid.sites[s].state()['received'] for s in ('north', 'west')] == [0, 0]


def test_a_changed_alias_is_in_force_without_a_restart(grid, site):
    says(site, whole(b'{}'))
    with open(grid.folder + '/serving.json', encoding='utf-8') as f:
        before = json.load(f)
    after = json.loads(json.dumps(before))
    after['clusters'][0]['model_alias'] = {'plain': 'renamed'}
    grid.write('serving.json', after)

    def engine_got():
        create(grid.http, b'{"model":"plain"}', path='/v1/embeddings')
        return site.seen[-1]['body']
    eventually(lambda: engine_got() == b'{"model":"renamed"}')
    grid.write('serving.json', before)
    eventually(lambda: engine_got() == b'{"model":"plain"}')
