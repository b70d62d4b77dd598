"""The simulation beside the real thing: the same conversations through Envoy and simulated engines, and through `simulate`.

What is compared is the share of prompt tokens that needed no prefill, as the engines report it to the clients. Conversations
are long, share little and come in groups that queue, so that they begin at different sites; the sites are mostly idle, and a
conversation's next turn waits for the answer to the last. A busy machine then moves times but not the share, and where turns
go by chance most of it is lost.
"""
import concurrent.futures
import json
import subprocess
import time

from grid import BINARY, Grid, prose

SITES = ('east', 'west', 'north', 'south', 'upper', 'lower')
PREFILL, DECODE, SLOTS, KV_BLOCKS, POLL_MS, WINDOW_MS = 8000, 200, 2, 20000, 100, 3000
GROUPS, GROUP, TURNS, EVERY_S, PAUSE_S, ANSWER_TOKENS = 6, 4, 8, 0.8, 1.2, 16
OPENER = 9000       # bytes: over the 32 blocks that always count, so a second turn is a match
QUEUED_S = 0.005    # what a queued request costs: so little that no queue of this size outweighs a conversation
AGREE, APART = 0.02, 0.3        # of a share


def conversation(who):
    """The bodies of its turns. Answers are made up beforehand, so both sides see the same prompts."""
    messages = [{'role': 'system', 'content': prose('system', 500)}]
    for turn in range(TURNS):
        messages = messages + [{'role': 'user', 'content': prose('%d asks %d' % (who, turn), 3000 if turn else OPENER)}]
        yield {'model': 'llama', 'max_tokens': ANSWER_TOKENS, 'messages': messages}
        messages = messages + [{'role': 'assistant', 'content': prose('%d is told %d' % (who, turn), 200)}]


def live():
    """Lines of a trace, with what each answer said of the cache and of its site."""
    options = ('--prefill-tps', PREFILL, '--decode-tps', DECODE, '--max-num-seqs', SLOTS, '--cache-blocks', KV_BLOCKS)
    with Grid(sites=SITES, affinity={'queued_request_seconds': QUEUED_S}, serving={'load_window_ms': WINDOW_MS},
              site_options=tuple(map(str, options))) as grid:
        start = time.monotonic() + 0.5

        def talk(who):
            lines, due = [], start + who // GROUP * EVERY_S
            for body in conversation(who):
                time.sleep(max(0, due - time.monotonic()))
                sent = time.monotonic() - start
                answer = grid.http.post('/v1/chat/completions', json=body).raise_for_status()
                usage = answer.json()['usage']
                lines.append({'timestamp': sent * 1000, 'input_length': usage['prompt_tokens'], 'output_length': ANSWER_TOKENS,
                              'body': body, 'cached': usage['prompt_tokens_details']['cached_tokens'],
                              'site': answer.headers['x-grid-site']})
                due = time.monotonic() + PAUSE_S
            return lines
        with concurrent.futures.ThreadPoolExecutor(GROUPS * GROUP) as pool:
            return [line for lines in pool.map(talk, range(GROUPS * GROUP)) for line in lines]


def simulated(trace, policy):
    done = subprocess.run([str(x) for x in (
        BINARY, 'simulate', '--trace', trace, '--sites', len(SITES), '--prefill', PREFILL, '--decode', DECODE, '--slots', SLOTS,
        '--kv-blocks', KV_BLOCKS, '--delay-ms', 1, '--poll-ms', POLL_MS, '--signal-delay-ms', 2, '--waiting', 'slots',
        '--headers', 'first-token', '--repeat', 5, '--json', '-', '--policy', policy)], capture_output=True, text=True, check=True)
    runs = json.loads(done.stdout)['runs']
    assert len(runs) == 5
    return sum(r['hit_rate'] for r in runs) / len(runs)


def test_the_simulation_hits_as_often_as_the_live_run(tmp_path):
    lines = live()
    share = sum(x['cached'] for x in lines) / sum(x['input_length'] for x in lines)
    trace = tmp_path / 'trace.jsonl'
    trace.write_text(''.join(json.dumps(x) + '\n' for x in lines))
    ours = simulated(trace, 'ours:exploration=0,queued_request_seconds=%g,load_window_ms=%d' % (QUEUED_S, WINDOW_MS))
    random = simulated(trace, 'random')
    used = {x['site'] for x in lines}
    print('live %.4f at %d sites, simulated %.4f, at random %.4f' % (share, len(used), ours, random))
    assert len(used) > 1, 'conversations all at one site show nothing of the queues'
    assert abs(share - ours) <= AGREE
    assert random < share - APART, 'a workload on which routing makes no difference shows nothing'
