"""What a client gets: headers, refusals, failures that Envoy made, pages and counters."""
import json

import pytest

from grid import OUTCOMES, Grid, eventually, prose, series


@pytest.fixture(scope='module')
def grid():
    with Grid() as g:
        yield g


def test_every_outcome_is_there_from_the_start():
    with Grid() as grid:
        names = ['grid_route_prefix_affinity_total{outcome="%s"}' % o for o in OUTCOMES]
        assert [series(grid.ops.get('/metrics').text).get(n) for n in names] == [0] * 5
        assert [series(grid.admin.get('/metrics').text).get(n) for n in names] == [0] * 5
        assert [series(grid.admin.get('/stats/prometheus').text).get(n) for n in names] == [0] * 5
        text = prose('counted', 4000)
        grid.chat(text), grid.chat(text)
        assert grid.outcomes() == {'sticky': 1, 'no_match': 1, 'load_override': 0, 'exploration': 0, 'not_applicable': 0}
        assert series(grid.admin.get('/metrics').text)[names[0]] == 1
        eventually(lambda: series(grid.admin.get('/stats/prometheus').text).get(names[0]) == 1, what="Envoy's own counter")


def test_answers_name_their_site_and_forged_headers_are_removed(grid):
    answer = grid.chat('hello', headers={'x-grid-site': 'forged', 'x-grid-backend': 'forged', 'x-grid-else': 'forged'})
    site = answer.headers['x-grid-site']
    assert site in grid.sites and answer.headers['x-grid-backend'] == grid.sites[site].cluster
    answer = grid.chat('hello', headers={'x-grid-site': 'forged', 'x-grid-else': 'forged', 'x-sim-echo': '1'})
    seen = json.loads(answer.headers['x-sim-headers'])
    assert not [name for name in seen if name.lower().startswith('x-grid-')], seen


def test_models(grid):
    listed = grid.openai().models.list().data
    assert [(m.id, m.object, m.created, m.owned_by) for m in listed] == [('llama', 'model', 0, 'grid')]
    assert grid.openai().models.retrieve('llama').id == 'llama'
    answer = grid.http.get('/v1/models/none')
    assert answer.status_code == 404 and answer.json()['error']['code'] == 'model_not_found'
    assert grid.http.head('/v1/models').status_code == 200
    routed = grid.http.get('/v1/models', headers={'x-model': 'llama'})
    assert routed.headers['x-grid-site'] in grid.sites


@pytest.mark.parametrize('send, status, code', [
    (lambda g: g.http.post('/v1/chat/completions', json={'messages': []}), 400, 'model_required'),
    (lambda g: g.http.get('/v1/files'), 400, 'model_required'),
    (lambda g: g.http.post('/v1/chat/completions', json={'model': 'none', 'messages': []}), 404, 'model_not_found'),
    (lambda g: g.http.post('/v1/chat/completions', json={'model': 7, 'messages': []}), 400, 'model_required'),
    (lambda g: g.http.post('/v1/embeddings', content=b'x', headers={'content-type': 'audio/wav'}), 400, 'model_required'),
    (lambda g: g.http.post('/v1/chat/completions', json={'model': 'llama'},
                           headers=[('x-model', 'a'), ('x-model', 'b')]), 400, 'model_ambiguous'),
    (lambda g: g.http.options('/v1/chat/completions'), 405, 'method_not_allowed'),
    (lambda g: g.http.get('/v1/responses', headers={'connection': 'upgrade', 'upgrade': 'websocket'}), 426,
     'unsupported_upgrade'),
    (lambda g: g.http.get('/v1/chat/completions', headers={'connection': 'upgrade', 'upgrade': 'websocket'}), 400,
     'unsupported_upgrade'),
])
def test_refusals(grid, send, status, code):
    before = grid.outcomes()
    answer = send(grid)
    assert (answer.status_code, answer.json()['error']['code']) == (status, code)
    assert answer.headers['content-type'] == 'application/json'
    assert grid.outcomes() == before


