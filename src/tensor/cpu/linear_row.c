/* linear_row.c - y = x w^T + b of a single row, as in the prediction of one sample.
 *
 * Each weight is used once, so nothing is packed: squares of V outputs and V terms are transposed in registers. An
 * output is the sum that lk__gemm computes, in the order of sums.h, with the same bits. */
#include "base/mem.h"
#include "tensor/cpu/decls.h"
#include "tensor/cpu/linear.h"
#include "tensor/cpu/sums.h"

enum {
    VECTORS = 2,        /* chains at once; more of them would read more rows of weights at once than caches like */
    UNIT = VECTORS * V, /* outputs of a task */
    AHEAD = 128         /* floats that weights are prefetched ahead */
};

typedef struct row_job {
    size_t len, cols;
    const float *x;    // (len)
    const float *w;    // (cols, len)
    const float *bias; // (cols) or NULL
    bool relu;
    float *y; // (cols)
} row_job;

/* Continues the chains of V outputs, whose weights begin at w, with terms [k, k + V). */
LK_INLINE v_f32 add_square(const row_job *job, const float *w, size_t k, v_f32 sum)
{
    float square[V * V];
    v_transpose(w + k, job->len, square, V);
    LK_UNROLL for (int i = 0; i < V; i++) sum = v_fma(v_set1(job->x[k + (size_t)i]), v_load(square + i * V), sum);
    return sum;
}

/* The same with the single term k. */
LK_INLINE v_f32 add_term(const row_job *job, const float *w, size_t k, v_f32 sum)
{
    float column[V];
    for (size_t i = 0; i < V; i++)
        column[i] = w[i * job->len + k];
    return v_fma(v_set1(job->x[k]), v_load(column), sum);
}

LK_INLINE void prefetch_rows(const row_job *job, const float *w, size_t k)
{
    for (size_t i = 0; i < UNIT && k % (LK_ALIGN / sizeof *w) < V; i++)
        __builtin_prefetch(w + i * job->len + k + AHEAD, 0, 3);
}

/* Continues the chains of UNIT outputs with terms [k, end). */
LK_INLINE void add_block(const row_job *job, const float *w, size_t k, size_t end, v_f32 *sums)
{
    for (; k + V <= end; k += V) {
        prefetch_rows(job, w, k);
        LK_UNROLL for (int v = 0; v < VECTORS; v++) sums[v] =
            add_square(job, w + (size_t)(v * V) * job->len, k, sums[v]);
    }
    for (; k < end; k++)
        LK_UNROLL for (int v = 0; v < VECTORS; v++) sums[v] = add_term(job, w + (size_t)(v * V) * job->len, k, sums[v]);
}

/* Outputs [col, col + UNIT). */
static void compute_unit(const row_job *job, size_t col, float *out)
{
    const float *w = job->w + col * job->len;
    v_f32 sums[VECTORS], block[VECTORS];
    LK_UNROLL for (int v = 0; v < VECTORS; v++) sums[v] = job->bias ? v_load(job->bias + col + v * V) : v_zero();
    add_block(job, w, 0, lk__size_min(LK_SUM_BLOCK, job->len), sums);
    for (size_t k = LK_SUM_BLOCK; k < job->len; k += LK_SUM_BLOCK) {
        LK_UNROLL for (int v = 0; v < VECTORS; v++) block[v] = v_zero();
        add_block(job, w, k, lk__size_min(k + LK_SUM_BLOCK, job->len), block);
        LK_UNROLL for (int v = 0; v < VECTORS; v++) sums[v] = v_add(sums[v], block[v]);
    }
    LK_UNROLL for (int v = 0; v < VECTORS; v++) v_store(out + v * V, job->relu ? v_relu(sums[v]) : sums[v]);
}

/* The last task computes some outputs of the task before it too, and leaves them out. */
static void row_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const row_job *job = arg;
    float out[UNIT];
    size_t begin = index * UNIT, from = lk__size_min(begin, job->cols - UNIT);
    compute_unit(job, from, out);
    memcpy(job->y + begin, out + (begin - from), (from + UNIT - begin) * sizeof *out);
}

bool lk__linear_row_fits(size_t rows, size_t cols)
{
    return rows == 1 && cols >= UNIT;
}

void lk__linear_row(lk_device *dev, const lk_tensor *x, const float *w, const float *b, bool relu, lk_tensor *y)
{
    row_job job = {.len = x->shape.c, .cols = y->shape.c, .w = w, .bias = b, .relu = relu};
    job.x = lk__tensor_f32(x);
    job.y = lk__tensor_f32(y);
    lk__pool_run(lk__cpu_pool(dev), (job.cols + UNIT - 1) / UNIT, row_task, &job);
}
