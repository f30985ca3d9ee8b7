/* page.js - asks the server what has changed and shows it: the list of runs, which of them are ticked, their curves.
 * Nothing is asked while the page is not visible. */
'use strict';

const POLL_MS = 2000, COLORS = 8, POINTS = 400;

const byId = (id) => document.getElementById(id);

const state = {
    version: '',
    now: 0,
    runs: new Map(),   /* name -> row of the list */
    items: new Map(),  /* name -> elements of the list */
    ticked: new Map(), /* name -> {color, run, series, seen}; in the order of ticking */
    focus: null,       /* the ticked run whose ranks and log are shown */
    axis: 'epoch',
    range: null,       /* [from, to] on the axis, or null */
    fresh: true,       /* nothing was chosen yet */
};

const KIND_STYLES = {train: 'solid', val: 'dotted', test: 'dashed'};

const CHARTS = [
    {title: 'Loss', unit: 'train solid, validation dotted, test dashed', lines: [['train', 'loss', 'train'], ['val', 'loss', 'validation'], ['test', 'loss', 'test']], log: true},
    {title: 'Accuracy', unit: 'top-1, percent', lines: [['train', 'top1', 'train'], ['val', 'top1', 'validation'], ['test', 'top1', 'test']], most: 100},
    {title: 'Top-5 accuracy', unit: 'percent', lines: [['val', 'top5', 'validation'], ['test', 'top5', 'test']], most: 100},
    {title: 'Images per second', unit: 'all ranks', lines: [['train', 'img_per_s', '']], floor: true},
    {title: 'Gradient norm', unit: '', lines: [['train', 'grad_norm', '']], floor: true},
    {title: 'Learning rate', unit: '', lines: [['train', 'lr', '']], floor: true, exact: true},
];

function makeCharts() {
    for (const chart of CHARTS) {
        chart.view = new Chart(chart.title, chart.unit, chart, zoom);
        byId('charts').append(chart.view.root);
    }
}

async function ask(path, values) {
    const query = new URLSearchParams(values);
    const answer = await fetch(`api/${path}?${query}`, {cache: 'no-cache', signal: AbortSignal.timeout(20000)});
    if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
    state.now = Date.parse(answer.headers.get('Date')) / 1000 || state.now;
    return answer.json();
}

function makeItem(name) {
    const item = element('li'), label = element('label'), box = element('input');
    box.type = 'checkbox';
    box.addEventListener('change', () => (box.checked ? tick(name) : untick(name)));
    const parts = {item, box, name: element('span', '', 'name'), state: element('span', '', 'state'),
        when: element('span', '', 'line'), line: element('span', '', 'line')};
    label.append(box, parts.name, parts.state, parts.when, parts.line);
    item.append(label);
    return parts;
}

function describe(run) {
    const parts = [];
    if (run.epoch !== undefined) parts.push(`epoch ${run.epoch < 10 ? run.epoch.toFixed(1) : Math.floor(run.epoch)}`);
    if (run.loss !== undefined) parts.push(`loss ${Show.number(run.loss, 3)}`);
    if (run.val_top1 !== undefined) parts.push(`val ${Show.number(run.val_top1, 4)} %`);
    if (run.test_top1 !== undefined) parts.push(`test ${Show.number(run.test_top1, 4)} %`);
    return parts.join(' · ') || run.problem || 'no steps yet';
}

function fillItem(run) {
    const parts = state.items.get(run.name), told = stateOf(run, state.now);
    const title = [run.model, run.data].filter(Boolean).join(' · ') || run.name;
    if (parts.name.textContent !== title) parts.name.textContent = title;
    parts.item.title = `${run.name}\nstarted ${Show.moment(run.started)}`;
    parts.state.textContent = told.word;
    parts.state.className = 'state ' + told.kind;
    parts.when.textContent = [Show.moment(run.started), run.ranks > 1 ? `${run.ranks} ranks` : '', leftOf(run, state.now)].filter(Boolean).join(' · ');
    parts.line.textContent = describe(run);
    const ticked = state.ticked.get(run.name);
    parts.box.checked = Boolean(ticked);
    parts.item.style.setProperty('--tick', ticked ? `var(${ticked.color})` : 'var(--accent)');
}

/* Newest first. */
function orderItems() {
    const names = [...state.runs.keys()].sort((a, b) => (state.runs.get(b).started || 0) - (state.runs.get(a).started || 0) || (a < b ? 1 : -1));
    byId('runs').replaceChildren(...names.map((name) => state.items.get(name).item));
}

