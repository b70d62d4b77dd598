"""Recording what is asked: the values are those of `keys --trace-secret`, the lines are read by `simulate`, and neither trouble with
the file nor with the disk reaches a request."""
import contextlib
import json
import os
import re
import signal
import subprocess

import pytest

from grid import BINARY, Grid, eventually, prose

SECRET = b'a secret of a recording, 32 bytes or more'
BODIES = [
    ('/v1/chat/completions', {'model': 'llama', 'messages': [{'role': 'user', 'content': prose('chat', 5000)}], 'max_tokens': 3}),
    ('/v1/completions', {'model': 'llama', 'prompt': prose('completions', 4000), 'max_tokens': 3}),
    ('/v1/responses', {'model': 'llama', 'input': prose('responses', 3000), 'max_output_tokens': 3, 'store': False}),
    ('/v1/chat/completions', {'model': 'llama', 'messages': [{'role': 'user', 'content': 'short'}], 'max_tokens': 3}),
]


@pytest.fixture
def secret(tmp_path):
    (tmp_path / 'secret').write_bytes(SECRET)
    return str(tmp_path / 'secret')


@pytest.fixture
def trace(tmp_path):
    return tmp_path / 'trace.jsonl'


def recording(trace, secret, **more):
    return {'trace_keys': dict({'path': str(trace), 'secret_path': secret}, **more)}


def count(grid, result):
    return int(grid.metrics()['grid_trace_records_total{result="%s"}' % result])


def lines(trace):
    return [json.loads(line) for line in trace.read_text(encoding='utf-8').splitlines()]


def ask(grid, bodies=BODIES, **more):
    """Sends them and waits until they are recorded, or dropped."""
    before = count(grid, 'written') + count(grid, 'dropped')
    for path, body in bodies:
        grid.http.post(path, json=dict(body, **more)).raise_for_status()
    eventually(lambda: count(grid, 'written') + count(grid, 'dropped') == before + len(bodies), what='the records')


def by_hand(secret, path, body):
    out = subprocess.run([BINARY, 'keys', '--trace-secret', secret, '--path', path, '-'], input=json.dumps(body), text=True,
                         capture_output=True, check=True).stdout
    return json.loads(out)['keys']


def test_lines_are_those_of_keys(trace, secret):
    with Grid(gateway=recording(trace, secret)) as grid:
        ask(grid)
        assert count(grid, 'written') == len(BODIES) and count(grid, 'dropped') == 0
    found = lines(trace)
    assert os.stat(trace).st_mode & 0o777 == 0o600
    assert [line['keys'] for line in found] == [by_hand(secret, *one) for one in BODIES]
    assert [len(line['keys']) for line in found[:3]] == [19, 15, 11] and found[3]['keys'] == []
    assert sorted(line['timestamp'] for line in found) == [line['timestamp'] for line in found]


@pytest.mark.parametrize('stream', [True, False])
def test_lengths_are_the_engines(trace, secret, stream):
    with Grid(gateway=recording(trace, secret)) as grid:
        before = {name: site.state()['prompt_tokens'] for name, site in grid.sites.items()}
        ask(grid, BODIES[:1], stream=stream, **({'stream_options': {'include_usage': True}} if stream else {}))
        told = sum(site.state()['prompt_tokens'] - before[name] for name, site in grid.sites.items())
    line, = lines(trace)
    assert line['input_length'] == told and line['output_length'] == 3


def test_without_usage_the_body_tells(trace, secret):
    """A stream whose client did not ask for it: four bytes a token, and no length of the answer."""
    with Grid(gateway=recording(trace, secret)) as grid:
        ask(grid, BODIES[:1], stream=True)
    line, = lines(trace)
    assert 5000 / 4 < line['input_length'] < 5300 / 4 and 'output_length' not in line


def test_replicas_agree_and_nothing_live_is_told(trace, secret, tmp_path):
    second = tmp_path / 'second.jsonl'
    with Grid(gateway=dict(recording(trace, secret), access_log=True), apart=True) as one, \
            Grid(sites=('north', 'south'), gateway=recording(second, secret)) as two:
        ask(one)
        ask(two)
        pages = one.ops.get('/grid').text + one.ops.get('/metrics').text
        one.stop()
        one.log.seek(0)
        pages += one.log.read()
    assert [line['keys'] for line in lines(trace)] == [line['keys'] for line in lines(second)]
    text = trace.read_text(encoding='utf-8')
    for said in ('llama', 'east', 'pool', prose('chat', 5000)[:12]):
        assert said not in text
    assert not [key for line in lines(trace) for key in line['keys'] if key in pages]
    assert set(re.findall(r'"(\w+)":', text)) == {'timestamp', 'input_length', 'output_length', 'keys'}


