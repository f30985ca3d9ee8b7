/* conv2d_grad_weight.c - dw and db, summed over samples and pixels and folded over shards.
 *
 * For each group of channels dw is a matrix of (kh, kw, in) rows by out columns. Each pixel of dy adds the
 * outer product of its window of x and its channels. The matrix is divided into units of LK_MR rows by LK_NR
 * columns. Where windows fill vectors better than output channels do, units are wide: they are of the transposed
 * matrix, LK_WIDE_ROWS output channels by LK_WIDE vectors of a window. db is one more row, whose windows are all 1; its
 * units are the last ones. Where few channels leave most lanes unused, units are of the transposed matrix too, LK_MR
 * output channels by LK_NR floats of a window in a strip of x (conv2d_strips.h), which has the ones of db. A task owns
 * a chunk of units, small enough that its partial sums stay in cache, for the shards of a subtree (division.h). It
 * processes the samples band by band and keeps the sums in memory in between; a band is whole blocks of the sum
 * (sums.h). Slots are in PyTorch's order: units are transposed when they are copied. Layers with many input channels
 * leave dw to outer.h; 3x3 ones with stride 1, where it is faster, to conv2d_winograd.h. All of them divide shards and
 * outputs among tasks (division.h). */
#include "tensor/cpu/bf16_layer.h"
#include "tensor/cpu/conv2d.h"
#include "tensor/cpu/conv2d_strips.h"
#include "tensor/cpu/conv2d_subtrees.h"
#include "tensor/cpu/conv2d_winograd.h"
#include "tensor/cpu/decls.h"
#include "tensor/cpu/fold.h"
#include "tensor/cpu/gemm.h"
#include "tensor/cpu/outer.h"

enum { UNIT = LK_TILE_ROWS * LK_NR, CHUNK_UNITS = 48 * 1024 / UNIT, BAND_FLOATS = LK_CONV_BLOCK_FLOATS };

typedef struct weight_job {
    const lk_conv2d_desc *conv;
    lk_shape x, y;
    size_t in, out;              /* channels of a group */
    const float *input;          // (n, h, w, groups, in)
    const float *dy;             // (n, h, w, groups, out)
    const lk_division *division; /* of dw: (groups, out, in, kh, kw), and db: (groups, out) */
    bool bias_only;              /* other kernels compute dw */
    size_t rows;                 /* rows of the matrix, without db; 0 if bias_only */
    bool wide, strips;
    size_t runs, run; /* a window is `runs` runs of `run` consecutive floats; 0 unless units are wide, */
    size_t vectors;   /* and the vectors of a run, of which the last ends where the run ends */
    size_t columns;   /* of the transposed matrix, if there are strips */
    size_t units;     /* units of one panel of columns, or wide of the same vectors */
    size_t dw_units;  /* units of a group, without db */
    size_t total;     /* units of a group */
    size_t chunk, chunks;
    lk_sum_rows sum; /* blocks of the sum */
    size_t band;     /* output rows of a band */
    size_t together; /* samples processed together; 1 unless the band is all rows */
    size_t lanes;    /* the channels of dy are padded to a multiple of it */
    size_t box_floats, dy_floats, thread_floats;
    float *scratch;
} weight_job;

/* A chunk of one group's units, and its partial sums. */
typedef struct unit_range {
    const lk_subtree *tree;
    size_t group;
    size_t begin, end; /* units */
    size_t entry;      /* floats of a partial sum */
    float *buffer;     /* copies of bands */
    float *top;        /* where the leaf is summed */
} unit_range;

/* Decides the form of dw's units, by the number of products; returns the number of units of a group. Of equal numbers
 * wide tiles are slower than those of two vectors and faster than those of one. */
static size_t lay_out_units(weight_job *job)
{
    const lk_window *w = &job->conv->w;
    size_t run = (w->dilation > 1 ? 1 : w->kernel) * job->in, runs = job->rows / run;
    size_t vectors = (run + V - 1) / V, strips = (runs * vectors + LK_WIDE - 1) / LK_WIDE;
    size_t panel_vectors = (job->out + V - 1) / V, panels = job->rows * panel_vectors;
    job->wide = job->rows > 0 && run >= V && strips * LK_WIDE * job->out < panels + (panel_vectors == 1);
    job->columns = w->kernel * lk__strip_column(job->conv, job->in);
    size_t others = job->wide ? strips * LK_WIDE * job->out : panels;
    size_t products = lk__size_round_up(job->out, 2) * lk__size_divide_up(job->columns, V);
    /* With a stride there is more of a strip for each pixel of dy. */
    job->strips = lk__strip_fits(job->conv) && w->stride * products < others;
    if (job->strips) {
        job->wide = false;
        job->units = (job->out + LK_MR - 1) / LK_MR;
        return job->units * lk__panel_count(job->columns);
    }
    if (!job->wide) {
        job->units = (job->rows + LK_MR - 1) / LK_MR;
        return job->units * lk__panel_count(job->out);
    }
    job->runs = runs;
    job->run = run;
    job->vectors = vectors;
    job->units = (job->out + LK_WIDE_ROWS - 1) / LK_WIDE_ROWS;
    return job->units * strips;
}

