"""The page of the ops listener in a browser, in front of a running grid: what it shows, in light and dark and on a narrow screen,
by keyboard alone, with hostile names, and when the gateway is gone. Pictures go to build/page/."""
import contextlib
import json
import os
import threading

import pytest
from conftest import PICTURES
from grid import Grid, eventually, prose

SCRIPT_SITE = '<img src=x onerror=alert(1)>'      # the gateway takes no such site; the page must not rely on that
SCRIPT_CLUSTER = '<script>alert(2)</script>'
SCRIPT_MODEL = '"><script>alert(3)</script>'
MODEL = {'model': 'llama', 'messages': [{'role': 'user', 'content': prose('page', 6000)}]}


class Hostile(Grid):
    """A third cluster whose names would be code if anything took them for HTML."""

    def write_serving(self):
        east = self.sites['east']
        rows = [('llama', s.name, s.cluster) for s in self.sites.values()]
        rows += [('llama', 'third', SCRIPT_CLUSTER), (SCRIPT_MODEL, 'third', SCRIPT_CLUSTER), (SCRIPT_MODEL, 'east', east.cluster)]
        clusters = [(s.cluster, s.address) for s in self.sites.values()] + [(SCRIPT_CLUSTER, east.address)]
        self.write('serving.json', {
            'local_site': 'east', 'window_secs': 600, 'load_window_ms': 15000,
            'candidates': [{'kind': 'inference_model', 'name': m, 'site': s, 'cluster': c} for m, s, c in rows],
            'clusters': [{'name': c, 'endpoints': [a], 'signals': {'interval_ms': 100}, 'health': {'path': '/health', 'interval_ms': 200}}
                         for c, a in clusters]})


@pytest.fixture(scope='module')
def grid():
    with Hostile(gateway={'concurrency': 2}) as grid:
        done = threading.Event()
        grid.stack.callback(done.set)

        def talk():
            turn = 0
            while not done.wait(0.05):
                with contextlib.suppress(Exception):
                    grid.chat('short' if turn % 9 == 0 else prose('talk%d' % (turn % 4), 3000) + 'x' * turn)
                    if turn % 20 == 0:
                        grid.http.post('/v1/chat/completions', json={'model': 'nobody', 'messages': []})
                    grid.sites['west'].load(turn % 7)
                turn += 1
        thread = threading.Thread(target=talk)
        thread.start()
        try:
            eventually(lambda: grid.outcomes()['sticky'] > 20, 60, 'traffic')
            yield grid
        finally:
            done.set()
            thread.join()