def test_another_secret_shares_nothing(trace, secret, tmp_path):
    (tmp_path / 'other').write_bytes(SECRET[::-1])
    other = tmp_path / 'other.jsonl'
    for path, key in ((trace, secret), (other, str(tmp_path / 'other'))):
        with Grid(gateway=recording(path, key)) as grid:
            ask(grid, BODIES[:1])
    assert not set(lines(trace)[0]['keys']) & set(lines(other)[0]['keys'])


def test_simulate_reads_it(trace, secret):
    with Grid(gateway=recording(trace, secret)) as grid:
        for _ in range(3):
            ask(grid)
    out = subprocess.run([BINARY, 'simulate', '--trace', str(trace), '--sites', '2', '--policy', 'ours'], text=True, capture_output=True)
    assert out.returncode == 0, out.stderr
    assert out.stdout.startswith('12 requests over ')
    # Two of three times the prompts were there: all of the cached share is keyed.
    assert 60 < float(re.search(r'one endless cache would hit ([0-9.]+) %', out.stdout)[1]) < 67


def test_what_was_not_read_is_not_recorded(trace, secret):
    """Led by an id; affinity off. A body that nobody looked into has no keys to tell."""
    with Grid(gateway=recording(trace, secret)) as grid:
        first = grid.http.post('/v1/responses', json={'model': 'llama', 'input': prose('stored', 3000)}).json()
        grid.http.post('/v1/responses', json={'model': 'llama', 'input': 'on', 'previous_response_id': first['id']}).raise_for_status()
        grid.http.get('/v1/responses/' + first['id']).raise_for_status()
        grid.http.get('/v1/models').raise_for_status()
        ask(grid, BODIES[:1])
        assert count(grid, 'written') == 2
    off = trace.with_name('off.jsonl')
    with Grid(gateway=recording(off, secret), affinity={'enabled': False}) as grid:
        grid.http.post(*BODIES[0][:1], json=BODIES[0][1]).raise_for_status()
        grid.chat('short')
    assert not off.exists() or off.read_text(encoding='utf-8') == ''


def test_a_file_that_was_moved_away_is_made_anew(trace, secret):
    with Grid(gateway=recording(trace, secret)) as grid:
        ask(grid)
        trace.rename(trace.with_name('old'))
        ask(grid)
    assert len(lines(trace)) == len(lines(trace.with_name('old'))) == len(BODIES)


def test_it_goes_on_behind_whole_lines(trace, secret):
    """A gateway that was killed while it wrote left half a line."""
    whole = b'{"timestamp":1,"input_length":8,"keys":[]}\n'
    trace.write_bytes(whole * 2 + whole[:20])
    with Grid(gateway=recording(trace, secret)) as grid:
        ask(grid, BODIES[:1])
    assert trace.read_bytes().startswith(whole * 2) and len(lines(trace)) == 3


def test_max_bytes(trace, secret):
    with Grid(gateway=recording(trace, secret, max_bytes=1500), apart=True) as grid:
        for _ in range(5):
            ask(grid)
        dropped = count(grid, 'dropped')
        assert dropped > 10 and count(grid, 'written') + dropped == 5 * len(BODIES)
        grid.errors.seek(0)
        assert grid.errors.read().count('max_bytes is reached') >= 1
    assert len(lines(trace)) == 20 - dropped and trace.stat().st_size <= 1500


