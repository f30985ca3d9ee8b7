/* panels.js - the parts of the page below the curves: what differs between runs, the facts of one run, its ranks, its
 * log. All text from files is set by textContent, never as HTML. */
'use strict';

function element(tag, text, className) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
}

const SILENT_SECONDS = 120;

/* The state of a run in a word. A run that was killed still says "running" in its file. */
function stateOf(run, now) {
    if (run.problem) return {word: 'unreadable', kind: 'failed'};
    if (run.status !== 'running') return {word: run.status || 'unknown', kind: run.status || ''};
    const quiet = now - run.changed;
    if (quiet > SILENT_SECONDS) return {word: 'silent ' + Show.duration(quiet), kind: 'silent'};
    const part = run.steps && run.step ? ` ${Math.floor(100 * run.step / run.steps)} %` : '';
    return {word: 'running' + part, kind: 'running'};
}

/* How long a run still takes, at its pace so far; '' if unknown. */
function leftOf(run, now) {
    if (stateOf(run, now).kind !== 'running' || !(run.steps > run.step) || !run.seconds) return '';
    return Show.duration(run.seconds * (run.steps - run.step) / run.step) + ' left';
}

/* The names of the options in which the runs differ. */
function differingOptions(runs) {
    const names = new Set();
    for (const run of runs) Object.keys(run.options || {}).forEach((name) => names.add(name));
    return [...names].filter((name) => {
        const values = runs.map((run) => (run.options || {})[name]);
        return values.some((value) => value !== values[0]);
    }).sort();
}

/* Short names that tell the ticked runs apart: the options in which they differ, else model and time. */
function labelRuns(runs) {
    const names = differingOptions(runs).filter((name) => !/dir$|checkpoint|save|seed$/.test(name)).slice(0, 3);
    const time = (run) => (run.started ? new Date(run.started * 1000).toLocaleTimeString([], {hour: '2-digit', minute: '2-digit', hourCycle: 'h23'}) : '');
    const labels = runs.map((run) => {
        const ranks = new Set(runs.map((r) => r.ranks)).size > 1 ? [`${run.ranks} rank${run.ranks === 1 ? '' : 's'}`] : [];
        const given = names.filter((name) => (run.options || {})[name] !== undefined);
        const parts = ranks.concat(given.map((name) => `${name} ${run.options[name]}`));
        return parts.length ? parts.join(', ') : `${run.model || run.name} ${time(run)}`;
    });
    return labels.map((label, i) => (labels.indexOf(label) !== labels.lastIndexOf(label) ? `${label} · ${runs[i].name}` : label));
}

/* Why --early-stop has ended a run. */
function earlyOf(early) {
    if (!early) return null;
    return `no better ${early.data} accuracy in ${early.epochs_without_better} epochs; the best was ${Show.number(early.best_top1)} %, after step ${Show.number(early.best_step)}`;
}

const FACTS = [
    ['Name', (run) => run.name],
    ['Command', (run) => (run.command || []).map((word) => (/[^\w.,:=/+@%-]/.test(word) ? `'${word}'` : word)).join(' '), true],
    ['State', (run) => run.status + (run.error ? ': ' + run.error : '')],
    ['Ended early', (run) => earlyOf(run.result && run.result.early_stop)],
    ['Started', (run) => Show.moment(run.started)],
    ['Ran for', (run) => (run.ended && run.started ? Show.duration(run.ended - run.started) : null)],
    ['Model', (run) => run.model + (run.parameters ? `, ${Show.number(run.parameters)} parameters` : '')],
    ['Data', (run) => run.data + (run.train_count ? `, ${Show.number(run.train_count)} + ${Show.number(run.test_count || 0)} samples` : '')],
    ['Ranks', (run) => `${run.ranks ?? '–'}` + (run.nodes > 1 ? ` on ${run.nodes} nodes` : '') + (run.threads ? `, ${run.threads} thread${run.threads === 1 ? '' : 's'} each` : '')],
    ['Devices', (run) => [...new Set(run.devices || [])].join(', ')],
    ['Host', (run) => run.host],
    ['Version', (run) => [run.version, run.build].filter(Boolean).join(', ')],
    ['State hash', (run) => run.hash, true],
];

function factRow(name, values, code) {
    const row = element('tr');
    row.append(element('th', name), ...values.map((value) => {
        const cell = element('td');
        cell.append(code ? element('code', value) : value);
        return cell;
    }));
    return row;
}

function showOne(table, run) {
    const body = element('tbody');
    for (const [name, find, code] of FACTS) {
        const value = find(run);
        if (value) body.append(factRow(name, [value], code));
    }
    table.replaceChildren(body);
}