function filterItems() {
    const words = byId('filter').value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const [name, parts] of state.items) {
        const text = (name + ' ' + parts.name.textContent).toLowerCase();
        parts.item.hidden = !words.every((word) => text.includes(word));
        shown += !parts.item.hidden;
    }
    const none = byId('runs-none');
    none.hidden = shown > 0;
    none.textContent = state.runs.size ? 'No run has such a name.' : 'No runs here yet. `lockstep train --log-dir` with this folder adds one.';
    byId('runs-count').textContent = `${state.ticked.size} of ${state.runs.size} ticked`;
}

function forget(name) {
    state.runs.delete(name);
    state.items.get(name)?.item.remove();
    state.items.delete(name);
    if (state.ticked.has(name)) untick(name);
}

function takeRuns(answer) {
    state.version = answer.version;
    byId('folder').textContent = answer.folder;
    const names = new Set(answer.runs.map((run) => run.name));
    if (answer.all) [...state.runs.keys()].filter((name) => !names.has(name)).forEach(forget);
    let added = false;
    for (const run of answer.runs) {
        added = added || !state.runs.has(run.name);
        state.runs.set(run.name, run);
        if (!state.items.has(run.name)) state.items.set(run.name, makeItem(run.name));
    }
    for (const run of state.runs.values()) if (names.has(run.name) || run.status === 'running') fillItem(run);
    if (added) orderItems();
    if (added || answer.all) filterItems();
}

function freeColor() {
    const used = [...state.ticked.values()].map((t) => t.color);
    for (let i = 0; i < COLORS; i++) if (!used.includes(`--c${i}`)) return `--c${i}`;
    return `--c${state.ticked.size % COLORS}`;
}

function tick(name) {
    state.fresh = false;
    state.ticked.set(name, {color: freeColor(), run: null, series: null, seen: null});
    if (!state.focus) focusOn(name);
    ticksChanged();
    void poll();
}

function untick(name) {
    state.ticked.delete(name);
    if (state.focus === name) focusOn(state.ticked.keys().next().value || null);
    ticksChanged();
}

function ticksChanged() {
    for (const run of state.runs.values()) fillItem(run);
    filterItems();
    keepAddress();
    showTicked();
}

function keepAddress() {
    const words = new URLSearchParams({x: state.axis});
    for (const name of state.ticked.keys()) words.append('run', name);
    history.replaceState(null, '', '#' + words);
}

function readAddress() {
    const words = new URLSearchParams(location.hash.slice(1)), axis = words.get('x');
    const radio = axis && document.querySelector(`input[name="x"][value="${CSS.escape(axis)}"]`);
    if (radio) {
        radio.checked = true;
        state.axis = axis;
    }
    return words.getAll('run');
}

/* At first the page shows the runs of its address, else those that are running, else the newest. */
function tickFirst(wanted) {
    const there = wanted.filter((name) => state.runs.has(name));
    const running = [...state.runs.values()].filter((run) => stateOf(run, state.now).kind === 'running').map((run) => run.name);
    const newest = [...state.runs.values()].sort((a, b) => (b.started || 0) - (a.started || 0))[0];
    const chosen = there.length ? there : running.length ? running.slice(0, 4) : newest ? [newest.name] : [];
    chosen.forEach(tick);
}

function labels() {
    const names = [...state.ticked.keys()];
    const texts = labelRuns(names.map((name) => ({...state.runs.get(name), ...state.ticked.get(name).run, name})));
    return new Map(names.map((name, i) => [name, texts[i]]));
}

function showLegend(names) {
    byId('legend').replaceChildren(...[...state.ticked].map(([name, ticked]) => {
        const item = element('li'), mark = element('span', undefined, 'swatch');
        item.style.setProperty('--tick', `var(${ticked.color})`);
        item.title = name;
        item.append(mark, names.get(name));
        return item;
    }));
}

function linesOf(chart, names) {
    const lines = [];
    for (const [name, ticked] of state.ticked) {
        for (const [kind, column, word] of chart.lines) {
            const points = ticked.series?.[kind]?.[column];
            if (!points || !points.x.length) continue;
            const label = state.ticked.size > 1 ? `${names.get(name)} ${word}` : word || names.get(name);
            lines.push({label, color: ticked.color, x: points.x, y: points.y, style: KIND_STYLES[kind]});
        }
    }
    return lines;
}

function drawCharts(names = labels()) {
    const view = {axis: state.axis, log: byId('log').checked, weight: Number(byId('smooth').value), range: state.range};
    for (const chart of CHARTS) chart.view.set(linesOf(chart, names), view);
}

