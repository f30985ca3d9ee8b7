/* conv2d_winograd_weight.c - dw by Winograd's algorithm.
 *
 * The leaf of a shard is a sum over its tiles: for each point, V (tiles, in) of x times D (tiles, out) of dy gives P
 * (in, out), and the last transform turns the points of P into the 3x3 weights of the leaf. Leaves are folded over
 * shards as in conv2d_grad_weight.c.
 *
 * A task owns a block of input by output channels for the shards of a subtree (division.h), and transforms the
 * channels of its block itself. It walks over the tiles in segments, which have tiles of several shards where shards
 * are small: V of a segment stays in the second-level cache while panel after panel of D is made. The block is divided
 * into units of a few rows by one panel, so that P and the partial sums of a unit stay in the first-level cache.
 *
 * A sum over tiles has blocks of SUM_TILES tiles, counted from the first tile of the shard. SUM_TILES belongs to the
 * result. */
#include <assert.h>

#include "tensor/cpu/conv2d_winograd.h"
#include "tensor/cpu/decls.h"
#include "tensor/cpu/fold.h"
#include "tensor/cpu/tile.h"

/* Most channels of a block; all are multiples of STRIP. Input channels: IN_2 with tiles of 2 pixels, IN_4 with tiles of
 * 4, whose V has more points. Output channels: the same number, or OUT if each leaf is in one segment: then P is kept
 * for one unit only. */
enum { STRIP = 16, IN_2 = 128, IN_4 = 64, OUT = 256 };

/* Input times output channels of a block that is divided again only if a thread has no task: other blocks repeat its
 * transforms, which take half of the time there. */
enum { SMALL = 32 * 32 };

/* A segment has at most SUM_TILES tiles, and parts of at most PARTS shards, since shards may be empty. The 49 tiles of
 * 28x28 pixels fit. */
enum { SUM_TILES = 52, PARTS = 2 * SUM_TILES, TAPS = 9 };

/* Rows of a unit; they divide STRIP. UNIT: floats of a unit at one point. */
#if defined(LK_VEC_AVX512) || defined(LK_VEC_NEON)
enum { ROWS = 8 };
#else
enum { ROWS = 4 };
#endif
enum { UNIT = ROWS * LK_NR, LINE = LK_ALIGN / sizeof(float) };

/* Floats from a point to the next, in a strip of V and in D. */
enum { V_PLANE = SUM_TILES * STRIP + LK_WINOGRAD_SKEW, D_PLANE = SUM_TILES * LK_NR + LK_WINOGRAD_SKEW };

typedef struct weight_job {
    size_t tile, side, points;
    lk_shape x, y;
    size_t pad_h, pad_w;
    const float *input;          // (n, h, w, in)
    const float *dy;             // (n, h, w, out)
    const lk_division *division; /* of dw: (out, in, 3, 3) */
    size_t down, across;         /* tiles of a column, of a row */
    size_t in, out;              /* channels of a block at most, multiples of STRIP */
    size_t ins, outs;            /* blocks */
    size_t p_floats;             /* of the leaves that are not in one segment */
    size_t thread_floats;
    float *zeros; // (side, channels of x or dy)
    float *buffers;
} weight_job;

/* A block of channels, and the buffers of the task that owns it. */
typedef struct block {
    const lk_subtree *tree;
    size_t in_first, in, out_first, out;
    float *v;     // (strips, points, SUM_TILES, STRIP)
    float *d;     // (points, SUM_TILES, LK_NR) of one panel; a panel of one vector has V columns
    float *whole; // (points, ROWS, LK_NR): P of a leaf that begins and ends in one segment
    float *p;     // (units, points, ROWS, LK_NR): of other leaves
    float *stack; /* partial sums from fold.low on: (panels, in, TAPS, LK_NR) each, units one after the other */
} block;

/* Tiles of one shard in a segment: one block of the sum. */
typedef struct leaf_part {
    size_t at, count; /* at: tiles of the segment before it */
    bool fresh, last; /* the first and the last of its leaf */
    int top, merges;  /* the leaf's place on the stack, from fold.low on, and the partial sums it is merged with */
} leaf_part;

typedef struct segment {
    size_t first, tiles; /* first: tiles before it */
    size_t count;
    leaf_part parts[PARTS];
} segment;

