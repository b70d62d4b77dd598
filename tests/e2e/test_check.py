"""`grid-gateway check`: what it accepts, and that each refusal names file, line and field."""
import json
import os
import subprocess

import pytest

from grid import BINARY, ROOT

SERVING = """\
local_site: east
candidates:
  - {kind: inference_model, name: llama, site: east, cluster: pool-east}
  - {kind: inference_model, name: llama, site: west, cluster: pool-west}
clusters:
  - {name: pool-east, endpoints: ["127.0.0.1:8000"]}
  - name: pool-west
    endpoints: ["west.example:8001"]
"""
GATEWAY = """\
listen: 127.0.0.1:8080
grid_site_route:
  model_header: X-Model
serving_config_path: serving.yaml
"""


def check(folder, gateway=GATEWAY, serving=SERVING, env=None, options=(), name='gateway.yaml'):
    """The command's result on these two files, run from another folder than theirs."""
    if serving is not None:
        (folder / 'serving.yaml').write_text(serving)
    (folder / name).write_text(gateway)
    whole = {k: v for k, v in os.environ.items() if k != 'GRID_SERVING_CONFIG'}
    whole.update(env or {})
    return subprocess.run([BINARY, 'check', '-c', str(folder / name), *options], capture_output=True, text=True,
                          env=whole, cwd='/', timeout=60)


def refusals(folder, *args, **kwargs):
    """Each refusal as (file name, line, field, message)."""
    done = check(folder, *args, **kwargs)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout == ''
    out = []
    for line in done.stderr.splitlines():
        path, number, rest = line.split(':', 2)
        field, message = rest.strip().split(': ', 1)
        out.append((os.path.basename(path), int(number), field, message))
    assert out
    return out