static size_t lay_out(weight_job *job, bool bias)
{
    const lk_division *division = job->division;
    const lk_conv2d_desc *conv = job->conv;
    job->in = job->x.c / conv->groups;
    job->out = job->y.c / conv->groups;
    size_t box_w = lk__conv_box(conv, job->y, 0, 1).w, width = box_w * job->in;
    size_t dy_row = job->y.w * lk__size_round_up(job->out, V);
    job->rows = job->bias_only ? 0 : lk__conv2d_desc_taps(conv) * job->in;
    job->dw_units = lay_out_units(job);
    job->total = job->dw_units + (bias && !job->strips ? lk__panel_count(job->out) : 0);
    job->lanes = job->strips || (job->wide && !bias) ? 1 : V;
    job->chunk = lk__size_min(lk__size_divide_up(job->total * conv->groups, division->blocks), CHUNK_UNITS);
    job->chunk = lk__size_min(job->chunk, job->total);
    job->chunks = (job->total + job->chunk - 1) / job->chunk;
    job->sum = lk__conv_sum_rows(conv, job->y, job->in, job->out);
    size_t strip = box_w * lk__strip_column(conv, job->in), x_row = job->strips ? strip : width * conv->h.stride;
    job->band = lk__box_band_rows(job->y.h, x_row + dy_row, BAND_FLOATS, 1);
    job->band = job->band < job->y.h ? lk__size_max(job->band / job->sum.rows, 1) * job->sum.rows : job->y.h;
    lk_box box = lk__conv_box(conv, job->y, 0, job->band);
    size_t box_floats = lk__size_round_up(job->strips ? job->band * strip + LK_NR : box.h * width, LK_ALIGN);
    size_t dy_floats = job->strips ? 0 : lk__size_round_up(job->band * dy_row, LK_ALIGN);
    size_t fit = lk__size_max(BAND_FLOATS / (box_floats + dy_floats), 1), samples = job->sum.samples;
    job->together = job->band < job->y.h ? 1 : lk__size_max(fit / samples, 1) * samples;
    bool copies = job->strips || lk__conv_pads(conv) || conv->groups > 1;
    job->box_floats = job->rows > 0 && copies ? box_floats : 0;
    job->dy_floats = job->out % job->lanes || conv->groups > 1 ? dy_floats : 0;
    job->thread_floats = job->together * (job->box_floats + job->dy_floats);
    job->thread_floats += division->depth * job->chunk * UNIT;
    return division->threads * job->thread_floats;
}

/* Scratch floats of one division. */
static size_t division_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, bool bf16,
                              const lk_division *division)
{
    bool by_outer = lk__outer_fits(conv, x);
    weight_job job = {.conv = conv, .x = x, .y = y, .bias_only = bf16 || by_outer, .division = division};
    size_t floats = lay_out(&job, true);
    if (bf16)
        return lk__size_max(floats, lk__bf16_conv_weight_floats(conv, x, y, division));
    if (by_outer)
        floats = lk__size_max(floats, lk__outer_floats(conv, x, y, job.sum, division));
    /* The tile follows from the shards, which are not known yet. */
    for (size_t tile = 2; tile <= 4 && lk__winograd_tile(conv, x, y) > 1; tile += 2)
        floats = lk__size_max(floats, lk__winograd_weight_floats(tile, x, y, division));
    return floats;
}

size_t lk__conv_weight_floats(const lk_conv2d_desc *conv, lk_shape x, lk_shape y, size_t threads, bool bf16)
{
    lk_subtrees_rows rows = lk__subtrees_rows_of(conv, x, y, threads);
    size_t floats = 0;
    /* Waves with few samples have fewer subtrees. */
    for (size_t subtrees = 1; subtrees <= rows.most; subtrees *= 2) {
        lk_division division = lk__division(threads, subtrees);
        floats = lk__size_max(floats, division_floats(conv, x, y, bf16, &division));
    }
    return lk__subtrees_floats(&rows) + floats;
}

