"""The image without a container engine: deploy/Containerfile is linted, its steps are carried out one after the other in root file
systems of their own, and what comes out runs as its user on a read-only root."""
import json
import os
import re
import shutil
import subprocess
import sys

import httpx
import pytest
from ship import INSIDE, ROOT, VERSION, Root, copy_sources

sys.path.insert(0, os.path.join(ROOT, 'tests', 'e2e'))
from grid import Site, eventually, free_port, prose  # noqa: E402

FILE = os.path.join(ROOT, 'deploy', 'Containerfile')


def instructions():
    with open(FILE, encoding='utf-8') as f:
        text = re.sub(r'\\\n', ' ', re.sub(r'(?m)^#.*\n', '', f.read()))
    return [tuple(line.split(None, 1)) for line in text.split('\n') if line.strip()]


def test_lint():
    # DL3008 wants versions of Debian packages: they leave the archive with each update, and security updates are wanted.
    done = subprocess.run([os.path.join(ROOT, '.venv-ship', 'bin', 'hadolint'), '--no-color', '--ignore', 'DL3008', FILE],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope='module')
def image(tmp_path_factory):
    """(root of the last stage, its settings), built by the file's own lines."""
    folder = tmp_path_factory.mktemp('image')
    stages, stage, workdir, settings = {}, None, '/', {}
    for word, rest in instructions():
        if word == 'FROM':
            base, _, name = rest.partition(' AS ')
            stage, workdir, settings = Root(folder / (name or 'last')), '/', {}
            stages[name] = stage
            if base == 'scratch':
                os.makedirs(stage.path)
            else:
                assert base == 'debian:bookworm-slim', 'this test knows no other base than Debian 12'
                stage.debian()
        elif word == 'RUN':
            stage.run('sh', '-c', 'cd %s && %s' % (workdir, rest), network_files=True,
                      env={k: v for k, v in os.environ.items() if k.startswith('PIP_') and k != 'PIP_FIND_LINKS'})
        elif word == 'WORKDIR':
            workdir = rest
            os.makedirs(stage.path + workdir, exist_ok=True)
        elif word == 'COPY' and rest.startswith('--from='):
            source, inside, out = re.match(r'--from=(\S+) (\S+) (\S+)$', rest).groups()
            subprocess.run(['cp', '-a', '%s%s/.' % (stages[source].path, inside), stage.path + out], check=True)
        elif word == 'COPY':
            assert rest == '. .'
            copy_sources(stage.path + workdir)
        else:
            assert word in ('USER', 'EXPOSE', 'ENTRYPOINT', 'CMD'), word
            settings[word] = rest
    yield stage, settings
    shutil.rmtree(folder, ignore_errors=True)


def names(root):
    for folder, _, files in os.walk(root.path):
        for name in files:
            yield os.path.relpath(os.path.join(folder, name), root.path)


def test_holds_what_it_needs_and_no_shell(image):
    root, _ = image
    found = set(names(root))
    programs = {n for n in found if os.access(os.path.join(root.path, n), os.X_OK) and '.so' not in n}
    assert programs == {'usr/bin/grid-gateway', 'usr/lib/grid-gateway/grid-gateway', 'usr/lib/grid-gateway/envoy'}
    assert {'usr/lib/grid-gateway/libgrid_site_route.so', 'etc/ssl/certs/ca-certificates.crt', 'etc/passwd',
            'usr/share/doc/grid-gateway/sbom.cdx.json'} <= found
    assert sum(os.lstat(os.path.join(root.path, n)).st_size for n in found) < 150 * 2 ** 20


def test_its_user_is_nobody_special_and_its_command_is_told(image):
    root, settings = image
    user = settings['USER']
    assert re.fullmatch(r'[1-9]\d*:[1-9]\d*', user)
    assert VERSION in root.run(*json.loads(settings['ENTRYPOINT']), '--version', user=user, read_only=True)
    assert json.loads(settings['CMD'])[:1] == ['run']


def test_serves_on_a_read_only_root(image, tmp_path):
    """As deploy/Containerfile starts it, with the test's addresses in the configuration."""
    root, settings = image
    ports = [free_port() for _ in range(3)]
    site = Site('east', str(tmp_path), ('--prefill-tps', '1000000', '--decode-tps', '5000'))
    process = None
    try:
        with open(root.path + '/etc/grid-gateway/gateway.yaml', 'w', encoding='utf-8') as f:
            f.write('{listen: "127.0.0.1:%d", admin: "127.0.0.1:%d", ops: "127.0.0.1:%d", concurrency: 1, serving_config_path: serving.yaml}'
                    % tuple(ports))
        with open(root.path + '/etc/grid-gateway/serving.yaml', 'w', encoding='utf-8') as f:
            f.write('{local_site: east, candidates: [{kind: inference_model, name: llama, site: east, cluster: c}],'
                    ' clusters: [{name: c, endpoints: ["%s"], health: {path: /health}}]}' % site.address)
        command = json.loads(settings['ENTRYPOINT']) + json.loads(settings['CMD'])
        process = subprocess.Popen(root.argv(*command, user=settings['USER'], read_only=True, writable=['/run/grid-gateway']),
                                   env=INSIDE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert 'serving on' in process.stdout.readline()
        assert httpx.get('http://127.0.0.1:%d/livez' % ports[2]).status_code == 200
        eventually(lambda: httpx.get('http://127.0.0.1:%d/ready' % ports[2]).status_code == 200, 20, 'ready')
        reply = httpx.post('http://127.0.0.1:%d/v1/chat/completions' % ports[0], timeout=20, json={
            'model': 'llama', 'max_tokens': 4, 'messages': [{'role': 'user', 'content': prose('image', 2000)}]})
        assert (reply.status_code, reply.headers['x-grid-site']) == (200, 'east')
        with open('/proc/%d/status' % process.pid, encoding='ascii') as f:
            assert re.search(r'(?m)^Uid:\s+65532\b', f.read())
    finally:
        if process is not None:
            process.terminate()
            assert process.wait(60) == 0
        site.stop()


def test_a_root_that_is_read_only_is_read_only(image):
    """So that the test above says something."""
    root, settings = image
    done = subprocess.run(root.argv(*json.loads(settings['ENTRYPOINT']), 'tag', 'new-key', '/etc/grid-gateway/x', read_only=True),
                          env=INSIDE, capture_output=True, text=True)
    assert done.returncode == 1 and 'Read-only' in done.stdout + done.stderr
