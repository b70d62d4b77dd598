"""Load for the faults: clients of several kinds that ask without a pause, and what became of each of their requests.

    with Load(grid) as load:
        since = time.monotonic()
        ...                             # the fault
        load.more(100)
    load.close('name of the case')      # the gateway's counters and its log must say what the clients saw
    load.judge('east', {'503'}, since)  # every failed request was there, then, and failed so

A request is known by its id, which is in the gateway's log too: so the log tells where a request was that brought its
client no header.
"""
import collections
import contextlib
import itertools
import json
import os
import re
import sys
import threading
import time

import httpx
import openai

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'e2e'))
import grid as grid_module  # noqa: E402
from grid import Grid, eventually, prose  # noqa: E402

SITES = ('east', 'west', 'north')
# A model for each site, whose candidates begin there: so an idle grid is used evenly.
MODELS = dict(zip(SITES, ('mild', 'cool', 'warm')))
HEALTH = {'health': {'path': '/health', 'interval_ms': 500, 'timeout_ms': 300}}
TIMEOUT_S = 6
ROWS, NOTES = [], []    # of the table at the end and below it, see conftest.py


def candidates():
    turns = [SITES[i:] + SITES[:i] for i in range(len(SITES))]
    return [{'kind': 'inference_model', 'name': MODELS[order[0]], 'site': site, 'cluster': 'pool-' + site}
            for order in turns for site in order]


def grid_of(**options):
    """The grid of the cases: three sites, streams of some length, a log that names each request."""
    models = [x for name in MODELS.values() for x in ('--model', name)]
    options.setdefault('clusters', HEALTH)
    options.setdefault('site_options', (*models, '--prefill-tps', '1000000', '--decode-tps', '300'))
    options['gateway'] = dict({'access_log': True}, **options.get('gateway', {}))
    options['serving'] = dict({'candidates': candidates(), 'load_window_ms': 1000}, **options.get('serving', {}))
    return Grid(sites=SITES, apart=True, **options)


class Seen:
    """One request as its client saw it. `outcome`: 'ok', a status, or how it broke. `where`: the site, by the gateway's log."""
    __slots__ = ('ident', 'kind', 'start', 'end', 'outcome', 'status', 'where', 'line')

    def __init__(self, ident, kind):
        self.ident, self.kind, self.start, self.end = ident, kind, time.monotonic(), None
        self.outcome = self.status = self.where = self.line = None

    def __repr__(self):
        return '%s %s at %s: %s in %.2f s %s' % (self.ident, self.kind, self.where, self.outcome, self.end - self.start,
                                                 {k: v for k, v in (self.line or {}).items()
                                                  if k in ('status', 'flags', 'details', 'attempts', 'bytes_out')})


def name_of(error):
    """One word for what a client was told instead of an answer."""
    for cause in (error, error.__cause__, error.__context__):
        if isinstance(cause, (httpx.TimeoutException, openai.APITimeoutError)):
            return 'timeout'
        if isinstance(cause, httpx.ConnectError):
            return 'refused'
    return 'broken'


