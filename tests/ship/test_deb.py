"""The Debian package that `make deb` left in dist/: what is in it, what lintian says, and its life in a Debian of its own:
installed, serving as its own user, upgraded with a changed configuration, purged."""
import glob
import os
import re
import shutil
import subprocess
import sys

import httpx
import pytest
from ship import INSIDE, ROOT, VERSION, Root, run

sys.path.insert(0, os.path.join(ROOT, 'tests', 'e2e'))
from grid import eventually, free_port  # noqa: E402

# Known and meant; anything else of lintian's errors and warnings fails.
KNOWN_TAGS = set()


@pytest.fixture(scope='module')
def package():
    found = glob.glob(os.path.join(ROOT, 'dist', 'grid-gateway_*.deb'))
    assert len(found) == 1, 'run make deb first: %r' % found
    return found[0]


def test_contents(package):
    lines = run('dpkg-deb', '--contents', package).splitlines()
    modes = {line.split()[5].lstrip('.'): (line.split()[0], line.split()[1]) for line in lines}
    for path in ('/usr/lib/grid-gateway/grid-gateway', '/usr/lib/grid-gateway/envoy'):
        assert modes[path] == ('-rwxr-xr-x', 'root/root')
    for path in ('/usr/lib/grid-gateway/libgrid_site_route.so', '/lib/systemd/system/grid-gateway.service',
                 '/etc/grid-gateway/gateway.yaml', '/etc/grid-gateway/serving.yaml', '/usr/share/doc/grid-gateway/copyright',
                 '/usr/share/man/man1/grid-gateway.1.gz', '/usr/share/man/man5/grid-gateway-config.5.gz',
                 '/usr/share/man/man5/grid-gateway-serving.5.gz'):
        assert modes[path] == ('-rw-r--r--', 'root/root'), path
    assert run('dpkg-deb', '-f', package, 'Version').strip() == VERSION


def test_lintian(package):
    done = subprocess.run(['lintian', '--allow-root', '--tag-display-limit', '0', package], capture_output=True, text=True)
    bad = [line for line in done.stdout.splitlines() if re.match('[EW]: ', line) and line.split()[2] not in KNOWN_TAGS]
    assert not bad, '\n'.join(bad)


def test_unit_is_hardened(package, tmp_path):
    run('dpkg-deb', '--extract', package, str(tmp_path))
    unit = tmp_path / 'lib' / 'systemd' / 'system' / 'grid-gateway.service'
    text = unit.read_text()
    assert 'LimitCORE=0' in text and 'User=grid-gateway' in text
    done = subprocess.run(['systemd-analyze', 'security', '--offline=true', '--threshold=30', str(unit)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr
    verdict = subprocess.run(['systemd-analyze', 'verify', '--root', str(tmp_path), '/lib/systemd/system/grid-gateway.service'],
                             capture_output=True, text=True)
    own = [line for line in verdict.stderr.splitlines() if re.search('grid-gateway.service:[0-9]+:|[Uu]nknown|[Pp]arse|ignoring', line)]
    assert not own, '\n'.join(own)


@pytest.fixture(scope='module')
def debian(package, tmp_path_factory):
    root = Root(tmp_path_factory.mktemp('debian') / 'root').debian(['adduser'])
    shutil.copy(package, root.path + '/package.deb')
    root.run('dpkg', '--install', '/package.deb')
    yield root
    shutil.rmtree(root.path, ignore_errors=True)


def test_serves_as_its_own_user(debian):
    user = 'grid-gateway:grid-gateway'
    assert 100 <= int(debian.run('id', '-u', 'grid-gateway')) < 1000
    assert os.stat(debian.path + '/etc/grid-gateway').st_mode & 0o777 == 0o750
    assert VERSION in debian.run('grid-gateway', '--version', user=user)
    ports = [free_port() for _ in range(3)]
    config = debian.path + '/etc/grid-gateway/gateway.yaml'
    with open(config, encoding='utf-8') as f:
        text = f.read()
    for old, new in zip(('0.0.0.0:8080', '127.0.0.1:9901', '127.0.0.1:9902'), ports):
        text = text.replace(old, '127.0.0.1:%d' % new)
    with open(config, 'w', encoding='utf-8') as f:
        f.write(text)
    debian.run('grid-gateway', 'check', '-c', '/etc/grid-gateway/gateway.yaml', '--with-envoy', user=user, writable=['/tmp'])
    process = subprocess.Popen(debian.argv('grid-gateway', 'run', '-c', '/etc/grid-gateway/gateway.yaml', '--state-dir',
                                           '/run/state', user=user, writable=['/run'], read_only=True),
                               env=INSIDE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert 'serving on' in process.stdout.readline()
        eventually(lambda: httpx.get('http://127.0.0.1:%d/ready' % ports[2]).status_code == 200, 20, 'ready')
        assert httpx.get('http://127.0.0.1:%d/v1/models' % ports[0]).json()['data'] == []
    finally:
        process.terminate()
        assert process.wait(60) == 0


def test_an_upgrade_keeps_a_changed_configuration(debian, package, tmp_path):
    """The same package under a higher version whose own configuration has changed too."""
    run('dpkg-deb', '--raw-extract', package, str(tmp_path / 'next'))
    control = tmp_path / 'next' / 'DEBIAN' / 'control'
    control.write_text(control.read_text().replace('Version: ' + VERSION, 'Version: 99'))
    with open(tmp_path / 'next' / 'etc' / 'grid-gateway' / 'serving.yaml', 'a', encoding='utf-8') as f:
        f.write('# new\n')
    run('dpkg-deb', '--root-owner-group', '-Znone', '--build', str(tmp_path / 'next'), debian.path + '/next.deb')
    with open(debian.path + '/etc/grid-gateway/serving.yaml', 'a', encoding='utf-8') as f:
        f.write('# mine\n')
    debian.run('dpkg', '--install', '--force-confdef', '--force-confold', '/next.deb')
    with open(debian.path + '/etc/grid-gateway/serving.yaml', encoding='utf-8') as f:
        assert f.read().endswith('# mine\n')


def test_purge_leaves_nothing_but_the_user(debian):
    debian.run('dpkg', '--purge', 'grid-gateway')
    for path in ('/etc/grid-gateway', '/usr/lib/grid-gateway', '/usr/bin/grid-gateway', '/lib/systemd/system/grid-gateway.service'):
        assert not os.path.lexists(debian.path + path), path
