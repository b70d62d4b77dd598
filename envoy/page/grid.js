/* The ops page: asks /grid every two seconds while it is seen, and /explain when a person does. Text from outside is only ever
 * put in as text. */
'use strict';

const EVERY_MS = 2000, LIMIT_MS = 5000, MAX_BODY_BYTES = 8 << 20;
const OUTCOMES = {
  sticky: 'went to the least queued site that holds its longest run',
  no_match: 'no site holds enough of it; the least queued one was taken',
  load_override: 'the holder\u2019s queue is deeper than the match is worth',
  exploration: 'drawn to go by load, so that a second site learns the prompt',
  not_applicable: 'it has no keys; it went by load',
  other: 'led by an id, one site to choose from, affinity off, or refused',
};
const RESULTS = { reused: 'read again, the same meaning', rejected: 'refused' };
const $ = (id) => document.getElementById(id);

/* ---- building ---- */

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
const make = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const draw = (tag, attributes, ...children) => fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
const put = (id, ...children) => $(id).replaceChildren(...children);
const row = (...cells) => make('tr', { role: 'row' }, ...cells);
const cell = (label, kind, ...children) => make('td', { role: 'cell', 'data-label': label, class: kind || null }, ...children);

/* ---- numbers and times ---- */

const whole = (n) => n.toLocaleString('en');
const number = (n) => (n === null || n === undefined ? '\u2013' : n.toLocaleString('en', { maximumFractionDigits: n < 10 ? 2 : 1 }));
const depth = (n) => (n === null || n === undefined ? 'unmeasured' : number(n));
const clock = (ms) => new Date(ms).toLocaleTimeString('en-GB');
const plural = (n, word) => whole(n) + ' ' + word + (n === 1 ? '' : 's');
function span(ms) {
  const s = ms / 1000;
  if (s < 10) return s.toFixed(1) + ' s';
  if (s < 120) return Math.round(s) + ' s';
  if (s < 7200) return Math.round(s / 60) + ' min';
  return s < 172800 ? Math.round(s / 3600) + ' h' : Math.round(s / 86400) + ' d';
}

/* ---- sites ---- */

/* One scale for all sites, so that heights compare. */
function sparkline(points, top, title) {
  const parts = [], width = 120 / (points.length - 1);
  points.forEach((value, i) => {
    if (value === null) return;
    const at = (i * width).toFixed(1) + ' ' + (23 - 20 * value / top).toFixed(1);
    const last = parts[parts.length - 1];
    if (last && last.end === i - 1) last.end = i, last.points.push(at);
    else parts.push({ from: i, end: i, points: [at] });
  });
  const line = parts.map((p) => 'M' + p.points.join('L') + (p.points.length === 1 ? 'h1' : '')).join('');
  const area = parts.map((p) => 'M' + (p.from * width).toFixed(1) + ' 23L' + p.points.join('L') + 'L' + (p.end * width).toFixed(1) + ' 23Z').join('');
  return draw('svg', { class: 'spark', viewBox: '0 0 120 24', preserveAspectRatio: 'none', role: 'img', 'aria-label': title },
    draw('path', { class: 'base', d: 'M0 23.5H120' }), draw('path', { class: 'area', d: area }), draw('path', { d: line }));
}

function meter(share, label) {
  const width = share > 0 ? Math.max(1.5, 100 * Math.min(1, share)) : 0;
  return make('div', { class: 'meter', role: 'img', 'aria-label': label },
    draw('svg', { viewBox: '0 0 100 1', preserveAspectRatio: 'none' }, draw('rect', { width: width.toFixed(1), height: 1 })));
}

function health(site) {
  if (site.health === 'unknown') return make('span', { class: 'quiet' }, 'not known yet');
  return make('span', { class: site.health === 'healthy' ? 'good' : 'bad' }, site.health,
    make('span', { class: 'quiet' }, site.healthy_hosts + ' of ' + plural(site.hosts, 'host')));
}

let windowTitle = '';

