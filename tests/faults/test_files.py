"""Files that change under load: the serving config in every way, keys of tags, certificates, a full disk.

No request fails of it, but where a site itself is out of reach.
"""
import errno
import json
import os
import ssl
import subprocess
import time

import pytest

from load import MODELS, Load, candidates, eventually, grid_of
from wire import Relay

def put(path, text):
    """In place, as an editor without a rename does."""
    with open(path, 'w', encoding='utf-8') as f:
        f.write(text)


def read(path):
    with open(path, encoding='utf-8') as f:
        return f.read()


def test_half_empty_and_deleted():
    with grid_of() as grid:
        path = os.path.join(grid.folder, 'serving.json')
        good = read(path)
        with Load(grid) as load:
            for bad in (good[:len(good) // 2], '', None, '{"candidates": 7}'):
                load.in_force('the refusal of %.20r' % bad,
                              lambda b=bad: os.remove(path) if b is None else put(path, b), 'rejected')
                load.more(30)
                put(path, good)
                load.more(30)
            changed = json.loads(good)
            changed['load_window_ms'] = 1500
            load.in_force('a good one', lambda: put(path, json.dumps(changed)))
        load.close('config half, empty, deleted')
        load.judge(None, set(), 0)


def test_a_thousand_replacements():
    with grid_of() as grid:
        with Load(grid) as load:
            start = time.monotonic()
            for i in range(1000):
                turned = candidates()
                if i % 3 == 0:
                    turned.append(dict(turned[0], name='model-%d' % i))
                if i % 7 == 0:
                    turned.reverse()
                grid.serving_extra = dict(grid.serving_extra, candidates=turned, load_window_ms=1000 + i)
                grid.write_serving()
                time.sleep(0.02)    # about 20 s in all: three times the pace of a thousand a minute
            took = time.monotonic() - start
            last = candidates() + [dict(candidates()[0], name='the-last')]
            grid.serving_extra = dict(grid.serving_extra, candidates=last)
            grid.write_serving()
            eventually(lambda: load.ask('GET', '/v1/models/the-last', decided=False).status_code == 200, what='the last one')
            load.more(60)
            found = grid.metrics()
            assert found['grid_serving_config_reload_total{result="rejected"}'] == 0
            assert found['grid_serving_config_reload_total{result="applied"}'] > 0
        print('1,000 replacements in %.0f s' % took)
        load.close('1,000 replacements')
        load.judge(None, set(), 0)


def test_a_site_leaves_and_comes_back():
    """Its candidates and its cluster go; requests that run there end, what an id leads there is not found while it is away."""
    with grid_of() as grid:
        with Load(grid) as load:
            whole = dict(grid.serving_extra)
            for _ in range(3):
                gone = grid.sites.pop('east')
                grid.serving_extra = dict(whole, candidates=[c for c in candidates() if c['site'] != 'east'])
                load.in_force('its end', grid.write_serving)
                load.more(60)
                grid.sites['east'] = gone
                grid.serving_extra = whole
                load.in_force('its return', grid.write_serving)
                eventually(lambda: load.probe('east')[1] == 'east', what='a request there')
        load.close('a site leaves and returns')
        failed = [s for s in load.seen if s.outcome != 'ok']
        assert all((s.kind, s.outcome) == ('pinned', '404') for s in failed), failed[:5]


def test_keys_rotate_twice(tmp_path):
    keys = [str(tmp_path / name) for name in ('first.key', 'second.key', 'third.key')]
    for number, path in enumerate(keys):
        put(path, chr(65 + number) * 32)
    with grid_of(affinity={'tag_key_path': keys[:1]}) as grid:
        with Load(grid) as load:
            def change(because, *paths):
                config = json.loads(read(os.path.join(grid.folder, 'gateway.json')))
                config['grid_site_route']['prefix_affinity']['tag_key_path'] = paths
                load.in_force(because, lambda: grid.write('gateway.json', config))

            def store():
                return load.ask('POST', '/v1/responses', {'model': MODELS['east'], 'input': 'hello'}, affinity=True).json()['id']

            def found(*ids):
                return [load.ask('GET', '/v1/responses/' + i).status_code for i in ids]
            first, second, third = keys
            of_first = store()
            change('the second key, to verify', first, second)
            load.more_of('pinned', 6)
            change('the second key, to sign', second, first)
            load.more_of('pinned', 6)
            of_second = store()
            assert of_first.split('.')[2] != of_second.split('.')[2], 'signed by another key'
            assert found(of_first, of_second) == [200, 200]
            change('the third key, to verify', second, first, third)
            change('the third key, to sign', third, second, first)
            load.more_of('pinned', 30)      # every chain goes on under ids of the third
            assert found(of_first, of_second, store()) == [200, 200, 200]
            change('the end of the first two', third)
            load.more_of('pinned', 12)
            assert found(of_first, of_second, store()) == [404, 404, 200]
        load.close('keys rotated twice')
        load.judge(None, set(), 0)


def make_certificate(folder, name, until):
    """A certificate that signs itself, good from 2020 to the time given as YYYYMMDDHHMMSSZ."""
    folder.mkdir()
    for file, text in (('index', ''), ('serial', '01'), ('ca.cnf', '[ca]\ndefault_ca=x\n[x]\ndatabase=index\nserial=serial\n'
                       'new_certs_dir=.\ndefault_md=sha256\npolicy=p\nx509_extensions=e\n[p]\ncommonName=supplied\n'
                       '[e]\nsubjectAltName=DNS:%s\nbasicConstraints=CA:TRUE\n' % name)):
        (folder / file).write_text(text)
    for words in (('req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', 'key.pem', '-out', 'csr.pem',
                   '-subj', '/CN=' + name),
                  ('ca', '-batch', '-selfsign', '-config', 'ca.cnf', '-keyfile', 'key.pem', '-in', 'csr.pem', '-out', 'cert.pem',
                   '-notext', '-startdate', '20200101000000Z', '-enddate', until)):
        subprocess.run(['openssl', *words], cwd=folder, check=True, capture_output=True, timeout=60)
    return folder


def test_a_certificate_of_a_site_expires(tmp_path):
    good = make_certificate(tmp_path / 'good', 'east.example', '20991231235959Z')
    old = make_certificate(tmp_path / 'old', 'east.example', '20210101000000Z')
    (tmp_path / 'ca.pem').write_text(read(good / 'cert.pem') + read(old / 'cert.pem'))

    def server(folder):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / 'cert.pem', folder / 'key.pem')
        return context
    grid, relays = grid_of(), []

    def behind_tls(name, make=grid.make_site):
        site = make(name)
        if name == 'east':
            relays.append(Relay(site.address, server(good)))
            site.address = relays[0].address
        return site

    def written(write=grid.write):
        def with_tls(name, value):
            for cluster in value.get('clusters', ()) if name == 'serving.json' else ():
                if cluster['name'] == 'pool-east':
                    cluster['tls'] = {'ca_path': str(tmp_path / 'ca.pem'), 'server_name': 'east.example'}
            write(name, value)
        return with_tls
    grid.make_site, grid.write = behind_tls, written()
    with grid:
        with Load(grid) as load:
            assert load.probe('east')[1] == 'east', 'it is reached by TLS'
            since = time.monotonic()
            relays[0].tls = server(old)
            relays[0].drop_all()            # what runs there is cut, and what comes next meets the old certificate
            dropped = time.monotonic()
            load.more(120)
            assert load.probe('east')[1] != 'east'
            relays[0].tls = server(good)
            eventually(lambda: load.probe('east')[1] == 'east', 60, 'the new certificate')
            load.more(30)
        load.close('certificate expired')
        load.judge('east', {'broken', '503'}, since, dropped, pinned={'503'})
        relays[0].stop()


def mounted(folder, kilobytes):
    """A file system of its own, of that size; skips, with the reason, where none can be mounted."""
    done = subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=%dk' % kilobytes, 'grid-faults', folder],
                          capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip('no file system can be mounted here: %s' % done.stderr.strip())


def test_the_disk_of_the_rendered_files_is_full(tmp_path):
    state = tmp_path / 'state'
    state.mkdir()
    mounted(state, 256)
    try:
        with grid_of(options=('--state-dir', str(state))) as grid:
            with Load(grid) as load:
                fill(state / 'filler')
                grid.serving_extra = dict(grid.serving_extra, candidates=[*candidates(), dict(candidates()[0], name='more')])
                grid.write_serving()
                eventually(lambda: 'No space left on device' in said(grid), what='the word of it')
                load.more(60)
                assert load.ask('GET', '/v1/models/more', decided=False).status_code == 404
                os.remove(state / 'filler')
                eventually(lambda: load.ask('GET', '/v1/models/more', decided=False).status_code == 200, what='room')
                load.more(30)
            load.close('disk full')
            load.judge(None, set(), 0)
    finally:
        subprocess.run(['umount', '-l', str(state)], check=True)


def fill(path):
    """Until not a byte more goes."""
    fd, size = os.open(path, os.O_WRONLY | os.O_CREAT), 4096
    try:
        while size:
            try:
                os.write(fd, b'x' * size)
            except OSError as error:
                assert error.errno == errno.ENOSPC
                size //= 2
    finally:
        os.close(fd)


def said(grid):
    with open(grid.errors.name, encoding='utf-8') as f:
        return f.read()
