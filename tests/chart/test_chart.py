"""The chart: rendered with default and with other values, compared with golden files, judged by Kubernetes' own schemas; what the
gateway refuses is refused; and what is rendered is given to `grid-gateway check` and serves.

GRID_GOLDEN=write writes the golden files anew.
"""
import contextlib
import os
import re
import subprocess
import sys

import httpx
import pytest
import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'e2e'))
from grid import BINARY, Site, eventually, free_port, prose  # noqa: E402

HERE = os.path.join(ROOT, 'tests', 'chart')
CHART = os.path.join(ROOT, 'chart', 'grid-gateway')
HELM = os.path.join(ROOT, '.venv-ship', 'bin', 'helm')
SITES = ('east', 'west', 'north')
EXAMPLES = {'%s-%s' % (site, role): os.path.join(CHART, 'examples', 'three-sites', '%s-%s.yaml' % (site, role))
            for site in SITES for role in ('consumer', 'provider')}
CASES = dict({'default': None, 'everything': os.path.join(HERE, 'values', 'everything.yaml'),
              'operator': os.path.join(HERE, 'values', 'operator.yaml')}, **EXAMPLES)


def helm(*arguments, input=None):
    return subprocess.run([HELM, *arguments], capture_output=True, text=True, input=input)


def render(values=None, *sets):
    done = helm('template', 'grid', CHART, '--namespace', 'gate', *(['-f', values] if values else []), *sets)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(text):
    return {(o['kind'], o['metadata']['name']): o for o in yaml.safe_load_all(text) if o}


def refusal(values):
    """What helm says to values that must be refused."""
    done = helm('template', 'grid', CHART, '-f', '-', input=yaml.safe_dump(values))
    assert done.returncode != 0, 'accepted: %r' % values
    return done.stderr


# ---- rendering ----

def test_lint():
    for name, values in CASES.items():
        done = helm('lint', '--strict', CHART, *(['-f', values] if values else []))
        assert done.returncode == 0, '%s: %s' % (name, done.stdout)


@pytest.mark.parametrize('name', CASES)
def test_golden(name):
    path = os.path.join(HERE, 'golden', name + '.yaml')
    text = render(CASES[name])
    # The dashboard is long and has its own test.
    text = re.sub(r'(?m)^  grid-gateway\.json: \|\n(?:(?:    .*)?\n)+', '  grid-gateway.json: (left out)\n', text)
    text = re.sub(r'[ \t]+$', '', text, flags=re.M)
    if os.environ.get('GRID_GOLDEN') == 'write':
        with open(path, 'w', encoding='utf-8') as f:
            f.write(text)
    with open(path, encoding='utf-8') as f:
        assert text == f.read(), 'golden/%s.yaml differs; GRID_GOLDEN=write writes it anew' % name


