"""`grid-gateway tag`, and keys of tags through a running gateway: rotation, refusals, and that no log tells a key."""
import hashlib
import hmac
import json
import os
import re
import subprocess

import pytest

from grid import BINARY, Grid, eventually, series

KEY, OTHER = bytes(range(32)), b'another key of more than 32 bytes...'
RELOADS = 'grid_serving_config_reload_total{result="%s"}'
SERVING = '''
local_site: east
window_secs: 60
load_window_ms: 30000
peers: []
candidates:
  - {kind: inference_model, name: llama, site: east, cluster: pool-east}
'''


def tag(*args, expect=0):
    done = subprocess.run([BINARY, 'tag', *map(str, args)], capture_output=True, text=True, timeout=60)
    assert done.returncode == expect, (done.stdout, done.stderr)
    return done.stdout if expect == 0 or done.stdout else done.stderr


def opened(*args, expect=0):
    return dict(line.split(None, 1) for line in tag('open', *args, expect=expect).splitlines())


def signed(key, site, cluster, inner, kind='resp'):
    """What the documentation says, without the gateway's help."""
    mark = hashlib.sha256(cluster.encode()).hexdigest()[:8]
    mac = hmac.new(key, site.encode() + b'\0' + mark.encode(), hashlib.sha256).hexdigest()[:16] if key else ''
    return '%s_%s.%s.%s.%s' % (kind, site, mark, mac, inner)


@pytest.fixture
def keys(tmp_path):
    (tmp_path / 'one.key').write_bytes(KEY)
    (tmp_path / 'other.key').write_bytes(OTHER)
    (tmp_path / 'serving.yaml').write_text(SERVING)
    return tmp_path


# ---- the command

def test_new_key_makes_a_private_file_and_never_overwrites(tmp_path):
    path = tmp_path / 'tag.key'
    assert tag('new-key', path) == ''
    first = path.read_bytes()
    assert len(first) == 32 and path.stat().st_mode & 0o7777 == 0o600
    assert 'File exists' in tag('new-key', path, expect=1)
    assert path.read_bytes() == first
    tag('new-key', tmp_path / 'second.key')
    assert (tmp_path / 'second.key').read_bytes() != first
    (tmp_path / 'link.key').symlink_to(tmp_path / 'nowhere')
    tag('new-key', tmp_path / 'link.key', expect=1)
    assert not (tmp_path / 'nowhere').exists()


@pytest.mark.parametrize('kind', ['resp', 'conv'])
def test_sign_does_what_the_documentation_says(keys, kind):
    for names, key in ((['one.key'], KEY), (['other.key', 'one.key'], OTHER), ([], b'')):
        options = [part for name in names for part in ('--key', keys / name)]
        out = tag('sign', *options, '--kind', kind, '--site', 'east', '--cluster', 'pool east/ü', 'a.b')
        assert out == signed(key, 'east', 'pool east/ü', 'a.b', kind) + '\n'


def test_open_says_what_an_id_names_and_whether_it_is_accepted(keys):
    one = ('--key', keys / 'one.key', '--serving', keys / 'serving.yaml')
    good = signed(KEY, 'east', 'pool-east', 'abc')
    assert opened(*one, good) == {'kind': 'response', 'site': 'east', 'mark': good.split('.')[1], 'cluster': 'pool-east',
                                  'id': 'resp_abc', 'accepted': 'yes'}
    both = ('--key', keys / 'other.key', *one)
    assert opened(*both, good)['accepted'] == 'yes'
    assert opened('--key', keys / 'other.key', *one[2:], good, expect=1)['accepted'] == 'no: bad_mac'
    assert opened(*one, signed(KEY, 'west', 'pool-west', 'abc'), expect=1)['accepted'] == 'no: unknown_cluster'
    assert opened(*one[:2], signed(KEY, 'west', 'pool-west', 'abc')) == {
        'kind': 'response', 'site': 'west', 'mark': signed(b'', 'w', 'pool-west', '').split('.')[1], 'cluster': 'not known', 'id': 'resp_abc', 'accepted': 'yes'}
    assert opened(*one, 'resp_abc', expect=1) == {'accepted': 'no: not_tagged'}
    assert opened(*one, good.replace('.', '%2E'), expect=1) == {'accepted': 'no: not_tagged'}


def test_an_id_cannot_talk_to_the_terminal(keys):
    out = tag('open', 'resp_\x1b[2Jeast.0a1b2c3d..\x07x', expect=0)
    assert '\x1b' not in out and '\x07' not in out and 'site      ?[2Jeast' in out


