"""The site that `make docs` left in build/site: every page, nothing fetched from elsewhere; and what else speaks of the pages."""
import glob
import os
import re
import subprocess
import sys

import pytest

import pages

SITE = os.path.join(pages.ROOT, 'build', 'site')


def read(*path):
    with open(os.path.join(pages.ROOT, *path), encoding='utf-8') as f:
        return f.read()


@pytest.fixture(scope='module')
def html():
    found = glob.glob(os.path.join(SITE, '**', '*.html'), recursive=True)
    assert found, 'run make docs first'
    return {os.path.relpath(path, SITE): read(path) for path in found}


def test_every_page_is_in_the_site(html):
    wanted = {os.path.relpath(path, os.path.join(pages.ROOT, 'docs'))[:-len('.md')] + '.html' for path in
              glob.glob(os.path.join(pages.ROOT, 'docs', '**', '*.md'), recursive=True)}
    assert wanted | {'index.html', 'changes.html', 'contributing.html', 'reporting.html', 'chart.html'} <= set(html)
    assert os.path.exists(os.path.join(SITE, 'concepts.svg'))


def test_nothing_is_fetched(html):
    for name, text in html.items():
        assert re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(?:https?:)?//[^"]*"', text) == [], name


def test_tables_and_code_are_made(html):
    assert html['configuration.html'].count('<table') >= 6 and '<!-- fields' in html['configuration.html']
    assert '| ---' not in html['configuration.html'] and '```' not in html['quickstart.html']


def test_pages_are_staged_in_a_folder_of_their_own(tmp_path):
    subprocess.run([sys.executable, os.path.join(pages.ROOT, 'scripts', 'docs-stage'), str(tmp_path / 'out')], check=True)
    text = (tmp_path / 'out' / 'index.md').read_text(encoding='utf-8')
    assert '(quickstart.md)' in text and '(changes.md)' in text and '(LICENSE)' not in text


def test_licences_are_those_of_the_build():
    linked = re.findall(r"\('[^']+', '([^']+)', '([^']+)', '([^']+)'\)", read('scripts', 'sbom'))
    told = re.findall(r'^\| (\S+) \| (\S+) \| ([a-z, ]+) \|$', read('docs', 'licences.md'), re.M)
    assert linked and sorted(told) == sorted(linked)


def test_readme_is_short():
    assert len(read('README.md').splitlines()) <= 160


def test_picture_has_both_colours():
    text = read('docs', 'concepts.svg')
    assert 'prefers-color-scheme: dark' in text and '<title' in text and '<desc' in text
