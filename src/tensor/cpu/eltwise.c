/* eltwise.c - kernels that process each element alone: ReLU, ReLU6, leaky ReLU, addition, multiplication, copies (also
 * with more or fewer channels, of two tensors side by side, or in flatten's order), and the search for non-finite
 * values. */
#include <stdatomic.h>
#include <string.h>

#include "tensor/cpu/chunks.h"
#include "tensor/cpu/decls.h"

/* Operands of one elementwise call; b is unused if there is one input. */
typedef struct operands {
    size_t count;
    const float *a, *b;
    const float *mask; /* of add_masked */
    float *y;
    float slope; /* of leaky ReLU */
} operands;

static void relu_forward_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const operands *op = arg;
    lk_chunk_range range = lk__chunk(op->count, LK_CHUNK, index);
    size_t i = range.begin;
    for (; i + V <= range.end; i += V)
        v_store(op->y + i, v_relu(v_load(op->a + i)));
    if (i < range.end)
        v_store_n(op->y + i, v_relu(v_load_n(op->a + i, range.end - i)), range.end - i);
}

void LK_KERNEL(relu_forward)(lk_device *dev, const lk_tensor *x, lk_tensor *y)
{
    operands op = {.count = lk__shape_count(x->shape), .a = lk__tensor_f32(x), .y = lk__tensor_f32(y)};
    lk__chunk_run(dev, op.count, relu_forward_task, &op);
}

static void relu_grad_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const operands *op = arg;
    lk_chunk_range range = lk__chunk(op->count, LK_CHUNK, index);
    size_t i = range.begin;
    for (; i + V <= range.end; i += V)
        v_store(op->y + i, v_relu_grad(v_load(op->a + i), v_load(op->b + i)));
    if (i < range.end) {
        size_t n = range.end - i;
        v_store_n(op->y + i, v_relu_grad(v_load_n(op->a + i, n), v_load_n(op->b + i, n)), n);
    }
}

void LK_KERNEL(relu_grad_input)(lk_device *dev, const lk_tensor *y, const lk_tensor *dy, lk_tensor *dx)
{
    operands op = {
        .count = lk__shape_count(y->shape), .a = lk__tensor_f32(y), .b = lk__tensor_f32(dy), .y = lk__tensor_f32(dx)};
    lk__chunk_run(dev, op.count, relu_grad_task, &op);
}

static void relu6_forward_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const operands *op = arg;
    lk_chunk_range range = lk__chunk(op->count, LK_CHUNK, index);
    size_t i = range.begin;
    for (; i + V <= range.end; i += V)
        v_store(op->y + i, v_relu6(v_load(op->a + i)));
    if (i < range.end)
        v_store_n(op->y + i, v_relu6(v_load_n(op->a + i, range.end - i)), range.end - i);
}

void LK_KERNEL(relu6_forward)(lk_device *dev, const lk_tensor *x, lk_tensor *y)
{
    operands op = {.count = lk__shape_count(x->shape), .a = lk__tensor_f32(x), .y = lk__tensor_f32(y)};
    lk__chunk_run(dev, op.count, relu6_forward_task, &op);
}

static void relu6_grad_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const operands *op = arg;
    lk_chunk_range range = lk__chunk(op->count, LK_CHUNK, index);
    size_t i = range.begin;
    for (; i + V <= range.end; i += V)
        v_store(op->y + i, v_relu6_grad(v_load(op->a + i), v_load(op->b + i)));
    if (i < range.end) {
        size_t n = range.end - i;
        v_store_n(op->y + i, v_relu6_grad(v_load_n(op->a + i, n), v_load_n(op->b + i, n)), n);
    }
}

void LK_KERNEL(relu6_grad_input)(lk_device *dev, const lk_tensor *y, const lk_tensor *dy, lk_tensor *dx)
{
    operands op = {
        .count = lk__shape_count(y->shape), .a = lk__tensor_f32(y), .b = lk__tensor_f32(dy), .y = lk__tensor_f32(dx)};
    lk__chunk_run(dev, op.count, relu6_grad_task, &op);
}

