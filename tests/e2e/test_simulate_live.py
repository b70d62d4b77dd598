"""The simulation beside the real thing: the same conversations through Envoy and simulated engines, and through `simulate`.

What is compared is the share of prompt tokens that needed no prefill, as the engines report it to the clients.
"""
import concurrent.futures
import json
import subprocess
import time

from grid import BINARY, Grid, prose

SITES = ('east', 'west', 'south')
PREFILL, DECODE, SLOTS, KV_BLOCKS, POLL_MS, WINDOW_MS = 3000, 200, 2, 4000, 100, 400
CONVERSATIONS, TURNS, EVERY_S, PAUSE_S, ANSWER_TOKENS = 24, 5, 0.35, 2.0, 16
AGREE = 0.05        # of a share: live runs differ from each other by three points, and a busy machine adds to that


def bodies():
    """(seconds, body), in the order of time. Answers are made up beforehand, so both sides see the same prompts."""
    for who in range(CONVERSATIONS):
        messages = [{'role': 'system', 'content': prose('system %d' % (who % 4), 2000)}]
        for turn in range(TURNS):
            messages = messages + [{'role': 'user', 'content': prose('%d asks %d' % (who, turn), 3000)}]
            yield who * EVERY_S + turn * PAUSE_S, {'model': 'llama', 'max_tokens': ANSWER_TOKENS, 'messages': messages}
            messages = messages + [{'role': 'assistant', 'content': prose('%d is told %d' % (who, turn), 200)}]


def test_the_simulation_hits_as_often_as_the_live_run(tmp_path):
    plan = sorted(bodies(), key=lambda item: item[0])
    options = ('--prefill-tps', PREFILL, '--decode-tps', DECODE, '--max-num-seqs', SLOTS, '--cache-blocks', KV_BLOCKS)
    affinity = {'queued_request_seconds': 0.25}
    lines = []
    with Grid(sites=SITES, affinity=affinity, serving={'load_window_ms': WINDOW_MS},
              site_options=tuple(map(str, options))) as grid:
        start = time.monotonic() + 0.5

        def send(item):
            at, body = item
            time.sleep(max(0, start + at - time.monotonic()))
            sent = time.monotonic() - start
            usage = grid.http.post('/v1/chat/completions', json=body).raise_for_status().json()['usage']
            return {'timestamp': sent * 1000, 'input_length': usage['prompt_tokens'], 'output_length': ANSWER_TOKENS,
                    'body': body, 'cached': usage['prompt_tokens_details']['cached_tokens']}
        with concurrent.futures.ThreadPoolExecutor(len(plan)) as pool:
            lines = list(pool.map(send, plan))
    live = sum(x['cached'] for x in lines) / sum(x['input_length'] for x in lines)

    trace = tmp_path / 'trace.jsonl'
    trace.write_text(''.join(json.dumps(x) + '\n' for x in lines))
    done = subprocess.run([str(x) for x in (
        BINARY, 'simulate', '--trace', trace, '--sites', len(SITES), '--prefill', PREFILL, '--decode', DECODE, '--slots', SLOTS,
        '--kv-blocks', KV_BLOCKS, '--delay-ms', 1, '--poll-ms', POLL_MS, '--signal-delay-ms', 2, '--waiting', 'slots',
        '--headers', 'first-token', '--repeat', 5, '--json', '-', '--policy',
        'ours:exploration=0,queued_request_seconds=0.25,load_window_ms=%d' % WINDOW_MS, '--policy', 'random')],
        capture_output=True, text=True, check=True)
    runs = json.loads(done.stdout)['runs']
    simulated = [sum(r['hit_rate'] for r in runs[i:i + 5]) / 5 for i in (0, 5)]
    print('live %.4f, simulated %.4f, at random %.4f' % (live, *simulated))
    assert abs(live - simulated[0]) <= AGREE
    assert simulated[1] < live - AGREE, 'a workload on which routing makes no difference shows nothing'
