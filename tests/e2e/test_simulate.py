"""`grid-gateway simulate`, `tune` and `keys --trace-secret`: what a user sees of them. Nothing listens here.

The binary comes from GRID_GATEWAY or build/release/grid-gateway.
"""
import hashlib
import hmac
import json
import os
import pathlib
import subprocess
import xml.etree.ElementTree

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get('GRID_GATEWAY', str(ROOT / 'build' / 'release' / 'grid-gateway'))
TIMEOUT_S = 300
POLICIES = ['ours', 'least-queue', 'random', 'round-robin', 'head-hash', 'llm-d', 'smg', 'oracle']
SECRET = b'a secret of a recording, 32 bytes and more'


def command(*args, expect=0, data=None):
    done = subprocess.run([BINARY, *map(str, args)], input=data, capture_output=True, timeout=TIMEOUT_S)
    assert done.returncode == expect, (done.stdout.decode(), done.stderr.decode())
    return done.stdout.decode() if expect == 0 else done.stderr.decode()


def simulate(*args):
    return json.loads(command('simulate', *args, '--json', '-'))


def runs(report):
    return {run['policy']: run for run in report['runs']}


def write(path, lines):
    path.write_text(''.join((line if isinstance(line, str) else json.dumps(line)) + '\n' for line in lines))
    return path


def mooncake(conversations=12, turns=6, gap_ms=30000):
    """Conversations that grow by two hashes a turn; all begin with hash 0."""
    lines, fresh = [], 1
    for who in range(conversations):
        ids = [0]
        for turn in range(turns):
            ids = ids + [fresh, fresh + 1]
            fresh += 2
            lines.append({'timestamp': who * 900 + turn * gap_ms, 'input_length': 512 * len(ids), 'output_length': 50,
                          'hash_ids': ids})
    return lines


# ---- one command, one result

def test_all_policies_run_and_the_same_seed_gives_the_same(tmp_path):
    trace = write(tmp_path / 't.jsonl', mooncake())
    args = ['--trace', trace, '--load', '0.5,0.9', '--repeat', '2']
    first = simulate(*args)
    assert first == simulate(*args)
    assert [r['policy'] for r in first['runs']] == [p for _ in range(2) for p in POLICIES for _ in range(2)]
    assert first['trace']['requests'] == 72
    for run in first['runs']:
        assert run['answered'] == 72 and run['refused_share'] == 0
        assert 0 <= run['hit_rate'] <= first['trace']['ideal_hit_tokens'] / first['trace']['input_tokens']
        assert run['ttft_p50_s'] <= run['ttft_p90_s'] <= run['ttft_p99_s'] <= run['end_to_end_p99_s']
        assert sum(run['site_requests']) == 72
    other = simulate(*args, '--seed', '9')
    assert other['runs'] != first['runs']


def test_affinity_pays_where_conversations_are_long_and_sites_are_idle(tmp_path):
    """Worked out: the second of six turns shares 24 of 40 blocks with the first, too few; the other four are sticky."""
    trace = write(tmp_path / 't.jsonl', mooncake(gap_ms=60000))
    report = simulate('--trace', trace, '--policy', 'ours:exploration=0', '--policy', 'random', '--policy', 'head-hash')
    by = runs(report)
    shares = [sum(r['outcomes'].values()) for r in report['runs']]
    assert shares[0] == 72 and shares[1] == 0
    assert by['ours:exploration=0']['outcomes']['exploration'] == 0
    assert by['ours:exploration=0']['outcomes']['sticky'] == 48
    assert by['ours:exploration=0']['hit_rate'] > by['random']['hit_rate'] + 0.15
    assert by['ours:exploration=0']['ttft_mean_s'] < by['random']['ttft_mean_s']


