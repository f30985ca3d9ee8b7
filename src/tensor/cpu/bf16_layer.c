/* bf16_layer.c - windows of images times weights, in bf16: forward passes and input gradients.
 *
 * The input is rounded once and the weights are packed once. A task computes a block of rows and columns: it copies
 * some terms of its rows, multiplies, and continues with the next terms; then it adds the bias and stores the rows. */
#include "tensor/cpu/bf16_layer.h"

#include "tensor/cpu/decls.h"
#include "tensor/cpu/pack.h"

enum {
    MOST_ROWS = 128, /* of a task */
    LEAST_ROWS = 32,
    MOST_COLS = 512,
    LEAST_COLS = 64,
    TERMS = 512,          /* copied at once; whole blocks */
    A_ROW = TERMS + 32,   /* other distances would put many rows into the same sets of the cache */
    C_PAD = LK_BF16_SIDE, /* the same for C */
    TASKS_A_THREAD = 4,
    VECTORS = 256, /* of weights that are transposed at once */
    A_FLOATS = MOST_ROWS * A_ROW / 2
};
_Static_assert(TERMS % LK_BF16_BLOCK == 0, "terms copied at once are whole blocks");

typedef struct layer_job {
    const lk_bf16_layer *layer;
    lk_bf16_multiply *multiply;
    lk_bf16_windows windows;
    size_t depth, blocks, panels; /* terms and blocks of a sum; panels of a group */
    size_t rows, block_rows, row_blocks;
    size_t block_cols, col_blocks;
    uint16_t *images;
    uint32_t *weights; // (groups, panels, blocks * LK_BF16_PAIRS, LK_BF16_SIDE)
    float *scratch;    // one for each thread: A, C
    size_t thread_floats;
} layer_job;

static size_t image_floats(lk_shape shape)
{
    return lk__size_round_up((lk__shape_count(shape) + 1) / 2, LK_ALIGN);
}

static size_t weight_floats(const layer_job *job, size_t groups)
{
    return groups * job->panels * job->blocks * LK_BF16_PAIRS * LK_BF16_SIDE;
}

/* Sets the sizes in job; returns the floats of scratch. */
static size_t lay_out(layer_job *job, size_t cols, size_t groups, size_t threads)
{
    job->depth = lk__bf16_windows_depth(&job->windows);
    job->blocks = (job->depth + LK_BF16_BLOCK - 1) / LK_BF16_BLOCK;
    job->panels = (cols + LK_BF16_SIDE - 1) / LK_BF16_SIDE;
    job->rows = lk__bf16_windows_rows(&job->windows);
    job->block_rows = MOST_ROWS;
    job->block_cols = lk__size_min(job->panels * LK_BF16_SIDE, MOST_COLS);
    job->thread_floats = A_FLOATS + MOST_ROWS * (job->block_cols + C_PAD);
    for (size_t wanted = lk__cpu_tasks(threads, TASKS_A_THREAD);;) {
        job->row_blocks = (job->rows + job->block_rows - 1) / job->block_rows;
        job->col_blocks = (job->panels * LK_BF16_SIDE + job->block_cols - 1) / job->block_cols;
        if (job->row_blocks * job->col_blocks * groups >= wanted)
            break;
        if (job->block_rows > LEAST_ROWS)
            job->block_rows /= 2;
        else if (job->block_cols > LEAST_COLS)
            job->block_cols = lk__size_round_up(job->block_cols / 2, 2 * LK_BF16_SIDE);
        else
            break;
    }
    return image_floats(job->windows.shape) + weight_floats(job, groups) + threads * job->thread_floats;
}

size_t lk__bf16_layer_floats(const lk_bf16_windows *windows, size_t cols, size_t groups, size_t threads)
{
    layer_job job = {.windows = *windows};
    return lay_out(&job, cols, groups, threads);
}

/* The factors of term k in `cols` columns; the others are 0. */
static void gather_weights(const layer_job *job, const float *data, size_t k, size_t cols, float to[LK_BF16_SIDE])
{
    const lk_bf16_weights *weights = &job->layer->weights;
    memset(to, 0, LK_BF16_SIDE * sizeof *to);
    if (k >= job->depth)
        return;
    size_t channels = job->windows.channels, taps = job->windows.x.taps, tap = k / channels;
    const float *from = data + (ptrdiff_t)(tap / taps) * weights->tap_y + (ptrdiff_t)(tap % taps) * weights->tap_x +
                        k % channels * weights->channel;
    for (size_t j = 0; j < cols; j++)
        to[j] = from[j * weights->column];
}

