"""The command line of grid-gateway: help, exit statuses, and the verbs `keys` and `explain`.

The binary comes from GRID_GATEWAY or build/release/grid-gateway.
"""
import json
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get('GRID_GATEWAY', str(ROOT / 'build' / 'release' / 'grid-gateway'))
VERBS = ['run', 'check', 'demo', 'sim-site', 'keys', 'explain', 'tag', 'replay', 'version']
LONG = 'once upon a time there was a gateway ' * 60
SERVING = '''
local_site: east
window_secs: 60
load_window_ms: 30000
candidates:
  - {kind: inference_model, name: llama, site: east, cluster: pool-east}
  - {kind: inference_model, name: llama, site: west, cluster: pool-west}
  - {kind: inference_model, name: llama, site: north, cluster: pool-north, admission: none}
peers: []
'''


def run(*args, stdin=b'', expect=0):
    done = subprocess.run([BINARY, *map(str, args)], input=stdin, capture_output=True, timeout=60)
    assert done.returncode == expect, (done.stdout, done.stderr)
    return done.stdout.decode(), done.stderr.decode()


@pytest.fixture
def serving(tmp_path):
    path = tmp_path / 'serving.yaml'
    path.write_text(SERVING)
    return path


@pytest.fixture
def body(tmp_path):
    path = tmp_path / 'body.json'
    path.write_text(json.dumps({'model': 'llama', 'messages': [{'role': 'user', 'content': LONG}]}))
    return path


def explain(*args):
    return json.loads(run('explain', '--json', *args)[0])


# ---- verbs

def test_help_names_every_verb():
    out, _ = run('--help')
    for verb in VERBS:
        assert '\n  %s ' % verb in out
    assert 'Exit status' in out


@pytest.mark.parametrize('verb', VERBS)
def test_each_verb_explains_itself(verb):
    out, err = run(verb, '--help')
    assert err == ''
    assert 'grid-gateway ' + verb in out
    assert 'xit status' in out
    assert 'xample' in out or verb == 'demo'  # its usage line is the example
    assert max(map(len, out.splitlines())) <= 110