def test_a_good_pair_is_summed_up(tmp_path):
    done = check(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ''
    lines = dict(line.split(None, 1) for line in done.stdout.splitlines()[1:])
    assert lines['listen'] == '127.0.0.1:8080'
    assert lines['sites'] == 'east, west'
    assert lines['clusters'] == 'pool-east, pool-west'
    assert lines['models'] == 'llama'


def test_memory_without_a_bound_is_noted_and_no_refusal(tmp_path):
    for extra, missing in (('', 'max_heap_bytes'), ('max_heap_bytes: 1000000000\n', 'max_connections')):
        done = check(tmp_path, GATEWAY + extra)
        assert done.returncode == 0 and 'note      no %s:' % missing in done.stdout
    assert 'note' not in check(tmp_path, GATEWAY + 'max_heap_bytes: 1000000000\nmax_connections: 1000\n').stdout


def test_the_examples_are_good():
    done = subprocess.run([BINARY, 'check', '-c', os.path.join(ROOT, 'examples', 'gateway.yaml'), '--with-envoy'],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert 'models    llama' in done.stdout


def test_json_and_a_serving_config_in_place_are_read(tmp_path):
    serving = {'local_site': 'east', 'candidates': [{'kind': 'inference_model', 'name': 'm', 'site': 'east',
                                                      'cluster': 'p'}],
               'clusters': [{'name': 'p', 'endpoints': ['[::1]:9']}]}
    text = json.dumps({'listen': '[::1]:8080', 'max_body_bytes': 1048576, 'serving': serving}, indent=1)
    done = check(tmp_path, text, serving=None, name='gateway.json')
    assert done.returncode == 0, done.stderr
    assert 'listen    [::1]:8080' in done.stdout


def test_words_of_yaml_are_text_where_text_is_wanted(tmp_path):
    serving = SERVING.replace('name: llama, site: east', 'name: 007, site: no').replace('local_site: east',
                                                                                       'local_site: no')
    done = check(tmp_path, serving=serving)
    assert done.returncode == 0, done.stderr
    assert 'models    007, llama' in done.stdout
    assert 'sites     no, west' in done.stdout


def test_a_whole_number_in_exponent_form_is_one(tmp_path):
    assert check(tmp_path, GATEWAY + 'max_body_bytes: 1.048576e+06\n').returncode == 0
    assert refusals(tmp_path, GATEWAY + 'max_body_bytes: 1.5e+00\n')[0][1:3] == (5, 'max_body_bytes')


@pytest.mark.parametrize('line, field, says', [
    ('lissen: 127.0.0.1:1', 'lissen', 'unknown field'),
    ('role: provider', 'role', 'needs mutual TLS'),
    ('role: provider', 'role', 'needs peers_allowed'),
    ('role: provider', 'role', 'names another site, west'),
    ('role: other', 'role', 'must be consumer or provider'),
    ('role: 5', 'role', 'must be text'),
    ('peers_allowed: [a.example]', 'peers_allowed', 'only of role provider'),
    ('peers_allowed: []', 'peers_allowed', 'a list of 1 to 64'),
    ('peers_allowed: a.example', 'peers_allowed', 'a list of 1 to 64'),
    ('peers_allowed: ["a b"]', 'peers_allowed[0]', 'a DNS name or URI'),
    ('allowed_paths: [/v1/models]', 'allowed_paths', 'only of role provider'),
    ('allowed_paths: [v1]', 'allowed_paths[0]', "starts with '/'"),
    ('allowed_paths: ["/v1?x"]', 'allowed_paths[0]', 'without query'),
    ('allowed_paths: [/v1/models, /v1/responses/x]', 'allowed_paths[1]', 'stored ids'),
    ('allowed_paths: [/v1/conversations/x]', 'allowed_paths[0]', 'stored ids'),
    ('cors: {}', 'cors.allow_origins', 'missing'),
    ('cors: [a]', 'cors', 'must be a mapping of allow_origins'),
    ('cors: {allow_origins: [chat.example]}', 'cors.allow_origins[0]', 'an origin such as'),
    ('cors: {allow_origins: ["https://a/b"]}', 'cors.allow_origins[0]', 'an origin such as'),
    ('cors: {allow_origins: ["https://a"], allow_methods: [GE T]}', 'cors.allow_methods[0]', 'a method'),
    ('cors: {allow_origins: ["https://a"], allow_headers: ["a:"]}', 'cors.allow_headers[0]', 'a header'),
    ('cors: {allow_origins: ["https://a"], expose_headers: [""]}', 'cors.expose_headers[0]', 'a header'),
    ('cors: {allow_origins: ["https://a"], max_age_secs: 86401}', 'cors.max_age_secs', 'from 0 to 86400'),
    ('cors: {allow_origins: ["*"], allow_credentials: true}', 'cors.allow_credentials', 'every origin'),
    ('cors: {allow_origins: ["https://a"], allow_credentials: 1}', 'cors.allow_credentials', 'true or false'),
    ('cors: {allow_origins: ["https://a"], origins: []}', 'cors.origins', 'unknown field'),
    ('tracing: {}', 'tracing.endpoint', 'missing'),
    ('tracing: {endpoint: "http://a:1"}', 'tracing.endpoint', 'HOST:PORT'),
    ('tracing: {endpoint: "a:1", protocol: zipkin}', 'tracing.protocol', 'grpc or http'),
    ('tracing: {endpoint: "a:1", path: /x}', 'tracing.path', 'only of protocol http'),
    ('tracing: {endpoint: "a:1", protocol: http, path: x}', 'tracing.path', "starts with '/'"),
    ('tracing: {endpoint: "a:1", service_name: ""}', 'tracing.service_name', 'must be text'),
    ('tracing: {endpoint: "a:1", percent: 101}', 'tracing.percent', 'from 0 to 100'),
    ('tracing: {endpoint: "a:1", sampling: 1}', 'tracing.sampling', 'unknown field'),
    ('tls: {cert_path: gateway.yaml, key_path: gateway.yaml}', 'tls.cert_path', 'no certificate in it'),
    ('tls: {cert_path: gateway.yaml, key_path: gateway.yaml}', 'tls.key_path', 'no private key in it'),
    ('admin: 0.0.0.0:9901', 'admin', 'loopback'),
    ('admin: "[::]:9901"', 'admin', 'loopback'),
    ('admin: 127.0.0.1:8080', 'admin', 'same port'),
    ('ops: 0.0.0.0:8080', 'ops', 'same port'),
    ('ops: nowhere', 'ops', 'ADDRESS:PORT'),
    ('ops: localhost:9902', 'ops', 'localhost is not an IP address'),
    ('ops: 9902', 'ops', 'must be ADDRESS:PORT'),
    ('ops: 127.0.0.1:0', 'ops', 'ADDRESS:PORT'),
    ('ops: 127.0.0.1:65536', 'ops', 'ADDRESS:PORT'),
    ('max_body_bytes: 0', 'max_body_bytes', 'from 1 to'),
    ('max_body_bytes: 1_000', 'max_body_bytes', 'whole number'),
    ('max_body_bytes: .inf', 'max_body_bytes', 'whole number'),
    ('concurrency: -1', 'concurrency', 'from 1 to'),
    ('timeouts: {idle_ms: 1.5}', 'timeouts.idle_ms', 'whole number'),
    ('timeouts: {idle: 1}', 'timeouts.idle', 'unknown field'),
    ('timeouts: 5', 'timeouts', 'mapping'),
    ('log_level: loud', 'log_level', 'one of'),
    ('access_log: maybe', 'access_log', 'true or false'),
    ('http_filters_before: [{name: x}]', 'http_filters_before[0]', 'typed_config'),
    ('tls: {cert_path: /nonexistent, key_path: /nonexistent}', 'tls.cert_path', 'cannot read'),
    ('tls: {cert_path: gateway.yaml}', 'tls', 'both needed'),
    ('prefix_affinity: {}', 'prefix_affinity', 'unknown field'),
    ('listen: 127.0.0.1:1', 'syntax', 'duplicate'),
])
def test_a_wrong_field_is_named_with_its_line(tmp_path, line, field, says):
    found = refusals(tmp_path, GATEWAY + '# a comment\n' + line + '\n')
    assert [f for f in found if f[:3] == ('gateway.yaml', 6, field) and says in f[3]], found


def test_all_refusals_of_both_files_come_at_once(tmp_path):
    found = refusals(tmp_path, GATEWAY.replace('model_header: X-Model', 'prefix_affinity:\n    threshold: 1.5')
                     + 'role: provide\n', SERVING.replace('site: west', 'site: West'))
    places = {(name, line, field) for name, line, field, _ in found}
    assert ('gateway.yaml', 4, 'grid_site_route.prefix_affinity.threshold') in places
    assert ('gateway.yaml', 6, 'role') in places
    assert ('serving.yaml', 4, 'candidates[1].site') in places


def test_the_serving_config_is_held_to_its_fields(tmp_path):
    assert refusals(tmp_path, serving=SERVING + 'prefix_affinity: {}\n')[0][:3] == ('serving.yaml', 9,
                                                                                 'prefix_affinity')
    found = refusals(tmp_path, serving=SERVING.replace('"west.example:8001"', '"west.example"'))
    assert found[0][:2] == ('serving.yaml', 8) and found[0][2].startswith('clusters[1].endpoints')
    found = refusals(tmp_path, serving=SERVING + '    tls: {ca_path: missing.pem}\n')
    assert found == [('serving.yaml', 9, 'clusters[1].tls.ca_path', found[0][3])]
    assert str(tmp_path / 'missing.pem') in found[0][3], 'a path is taken from the folder of its file'


@pytest.mark.parametrize('line', [
    'cors: {allow_origins: ["https://chat.example", "http://localhost:3000"], allow_methods: [POST], allow_headers: [x-a], '
    'expose_headers: [x-b], max_age_secs: 0, allow_credentials: true}',
    'cors: {allow_origins: ["*"]}',
    'cors: null',
    'tracing: {endpoint: "collector.example:4317", service_name: edge, percent: 12.5}',
    'tracing: {endpoint: "[::1]:4318", protocol: http, path: /otlp/v1/traces}',
    'role: consumer',
    'access_log: true',
])
def test_a_right_field_is_taken_by_envoy_too(tmp_path, line):
    done = check(tmp_path, GATEWAY + line + '\n', options=('--with-envoy',))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize('line, field, says', [
    ('health: {path: /health, interval_ms: 0}', 'health.interval_ms', 'from 1 to 86400000'),
    ('health: {path: /health, healthy_threshold: 0}', 'health.healthy_threshold', 'from 1 to 100'),
    ('credential: {}', 'credential.bearer_path', 'missing'),
    ('credential: {bearer_path: nowhere}', 'credential.bearer_path', 'nowhere'),
    ('credential: {bearer_path: two}', 'credential.bearer_path', 'one word'),
    ('credential: {bearer_path: empty}', 'credential.bearer_path', 'nothing in it'),
    ('paths: [v1]', 'paths[0]', "starts with '/'"),
    ('model_alias: [llama]', 'model_alias', 'a mapping of at most 1024 models'),
    ('model_alias: {llama: [x]}', 'model_alias.llama', '1 to 256'),
    ('model_alias: {llama: " "}', 'model_alias.llama', 'not blank'),
    ('tls: {ca_path: cut.pem}', 'tls.ca_path', 'not whole'),
])
def test_a_wrong_field_of_a_cluster_is_named_with_its_line(tmp_path, line, field, says):
    (tmp_path / 'two').write_text('two words')
    (tmp_path / 'empty').write_text('\n')
    (tmp_path / 'cut.pem').write_text('-----BEGIN CERTIFICATE-----\nMIIB\n')
    found = refusals(tmp_path, serving=SERVING + '    ' + line + '\n')
    assert [f for f in found if f[:3] == ('serving.yaml', 9, 'clusters[1].' + field) and says in f[3]], found


def test_a_right_cluster_is_taken_by_envoy_too(tmp_path):
    (tmp_path / 'west.key').write_text('sk-west\n')
    serving = SERVING + ('    health: {path: /health, interval_ms: 1000, timeout_ms: 500, healthy_threshold: 2, unhealthy_threshold: 3}\n'
                         '    credential: {bearer_path: west.key}\n    paths: [/v1/chat/completions]\n'
                         '    signals: {path: /metrics, metric: x, how: sum, divisor: 2}\n'
                         '    model_alias: {llama: meta-llama/Llama-3.1-8B, 7: no}\n')
    done = check(tmp_path, serving=serving, options=('--with-envoy',))
    assert done.returncode == 0, done.stderr
    assert 'sk-west' not in done.stdout + done.stderr


def test_a_provider(tmp_path):
    for name in ('peer', 'own'):
        subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2',
                        '-keyout', tmp_path / (name + '.key'), '-out', tmp_path / (name + '.pem'), '-subj', '/CN=' + name],
                       check=True, capture_output=True, timeout=60)
    gateway = ('listen: 127.0.0.1:8080\nrole: provider\npeers_allowed: [east.example, "spiffe://grid/east"]\n'
               'tls: {cert_path: own.pem, key_path: own.key, client_ca_path: peer.pem}\nserving_config_path: serving.yaml\n')
    serving = SERVING.replace('  - {kind: inference_model, name: llama, site: west, cluster: pool-west}\n', '')
    done = check(tmp_path, gateway, serving, options=('--with-envoy',))
    assert done.returncode == 0, done.stderr
    done = check(tmp_path, gateway + 'allowed_paths: [/v1/models, /metrics]\n', serving, options=('--with-envoy',))
    assert done.returncode == 0, done.stderr
    found = refusals(tmp_path, gateway + 'grid_site_route: {}\n', serving)
    assert found == [('gateway.yaml', 6, 'grid_site_route', 'not of role provider: it routes nothing')]
    two = SERVING.replace('site: west', 'site: east')
    assert refusals(tmp_path, gateway, two) == [
        ('gateway.yaml', 2, 'role', 'provider forwards to one local cluster: candidates[1] of the serving config names '
                                    'another cluster, pool-west')]
    peers = 'local_site: east\nwindow_secs: 60\nload_window_ms: 30000\ncandidates: []\npeers: []\n'
    assert 'provider needs clusters' in refusals(tmp_path, gateway, peers)[0][3]