@pytest.mark.skipif(os.geteuid() != 0, reason='a disk of its own needs a mount')
def test_a_full_disk(tmp_path, secret):
    """Counted and said once; whole lines only; it goes on when there is room."""
    disk = tmp_path / 'disk'
    disk.mkdir()
    subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=16k', 'tmpfs', str(disk)], check=True)
    try:
        trace = disk / 'trace.jsonl'
        with Grid(gateway=recording(trace, secret), apart=True) as grid:
            (disk / 'filler').write_bytes(b'x' * 12288)
            while count(grid, 'dropped') < 3:
                ask(grid, BODIES[:3])
            written = count(grid, 'written')
            assert len(lines(trace)) == written > 0
            (disk / 'filler').unlink()
            ask(grid, BODIES[:3])
            assert count(grid, 'written') == written + 3 == len(lines(trace))
            grid.errors.seek(0)
            said = grid.errors.read()
        assert said.count('No space left on device; nothing is recorded until that ends') == 1
        assert said.count('recording goes on') == 1
    finally:
        subprocess.run(['umount', str(disk)], check=True)


def test_a_second_gateway_on_one_file(trace, secret):
    with Grid(gateway=recording(trace, secret)) as one:
        ask(one, BODIES[:1])
        with Grid(gateway=recording(trace, secret), apart=True) as two:
            ask(two, BODIES[:1])
            assert count(two, 'dropped') == 1
            two.errors.seek(0)
            assert 'another gateway records to it' in two.errors.read()
            one.process.send_signal(signal.SIGTERM)
            one.process.wait(30)
            ask(two, BODIES[:1])
            assert count(two, 'written') == 1
    assert len(lines(trace)) == 2


def check(folder, gateway):
    path = os.path.join(folder, 'gateway.json')
    with open(path, 'w', encoding='utf-8') as f:
        json.dump(dict({'serving': {'local_site': 'east', 'candidates': [], 'clusters': []}}, **gateway), f, indent=1)
    done = subprocess.run([BINARY, 'check', '-c', path], text=True, capture_output=True)
    assert done.returncode == 1
    return done.stderr


def test_what_is_wrong_is_named(trace, secret, tmp_path):
    (tmp_path / 'short').write_bytes(b'short')
    (tmp_path / 'letter').write_text('a letter of somebody\n', encoding='utf-8')
    for wrong, field, why in (
            ({'path': 'a'}, 'trace_keys', 'path and secret_path are both needed'),
            ({}, 'trace_keys', 'both needed'),
            ({'path': 'no/where/a', 'secret_path': secret}, 'trace_keys.path', 'No such file or directory'),
            ({'path': '.', 'secret_path': secret}, 'trace_keys.path', 'is not a regular file'),
            ({'path': 'letter', 'secret_path': secret}, 'trace_keys.path', 'is there, and is no recording'),
            ({'path': 'a', 'secret_path': 'none'}, 'trace_keys.secret_path', 'cannot read'),
            ({'path': 'a', 'secret_path': 'short'}, 'trace_keys.secret_path', 'at least 32 bytes'),
            ({'path': 'a\nb', 'secret_path': secret}, 'trace_keys', 'line feed'),
            ({'path': 'a', 'secret_path': secret, 'max_bytes': 0}, 'trace_keys.max_bytes', 'from 1'),
            ({'path': 'a', 'secret_path': secret, 'extra': 0}, 'trace_keys.extra', 'unknown')):
        said = check(tmp_path, {'trace_keys': wrong})
        line = next(one for one in said.splitlines() if ': %s: ' % field in one)
        assert re.search(r'gateway\.json:\d+: ', line) and why in line, (wrong, said)
    assert (tmp_path / 'letter').read_text(encoding='utf-8') == 'a letter of somebody\n'


def test_it_waits_for_a_restart_and_the_secret_may_go(trace, secret):
    with Grid(gateway=recording(trace, secret), apart=True) as grid:
        with open(os.path.join(grid.folder, 'gateway.json'), encoding='utf-8') as f:
            config = json.load(f)
        os.unlink(secret)
        config['grid_site_route']['prefix_affinity']['threshold'] = 0.5
        grid.write('gateway.json', config)
        eventually(lambda: grid.ops.get('/grid').json()['settings']['prefix_affinity']['threshold'] == 0.5, what='the change')
        grid.write('gateway.json', dict(config, trace_keys=dict(config['trace_keys'], path=str(trace) + '2')))
        refusal = eventually(lambda: grid.ops.get('/grid').json()['reload'].get('last_refusal'), what='the refusal')
        assert 'trace_keys: a change of it needs a restart' in refusal['error']
        ask(grid, BODIES[:1])
    assert len(lines(trace)) == 1
    with contextlib.suppress(FileNotFoundError):
        assert not os.path.getsize(str(trace) + '2')
