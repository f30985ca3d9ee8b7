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
    RUNS = 2 * PIXELS,
    BANDS = PIXELS,
    BOX_FLOATS = 32 * 1024,
    /* Of a task: tiles and panels, roughly. */
    TILES = 192,
    PANELS = 8,
    TASKS_A_THREAD = 4,
    LINE = LK_ALIGN / sizeof(float), /* floats of a cache line */
    AHEAD = 8,                       /* pixels of dy that are prefetched */
    /* Floats from a strip of dy to the next: a power of two between them would put all into the same lines of the
     * first-level cache. */
    STRIP = PIXELS * LK_MR + LINE
};

typedef struct weight_job {
    lk_outer outer;
    size_t in, out, taps;           /* in and out: channels of a group */
    bool flat;                      /* pointwise: the pixels of all samples are one long row */
    size_t units, blocks;           /* units of rows, blocks of channels */
    size_t some_units, some_blocks; /* of a task, at most */
    size_t tasks_y, tasks_x;
    lk_lanes fold;
    size_t box_floats, strip_floats, stack_floats, entry, thread_floats;
    float *scratch;
} weight_job;

/* Rows [y0, y1) of dy of a sample; of one long row of pixels, if `flat`: pixels [y0, y1). */
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

/* Where the next segment begins: pixel x of row y of a sample of a shard. */
typedef struct cursor {
    int shard;
    size_t sample, y, x;
} cursor;

/* A block of the sum: columns [x, x1) of rows [y, y1) of samples [sample, last). */
typedef struct sum_block {
    size_t sample, last, y, y1, x, x1;
    bool fresh, done; /* its leaf's first, and last */
} sum_block;

/* A task and its memory. */
typedef struct part {
    const weight_job *job;
    size_t group, unit, units, block, blocks;
    float *boxes, *strips, *stack;
    float *base; /* (entries, units, blocks, taps, LK_MR, LK_NR); the first entry is fold.low */
    float *top;
} part;

static size_t lay_out(weight_job *job, size_t threads)
{
    const lk_outer *outer = &job->outer;
    const lk_conv2d_desc *conv = outer->conv;
    lk_shape y = outer->y;
    job->in = outer->x.c / conv->groups;
    job->out = y.c / conv->groups;
    job->taps = lk__conv2d_desc_taps(conv);
    job->flat = lk__conv_pointwise(conv);
    job->units = lk__size_divide_up(job->out, LK_MR);
    job->blocks = lk__panel_count(job->in);
    job->some_blocks = lk__size_min(lk__size_max(PANELS / job->taps, 1), job->blocks);
    job->some_units = lk__size_min(lk__size_max(TILES / (job->some_blocks * job->taps), 1), job->units);
    size_t wanted = threads == 1 ? 1 : threads * TASKS_A_THREAD;
    while (job->some_units > 1 && lk__size_divide_up(job->units, job->some_units) *
                                          lk__size_divide_up(job->blocks, job->some_blocks) * conv->groups <
                                      wanted)
        job->some_units = (job->some_units + 1) / 2;
    job->tasks_y = lk__size_divide_up(job->units, job->some_units);
    job->tasks_x = lk__size_divide_up(job->blocks, job->some_blocks);
    lk_box box = lk__conv_box(conv, y, 0, outer->sum.rows);
    size_t block = job->flat ? PIXELS : outer->sum.samples * box.h * box.w;
    job->box_floats = lk__size_round_up(lk__size_max(BOX_FLOATS, block * LK_NR), LK_ALIGN);
    job->strip_floats = lk__size_round_up(job->some_units * STRIP, LK_ALIGN);
    job->entry = job->some_units * job->some_blocks * job->taps * LK_OUTER_UNIT;
    job->stack_floats = (LK_TREE_MAX_DEPTH + 1) * LK_OUTER_UNIT;
    job->thread_floats = job->box_floats + job->strip_floats + job->stack_floats + LK_TREE_MAX_DEPTH * job->entry;
    return threads * job->thread_floats;
}

size_t lk__outer_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, lk_sum_rows sum, size_t threads)
{
    weight_job job = {.outer = {.conv = conv, .x = x, .y = y, .sum = sum}};
    return lay_out(&job, threads);
}

