/* outer.c - weight gradients of layers with many channels; see outer.h. */
#include "tensor/cpu/outer.h"

#include <string.h>

#include "tensor/cpu/cpu.h"
#include "tensor/cpu/fold.h"
#include "tensor/cpu/gemm.h"
#include "tensor/cpu/outer_tile.h"

enum {
    /* Of a segment, at most: pixels of dy, runs, bands; floats of x, unless one block of the sum has more. */
    PIXELS = LK_SUM_BLOCK,
    RUNS = 2 * PIXELS + 2 * LK_TREE_MAX_DEPTH, /* the last ones are left to zeros */
    BANDS = PIXELS,
    BOX_FLOATS = 32 * 1024,
    /* Of a task: tiles and panels, roughly. */
    TILES = 192,
    PANELS = 8,
    TASKS_A_THREAD = 4,
    ALWAYS = 32,                     /* channels with which lk__outer_fits is true in every build */
    LINE = LK_ALIGN / sizeof(float), /* floats of a cache line */
    STEP = 4,                        /* pixels of dy that are copied at once */
    NEXT_ROWS = 2,                   /* rows of dw that are prefetched */
    AHEAD = 8,                       /* pixels that are prefetched */
    /* Floats from a strip of dy to the next: a power of two between them would put all into the same lines of the
     * first-level cache. */
    STRIP = PIXELS * LK_MR + LINE
};

_Static_assert((int)ALWAYS >= (int)LK_NR, "so many channels fill a panel in every build");

typedef struct weight_job {
    lk_outer outer;
    size_t in, out, taps;           /* in and out: channels of a group */
    bool flat;                      /* pointwise: the pixels of all samples are one long row */
    bool single;                    /* each pixel of dy reads one pixel of x, which exists */
    bool whole;                     /* tiles add the zeros of the padding, too */
    size_t units, blocks;           /* units of rows, blocks of channels */
    size_t some_units, some_blocks; /* of a task, at most */
    size_t tasks_y, tasks_x;
    size_t box_floats, strip_floats, stack_floats, entry, thread_floats;
    float *scratch;
} weight_job;

/* Rows [y0, y1) of dy of a sample. */
typedef struct band {
    size_t sample, y0, y1;
    size_t at; /* where the copy of its box begins, in pixels of x */
} band;

/* A run of a segment, before the place of its pixels is known. */
typedef struct stretch {
    size_t band, y, x; /* y: rows after the band's first */
} stretch;

/* Consecutive pixels of dy. */
typedef struct segment {
    size_t first, pixels; /* first: pixels before it */
    size_t runs, bands;
    size_t box_pixels; /* of all bands */
    int pushed;        /* leaves that end in it, less merges */
    lk_outer_run run[RUNS];
    stretch place[RUNS]; /* of each run */
    band band[BANDS];
} segment;

/* Where the next segment begins: pixel x of row y of a sample of a shard. The sum of an empty shard is 0.0. Such sums
 * on top of the stack of partial sums are counted in `zeros`, not stored, until others are pushed; those that are left
 * inside a leaf are merged with it. */
typedef struct cursor {
    const lk_shards *shards;
    int shard;
    size_t sample, y, x;
    int zeros;
} cursor;

/* A block of the sum: columns [x, x1) of rows [y, y1) of samples [sample, last). */
typedef struct sum_block {
    size_t sample, last, y, y1, x, x1;
    bool fresh, done; /* its leaf's first, and last */
} sum_block;

/* A task and its memory. */
typedef struct part {
    const weight_job *job;
    const lk_subtree *tree;
    size_t group, unit, units, block, blocks;
    float *boxes, *strips, *stack;
    float *base; /* (entries, blocks, taps, units, LK_MR, LK_NR); the first entry is tree->fold.low */
    float *top;
} part;