static void copy_float(float *slot, float *tile, bool store)
{
    if (store)
        *slot = *tile;
    else
        *tile = *slot;
}

/* The row of the matrix at which vector v of a window begins. */
static size_t vector_row(const weight_job *job, size_t v)
{
    return v / job->vectors * job->run + lk__size_min(v % job->vectors * V, job->run - V);
}

/* Copies vector v of the windows, of wide unit `unit`; slot is the group's dw. The first lanes of a run's last vector
 * can be those of the vector before, which another task may own: they are computed but not copied. */
static void move_vector(const weight_job *job, size_t unit, size_t v, float *slot, bool store, float *tile)
{
    size_t out = unit % job->units * LK_WIDE_ROWS, count = lk__size_min(job->out - out, LK_WIDE_ROWS);
    size_t taps = lk__conv2d_desc_taps(job->conv), begin = vector_row(job, v);
    for (size_t row = v / job->vectors * job->run + v % job->vectors * V; row < begin + V; row++) {
        float *to = slot + out * job->rows + row % job->in * taps + row / job->in;
        for (size_t i = 0; i < count; i++)
            copy_float(to + i * job->rows, tile + i * LK_WIDE * V + row - begin, store);
    }
}

/* Copies a unit of a transposed matrix between an entry of the chunk and its slots. */
static void move_strips(const weight_job *job, const unit_range *chunk, size_t unit, int entry, bool store, float *tile)
{
    const lk_window *w = &job->conv->w;
    size_t out = unit % job->units * LK_MR, count = lk__size_min(job->out - out, LK_MR),
           first = chunk->group * job->out;
    size_t col = unit / job->units * LK_NR, cols = lk__size_min(job->columns - col, LK_NR);
    size_t column = lk__strip_column(job->conv, job->in), taps = lk__conv2d_desc_taps(job->conv);
    for (size_t j = col; j < col + cols; j++, tile++) {
        size_t kx = j / column, ky = j % column / job->in, channel = j % column % job->in;
        bool one = j % column == column - 1;
        if (one && (kx > 0 || !chunk->tree->db.slot0))
            continue;
        float *slot = lk__partials_slot(one ? chunk->tree->db : chunk->tree->dw, entry);
        size_t step = one ? 1 : job->rows, at = one ? 0 : channel * taps + ky * w->kernel + kx;
        for (size_t i = 0; i < count; i++)
            copy_float(slot + (first + out + i) * step + at, tile + i * LK_NR, store);
    }
}

/* Copies a unit between an entry of the chunk and its slot. */
static void move_unit(const weight_job *job, const unit_range *chunk, size_t unit, int entry, bool store, float *tile)
{
    if (job->strips) {
        move_strips(job, chunk, unit, entry, store, tile);
        return;
    }
    bool bias = unit >= job->dw_units;
    float *slot = lk__partials_slot(bias ? chunk->tree->db : chunk->tree->dw, entry);
    slot += chunk->group * job->out * (bias ? 1 : job->rows);
    if (job->wide && !bias) {
        size_t first = unit / job->units * LK_WIDE, last = lk__size_min(first + LK_WIDE, job->runs * job->vectors);
        for (size_t v = first; v < last; v++, tile += V)
            move_vector(job, unit, v, slot, store, tile);
        return;
    }
    size_t row = bias ? 0 : unit % job->units * LK_MR;
    size_t col = (bias ? unit - job->dw_units : unit / job->units) * LK_NR;
    size_t cols = lk__size_min(job->out - col, LK_NR), taps = lk__conv2d_desc_taps(job->conv);
    size_t rows = bias ? 1 : lk__size_min(job->rows - row, LK_MR), step = bias ? 1 : job->rows;
    for (size_t i = 0; i < rows; i++) {
        size_t at = bias ? 0 : (row + i) % job->in * taps + (row + i) / job->in;
        for (size_t j = 0; j < cols; j++)
            copy_float(slot + (col + j) * step + at, tile + i * LK_NR + j, store);
    }
}

