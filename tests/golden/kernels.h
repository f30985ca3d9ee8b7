/* kernels.h - single kernels of the CPU device against a golden file. Tensors are (N, C, H, W) in the
 * file and (N, H, W, C) on the device. Device memory is that of tensor/kernel_test.h: it is full of
 * garbage before a kernel writes it, and bytes behind a block must survive. */
#ifndef LK_TESTS_GOLDEN_KERNELS_H
#define LK_TESTS_GOLDEN_KERNELS_H

#include "golden/golden.h"
#include "tensor/kernel_test.h"

enum { SHARDS = 4 };

typedef struct fixture {
    lk_device *dev;
    const lk_kernels *kernels;
    lk_state *golden;
} fixture;

static inline int setup_file(void **state, const char *file)
{
    fixture *fx = golden_alloc(1, sizeof *fx);
    assert_ok(lk__device_open("cpu", &(lk_device_opts){.threads = 2}, &fx->dev));
    fx->kernels = fx->dev->kernels;
    fx->golden = golden_load(LK_TESTS_DIR "/golden/data", file);
    *state = fx;
    return 0;
}

/* Frees the device memory that a test or a case has taken. */
static inline int free_blocks(void **state)
{
    fx_release(((fixture *)*state)->dev);
    return 0;
}

static inline int teardown(void **state)
{
    fixture *fx = *state;
    lk__device_close(fx->dev);
    lk_state_destroy(fx->golden);
    free(fx);
    return 0;
}

static inline lk_shape entry_shape(const lk_state_entry *entry)
{
    lk_shape shape = {.n = entry->dims[0], .c = entry->dims[1], .h = 1, .w = 1};
    if (entry->ndim == 4) {
        shape.h = entry->dims[2];
        shape.w = entry->dims[3];
    }
    return shape;
}

/* Index in (N, H, W, C) of element i in (N, C, H, W). */
static inline size_t nhwc(lk_shape shape, size_t i)
{
    size_t sample = lk__shape_sample(shape), pixels = shape.h * shape.w, rest = i % sample;
    return i / sample * sample + rest % pixels * shape.c + rest / pixels;
}

/* A tensor with the shape of an entry, not written yet. */
static inline lk_tensor like(fixture *fx, const char *op, const char *key)
{
    return fx_tensor(fx->dev, entry_shape(golden_get(fx->golden, op, key)));
}

/* A tensor with the values of an entry. */
static inline lk_tensor given(fixture *fx, const char *op, const char *key)
{
    const lk_state_entry *entry = golden_get(fx->golden, op, key);
    lk_shape shape = entry_shape(entry);
    float *host = new_floats(golden_count(entry));
    for (size_t i = 0; i < golden_count(entry); i++)
        host[nhwc(shape, i)] = (float)golden_at(entry, i);
    lk_tensor tensor = fx_input(fx->dev, shape, host);
    free(host);
    return tensor;
}

/* A weight or vector in the order of the file; NULL when the case has none. */
static inline float *vector(fixture *fx, const char *op, const char *key)
{
    const lk_state_entry *entry = golden_find(fx->golden, op, key);
    if (!entry)
        return NULL;
    float *host = new_floats(golden_count(entry));
    for (size_t i = 0; i < golden_count(entry); i++)
        host[i] = (float)golden_at(entry, i);
    float *data = fx_floats(fx->dev, host, golden_count(entry));
    free(host);
    return data;
}

/* With relu, the expected values are those of the entry after a ReLU. */
static inline void check_as(fixture *fx, const lk_tensor *ours, const char *op, const char *key, bool relu)
{
    const lk_state_entry *truth = golden_get(fx->golden, op, key);
    size_t count = golden_count(truth);
    assert_int_equal(count, lk__shape_count(ours->shape));
    float *host = new_floats(count);
    fx_read(fx->dev, ours, host);
    double max = golden_max(truth);
    for (size_t i = 0; i < count; i++) {
        double value = golden_at(truth, i);
        golden_near(truth->name, i, host[nhwc(ours->shape, i)], relu && value < 0 ? 0 : value, max);
    }
    free(host);
}

static inline void check(fixture *fx, const lk_tensor *ours, const char *op, const char *key)
{
    check_as(fx, ours, op, key, false);
}