class Load:
    """Twelve clients: plain and streamed requests by hand, streams by the SDK, and chains of stored responses, for each model."""

    def __init__(self, grid, kinds=('plain', 'stream', 'sdk', 'pinned'), sites=SITES):
        self.grid, self.stopping, self.lock = grid, threading.Event(), threading.Lock()
        self.seen, self.numbers = [], itertools.count()
        self.threads = [threading.Thread(target=self.run, args=(kind, site), daemon=True) for kind in kinds for site in sites]
        self.undecided = self.asked_affinity = 0
        self.before = self.counters()

    # -- the clients

    def run(self, kind, site):
        work, model = getattr(self, kind), MODELS[site]
        with httpx.Client(base_url=self.grid.url, timeout=TIMEOUT_S) as client, openai.OpenAI(
                base_url=self.grid.url + '/v1', api_key='none', max_retries=0, timeout=TIMEOUT_S) as sdk:
            state = {}
            for turn in itertools.count():
                if self.stopping.is_set():
                    return
                if not work(client, sdk, model, prose('%s %s %d' % (kind, model, turn % 4), 2000), state):
                    self.stopping.wait(0.02)    # a client that fails at once would ask for ever

    @contextlib.contextmanager
    def request(self, kind):
        """Notes the end of what its block does: 'ok' unless it says or raises something else."""
        seen = Seen('%s-%d' % (kind, next(self.numbers)), kind)
        try:
            yield seen
            seen.outcome = seen.outcome or 'ok'
        except openai.APIStatusError as error:
            seen.status, seen.outcome = error.response.status_code, str(error.response.status_code)
        except (httpx.HTTPError, openai.APIConnectionError) as error:
            seen.outcome = name_of(error)
        except (openai.APIError, ValueError, AttributeError):
            seen.outcome = 'nonsense'       # 200, and no answer in it
        finally:
            seen.end = time.monotonic()
            with self.lock:
                self.seen.append(seen)

    def plain(self, client, sdk, model, text, state):
        body = {'model': model, 'max_tokens': 4, 'messages': [{'role': 'user', 'content': text}]}
        with self.request('plain') as seen:
            answer = client.post('/v1/chat/completions', json=body, headers={'x-request-id': seen.ident})
            seen.status = answer.status_code
            if answer.status_code != 200:
                seen.outcome = str(answer.status_code)
            elif answer.json()['choices'][0]['finish_reason'] is None:
                seen.outcome = 'short'
        return seen.outcome == 'ok'

    def stream(self, client, sdk, model, text, state):
        body = {'model': model, 'max_tokens': 8, 'stream': True, 'messages': [{'role': 'user', 'content': text}]}
        with self.request('stream') as seen, client.stream('POST', '/v1/chat/completions', json=body,
                                                           headers={'x-request-id': seen.ident}) as answer:
            seen.status = answer.status_code
            said = answer.read()
            if answer.status_code != 200:
                seen.outcome = str(answer.status_code)
            elif b'data: [DONE]' not in said:
                seen.outcome = 'short'      # an end like any other, and half of the answer
        return seen.outcome == 'ok'

    def sdk(self, client, sdk, model, text, state):
        with self.request('sdk') as seen:
            raw = sdk.chat.completions.with_raw_response.create(
                model=model, max_tokens=8, stream=True, messages=[{'role': 'user', 'content': text}],
                extra_headers={'x-request-id': seen.ident})
            seen.status = raw.status_code
            last = None
            for chunk in raw.parse():
                last = chunk.choices[0].finish_reason if chunk.choices else last
            if last is None:
                seen.outcome = 'short'
        return seen.outcome == 'ok'

    def pinned(self, client, sdk, model, text, state):
        """A chain of stored responses: one is made, read, and followed by the next. What fails is asked again of the same site."""
        ident, reading = state.get('id'), state.get('turn', 0) % 2 == 1
        with self.request('pinned' if ident else 'create') as seen:
            extra = {'extra_headers': {'x-request-id': seen.ident}}
            if ident and reading:
                raw = sdk.responses.with_raw_response.retrieve(ident, **extra)
            else:
                raw = sdk.responses.with_raw_response.create(model=model, input=text[:600], max_output_tokens=2,
                                                             previous_response_id=ident or openai.omit, **extra)
            seen.status = raw.status_code
            state.update(id=raw.parse().id, turn=state.get('turn', 0) + 1)
        if seen.outcome == '404':
            state['id'] = None              # a site that began anew holds nothing
        return seen.outcome == 'ok'

    def probe(self, site):
        """One request for the model that begins there, noted as the others are."""
        with self.request('probe') as seen:     # a new prompt each time, so no site holds it
            answer = self.grid.http.post('/v1/chat/completions', headers={'x-request-id': seen.ident}, json={
                'model': MODELS[site], 'max_tokens': 1, 'messages': [{'role': 'user', 'content': prose(seen.ident, 1000)}]})
            seen.status = answer.status_code
            seen.outcome = 'ok' if answer.status_code == 200 else str(answer.status_code)
        return seen, answer.headers.get('x-grid-site')

    def ask(self, method, path, body=None, decided=True, affinity=False):
        """A request of the case's own, whose answer it judges itself; the counters have it like any other."""
        with self.request('asked') as seen:
            answer = self.grid.http.request(method, path, json=body, headers={'x-request-id': seen.ident})
            seen.status = answer.status_code
        self.undecided += not decided
        self.asked_affinity += affinity
        return answer

    def in_force(self, because, change, result='applied', seconds=20):
        """Makes a change of files and waits until the gateway has counted it."""
        name = 'grid_serving_config_reload_total{result="%s"}' % result
        before = self.grid.metrics()[name]
        change()
        eventually(lambda: self.grid.metrics()[name] > before, seconds, because)

    # -- their life

    def __enter__(self):
        for t in self.threads:
            t.start()
        self.more(5 * len(self.threads))
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        self.stopping.set()
        for t in self.threads:
            t.join(4 * TIMEOUT_S)
        assert not any(t.is_alive() for t in self.threads), 'a client never got an end'

    def more(self, n, seconds=90):
        before = len(self.seen)
        eventually(lambda: len(self.seen) >= before + n, seconds, '%d more requests' % n)

    def more_of(self, kind, n, site=None, seconds=90):
        """Waits until so many requests of a kind, that started from now on, have ended."""
        now = time.monotonic()
        eventually(lambda: sum(s.kind == kind and s.start >= now for s in list(self.seen)) >= n, seconds, '%d %s' % (n, kind))

    # -- what the gateway says

    def counters(self):
        stats = self.grid.admin.get('/stats?filter=^http.ingress.downstream_rq_').text
        out = {k.rpartition('_')[2]: int(v) for k, v in re.findall(r'ingress\.(downstream_rq_\w+): (\d+)$', stats, re.M)
               if re.fullmatch(r'downstream_rq_(total|active|[2345]xx)', k)}
        for name, value in self.grid.metrics().items():
            family = name.partition('{')[0]
            if family == 'grid_route_decisions_total':
                kind = re.search(r'reason="(\w+)"', name).group(1)
                out['failover' if kind == 'failover' else 'decided'] = out.get(
                    'failover' if kind == 'failover' else 'decided', 0) + int(value)
            elif family == 'grid_route_prefix_affinity_total':
                out['affinity'] = out.get('affinity', 0) + int(value)
        return out

    def log_lines(self):
        self.grid.log.seek(0)
        return {line['request_id']: line for line in map(json.loads, (x for x in self.grid.log if x.startswith('{')))}

    def close(self, name, affinity=True):
        """The gateway ends here. `affinity`: there were always two sites and more to choose from."""
        eventually(lambda: self.counters()['active'] == 0, 60, 'the end of all requests in the gateway')
        now = self.counters()
        gateway = {k: now.get(k, 0) - self.before.get(k, 0) for k in now}
        self.grid.stop()
        lines = self.log_lines()
        for seen in self.seen:
            seen.line = lines.get(seen.ident)
            seen.where = seen.line and seen.line['site']
        outcomes = collections.Counter(s.outcome for s in self.seen)
        failed = collections.Counter((s.outcome, s.where) for s in self.seen if s.outcome != 'ok')
        ROWS.append((name, len(self.seen), outcomes['ok'], len(self.seen) - outcomes['ok'],
                     ', '.join('%d %s at %s' % (n, o, w) for (o, w), n in sorted(failed.items(), key=str)) or '-',
                     '%(total)d in, %(2xx)d/%(4xx)d/%(5xx)d, %(decided)d decided, %(failover)d moved' % gateway))
        assert gateway['total'] == len(self.seen), 'the gateway saw each request once: %s' % gateway
        assert gateway['decided'] == len(self.seen) - self.undecided, 'and decided it: %s' % gateway
        if affinity:
            choices = sum(s.kind not in ('pinned', 'asked') for s in self.seen) + self.asked_affinity
            assert gateway['affinity'] == choices, (choices, gateway)
        assert all(s.line for s in self.seen), 'the log has each request: %s' % [s for s in self.seen if not s.line][:5]
        for digit in '245':
            told = sum(s.line['status'] // 100 == int(digit) for s in self.seen)
            assert gateway[digit + 'xx'] == told, (digit, told, gateway)
        assert all(s.status in (None, s.line['status']) for s in self.seen), 'a client was told what the log says'
        assert gateway['failover'] <= sum(int(s.line['attempts'] or 1) - 1 for s in self.seen)
        self.gateway = gateway
        return outcomes

    def judge(self, site, outcomes, since, until=None, pinned=(), at_least=0):
        """Only requests at the site, under way between the two times, failed, and only so. Those that an id led there may go on to
        fail, in the ways of `pinned`, for the site alone can answer them. `at_least`: so many, else the fault was none."""
        def fits(s):
            if s.where != site or s.end < since:
                return False
            return s.outcome in pinned and s.kind == 'pinned' or s.outcome in outcomes and (until is None or s.start <= until)
        failed = [s for s in self.seen if s.outcome != 'ok']
        bad = [s for s in failed if not fits(s)]
        assert not bad, '%d of %d: %s' % (len(bad), len(failed), bad[:8])
        assert len(failed) >= at_least, 'the fault reached %d requests, of %d wanted' % (len(failed), at_least)
        return failed
