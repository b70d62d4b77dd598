"""The manual pages: they render without a warning, and have every verb and field."""
import os
import re
import subprocess
import sys

import pytest

import pages
from test_fields import rows

NAMES = ('grid-gateway.1', 'grid-gateway-config.5', 'grid-gateway-serving.5')


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp('man')
    done = subprocess.run([sys.executable, os.path.join(pages.ROOT, 'scripts', 'man'), str(out)], text=True, cwd=str(out),
                          env=dict(os.environ, GRID_GATEWAY=pages.BINARY), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    assert sorted(os.listdir(out)) == sorted(NAMES)
    return out


def shown(path):
    """What a reader sees, in a wide terminal, and what groff and man say about it."""
    done = subprocess.run(['man', '--warnings', '--encoding=UTF-8', '-l', str(path)], text=True, capture_output=True,
                          env=dict(os.environ, MANWIDTH='160', MANROFFSEQ='', LC_ALL='C.UTF-8', MANPAGER='cat'))
    assert done.returncode == 0, done.stderr
    return re.sub('.\b', '', done.stdout), done.stderr


@pytest.mark.parametrize('name', NAMES)
def test_no_warning(folder, name):
    text, warnings = shown(folder / name)
    assert warnings == '' and len(text) > 1000


def test_a_warning_is_seen(tmp_path):
    (tmp_path / 'x.1').write_text('.TH X 1\n.SH NAME\nx \\- y\n.NOSUCH\n', encoding='utf-8')
    assert 'NOSUCH' in shown(tmp_path / 'x.1')[1]


def test_help_texts_are_whole(folder):
    text = shown(folder / 'grid-gateway.1')[0]
    verbs = re.findall(r'^  ([a-z-]+) +\S', subprocess.run([pages.BINARY, '--help'], capture_output=True, text=True).stdout.split('\n\nExamples')[0],
                       re.M)
    assert len(verbs) > 8
    flat = re.sub(r'\s+', ' ', text.replace('…', '...'))
    for verb in verbs:
        for line in subprocess.run([pages.BINARY, verb, '--help'], capture_output=True, text=True).stdout.splitlines():
            assert re.sub(r'\s+', ' ', line.strip().replace('…', '...')) in flat, (verb, line)


def test_every_field_is_there(folder):
    for file, name in (('gateway', 'grid-gateway-config.5'), ('serving', 'grid-gateway-serving.5')):
        text = shown(folder / name)[0]
        lacks = [row['field'] for row in rows() if row['file'] == file and not re.search(r'^ +%s(\s|$)' % re.escape(row['field']), text, re.M)]
        assert lacks == []