def test_settings_of_ours_are_those_of_the_gateway(tmp_path):
    trace = write(tmp_path / 't.jsonl', mooncake())
    by = runs(simulate('--trace', trace, '--policy', 'ours:exploration=1', '--policy', 'ours:enabled=false',
                       '--policy', 'least-queue'))
    assert by['ours:exploration=1']['outcomes']['exploration'] == 72
    assert by['ours:enabled=false']['ttft_percentiles_s'] == by['least-queue']['ttft_percentiles_s']
    assert 'threshold' in command('simulate', '--trace', trace, '--policy', 'ours:threshold=3', expect=1)


def test_a_table_names_every_policy_and_column(tmp_path):
    text = command('simulate', '--make', 'chat', '--requests', '300')
    for word in POLICIES + ['hit %', 'TTFT mean', 'p50', 'p99', 'spread', 'imbal.', '429 %']:
        assert word in text


def test_replicas_cost_hits_and_a_hash_in_front_gives_them_back(tmp_path):
    trace = write(tmp_path / 't.jsonl', mooncake(conversations=40))
    args = ['--trace', trace, '--load', '0.9', '--policy', 'ours:load_window_ms=2500,queued_request_seconds=0.25']
    one, four = simulate(*args)['runs'][0], simulate(*args, '--replicas', '4')['runs'][0]
    hashed = simulate(*args, '--replicas', '4', '--front', 'hash')['runs'][0]
    assert four['hit_rate'] < one['hit_rate'] - 0.05
    assert hashed['hit_rate'] > four['hit_rate'] + 0.05


def test_a_full_site_refuses(tmp_path):
    by = runs(simulate('--make', 'unique', '--requests', '500', '--load', '2', '--max-waiting', '3', '--policy', 'random'))
    assert 0.2 < by['random']['refused_share'] < 0.8
    assert by['random']['answered'] + round(by['random']['refused_share'] * 500) == 500


# ---- traces

def test_a_trace_comes_on_standard_input_too(tmp_path):
    lines = ''.join(json.dumps(x) + '\n' for x in mooncake()).encode()
    trace = write(tmp_path / 't.jsonl', mooncake())
    piped = command('simulate', '--trace', '-', '--policy', 'ours', '--json', '-', data=lines)
    assert json.loads(piped)['runs'] == simulate('--trace', trace, '--policy', 'ours')['runs']


@pytest.mark.parametrize('line, said', [
    ('{', ':2: is not JSON'),
    ('[]', ':2: is not an object'),
    ({'input_length': 1, 'hash_ids': [1]}, ':2: timestamp: is missing'),
    ({'timestamp': -1, 'input_length': 1, 'hash_ids': [1]}, ':2: timestamp: is -1'),
    ({'timestamp': 'now', 'input_length': 1, 'hash_ids': [1]}, ':2: timestamp: is not a number'),
    ({'timestamp': 1, 'hash_ids': [1]}, ':2: input_length: is missing'),
    ({'timestamp': 1, 'input_length': 513, 'hash_ids': [1]}, ':2: hash_ids: has 1 entries; input_length 513 makes 2'),
    ({'timestamp': 1, 'input_length': 5, 'hash_ids': ['x']}, ':2: hash_ids: entry 0 is not a whole number'),
    ({'timestamp': 1, 'keys': ['xyz']}, ':2: keys: entry 0 is not 16 lower-case hex digits'),
    ({'timestamp': 1, 'keys': ['0' * 16] * 513}, ':2: keys: has 513 entries, at most 512'),
    ({'timestamp': 1, 'body': 7}, ':2: body: is neither an object nor text'),
    ({'timestamp': 1, 'path': 7, 'body': {}}, ':2: path: is not text'),
    ({'timestamp': 1}, ':2: needs exactly one of hash_ids, keys and body'),
    ({'timestamp': 1, 'keys': [], 'body': {}}, ':2: needs exactly one of hash_ids, keys and body'),
    ({'timestamp': 1, 'input_length': 5, 'output_length': 1e9, 'hash_ids': [1]}, ':2: output_length: is 1000000000'),
])
def test_a_bad_line_is_named_with_its_field(tmp_path, line, said):
    good = {'timestamp': 0, 'input_length': 5, 'hash_ids': [1]}
    trace = write(tmp_path / 't.jsonl', [good, line])
    assert str(trace) + said in command('simulate', '--trace', trace, expect=1)