/* value, times slope where sign <= 0; a NaN in sign leaves value as it is. */
static inline v_f32 leaky(v_f32 sign, v_f32 value, v_f32 slope)
{
    return v_select(v_le(sign, v_zero()), v_mul(slope, value), value);
}

static void leaky_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const operands *op = arg;
    lk_chunk_range range = lk__chunk(op->count, LK_CHUNK, index);
    v_f32 slope = v_set1(op->slope);
    size_t i = range.begin;
    for (; i + V <= range.end; i += V)
        v_store(op->y + i, leaky(v_load(op->a + i), v_load(op->b + i), slope));
    if (i < range.end) {
        size_t n = range.end - i;
        v_store_n(op->y + i, leaky(v_load_n(op->a + i, n), v_load_n(op->b + i, n), slope), n);
    }
}

void LK_KERNEL(leaky_relu_forward)(lk_device *dev, const lk_tensor *x, float slope, lk_tensor *y)
{
    LK_KERNEL(leaky_relu_grad_input)(dev, x, x, slope, y);
}

void LK_KERNEL(leaky_relu_grad_input)(lk_device *dev, const lk_tensor *y, const lk_tensor *dy, float slope,
                                      lk_tensor *dx)
{
    operands op = {.count = lk__shape_count(y->shape),
                   .a = lk__tensor_f32(y),
                   .b = lk__tensor_f32(dy),
                   .y = lk__tensor_f32(dx),
                   .slope = slope};
    lk__chunk_run(dev, op.count, leaky_task, &op);
}

static void mul_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const operands *op = arg;
    lk_chunk_range range = lk__chunk(op->count, LK_CHUNK, index);
    size_t i = range.begin;
    for (; i + V <= range.end; i += V)
        v_store(op->y + i, v_mul(v_load(op->a + i), v_load(op->b + i)));
    if (i < range.end) {
        size_t n = range.end - i;
        v_store_n(op->y + i, v_mul(v_load_n(op->a + i, n), v_load_n(op->b + i, n)), n);
    }
}

void LK_KERNEL(mul)(lk_device *dev, const lk_tensor *a, const lk_tensor *b, lk_tensor *y)
{
    operands op = {
        .count = lk__shape_count(a->shape), .a = lk__tensor_f32(a), .b = lk__tensor_f32(b), .y = lk__tensor_f32(y)};
    lk__chunk_run(dev, op.count, mul_task, &op);
}

static void add_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const operands *op = arg;
    lk_chunk_range range = lk__chunk(op->count, LK_CHUNK, index);
    size_t i = range.begin;
    for (; i + V <= range.end; i += V)
        v_store(op->y + i, v_add(v_load(op->a + i), v_load(op->b + i)));
    if (i < range.end) {
        size_t n = range.end - i;
        v_store_n(op->y + i, v_add(v_load_n(op->a + i, n), v_load_n(op->b + i, n)), n);
    }
}

static void add_relu_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const operands *op = arg;
    lk_chunk_range range = lk__chunk(op->count, LK_CHUNK, index);
    size_t i = range.begin;
    for (; i + V <= range.end; i += V)
        v_store(op->y + i, v_relu(v_add(v_load(op->a + i), v_load(op->b + i))));
    if (i < range.end) {
        size_t n = range.end - i;
        v_store_n(op->y + i, v_relu(v_add(v_load_n(op->a + i, n), v_load_n(op->b + i, n))), n);
    }
}

void LK_KERNEL(add)(lk_device *dev, const lk_tensor *a, const lk_tensor *b, bool relu, lk_tensor *y)
{
    operands op = {
        .count = lk__shape_count(a->shape), .a = lk__tensor_f32(a), .b = lk__tensor_f32(b), .y = lk__tensor_f32(y)};
    lk__chunk_run(dev, op.count, relu ? add_relu_task : add_task, &op);
}

static void add_masked_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const operands *op = arg;
    lk_chunk_range range = lk__chunk(op->count, LK_CHUNK, index);
    size_t i = range.begin;
    for (; i + V <= range.end; i += V)
        v_store(op->y + i, v_relu_grad(v_load(op->mask + i), v_add(v_load(op->a + i), v_load(op->b + i))));
    if (i < range.end) {
        size_t n = range.end - i;
        v_f32 sum = v_add(v_load_n(op->a + i, n), v_load_n(op->b + i, n));
        v_store_n(op->y + i, v_relu_grad(v_load_n(op->mask + i, n), sum), n);
    }
}