/* The block at the cursor; empty if the shard is. */
static sum_block block_at(const weight_job *job, const cursor *at)
{
    const lk_sum_rows *sum = &job->outer.sum;
    size_t first = job->outer.shards->begin[at->shard], end = job->outer.shards->begin[at->shard + 1];
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
        *at = (cursor){.shard = at->shard + 1, .sample = done->last};
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
    return job->flat ? b->y1 - b->y0 : box.h * box.w;
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

static void add_run(segment *s, size_t y, size_t x, size_t rows, size_t count)
{
    s->place[s->runs] = (stretch){.band = s->bands - 1, .y = y - s->band[s->bands - 1].y0, .x = x};
    s->run[s->runs++] = (lk_outer_run){.rows = rows, .count = count, .a = s->pixels};
    s->pixels += rows * count;
}

static void add_block(const weight_job *job, segment *s, const sum_block *b)
{
    lk_shape y = job->outer.y;
    if (block_pixels(b) == 0) {
        s->run[s->runs] = (lk_outer_run){.rows = 0};
        s->place[s->runs++] = (stretch){0};
    } else if (job->flat) {
        size_t first = (b->sample * y.h + b->y) * y.w + b->x, count = block_pixels(b);
        add_band(job, s, 0, first, first + count);
        add_run(s, first, 0, 1, count);
    } else {
        for (size_t sample = b->sample; sample < b->last; sample++) {
            add_band(job, s, sample, b->y, b->y1);
            add_run(s, b->y, b->x, b->y1 - b->y, b->x1 - b->x);
        }
    }
    lk_outer_run *run = &s->run[s->runs - 1];
    run->end = b->done ? LK_OUTER_END_LEAF : LK_OUTER_END_BLOCK;
    run->fresh = b->fresh;
}

/* Whether a block can be added to a segment that has others. */
static bool has_room(const weight_job *job, const segment *s, const sum_block *b)
{
    size_t samples = job->flat ? 1 : lk__size_max(b->last - b->sample, 1);
    lk_box box = lk__conv_box(job->outer.conv, job->outer.y, b->y, b->y1);
    size_t box_pixels = job->flat ? block_pixels(b) : samples * box.h * box.w;
    return s->runs + samples <= RUNS && s->bands + samples <= BANDS && s->pixels + block_pixels(b) <= PIXELS &&
           (s->box_pixels + box_pixels) * LK_NR <= job->box_floats;
}

/* The segment at the cursor, which is moved behind it. */
static void next_segment(const weight_job *job, cursor *at, segment *s)
{
    const lk_shards *shards = job->outer.shards;
    lk_shape y = job->outer.y;
    s->first = (at->sample * y.h + at->y) * y.w + at->x;
    s->pixels = s->runs = s->bands = s->box_pixels = 0;
    s->pushed = 0;
    while (at->shard < shards->count) {
        sum_block b = block_at(job, at);
        if (s->runs > 0 && !has_room(job, s, &b))
            return;
        add_block(job, s, &b);
        if (b.done) {
            s->run[s->runs - 1].merges = shards->merges[at->shard];
            s->pushed += 1 - shards->merges[at->shard];
        }
        advance(job, &b, at);
    }
}

/* Copies dy's rows of the part's units: strip u is (pixels, LK_MR), STRIP floats after the one before. */
static void copy_strips(const part *p, const segment *s)
{
    const weight_job *job = p->job;
    size_t pixel = job->outer.y.c;
    const float *from = job->outer.dy + s->first * pixel + p->group * job->out + p->unit * LK_MR;
    size_t rows = lk__size_min(p->units * LK_MR, job->out - p->unit * LK_MR);
    for (size_t at = 0; at < s->pixels; at++, from += pixel) {
        float *to = p->strips + at * LK_MR;
        size_t row = 0;
        for (size_t i = 0; i < rows; i += LINE)
            __builtin_prefetch(from + AHEAD * pixel + i);
        for (; row + LK_MR <= rows; row += LK_MR, to += STRIP)
            memcpy(to, from + row, LK_MR * sizeof *to);
        if (row < rows)
            memcpy(to, from + row, (rows - row) * sizeof *to);
    }
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
        lk_shape image = outer->x;
        if (p->job->flat) {
            image.w = image.n * image.h * image.w;
            image.h = 1;
            box = (lk_box){.x = (ptrdiff_t)b->y0, .h = 1, .w = b->y1 - b->y0};
        }
        box.first = p->group * p->job->in + block * LK_NR;
        box.channels = lk__size_min(p->job->in - block * LK_NR, LK_NR);
        views[i] = lk__box_view(outer->input + b->sample * lk__shape_sample(outer->x), image, box, width,
                                p->boxes + b->at * width);
    }
    for (size_t i = 0; i < s->runs; i++) {
        const stretch *at = &s->place[i];
        lk_outer_run *run = &s->run[i];
        if (run->rows == 0)
            continue;
        run->row = views[at->band].row;
        run->b = views[at->band].data + at->x * conv->w.stride * width;
        run->b += p->job->flat ? at->y * width : at->y * conv->h.stride * run->row;
    }
}