/* The elements of the first window that rows [row, row + rows) of the matrix multiply. */
static void point_rows(const weight_job *job, lk_box_window x, size_t row, size_t rows, const float **a)
{
    const lk_window *h = &job->conv->h, *w = &job->conv->w;
    size_t channel = row % job->in, kx = row / job->in % w->kernel, ky = row / job->in / w->kernel;
    for (size_t i = 0; i < rows; i++) {
        a[i] = x.data + ky * h->dilation * x.row + kx * w->dilation * job->in + channel;
        if (++channel < job->in)
            continue;
        channel = 0;
        if (++kx == w->kernel)
            kx = 0, ky++;
    }
}

/* The positions of a band, for all of its units: `a` is x, b is dy. */
typedef struct band_sum {
    lk_box_window x, dy; /* of the first sample */
    lk_gemm_outer outer;
} band_sum;

static void sum_bias(const weight_job *job, const band_sum *band, size_t unit, float *top)
{
    static const float one = 1.0f;
    const float *a = &one;
    size_t panel = unit - job->dw_units;
    lk_gemm_outer outer = band->outer;
    outer.a_z = outer.a_y = outer.a_x = 0;
    outer.width = lk__panel_width(job->out, panel);
    outer.b = band->dy.data + panel * LK_NR;
    outer.top = top;
    lk__gemm_outer(&outer, 1, &a);
}

/* What multiplies rows of dy by a view of x. */
static lk_gemm_outer transposed(const lk_gemm_outer *from, float *top)
{
    lk_gemm_outer outer = *from;
    outer.a_z = from->b_z, outer.a_y = from->b_y, outer.a_x = from->b_x;
    outer.b_z = from->a_z, outer.b_y = from->a_y, outer.b_x = from->a_x;
    outer.top = top;
    return outer;
}

static void sum_strips(const weight_job *job, const band_sum *band, size_t unit, float *top)
{
    size_t out = unit % job->units * LK_MR, count = lk__size_min(job->out - out, LK_MR), panel = unit / job->units;
    const float *a[LK_MR];
    /* A row computed twice costs nothing: two tiles of few rows take longer than one of four. */
    for (size_t i = 0; i < LK_MR; i++)
        a[i] = band->dy.data + out + lk__size_min(i, count - 1);
    if (count % 4 > 1)
        count = lk__size_min(lk__size_round_up(count, 4), LK_MR);
    lk_gemm_outer outer = transposed(&band->outer, top);
    outer.width = lk__panel_width(job->columns, panel);
    outer.b = band->x.data + panel * LK_NR;
    lk__gemm_outer(&outer, count, a);
}

static void sum_wide(const weight_job *job, const band_sum *band, size_t unit, float *top)
{
    size_t out = unit % job->units * LK_WIDE_ROWS, count = lk__size_min(job->out - out, LK_WIDE_ROWS);
    const float *a[LK_WIDE_ROWS], *b[LK_WIDE];
    /* Vectors after the last one are computed like it, and an odd channel is computed twice. */
    for (size_t i = 0; i < LK_WIDE; i++) {
        size_t v = lk__size_min(unit / job->units * LK_WIDE + i, job->runs * job->vectors - 1);
        point_rows(job, band->x, vector_row(job, v), 1, &b[i]);
    }
    count = lk__size_round_up(count, 2);
    for (size_t i = 0; i < count; i++)
        a[i] = band->dy.data + lk__size_min(out + i, job->out - 1);
    lk_gemm_outer outer = transposed(&band->outer, top);
    outer.width = LK_WIDE * V;
    outer.b = b[0];
    outer.b_more[0] = (size_t)(b[1] - b[0]);
    outer.b_more[1] = (size_t)(b[2] - b[0]);
    lk__gemm_outer(&outer, count, a);
}

/* Adds the positions of a band to one unit, whose sums are at top. */
static void sum_unit(const weight_job *job, const band_sum *band, size_t unit, float *top)
{
    if (unit >= job->dw_units) {
        sum_bias(job, band, unit, top);
        return;
    }
    if (job->wide || job->strips) {
        (job->wide ? sum_wide : sum_strips)(job, band, unit, top);
        return;
    }
    size_t panel = unit / job->units, row = unit % job->units * LK_MR, rows = lk__size_min(job->rows - row, LK_MR);
    const float *a[LK_MR];
    point_rows(job, band->x, row, rows, a);
    /* A row computed twice costs nothing: two tiles of few rows take longer than one of four. */
    if (rows % 4 == 3) {
        a[rows] = a[rows - 1];
        rows++;
    }
    lk_gemm_outer outer = band->outer;
    outer.width = lk__panel_width(job->out, panel);
    outer.b = band->dy.data + panel * LK_NR;
    outer.top = top;
    lk__gemm_outer(&outer, rows, a);
}

