"""Every metric that docs/operations.md names is there in a running gateway, with the labels that it names; and the other way round."""
import os
import re
import sys

import pages

sys.path.insert(0, os.path.join(pages.ROOT, 'tests', 'e2e'))
import grid as e2e  # noqa: E402

# The gateway's own, and Envoy's on its admin page without their `envoy_`; those of engines are tried in tests/e2e/test_signals.py.
NAME = re.compile(r'`(grid_[a-z_]+|server_[a-z_]+)(?:\{([^}]*)\})?`')


def page():
    with open(os.path.join(pages.ROOT, 'docs', 'operations.md'), encoding='utf-8') as f:
        return f.read()


def named(text):
    """(family, labels) in order of appearance."""
    for found in NAME.finditer(text):
        if found[1] != 'grid_site_route':
            yield found[1], dict(re.findall(r'(\w+)="([^"]*)"', found[2] or ''))


def lacking(text, series):
    families = {}
    for line in series:
        name, _, labels = line.partition('{')
        families.setdefault(re.sub('_(?:bucket|sum|count)$', '', name), []).append(dict(re.findall(r'(\w+)="([^"]*)"', labels)))
    return ['%s %s' % (name, labels or '') for name, labels in named(text)
            if not any(labels.items() <= one.items() for one in families.get(name, []))]


def with_hosts(series):
    return series if 'grid_cluster_hosts{cluster="pool-east"}' in series else None


def test_metrics_are_there():
    slow = ('--prefill-tps', '1000000', '--decode-tps', '100')  # tokens come one by one
    with e2e.Grid(clusters={'health': {'path': '/health'}}, site_options=slow) as grid:
        grid.chat('a request, so that hosts are looked at').raise_for_status()
        grid.chat('a stream, so that its tokens are timed', stream=True).raise_for_status()
        series = e2e.eventually(lambda: with_hosts(grid.metrics()), what='the count of hosts')
        admin = re.findall(r'^envoy_(\w+)', grid.admin.get('/stats/prometheus').text, re.M)
    whole = list(series) + admin
    text = page()
    assert len(set(name for name, _ in named(text))) > 12
    assert lacking(text, whole) == []
    table = text[text.index('## Metrics'):text.index('## Symptoms')]
    told = {name for name, _ in named(table)}
    there = {re.sub('_(?:bucket|sum|count)$', '', name.partition('{')[0]) for name in series if name.startswith('grid_')}
    assert sorted(there - told) == []


def test_a_wrong_name_is_seen():
    there = ['grid_a_total{result="ok"}', 'grid_b']
    assert lacking('`grid_a_total{result="ok"}` and `grid_b`', there) == []
    assert lacking('`grid_a_total{result="bad"}`, `grid_c`', there) == ["grid_a_total {'result': 'bad'}", 'grid_c ']