/* Where the next segment begins: after `done` tiles of a shard, whose leaf will be at `top` (leaf_part). */
typedef struct cursor {
    const lk_shards *shards;
    int shard, top;
    size_t done;
} cursor;

static size_t units_of(const weight_job *job)
{
    return job->in / ROWS * lk__panel_count(job->out);
}

/* Floats of a partial sum. */
static size_t entry_floats(const weight_job *job)
{
    return units_of(job) * TAPS * UNIT;
}

static void measure(weight_job *job)
{
    job->side = job->tile + 2;
    job->points = job->side * job->side;
    job->down = lk__size_divide_up(job->y.h, job->tile);
    job->across = lk__size_divide_up(job->y.w, job->tile);
}

static size_t zero_floats(const weight_job *job)
{
    return lk__size_round_up(job->side * lk__size_max(job->x.c, job->y.c), LK_ALIGN);
}

/* Sets the sizes of blocks; returns the floats of scratch. whole: each leaf is in one segment. */
static size_t lay_out(weight_job *job, bool whole)
{
    const lk_division *division = job->division;
    size_t most = job->tile == 4 ? IN_4 : IN_2;
    job->in = lk__size_min(lk__size_round_up(job->x.c, STRIP), most);
    job->out = lk__size_min(lk__size_round_up(job->y.c, STRIP), whole ? OUT : most);
    for (;;) {
        job->ins = lk__size_divide_up(job->x.c, job->in);
        job->outs = lk__size_divide_up(job->y.c, job->out);
        size_t *wide = job->in > job->out ? &job->in : &job->out, tasks = job->ins * job->outs;
        bool enough = tasks >= division->blocks || (tasks >= division->least && job->in * job->out <= SMALL);
        if (enough || *wide == STRIP)
            break;
        *wide = lk__size_round_up(*wide / 2, STRIP);
    }
    job->p_floats = whole ? 0 : units_of(job) * job->points * UNIT;
    size_t point = job->in / STRIP * V_PLANE + D_PLANE + UNIT;
    job->thread_floats = job->points * point + job->p_floats + division->depth * entry_floats(job);
    job->thread_floats = lk__size_round_up(job->thread_floats, LK_ALIGN);
    return zero_floats(job) + division->threads * job->thread_floats;
}

size_t lk__winograd_weight_floats(size_t tile, lk_shape x, lk_shape y, const lk_division *division)
{
    weight_job job = {.tile = tile, .x = x, .y = y, .division = division};
    measure(&job);
    return lk__size_max(lay_out(&job, false), lay_out(&job, true));
}

/* Transforms V channels of a tile of dy, of which `lanes` exist, from `channel` on. whole: all of them exist; inside:
 * all pixels are in the image. */
LK_INLINE void transform_gradient(int m, bool whole, bool inside, const lk_winograd_square *square, size_t channel,
                                  size_t lanes, float *d, size_t plane)
{
    v_f32 rows[LK_WINOGRAD_SIDE][4], line[4], out[LK_WINOGRAD_SIDE];
    const int side = m + 2;
    size_t at = channel;
    LK_UNROLL for (int x = 0; x < m; x++)
    {
        lk__winograd_column(whole, inside, square, x, lanes, m, &at, line);
        lk__winograd_gradient_line(m, line, out);
        LK_UNROLL for (int y = 0; y < side; y++) rows[y][x] = out[y];
    }
    LK_UNROLL for (int y = 0; y < side; y++)
    {
        lk__winograd_gradient_line(m, rows[y], out);
        LK_UNROLL for (int x = 0; x < side; x++) v_store(d + (size_t)(y * side + x) * plane, out[x]);
    }
}

/* Adds a vector of a leaf to the `merges` partial sums below `top`, its place on the stack. */
LK_INLINE void push_vector(v_f32 leaf, float *top, size_t entry, int merges)
{
    for (int merge = 0; merge < merges; merge++) {
        top -= entry;
        leaf = v_add(v_load(top), leaf);
    }
    v_store(top, leaf);
}