def test_refusals_in_anthropics_form(grid):
    answer = grid.http.post('/v1/messages', json={'model': 'none', 'messages': []})
    assert answer.status_code == 404
    assert answer.json()['type'] == 'error' and answer.json()['error']['type'] == 'not_found_error'


def test_no_admitted_site_is_503():
    with Grid(admission={'east': 'none', 'west': 'existing_only'}) as grid:
        answer = grid.chat('hello')
        assert (answer.status_code, answer.json()['error']['code']) == (503, 'no_healthy_site')
        assert answer.headers['retry-after'] == '5'


def test_a_reset_is_an_error_with_a_body_and_forgets_the_site(grid):
    text = prose('reset', 4000)
    grid.chat(text)
    answer, outcome = grid.counted(lambda: grid.chat(text, headers={'x-sim-fault': 'reset'}))
    assert outcome == 'sticky'
    assert answer.status_code in (502, 503)
    assert answer.json()['error']['type'] == 'server_error'
    _, outcome = grid.counted(lambda: grid.chat(text))
    assert outcome == 'no_match'


def test_a_site_that_is_gone():
    with Grid() as grid:
        text = prose('gone', 4000)
        assert grid.chat(text).status_code == 200
        for gone in grid.sites.values():           # with another one alive it would answer: test_failover.py
            gone.process.kill()
            gone.process.wait()
        answer, outcome = grid.counted(lambda: grid.chat(text))
        assert (answer.status_code, outcome) == (503, 'sticky')
        assert answer.json()['error']['code'] == 'upstream_unavailable'
        assert answer.headers['retry-after'] == '5'
        _, outcome = grid.counted(lambda: grid.chat(text))
        assert outcome == 'no_match', 'its blocks are dropped'


def test_a_site_that_takes_too_long():
    with Grid(gateway={'timeouts': {'total_ms': 500}}) as grid:
        text = prose('slow', 4000)
        grid.chat(text)
        answer = grid.chat(text, headers={'x-sim-fault': 'delay=5000'})
        assert answer.status_code == 504
        assert answer.json()['error']['code'] == 'upstream_timeout'
        _, outcome = grid.counted(lambda: grid.chat(text))
        assert outcome == 'no_match'


def test_an_answer_cut_off_is_cut_off(grid):
    """What the site sent before it died arrives; nothing is invented; the prompt stays confirmed by its headers."""
    text = prose('cut', 4000)
    body = {'model': 'llama', 'stream': True, 'max_tokens': 30, 'messages': [{'role': 'user', 'content': text}]}
    events = []
    with pytest.raises(Exception, match='(?i)(closed|incomplete|reset|terminated|peer)'):
        with grid.http.stream('POST', '/v1/chat/completions', json=body, headers={'x-sim-fault': 'drop=3'}) as answer:
            for line in answer.iter_lines():
                events += [line] if line.startswith('data:') else []
    assert 1 <= len(events) <= 3
    _, outcome = grid.counted(lambda: grid.chat(text))
    assert outcome == 'sticky'


def test_the_ops_pages(grid):
    assert grid.ops.get('/ready').status_code == 200
    assert grid.ops.get('/livez').status_code == 200
    state = grid.ops.get('/grid').json()
    assert {s['site'] for s in state['sites']} == set(grid.sites)
    assert grid.ops.get('/else').status_code == 404
    assert grid.ops.post('/metrics').status_code == 405
    assert grid.admin.get('/grid').json()['sites']


def test_no_prompt_text_in_logs_or_pages(grid):
    secret = 'zebra-marmalade-unlikely'
    grid.chat(secret * 200)
    grid.http.post('/v1/chat/completions', content=b'{"model":"llama","messages":[' + secret.encode() * 50,
                   headers={'content-type': 'application/json'})
    grid.log.flush()
    with open(grid.log.name, encoding='utf-8', errors='replace') as f:
        assert secret not in f.read()
    for page in (grid.ops.get('/metrics'), grid.ops.get('/grid'), grid.admin.get('/grid')):
        assert secret not in page.text
