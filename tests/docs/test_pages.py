"""The commands that pages show do what they show; see pages.py for how a page marks them."""
import glob
import os

import pytest

import pages

RUN = ('docs/quickstart.md', 'docs/concepts.md', 'docs/configuration.md', 'docs/security.md', 'docs/upgrading.md')


@pytest.mark.parametrize('name', RUN)
def test_page(name, tmp_path):
    page = pages.Page(os.path.join(pages.ROOT, name), tmp_path)
    try:
        assert page.run() > 0, '%s marks nothing to run' % name
    finally:
        page.stop()


def test_every_page_with_marks_is_run():
    marked = {os.path.relpath(path, pages.ROOT) for path in glob.glob(os.path.join(pages.ROOT, '*.md')) +
              glob.glob(os.path.join(pages.ROOT, 'docs', '*.md')) if list(pages.blocks(open(path, encoding='utf-8').read()))}
    assert marked == set(RUN)


@pytest.mark.parametrize('text,words', [
    ('<!-- run -->\n```sh\nexit 3\n```\n', 'ended with 3'),
    ('<!-- run: fails -->\n```sh\ntrue\n```\n', 'ended with 0'),
    ('<!-- run -->\n```sh\necho one; echo two\n```\n<!-- output -->\n```text\ntwo\none\n```\n', 'no line'),
    ('<!-- run: until ready -->\n```sh\necho no\n```\n', 'no line with'),
])
def test_a_page_that_lies_fails(text, words, tmp_path):
    (tmp_path / 'page.md').write_text(text, encoding='utf-8')
    page = pages.Page(str(tmp_path / 'page.md'), tmp_path)
    try:
        with pytest.raises(AssertionError, match=words):
            page.run()
    finally:
        page.stop()