function siteRow(site, poll, points, top) {
  const now = poll && poll.depth !== undefined && site.depth !== null ? poll.depth : null;
  const seen = points.filter((value) => value !== null);
  const share = site.capacity ? site.entries / site.capacity : 0;
  const percent = share > 0 && share < 0.01 ? 'under 1 %' : Math.round(100 * share) + ' %';
  return row(
    cell('Site', 'site', make('span', { class: 'name' }, site.site), make('span', { class: 'quiet' }, site.cluster)),
    cell('Queue now', 'n', number(now)),
    cell('Worst', 'n', site.depth === null ? make('span', { class: 'warn' }, 'unmeasured') : number(site.depth)),
    cell(windowTitle, 'wide', seen.length ? sparkline(points, top, 'deepest ' + number(Math.max(...seen)) + ', newest ' + number(seen[seen.length - 1]))
      : make('span', { class: 'quiet' }, 'no sample in the window')),
    cell('New requests', '', make('span', { class: site.admitted ? 'good' : 'warn' }, site.admitted ? 'taken' : 'not taken')),
    cell('Health', '', health(site)),
    cell('Sample age', 'n', site.sample_age_ms === undefined ? 'none' : span(site.sample_age_ms),
      poll && poll.why ? make('span', { class: 'bad' }, ' ' + poll.why) : null),
    cell('Prompt memory', '', meter(share, percent + ' full'), make('span', { class: 'quiet' }, whole(site.entries) + ' blocks, ' + percent)));
}

function showSites(state) {
  const history = state.history, past = new Map(history.depths.map((one) => [one.cluster, one.points]));
  const polls = new Map(state.polls.map((poll) => [poll.cluster, poll]));
  const top = Math.max(1, ...history.depths.flatMap((one) => one.points.filter((value) => value !== null)));
  const window_s = span(history.window_ms);
  windowTitle = 'Last ' + window_s + ', up to ' + number(top);
  $('window-title').textContent = windowTitle;
  $('sites-note').textContent = 'Waiting requests as each site tells. A decision counts the worst of the last ' + window_s + '.';
  put('site-rows', ...state.sites.map((site) => siteRow(site, polls.get(site.cluster), past.get(site.cluster) || [], top)));
  $('sites-empty').hidden = state.sites.length > 0;
}

/* ---- outcomes ---- */

function bars(points, most) {
  const rects = [];
  points.forEach((counts, i) => {
    let y = 60;
    counts.forEach((count, kind) => {
      const height = 60 * count / most;
      y -= height;
      if (count) rects.push(draw('rect', { class: 'o' + kind, x: i * 2, y: y.toFixed(2), width: 1.7, height: height.toFixed(2) }));
    });
  });
  return draw('svg', { class: 'bars', viewBox: '0 0 120 60', preserveAspectRatio: 'none', role: 'img', 'aria-label': 'Requests by outcome, oldest first; the figures are in the table' },
    draw('rect', { class: 'o1', x: 0, y: 59.6, width: 120, height: 0.4 }), ...rects);
}

function showOutcomes(state) {
  const { step_ms, names, points } = state.history.outcomes;
  const sums = names.map((_, kind) => points.reduce((sum, counts) => sum + counts[kind], 0));
  const all = sums.reduce((a, b) => a + b, 0);
  const most = Math.max(...points.map((counts) => counts.reduce((a, b) => a + b, 0)));
  const minutes = Math.round(points.length * step_ms / 60000);
  $('outcomes-note').textContent = all ? plural(all, 'request') + ' in the last ' + minutes + ' min; the tallest bar is '
    + plural(most, 'request') + ' in ' + step_ms / 1000 + ' s.' : 'No request in the last ' + minutes + ' min.';
  put('outcomes-chart', bars(points, Math.max(1, most)),
    make('div', { class: 'axis', 'aria-hidden': 'true' }, make('span', null, minutes + ' min ago'), make('span', null, 'now')));
  put('outcome-rows', ...names.map((name, kind) => row(
    cell('Outcome', '', make('span', { class: 'dot o' + kind, 'aria-hidden': 'true' }), name, make('span', { class: 'quiet' }, OUTCOMES[name] || '')),
    cell('5 min', 'n', whole(sums[kind])),
    cell('Share', 'n', all ? Math.round(100 * sums[kind] / all) + ' %' : '\u2013'),
    cell('Since start', 'n', name in state.outcomes ? whole(state.outcomes[name]) : '\u2013'))));
}

/* ---- configuration ---- */

function showConfig(state) {
  const reload = state.reload, settings = state.settings, affinity = settings.prefix_affinity;
  const facts = [
    ['In force', reload.revision ? 'revision ' + reload.revision + ', since ' + span(reload.applied_age_ms) : 'as at the start'],
    ['Last change', reload.count ? (RESULTS[reload.result] || reload.result) + ', ' + span(reload.age_ms) + ' ago' : 'none so far'],
    ['Affinity', affinity.enabled ? 'on, threshold ' + number(affinity.threshold) + ', exploration ' + number(100 * affinity.exploration) + ' %' : 'off'],
    ['Prices', whole(affinity.prefill_tokens_per_second) + ' tokens/s prefill, ' + number(affinity.queued_request_seconds) + ' s a queued request'],
    ['Memory', whole(affinity.capacity) + ' blocks a cluster, kept ' + span(affinity.ttl_ms)],
    ['Failovers', whole(state.failovers)],
    ['Restarts seen', whole(state.resets)],
  ];
  put('config', ...facts.flatMap(([name, value]) => [make('dt', null, name), make('dd', null, value)]));
  put('refusals', ...reload.refusals.map((one) => make('li', null, make('span', { class: 'quiet' }, span(one.age_ms) + ' ago: '), one.error)));
  $('refusals-empty').hidden = reload.refusals.length > 0;
}