/* A pair of terms: the factors of a column each. */
static void store_pair(const float *even, const float *odd, uint32_t *to)
{
    for (size_t j = 0; j < LK_BF16_SIDE; j += V)
        vu_store(to + j, vu_or(lk__bf16_bits(v_load(even + j)), vu_shl16(lk__bf16_bits(v_load(odd + j)))));
}

/* Packs pairs [pair, end) of a panel, factor by factor. */
static void pack_pairs(const layer_job *job, const float *data, size_t cols, size_t pair, size_t end, uint32_t *to)
{
    for (; pair < end; pair++) {
        float even[LK_BF16_SIDE], odd[LK_BF16_SIDE];
        gather_weights(job, data, 2 * pair, cols, even);
        gather_weights(job, data, 2 * pair + 1, cols, odd);
        store_pair(even, odd, to + pair * LK_BF16_SIDE);
    }
}

/* Where the taps of a channel and a column are, from the first in memory to the last, if the window has any. */
typedef struct tap_span {
    ptrdiff_t low; /* floats from tap 0 of the window to the first */
    size_t count;  /* floats */
    size_t step;   /* vectors from channel to channel when they are transposed */
} tap_span;

static tap_span span_of(const layer_job *job)
{
    const lk_bf16_weights *weights = &job->layer->weights;
    ptrdiff_t y = (ptrdiff_t)(job->windows.y.taps - 1) * weights->tap_y;
    ptrdiff_t x = (ptrdiff_t)(job->windows.x.taps - 1) * weights->tap_x;
    ptrdiff_t low = (y < 0 ? y : 0) + (x < 0 ? x : 0), high = (y > 0 ? y : 0) + (x > 0 ? x : 0);
    size_t count = (size_t)(high - low) + 1;
    return (tap_span){low, count, weights->channel < weights->column ? weights->channel : count};
}

/* Channels that are transposed at once, if pairs of terms are neighbouring channels of a tap; otherwise 0. */
static size_t channels_at_once(const layer_job *job, const tap_span *span)
{
    return job->windows.channels % 2 > 0 || job->depth == 0 ? 0 : VECTORS / span->step / 2 * 2;
}

/* Transposes channels [k, k + count) of all taps into vectors, which have a factor of each column: float t of the span
 * and channel k + i are vector i * step + t. */
static void transpose_channels(const layer_job *job, const tap_span *span, const float *data, size_t cols, size_t k,
                               size_t count, float *vectors)
{
    const lk_bf16_weights *weights = &job->layer->weights;
    const float *from = data + span->low + k * weights->channel;
    if (weights->channel == span->step) { /* the channels of a column are neighbours */
        size_t len = (count - 1) * span->step + span->count;
        lk__pack_transposed(from, weights->column, cols, len, 1, LK_BF16_SIDE, vectors);
        return;
    }
    for (size_t i = 0; i < count; i++, from += weights->channel, vectors += span->step * LK_BF16_SIDE)
        lk__pack_transposed(from, weights->column, cols, span->count, 1, LK_BF16_SIDE, vectors);
}

/* Packs one panel. */
static void pack_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const layer_job *job = arg;
    const lk_bf16_weights *weights = &job->layer->weights;
    size_t col = index % job->panels * LK_BF16_SIDE, cols = lk__size_min(job->layer->cols - col, LK_BF16_SIDE);
    size_t pairs = job->blocks * LK_BF16_PAIRS, channels = job->windows.channels, taps = job->windows.x.taps;
    const float *data = weights->data + index / job->panels * weights->group + col * weights->column;
    uint32_t *to = job->weights + index * pairs * LK_BF16_SIDE;
    tap_span span = span_of(job);
    size_t some = channels_at_once(job, &span);
    for (size_t k = 0; some > 0 && k < channels; k += some) {
        float vectors[VECTORS * LK_BF16_SIDE];
        size_t count = lk__size_min(channels - k, some), step = span.step;
        transpose_channels(job, &span, data, cols, k, count, vectors);
        for (size_t tap = 0; tap < job->depth / channels; tap++) {
            ptrdiff_t at = (ptrdiff_t)(tap / taps) * weights->tap_y + (ptrdiff_t)(tap % taps) * weights->tap_x;
            const float *vector = vectors + (size_t)(at - span.low) * LK_BF16_SIDE;
            uint32_t *pair = to + (tap * channels + k) / 2 * LK_BF16_SIDE;
            for (size_t i = 0; i < count; i += 2, vector += 2 * step * LK_BF16_SIDE, pair += LK_BF16_SIDE)
                store_pair(vector, vector + step * LK_BF16_SIDE, pair);
        }
    }
    pack_pairs(job, data, cols, some > 0 ? job->depth / 2 : 0, pairs, to);
}

