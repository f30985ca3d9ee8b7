/* chart.js - a line chart on a canvas: axes, lines, a crosshair with the values under it, zoom by dragging.
 * Knows nothing of runs or of the server. */
'use strict';

/* Numbers and times as people read them. */
const Show = {
    number(value, digits = 4) {
        if (value === null || value === undefined || Number.isNaN(value)) return '–';
        const size = Math.abs(value);
        if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2).replace('e+', 'e');
        if (Number.isInteger(value)) return value.toLocaleString('en-US');
        return value.toLocaleString('en-US', {maximumSignificantDigits: Math.max(digits, Math.floor(size).toString().length)});
    },

    duration(seconds) {
        if (!(seconds >= 0)) return '–';
        if (seconds < 60) return seconds.toFixed(seconds < 10 ? 1 : 0) + ' s';
        const whole = Math.round(seconds), two = (n) => String(n).padStart(2, '0');
        if (whole < 3600) return `${Math.floor(whole / 60)}:${two(whole % 60)} min`;
        return `${Math.floor(whole / 3600)}:${two(Math.floor(whole % 3600 / 60))} h`;
    },

    moment(unix) {
        if (!unix) return '–';
        return new Date(unix * 1000).toLocaleString([], {
            month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', hourCycle: 'h23',
        });
    },

    x(value, axis) {
        return axis === 'seconds' ? Show.duration(value) : Show.number(value, axis === 'epoch' ? 4 : 7);
    },
};

/* Round values from low to high, about `count` of them. */
function linearTicks(low, high, count) {
    const raw = (high - low) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw) || raw;
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-12) + step * 1e-9; i++) {
        ticks.push(Number((i * step).toPrecision(12)));
    }
    return ticks;
}

function logTicks(low, high) {
    const decades = Math.log10(high / low), marks = decades > 4 ? [1] : decades > 1.5 ? [1, 3] : [1, 2, 5];
    const ticks = [];
    for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++) {
        for (const m of marks) {
            const value = Number((m * 10 ** p).toPrecision(3));
            if (value >= low * .999 && value <= high * 1.001) ticks.push(value);
        }
    }
    return ticks;
}

/* Round times: seconds, minutes, hours. */
function timeTicks(low, high, count) {
    const raw = (high - low) / Math.max(1, count);
    const steps = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400];
    if (raw < 1) return linearTicks(low, high, count);
    const step = steps.find((s) => s >= raw) || 86400 * Math.ceil(raw / 86400);
    const ticks = [];
    for (let t = Math.ceil(low / step) * step; t <= high; t += step) ticks.push(t);
    return ticks;
}

/* The index of the element of a rising array that is nearest to `value`. */
function nearest(array, value) {
    let low = 0, high = array.length - 1;
    while (low < high) {
        const middle = (low + high) >> 1;
        if (array[middle] < value) low = middle + 1;
        else high = middle;
    }
    return low > 0 && value - array[low - 1] < array[low] - value ? low - 1 : low;
}

/* An exponential moving average whose start is not pulled towards zero. */
function movingAverage(values, weight) {
    let sum = 0, total = 0;
    return values.map((value) => {
        sum = sum * weight + value * (1 - weight);
        total = total * weight + (1 - weight);
        return sum / total;
    });
}

/* The mean of the moving averages in both directions: the line neither lags nor leads. */
function smoothed(values, weight) {
    const there = movingAverage(values, weight), back = movingAverage([...values].reverse(), weight).reverse();
    return there.map((value, i) => (value + back[i]) / 2);
}

/* How lines are drawn; later ones over earlier ones. */
const STYLES = {
    solid: {dash: [], width: 1.6},
    dotted: {dash: [1.5, 3], width: 1.8, dots: 'ring'},
    dashed: {dash: [5, 3], width: 1.8, dots: 'disc'},
};

class Chart {
    /* title, unit: texts. floor: the axis begins at 0 if no value is negative. most: largest value of the axis. log: may
     * have a log scale. exact: is never smoothed.
     * zoomed(from, to) is called after a drag, zoomed(null) after a double click. */
    constructor(title, unit, options, zoomed) {
        this.options = options;
        this.zoomed = zoomed;
        this.lines = [];
        this.root = document.createElement('figure');
        this.root.className = 'chart';
        this.root.style.margin = '0';
        const head = this.root.appendChild(document.createElement('h2'));
        head.textContent = title;
        head.appendChild(document.createElement('small')).textContent = unit;
        this.canvas = this.root.appendChild(document.createElement('canvas'));
        this.canvas.setAttribute('role', 'img');
        this.canvas.setAttribute('aria-label', title);
        this.tip = this.root.appendChild(document.createElement('div'));
        this.tip.className = 'tip';
        this.tip.hidden = true;
        this.listen();
        new ResizeObserver(() => this.draw()).observe(this.canvas);
    }

