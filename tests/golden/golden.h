/* golden.h - shared by the golden tests: the inputs that tools/golden.py makes, too, reading of golden files, and
 * comparisons.
 *
 * The truth is PyTorch's result in float64. Every element must be within GOLDEN_TOLERANCE times the largest
 * absolute value of the true tensor. A failure ends the running cmocka test with a message. */
#ifndef LK_TESTS_GOLDEN_H
#define LK_TESTS_GOLDEN_H

#include <math.h>

#include <lockstep/lockstep.h>

#include "check.h"

#define GOLDEN_TOLERANCE 1e-5

static inline void *golden_alloc(size_t count, size_t size)
{
    void *block = calloc(count ? count : 1, size);
    assert_non_null(block);
    return block;
}

/* Word `index` of the random stream of a name. */
static inline uint32_t golden_word(const char *name, size_t index)
{
    uint32_t h = 2166136261u;
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 16777619u;
    h += (uint32_t)index * 0x9E3779B9u;
    h ^= h >> 16;
    h *= 0x85EBCA6Bu;
    h ^= h >> 13;
    h *= 0xC2B2AE35u;
    return h ^ h >> 16;
}

/* A multiple of 2^-15 in [-1,1). */
static inline float golden_noise(const char *name, size_t index)
{
    return ((float)(golden_word(name, index) >> 16) - 32768.0f) / 32768.0f;
}

static inline int32_t golden_label(const char *name, size_t index, uint32_t classes)
{
    return (int32_t)((golden_word(name, index) >> 16) % classes);
}