static size_t lay_out(weight_job *job)
{
    const lk_outer *outer = &job->outer;
    const lk_conv2d_desc *conv = outer->conv;
    const lk_division *division = outer->division;
    lk_shape y = outer->y;
    job->in = outer->x.c / conv->groups;
    job->out = y.c / conv->groups;
    job->taps = lk__conv2d_desc_taps(conv);
    job->flat = lk__conv_pointwise(conv);
    job->single = job->taps == 1 && !lk__conv_pads(conv);
    job->whole = job->in < ALWAYS;
    job->units = lk__size_divide_up(job->out, LK_MR);
    job->blocks = lk__panel_count(job->in);
    job->some_blocks = lk__size_min(lk__size_max(PANELS / job->taps, 1), job->blocks);
    job->some_units = lk__size_min(lk__size_max(TILES / (job->some_blocks * job->taps), 1), job->units);
    size_t threads = division->threads, wanted = division->blocks;
    if (threads > 1 && division->subtrees == 1)
        wanted = threads * TASKS_A_THREAD;
    for (;;) {
        job->tasks_y = lk__size_divide_up(job->units, job->some_units);
        job->tasks_x = lk__size_divide_up(job->blocks, job->some_blocks);
        size_t *most = job->some_units > 1 ? &job->some_units : &job->some_blocks;
        if (job->tasks_y * job->tasks_x * conv->groups >= wanted || *most == 1)
            break;
        *most = (*most + 1) / 2;
    }
    lk_box box = lk__conv_box(conv, y, 0, outer->sum.rows);
    size_t block = job->single ? PIXELS : outer->sum.samples * box.h * box.w;
    job->box_floats = lk__size_round_up(lk__size_max(BOX_FLOATS, block * LK_NR), LK_ALIGN);
    job->strip_floats = lk__size_round_up(job->some_units * STRIP, LK_ALIGN);
    job->entry = job->some_units * job->some_blocks * job->taps * LK_OUTER_UNIT;
    job->stack_floats = (LK_TREE_MAX_DEPTH + 1) * LK_OUTER_UNIT;
    job->thread_floats = job->box_floats + job->strip_floats + job->stack_floats + division->depth * job->entry;
    return threads * job->thread_floats;
}

size_t lk__outer_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, lk_sum_rows sum,
                        const lk_division *division)
{
    weight_job job = {.outer = {.conv = conv, .x = x, .y = y, .sum = sum, .division = division}};
    return lay_out(&job);
}

/* The block at the cursor; empty if the shard is. */
static sum_block block_at(const weight_job *job, const cursor *at)
{
    const lk_sum_rows *sum = &job->outer.sum;
    size_t first = at->shards->begin[at->shard], end = at->shards->begin[at->shard + 1];
    lk_shape y = job->outer.y;
    sum_block next = {.sample = at->sample, .y = at->y, .x = at->x};
    next.last = lk__size_min(at->sample + sum->samples, end);
    next.y1 = lk__size_min(at->y + sum->rows, y.h);
    next.x1 = lk__size_min(at->x + LK_SUM_BLOCK, y.w);
    next.fresh = first == end || (at->sample == first && at->y == 0 && at->x == 0);
    next.done = first == end || (next.last == end && next.y1 == y.h && next.x1 == y.w);
    return next;
}

static void advance(const weight_job *job, const sum_block *done, cursor *at)
{
    if (done->done) {
        *at = (cursor){.shards = at->shards, .shard = at->shard + 1, .sample = done->last, .zeros = at->zeros};
    } else if (done->x1 < job->outer.y.w) {
        at->x = done->x1;
    } else {
        at->x = 0;
        at->y = done->y1 < job->outer.y.h ? done->y1 : 0;
        at->sample = at->y == 0 ? done->last : at->sample;
    }
}

static size_t block_pixels(const sum_block *b)
{
    return (b->last - b->sample) * (b->y1 - b->y) * (b->x1 - b->x);
}

/* Pixels of x that the band's tiles read. */
static size_t band_pixels(const weight_job *job, const band *b)
{
    lk_box box = lk__conv_box(job->outer.conv, job->outer.y, b->y0, b->y1);
    return box.h * box.w;
}

/* The band of rows [y, y1) of a sample: the last band if they can continue it, otherwise a new one. */
static void add_band(const weight_job *job, segment *s, size_t sample, size_t y, size_t y1)
{
    band *last = s->bands > 0 ? &s->band[s->bands - 1] : NULL;
    if (last && last->sample == sample && last->y1 >= y) {
        s->box_pixels -= band_pixels(job, last);
        last->y1 = y1;
    } else {
        last = &s->band[s->bands++];
        *last = (band){.sample = sample, .y0 = y, .y1 = y1, .at = s->box_pixels};
    }
    s->box_pixels += band_pixels(job, last);
}

