"""`grid-gateway demo`: its story comes true, is readable, and nothing is left behind.

The binary comes from GRID_GATEWAY or build/release/grid-gateway; Envoy is found as `run` finds it.
"""
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import time
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get('GRID_GATEWAY', str(ROOT / 'build' / 'release' / 'grid-gateway'))
COLUMNS = 100
LIMIT_S = 90
TURN = re.compile(r'^ +(?P<turn>\d+)  (?P<site>\S+) +(?P<outcome>\S+) +(?:(?P<run>\d+)/(?P<blocks>\d+)|-) +'
                  r'(?P<depths>[\d.]+/[\d.]+/[\d.]+) +(?P<worth>[\d.]+|-) +(?P<prompt>\d+) +(?P<cached>\d+) +'
                  r'(?P<first>[\d.]+) s$', re.M)


def environment(tmp_path, **more):
    env = {k: v for k, v in os.environ.items() if k not in ('DEMO_EXIT', 'NO_COLOR')}
    return dict(env, TMPDIR=str(tmp_path), TERM='xterm', **more)


def wait_until(condition, what, limit_s=LIMIT_S):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError('not within %s s: %s' % (limit_s, what))


def processes_of(tmp_path):
    """Processes that run with the demo's temporary folder: it is in their environment."""
    found = []
    for folder in pathlib.Path('/proc').iterdir():
        try:
            if folder.name.isdigit() and ('TMPDIR=%s' % tmp_path).encode() in (folder / 'environ').read_bytes().split(b'\0'):
                found.append(int(folder.name))
        except OSError:
            pass
    return found


def nothing_left(tmp_path):
    wait_until(lambda: not processes_of(tmp_path), 'all processes ended', 15)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope='module')
def story(tmp_path_factory):
    """One whole demo into a pipe: what it printed, and its temporary folder."""
    tmp_path = tmp_path_factory.mktemp('demo')
    done = subprocess.run([BINARY, 'demo'], env=environment(tmp_path, DEMO_EXIT='1'), capture_output=True, text=True,
                          timeout=LIMIT_S)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert done.stderr == ''
    return done.stdout, tmp_path


@pytest.fixture(scope='module')
def turns(story):
    return [match.groupdict() for match in TURN.finditer(story[0])]


def test_the_conversation_sticks_from_turn_two(turns):
    first = turns[:8]
    assert [t['turn'] for t in first] == [str(n) for n in range(1, 9)]
    assert [t['outcome'] for t in first] == ['no_match'] + ['sticky'] * 7
    assert len({t['site'] for t in first}) == 1
    for earlier, later in zip(first, first[1:]):
        assert int(later['run']) == int(earlier['blocks']) > int(earlier['run'])
        assert int(later['cached']) >= 0.95 * int(earlier['prompt'])
        assert float(later['first']) < float(first[0]['first']) / 2


def test_it_stays_although_a_queue_is_deeper(turns):
    sites = ['east', 'west', 'north']
    stayed = [t for t in turns[1:8] if float(t['depths'].split('/')[sites.index(t['site'])]) > 0]
    assert stayed, 'no turn met a queue at its site'
    assert all(min(map(float, t['depths'].split('/'))) == 0 for t in stayed)


def test_load_wins_once(turns):
    burst = turns[8]
    depths = dict(zip(['east', 'west', 'north'], map(float, burst['depths'].split('/'))))
    assert burst['turn'] == '9' and burst['outcome'] == 'load_override'
    assert burst['site'] != turns[0]['site'] and depths[burst['site']] == 0
    assert depths[turns[0]['site']] > float(burst['worth'])


def test_without_affinity_it_wanders(turns):
    second = turns[9:]
    assert len(second) == 8 and {t['outcome'] for t in second} == {'-'}
    assert len({t['site'] for t in second}) == 3
    assert sum(int(t['cached']) for t in second) < sum(int(t['cached']) for t in turns[:8])
    assert [t['prompt'] for t in second] == [t['prompt'] for t in turns[:8]]


def test_closing_lines_add_up(story, turns):
    saved = sum(int(t['cached']) for t in turns[:8]) - sum(int(t['cached']) for t in turns[9:])
    assert '%+d prompt tokens did not have to be prefilled' % saved in story[0]
    assert re.search(r'^It stuck: ', story[0], re.M)


def test_it_is_plain_and_fits(story):
    assert '\x1b' not in story[0]
    assert max(map(len, story[0].split('\n'))) <= COLUMNS


def test_nothing_is_left(story):
    nothing_left(story[1])


def test_on_a_terminal_it_has_colour_and_goes_on_serving(tmp_path):
    leader, follower = pty.openpty()
    demo = subprocess.Popen([BINARY, 'demo'], env=environment(tmp_path), stdin=follower, stdout=follower, stderr=follower)
    os.close(follower)
    said = b''

    def tried():
        nonlocal said
        if select.select([leader], [], [], 0)[0]:
            said += os.read(leader, 65536)
        assert demo.poll() is None, said.decode()
        return re.search(rb"curl -si (http\S+) .*\r\n.*-d '(.*)'\r\n.*curl -s (http\S+)", said)
    try:
        found = wait_until(tried, 'the curl line')
        assert b'\x1b[32m' in said
        url, body, metrics = (part.decode() for part in found.groups())
        request = urllib.request.Request(url, body.encode(), {'content-type': 'application/json'})
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert answer.headers['x-grid-site'] in ('east', 'west', 'north')
            assert json.load(answer)['choices'][0]['message']['content']
        with urllib.request.urlopen(metrics, timeout=20) as answer:
            assert b'grid_route_prefix_affinity_total{outcome="sticky"} 7' in answer.read()
        demo.send_signal(signal.SIGINT)
        assert demo.wait(15) == 0
    finally:
        demo.kill()
        demo.wait()
        os.close(leader)
    nothing_left(tmp_path)


def started(tmp_path):
    demo = subprocess.Popen([BINARY, 'demo'], env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: len(processes_of(tmp_path)) >= 6 and list(tmp_path.glob('*/with/gateway.log')),
               'sites, gateway and Envoy are processes')
    return demo


def test_sigterm_in_the_middle_cleans_up(tmp_path):
    demo = started(tmp_path)
    demo.terminate()
    _, error = demo.communicate(timeout=20)
    assert demo.returncode == 1 and b'interrupted' in error
    nothing_left(tmp_path)


def test_children_end_with_a_killed_demo(tmp_path):
    demo = started(tmp_path)
    demo.kill()
    demo.communicate(timeout=20)
    wait_until(lambda: not processes_of(tmp_path), 'all processes ended', 15)


def test_a_gateway_that_does_not_start_is_told(tmp_path):
    done = subprocess.run([BINARY, 'demo', '--exit'], env=environment(tmp_path, GRID_ENVOY='/nowhere/envoy'),
                          capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 1
    assert 'gateway' in done.stderr and '/nowhere/envoy' in done.stderr
    nothing_left(tmp_path)


@pytest.mark.parametrize('args', [['--port', '0'], ['--port', 'x'], ['--nothing'], ['more']])
def test_wrong_usage(args):
    done = subprocess.run([BINARY, 'demo', *args], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2 and 'demo' in done.stderr and done.stdout == ''


def test_help():
    done = subprocess.run([BINARY, 'demo', '--help'], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0 and 'DEMO_EXIT' in done.stdout and 'Exit status' in done.stdout
