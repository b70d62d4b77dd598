"""Links between the documents of the repository lead somewhere, to the heading they name. Nothing is fetched."""
import os
import re
import subprocess

import pages

LINK = re.compile(r'(?<!\\)\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)(?: "[^"]*")?\)|<img[^>]* src="([^"]+)"')


def documents():
    names = subprocess.run(['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard', '*.md'], cwd=pages.ROOT, check=True,
                           capture_output=True, text=True).stdout
    return [name for name in filter(None, names.split('\0')) if os.path.isfile(os.path.join(pages.ROOT, name)) and
            not name.startswith('tests/')]


def prose(text):
    """Without code, in which brackets are no links."""
    text = re.sub(r'^( *)```.*?^\1```$', '', text, flags=re.M | re.S)
    return re.sub(r'`[^`\n]*`', lambda code: 'x' * len(code[0]), text)


def anchors(text):
    """As GitHub and mkdocs make them of headings."""
    out = set()
    for heading in re.findall(r'^#+ (.*?)\s*$', re.sub(r'^```.*?^```$', '', text, flags=re.M | re.S), re.M):
        heading = re.sub(r'\[([^\]]*)\]\([^)]*\)', r'\1', heading).replace('`', '').lower()
        out.add(re.sub(r'[^\w\- ]', '', heading).strip().replace(' ', '-'))
    return out


def faults(names, root):
    for name in names:
        with open(os.path.join(root, name), encoding='utf-8') as f:
            text = f.read()
        for found in LINK.finditer(prose(text)):
            link = found[1] or found[2]
            if re.match(r'[a-z]+:', link):
                continue
            path, _, anchor = link.partition('#')
            target = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
            whole = os.path.join(root, target)
            if not os.path.exists(whole):
                yield '%s: %s is not there' % (name, link)
            elif anchor and target.endswith('.md'):
                with open(whole, encoding='utf-8') as f:
                    if anchor not in anchors(f.read()):
                        yield '%s: %s has no such heading' % (name, link)


def test_links():
    names = documents()
    assert 'README.md' in names and len(names) > 10
    assert list(faults(names, pages.ROOT)) == []


def test_a_dead_link_is_seen(tmp_path):
    (tmp_path / 'a.md').write_text('# One thing\n[x](#one-thing) [y](b.md) [z](#two) `[no](link)`\n', encoding='utf-8')
    assert list(faults(['a.md'], str(tmp_path))) == ['a.md: b.md is not there', 'a.md: #two has no such heading']


def repeated(text):
    """Headings, and rows of tables, that stand there twice in a page."""
    lines = [line for line in re.sub(r'^```.*?^```$', '', text, flags=re.M | re.S).splitlines() if re.match(r'#+ |\| `?[^-|]{20}', line)]
    return sorted({line for line in lines if lines.count(line) > 1})


def test_nothing_stands_twice():
    for name in documents():
        if name != 'CHANGELOG.md' and not name.startswith('.github/'):
            with open(os.path.join(pages.ROOT, name), encoding='utf-8') as f:
                assert repeated(f.read()) == [], name


def test_a_repeated_heading_is_seen():
    assert repeated('# One\n## Two\n```\n# no\n```\n## Two\n') == ['## Two']


def test_every_page_is_reached():
    """From README.md, by links alone."""
    seen, left = set(), ['README.md']
    while left:
        name = left.pop()
        if name in seen or not name.endswith('.md') or not os.path.isfile(os.path.join(pages.ROOT, name)):
            continue
        seen.add(name)
        with open(os.path.join(pages.ROOT, name), encoding='utf-8') as f:
            for found in LINK.finditer(prose(f.read())):
                path = (found[1] or found[2]).partition('#')[0]
                left.append(os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name)
    assert sorted(name for name in documents() if name.startswith('docs/') and name not in seen) == []