def test_a_tag_key_must_be_there_and_long_enough(tmp_path):
    gateway = GATEWAY.replace('model_header: X-Model', 'prefix_affinity: {tag_key_path: tag.key}')
    field = 'grid_site_route.prefix_affinity.tag_key_path'
    assert refusals(tmp_path, gateway)[0][:3] == ('gateway.yaml', 3, field)
    (tmp_path / 'tag.key').write_bytes(b'k' * 31)
    assert '31 bytes; a key has at least 32 bytes' in refusals(tmp_path, gateway)[0][3]
    (tmp_path / 'tag.key').write_bytes(b'k' * 32)
    os.chmod(tmp_path / 'tag.key', 0o640)
    done = check(tmp_path, gateway)
    assert done.returncode == 0
    assert 'tag.key: others than its owner may read it (mode 0640)' in done.stderr
    os.chmod(tmp_path / 'tag.key', 0o600)
    assert check(tmp_path, gateway).stderr == ''
    (tmp_path / 'old.key').write_bytes(b'k' * 31)
    two = GATEWAY.replace('model_header: X-Model', 'prefix_affinity:\n    tag_key_path:\n    - tag.key\n    - old.key')
    found = refusals(tmp_path, two)
    assert [f[:3] for f in found] == [('gateway.yaml', 6, field + '[1]')]
    assert 'old.key has 31 bytes; a key has at least 32 bytes' in found[0][3]