def test_no_text_of_a_body_is_in_an_error(tmp_path):
    trace = write(tmp_path / 't.jsonl', ['{"timestamp":1,"body":{"messages":"hush"},"keys":["hush"]}'])
    assert 'hush' not in command('simulate', '--trace', trace, expect=1)


def chat(turns):
    return {'model': 'm', 'messages': [{'role': 'user' if i % 2 == 0 else 'assistant', 'content': ('turn %d ' % i) * 400}
                                       for i in range(turns)]}


def test_bodies_and_recorded_keys_share_alike(tmp_path):
    """The same conversation as bodies, and as the lines that keys --trace-secret makes of it."""
    secret = tmp_path / 'secret'
    secret.write_bytes(SECRET)
    bodies, lines = [], []
    for turn in range(6):
        body = tmp_path / ('%d.json' % turn)
        body.write_text(json.dumps(chat(2 * turn + 1)))
        bodies.append({'timestamp': turn * 20000, 'output_length': 40, 'body': chat(2 * turn + 1)})
        lines.append(command('keys', '--trace-secret', secret, '--at', turn * 20000, '--output-tokens', 40, body).strip())
    of_bodies = simulate('--trace', write(tmp_path / 'b.jsonl', bodies), '--policy', 'ours:exploration=0')
    of_keys = simulate('--trace', write(tmp_path / 'k.jsonl', lines), '--policy', 'ours:exploration=0')
    assert of_bodies['runs'][0]['outcomes'] == of_keys['runs'][0]['outcomes']
    assert of_bodies['trace']['ideal_hit_tokens'] == of_keys['trace']['ideal_hit_tokens'] > 0
    assert of_bodies['runs'][0]['hit_rate'] > 0.5


def test_recorded_keys_need_the_secret(tmp_path):
    body = tmp_path / 'body.json'
    body.write_text(json.dumps(chat(1)))
    one, other, short = tmp_path / 'one', tmp_path / 'other', tmp_path / 'short'
    one.write_bytes(SECRET)
    other.write_bytes(SECRET + b'!')
    short.write_bytes(SECRET[:31])
    line = json.loads(command('keys', '--trace-secret', one, body))
    assert line == json.loads(command('keys', '--trace-secret', one, body))
    assert not set(line['keys']) & set(json.loads(command('keys', '--trace-secret', other, body))['keys'])
    assert not set(line['keys']) & set(json.loads(command('keys', '--json', body))['keys'])
    assert 'at least 32 bytes' in command('keys', '--trace-secret', short, body, expect=1)
    assert '--at' in command('keys', '--trace-secret', one, '--at', '-1', body, expect=2)
    # none of them is the HMAC of a key under the fixed seed: the block hash, too, is seeded by the secret
    for key in json.loads(command('keys', '--json', body))['keys']:
        value = hmac.new(SECRET, b'grid recording: key of a block\0' + bytes.fromhex(key), hashlib.sha256).digest()[:8]
        assert value.hex() not in line['keys']


# ---- plots

def test_plots_are_svg_with_labelled_axes(tmp_path):
    command('simulate', '--make', 'chat', '--requests', '400', '--load', '0.5,0.9', '--plot', tmp_path / 'plots',
            '--policy', 'ours', '--policy', 'smg')
    labels = {'hit-rate.svg': ('load, % of what the sites can do', 'hit rate, % of prompt tokens'),
              'ttft.svg': ('seconds, logarithmic', '% of requests answered by then'),
              'depth.svg': ('seconds of simulated time', 'requests waiting')}
    for name, axes in labels.items():
        root = xml.etree.ElementTree.parse(tmp_path / 'plots' / name).getroot()
        texts = [x.text for x in root.iter('{http://www.w3.org/2000/svg}text')]
        for wanted in axes + ('ours', 'smg'):
            assert wanted in texts
        lines = [x for x in root.iter('{http://www.w3.org/2000/svg}polyline')]
        assert len(lines) == 2 and all(len(x.get('points').split()) >= 2 for x in lines)


