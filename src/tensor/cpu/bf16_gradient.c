/* bf16_gradient.c - gradients of weights in bf16, summed over samples and pixels and folded over shards.
 *
 * For each group of channels the gradient is a matrix of dy's channels by elements of a window, the product of dy,
 * transposed, and the windows. A task owns a part of the matrix, small enough that its partial sums stay in cache, and
 * the shards of a subtree (division.h). For each shard it copies some positions of dy and of the windows in the
 * order that the product wants, multiplies, and continues with the next positions. */
#include "tensor/cpu/bf16_layer.h"
#include "tensor/cpu/decls.h"
#include "tensor/cpu/fold.h"

enum {
    POSITIONS = 256, /* copied at once; whole blocks */
    MOST_ROWS = 128, /* of a task */
    MOST_COLS = 512,
    LEAST_COLS = 64,
    LEAST_ROWS = 32,
    PART_FLOATS = 48 * 1024,
    A_ROW = POSITIONS + 32, /* other distances would put many rows into the same sets of the cache */
    PAIRS = POSITIONS / 2,
    SOME = 16, /* windows copied at once; divides a block */
    C_PAD = LK_BF16_SIDE
};
_Static_assert(POSITIONS % LK_BF16_BLOCK == 0 && LK_BF16_PAIRS % V == 0, "positions copied at once are whole blocks");

typedef struct gradient_job {
    const lk_bf16_gradient *gradient;
    lk_bf16_multiply *multiply;
    lk_bf16_windows windows;
    size_t cols, depth; /* rows and columns of the matrix: dy's channels of a group, elements of a window */
    size_t part_rows, part_cols, row_parts, col_parts;
    size_t c_row, entry; /* floats of a row and of a partial sum */
    uint16_t *images, *dy;
    float *scratch; // one for each thread: A, B, partial sums
    size_t thread_floats;
} gradient_job;

/* A part of the matrix of one group. */
typedef struct part {
    const lk_subtree *tree;
    size_t group, row, rows, col, cols;
    float *a;    // (rows, A_ROW / 2): pairs of factors
    uint32_t *b; // (cols / LK_BF16_SIDE, PAIRS, LK_BF16_SIDE)
    float *top;  // (part_rows, c_row): where the leaf is summed
} part;

static size_t bf16_floats(size_t count)
{
    return lk__size_round_up((count + 1) / 2, LK_ALIGN);
}

static size_t a_floats(const gradient_job *job)
{
    return job->part_rows * A_ROW / 2;
}

/* Sets the sizes in job; returns the floats of scratch. */
static size_t lay_out(gradient_job *job, size_t cols, size_t groups, const lk_division *division)
{
    job->cols = cols;
    job->depth = lk__bf16_windows_depth(&job->windows);
    job->part_rows = lk__size_min(lk__size_round_up(cols, LK_BF16_SIDE), MOST_ROWS);
    job->part_cols = lk__size_min(lk__size_round_up(job->depth, LK_BF16_SIDE), MOST_COLS);
    job->part_cols = lk__size_min(job->part_cols, PART_FLOATS / job->part_rows / LK_BF16_SIDE * LK_BF16_SIDE);
    for (;;) {
        job->row_parts = lk__size_divide_up(cols, job->part_rows);
        job->col_parts = lk__size_divide_up(job->depth, job->part_cols);
        if (groups * job->row_parts * job->col_parts >= 2 * division->least)
            break;
        if (job->part_cols > LEAST_COLS)
            job->part_cols = lk__size_round_up(job->part_cols / 2, LK_BF16_SIDE);
        else if (job->part_rows > LEAST_ROWS)
            job->part_rows = lk__size_round_up(job->part_rows / 2, LK_BF16_SIDE);
        else
            break;
    }
    job->c_row = job->part_cols + C_PAD;
    job->entry = job->part_rows * job->c_row;
    job->thread_floats = a_floats(job) + job->part_cols * PAIRS + division->depth * job->entry;
    return bf16_floats(lk__shape_count(job->windows.shape)) +
           bf16_floats(lk__bf16_windows_rows(&job->windows) * groups * cols) + division->threads * job->thread_floats;
}