/* Rows [b->y, b->y1) of a sample. */
static void add_run(const weight_job *job, segment *s, const sum_block *b, size_t sample)
{
    const lk_outer *outer = &job->outer;
    lk_outer_run *run = &s->run[s->runs];
    *run = (lk_outer_run){.rows = b->y1 - b->y, .count = b->x1 - b->x, .at_y = b->y, .at_x = b->x, .a = s->pixels};
    if (job->single) {
        size_t y = b->y * outer->conv->h.stride, x = b->x * outer->conv->w.stride;
        run->x = outer->input + ((sample * outer->x.h + y) * outer->x.w + x) * outer->x.c;
    } else {
        add_band(job, s, sample, b->y, b->y1);
        s->place[s->runs] = (stretch){.band = s->bands - 1, .y = b->y - s->band[s->bands - 1].y0, .x = b->x};
    }
    s->runs++;
    s->pixels += run->rows * run->count;
}

static void add_block(const weight_job *job, segment *s, const sum_block *b)
{
    for (size_t sample = b->sample; sample < b->last; sample++) {
        add_run(job, s, b, sample);
        lk_outer_run *run = &s->run[s->runs - 1];
        if (job->flat) {
            run->count = block_pixels(b);
            run->rows = 1;
            s->pixels = run->a + run->count;
            break;
        }
    }
    lk_outer_run *run = &s->run[s->runs - 1];
    run->end = LK_OUTER_END_BLOCK;
    run->fresh = b->fresh;
}

/* The segment's last run is the end of a leaf. */
static void end_leaf(segment *s, bool zero, int merges)
{
    lk_outer_run *run = &s->run[s->runs - 1];
    run->end = LK_OUTER_END_LEAF;
    run->zero = zero;
    run->merges = merges;
    s->pushed += 1 - merges;
}

/* Pushes the sum of an empty shard. */
static void push_zero(segment *s, int merges)
{
    s->place[s->runs] = (stretch){0};
    s->run[s->runs++] = (lk_outer_run){.fresh = true};
    end_leaf(s, false, merges);
}

/* Adds an empty shard. The sum below the zeros on the stack, if they are merged with it, is that of the last run. */
static void add_empty(segment *s, cursor *at, int merges)
{
    if (merges <= at->zeros) {
        at->zeros += 1 - merges;
        return;
    }
    merges -= at->zeros;
    at->zeros = 0;
    if (s->runs == 0) {
        push_zero(s, merges);
        return;
    }
    lk_outer_run *run = &s->run[s->runs - 1];
    run->zero = true;
    run->merges += merges - 1;
    s->pushed -= merges - 1;
}

/* Whether a block can be added to a segment that has others. */
static bool has_room(const weight_job *job, const segment *s, const sum_block *b)
{
    size_t samples = job->flat ? 1 : b->last - b->sample, pixels = s->pixels + block_pixels(b);
    lk_box box = lk__conv_box(job->outer.conv, job->outer.y, b->y, b->y1);
    size_t box_pixels = job->single ? pixels : s->box_pixels + samples * box.h * box.w;
    return s->runs + samples + 2 * LK_TREE_MAX_DEPTH <= RUNS && s->bands + samples <= BANDS && pixels <= PIXELS &&
           box_pixels * LK_NR <= job->box_floats;
}

/* The segment at the cursor, which is moved behind it. */
static void next_segment(const weight_job *job, cursor *at, segment *s)
{
    const lk_shards *shards = at->shards;
    lk_shape y = job->outer.y;
    s->first = (at->sample * y.h + at->y) * y.w + at->x;
    s->pixels = s->runs = s->bands = s->box_pixels = 0;
    s->pushed = 0;
    while (at->shard < shards->count) {
        sum_block b = block_at(job, at);
        int merges = shards->merges[at->shard];
        if (block_pixels(&b) == 0) {
            add_empty(s, at, merges);
            advance(job, &b, at);
            continue;
        }
        if (s->runs > 0 && !has_room(job, s, &b))
            return;
        for (; b.fresh && at->zeros > merges; at->zeros--)
            push_zero(s, 0);
        add_block(job, s, &b);
        if (b.done) {
            end_leaf(s, at->zeros > 0, merges - at->zeros);
            at->zeros = 0;
        }
        advance(job, &b, at);
    }
    for (; at->zeros > 0; at->zeros--)
        push_zero(s, 0);
}