/* Sets what unit `index` of `count` units prefetches: its share of the bands of dy and x that follow output row y1 of
 * sample `last` - 1. With groups of channels the bands are not contiguous; nothing is prefetched then. */
static void set_ahead(const weight_job *job, size_t last, size_t y1, size_t index, size_t count, lk_gemm_outer *outer)
{
    size_t rows = outer->nz * outer->ny, skip = last * job->y.h - (job->y.h - y1);
    if (job->conv->groups > 1 || rows == 0 || skip + rows > job->y.n * job->y.h)
        return;
    size_t dy_row = job->y.w * job->y.c * sizeof(float), dy_bytes = rows * dy_row;
    size_t x_row = job->rows > 0 ? lk__shape_sample(job->x) * sizeof(float) / job->y.h : 0;
    size_t share = (dy_bytes + rows * x_row) / count, at = index * share;
    outer->ahead_row = lk__size_round_up(share / rows, LK_ALIGN);
    outer->ahead = at < dy_bytes ? (const char *)job->dy + skip * dy_row + at
                                 : (const char *)job->input + skip * x_row + at - dy_bytes;
}

/* Adds output rows [y0, y1) of samples [first, last) to the units of a chunk. */
static void sum_band(const weight_job *job, const unit_range *chunk, size_t first, size_t last, size_t y0, size_t y1,
                     bool fresh, int merges)
{
    size_t begin[2] = {0, job->y.w};
    lk_gemm_outer outer = {.nz = last - first, .ny = y1 - y0, .leaves = 1, .begin = begin, .merges = &merges};
    lk_box x_box = lk__box_group(lk__conv_box(job->conv, job->y, y0, y1), chunk->group, job->in);
    lk_box dy_box = {(ptrdiff_t)y0, 0, y1 - y0, job->y.w, chunk->group * job->out, job->out};
    lk_box_window x = {job->input, 0}, dy = {job->dy, 0};
    for (size_t sample = last; sample-- > first;) {
        float *buffer = chunk->buffer + (sample - first) * (job->box_floats + job->dy_floats);
        lk_box_window next_x = x, next_dy = dy;
        if (job->strips)
            x = lk__strip_copy(job->input + sample * lk__shape_sample(job->x), job->x, job->conv, x_box, LK_NR, buffer);
        else if (job->rows > 0)
            x = lk__box_view(job->input + sample * lk__shape_sample(job->x), job->x, x_box, 1, buffer);
        const float *image = job->dy + sample * lk__shape_sample(job->y);
        if (job->strips)
            dy = (lk_box_window){image + y0 * job->y.w * job->y.c + dy_box.first, job->y.w * job->y.c};
        else
            dy = lk__box_view(image, job->y, dy_box, job->lanes, buffer + job->box_floats);
        if (sample + 1 < last) {
            outer.a_z = (size_t)(next_x.data - x.data);
            outer.b_z = (size_t)(next_dy.data - dy.data);
        }
    }
    outer.a_y = (job->strips ? 1 : job->conv->h.stride) * x.row;
    outer.a_x = job->conv->w.stride * (job->strips ? lk__strip_column(job->conv, job->in) : job->in);
    outer.b_y = dy.row;
    outer.b_x = job->strips ? job->y.c : lk__size_round_up(job->out, job->lanes);
    outer.block = job->sum;
    outer.entry = chunk->entry;
    outer.fresh = fresh;
    band_sum band = {.x = x, .dy = dy, .outer = outer};
    for (size_t unit = chunk->begin; unit < chunk->end; unit++) {
        set_ahead(job, last, y1, unit - chunk->begin, chunk->end - chunk->begin, &band.outer);
        sum_unit(job, &band, unit, chunk->top + (unit - chunk->begin) * UNIT);
    }
}

/* Sums the leaf of samples [first, last); the merges are done together with the last band. */
static void sum_shard(const weight_job *job, const unit_range *chunk, size_t first, size_t last, int merges)
{
    if (first == last)
        sum_band(job, chunk, first, last, 0, 0, true, merges);
    for (size_t sample = first; sample < last; sample += job->together) {
        size_t end = lk__size_min(sample + job->together, last);
        for (size_t y = 0; y < job->y.h; y += job->band) {
            size_t y1 = lk__size_min(y + job->band, job->y.h);
            bool done = end == last && y1 == job->y.h;
            sum_band(job, chunk, sample, end, y, y1, sample == first && y == 0, done ? merges : 0);
        }
    }
}