void LK_KERNEL(add_masked)(lk_device *dev, const lk_tensor *a, const lk_tensor *b, const lk_tensor *mask, lk_tensor *y)
{
    operands op = {.count = lk__shape_count(a->shape),
                   .a = lk__tensor_f32(a),
                   .b = lk__tensor_f32(b),
                   .mask = lk__tensor_f32(mask),
                   .y = lk__tensor_f32(y)};
    lk__chunk_run(dev, op.count, add_masked_task, &op);
}

static void copy_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const operands *op = arg;
    lk_chunk_range range = lk__chunk(op->count, LK_CHUNK, index);
    memcpy(op->y + range.begin, op->a + range.begin, (range.end - range.begin) * sizeof *op->y);
}

static void copy(lk_device *dev, size_t count, const float *x, float *y)
{
    operands op = {.count = count, .a = x, .y = y};
    lk__chunk_run(dev, count, copy_task, &op);
}

void LK_KERNEL(copy)(lk_device *dev, const lk_tensor *x, lk_tensor *y)
{
    copy(dev, lk__shape_count(x->shape), lk__tensor_f32(x), lk__tensor_f32(y));
}

typedef struct fitting {
    size_t pixels, from, to; /* channels of src and dst */
    const float *src;        // (pixels, from)
    float *dst;              // (pixels, to)
} fitting;

static size_t fitting_cost(const fitting *f)
{
    return lk__size_max(f->from, f->to);
}

static void fit_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const fitting *f = arg;
    size_t kept = lk__size_min(f->from, f->to);
    lk_chunk_range range = lk__chunk(f->pixels, lk__chunk_rows(fitting_cost(f)), index);
    for (size_t i = range.begin; i < range.end; i++) {
        float *dst = f->dst + i * f->to;
        memcpy(dst, f->src + i * f->from, kept * sizeof *dst);
        memset(dst + kept, 0, (f->to - kept) * sizeof *dst);
    }
}

void LK_KERNEL(fit_channels)(lk_device *dev, const lk_tensor *x, lk_tensor *y)
{
    lk_shape s = x->shape;
    fitting f = {
        .pixels = s.n * s.h * s.w, .from = s.c, .to = y->shape.c, .src = lk__tensor_f32(x), .dst = lk__tensor_f32(y)};
    lk__chunk_run_rows(dev, f.pixels, fitting_cost(&f), fit_task, &f);
}

/* Channels [from, from + width) of x are copied to channels [to, to + width) of y, pixel by pixel. */
typedef struct columns {
    size_t pixels, width, xc, yc, from, to;
    const float *x;
    float *y;
} columns;

static void columns_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const columns *c = arg;
    lk_chunk_range range = lk__chunk(c->pixels, lk__chunk_rows(c->width), index);
    for (size_t p = range.begin; p < range.end; p++)
        memcpy(c->y + p * c->yc + c->to, c->x + p * c->xc + c->from, c->width * sizeof *c->y);
}

static void copy_columns(lk_device *dev, const lk_tensor *x, size_t from, lk_tensor *y, size_t to, size_t width)
{
    columns c = {.pixels = x->shape.n * x->shape.h * x->shape.w,
                 .width = width,
                 .xc = x->shape.c,
                 .yc = y->shape.c,
                 .from = from,
                 .to = to,
                 .x = lk__tensor_f32(x),
                 .y = lk__tensor_f32(y)};
    lk__chunk_run_rows(dev, c.pixels, width, columns_task, &c);
}

void LK_KERNEL(concat_forward)(lk_device *dev, const lk_tensor *a, const lk_tensor *b, lk_tensor *y)
{
    copy_columns(dev, a, 0, y, 0, a->shape.c);
    copy_columns(dev, b, 0, y, a->shape.c, b->shape.c);
}