static inline bool golden_ends(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static inline void golden_fill_entry(const lk_state_entry *entry)
{
    if (entry->dtype == LK_DTYPE_I64) {
        *(int64_t *)entry->data = 3;
        return;
    }
    size_t fan_in = 1;
    for (int i = 1; i < entry->ndim; i++)
        fan_in *= entry->dims[i];
    float scale = 1.0f, offset = 0.0f;
    if (entry->ndim >= 2) {
        for (size_t reach = 1; reach < fan_in; reach *= 4)
            scale *= 0.5f;
    } else {
        bool near_one = golden_ends(entry->name, ".weight") || golden_ends(entry->name, ".running_var");
        scale = near_one ? 0.25f : 0.125f;
        offset = near_one ? 1.0f : 0.0f;
    }
    float *values = entry->data;
    for (size_t i = 0; i < entry->bytes / sizeof *values; i++)
        values[i] = offset + scale * golden_noise(entry->name, i);
}

/* Sets an engine's state to the first state of tools/golden.py. */
static inline void golden_fill_engine(lk_engine *engine)
{
    lk_state *state;
    assert_ok(lk_engine_state(engine, &state));
    for (size_t i = 0; i < lk_state_count(state); i++)
        golden_fill_entry(lk_state_at(state, i));
    assert_ok(lk_engine_set_state(engine, state));
    lk_state_destroy(state);
}

static inline lk_state *golden_load(const char *folder, const char *file)
{
    char path[4096];
    lk_state *state;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    assert_ok(lk_state_load(path, &state));
    return state;
}

/* NULL: there is no such entry. */
static inline const lk_state_entry *golden_find(const lk_state *state, const char *prefix, const char *key)
{
    char name[512];
    snprintf(name, sizeof name, "%s/%s", prefix, key);
    return lk_state_find(state, name);
}

static inline const lk_state_entry *golden_get(const lk_state *state, const char *prefix, const char *key)
{
    const lk_state_entry *entry = golden_find(state, prefix, key);
    if (!entry)
        fail_msg("the golden file has no %s/%s", prefix, key);
    return entry;
}

static inline size_t golden_count(const lk_state_entry *entry)
{
    return entry->bytes / lk_dtype_size(entry->dtype);
}

static inline double golden_at(const lk_state_entry *entry, size_t i)
{
    switch (entry->dtype) {
    case LK_DTYPE_F32:
        return ((const float *)entry->data)[i];
    case LK_DTYPE_F64:
        return ((const double *)entry->data)[i];
    case LK_DTYPE_I64:
        return (double)((const int64_t *)entry->data)[i];
    default:
        fail_msg("%s has a type that golden files do not use", entry->name);
        return 0;
    }
}

static inline double golden_max(const lk_state_entry *entry)
{
    double max = 0;
    for (size_t i = 0; i < golden_count(entry); i++)
        max = fmax(max, fabs(golden_at(entry, i)));
    return max;
}

/* Compares one value with its truth; `max` is the tensor's largest absolute value. NaN fails. */
static inline void golden_near(const char *what, size_t index, double ours, double truth, double max)
{
    double error = fabs(ours - truth);
    if (!(error <= GOLDEN_TOLERANCE * max))
        fail_msg("%s[%zu] is %.9g, PyTorch has %.9g: off by %.2e of the largest, %.3g", what, index, ours, truth,
                 error / max, max);
}

static inline void golden_compare_entries(const lk_state_entry *ours, const lk_state_entry *truth)
{
    assert_int_equal(golden_count(ours), golden_count(truth));
    double max = golden_max(truth);
    for (size_t i = 0; i < golden_count(truth); i++)
        golden_near(truth->name, i, golden_at(ours, i), golden_at(truth, i), max);
}

/* Compares every entry with prefix/key of the golden file. */
static inline void golden_compare_state(const lk_state *ours, const lk_state *truth, const char *prefix)
{
    assert_true(lk_state_count(ours) > 0);
    for (size_t i = 0; i < lk_state_count(ours); i++) {
        const lk_state_entry *entry = lk_state_at(ours, i);
        golden_compare_entries(entry, golden_get(truth, prefix, entry->name));
    }
}

/* A batch that owns its arrays. */
typedef struct golden_batch {
    lk_batch view;
    float *x;        /* (N, H, W, C) */
    int32_t *labels; /* (N) */
    uint32_t *ids;   /* (N) */
} golden_batch;

static inline golden_batch golden_batch_make(size_t count, lk_model_shape shape)
{
    golden_batch batch = {.x = golden_alloc(count * shape.channels * shape.height * shape.width, sizeof(float)),
                          .labels = golden_alloc(count, sizeof(int32_t)),
                          .ids = golden_alloc(count, sizeof(uint32_t))};
    for (size_t i = 0; i < count; i++)
        batch.ids[i] = (uint32_t)i;
    batch.view = (lk_batch){.count = count,
                            .sample_floats = shape.channels * shape.height * shape.width,
                            .x = batch.x,
                            .labels = batch.labels,
                            .ids = batch.ids};
    return batch;
}

static inline void golden_batch_free(golden_batch *batch)
{
    free(batch->x);
    free(batch->labels);
    free(batch->ids);
}

/* Index in (H, W, C) of element i of a sample in (C, H, W). */
static inline size_t golden_nhwc(size_t i, lk_model_shape shape)
{
    size_t pixels = shape.height * shape.width;
    return i % pixels * shape.channels + i / pixels;
}

/* Batch `which` of a model in tools/golden.py: a pattern for each class, plus noise. */
static inline golden_batch golden_model_batch(const char *model, size_t which, size_t count, lk_model_shape shape)
{
    char name[96];
    size_t sample = shape.channels * shape.height * shape.width;
    golden_batch batch = golden_batch_make(count, shape);
    snprintf(name, sizeof name, "%s/labels%zu", model, which);
    for (size_t n = 0; n < count; n++)
        batch.labels[n] = golden_label(name, n, (uint32_t)shape.classes);
    snprintf(name, sizeof name, "%s/x%zu", model, which);
    for (size_t n = 0; n < count; n++) {
        char pattern[96];
        snprintf(pattern, sizeof pattern, "%s/pattern%d", model, (int)batch.labels[n]);
        for (size_t i = 0; i < sample; i++)
            batch.x[n * sample + golden_nhwc(i, shape)] =
                golden_noise(pattern, i) + golden_noise(name, n * sample + i) / 4;
    }
    return batch;
}

#endif