function showTabs(names) {
    const tabs = byId('tabs');
    tabs.hidden = state.ticked.size < 2;
    tabs.replaceChildren(...[...state.ticked].map(([name, ticked]) => {
        const tab = element('button'), mark = element('span', undefined, 'swatch');
        mark.style.background = `var(${ticked.color})`;
        tab.type = 'button';
        tab.setAttribute('role', 'tab');
        tab.setAttribute('aria-selected', String(name === state.focus));
        tab.append(mark, names.get(name));
        tab.addEventListener('click', () => {
            focusOn(name);
            showTicked();
            void poll();
        });
        return tab;
    }));
}

function showTicked() {
    const names = labels(), known = [...state.ticked].filter(([, ticked]) => ticked.run);
    byId('nothing').hidden = state.ticked.size > 0 || state.runs.size === 0;
    byId('one').hidden = state.ticked.size === 0;
    showLegend(names);
    showTabs(names);
    const about = known.map(([name, ticked]) => ({...ticked.run, name}));
    showFacts(about, known.map(([name]) => names.get(name)), known.map(([, ticked]) => ticked.color),
        about.find((run) => run.name === state.focus));
    drawCharts(names);
}

function zoom(from, to) {
    state.range = from === null ? null : [from, to];
    byId('unzoom').hidden = state.range === null;
    for (const ticked of state.ticked.values()) ticked.seen = null;
    drawCharts();
    void poll();
}

let log = null;

function focusOn(name) {
    state.focus = name;
    log.clear();
    showRanks(null);
}

/* A run's row in the list has `stamp`, which changes with its files: unchanged runs are not asked for again. */
async function askTicked(name, ticked) {
    const row = state.runs.get(name), values = {run: name, x: state.axis, points: POINTS};
    if (!row || ticked.seen === row.stamp) return false;
    if (state.range) [values.from, values.to] = state.range;
    const asked = state.axis + state.range;
    const [series, run] = await Promise.all([ask('series', values), ask('run', {run: name})]);
    if (series.problem) run.error = series.problem;
    if (series.gone || run.gone || asked !== state.axis + state.range) return false;
    ticked.series = series;
    ticked.run = run;
    ticked.seen = series.complete ? row.stamp : null;
    state.hurry = state.hurry || !series.complete;
    return true;
}

async function askFocus() {
    const name = state.focus;
    if (!name) return;
    const values = log.next === null ? {run: name} : {run: name, from: log.next};
    const [ranks, text] = await Promise.all([ask('ranks', {run: name}), ask('log', values)]);
    if (name !== state.focus || ranks.gone || text.gone) return;
    showRanks(ranks.ranks ? ranks : null);
    log.add(text);
}

async function askAll(wanted) {
    takeRuns(await ask('runs', {since: state.version}));
    if (state.fresh && state.runs.size) tickFirst(wanted);
    const changed = await Promise.all([...state.ticked].map(([name, ticked]) => askTicked(name, ticked)));
    if (changed.some(Boolean)) showTicked();
    await askFocus();
}

function showLink(live) {
    const link = byId('link');
    link.className = live ? 'live' : 'lost';
    link.textContent = live ? 'live' : 'no answer from the server';
}

let polling = false, again = false, timer = 0;

async function poll() {
    again = polling;
    if (polling) return;
    polling = true;
    state.hurry = false;
    clearTimeout(timer);
    try {
        await askAll(readAddress());
        showLink(true);
    } catch (error) {
        showLink(false);
    }
    polling = false;
    if (!document.hidden) timer = setTimeout(poll, again || state.hurry ? 0 : POLL_MS);
}

function listen() {
    for (const radio of document.querySelectorAll('input[name="x"]')) {
        radio.addEventListener('change', () => {
            state.axis = radio.value;
            for (const ticked of state.ticked.values()) ticked.series = ticked.seen = null;
            keepAddress();
            zoom(null);
        });
    }
    byId('smooth').addEventListener('input', () => drawCharts());
    byId('log').addEventListener('change', () => drawCharts());
    byId('unzoom').addEventListener('click', () => zoom(null));
    byId('filter').addEventListener('input', filterItems);
    byId('untick').addEventListener('click', () => [...state.ticked.keys()].forEach(untick));
    byId('runs-toggle').addEventListener('click', (event) => {
        const toggle = event.currentTarget;
        toggle.setAttribute('aria-expanded', String(toggle.getAttribute('aria-expanded') !== 'true'));
    });
    document.addEventListener('visibilitychange', () => (document.hidden ? clearTimeout(timer) : void poll()));
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => drawCharts());
}

log = new LogPanel();
if (matchMedia('(max-width: 760px)').matches) byId('runs-toggle').setAttribute('aria-expanded', 'false');
makeCharts();
listen();
readAddress();
void poll();
