/* kernels.h - kernels alone against a golden file: its tensors, which are N,C,H,W,
 * on the device as N,H,W,C, and results compared with it. */
#ifndef LK_TESTS_GOLDEN_KERNELS_H
#define LK_TESTS_GOLDEN_KERNELS_H

#include "golden/golden.h"

#include "tensor/device.h"

enum { MAX_BLOCKS = 64 };

typedef struct fixture {
    lk_device *dev;
    const lk_kernels *kernels;
    lk_state *golden;
    void *blocks[MAX_BLOCKS]; /* freed after each test */
    size_t used;
} fixture;

static inline int setup_file(void **state, const char *file)
{
    fixture *fx = golden_alloc(1, sizeof *fx);
    golden_ok(lk__device_open("cpu", &(lk_device_opts){.threads = 2}, &fx->dev));
    fx->kernels = fx->dev->kernels;
    fx->golden = golden_load(LK_TESTS_DIR "/golden/data", file);
    *state = fx;
    return 0;
}

static inline int free_blocks(void **state)
{
    fixture *fx = *state;
    while (fx->used > 0)
        fx->dev->type->free(fx->dev, fx->blocks[--fx->used]);
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

static inline void *block(fixture *fx, size_t bytes)
{
    assert_true(fx->used < MAX_BLOCKS);
    golden_ok(fx->dev->type->alloc(fx->dev, bytes ? bytes : 1, "test", &fx->blocks[fx->used]));
    return fx->blocks[fx->used++];
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

/* Memory place of the logical element i. */
static inline size_t place(lk_shape shape, size_t i)
{
    size_t sample = lk__shape_sample(shape), pixels = shape.h * shape.w, rest = i % sample;
    return i / sample * sample + rest % pixels * shape.c + rest / pixels;
}

static inline lk_tensor empty(fixture *fx, lk_shape shape)
{
    return (lk_tensor){
        .data = block(fx, lk__shape_count(shape) * sizeof(float)), .dtype = LK_DTYPE_F32, .shape = shape};
}

/* A tensor shaped like an entry. */
static inline lk_tensor like(fixture *fx, const char *op, const char *key)
{
    return empty(fx, entry_shape(golden_get(fx->golden, op, key)));
}

static inline lk_tensor given(fixture *fx, const char *op, const char *key)
{
    const lk_state_entry *entry = golden_get(fx->golden, op, key);
    lk_tensor tensor = empty(fx, entry_shape(entry));
    size_t count = golden_count(entry);
    float *host = golden_alloc(count, sizeof *host);
    for (size_t i = 0; i < count; i++)
        host[place(tensor.shape, i)] = (float)golden_at(entry, i);
    golden_ok(fx->dev->type->upload(fx->dev, host, count * sizeof *host, tensor.data));
    free(host);
    return tensor;
}

/* A weight or vector as it stands; NULL when the case has none. */
static inline float *vector(fixture *fx, const char *op, const char *key)
{
    const lk_state_entry *entry = golden_find(fx->golden, op, key);
    if (!entry)
        return NULL;
    size_t count = golden_count(entry);
    float *host = golden_alloc(count, sizeof *host), *data = block(fx, count * sizeof *data);
    for (size_t i = 0; i < count; i++)
        host[i] = (float)golden_at(entry, i);
    golden_ok(fx->dev->type->upload(fx->dev, host, count * sizeof *host, data));
    free(host);
    return data;
}

static inline float *fetch(fixture *fx, const void *data, size_t count)
{
    float *host = golden_alloc(count, sizeof *host);
    golden_ok(fx->dev->type->sync(fx->dev));
    golden_ok(fx->dev->type->download(fx->dev, data, count * sizeof *host, host));
    return host;
}

static inline void check_as(fixture *fx, const lk_tensor *ours, const char *op, const char *key, bool relu)
{
    const lk_state_entry *truth = golden_get(fx->golden, op, key);
    size_t count = golden_count(truth);
    assert_int_equal(count, lk__shape_count(ours->shape));
    float *host = fetch(fx, ours->data, count);
    double max = golden_max(truth);
    for (size_t i = 0; i < count; i++) {
        double value = golden_at(truth, i);
        golden_near(truth->name, i, host[place(ours->shape, i)], relu && value < 0 ? 0 : value, max);
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
    float *host = fetch(fx, ours, golden_count(truth));
    for (size_t i = 0; i < golden_count(truth); i++)
        golden_near(truth->name, i, host[i], golden_at(truth, i), golden_max(truth));
    free(host);
}

#define CASE(function) cmocka_unit_test_teardown(function, free_blocks)

#endif