/* Rows of a unit of the part. */
static size_t unit_rows(const part *p, size_t unit)
{
    return lk__size_min(p->job->out - (p->unit + unit) * LK_MR, LK_MR);
}

/* Copies STEP pixels of a whole unit. wide: the floats behind it, of a whole vector, exist too. */
LK_INLINE void copy_step(const float *from, size_t pixel, bool wide, float *to)
{
    v_f32 row[STEP];
    LK_UNROLL for (int i = 0; i < STEP; i++)
    {
        __builtin_prefetch(from + (AHEAD + (size_t)i) * pixel);
        row[i] = wide ? v_load(from + (size_t)i * pixel) : v_load_n(from + (size_t)i * pixel, LK_MR);
    }
    v_store_joined(to, row[0], row[1], row[2], row[3]);
}

/* Copies a pixel of `rows` rows to strips. */
static void copy_pixel(const float *from, size_t pixel, size_t rows, float *to)
{
    for (size_t row = 0; row < rows; row += LK_MR, to += STRIP) {
        __builtin_prefetch(from + AHEAD * pixel + row);
        if (row + LK_MR <= rows)
            memcpy(to, from + row, LK_MR * sizeof *to);
        else
            memcpy(to, from + row, (rows - row) * sizeof *to);
    }
}

/* Copies dy's rows of the part's units: strip u is (pixels, LK_MR), STRIP floats after the one before. Where vectors
 * allow it, several pixels at once fill whole cache lines. */
static void copy_strips(const part *p, const segment *s)
{
    const weight_job *job = p->job;
    size_t pixel = job->outer.y.c, rows = lk__size_min(p->units * LK_MR, job->out - p->unit * LK_MR), at = 0;
    const float *from = job->outer.dy + s->first * pixel + p->group * job->out + p->unit * LK_MR;
    size_t whole = LK_MR * 4 == V * 3 ? rows / LK_MR : 0;
    for (; whole > 0 && at + STEP <= s->pixels; at += STEP, from += STEP * pixel) {
        float *to = p->strips + at * LK_MR;
        for (size_t unit = 0; unit < whole; unit++, to += STRIP)
            copy_step(from + unit * LK_MR, pixel, unit * LK_MR + V <= rows, to);
        for (size_t i = 0; i < STEP; i++)
            copy_pixel(from + i * pixel + whole * LK_MR, pixel, rows - whole * LK_MR, to + i * LK_MR);
    }
    for (; at < s->pixels; at++, from += pixel)
        copy_pixel(from, pixel, rows, p->strips + at * LK_MR);
}

/* Copies or views x's boxes of all bands, for a block of channels, and points the runs at their pixels. */
static void point_runs(const part *p, segment *s, size_t block, size_t width)
{
    const lk_outer *outer = &p->job->outer;
    const lk_conv2d_desc *conv = outer->conv;
    lk_box_window views[BANDS];
    for (size_t i = 0; i < s->bands; i++) {
        const band *b = &s->band[i];
        lk_box box = lk__conv_box(conv, outer->y, b->y0, b->y1);
        box.first = p->group * p->job->in + block * LK_NR;
        box.channels = lk__size_min(p->job->in - block * LK_NR, LK_NR);
        views[i] = lk__box_view(outer->input + b->sample * lk__shape_sample(outer->x), outer->x, box, width,
                                p->boxes + b->at * width);
    }
    for (size_t i = 0; i < s->runs; i++) {
        const stretch *at = &s->place[i];
        lk_outer_run *run = &s->run[i];
        if (run->rows == 0)
            continue;
        run->row = views[at->band].row;
        run->b = views[at->band].data + at->x * conv->w.stride * width + at->y * conv->h.stride * run->row;
    }
}