# ---- tune

def test_tune_finds_that_a_long_window_costs(tmp_path):
    text = command('tune', '--make', 'agents', '--requests', '1500', '--load', '0.9', '--repeat', '1')
    for word in ('load_window_ms', 'queued_request_seconds', 'threshold', 'exploration', 'capacity', 'ttl_secs', 'Together'):
        assert word in text
    rows = {line.split()[0]: line.split() for line in text.split('queued_request_seconds')[0].splitlines() if line.strip()}
    assert float(rows['2500'][2]) < float(rows['60000'][2])


def metrics(prompt, cached, prefill_s, count, waiting):
    name = '{engine="0",model_name="a}b"}'
    return ''.join('%s%s %s\n' % (k, name, v) for k, v in (
        ('vllm:prompt_tokens_total', prompt), ('vllm:prompt_tokens_cached_total', cached),
        ('vllm:request_prefill_time_seconds_sum', prefill_s), ('vllm:request_prefill_time_seconds_count', count),
        ('vllm:num_requests_waiting', waiting)))


def test_tune_fits_the_prices_of_a_site(tmp_path):
    """12,000 tokens in the first ten seconds and 20,000 in the second, of which 2,000 and 6,000 were cached: 24,000 in
    three seconds of prefill. In the second stretch some waited at both ends: 5 starts in 10 s."""
    for name, text in (('a', metrics(1000, 100, 5, 10, 0)), ('b', metrics(13000, 2100, 6.5, 14, 3)),
                       ('c', metrics(33000, 8100, 8, 19, 2)), ('d', metrics(1, 1, 1, 1, 0))):
        (tmp_path / name).write_text(text)
    paths = [x for name in 'abc' for x in ('--metrics', tmp_path / name)]
    text = command('tune', *paths, '--every', 10)
    assert 'prefill_tokens_per_second: 8000' in text
    assert 'queued_request_seconds: 2 ' in text
    assert 'cannot be told' in command('tune', *paths[:4], '--every', 10)
    assert 'went back' in command('tune', *paths, '--metrics', tmp_path / 'd', '--every', 10, expect=1)
    assert '--every' in command('tune', *paths, expect=2)
    (tmp_path / 'e').write_text('up 1\n')
    assert 'vllm:prompt_tokens_total' in command('tune', *paths, '--metrics', tmp_path / 'e', '--every', 10, expect=1)


# ---- the command line

@pytest.mark.parametrize('args, said', [
    ([], 'needs one of --trace and --make'),
    (['--make', 'chat', '--trace', 'x'], 'needs one of --trace and --make'),
    (['--sites', '0', '--make', 'chat'], '--sites takes a whole number from 1 to 64'),
    (['--prefill', '1,2', '--make', 'chat'], '--prefill has 2 values for 4 sites'),
    (['--load', 'x', '--make', 'chat'], '--load takes'),
    (['--front', 'side', '--make', 'chat'], '--front takes any or hash'),
    (['--nonsense', '1'], 'no option --nonsense'),
    (['--seed'], '--seed needs a value'),
    (['stray'], "'stray' is no option"),
])
def test_a_wrong_command_line_is_named(args, said):
    for verb in ('simulate', 'tune'):
        assert said in command(verb, *args, expect=2)


def test_help_names_every_flag():
    for verb in ('simulate', 'tune'):
        text = command(verb, '--help')
        for flag in ('--trace', '--make', '--requests', '--rate', '--jitter-ms', '--load', '--load-of', '--sites', '--prefill',
                     '--decode', '--slots', '--kv-blocks', '--delay-ms', '--max-waiting', '--policy', '--replicas', '--front',
                     '--head-blocks', '--poll-ms', '--signal-delay-ms', '--waiting', '--headers', '--seed', '--repeat'):
            assert flag in text
    assert 'no policy' in command('simulate', '--make', 'chat', '--policy', 'nobody', expect=1)
    assert 'no generator' in command('simulate', '--make', 'nothing', expect=1)