    listen() {
        const at = (event) => event.clientX - this.canvas.getBoundingClientRect().left;
        this.canvas.addEventListener('pointermove', (event) => {
            this.pointer = at(event);
            this.draw();
        });
        this.canvas.addEventListener('pointerdown', (event) => {
            if (event.pointerType === 'mouse' && event.button === 0) this.pressed = at(event);
        });
        this.canvas.addEventListener('pointerup', (event) => {
            const from = this.pressed, to = at(event);
            this.pressed = undefined;
            if (from !== undefined && Math.abs(to - from) > 6 && this.scale) {
                const ends = [this.scale.x.back(from), this.scale.x.back(to)].sort((a, b) => a - b);
                this.zoomed(ends[0], ends[1]);
            }
        });
        this.canvas.addEventListener('dblclick', () => this.zoomed(null));
        this.canvas.addEventListener('pointerleave', () => {
            this.pointer = this.pressed = undefined;
            this.draw();
        });
    }

    /* lines: [{label, color, x, y, style}], x rising; color is the name of a CSS variable, style one of STYLES.
     * view: {axis, log, weight, range}. */
    set(lines, view) {
        this.view = view;
        const soften = (line) => view.weight > 0 && line.style === 'solid' && !this.options.exact;
        this.lines = lines.map((line) => ({...line, soft: soften(line) ? smoothed(line.y, view.weight) : null}));
        const order = Object.keys(STYLES);
        this.lines.sort((a, b) => order.indexOf(a.style) - order.indexOf(b.style));
        this.root.hidden = lines.length === 0;
        this.draw();
    }

    bounds() {
        let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
        const log = this.view.log && this.options.log, range = this.view.range;
        for (const line of this.lines) {
            for (let i = 0; i < line.x.length; i++) {
                const x = line.x[i], y = line.y[i];
                if ((range && (x < range[0] || x > range[1])) || (log && y <= 0)) continue;
                if (x < x0) x0 = x;
                if (x > x1) x1 = x;
                if (y < y0) y0 = y;
                if (y > y1) y1 = y;
            }
        }
        if (range) [x0, x1] = range;
        if (!(x1 >= x0) || !(y1 >= y0)) return null;
        if (x0 === x1) [x0, x1] = [x0 - .5, x1 + .5];
        if (!log && this.options.floor && y0 >= 0) y0 = 0;
        if (log) return y0 < y1 ? {x0, x1, y0, y1, log} : {x0, x1, y0: y0 / 2, y1: y1 * 2, log};
        const room = y0 === y1 ? (Math.abs(y0) || 1) * .1 : (y1 - y0) * .06;
        const top = Math.min(y1 + room, Math.max(this.options.most || Infinity, y1));
        return {x0, x1, y0: this.options.floor && y0 === 0 ? 0 : y0 - room, y1: top, log};
    }

    makeScale(context, width, height) {
        const b = this.bounds();
        if (!b) return null;
        const count = Math.max(2, Math.floor(height / 42));
        const yTicks = b.log ? logTicks(b.y0, b.y1) : linearTicks(b.y0, b.y1, count);
        const left = Math.ceil(Math.max(24, ...yTicks.map((t) => context.measureText(Show.number(t)).width))) + 10;
        const right = width - 8, top = 8, bottom = height - 22;
        const f = b.log ? Math.log : (v) => v, low = f(b.y0), high = f(b.y1);
        const ticks = this.view.axis === 'seconds' ? timeTicks : linearTicks;
        return {
            left, right, top, bottom, yTicks, log: b.log,
            xTicks: ticks(b.x0, b.x1, Math.max(2, Math.floor((right - left) / 64))),
            x: Object.assign((v) => left + (v - b.x0) / (b.x1 - b.x0) * (right - left),
                {back: (p) => b.x0 + (p - left) / (right - left) * (b.x1 - b.x0)}),
            y: (v) => bottom - (f(v) - low) / (high - low) * (bottom - top),
        };
    }

    draw() {
        const box = this.canvas.getBoundingClientRect(), dots = window.devicePixelRatio || 1;
        if (!box.width || !this.view) return;
        const context = this.canvas.getContext('2d'), style = getComputedStyle(document.documentElement);
        this.color = (name) => style.getPropertyValue(name).trim();
        this.canvas.width = Math.round(box.width * dots);
        this.canvas.height = Math.round(box.height * dots);
        context.scale(dots, dots);
        context.font = '11px ' + getComputedStyle(document.body).fontFamily;
        this.scale = this.makeScale(context, box.width, box.height);
        if (!this.scale) return;
        this.drawAxes(context);
        context.save();
        context.beginPath();
        context.rect(this.scale.left, 0, this.scale.right - this.scale.left + 4, this.scale.bottom + 1);
        context.clip();
        for (const line of this.lines) this.drawLine(context, line);
        this.drawPressed(context);
        context.restore();
        this.drawPointer(context);
    }