def test_two_clusters_with_one_mark_are_refused(tmp_path):
    serving = SERVING.replace('pool-east', 'pool-13038').replace('pool-west', 'pool-20737')
    found = refusals(tmp_path, serving=serving)
    assert found[0][:3] == ('serving.yaml', 4, 'candidates[1].cluster')
    assert 'pool-13038 and pool-20737' in found[0][3]


@pytest.mark.parametrize('odd', ['fifo', 'folder', 'device'])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, odd):
    path = tmp_path / 'odd'
    if odd == 'fifo':
        os.mkfifo(path)
    elif odd == 'folder':
        path.mkdir()
    else:
        path.symlink_to('/dev/zero')
    tls, key = 'tls: {cert_path: odd, key_path: odd}\n', 'grid_site_route: {prefix_affinity: {tag_key_path: odd}}\n'
    route = 'grid_site_route:\n  model_header: X-Model\n'
    found = refusals(tmp_path, GATEWAY.replace('serving.yaml', 'odd'))
    assert found[0][:3] == ('odd', 1, 'file') and 'not a regular file' in found[0][3]
    found = refusals(tmp_path, GATEWAY.replace(route, key))
    assert found[0][1:3] == (2, 'grid_site_route.prefix_affinity.tag_key_path') and 'not a regular file' in found[0][3]
    found = refusals(tmp_path, GATEWAY + tls)
    assert [(f[2], 'not a regular file' in f[3]) for f in found] == [('tls.cert_path', True), ('tls.key_path', True)]
    done = subprocess.run([BINARY, 'run', '-c', str(path)], capture_output=True, text=True, timeout=10)
    assert done.returncode == 1 and 'not a regular file' in done.stderr


