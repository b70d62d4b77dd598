"""The tables of docs/configuration.md against the command, and the command's table against what the gateway does."""
import json
import os
import re
import subprocess
import sys

import pytest

import pages

sys.path.insert(0, os.path.join(pages.ROOT, 'tests', 'e2e'))
import grid as e2e  # noqa: E402

# Another value than the default for every field of the gateway's file that waits for a restart; None: see there.
OTHER = {
    'listen': '127.0.0.1:1', 'admin': '127.0.0.1:2', 'ops': '127.0.0.1:3', 'max_body_bytes': 1000, 'max_heap_bytes': 1 << 40,
    'failover_max_body_bytes': 1000,
    'max_connections': 1000, 'concurrency': 2, 'timeouts.request_body_ms': 1000, 'timeouts.idle_ms': 1000, 'timeouts.total_ms': 99000,
    'access_log': True, 'log_level': 'error', 'role': None, 'tls': None, 'trace_keys': None,
    'http_filters_before': [{'name': 'a', 'typed_config': {'@type': 'type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer',
                                                            'max_request_bytes': 9}}],
    'cors': {'allow_origins': ['*']}, 'tracing': {'endpoint': '127.0.0.1:4'}, 'timeouts': {'total_ms': 99000},
}
HOT = {'serving_config_path': None, 'serving': None, 'grid_site_route': {'prefix_affinity': {'threshold': 0.5}},
       'timeouts.connect_ms': 2000, 'peers_allowed': None, 'allowed_paths': None,
       'tls.cert_path': None, 'tls.key_path': None, 'tls.client_ca_path': None}    # None: followed in tests/e2e/test_service.py and test_reload.py


def rows():
    out = subprocess.run([pages.BINARY, 'check', '--fields'], check=True, capture_output=True, text=True).stdout.splitlines()
    return [dict(zip(out[0].split('\t'), line.split('\t'))) for line in out[1:]]


def gateway_rows():
    return [row for row in rows() if row['file'] == 'gateway' and not row['field'].startswith('grid_site_route.')]


def script(*arguments, **options):
    return subprocess.run([sys.executable, os.path.join(pages.ROOT, 'scripts', 'docs-fields'), *arguments], text=True,
                          env=dict(os.environ, GRID_GATEWAY=pages.BINARY), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)


def test_tables_are_up_to_date():
    done = script('--check')
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize('was,becomes,words', [
    ('0.02', '0.03', 'out of date'), ('name\trequired', 'nom\trequired', 'stands in no table|say in the last column'),
    ('restart', 'hot', 'out of date'),
])
def test_a_table_that_lies_fails(was, becomes, words, tmp_path):
    """A command that prints something else than the page has."""
    fake = tmp_path / 'grid-gateway'
    fake.write_text('#!/bin/sh\n"%s" "$@" | sed "s/%s/%s/"\n' % (pages.BINARY, was, becomes), encoding='utf-8')
    fake.chmod(0o755)
    done = subprocess.run([sys.executable, os.path.join(pages.ROOT, 'scripts', 'docs-fields'), '--check'], text=True, capture_output=True,
                          env=dict(os.environ, GRID_GATEWAY=str(fake)))
    assert done.returncode == 1 and re.search(words, done.stdout), done.stdout


def test_examples_have_every_field():
    """With its default, or as an example that is commented out."""
    for name, file in (('gateway.yaml', 'gateway'), ('serving.yaml', 'serving')):
        with open(os.path.join(pages.ROOT, 'examples', name), encoding='utf-8') as f:
            text = f.read()
        # What is read for the sake of others' files only.
        skip = re.compile(r'^peers(\[|$)|^serving$|\.filter$|\.clusters|fresh$|candidates\[\]\.credential$|stable_id$')
        lacks = [row['field'] for row in rows() if row['file'] == file and not skip.search(row['field']) and
                 not re.search(r'\b%s:' % re.escape(row['field'].split('.')[-1]), text)]
        assert lacks == []


def assign(document, path, value):
    *folders, last = path.split('.')
    for one in folders:
        document = document.setdefault(one, {})
    document[last] = value


def typed(row):
    """A default as it is written in the file."""
    text = row['default']
    if re.fullmatch(r'\d+|true|false', text):
        return json.loads(text)
    return [one.strip() for one in text.split(',')] if row['accepts'].startswith('a list') else text


class Running:
    """A gateway whose file is rewritten; says what became of it."""

    def __init__(self, grid):
        self.grid, self.path = grid, os.path.join(grid.folder, 'gateway.json')
        with open(self.path, encoding='utf-8') as f:
            self.base = json.load(f)
        self.turn = 0

    def write(self, changes):
        """The refusal's words, or '' when the file was taken."""
        self.turn += 1
        document = json.loads(json.dumps(self.base))
        affinity = document.setdefault('grid_site_route', {}).setdefault('prefix_affinity', {})
        affinity['capacity'] = 20000 + self.turn      # so that there is a change, and its being taken can be seen
        for path, value in changes.items():
            if path == 'grid_site_route':
                affinity.update(value['prefix_affinity'])
            else:
                assign(document, path, value)
        before = self.refusals()
        self.grid.write('gateway.json', document)
        return e2e.eventually(lambda: self.outcome(before), what='a verdict on %r' % changes)[0]

    def outcome(self, before):
        if self.grid.ops.get('/grid').json()['settings']['prefix_affinity']['capacity'] == 20000 + self.turn:
            return ['']
        if self.refusals() == before:
            return None
        return [self.grid.ops.get('/grid').json()['reload']['last_refusal']['error']]

    def refusals(self):
        return self.grid.metrics()['grid_serving_config_reload_total{result="rejected"}']


def test_every_field_is_tried():
    waiting = {row['field'] for row in gateway_rows() if row['change'] == 'restart' and '.' not in row['field'] or
               row['field'].startswith('timeouts.') and row['change'] == 'restart'}
    assert waiting == set(OTHER)
    assert {row['field'] for row in gateway_rows() if row['change'] == 'hot'} == set(HOT)
    assert [row['field'] for row in rows() if row['file'] == 'serving' and row['change'] == 'restart'] == ['window_secs']


def test_default_and_restart():
    """A default that is written out changes nothing; a change of what needs a restart is refused by name, of what is hot taken."""
    with e2e.Grid(gateway={'concurrency': 2}) as grid:
        running = Running(grid)
        defaults = {row['field']: typed(row) for row in gateway_rows() if row['default'] not in ('none', 'required') and
                    row['field'].split('.')[0] not in ('listen', 'admin', 'ops', 'cors', 'tracing', 'allowed_paths', 'trace_keys')}
        assert len(defaults) > 6
        assert running.write(defaults) == ''
        for field, value in OTHER.items():
            if value is not None:
                value = 3 if field == 'concurrency' else value
                assert running.write({}) == ''       # a refusal for the same reason is told once
                words = running.write({field: value})
                assert 'a change of it needs a restart' in words and field.split('.')[0] in words, (field, words)
        for field, value in HOT.items():
            if value is not None:
                assert running.write({field: value}) == '', field