/* Turns V sums of products into V weights of the leaf, and adds the leaf to the `merges` partial sums below `top`. */
LK_INLINE void transform_sums(int m, const float *p, float *top, size_t entry, int merges)
{
    v_f32 rows[3][LK_WINOGRAD_SIDE], line[LK_WINOGRAD_SIDE], out[3];
    const int side = m + 2;
    LK_UNROLL for (int x = 0; x < side; x++)
    {
        LK_UNROLL for (int y = 0; y < side; y++) line[y] = v_load(p + (y * side + x) * UNIT);
        lk__winograd_sum_line(m, line, out);
        LK_UNROLL for (int y = 0; y < 3; y++) rows[y][x] = out[y];
    }
    LK_UNROLL for (int y = 0; y < 3; y++)
    {
        lk__winograd_sum_line(m, rows[y], out);
        LK_UNROLL for (int x = 0; x < 3; x++)
        {
            push_vector(out[x], top + (y * 3 + x) * LK_NR, entry, merges);
        }
    }
}

/* Makes V of a segment. */
LK_INLINE void make_patches(const weight_job *job, const block *b, const segment *seg, int m)
{
    lk_winograd_place at = lk__winograd_place((size_t)m, job->down, job->across, seg->first);
    for (size_t i = 0; i < seg->tiles; i++) {
        ptrdiff_t y = (ptrdiff_t)at.y - (ptrdiff_t)job->pad_h, x = (ptrdiff_t)at.x - (ptrdiff_t)job->pad_w;
        lk_winograd_square square =
            lk__winograd_square(job->input, job->x, at.sample, y, x, b->in_first, m + 2, job->zeros);
        lk__winograd_fetch(m, job->input, job->x, at, m + 1, false);
        float *v = b->v + i * STRIP;
        for (size_t c = 0; c < b->in; c += STRIP, v += job->points * V_PLANE)
            lk__winograd_patch_run(m, &square, c, lk__size_min(b->in - c, STRIP), v, V_PLANE);
        lk__winograd_next((size_t)m, job->y, &at);
    }
}

/* Makes a panel of D of a segment. */
LK_INLINE void make_gradients(const weight_job *job, const block *b, const segment *seg, size_t panel, int m)
{
    size_t first = panel * LK_NR, channels = lk__size_min(b->out - first, LK_NR);
    size_t width = lk__panel_width(b->out, panel);
    lk_winograd_place at = lk__winograd_place((size_t)m, job->down, job->across, seg->first);
    for (size_t i = 0; i < seg->tiles; i++) {
        lk_winograd_square square = lk__winograd_square(job->dy, job->y, at.sample, (ptrdiff_t)at.y, (ptrdiff_t)at.x,
                                                        b->out_first + first, m, job->zeros);
        lk__winograd_fetch(m, job->dy, job->y, at, m, false);
        for (size_t c = 0; c < channels; c += V) {
            float *d = b->d + i * width + c;
            if (square.inside && channels - c >= V)
                transform_gradient(m, true, true, &square, c, V, d, D_PLANE);
            else if (channels - c >= V)
                transform_gradient(m, true, false, &square, c, V, d, D_PLANE);
            else
                transform_gradient(m, false, false, &square, c, channels - c, d, D_PLANE);
        }
        lk__winograd_next((size_t)m, job->y, &at);
    }
}

/* Rows of a unit: units of panels of one vector have twice as many, so that they have as many sums. */
LK_INLINE int unit_rows(int nv)
{
    return nv > 1 ? ROWS : 2 * ROWS;
}

/* Sums a unit's products of `count` tiles at one point, and prefetches V and D of the next point. Unless fresh, p holds
 * the sum of the blocks before. */
LK_INLINE void sum_point(const float *v, const float *d, size_t count, bool fresh, float *p, int nv)
{
    const int rows = unit_rows(nv);
    v_f32 acc[2 * ROWS][2];
    lk__tile_zero(acc, rows, nv);
    for (; count > 0; count--, v += STRIP, d += nv * V) {
        __builtin_prefetch(v + V_PLANE);
        for (int j = 0; j < nv * V; j += LINE)
            __builtin_prefetch(d + D_PLANE + j);
        lk__tile_multiply(v, d, acc, rows, nv);
    }
    if (!fresh) {
        LK_UNROLL for (int i = 0; i < rows * nv; i++) acc[i / nv][i % nv] =
            v_add(v_load(p + i * V), acc[i / nv][i % nv]);
    }
    LK_UNROLL for (int i = 0; i < rows * nv; i++) v_store(p + i * V, acc[i / nv][i % nv]);
}