def test_make_help_names_every_target():
    text = (ROOT / 'Makefile').read_text()
    targets = {t for line in re.findall(r'^\.PHONY: (.*)$', text, re.M) for t in line.split()} - {'help'}
    told = subprocess.run(['make', '--no-print-directory', 'help'], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    named = {t for line in told.splitlines() for t in re.match(r'make ((?:[\w-]+, )*[\w-]+)', line).group(1).split(', ')}
    assert named == targets


def test_wrong_command_lines():
    out, err = run(expect=2)
    assert out == '' and 'usage' in err
    _, err = run('dance', expect=2)
    assert 'dance' in err and '--help' in err
    for args in (['keys'], ['keys', 'a', 'b'], ['keys', '--nope', '-'], ['explain', '-'], ['replay', 'a', 'b'],
                 ['replay', '--seed', 'x'], ['replay', '--seed', '-1'], ['version', 'x'],
                 ['explain', '--serving', 'x', '--depth', 'pool', '-'], ['explain', '--serving', 'x', '--depth', 'p=-1', '-'],
                 ['explain', '--gateway', 'x', '--plugin', 'y', '-']):
        _, err = run(*args, expect=2)
        assert '--help' in err, args


def test_version():
    assert run('version')[0] == run('--version')[0]
    assert run('version')[0].startswith('grid-gateway ')


def test_files_that_are_missing(tmp_path, body):
    gone = tmp_path / 'gone'
    for args in (['keys', gone], ['replay', gone], ['explain', '--serving', gone, body]):
        _, err = run(*args, expect=1)
        assert str(gone) in err


# ---- keys

def test_keys_as_json_and_as_text(body):
    got = json.loads(run('keys', '--json', body)[0])
    assert (got['api'], got['model'], got['keyed'], got['reason']) == ('chat', 'llama', True, None)
    assert got['blocks'] == len(got['keys']) > 4
    text = run('keys', body)[0]
    for key in got['keys']:
        assert key in text
    assert run('keys', '-', stdin=body.read_bytes())[0] == text
    assert LONG[:20] not in text


def test_keys_differ_by_model_and_say_why_there_are_none(body):
    plain = json.loads(run('keys', '--json', body)[0])['keys']
    other = json.loads(run('keys', '--json', '--model', 'qwen', body)[0])
    assert other['model'] == 'qwen' and not set(plain) & set(other['keys'])
    got = json.loads(run('keys', '--json', '--path', '/v1/embeddings', body)[0])
    assert (got['api'], got['keys'], got['reason']) == (None, [], 'not_a_prompt_path')
    assert 'not_json' in run('keys', '-', stdin=b'hello')[0]


# ---- explain

def test_a_cold_grid(serving, body):
    got = explain('--serving', serving, body)
    assert (got['action'], got['cluster'], got['outcome']) == ('forward', 'pool-east', 'no_match')
    assert [c['cluster'] for c in got['candidates']] == ['pool-east', 'pool-west', 'pool-north']
    assert [c['admitted'] for c in got['candidates']] == [True, True, False]
    words = run('explain', '--serving', serving, body)[0]
    for word in ('pool-east', 'pool-west', 'pool-north', 'unmeasured', 'no_match', 'flips by'):
        assert word in words
    assert LONG[:20] not in words


def test_the_flip_is_where_it_says(serving, body):
    def at(depth):
        return explain('--serving', serving, '--held', 'pool-west', '--depth', 'pool-west=%r' % depth,
                       '--depth', 'pool-east=0', body)
    got = at(0.0)
    assert (got['cluster'], got['outcome'], got['run']) == ('pool-west', 'sticky', got['blocks'])
    flip = got['flips_above']
    assert flip == got['worth'] > 0
    assert at(flip)['outcome'] == 'sticky'
    over = at(flip * 1.01)
    assert (over['cluster'], over['outcome'], over['flips_above']) == ('pool-east', 'load_override', flip)
    assert (over['holder_depth'], over['other_depth']) == (flip * 1.01, 0)


def test_words_for_each_end(serving, body, tmp_path):
    base = ['explain', '--serving', serving]
    held = run(*base, '--held', 'pool-west', '--depth', 'pool-west=0', '--depth', 'pool-east=0', body)[0]
    assert 'queued requests' in held and 'a queue over' in held
    over = run(*base, '--held', 'pool-west', '--depth', 'pool-west=9', '--depth', 'pool-east=0', body)[0]
    assert 'load_override' in over and 'a queue of at most' in over
    both = run(*base, '--held', 'pool-west', '--held', 'pool-east', body)[0]
    assert 'holds as much of it' in both
    unknown = run(*base, '--model', 'other', body)[0]
    assert 'status 404' in unknown and 'model_not_found' in unknown
    short = run(*base, '-', stdin=b'{"model":"llama","messages":[{"role":"user","content":"hi"}]}')[0]
    assert 'fills no block' in short
    off = tmp_path / 'plugin.yaml'
    off.write_text('prefix_affinity: {enabled: false}\n')
    assert 'switched off' in run(*base, '--plugin', off, body)[0]


def test_a_gateway_file_is_enough(serving, body, tmp_path):
    gateway = tmp_path / 'gateway.yaml'
    gateway.write_text('listen: 0.0.0.0:8080\ngrid_site_route:\n  prefix_affinity: {queued_request_seconds: 0.5}\n'
                       'serving_config_path: serving.yaml\n')
    ask = ['--held', 'pool-west', '--depth', 'pool-west=0', '--depth', 'pool-east=0', body]
    assert explain('--gateway', gateway, *ask)['worth'] == 4 * explain('--serving', serving, *ask)['worth']
    inside = ''.join('  %s\n' % line for line in SERVING.splitlines())
    gateway.write_text('grid_site_route: {prefix_affinity: {threshold: 0.9}}\nserving:\n' + inside)
    assert explain('--gateway', gateway, body)['cluster'] == 'pool-east'


def test_refusals_name_file_line_and_field(serving, body, tmp_path):
    plugin = tmp_path / 'plugin.yaml'
    plugin.write_text('prefix_affinity:\n  ttl_secs: 10\n  threshold: 7\n')
    _, err = run('explain', '--serving', serving, '--plugin', plugin, body, expect=1)
    assert err.startswith('%s:3: prefix_affinity.threshold: ' % plugin)
    gateway = tmp_path / 'gateway.yaml'
    gateway.write_text('listen: 0.0.0.0:8080\nserving_config_path: serving.yaml\n\ngrid_site_route:\n  colour: 1\n')
    _, err = run('explain', '--gateway', gateway, body, expect=1)
    assert err.startswith('%s:5: colour: ' % gateway)
    serving.write_text(SERVING.replace('site: west', 'site: West'))
    _, err = run('explain', '--serving', serving, body, expect=1)
    assert err.startswith('%s:7: candidates[1].site: ' % serving)


def test_clusters_that_nothing_names(serving, body):
    for option in (['--held', 'pool-x'], ['--depth', 'pool-x=1']):
        _, err = run('explain', '--serving', serving, *option, body, expect=1)
        assert 'pool-x' in err
