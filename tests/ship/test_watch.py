"""Dashboard and alerts against a real Prometheus that scrapes a running grid: every query of every panel and alert returns data,
and the alerts that a test can provoke in a minute fire."""
import json
import os
import re
import subprocess
import sys
import threading

import httpx
import pytest
import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'e2e'))
from grid import Grid, eventually, free_port, prose  # noqa: E402

ALERTS = os.path.join(ROOT, 'dashboards', 'alerts.yaml')
with open(ALERTS, encoding='utf-8') as f:
    RULES = [rule for group in yaml.safe_load(f)['groups'] for rule in group['rules']]
with open(os.path.join(ROOT, 'dashboards', 'grid-gateway.json'), encoding='utf-8') as f:
    DASHBOARD = json.load(f)


def panel_queries():
    for panel in DASHBOARD['panels']:
        for target in panel.get('targets', ()):
            yield panel['title'], target['expr'].replace('$__rate_interval', '30s').replace('$job', '.*')


def alert_queries():
    """Each side of an alert's expression without the comparison that makes it fire."""
    for rule in RULES:
        for part in re.split(r'\nand\n', rule['expr']):
            query, n = re.subn(r' (?:==|>|<) (?:\+Inf|[0-9.]+)\s*$', '', part.strip())
            assert n == 1, part
            yield rule['alert'], query


def test_rules_are_well_formed():
    done = subprocess.run(['promtool', 'check', 'rules', '--lint-fatal', ALERTS], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_fire_and_are_silent():
    path = os.path.join(ROOT, 'tests', 'ship', 'alerts_test.yaml')
    done = subprocess.run(['promtool', 'test', 'rules', path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    with open(path, encoding='utf-8') as f:
        tried = {t['name'] for t in yaml.safe_load(f)['tests']}
    assert tried == {r['alert'] + word for r in RULES for word in (' fires', ' is silent')}


def test_dashboard_is_one_page_of_described_panels():
    places = set()
    for panel in DASHBOARD['panels']:
        assert panel['title'] and (panel['type'] == 'row' or panel['description']), panel['id']
        at = panel['gridPos']
        cells = {(x, y) for x in range(at['x'], at['x'] + at['w']) for y in range(at['y'], at['y'] + at['h'])}
        assert not cells & places and at['x'] + at['w'] <= 24, panel['title']
        places |= cells
    assert len({p['id'] for p in DASHBOARD['panels']}) == len(DASHBOARD['panels'])


@pytest.fixture(scope='module')
def watched(tmp_path_factory):
    """A grid with traffic of every kind, and a Prometheus that has watched it."""
    folder = tmp_path_factory.mktemp('prometheus')
    rules = yaml.safe_load(open(ALERTS, encoding='utf-8'))
    for rule in rules['groups'][0]['rules']:        # minutes become seconds; what they compare stays
        rule.pop('for', None)
        rule['expr'] = re.sub(r'\[\d+m\]', '[20s]', rule['expr'])
    rules['groups'][0]['interval'] = '1s'
    (folder / 'rules.yaml').write_text(yaml.safe_dump(rules))
    with Grid(sites=('east', 'west', 'north'), affinity={'exploration': 0.1},
              serving={'load_window_ms': 3000}, site_options=('--prefill-tps', '1000000', '--decode-tps', '200')) as grid:
        (folder / 'prometheus.yaml').write_text(yaml.safe_dump({
            'global': {'scrape_interval': '1s', 'evaluation_interval': '1s'}, 'rule_files': ['rules.yaml'],
            'scrape_configs': [{'job_name': 'grid', 'metrics_path': '/metrics',
                                'static_configs': [{'targets': ['127.0.0.1:%d' % grid.ops_port]}]}]}))
        address = '127.0.0.1:%d' % free_port()
        log = open(folder / 'prometheus.log', 'w', encoding='utf-8')
        prometheus = subprocess.Popen(['prometheus', '--config.file', folder / 'prometheus.yaml', '--storage.tsdb.path',
                                       folder / 'data', '--web.listen-address', address], stdout=log, stderr=subprocess.STDOUT)
        stop = threading.Event()

        def talk():
            turn = 0
            while not stop.wait(0.1):
                turn += 1
                grid.chat(prose('talk %d' % (turn % 5), 3000 + 100 * turn))
                grid.chat(prose('stream %d' % (turn % 5), 4000), stream=True, stream_options={'include_usage': True})
                grid.chat('short')
                grid.chat('nobody serves this', model='other')
        traffic = threading.Thread(target=talk)
        traffic.start()
        try:
            yield grid, httpx.Client(base_url='http://%s/api/v1' % address, timeout=10)
        finally:
            stop.set()
            traffic.join()
            prometheus.terminate()
            prometheus.wait(20)
            log.close()


def ask(api, query):
    try:
        reply = api.get('/query', params={'query': query})
    except httpx.HTTPError:
        return []
    if reply.status_code == 503:        # it is still starting
        return []
    answer = reply.json()
    assert answer['status'] == 'success', (query, answer)
    return [float(row['value'][1]) for row in answer['data']['result']]


def firing(api):
    return {a['labels']['alertname'] for a in api.get('/alerts').json()['data']['alerts'] if a['state'] == 'firing'}


def test_every_query_returns_data(watched):
    _, api = watched
    eventually(lambda: sum(ask(api, 'increase(grid_route_prefix_affinity_total{outcome="sticky"}[30s])')) > 20, 90,
               'what Prometheus knows of a conversation')
    queries = list(panel_queries()) + list(alert_queries())
    assert len(queries) > 30
    for name, query in queries:
        found = eventually(lambda query=query: ask(api, query), 20, '%s: %s' % (name, query))
        assert all(value == value for value in found), '%s: not a number: %s' % (name, query)


def test_sticky_share_is_what_the_gateway_counted(watched):
    """The panel that answers the first question, against the gateway's own counters."""
    grid, api = watched
    query = dict(panel_queries())['Sticky']
    total, sticky = sum(grid.outcomes().values()), grid.outcomes()['sticky']
    assert sticky > 0
    # Short prompts are half of the traffic and never sticky.
    assert abs(ask(api, query)[0] - sticky / total) < 0.25


def test_what_goes_wrong_is_told(watched):
    grid, api = watched
    eventually(lambda: 'GridRequestsRefused' in firing(api), 60, 'refusals of a model that nobody serves')
    assert 'GridConfigRejected' not in firing(api) and 'GridSiteUnmeasured' not in firing(api)
    grid.write('serving.json', {'local_site': 'Not A Site'})
    eventually(lambda: 'GridConfigRejected' in firing(api), 60, 'a refused configuration')
    grid.sites['north'].load(30)
    eventually(lambda: 'GridOneSiteHot' in firing(api), 60, 'a deep queue')
    grid.sites['west'].process.kill()
    eventually(lambda: {'GridSiteUnmeasured', 'GridSignalPollsFail'} <= firing(api), 90, 'a site that is gone')