@pytest.mark.parametrize('args', [[], ['sign'], ['open'], ['new-key'], ['new-key', '--key'], ['what'], ['open', 'a', 'b'],
                                  ['sign', '--kind', 'x', '--site', 'a', '--cluster', 'b', 'c'],
                                  ['sign', '--kind', 'resp', '--site', 'a.b', '--cluster', 'b', 'c'],
                                  ['sign', '--kind', 'resp', '--site', 'a' * 64, '--cluster', 'b', 'c']])
def test_usage(args):
    assert 'tag --help' in tag(*args, expect=2)


def test_a_short_key_is_refused_by_its_file(keys):
    (keys / 'short.key').write_bytes(b's' * 31)
    assert 'short.key has 31 bytes; a key has at least 32 bytes' in tag(
        'open', '--key', keys / 'one.key', '--key', keys / 'short.key', 'x', expect=1)
    assert 'No such file' in tag('open', '--key', keys / 'none.key', 'x', expect=1)


# ---- replay

def test_replay_follows_its_keys(keys):
    path = str(keys / 'one.key')
    lines = [{'op': 'load', 'serving_text': SERVING, 'plugin': {'prefix_affinity': {'tag_key_path': path}}},
             {'op': 'tag', 'kind': 'conv', 'site': 'east', 'cluster': 'pool-east', 'id': 'x"y'},
             {'op': 'untag', 'id_text': signed(KEY, 'east', 'pool-east', 'x')},
             {'op': 'load', 'tag_keys_hex': [OTHER.hex(), KEY.hex()]},
             {'op': 'load', 'plugin': {'prefix_affinity': {'tag_key_path': path}}},
             {'op': 'tag', 'kind': 'resp', 'site': 'north', 'cluster': 'not configured', 'id': 'x'},
             {'op': 'untag', 'id_text': signed(KEY, 'east', 'pool-east', 'x')},
             {'op': 'load', 'tag_keys_hex': [OTHER.hex(), 'ab' * 31]},
             {'op': 'tag', 'kind': 'x', 'site': 'east', 'cluster': 'pool-east', 'id': 'x'},
             {'op': 'tag', 'kind': 'resp', 'site': '', 'cluster': 'pool-east', 'id': 'x'},
             {'op': 'load', 'tag_keys_hex': []},
             {'op': 'tag', 'kind': 'resp', 'site': 'east', 'cluster': 'pool-east', 'id': 'x'}]
    done = subprocess.run([BINARY, 'replay'], input=''.join(json.dumps(line) + '\n' for line in lines),
                          capture_output=True, text=True, timeout=60)
    out = [json.loads(line) for line in done.stdout.splitlines()]
    assert out[1] == {'tagged': signed(KEY, 'east', 'pool-east', 'x"y', 'conv')}
    assert out[2] == {'accept': True, 'site': 'east', 'cluster': 'pool-east', 'inner': 'resp_x'}
    assert out[5] == {'tagged': signed(OTHER, 'north', 'not configured', 'x')}, 'keys given outrank a key file'
    assert out[6]['accept'] is True
    assert out[7]['error']['field'] == 'tag_keys_hex[1]' and 'at least 32 bytes' in out[7]['error']['message']
    assert [out[8]['error']['field'], out[9]['error']['field']] == ['kind', 'site']
    assert out[11] == {'tagged': signed(b'', 'east', 'pool-east', 'x')}


# ---- a running gateway

class Keyed:
    """A gateway whose key files stand in a folder of their own."""

    def __init__(self, folder, names):
        self.folder = folder
        self.grid = Grid(affinity={'tag_key_path': [str(folder / name) for name in names]}, gateway={'access_log': True})

    def __enter__(self):
        self.grid.__enter__()
        return self

    def __exit__(self, *args):
        self.grid.__exit__(*args)

    def put(self, name, content):
        (self.folder / '.new').write_bytes(content)
        os.rename(self.folder / '.new', self.folder / name)

    def counts(self):
        values = series(self.grid.ops.get('/metrics').text)
        return tuple(int(values[RELOADS % result]) for result in ('applied', 'reused', 'rejected'))

    def expect(self, want, seconds=4):
        """Within the time that `run` needs, under the 5 s of the module's own look."""
        eventually(lambda: self.counts() == want, seconds, 'applied, reused, rejected = %r, not %r' % (want, self.counts()))

    def led_home(self, key):
        """Whether an id under that key goes to its site; the answer of the gateway itself is a 404 of one kind."""
        answer = self.grid.http.get('/v1/responses/' + signed(key, 'west', 'pool-west', 'none'))
        if 'x-grid-site' in answer.headers:
            assert answer.headers['x-grid-site'] == 'west'
            return True
        assert answer.status_code == 404
        return False

    def said(self):
        self.grid.log.seek(0)
        return self.grid.log.read()