static inline void check_vector(fixture *fx, const float *ours, const char *op, const char *key)
{
    const lk_state_entry *truth = golden_get(fx->golden, op, key);
    size_t count = golden_count(truth);
    float *host = new_floats(count);
    fx_get_floats(fx->dev, ours, count, host);
    double max = golden_max(truth);
    for (size_t i = 0; i < count; i++)
        golden_near(truth->name, i, host[i], golden_at(truth, i), max);
    free(host);
}

/* The inputs of an op, and the tensors that it writes. */
typedef struct tensors {
    lk_tensor x, dy, y, dx;
} tensors;

static inline tensors tensors_of(fixture *fx, const char *op)
{
    return (tensors){given(fx, op, "x"), given(fx, op, "dy"), like(fx, op, "y"), like(fx, op, "dx")};
}

static inline void check_results(fixture *fx, const tensors *t, const char *op)
{
    check(fx, &t->y, op, "y");
    check(fx, &t->dx, op, "dx");
}

static inline lk_partials partials(fixture *fx, size_t count)
{
    return (lk_partials){.slot0 = fx_no_floats(fx->dev, count * LK_TREE_MAX_DEPTH), .stride = count};
}

/* Kernel size, stride, padding and, where the file has them, groups. */
static inline lk_conv2d_desc conv_opts(fixture *fx, const char *op)
{
    const lk_state_entry *opts = golden_get(fx->golden, op, "opts");
    size_t kernel = (size_t)golden_at(opts, 0), stride = (size_t)golden_at(opts, 1), pad = (size_t)golden_at(opts, 2);
    return (lk_conv2d_desc){LK_WINDOW_SQUARE(kernel, stride, pad),
                            golden_count(opts) > 3 ? (size_t)golden_at(opts, 3) : 1};
}

static inline void conv_case(fixture *fx, const char *op, lk_conv2d_desc conv)
{
    fx_wave wave;
    tensors t = tensors_of(fx, op);
    float *weight = vector(fx, op, "w"), *bias = vector(fx, op, "b");
    void *scratch = fx_blank(fx->dev, fx->kernels->conv2d_scratch(fx->dev, &conv, t.x.shape, t.y.shape));
    for (int relu = 0; relu < 2; relu++) {
        fx->kernels->conv2d_forward(fx->dev, &conv, &t.x, weight, bias, relu, &t.y, scratch);
        check_as(fx, &t.y, op, "y", relu);
    }
    fx->kernels->conv2d_grad_input(fx->dev, &conv, &t.dy, weight, NULL, &t.dx, scratch);
    check(fx, &t.dx, op, "dx");
    lk_partials dw = partials(fx, golden_count(golden_get(fx->golden, op, "w")));
    lk_partials db = bias ? partials(fx, t.y.shape.c) : (lk_partials){0};
    fx_wave_init(&wave, t.x.shape.n, SHARDS, 0, SHARDS);
    fx->kernels->conv2d_grad_weight(fx->dev, &conv, &t.x, &t.dy, &wave.shards, dw, db, scratch);
    check_vector(fx, dw.slot0, op, "dw");
    if (bias)
        check_vector(fx, db.slot0, op, "db");
}

static inline void maxpool_case(fixture *fx, const char *op, lk_pool2d_desc pool)
{
    tensors t = tensors_of(fx, op);
    uint8_t *index = fx_blank(fx->dev, lk__shape_count(t.y.shape));
    fx->kernels->maxpool_forward(fx->dev, &pool, NULL, &t.x, false, &t.y, index);
    fx->kernels->maxpool_grad_input(fx->dev, &pool, NULL, &t.dy, index, &t.dx);
    check_results(fx, &t, op);
}

static inline void avgpool_case(fixture *fx, const char *op, lk_pool2d_desc pool)
{
    tensors t = tensors_of(fx, op);
    fx->kernels->avgpool_forward(fx->dev, &pool, &t.x, &t.y);
    fx->kernels->avgpool_grad_input(fx->dev, &pool, &t.dy, &t.dx);
    check_results(fx, &t, op);
}

static inline void conv_cases(void **state, const char *const *ops, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        conv_case(*state, ops[i], conv_opts(*state, ops[i]));
        free_blocks(state);
    }
}

#define CASE(function) cmocka_unit_test_teardown(function, free_blocks)

#endif