def test_kubernetes_takes_it(tmp_path):
    paths = []
    for name, values in CASES.items():
        paths.append(str(tmp_path / (name + '.yaml')))
        with open(paths[-1], 'w', encoding='utf-8') as f:
            f.write(render(values))
    done = subprocess.run([os.path.join(ROOT, '.venv-ship', 'bin', 'python'), os.path.join(HERE, 'validate.py'), *paths],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_judge_of_manifests_can_say_no(tmp_path):
    (tmp_path / 'bad.yaml').write_text(render().replace('automountServiceAccountToken', 'automountServiceAcountToken'))
    rule = objects(render(CASES['everything']))['PrometheusRule', 'edge']
    rule['spec']['groups'][0]['rules'][0]['fro'] = '5m'
    (tmp_path / 'rule.yaml').write_text(yaml.safe_dump(rule))
    done = subprocess.run([os.path.join(ROOT, '.venv-ship', 'bin', 'python'), os.path.join(HERE, 'validate.py'),
                           str(tmp_path / 'bad.yaml'), str(tmp_path / 'rule.yaml')], capture_output=True, text=True)
    assert done.returncode == 1 and 'automountServiceAcountToken' in done.stdout and 'fro' in done.stdout


def test_made_files_are_up_to_date():
    done = subprocess.run([os.path.join(ROOT, 'scripts', 'chart-files'), '--check'], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_every_value_has_words_and_a_default():
    """A leaf of values.yaml without a comment is missing in the README's table, unless it belongs to a described mapping."""
    with open(os.path.join(CHART, 'values.yaml'), encoding='utf-8') as f:
        values = yaml.safe_load(f)
    with open(os.path.join(CHART, 'README.md'), encoding='utf-8') as f:
        described = set(re.findall(r'^\| `([^`]+)` \|', f.read(), re.M))
    bare = []

    def walk(path, value):
        if path in described:
            return
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                walk((path + '.' if path else '') + key, inner)
        elif not any(path.startswith(d + '.') for d in described):
            bare.append(path)
    walk('', values)
    assert not bare


def test_only_what_a_gateway_does_not_follow_rolls_the_pods():
    def checksum(*sets):
        deployment = objects(render(CASES['everything'], *sets))['Deployment', 'edge']
        return deployment['spec']['template']['metadata']['annotations']['checksum/restart']
    assert checksum() == checksum('--set-json', 'gridServing.siteRoute.prefixAffinity.threshold=0.9')
    assert checksum() == checksum('--set', 'gateway.timeouts.connect_ms=900')
    assert checksum() == checksum('--set', 'serving.load_window_ms=9000')
    assert checksum() != checksum('--set', 'gateway.timeouts.total_ms=900')
    assert checksum() != checksum('--set', 'gateway.max_connections=7')


def test_a_pod_is_given_longer_to_end_than_its_streams():
    deployment = objects(render(CASES['everything']))['Deployment', 'edge']['spec']['template']['spec']
    arguments = deployment['containers'][0]['args']
    drain, linger = (int(arguments[arguments.index(o) + 1]) for o in ('--drain-seconds', '--linger-seconds'))
    assert (drain, linger) == (3600, 30) and deployment['terminationGracePeriodSeconds'] > drain + linger


def test_operators_config_map():
    def volume(*sets):
        found = objects(render(None, '--set', 'gridServing.enabled=true', *sets))
        deployment = next(o for (kind, _), o in found.items() if kind == 'Deployment')['spec']['template']['spec']
        return next(v for v in deployment['volumes'] if v['name'] == 'serving')['configMap']['name']
    assert volume('--set', 'gridServing.network=home') == 'grid-serving-home-grid-grid-gateway'
    assert volume('--set', 'gridServing.network=home,gridServing.gatewayRef=edge') == 'grid-serving-home-edge'
    assert volume('--set', 'gridServing.configMap=mine') == 'mine'
    assert 'network is needed' in refusal({'gridServing': {'enabled': True}})
    assert '63 characters' in refusal({'gridServing': {'enabled': True, 'network': 'n' * 60}})


# ---- refusals ----

AFFINITY = [{'spread_ties': 1}, {'threshold': 0}, {'threshold': 1.1}, {'exploration': -0.1}, {'exploration': 1.1}, {'prefill_tokens_per_second': 0},
            {'queued_request_seconds': -1}, {'capacity': 0}, {'capacity': 1.5}, {'capacity': 67108865}, {'ttl_secs': 0},
            {'ttl_secs': 4611686019}, {'enabled': 'yes'}, {'treshold': 0.5}, {'tag_key_path': []}, {'tag_key_path': ['k'] * 9}]
GATEWAY = [{'max_body_bytes': 0}, {'failover_max_body_bytes': -1}, {'max_body_bytes': 2147483649}, {'concurrency': 1025}, {'log_level': 'loud'},
           {'timeouts': {'connect_ms': 0}}, {'timeouts': {'idle': 5}}, {'listen': '0.0.0.0:1'}, {'cors': {}},
           {'cors': {'allow_origins': ['*'], 'allow_credentials': True}}, {'cors': {'allow_origins': ['chat.example']}},
           {'tracing': {'protocol': 'http'}}, {'tracing': {'endpoint': 'c:1', 'path': '/x'}},
           {'trace_keys': {'path': '/a'}}, {'trace_keys': {'path': '/a', 'secret_path': '/b', 'max_bytes': 0}},
           {'tracing': {'endpoint': 'c:1', 'percent': 101}}, {'http_filters_before': [{'name': 'x'}]}, {'unknown': 1}]
GOOD = {'local_site': 'east', 'candidates': [{'kind': 'inference_model', 'name': 'm', 'site': 'east', 'cluster': 'c'}],
        'clusters': [{'name': 'c', 'endpoints': ['127.0.0.1:1']}]}


def serving(**changes):
    return dict(GOOD, **changes)


CANDIDATE, CLUSTER = GOOD['candidates'][0], GOOD['clusters'][0]
SERVING = [serving(local_site='East'), serving(local_site='-e'), serving(local_site='e' * 64), serving(window_secs=0),
           serving(load_window_ms=0), serving(candidates=[dict(CANDIDATE, kind='other')]),
           serving(candidates=[dict(CANDIDATE, name=' ')]), serving(candidates=[dict(CANDIDATE, name='x' * 257)]),
           serving(candidates=[dict(CANDIDATE, admission='some')]), serving(candidates=[dict(CANDIDATE, cluster='other')]),
           serving(clusters=[dict(CLUSTER, endpoints=[])]), serving(clusters=[dict(CLUSTER, endpoints=['nowhere'])]),
           serving(clusters=[dict(CLUSTER, signals={'interval_ms': 0})]), serving(clusters=[dict(CLUSTER, signals=True)]),
           serving(clusters=[dict(CLUSTER, signals={'divisor': 0})]), serving(clusters=[dict(CLUSTER, health={})]),
           serving(clusters=[dict(CLUSTER, tls={'cert_path': 'x'})]), serving(clusters=[CLUSTER, CLUSTER]),
           serving(prefix_affinity={}), serving(clusters=[dict(CLUSTER, colour='red')])]


def gateway_says(tmp_path, fields):
    with open(tmp_path / 'gateway.yaml', 'w', encoding='utf-8') as f:
        yaml.safe_dump(dict({'serving': GOOD}, **fields), f)
    return subprocess.run([BINARY, 'check', '-c', str(tmp_path / 'gateway.yaml')], capture_output=True, text=True)


@pytest.mark.parametrize('affinity', AFFINITY, ids=repr)
def test_chart_and_gateway_refuse_the_same_settings(affinity, tmp_path):
    refusal({'gridServing': {'siteRoute': {'prefixAffinity': affinity}}})
    assert gateway_says(tmp_path, {'grid_site_route': {'prefix_affinity': affinity}}).returncode == 1


@pytest.mark.parametrize('header', ['X-Praxis-Model', 'x-mcp-m', 'no blank'])
def test_chart_and_gateway_refuse_the_same_headers(header, tmp_path):
    refusal({'gridServing': {'siteRoute': {'modelHeader': header}}})
    assert gateway_says(tmp_path, {'grid_site_route': {'model_header': header}}).returncode == 1


@pytest.mark.parametrize('gateway', GATEWAY, ids=repr)
def test_chart_and_gateway_refuse_the_same_fields(gateway, tmp_path):
    refusal({'gateway': gateway})
    if 'listen' not in gateway:         # which the chart gives itself
        assert gateway_says(tmp_path, gateway).returncode == 1


@pytest.mark.parametrize('given', SERVING, ids=lambda g: repr({k: v for k, v in g.items() if v != GOOD.get(k)}))
def test_chart_and_gateway_refuse_the_same_serving_config(given, tmp_path):
    refusal({'serving': given})
    assert gateway_says(tmp_path, {'serving': given}).returncode == 1


TLS = {'secretName': 's', 'clientCaSecretName': 'c'}


@pytest.mark.parametrize('values, words', [
    ({'role': 'other'}, 'role'), ({'replicas': -1}, 'replicas'), ({'nonsense': 1}, 'nonsense'),
    ({'role': 'provider', 'gateway': {'peers_allowed': ['a']}}, 'mutual TLS'), ({'role': 'provider', 'tls': TLS}, 'peers_allowed'),
    ({'role': 'provider', 'tls': TLS, 'gateway': {'peers_allowed': ['a']}, 'tagKeys': {'secretName': 't'}}, 'routes nothing'),
    ({'role': 'provider', 'tls': TLS, 'gateway': {'peers_allowed': ['a'], 'allowed_paths': ['/v1/responses/x']}}, 'allowed_paths'),
    ({'role': 'provider', 'tls': TLS, 'gateway': {'peers_allowed': ['a']}, 'serving': dict(GOOD, local_site='west')}, 'own site'),
    ({'gateway': {'peers_allowed': ['a']}}, 'only of role provider'), ({'tls': {'clientCaSecretName': 'c'}}, 'needs tls.secretName'),
    ({'tagKeys': {'secretName': 't'}, 'gridServing': {'siteRoute': {'prefixAffinity': {'tag_key_path': 'x'}}}}, 'one of the two'),
    ({'autoscaling': {'enabled': True, 'minReplicas': 3, 'maxReplicas': 2}}, 'below minReplicas')], ids=repr)
def test_what_cannot_work_is_refused(values, words):
    assert words in refusal(values)


def test_schema_knows_every_documented_field():
    """A field that the gateway reads and the chart's schema does not know could not be set through the chart."""
    import json
    with open(os.path.join(CHART, 'values.schema.json'), encoding='utf-8') as f:
        known = json.load(f)['definitions']
    with open(os.path.join(ROOT, 'docs', 'configuration.md'), encoding='utf-8') as f:
        fields = set(re.findall(r'^\| `([a-z_.\[\]]+)`', f.read(), re.M))
    for prefix, where in (('grid_site_route.prefix_affinity.', 'prefixAffinity'), ('clusters[].', 'cluster'), ('candidates[].', 'candidate')):
        names = {f[len(prefix):].split('.')[0] for f in fields if f.startswith(prefix)}
        assert names and names <= set(known[where]['properties']), where
    own = {'listen', 'admin', 'ops', 'tls', 'role', 'grid_site_route', 'serving_config_path', 'serving', 'filter', 'model_header',
           'local_site', 'window_secs', 'load_window_ms', 'candidates', 'clusters', 'peers'}
    names = {f.split('.')[0] for f in fields if '[' not in f}
    assert names - own <= set(known['gateway']['properties'])


# ---- for real ----

class Rendered:
    """A release's pod as files in a folder: each mounted ConfigMap and Secret at its place below it."""

    def __init__(self, folder, values, secrets, ports):
        self.folder, self.ports = str(folder), ports
        found = objects(render(values))
        pod = next(o for (kind, _), o in found.items() if kind == 'Deployment')['spec']['template']['spec']
        self.arguments = pod['containers'][0]['args']
        volumes = {v['name']: v for v in pod['volumes']}
        for mount in pod['containers'][0]['volumeMounts']:
            volume = volumes[mount['name']]
            if 'configMap' in volume:
                files = found['ConfigMap', volume['configMap']['name']]['data']
            elif 'secret' in volume:
                files = secrets[volume['secret']['secretName']]
            else:
                files = {}
            os.makedirs(self.folder + mount['mountPath'], exist_ok=True)
            for name, text in files.items():
                with open('%s%s/%s' % (self.folder, mount['mountPath'], name), 'wb') as f:
                    f.write(self.placed(text) if isinstance(text, str) else text)
                os.chmod('%s%s/%s' % (self.folder, mount['mountPath'], name), 0o600)

    def placed(self, text):
        """Paths below the folder; addresses and ports of this test."""
        text = text.replace('/etc/grid-gateway', self.folder + '/etc/grid-gateway')
        for old, new in self.ports.items():
            text = text.replace(old, new)
        return text.encode()

    def argument(self, text):
        return self.folder + text if text.startswith('/') else text

    def check(self):
        return subprocess.run([BINARY, 'check', '-c', self.folder + '/etc/grid-gateway/gateway/gateway.yaml'],
                              capture_output=True, text=True)

    def run(self, log):
        return subprocess.Popen([BINARY, *map(self.argument, self.arguments)], stdout=log, stderr=subprocess.STDOUT)


def openssl(*arguments, cwd):
    done = subprocess.run(['openssl', *arguments], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope='module')
def secrets(tmp_path_factory):
    """A CA, and for each site the Secrets of examples/three-sites/README.md."""
    folder = tmp_path_factory.mktemp('certificates')
    openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2', '-subj', '/CN=grid',
            '-keyout', 'ca.key', '-out', 'ca.crt', cwd=folder)
    out = {}
    for site in SITES:
        (folder / 'names').write_text('subjectAltName=DNS:%s.grid.example\n' % site)
        openssl('req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-subj', '/CN=' + site, '-keyout',
                site + '.key', '-out', site + '.csr', cwd=folder)
        openssl('x509', '-req', '-in', site + '.csr', '-CA', 'ca.crt', '-CAkey', 'ca.key', '-CAcreateserial', '-days', '2',
                '-extfile', 'names', '-out', site + '.crt', cwd=folder)
        pair = {'tls.crt': (folder / (site + '.crt')).read_bytes(), 'tls.key': (folder / (site + '.key')).read_bytes()}
        ca = {'ca.crt': (folder / 'ca.crt').read_bytes()}
        out[site] = {'grid-site': pair, 'grid-ca': ca, 'grid-peers': dict(pair, **ca), 'grid-tag-key': {'tag.key': b'k' * 32}}
    return out


@pytest.mark.parametrize('name', CASES)
def test_gateway_accepts_what_is_rendered(name, secrets, tmp_path):
    site = name.split('-')[0] if name in EXAMPLES else 'east'
    given = dict(secrets[site], **{
        'tag-keys': {'new.key': b'n' * 32, 'old.key': b'o' * 32}, 'edge-tls': secrets['east']['grid-site'],
        'clients-ca': secrets['east']['grid-ca'], 'west-secret': dict(secrets['east']['grid-ca'], key=b'word', recording=b'r' * 32)})
    if name == 'operator':      # the operator's own ConfigMap stands in no release
        text = render(CASES[name])
        rendered = objects(text)['ConfigMap', 'grid-grid-gateway']['data']['gateway.yaml']
        os.makedirs(tmp_path / 'serving')
        (tmp_path / 'gateway.yaml').write_text(rendered.replace('/etc/grid-gateway', str(tmp_path)))
        (tmp_path / 'serving' / 'serving.yaml').write_text(yaml.safe_dump(GOOD))
        done = subprocess.run([BINARY, 'check', '-c', str(tmp_path / 'gateway.yaml')], capture_output=True, text=True)
    else:
        done = Rendered(tmp_path, CASES[name], given, {}).check()
    assert done.returncode == 0, done.stderr


def test_three_sites_serve_as_rendered(secrets, tmp_path):
    """East's consumer, and the providers of west and north that it reaches by mutual TLS; a simulated engine at each site."""
    with contextlib.ExitStack() as stack:
        sites = {name: Site(name, str(tmp_path), ('--prefill-tps', '1000000', '--decode-tps', '5000')) for name in SITES}
        for site in sites.values():
            stack.callback(site.stop)
        listens = {name: {k: '127.0.0.1:%d' % free_port() for k in ('listen', 'admin', 'ops')} for name in SITES}

        def ports(name):
            out = {'llama.models.svc.cluster.local:8000': sites[name].address, '0.0.0.0:8080': listens[name]['listen'],
                   '127.0.0.1:9901': listens[name]['admin'], '0.0.0.0:9902': listens[name]['ops']}
            out.update({'%s.grid.example:443' % peer: listens[peer]['listen'] for peer in SITES if peer != name})
            return out
        for name, role in (('west', 'provider'), ('north', 'provider'), ('east', 'consumer')):
            rendered = Rendered(tmp_path / (name + role), EXAMPLES['%s-%s' % (name, role)], secrets[name], ports(name))
            log = stack.enter_context(open(tmp_path / (name + '.log'), 'w+', encoding='utf-8'))
            process = rendered.run(log)
            stack.callback(process.wait)
            stack.callback(process.kill)

            def ready(process=process, log=log, name=name):
                if process.poll() is not None:
                    log.seek(0)
                    raise AssertionError(log.read()[-3000:])
                with contextlib.suppress(httpx.HTTPError):
                    return httpx.get('http://%s/ready' % listens[name]['ops']).status_code == 200
            eventually(ready, 60, name)
        east = stack.enter_context(httpx.Client(base_url='http://' + listens['east']['listen'], timeout=30))

        def chat(path='/v1/chat/completions', **body):
            return east.post(path, json=dict({'model': 'llama', 'max_tokens': 4}, **body))

        def depth(site):
            found = re.search(r'grid_route_queue_depth\{site="%s",[^}]*\} (\S+)' % site,
                              httpx.get('http://%s/metrics' % listens['east']['ops']).text)
            return float(found[1]) if found else None
        sites['east'].load(9)
        sites['north'].load(9)
        prompt = [{'role': 'user', 'content': prose('three sites', 6000)}]

        def least_is_west():
            chat(messages=[{'role': 'user', 'content': 'order'}])
            return depth('east') == 9 and depth('north') == 9 and depth('west') == 0
        eventually(least_is_west, 30, 'the depths of all three, two of them told through providers')
        first = chat(messages=prompt)
        assert (first.status_code, first.headers['x-grid-site']) == (200, 'west'), first.text
        again = chat(messages=prompt)
        assert again.headers['x-grid-site'] == 'west'
        # Stored responses are made at the local site only, under a tag that the shared key signed.
        stored = chat('/v1/responses', input='keep this')
        assert stored.status_code == 200 and stored.headers['x-grid-site'] == 'east'
        assert re.match(r'resp_east\.[0-9a-f]{8}\.[0-9a-f]{16}\.', stored.json()['id'])