/* ---- recent decisions ---- */

function why(line) {
  const compared = line.holder_depth === null && line.other_depth === null ? '' : 'holder\u2019s queue ' + depth(line.holder_depth) + ', other '
    + depth(line.other_depth);
  const moved = line.attempts > 1 ? 'attempt ' + line.attempts + ': the site before did not take it. ' : '';
  if (line.code || line.status) return 'answered here: ' + [line.status, line.code].filter(Boolean).join(' ');
  if (line.pinned) return moved + 'its id was given out there';
  if (line.outcome === 'not_applicable') return moved + 'no keys: ' + (line.reason || 'none').replaceAll('_', ' ');
  if (line.outcome === 'no_match') return moved + (line.run ? 'the longest run is too short' : 'nobody holds its beginning');
  if (line.outcome === 'exploration') return moved + 'drawn to go by load';
  if (line.outcome === 'load_override') return moved + compared + ': more apart than the worth';
  if (line.outcome === 'sticky') return moved + (compared ? compared + ': within the worth' : 'every admitted site holds as much');
  return moved + 'one site to choose from, or affinity off';
}

function showRecent(state, now) {
  put('recent-rows', ...state.recent.map((line) => row(
    cell('Time', 'half', clock(now - line.age_ms)),
    cell('Site', 'site', line.site || '\u2013'),
    cell('Outcome', 'half', line.outcome || (line.pinned ? 'pinned' : line.site ? 'other' : 'refused')),
    cell('Blocks', 'n', whole(line.blocks)),
    cell('Held', 'n', whole(line.run)),
    cell('Queue', 'n', line.site && !line.pinned ? (line.depth === null ? 'none' : number(line.depth)) : '\u2013'),
    cell('Worth', 'n', number(line.worth)),
    cell('Why', 'why half', why(line)))));
  $('recent-empty').hidden = state.recent.length > 0;
  $('recent-note').textContent = state.recent.length ? 'The last ' + state.recent.length + ' of ' + whole(state.recent[0].number)
    + ' since the start, newest first. No text of requests.' : '';
}

/* ---- asking /grid ---- */

let timer = 0, asking = false, reached = 0;

function showState(word, kind) {
  if ($('state').textContent !== word) $('state').textContent = word;
  $('state').className = 'pill ' + kind;
}

function show(state) {
  const now = Date.now();
  reached = now;
  $('alarm').hidden = true;
  document.body.classList.remove('stale');
  showState(state.draining ? 'draining' : state.ready ? 'ready' : 'starting', state.ready && !state.draining ? 'good' : 'warn');
  $('updated').textContent = 'as of ' + clock(now);
  showSites(state);
  showOutcomes(state);
  showConfig(state);
  showRecent(state, now);
  $('ask').hidden = !state.explain;
  $('ask-off').hidden = state.explain;
  modelHeader = state.settings.model_header;
}

function showLost(error) {
  showState('not reached', 'bad');
  document.body.classList.toggle('stale', reached > 0);
  const text = 'The gateway cannot be reached (' + error + '). ' + (reached ? 'What stands below is from ' + clock(reached) + '.' : 'Asking again every 2 s.');
  if ($('alarm').textContent !== text) $('alarm').textContent = text;
  $('alarm').hidden = false;
}

async function ask(path, options) {
  const limit = new AbortController(), alarm = setTimeout(() => limit.abort(), LIMIT_MS);
  try {
    const answer = await fetch(path, { ...options, cache: 'no-store', signal: limit.signal });
    const text = await answer.text();
    let json = null;
    try { json = JSON.parse(text); } catch { /* told below, by the status */ }
    if (!json || !answer.ok) throw new Error(json && json.error ? json.error : 'status ' + answer.status);
    return json;
  } catch (error) {
    throw new Error(error.name === 'AbortError' ? 'no answer in ' + LIMIT_MS / 1000 + ' s' : error.name === 'TypeError' ? 'no connection' : error.message);
  } finally {
    clearTimeout(alarm);
  }
}

async function refresh() {
  clearTimeout(timer);
  if (asking || document.hidden) return;
  asking = true;
  try {
    show(await ask('/grid'));
  } catch (error) {
    showLost(error.message);
  }
  asking = false;
  if (!document.hidden) timer = setTimeout(refresh, EVERY_MS);
}
document.addEventListener('visibilitychange', refresh);