/* Points the runs at their pixels in B if each pixel of dy reads one pixel of x. */
static void place_runs(const part *p, segment *s, size_t width)
{
    for (lk_outer_run *run = s->run; run != s->run + s->runs; run++) {
        run->b = p->boxes + run->a * width;
        run->row = run->count * width;
    }
}

/* Copies the runs' pixels to B where tiles cannot; the channels that a panel has more are 0. */
static void copy_runs(const part *p, const segment *s, const lk_outer_tile *tile, size_t channels)
{
    for (const lk_outer_run *run = s->run; run != s->run + s->runs; run++) {
        float *to = p->boxes + run->a * tile->width;
        for (size_t i = 0; i < run->rows * run->count; i++, to += tile->width) {
            const float *from = run->x + i / run->count * tile->x_y + i % run->count * tile->x_x + tile->channel;
            __builtin_prefetch(from + AHEAD * tile->x_x);
            memcpy(to, from, channels * sizeof *to);
            memset(to + channels, 0, (tile->width - channels) * sizeof *to);
        }
    }
}

/* The outputs of a row or column of `count` that read the image at this tap, where the image has `size` pixels. */
static lk_outer_span outputs_inside(const lk_window *window, size_t tap, size_t size, size_t count)
{
    size_t at = tap * window->dilation, pad = window->pad; /* output 0 reads pixel at - pad */
    lk_outer_span span = {.begin = pad > at ? lk__size_divide_up(pad - at, window->stride) : 0};
    if (size + pad > at)
        span.end = lk__size_min(lk__size_divide_up(size + pad - at, window->stride), count);
    return span;
}

/* Sets what depends on the tap. The products of the padding are left out, but only in layers whose weight gradients
 * come from this file in every build: with a zero of another sign, or with infinity, builds would differ. */
static void set_tap(const weight_job *job, size_t tap, lk_outer_tile *tile)
{
    const lk_outer *outer = &job->outer;
    const lk_window *h = &outer->conv->h, *w = &outer->conv->w;
    size_t y = tap / w->kernel, x = tap % w->kernel;
    tile->tap_y = y * h->dilation;
    tile->tap_x = x * w->dilation * tile->width;
    tile->y = tile->x = (lk_outer_span){0, SIZE_MAX};
    if (!job->single && !job->whole) {
        tile->y = outputs_inside(h, y, outer->x.h, outer->y.h);
        tile->x = outputs_inside(w, x, outer->x.w, outer->y.w);
    }
}

/* Adds the segment to the tiles of one block of channels. */
static void add_segment(const part *p, segment *s, size_t block)
{
    const weight_job *job = p->job;
    const lk_conv2d_desc *conv = job->outer.conv;
    lk_shape x = job->outer.x;
    lk_outer_tile tile = {.runs = s->run, .run_count = s->runs, .entry = job->entry, .stack = p->stack};
    size_t channel = (p->block + block) * LK_NR;
    tile.channel = p->group * job->in + channel;
    tile.width = lk__panel_width(job->in, p->block + block);
    tile.x_x = conv->w.stride * x.c;
    tile.x_y = conv->h.stride * x.w * x.c;
    tile.b_x = job->single ? tile.width : conv->w.stride * tile.width;
    tile.b_y = job->single ? 1 : conv->h.stride;
    bool copies = job->single && job->in - channel >= tile.width && unit_rows(p, 0) == LK_MR;
    if (job->single)
        place_runs(p, s, tile.width);
    else
        point_runs(p, s, p->block + block, tile.width);
    if (job->single && !copies)
        copy_runs(p, s, &tile, lk__size_min(job->in - channel, tile.width));
    for (size_t tap = 0; tap < job->taps; tap++) {
        set_tap(job, tap, &tile);
        for (size_t unit = 0; unit < p->units; unit++) {
            tile.rows = unit_rows(p, unit);
            tile.a = p->strips + unit * STRIP;
            tile.copy = copies && unit == 0 ? p->boxes : NULL;
            tile.top = p->top + ((block * job->taps + tap) * p->units + unit) * LK_OUTER_UNIT;
            lk__outer_tile_sum(&tile);
        }
    }
}