size_t lk__bf16_gradient_floats(const lk_bf16_windows *windows, size_t cols, size_t groups, const lk_division *division)
{
    gradient_job job = {.windows = *windows};
    return lay_out(&job, cols, groups, division);
}

/* Pairs of the positions `position` and the next one, of channels [row, row + V) of dy; 0 where there is none. */
LK_INLINE v_u32 pair_of_dy(const gradient_job *job, const part *p, size_t position, size_t end, size_t row)
{
    v_u32 pair = vu_set1(0);
    size_t lanes = lk__size_min(p->rows > row ? p->rows - row : 0, V), pitch = job->gradient->groups * job->cols;
    for (size_t i = 2; i-- > 0;) {
        if (position + i >= end)
            continue;
        uint16_t rest[V] = {0};
        const uint16_t *from = job->dy + (position + i) * pitch + p->group * job->cols + p->row + row;
        if (lanes < V) {
            memcpy(rest, from, lanes * sizeof *rest);
            from = rest;
        }
        pair = vu_or(vu_shl16(pair), vu_load16(from));
    }
    return pair;
}

/* A = dy of the positions [begin, end), transposed, filled up to whole blocks. */
static void copy_dy(const gradient_job *job, const part *p, size_t begin, size_t end)
{
    size_t pairs = lk__size_round_up(end - begin, LK_BF16_BLOCK) / 2;
    for (size_t row = 0; row < lk__size_round_up(p->rows, LK_BF16_SIDE); row += V) {
        for (size_t pair = 0; pair < pairs; pair += V) {
            float square[V * V];
            for (size_t i = 0; i < V; i++)
                v_store(square + i * V, v_from_bits(pair_of_dy(job, p, begin + 2 * (pair + i), end, row)));
            v_transpose(square, V, p->a + row * (A_ROW / 2) + pair, A_ROW / 2);
        }
    }
}

/* B = the windows of the positions [begin, end), filled up to whole blocks. */
static void copy_windows(const gradient_job *job, const part *p, size_t begin, size_t end)
{
    lk_bf16_windows windows = job->windows;
    uint16_t some[SOME][MOST_COLS] = {0};
    size_t padded = lk__size_round_up(p->cols, LK_BF16_SIDE);
    windows.first += p->group * windows.channels;
    for (size_t first = 0; first < lk__size_round_up(end - begin, LK_BF16_BLOCK); first += SOME) {
        size_t count = end - begin > first ? lk__size_min(end - begin - first, SOME) : 0;
        lk__bf16_window_rows(&windows, begin + first, count, p->col, p->col + p->cols, some[0], MOST_COLS);
        for (size_t i = count; i < SOME; i++)
            memset(some[i], 0, p->cols * sizeof *some[i]);
        for (size_t i = 0; i < SOME; i += 2) {
            uint32_t *to = p->b + (first + i) / 2 * LK_BF16_SIDE;
            for (size_t j = 0; j < padded; j += V)
                vu_store(to + j / LK_BF16_SIDE * PAIRS * LK_BF16_SIDE + j % LK_BF16_SIDE,
                         vu_or(vu_load16(some[i] + j), vu_shl16(vu_load16(some[i + 1] + j))));
        }
    }
}

/* Sums the leaf of the positions [begin, end). */
static void sum_leaf(const gradient_job *job, const part *p, size_t begin, size_t end)
{
    lk_bf16_product product = {
        .rows = lk__size_round_up(p->rows, LK_BF16_SIDE),
        .cols = lk__size_round_up(p->cols, LK_BF16_SIDE),
        .a = (const uint16_t *)p->a,
        .a_row = A_ROW,
        .b = p->b,
        .b_panel = PAIRS * LK_BF16_SIDE,
        .c = p->top,
        .c_row = job->c_row,
    };
    do {
        size_t count = lk__size_min(end - begin, POSITIONS);
        copy_dy(job, p, begin, begin + count);
        copy_windows(job, p, begin, begin + count);
        product.blocks = (count + LK_BF16_BLOCK - 1) / LK_BF16_BLOCK;
        product.last = lk__bf16_last(lk__size_max(count, 1));
        job->multiply(&product);
        product.add = true;
        begin += count;
    } while (begin < end);
}