def test_keys_rotate_in_a_running_gateway_and_bad_ones_are_refused(tmp_path):
    third = b'a third key, 32 bytes at least..'
    (tmp_path / 'one.key').write_bytes(KEY)
    (tmp_path / 'old.key').write_bytes(OTHER)
    with Keyed(tmp_path, ['one.key', 'old.key']) as keyed:
        assert (keyed.led_home(KEY), keyed.led_home(OTHER), keyed.led_home(third)) == (True, True, False)
        assert not keyed.led_home(b'')

        keyed.put('old.key', KEY)
        keyed.put('one.key', third)
        eventually(lambda: keyed.led_home(third), 4, 'the new key signs')
        assert keyed.led_home(KEY), 'the second key still verifies'
        eventually(lambda: not keyed.led_home(OTHER), 4, 'the oldest is gone')
        before = keyed.counts()
        assert before[1:] == (0, 0)

        keyed.put('one.key', b'too short')
        keyed.expect((before[0], 0, 1))
        assert keyed.led_home(third), 'the old keys stay'
        reload = keyed.grid.ops.get('/grid').json()['reload']
        assert reload['result'] == 'rejected'
        assert 'one.key: 9 bytes: it must have at least 32 bytes' in reload['error']

        os.unlink(tmp_path / 'one.key')
        keyed.expect((before[0], 0, 2))
        keyed.put('one.key', KEY)
        keyed.expect((before[0] + 1, 0, 2))
        eventually(lambda: not keyed.led_home(third), 4, 'the refused key was replaced')
        keyed.led_home(KEY)
        keyed.grid.stop()           # the access log is written at the latest now
        said = keyed.said()
    assert said.count('"path":"/v1/responses/*"') > 4, 'the log has no ids, tagged or not'
    for secret in (KEY, OTHER, third, b'too short'):
        assert secret.decode('latin-1') not in said
        assert secret.hex() not in said
    assert not re.search(r'(resp|conv)_[a-z]+\.[0-9a-f]{8}\.', said), 'a tag in the log'
    assert said.count('the old keys stay in force') == 2
    assert 'one.key' in said
    assert 'no mac' not in said


def test_a_key_behind_a_swapped_link_is_followed(tmp_path):
    """As a mounted Secret is changed: the file is a link through ..data, and ..data is what is replaced."""
    for name, key in (('v1', KEY), ('v2', OTHER)):
        (tmp_path / name).mkdir()
        (tmp_path / name / 'tag.key').write_bytes(key)
    (tmp_path / '..data').symlink_to('v1')
    (tmp_path / 'tag.key').symlink_to('..data/tag.key')
    with Keyed(tmp_path, ['tag.key']) as keyed:
        assert keyed.led_home(KEY) and not keyed.led_home(OTHER)
        (tmp_path / '..new').symlink_to('v2')
        os.rename(tmp_path / '..new', tmp_path / '..data')
        eventually(lambda: keyed.led_home(OTHER), 4, 'the new key')
        assert not keyed.led_home(KEY)


def test_a_gateway_without_keys_says_so_once():
    with Grid() as grid:
        grid.serving_extra = {'load_window_ms': 500000}
        grid.write_serving()
        eventually(lambda: series(grid.ops.get('/metrics').text)[RELOADS % 'applied'] == 1, 10)
        grid.log.seek(0)
        said = grid.log.read()
    assert said.count('ids get no mac') == 1
    assert 'set tag_key_path in production' in said


def test_settings_that_name_a_missing_key_come_into_force_with_it(tmp_path):
    (tmp_path / 'one.key').write_bytes(KEY)
    with Keyed(tmp_path, ['one.key']) as keyed:
        path = os.path.join(keyed.grid.folder, 'gateway.json')
        with open(path, encoding='utf-8') as f:
            gateway = json.load(f)
        gateway['grid_site_route']['prefix_affinity']['tag_key_path'] = [str(tmp_path / name) for name in ('late.key', 'one.key')]
        keyed.grid.write('gateway.json', gateway)
        keyed.expect((0, 0, 1))
        assert 'late.key: No such file' in keyed.grid.ops.get('/grid').json()['reload']['error']
        keyed.put('late.key', OTHER)
        keyed.expect((1, 0, 1), 10)
        assert keyed.led_home(OTHER) and keyed.led_home(KEY)
