"""What the gateway predicts beside what the engines report: cached tokens of real prefix caches, turn by turn.

The gateway knows whole blocks of 256 bytes of the prompts that a site answered, the engine whole blocks of 32 tokens of what it
computed. Both therefore know the shorter talk but for less than one block of theirs: that is asserted, to the block.
"""
import json
import os
import random

import httpx
import pytest

from apis import APIS, Chat
from engines import BLOCK_TOKENS
from grid import blocks_of, prose

JSON = {'content-type': 'application/json'}
TALKS, TURNS, ANSWER_TOKENS = 4, 6, 8
HEAD_BYTES, MORE_BYTES = 5000, (250, 550)       # so that a turn's history is over 80 % of it, the threshold


def whole_blocks(tokens):
    return tokens // BLOCK_TOKENS * BLOCK_TOKENS


def ask(pair, api, turns, gateway=0):
    """The answer, the tokens of its prompt, those of them that the engine found in its cache, and the gateway's decision."""
    body = json.dumps(api.body(turns, ANSWER_TOKENS))
    answer = httpx.post(pair.urls[gateway] + api.path, content=body, headers=JSON, timeout=120)
    assert answer.status_code == 200, answer.text
    value, decision = answer.json(), pair.decision(gateway)
    assert decision['site'] == answer.headers['x-grid-site'] and decision['blocks'] == blocks_of(body, api.path)
    return value, api.prompt_tokens(value), api.cached(value), decision


def agreement(name, lines):
    """A line of the table from (tokens, cached, decision) of each request."""
    said = [(decision['outcome'] == 'sticky', cached > 0) for _, cached, decision in lines]
    shares = [100 * sum(part) / sum(of) for part, of in (([d['run'] for *_, d in lines], [d['blocks'] for *_, d in lines]),
                                                         ([cached for _, cached, _ in lines], [tokens for tokens, *_ in lines]))]
    return '%-14s %8d %10d %14d %12d %8d %10.1f %% %8.1f %%' % (
        name, len(said), said.count((True, True)), said.count((True, False)), said.count((False, True)),
        said.count((False, False)), *shares)


HEADING = '%-14s %8s %10s %14s %12s %8s %12s %10s' % (
    '', 'requests', 'both: hit', 'gateway alone', 'engine alone', 'neither', 'gateway', 'engine')


@pytest.mark.parametrize('api', APIS, ids=lambda api: api.name)
def test_both_know_the_talk_but_for_a_block(pair, api, table):
    seed = int(os.environ.get('SEED', random.randrange(1 << 32)))
    print('SEED=%d' % seed)
    chance, lines = random.Random(seed), []
    for talk in range(TALKS):
        home, other = pair.names[talk % 2], pair.names[1 - talk % 2]
        pair.send_new_work_to(home)
        turns, known_blocks, known_tokens = [prose('%d %s %d' % (seed, api.name, talk), HEAD_BYTES)], 0, 0
        for number in range(TURNS):
            value, tokens, cached, decision = ask(pair, api, turns)
            assert (decision['site'], decision['outcome']) == (home, 'sticky' if number else 'no_match')
            assert decision['run'] == known_blocks, 'every whole block of the turn before'
            assert whole_blocks(known_tokens) <= cached <= whole_blocks(known_tokens + (ANSWER_TOKENS if number else 0)), \
                'every whole block of the turn before, and no more than its answer beyond'
            lines.append((tokens, cached, decision))
            known_blocks, known_tokens = decision['blocks'], tokens
            turns += [api.text(value) or 'nothing', prose('%d more %d %d' % (seed, talk, number), chance.randint(*MORE_BYTES))]
            if number == 0:
                pair.send_new_work_to(other)
    table('cached tokens: what the gateway foresaw, what the engines had', HEADING, agreement(api.name, lines))


def test_a_head_that_is_shared(pair, table):
    """Other talks with one head: what both know of the second is the head, to their block."""
    api, lines = Chat(), []
    pair.send_new_work_to('west')
    head, before = prose('shared head', 6000), None
    for number in range(4):
        turns = [head + prose('tail %d' % number, 600)]
        request = {'model': 'llama', 'messages': api.body(turns)['messages']}
        ids = httpx.post('http://%s/tokenize' % pair.sites['west'].address, json=request, timeout=60).json()['tokens']
        _, tokens, cached, decision = ask(pair, api, turns)
        assert (decision['site'], tokens) == ('west', len(ids))
        if before:
            alike = next(i for i, (one, two) in enumerate(zip(ids, before)) if one != two)
            assert (decision['outcome'], decision['run'], cached) == ('sticky', len(head) // 256, whole_blocks(alike))
            lines.append((tokens, cached, decision))
        else:
            pair.send_new_work_to('east')
        before = before or ids
    table('cached tokens: what the gateway foresaw, what the engines had', HEADING, agreement('shared head', lines))


def test_the_other_replica_does_not_know(pair, table):
    """An index is a replica's own: it foresees nothing of what another sent, and where its order leads there all the same
    the engine has it."""
    api, turns = Chat(), [prose('other replica', 4000)]
    pair.send_new_work_to('east')
    ask(pair, api, turns)
    _, tokens, cached, decision = ask(pair, api, turns, gateway=1)
    assert (decision['site'], decision['outcome'], decision['run']) == ('east', 'no_match', 0)
    assert cached == whole_blocks(tokens - 1), 'all but the last token, which is always computed'
    table('cached tokens: what the gateway foresaw, what the engines had', HEADING, agreement('other replica', [(tokens, cached, decision)]))