    drawAxes(context) {
        const s = this.scale;
        context.lineWidth = 1;
        context.fillStyle = this.color('--faint');
        context.strokeStyle = this.color('--grid');
        context.textAlign = 'right';
        context.textBaseline = 'middle';
        context.beginPath();
        for (const tick of s.yTicks) {
            const y = Math.round(s.y(tick)) + .5;
            context.moveTo(s.left, y);
            context.lineTo(s.right, y);
            context.fillText(Show.number(tick), s.left - 7, y);
        }
        context.stroke();
        context.textBaseline = 'top';
        for (const tick of s.xTicks) {
            const text = Show.x(tick, this.view.axis), half = context.measureText(text).width / 2;
            context.textAlign = 'center';
            context.fillText(text, Math.min(Math.max(s.x(tick), s.left + half - 6), s.right - half + 6), s.bottom + 7);
        }
    }

    /* The values as measured stay visible behind the smoothed line. */
    drawLine(context, line) {
        const color = this.color(line.color);
        context.lineJoin = 'round';
        context.strokeStyle = context.fillStyle = color;
        if (line.soft) {
            context.globalAlpha = .25;
            this.strokePath(context, line.x, line.y, 1);
            context.globalAlpha = 1;
        }
        const style = STYLES[line.style];
        context.setLineDash(style.dash);
        this.strokePath(context, line.x, line.soft || line.y, style.width);
        context.setLineDash([]);
        if (style.dots && line.x.length < 80) {
            for (let i = 0; i < line.x.length; i++) this.drawDot(context, line.x[i], line.y[i], 2.8, style.dots === 'ring');
        } else if (line.x.length === 1) {
            this.drawDot(context, line.x[0], line.y[0], 2.4);
        }
    }

    strokePath(context, x, y, width) {
        const s = this.scale;
        let drawing = false;
        context.lineWidth = width;
        context.beginPath();
        for (let i = 0; i < x.length; i++) {
            if (s.log && y[i] <= 0) drawing = false;
            else if (drawing) context.lineTo(s.x(x[i]), s.y(y[i]));
            else {
                context.moveTo(s.x(x[i]), s.y(y[i]));
                drawing = true;
            }
        }
        context.stroke();
    }

    drawDot(context, x, y, radius, ring = false) {
        if (this.scale.log && y <= 0) return;
        context.beginPath();
        context.arc(this.scale.x(x), this.scale.y(y), radius, 0, 2 * Math.PI);
        if (ring) context.stroke();
        else context.fill();
    }

    drawPressed(context) {
        if (this.pressed === undefined || this.pointer === undefined) return;
        context.fillStyle = this.color('--accent');
        context.globalAlpha = .12;
        context.fillRect(Math.min(this.pressed, this.pointer), this.scale.top, Math.abs(this.pressed - this.pointer),
            this.scale.bottom - this.scale.top);
        context.globalAlpha = 1;
    }

    drawPointer(context) {
        const s = this.scale, p = this.pointer;
        const shown = p !== undefined && p >= s.left && p <= s.right ? this.lines.filter((l) => l.x.length) : [];
        this.tip.hidden = shown.length === 0;
        if (this.tip.hidden) return;
        const value = s.x.back(p), rows = [];
        context.strokeStyle = this.color('--faint');
        context.beginPath();
        context.moveTo(Math.round(p) + .5, s.top);
        context.lineTo(Math.round(p) + .5, s.bottom);
        context.stroke();
        for (const line of shown) {
            const i = nearest(line.x, value), y = (line.soft || line.y)[i];
            context.fillStyle = this.color(line.color);
            this.drawDot(context, line.x[i], y, 3.2);
            rows.push({line, y, x: line.x[i]});
        }
        this.fillTip(rows, p, s);
    }

    fillTip(rows, p, s) {
        const near = rows.reduce((a, b) => (Math.abs(s.x(b.x) - p) < Math.abs(s.x(a.x) - p) ? b : a));
        const head = document.createElement('b');
        head.textContent = {step: 'step ', epoch: 'epoch ', seconds: ''}[this.view.axis] + Show.x(near.x, this.view.axis);
        this.tip.replaceChildren(head, ...rows.slice(0, 12).map(({line, y}) => {
            const row = document.createElement('div'), mark = document.createElement('span');
            mark.className = 'swatch';
            mark.style.background = `var(${line.color})`;
            const name = document.createElement('span'), number = document.createElement('span');
            name.textContent = line.label;
            number.textContent = Show.number(y);
            row.append(mark, name, number);
            return row;
        }));
        const left = this.canvas.offsetLeft + p, room = this.root.clientWidth, width = this.tip.offsetWidth;
        this.tip.style.left = Math.max(4, left + width + 18 > room ? left - width - 12 : left + 12) + 'px';
        this.tip.style.top = this.canvas.offsetTop + 6 + 'px';
    }
}