/* Copies a row of a unit between the tiles of all taps, `step` floats apart, and (channels, taps) of its slot. */
static void move_row(float *tiles, size_t step, size_t taps, size_t channels, bool store, float *slot)
{
    if (taps == 1 && channels == LK_NR) {
        const float *from = store ? tiles : slot;
        float *to = store ? slot : tiles;
        v_f32 low = v_load(from), high = v_load(from + V);
        v_store(to, low);
        v_store(to + V, high);
        return;
    }
    if (taps == 1) {
        memcpy(store ? slot : tiles, store ? tiles : slot, channels * sizeof *slot);
        return;
    }
    for (size_t c = 0; c < channels; c++) {
        for (size_t tap = 0; tap < taps; tap++) {
            if (store)
                slot[c * taps + tap] = tiles[tap * step + c];
            else
                tiles[tap * step + c] = slot[c * taps + tap];
        }
    }
}

/* Copies entry e of the part from or to its slot. */
static void move_entry(const part *p, int e, bool store)
{
    const weight_job *job = p->job;
    float *entry = p->base + (size_t)(e - p->tree->fold.low) * job->entry, *slot = lk__partials_slot(p->tree->dw, e);
    size_t step = p->units * LK_OUTER_UNIT;
    for (size_t unit = 0; unit < p->units; unit++) {
        size_t first = (p->unit + unit) * LK_MR, rows = lk__size_min(job->out - first, LK_MR);
        for (size_t i = 0; i < rows; i++) {
            float *tiles = entry + unit * LK_OUTER_UNIT + i * LK_NR;
            for (size_t block = 0; block < p->blocks; block++, tiles += job->taps * step) {
                size_t channel = (p->block + block) * LK_NR, channels = lk__size_min(job->in - channel, LK_NR);
                size_t at = ((p->group * job->out + first + i) * job->in + channel) * job->taps;
                for (size_t c = 0; job->taps == 1 && c < LK_NR; c += LINE)
                    __builtin_prefetch(slot + at + NEXT_ROWS * job->in + c, 1);
                move_row(tiles, step, job->taps, channels, store, slot + at);
            }
        }
    }
}

static void weight_task(void *arg, size_t index, int thread)
{
    const weight_job *job = arg;
    size_t blocks = job->tasks_y * job->tasks_x * job->outer.conv->groups;
    const lk_subtree *tree = lk__division_tree(job->outer.division, blocks, &index);
    const lk_shards *shards = &tree->shards;
    size_t y = index / job->tasks_x % job->tasks_y, x = index % job->tasks_x;
    part p = {.job = job, .tree = tree, .group = index / job->tasks_x / job->tasks_y};
    p.unit = y * job->some_units;
    p.units = lk__size_min(job->some_units, job->units - p.unit);
    p.block = x * job->some_blocks;
    p.blocks = lk__size_min(job->some_blocks, job->blocks - p.block);
    p.boxes = job->scratch + (size_t)thread * job->thread_floats;
    p.strips = p.boxes + job->box_floats;
    p.stack = p.strips + job->strip_floats;
    p.base = p.stack + job->stack_floats;
    for (int e = tree->fold.low; e < shards->depth; e++)
        move_entry(&p, e, false);
    p.top = p.base + (size_t)(shards->depth - tree->fold.low) * job->entry;
    segment s;
    for (cursor at = {.shards = shards, .sample = shards->begin[0]}; at.shard < shards->count;) {
        next_segment(job, &at, &s);
        copy_strips(&p, &s);
        for (size_t block = 0; block < p.blocks; block++)
            add_segment(&p, &s, block);
        p.top += s.pushed * (ptrdiff_t)job->entry;
    }
    for (int e = tree->fold.low; e < tree->fold.end; e++)
        move_entry(&p, e, true);
}

void lk__outer_run(lk_device *dev, const lk_outer *outer, void *scratch)
{
    weight_job job = {.outer = *outer, .scratch = scratch};
    lay_out(&job);
    size_t blocks = job.tasks_y * job.tasks_x * outer->conv->groups;
    lk__pool_run(lk__cpu_pool(dev), outer->division->count * blocks, weight_task, &job);
}