/* Turns P of `rows` rows into a leaf and pushes it. */
LK_INLINE void push_leaf(int m, const float *p, size_t rows, float *top, size_t entry, int merges, int nv)
{
    for (; rows > 0; rows--, p += nv * V, top += TAPS * LK_NR) {
        transform_sums(m, p, top, entry, merges);
        if (nv > 1)
            transform_sums(m, p + V, top + V, entry, merges);
    }
}

/* Pushes the leaf of a shard without samples, which is zero. */
static void push_zero(float *top, size_t entry, int merges, int nv)
{
    for (size_t at = 0; at < (size_t)TAPS * (size_t)unit_rows(nv) * LK_NR; at += V)
        push_vector(v_zero(), top + at, entry, merges);
}

/* Prefetches part `index` of `count` of what push_leaf reads and writes of the stack. */
LK_INLINE void fetch_sums(const float *top, size_t entry, int merges, int index, int count, int nv)
{
    const int lines = TAPS * unit_rows(nv) * LK_NR / LINE, first = lines * index / count;
    const int last = lines * (index + 1) / count;
    const float *sum = merges > 0 ? top - entry : top;
    for (int line = first; line < last; line++)
        __builtin_prefetch(sum + line * LINE, 1);
    for (int merge = 1; merge < merges; merge++) {
        sum -= entry;
        for (int line = first; line < last; line++)
            __builtin_prefetch(sum + line * LINE, 1);
    }
}

/* Adds the products of a segment to a unit, and pushes the leaves that end. Rows without a channel are summed too, but
 * not pushed. */
LK_INLINE void sum_unit(const weight_job *job, const block *b, const segment *seg, size_t row, size_t panel, int m,
                        int nv)
{
    size_t unit = (panel * job->in + row) / ROWS, entry = entry_floats(job);
    size_t rows = lk__size_min(b->in - row, (size_t)unit_rows(nv));
    const int points = (m + 2) * (m + 2);
    const float *v = b->v + row / STRIP * job->points * V_PLANE + row % STRIP;
    float *stack = b->stack + unit * TAPS * UNIT;
    for (const leaf_part *part = seg->parts; part != seg->parts + seg->count; part++) {
        float *p = part->fresh && part->last ? b->whole : b->p + unit * job->points * UNIT;
        float *top = stack + (size_t)part->top * entry;
        if (part->count == 0) {
            push_zero(top, entry, part->merges, nv);
            continue;
        }
        for (int point = 0; point < points; point++) {
            if (part->last)
                fetch_sums(top, entry, part->merges, point, points, nv);
            sum_point(v + (size_t)point * V_PLANE + part->at * STRIP,
                      b->d + (size_t)point * D_PLANE + part->at * (size_t)(nv * V), part->count, part->fresh,
                      p + point * UNIT, nv);
        }
        if (part->last)
            push_leaf(m, p, rows, top, entry, part->merges, nv);
    }
}

LK_INLINE void sum_panel(const weight_job *job, const block *b, const segment *seg, size_t panel, int m, int nv)
{
    for (size_t row = 0; row < b->in; row += (size_t)unit_rows(nv))
        sum_unit(job, b, seg, row, panel, m, nv);
}

static void sum_segment(const weight_job *job, const block *b, const segment *seg)
{
    if (job->tile == 4)
        make_patches(job, b, seg, 4);
    else
        make_patches(job, b, seg, 2);
    for (size_t panel = 0; panel < lk__panel_count(b->out); panel++) {
        if (job->tile == 4)
            make_gradients(job, b, seg, panel, 4);
        else
            make_gradients(job, b, seg, panel, 2);
        bool wide = lk__panel_width(b->out, panel) > V;
        if (job->tile == 4)
            wide ? sum_panel(job, b, seg, panel, 4, 2) : sum_panel(job, b, seg, panel, 4, 1);
        else
            wide ? sum_panel(job, b, seg, panel, 2, 2) : sum_panel(job, b, seg, panel, 2, 1);
    }
}