def test_the_variable_names_the_serving_config_too(tmp_path):
    bare = GATEWAY.replace('serving_config_path: serving.yaml\n', '')
    serving = str(tmp_path / 'serving.yaml')
    assert refusals(tmp_path, bare)[0][2] == 'serving_config_path'
    assert check(tmp_path, bare, env={'GRID_SERVING_CONFIG': serving}).returncode == 0
    assert check(tmp_path, env={'GRID_SERVING_CONFIG': serving}).returncode == 0, 'the same file twice is no clash'
    (tmp_path / 'other.yaml').write_text(SERVING)
    found = refusals(tmp_path, env={'GRID_SERVING_CONFIG': str(tmp_path / 'other.yaml')})
    assert found[0][1:3] == (4, 'serving_config_path')
    in_place = bare + 'serving: ' + json.dumps({'local_site': 'east', 'candidates': [], 'peers': [],
                                                'window_secs': 60, 'load_window_ms': 30000}) + '\n'
    assert check(tmp_path, in_place).returncode == 0
    assert refusals(tmp_path, in_place, env={'GRID_SERVING_CONFIG': serving})[0][2] == 'serving'


@pytest.mark.parametrize('text, line', [
    ('listen: 127.0.0.1:1\nadmin: *a\n', 2),
    ('# anchored text\nlisten: &a 127.0.0.1:1\n', 2),
    ('# anchored mapping\ntimeouts: &a {idle_ms: 1}\n', 2),
    ('# anchored list\nhttp_filters_before: &a []\n', 2),
    ('listen: 127.0.0.1:1\n---\nadmin: x\n', 2),
    ('listen: 127.0.0.1:1\nops: !foo x\n', 2),
    ('listen: 127.0.0.1:1\n\n[a]: x\n', 3),
    ('listen: "127.0.0.1:1\n', 2),
    ('a: ' + '[' * 70 + ']' * 70 + '\n', 1),
    ('listen: 127.0.0.1:1\n\tops: x\n', 2),
])
def test_what_is_no_plain_yaml_is_refused(tmp_path, text, line):
    found = refusals(tmp_path, text)
    assert found[0][2] == 'syntax'
    assert found[0][1] in (line, line - 1), found
    assert ('&a' not in text) or found[0][3] == 'anchors are not supported'


def test_a_missing_file_and_an_empty_one_are_refused(tmp_path):
    assert refusals(tmp_path, serving=None)[0][0] == 'serving.yaml'
    assert refusals(tmp_path, '')[0][2] == 'document'
    assert refusals(tmp_path, '[]')[0][2] == 'document'


def test_envoy_judges_its_own_filters(tmp_path):
    text = GATEWAY + 'http_filters_before:\n  - name: envoy.filters.http.cors\n    typed_config: {"@type": "%s"}\n'
    good = 'type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors'
    done = check(tmp_path, text % good, options=('--with-envoy',))
    assert done.returncode == 0, done.stderr
    done = check(tmp_path, text % (good + 'Nonsense'), options=('--with-envoy',))
    assert done.returncode == 1
    assert 'Envoy refuses' in done.stderr


def test_the_command_line(tmp_path):
    def status(*args):
        return subprocess.run([BINARY, 'check', *args], capture_output=True, text=True, timeout=60)
    assert status().returncode == 2
    assert status('-c').returncode == 2
    assert status('-c', 'a', 'b').returncode == 2
    assert status('--nonsense').returncode == 2
    shown = status('--help')
    assert shown.returncode == 0 and 'Exit status' in shown.stdout and shown.stderr == ''