void LK_KERNEL(concat_grad_input)(lk_device *dev, const lk_tensor *dy, size_t first, lk_tensor *dx)
{
    copy_columns(dev, dy, first, dx, 0, dx->shape.c);
}

/* One (rows, cols) matrix for each sample, to be transposed. */
typedef struct matrices {
    size_t count, rows, cols;
    const float *src; // (count, rows, cols)
    float *dst;       // (count, cols, rows)
} matrices;

static void transpose(size_t rows, size_t cols, const float *src, float *dst)
{
    size_t whole_rows = rows / V * V, whole_cols = cols / V * V;
    for (size_t r = 0; r < whole_rows; r += V) {
        for (size_t c = 0; c < whole_cols; c += V)
            v_transpose(src + r * cols + c, cols, dst + c * rows + r, rows);
        for (size_t i = r; i < r + V; i++)
            for (size_t c = whole_cols; c < cols; c++)
                dst[c * rows + i] = src[i * cols + c];
    }
    for (size_t r = whole_rows; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            dst[c * rows + r] = src[r * cols + c];
}

static void transpose_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const matrices *m = arg;
    size_t size = m->rows * m->cols;
    lk_chunk_range range = lk__chunk(m->count, lk__chunk_rows(size), index);
    for (size_t n = range.begin; n < range.end; n++)
        transpose(m->rows, m->cols, m->src + n * size, m->dst + n * size);
}

static void transpose_all(lk_device *dev, matrices m)
{
    if (m.rows == 1 || m.cols == 1)
        copy(dev, m.count * m.rows * m.cols, m.src, m.dst);
    else
        lk__chunk_run_rows(dev, m.count, m.rows * m.cols, transpose_task, &m);
}

void LK_KERNEL(flatten_forward)(lk_device *dev, const lk_tensor *x, lk_tensor *y)
{
    lk_shape s = x->shape;
    transpose_all(
        dev,
        (matrices){.count = s.n, .rows = s.h * s.w, .cols = s.c, .src = lk__tensor_f32(x), .dst = lk__tensor_f32(y)});
}

void LK_KERNEL(flatten_grad_input)(lk_device *dev, const lk_tensor *dy, lk_tensor *dx)
{
    lk_shape s = dx->shape;
    transpose_all(
        dev,
        (matrices){.count = s.n, .rows = s.c, .cols = s.h * s.w, .src = lk__tensor_f32(dy), .dst = lk__tensor_f32(dx)});
}

typedef struct search {
    size_t count;
    uint32_t limit;
    const float *x;
    atomic_size_t first;
} search;

/* Compares bit patterns, whose order as integers is the order of magnitudes, with NaN last. Has no early exit,
 * so that the compiler can vectorise it. */
static bool any_above(const float *x, size_t count, uint32_t limit)
{
    uint32_t found = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        found |= (bits & 0x7fffffffu) > limit;
    }
    return found != 0;
}

static void search_task(void *arg, size_t index, int thread)
{
    (void)thread;
    search *s = arg;
    lk_chunk_range range = lk__chunk(s->count, LK_CHUNK, index);
    if (!any_above(s->x + range.begin, range.end - range.begin, s->limit))
        return;
    size_t i = range.begin;
    while (!any_above(s->x + i, 1, s->limit))
        i++;
    size_t best = atomic_load(&s->first);
    while (i < best && !atomic_compare_exchange_weak(&s->first, &best, i))
        ;
}

static void search_part(lk_device *dev, const lk_flag_part *part, float limit, lk_flag *flag)
{
    search s = {.count = part->count, .x = part->x};
    memcpy(&s.limit, &limit, sizeof limit);
    atomic_init(&s.first, part->count);
    lk__chunk_run(dev, part->count, search_task, &s);
    size_t first = atomic_load(&s.first);
    uint64_t position = part->base + first;
    if (first < part->count)
        *flag = (lk_flag){.first = position < flag->first ? position : flag->first, .bad = 1};
}

void LK_KERNEL(flag_above)(lk_device *dev, int parts, const lk_flag_part *part, float limit, lk_flag *flag)
{
    for (int i = 0; i < parts; i++)
        search_part(dev, &part[i], limit, flag);
}