/* Fills a segment and moves the cursor behind it. */
static void next_segment(const weight_job *job, cursor *at, segment *seg)
{
    const lk_shards *shards = at->shards;
    size_t tiles = job->down * job->across;
    seg->first = shards->begin[at->shard] * tiles + at->done;
    seg->tiles = seg->count = 0;
    while (at->shard < shards->count && seg->count < PARTS) {
        size_t left = (shards->begin[at->shard + 1] - shards->begin[at->shard]) * tiles - at->done;
        leaf_part part = {.at = seg->tiles, .count = lk__size_min(left, SUM_TILES), .fresh = at->done == 0};
        if (seg->tiles + part.count > SUM_TILES)
            break;
        part.last = part.count == left;
        assert((part.fresh && part.last) || job->p_floats > 0);
        part.top = at->top;
        part.merges = shards->merges[at->shard];
        seg->parts[seg->count++] = part;
        seg->tiles += part.count;
        at->done += part.count;
        if (part.last) {
            at->top += 1 - part.merges;
            at->shard++;
            at->done = 0;
        }
    }
}

/* Copies `rows` rows (a row is an input channel and a tap) of `channels` output channels from or to their slot, in
 * which output channels are `stride` floats apart. Squares of V by V are transposed in registers. */
static void move_square(float *entry, size_t rows, size_t channels, bool store, float *slot, size_t stride)
{
    if (rows == V && channels == V) {
        if (store)
            v_transpose(entry, LK_NR, slot, stride);
        else
            v_transpose(slot, stride, entry, LK_NR);
        return;
    }
    for (size_t c = 0; c < channels; c++) {
        for (size_t row = 0; row < rows; row++) {
            if (store)
                slot[c * stride + row] = entry[row * LK_NR + c];
            else
                entry[row * LK_NR + c] = slot[c * stride + row];
        }
    }
}

/* Copies entry e of the block from or to its slot. */
static void move_block(const weight_job *job, const block *b, int e, bool store)
{
    float *entry = b->stack + (size_t)(e - b->tree->fold.low) * entry_floats(job);
    size_t rows = b->in * TAPS, stride = job->x.c * TAPS;
    float *slot = lk__partials_slot(b->tree->dw, e) + b->out_first * stride + b->in_first * TAPS;
    for (size_t c = 0; c < b->out; c += V) {
        float *from = entry + c / LK_NR * job->in * TAPS * LK_NR + c % LK_NR;
        for (size_t row = 0; row < rows; row += V)
            move_square(from + row * LK_NR, lk__size_min(rows - row, V), lk__size_min(b->out - c, V), store,
                        slot + c * stride + row, stride);
    }
}

static void weight_task(void *arg, size_t index, int thread)
{
    const weight_job *job = arg;
    const lk_subtree *tree = lk__division_tree(job->division, job->ins * job->outs, &index);
    const lk_shards *shards = &tree->shards;
    block b = {.tree = tree, .in_first = index % job->ins * job->in, .out_first = index / job->ins * job->out};
    b.in = lk__size_min(job->x.c - b.in_first, job->in);
    b.out = lk__size_min(job->y.c - b.out_first, job->out);
    b.v = job->buffers + (size_t)thread * job->thread_floats;
    b.d = b.v + job->in / STRIP * job->points * V_PLANE;
    b.whole = b.d + job->points * D_PLANE;
    b.p = b.whole + job->points * UNIT;
    b.stack = b.p + job->p_floats;
    for (int e = tree->fold.low; e < shards->depth; e++)
        move_block(job, &b, e, false);
    cursor at = {.shards = shards, .top = shards->depth - tree->fold.low};
    while (at.shard < shards->count) {
        segment seg;
        next_segment(job, &at, &seg);
        sum_segment(job, &b, &seg);
    }
    for (int e = tree->fold.low; e < tree->fold.end; e++)
        move_block(job, &b, e, true);
}

void lk__winograd_grad_weight(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *x, const lk_tensor *dy,
                              const lk_division *division, void *scratch)
{
    size_t most = division->trees[0].shards.most;
    weight_job job = {.x = x->shape, .y = dy->shape, .division = division};
    job.tile = lk__winograd_weight_tile(conv, x->shape, dy->shape, most);
    job.pad_h = conv->h.pad;
    job.pad_w = conv->w.pad;
    job.input = lk__tensor_f32(x);
    job.dy = lk__tensor_f32(dy);
    measure(&job);
    lay_out(&job, most * job.down * job.across <= SUM_TILES);
    job.zeros = scratch;
    job.buffers = job.zeros + zero_floats(&job);
    memset(job.zeros, 0, zero_floats(&job) * sizeof *job.zeros);
    lk__pool_run(lk__cpu_pool(dev), division->count * job.ins * job.outs, weight_task, &job);
}