class Seen:
    """A tab, and what it did that it must not."""

    def __init__(self, browser, url, wait='#site-rows tr', **options):
        self.context = browser.new_context(**dict({'viewport': {'width': 1240, 'height': 900}}, **options))
        self.page = self.context.new_page()
        self.page.set_default_timeout(20000)
        self.errors, self.asked, self.url = [], [], url
        self.page.on('console', lambda m: self.errors.append(m.text) if m.type in ('error', 'warning') else None)
        self.page.on('pageerror', lambda e: self.errors.append(str(e)))
        self.page.on('dialog', lambda d: (self.errors.append('dialog ' + d.message), d.dismiss()))
        self.page.on('request', lambda r: self.asked.append(r.url))
        self.page.goto(url)
        if wait:
            self.page.wait_for_selector(wait, state='attached')

    def text(self, selector):
        return self.page.inner_text(selector)

    def explain(self, body, path=None):
        if path:
            self.page.select_option('#ask-path', path)
        self.page.fill('#ask-body', body if isinstance(body, str) else json.dumps(body))
        self.page.evaluate("document.getElementById('answer').replaceChildren()")
        self.page.click('#ask button')
        self.page.wait_for_selector('#answer .verdict')
        self.page.wait_for_selector('#ask button:enabled')
        return self.text('#answer')

    def picture(self, name):
        self.page.screenshot(path=os.path.join(PICTURES, name + '.png'), full_page=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.context.close()
        if kind is None:
            assert self.errors == []
            assert {u for u in self.asked if not u.startswith(self.url + '/')} == set(), 'only the gateway itself is asked'


@pytest.fixture
def open_page(browser, grid):
    return lambda **options: Seen(browser, 'http://127.0.0.1:%d' % grid.ops_port, **options)


def test_what_the_gateway_knows_is_on_it(grid, open_page):
    with open_page() as seen:
        seen.page.wait_for_selector('.spark')
        rows = seen.page.locator('#site-rows tr')
        assert rows.count() == 3
        for site in grid.sites.values():
            text = rows.filter(has_text=site.cluster).inner_text()
            assert site.name in text and 'taken' in text and 'healthy' in text and ' s' in text and 'blocks' in text
        assert seen.text('#state') == 'ready'
        outcomes = seen.text('#outcome-rows')
        assert all(name in outcomes for name in ('sticky', 'no_match', 'load_override', 'exploration', 'not_applicable', 'other'))
        counted = int(seen.page.locator('#outcome-rows tr', has_text='sticky').locator('td').nth(3).inner_text().replace(',', ''))
        assert 0 < counted <= grid.outcomes()['sticky']
        recent = seen.text('#recent-rows')
        assert 'sticky' in recent and 'no keys: too short' in recent and '404 model_not_found' in recent
        assert seen.text('#refusals-empty') == 'None was refused.'
        first = seen.text('#recent-note')
        eventually(lambda: seen.page.wait_for_timeout(100) or seen.text('#recent-note') != first, what='the next look')


def test_a_refused_change_is_told(grid, open_page):
    grid.write('serving.json', {'candidates': 7})
    eventually(lambda: grid.ops.get('/grid').json()['reload']['refusals'], what='the refusal')
    grid.write_serving()
    with open_page() as seen:
        assert 'candidates is 7' in seen.text('#refusals')
        assert seen.page.locator('#refusals-empty').is_hidden()


def test_names_are_text_and_never_code(open_page):
    with open_page() as seen:
        assert SCRIPT_CLUSTER in seen.text('#site-rows')
        answer = seen.explain(dict(MODEL, model=SCRIPT_MODEL))
        assert SCRIPT_MODEL in answer and SCRIPT_CLUSTER in answer
        assert SCRIPT_MODEL in seen.explain({'model': SCRIPT_MODEL})

        def forge(route):
            state = route.fetch().json()
            for one in state['sites'] + state['recent']:
                one.update(site=SCRIPT_SITE, outcome=SCRIPT_MODEL, health=SCRIPT_MODEL)
            state['reload'].update(result=SCRIPT_MODEL, count=1, refusals=[{'age_ms': 1, 'error': SCRIPT_MODEL}])
            state['history']['outcomes']['names'][0] = SCRIPT_MODEL
            route.fulfill(json=state)
        seen.page.route('**/grid', forge)
        seen.page.locator('#refusals', has_text=SCRIPT_MODEL).wait_for()
        for part in ('#site-rows', '#recent-rows'):
            assert SCRIPT_SITE in seen.text(part) and SCRIPT_MODEL in seen.text(part)
        for part in ('#refusals', '#config', '#outcome-rows'):
            assert SCRIPT_MODEL in seen.text(part)
        assert seen.page.locator('main img, main script').count() == 0


def test_the_answer_of_the_box_is_the_core_s(grid, open_page):
    with open_page() as seen:
        text = seen.explain(MODEL)
        told = grid.ops.post('/explain/v1/chat/completions', json=MODEL).json()
        assert 'no_match' in text and told['decision']['why'] in text and told['decision']['flips_by'] in text
        assert '%d blocks of 256 bytes' % told['decision']['blocks'] in text
        grid.http.post('/v1/chat/completions', json=MODEL).raise_for_status()
        text = seen.explain(MODEL)
        assert 'sticky' in text and 'the same keys as the body before' in text
        assert '%d of %d blocks' % (told['decision']['blocks'], told['decision']['blocks']) in text
        longer = {'model': 'llama', 'messages': MODEL['messages'] + [{'role': 'user', 'content': prose('more', 2000)}]}
        assert 'as in the body before' in seen.explain(longer)
        assert 'none: not json' in seen.explain('{"model": ')
        assert 'status 404' in seen.explain({'model': 'nobody', 'messages': []})
        assert 'not a prompt' in seen.explain({'model': 'llama'}, path='/v1/conversations')
        seen.page.fill('#ask-model', 'llama')
        assert 'model llama' in seen.explain({'messages': MODEL['messages']}, path='/v1/chat/completions')
        assert 'paste a body first' in seen.explain('')


def test_by_keyboard_alone(open_page):
    with open_page() as seen:
        page, here = seen.page, 'document.activeElement.id || document.activeElement.tagName'
        visited = []
        while 'ask-body' not in visited:
            page.keyboard.press('Tab')
            visited.append(page.evaluate(here))
            assert page.evaluate("parseFloat(getComputedStyle(document.activeElement).outlineWidth) >= 2"), visited[-1]
            assert len(visited) < 20, visited
        assert visited[0] == 'A' and visited.index('ask-path') < visited.index('ask-model') < visited.index('ask-body')
        page.keyboard.insert_text(json.dumps(MODEL))
        page.keyboard.press('Control+Enter')
        page.wait_for_selector('#answer .verdict')
        page.evaluate("document.getElementById('answer').replaceChildren()")
        page.keyboard.press('Tab')
        assert page.evaluate('document.activeElement.tagName') == 'BUTTON'
        page.keyboard.press('Enter')
        page.wait_for_selector('#answer .verdict')
        page.keyboard.press('Tab')
        assert page.evaluate('document.activeElement.tagName') == 'SUMMARY', 'the focus was not lost'
        page.keyboard.press('Enter')
        assert page.locator('#answer details[open] pre').count() == 1


def test_everything_has_a_name(open_page):
    with open_page() as seen:
        seen.explain(MODEL)
        assert seen.page.evaluate("""() => [...document.querySelectorAll('input, select, textarea')]
            .filter((e) => !e.labels.length).map((e) => e.id)""") == []
        assert seen.page.evaluate("""() => [...document.querySelectorAll('svg, table, [role=region], [tabindex="0"]')]
            .filter((e) => !e.closest('[aria-label], [aria-labelledby]')).map((e) => e.outerHTML.slice(0, 80))""") == []
        assert seen.page.evaluate('document.documentElement.lang') == 'en'


CONTRAST = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).slice(0, 4).map(Number);
  const light = (c) => c.slice(0, 3).map((v) => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
  const bad = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walk.nextNode());) {
    const e = node.parentElement;
    if (!node.data.trim() || !e.offsetParent) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < 4.5) bad.push(ratio.toFixed(2) + ' ' + node.data.trim().slice(0, 40));
  }
  return bad;
}"""


@pytest.mark.parametrize('scheme', ['light', 'dark'])
def test_legible_in(scheme, open_page):
    with open_page(color_scheme=scheme) as seen:
        seen.explain(MODEL)
        assert seen.page.evaluate(CONTRAST) == []
        shade = seen.page.evaluate("getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/g).map(Number)")
        assert (max(shade) < 60) if scheme == 'dark' else (min(shade) > 200)
        seen.picture(scheme)


def test_on_a_narrow_screen(open_page):
    with open_page(viewport={'width': 360, 'height': 740}) as seen:
        seen.explain(MODEL)
        assert seen.page.evaluate('document.documentElement.scrollWidth') == 360
        assert seen.page.evaluate("""() => [...document.querySelectorAll('main *')].filter((e) => e.offsetParent
            && !e.closest('thead') && (e.getBoundingClientRect().right > 360 || e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === 'auto'))
            .map((e) => e.outerHTML.slice(0, 80))""") == []
        seen.picture('narrow')


def test_a_hidden_tab_asks_nothing(open_page):
    with open_page() as seen:
        hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true}); document.dispatchEvent(new Event('visibilitychange'))"
        seen.page.evaluate(hide % 'true')
        seen.page.wait_for_timeout(500)
        before = len(seen.asked)
        seen.page.wait_for_timeout(5000)
        assert len(seen.asked) == before
        seen.page.evaluate(hide % 'false')
        eventually(lambda: seen.page.wait_for_timeout(50) or len(seen.asked) > before, 5, 'asking again')


def test_a_gateway_that_is_gone_is_told(browser):
    with Grid(sites=('east',)) as grid:
        with Seen(browser, 'http://127.0.0.1:%d' % grid.ops_port) as seen:
            assert seen.page.locator('#alarm').is_hidden()
            assert 'No request was decided yet.' in seen.text('#recent-scroll')
            assert 'No request in the last 5 min.' in seen.text('#outcomes-note')
            grid.stop()
            seen.page.wait_for_selector('#alarm', state='visible')
            assert 'cannot be reached (no connection)' in seen.text('#alarm')
            assert 'What stands below is from' in seen.text('#alarm') and seen.text('#state') == 'not reached'
            assert 'east' in seen.text('#site-rows')
            seen.errors = [e for e in seen.errors if 'ERR_CONNECTION_REFUSED' not in e]


def test_it_comes_back(open_page):
    with open_page() as seen:
        seen.page.route('**/grid', lambda route: route.fulfill(status=500, body='x'))
        seen.page.wait_for_selector('#alarm', state='visible')
        seen.page.unroute('**/grid')
        seen.page.wait_for_selector('#alarm', state='hidden')
        assert seen.text('#state') == 'ready'
        seen.errors = [e for e in seen.errors if '500' not in e]


class Open(Grid):
    """Its ops listener can be reached from elsewhere."""

    def write(self, name, value):
        if name == 'gateway.json':
            value['ops'] = '0.0.0.0:%d' % self.ops_port
        super().write(name, value)


def test_no_box_where_others_could_read_along(browser):
    with Open(sites=('east',)) as grid:
        with Seen(browser, 'http://127.0.0.1:%d' % grid.ops_port) as seen:
            assert seen.page.locator('#ask').is_hidden()
            assert 'grid-gateway explain' in seen.text('#ask-off')
        assert grid.ops.post('/explain/v1/chat/completions', json=MODEL).status_code == 403


def test_nothing_but_the_page_s_own_files_may_run(grid, open_page):
    with open_page() as seen:
        seen.page.evaluate("""() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';
            document.body.append(s); document.body.insertAdjacentHTML('beforeend', '<p id=p style="color:red" onclick="window.ran=2">p</p>'); }""")
        seen.page.click('#p')
        assert seen.page.evaluate('window.ran') is None
        assert all('Content Security Policy' in e for e in seen.errors) and len(seen.errors) >= 3
        seen.errors = []