/* ---- explaining a request ---- */

let modelHeader = 'x-model', before = null;

const fact = (name, value) => (value === null ? [] : [make('dt', null, name), make('dd', null, value)]);

/* The keys of the body that was asked about before are compared, in this page's memory only. */
function compared(keys) {
  if (!before || !before.length || !keys.length) return null;
  let same = 0;
  while (same < keys.length && keys[same] === before[same]) same++;
  if (same === keys.length && same === before.length) return 'the same keys as the body before';
  if (same === 0) return 'no leading block in common with the body before';
  return 'the first ' + plural(same, 'block') + ' as in the body before'
    + (same < keys.length && same < before.length ? '; block ' + (same + 1) + ' differs' : '; one is the beginning of the other');
}

function candidateRow(one, decision) {
  const chosen = decision.action === 'forward' && one.cluster === decision.cluster;
  return row(
    cell('Site', 'site', make('span', { class: 'name' }, one.site), make('span', { class: 'quiet' }, one.cluster)),
    cell('Chosen', '', chosen ? make('strong', { class: 'good' }, 'chosen') : '\u2013'),
    cell('New requests', '', one.admitted ? 'taken' : make('span', { class: 'warn' }, 'not taken')),
    cell('Worst queue', 'n', depth(one.depth)),
    cell('Holds', 'n', whole(one.run) + ' of ' + plural(decision.blocks, 'block')));
}

function candidates(decision) {
  const titles = [['Site', ''], ['Chosen', ''], ['New requests', ''], ['Worst queue', 'n'], ['Holds', 'n']];
  const head = titles.map(([title, kind]) => make('th', { role: 'columnheader', scope: 'col', class: kind || null }, title));
  return make('table', { class: 'cards', role: 'table', 'aria-label': 'Candidates' }, make('thead', { role: 'rowgroup' }, row(...head)),
    make('tbody', { role: 'rowgroup' }, ...decision.candidates.map((one) => candidateRow(one, decision))));
}

function showAnswer(answer) {
  const d = answer.decision, forward = d.action === 'forward';
  const verdict = forward ? 'To ' + d.site + ' (' + d.cluster + ')' : 'Answered by the gateway: status ' + d.status;
  const gate = d.holder_depth === null && d.other_depth === null ? null : 'holder ' + depth(d.holder_depth) + ', best other ' + depth(d.other_depth);
  put('answer',
    make('p', { class: 'verdict' }, verdict),
    make('dl', null,
      ...fact('Outcome', d.outcome || (d.pinned ? 'pinned' : 'counted as none')),
      ...fact('Why', d.why),
      ...fact('Flips by', d.flips_by),
      ...fact('Request', (d.api || 'no known API') + ', model ' + (d.model || 'none named')),
      ...fact('Keys', d.blocks ? plural(d.blocks, 'block') + ' of ' + answer.block_bytes + ' bytes' : 'none: ' + (d.reason || 'no prompt').replaceAll('_', ' ')),
      ...fact('Compared', compared(answer.keys)),
      ...fact('Longest run', d.blocks ? plural(d.run, 'block') + ', about ' + whole(d.run * answer.tokens_a_block) + ' tokens of prefill' : null),
      ...fact('Worth', d.worth === null ? null : number(d.worth) + ' queued requests'),
      ...fact('Queues', gate)),
    d.candidates.length ? candidates(d) : make('p', { class: 'empty' }, 'No candidate serves this model.'),
    ...(answer.keys.length ? [make('details', null, make('summary', null, plural(answer.keys.length, 'key')),
      make('pre', { tabindex: 0, 'aria-label': 'Keys in order' }, answer.keys.join(' ')))] : []));
  if (answer.keys.length) before = answer.keys;
}

const refuse = (message) => put('answer', make('p', { class: 'verdict bad' }, 'Not explained: ' + message));

async function explain() {
  const body = new TextEncoder().encode($('ask-body').value), model = new TextEncoder().encode($('ask-model').value.trim());
  const button = document.querySelector('#ask button'), headers = { 'content-type': 'application/json' };
  if (!body.length) return refuse('paste a body first');
  if (body.length > MAX_BODY_BYTES) return refuse('the body is over 8 MiB');
  if (model.length) headers[modelHeader] = String.fromCharCode(...model);
  button.disabled = true;
  try {
    showAnswer(await ask('/explain' + $('ask-path').value, { method: 'POST', headers, body }));
  } catch (error) {
    refuse(error.message);
  }
  button.disabled = false;
}

$('ask').addEventListener('submit', (event) => {
  event.preventDefault();
  explain();
});
$('ask-body').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    $('ask').requestSubmit();
  }
});
refresh();