/* A = terms [k, k + TERMS), or up to the last one, of rows [row, row + rows). */
static void copy_terms(const layer_job *job, const lk_bf16_windows *windows, size_t row, size_t rows, size_t k,
                       uint16_t *a)
{
    size_t end = lk__size_min(k + TERMS, job->depth), padded = lk__size_round_up(end - k, LK_BF16_BLOCK);
    lk__bf16_window_rows(windows, row, rows, k, end, a, A_ROW);
    for (size_t i = 0; i < lk__size_round_up(rows, LK_BF16_SIDE); i++, a += A_ROW) {
        size_t count = i < rows ? end - k : 0;
        memset(a + count, 0, (padded - count) * sizeof *a);
    }
}

/* Stores row `row` of the columns [col, col + cols) of a group. */
static void store_row(const layer_job *job, size_t group, size_t row, size_t col, size_t cols, const float *c)
{
    const lk_bf16_layer *layer = job->layer;
    size_t nx = job->windows.x.count, ny = job->windows.y.count;
    size_t at = row / (ny * nx) * layer->out_n + row / nx % ny * layer->out_y + row % nx * layer->out_x +
                group * layer->cols + col;
    const float *bias = layer->bias ? layer->bias + group * layer->cols + col : NULL;
    for (size_t j = 0; j < cols; j += V) {
        size_t lanes = lk__size_min(cols - j, V);
        v_f32 sum = v_load(c + j);
        if (bias)
            sum = v_add(sum, v_load_some(bias + j, lanes));
        if (layer->relu)
            sum = v_relu(sum);
        if (layer->mask)
            sum = v_relu_grad(v_load_some(layer->mask + at + j, lanes), sum);
        v_store_some(layer->output + at + j, sum, lanes);
    }
}

static void layer_task(void *arg, size_t index, int thread)
{
    const layer_job *job = arg;
    const lk_bf16_layer *layer = job->layer;
    size_t block = index / job->col_blocks, group = block % layer->groups;
    size_t row = block / layer->groups * job->block_rows, rows = lk__size_min(job->rows - row, job->block_rows);
    size_t col = index % job->col_blocks * job->block_cols, cols = lk__size_min(layer->cols - col, job->block_cols);
    float *a = job->scratch + (size_t)thread * job->thread_floats, *c = a + A_FLOATS;
    lk_bf16_windows windows = job->windows;
    windows.first += group * windows.channels;
    lk_bf16_product product = {
        .rows = lk__size_round_up(rows, LK_BF16_SIDE),
        .cols = lk__size_round_up(cols, LK_BF16_SIDE),
        .a = (const uint16_t *)a,
        .a_row = A_ROW,
        .b_panel = job->blocks * LK_BF16_PAIRS * LK_BF16_SIDE,
        .c = c,
        .c_row = job->block_cols + C_PAD,
    };
    product.b = job->weights + (group * job->panels + col / LK_BF16_SIDE) * product.b_panel;
    size_t k = 0;
    do {
        product.blocks = lk__size_min(TERMS / LK_BF16_BLOCK, job->blocks - k / LK_BF16_BLOCK);
        product.last = k + TERMS < job->depth ? LK_BF16_PAIRS : lk__bf16_last(lk__size_max(job->depth, 1));
        copy_terms(job, &windows, row, rows, k, (uint16_t *)a);
        job->multiply(&product);
        product.add = true;
        product.b += product.blocks * LK_BF16_PAIRS * LK_BF16_SIDE;
        k += TERMS;
    } while (k < job->depth);
    for (size_t i = 0; i < rows; i++)
        store_row(job, group, row + i, col, cols, c + i * product.c_row);
}

void lk__bf16_layer_run(lk_device *dev, const lk_bf16_layer *layer, bool rounded, void *scratch)
{
    lk_pool *pool = lk__cpu_pool(dev);
    layer_job job = {.layer = layer, .multiply = lk__bf16_of(dev), .windows = layer->windows};
    lay_out(&job, layer->cols, layer->groups, (size_t)lk__pool_threads(pool));
    if (job.rows == 0)
        return;
    float *weights = (float *)scratch + image_floats(job.windows.shape);
    job.windows.images = job.images = scratch;
    job.weights = (uint32_t *)weights;
    job.scratch = weights + weight_floats(&job, layer->groups);
    if (!rounded)
        lk__bf16_round(dev, layer->input, lk__shape_count(job.windows.shape), job.images);
    lk__pool_run(pool, layer->groups * job.panels, pack_task, &job);
    lk__pool_run(pool, job.row_blocks * layer->groups * job.col_blocks, layer_task, &job);
}