function showDifferences(table, runs, labels, colors) {
    const head = element('thead'), row = element('tr'), body = element('tbody');
    row.append(element('th', ''), ...runs.map((run, i) => {
        const cell = element('th');
        const mark = element('span', undefined, 'key');
        mark.style.background = `var(${colors[i]})`;
        cell.title = run.name;
        cell.append(mark, labels[i]);
        return cell;
    }));
    head.append(row);
    for (const key of ['status', 'model', 'data', 'ranks', 'threads', 'host', 'version']) {
        if (runs.some((run) => run[key] !== runs[0][key])) {
            body.append(factRow(key, runs.map((run) => String(run[key] ?? '–') + (key === 'status' && run.error ? ': ' + run.error : '')), false));
        }
    }
    for (const name of differingOptions(runs)) {
        if (!/^(model|data|nproc|threads)$/.test(name)) {
            body.append(factRow(name, runs.map((run) => (run.options || {})[name] ?? '–'), true));
        }
    }
    if (!body.children.length) body.append(factRow('', ['The options of these runs are equal.'], false));
    table.replaceChildren(head, body);
}

/* runs: their run.json; focus: that of the run whose ranks and log are shown, or undefined. */
function showFacts(runs, labels, colors, focus) {
    document.getElementById('differs').hidden = runs.length < 2;
    document.getElementById('facts').hidden = !focus;
    if (runs.length > 1) showDifferences(document.getElementById('differs-table'), runs, labels, colors);
    if (focus) showOne(document.getElementById('facts-table'), focus);
}

const RANK_COLUMNS = [
    ['img_per_s', 'Images/s', (v) => Show.number(v, 5)],
    ['wait_pct', 'Waiting', (v) => v.toFixed(1) + ' %'],
    ['cpu_pct', 'CPU', (v) => v.toFixed(0) + ' %'],
    ['memory_mb', 'Memory', (v) => Show.number(Math.round(v)) + ' MB'],
    ['gpu_pct', 'GPU', (v) => v.toFixed(0) + ' %'],
    ['gpu_memory_mb', 'GPU memory', (v) => Show.number(Math.round(v)) + ' MB'],
    ['gpu_celsius', 'GPU temp.', (v) => v.toFixed(0) + ' °C'],
];

function shareCell(rank) {
    const cell = element('td', undefined, 'share'), bar = element('div', undefined, 'parts'), words = [];
    for (const part of ['compute', 'data', 'wait']) {
        const percent = rank[part + '_pct'];
        if (typeof percent !== 'number') continue;
        const piece = element('i', undefined, part);
        piece.style.width = Math.max(0, Math.min(100, percent)) + '%';
        bar.append(piece);
        words.push(`${part} ${percent.toFixed(1)} %`);
    }
    bar.title = words.join(', ');
    cell.append(bar);
    return cell;
}

function rankHead(columns) {
    const head = element('thead'), row = element('tr'), share = element('th', undefined, 'share');
    for (const part of ['compute', 'data', 'wait']) share.append(element('span', undefined, 'key ' + part), part + ' ');
    row.append(element('th', 'Rank'), element('th', 'Where'), ...columns.map(([, title]) => element('th', title, 'number')), share);
    head.append(row);
    return head;
}

const RANKS_SHOWN = 256;

/* line: the newest line of ranks.jsonl, or null. */
function showRanks(line) {
    const table = document.getElementById('ranks'), ranks = (line && line.ranks) || [];
    document.getElementById('ranks-none').hidden = ranks.length > 0;
    table.hidden = ranks.length === 0;
    const more = ranks.length > RANKS_SHOWN ? `, the first ${RANKS_SHOWN} of ${ranks.length}` : '';
    document.getElementById('ranks-at').textContent = line ? `at step ${Show.number(line.step)}${more}` : '';
    const columns = RANK_COLUMNS.filter(([key]) => ranks.some((rank) => typeof rank[key] === 'number'));
    const body = element('tbody');
    for (const rank of ranks.slice(0, RANKS_SHOWN)) {
        const row = element('tr');
        row.append(element('th', String(rank.rank)), element('td', [rank.host, rank.device].filter(Boolean).join(' · ')),
            ...columns.map(([key, , show]) => element('td', typeof rank[key] === 'number' ? show(rank[key]) : '–', 'number')),
            shareCell(rank));
        body.append(row);
    }
    table.replaceChildren(rankHead(columns), body);
}

const LOG_KEPT = 200000;

/* The end of a run's log; follows new lines while the reader is at the end. */
class LogPanel {
    constructor() {
        this.pane = document.getElementById('log-text');
        this.clear();
    }

    clear() {
        this.next = null;
        this.pane.textContent = '';
    }

    /* answer: {from, next, text}. Text that does not continue what is shown replaces it: the file was cut. */
    add(answer) {
        const atEnd = this.pane.scrollHeight - this.pane.scrollTop - this.pane.clientHeight < 24;
        const goesOn = this.next !== null && answer.from === this.next;
        if (goesOn && !answer.text) return;
        this.pane.textContent = ((goesOn ? this.pane.textContent : '') + answer.text).slice(-LOG_KEPT);
        this.next = answer.next;
        if (atEnd || !goesOn) this.pane.scrollTop = this.pane.scrollHeight;
    }
}