/* Adds the partial sum at `right` to the one at `left`. */
static void merge(const gradient_job *job, const part *p, float *left, const float *right)
{
    for (size_t i = 0; i < p->rows; i++, left += job->c_row, right += job->c_row) {
        for (size_t j = 0; j < p->cols; j += V)
            v_store(left + j, v_add(v_load(left + j), v_load(right + j)));
    }
}

/* Copies a partial sum from or to its slot. */
static void move_entry(const gradient_job *job, const part *p, int entry, bool store, float *sums)
{
    size_t channels = job->windows.channels, taps = job->windows.y.taps * job->windows.x.taps;
    float *slot = lk__partials_slot(p->tree->dw, entry) + (p->group * job->cols + p->row) * job->depth;
    for (size_t i = 0; i < p->rows; i++, sums += job->c_row, slot += job->depth) {
        size_t channel = p->col % channels, tap = p->col / channels;
        for (size_t j = 0; j < p->cols; j++) {
            if (store)
                slot[channel * taps + tap] = sums[j];
            else
                sums[j] = slot[channel * taps + tap];
            if (++channel == channels)
                channel = 0, tap++;
        }
    }
}

static void gradient_task(void *arg, size_t index, int thread)
{
    const gradient_job *job = arg;
    size_t blocks = job->gradient->groups * job->row_parts * job->col_parts;
    const lk_subtree *tree = lk__division_tree(job->gradient->division, blocks, &index);
    const lk_shards *shards = &tree->shards;
    size_t pixels = job->windows.y.count * job->windows.x.count, number = index / job->col_parts;
    float *memory = job->scratch + (size_t)thread * job->thread_floats;
    part p = {.tree = tree, .group = number / job->row_parts, .a = memory, .b = (uint32_t *)(memory + a_floats(job))};
    p.row = number % job->row_parts * job->part_rows;
    p.rows = lk__size_min(job->cols - p.row, job->part_rows);
    p.col = index % job->col_parts * job->part_cols;
    p.cols = lk__size_min(job->depth - p.col, job->part_cols);
    float *base = memory + a_floats(job) + job->part_cols * PAIRS;
    for (int e = tree->fold.low; e < shards->depth; e++)
        move_entry(job, &p, e, false, base + (size_t)(e - tree->fold.low) * job->entry);
    p.top = base + (size_t)(shards->depth - tree->fold.low) * job->entry;
    for (int s = 0; s < shards->count; s++) {
        sum_leaf(job, &p, shards->begin[s] * pixels, shards->begin[s + 1] * pixels);
        for (int merges = shards->merges[s]; merges > 0; merges--) {
            merge(job, &p, p.top - job->entry, p.top);
            p.top -= job->entry;
        }
        p.top += job->entry;
    }
    for (int e = tree->fold.low; e < tree->fold.end; e++)
        move_entry(job, &p, e, true, base + (size_t)(e - tree->fold.low) * job->entry);
}

void lk__bf16_gradient_run(lk_device *dev, const lk_bf16_gradient *gradient, void *scratch)
{
    gradient_job job = {.gradient = gradient, .multiply = lk__bf16_of(dev), .windows = gradient->windows};
    lay_out(&job, gradient->cols, gradient->groups, gradient->division);
    size_t inputs = lk__shape_count(job.windows.shape);
    size_t outputs = lk__bf16_windows_rows(&job.windows) * gradient->groups * gradient->cols;
    float *dy = (float *)scratch + bf16_floats(inputs);
    job.windows.images = job.images = scratch;
    job.dy = (uint16_t *)dy;
    job.scratch = dy + bf16_floats(outputs);
    lk__bf16_round(dev, gradient->input, inputs, job.images);
    lk__bf16_round(dev, gradient->dy, outputs, job.dy);
    size_t blocks = gradient->groups * job.row_parts * job.col_parts;
    lk__pool_run(lk__cpu_pool(dev), gradient->division->count * blocks, gradient_task, &job);
}