/* Copies entry e of the chunk from or to its slot; base holds entry fold.low. */
static void move_chunk(const weight_job *job, const unit_range *chunk, int e, bool store, float *base)
{
    float *tile = base + (size_t)(e - chunk->tree->fold.low) * chunk->entry;
    for (size_t unit = chunk->begin; unit < chunk->end; unit++, tile += UNIT)
        move_unit(job, chunk, unit, e, store, tile);
}

static void weight_task(void *arg, size_t index, int thread)
{
    const weight_job *job = arg;
    const lk_subtree *tree = lk__division_tree(job->division, job->chunks * job->conv->groups, &index);
    const lk_shards *shards = &tree->shards;
    unit_range part = {.tree = tree, .group = index / job->chunks, .entry = job->chunk * UNIT};
    part.begin = index % job->chunks * job->chunk;
    part.end = lk__size_min(part.begin + job->chunk, job->total);
    part.buffer = job->scratch + (size_t)thread * job->thread_floats;
    float *base = part.buffer + job->together * (job->box_floats + job->dy_floats);
    for (int e = tree->fold.low; e < shards->depth; e++)
        move_chunk(job, &part, e, false, base);
    part.top = base + (size_t)(shards->depth - tree->fold.low) * part.entry;
    for (int s = 0; s < shards->count; s++) {
        sum_shard(job, &part, shards->begin[s], shards->begin[s + 1], shards->merges[s]);
        part.top += part.entry;
        part.top -= (size_t)shards->merges[s] * part.entry;
    }
    for (int e = tree->fold.low; e < tree->fold.end; e++)
        move_chunk(job, &part, e, true, base);
}

/* db, and dw unless bias_only. */
static void run_units(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *x, const lk_tensor *dy,
                      const lk_division *division, bool bias_only, float *scratch)
{
    weight_job job = {.conv = conv, .x = x->shape, .y = dy->shape, .division = division, .bias_only = bias_only};
    job.input = lk__tensor_f32(x);
    job.dy = lk__tensor_f32(dy);
    job.scratch = scratch;
    lay_out(&job, division->trees[0].db.slot0 != NULL);
    lk__pool_run(lk__cpu_pool(dev), division->count * job.chunks * conv->groups, weight_task, &job);
}

static void run_outer(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *x, const lk_tensor *dy,
                      const lk_division *division, float *scratch)
{
    lk_outer outer = {.conv = conv, .x = x->shape, .y = dy->shape, .division = division};
    outer.input = lk__tensor_f32(x);
    outer.dy = lk__tensor_f32(dy);
    outer.sum = lk__conv_sum_rows(conv, outer.y, outer.x.c / conv->groups, outer.y.c / conv->groups);
    lk__outer_run(dev, &outer, scratch);
}

void LK_KERNEL(conv2d_grad_weight)(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *x, const lk_tensor *dy,
                                   const lk_shards *shards, lk_partials dw, lk_partials db, void *scratch)
{
    if (lk__depthwise_fits(conv, x->shape, dy->shape)) {
        lk__depthwise_grad_weight(dev, conv, x, dy, shards, dw, db, scratch);
        return;
    }
    size_t threads = (size_t)lk__pool_threads(lk__cpu_pool(dev));
    lk_subtrees_rows rows = lk__subtrees_rows_of(conv, x->shape, dy->shape, threads);
    lk_subtree wave = lk__subtree(shards, dw, db);
    lk_subtrees subtrees; /* without a value: its arrays are large */
    lk__subtrees_cut(&rows, &wave, scratch, &subtrees);
    const lk_division *division = &subtrees.division;
    float *rest = (float *)scratch + lk__subtrees_floats(&rows);
    bool bf16 = lk__bf16_of(dev) != NULL;
    bool winograd = !bf16 && lk__winograd_weight_tile(conv, x->shape, dy->shape, shards->most) > 1;
    bool by_outer = !bf16 && !winograd && lk__outer_fits(conv, x->shape);
    if (bf16)
        lk__bf16_conv_grad_weight(dev, conv, x, dy, division, rest);
    if (winograd)
        lk__winograd_grad_weight(dev, conv, x, dy, division, rest);
    if (by_outer)
        run_outer(dev, conv, x, dy, division, rest);
    bool bias_only = bf16 || winograd || by_outer;
    if (!bias_only || db.slot0)
        run_units(dev, conv, x, dy, division, bias_only, rest);
    lk__subtrees_fold(dev, &subtrees);
}