/* Adds the segment to the tiles of one block of channels. */
static void add_segment(const part *p, segment *s, size_t block)
{
    const weight_job *job = p->job;
    const lk_conv2d_desc *conv = job->outer.conv;
    lk_outer_tile tile = {.runs = s->run, .run_count = s->runs, .entry = job->entry, .stack = p->stack};
    tile.width = lk__panel_width(job->in, p->block + block);
    tile.b_x = conv->w.stride * tile.width;
    tile.b_y = conv->h.stride;
    point_runs(p, s, p->block + block, tile.width);
    for (size_t tap = 0; tap < job->taps; tap++) {
        tile.tap_y = tap / conv->w.kernel * conv->h.dilation;
        tile.tap_x = tap % conv->w.kernel * conv->w.dilation * tile.width;
        for (size_t unit = 0; unit < p->units; unit++) {
            tile.rows = lk__size_min(job->out - (p->unit + unit) * LK_MR, LK_MR);
            tile.a = p->strips + unit * STRIP;
            tile.top = p->top + ((unit * p->blocks + block) * job->taps + tap) * LK_OUTER_UNIT;
            lk__outer_tile_sum(&tile);
        }
    }
}

/* Copies a row of a unit between the tiles of all taps and (channels, taps) of its slot. */
static void move_row(float *tiles, size_t taps, size_t channels, bool store, float *slot)
{
    if (taps == 1) {
        memcpy(store ? slot : tiles, store ? tiles : slot, channels * sizeof *slot);
        return;
    }
    for (size_t c = 0; c < channels; c++) {
        for (size_t tap = 0; tap < taps; tap++) {
            if (store)
                slot[c * taps + tap] = tiles[tap * LK_OUTER_UNIT + c];
            else
                tiles[tap * LK_OUTER_UNIT + c] = slot[c * taps + tap];
        }
    }
}

/* Copies entry e of the part from or to its slot. */
static void move_entry(const part *p, int e, bool store)
{
    const weight_job *job = p->job;
    float *tiles = p->base + (size_t)(e - job->fold.low) * job->entry, *slot = lk__partials_slot(job->outer.dw, e);
    for (size_t unit = 0; unit < p->units; unit++) {
        size_t first = (p->unit + unit) * LK_MR, rows = lk__size_min(job->out - first, LK_MR);
        for (size_t block = 0; block < p->blocks; block++, tiles += job->taps * LK_OUTER_UNIT) {
            size_t channel = (p->block + block) * LK_NR, channels = lk__size_min(job->in - channel, LK_NR);
            for (size_t i = 0; i < rows; i++) {
                size_t at = ((p->group * job->out + first + i) * job->in + channel) * job->taps;
                move_row(tiles + i * LK_NR, job->taps, channels, store, slot + at);
            }
        }
    }
}

static void weight_task(void *arg, size_t index, int thread)
{
    const weight_job *job = arg;
    const lk_shards *shards = job->outer.shards;
    size_t y = index / job->tasks_x % job->tasks_y, x = index % job->tasks_x;
    part p = {.job = job, .group = index / job->tasks_x / job->tasks_y};
    p.unit = y * job->some_units;
    p.units = lk__size_min(job->some_units, job->units - p.unit);
    p.block = x * job->some_blocks;
    p.blocks = lk__size_min(job->some_blocks, job->blocks - p.block);
    p.boxes = job->scratch + (size_t)thread * job->thread_floats;
    p.strips = p.boxes + job->box_floats;
    p.stack = p.strips + job->strip_floats;
    p.base = p.stack + job->stack_floats;
    for (int e = job->fold.low; e < shards->depth; e++)
        move_entry(&p, e, false);
    p.top = p.base + (size_t)(shards->depth - job->fold.low) * job->entry;
    segment s;
    for (cursor at = {.sample = shards->begin[0]}; at.shard < shards->count;) {
        next_segment(job, &at, &s);
        copy_strips(&p, &s);
        for (size_t block = 0; block < p.blocks; block++)
            add_segment(&p, &s, block);
        p.top += s.pushed * (ptrdiff_t)job->entry;
    }
    for (int e = job->fold.low; e < job->fold.end; e++)
        move_entry(&p, e, true);
}

void lk__outer_run(lk_device *dev, const lk_outer *outer, void *scratch)
{
    lk_pool *pool = lk__cpu_pool(dev);
    weight_job job = {.outer = *outer, .fold = lk__lanes_fold(outer->shards), .scratch = scratch};
    lay_out(&job, (size_t)lk__pool_threads(pool));
    lk__pool_run(pool, job.tasks_y * job.tasks_x * outer->conv->groups, weight_task, &job);
}
