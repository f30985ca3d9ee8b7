/* made.h - a computed data set, and its batches in their order, for the tests of loaders. */
#ifndef LK_TESTS_DATA_MADE_H
#define LK_TESTS_DATA_MADE_H

#include <lockstep/data.h>

#include "check.h"
#include "data/sets/dataset.h"

enum { C = 3, H = 6, W = 5, SIZE = C * H * W, COUNT = 101 };

static const float mean[C] = {.25f, .5f, .75f}, deviation[C] = {.5f, .25f, 2};

static inline uint8_t pixel(size_t sample, size_t i)
{
    return (uint8_t)(1 + (sample * 37 + i * 11) % 255);
}

/* A computed data set; reading sample COUNT - 1 fails while `broken` is set, and every fifth sample while `holes` is.
 */
static bool broken, holes;

static inline lk_status get(const lk_dataset *data, size_t index, void *sample, void *label)
{
    uint8_t *pixels = sample;
    if ((broken && index == COUNT - 1) || (holes && index % 5 == 0))
        return lk__fail(LK_STATUS_FORMAT, "sample %zu is torn", index);
    for (size_t i = 0; i < SIZE; i++)
        pixels[i] = pixel(index, i);
    *(int32_t *)label = (int32_t)(index % 10);
    return LK_OK;
}

static const lk_dataset_ops ops = {.get = get};

static inline lk_dataset made(lk_split split)
{
    return (lk_dataset){
        .ops = &ops,
        .info = {.name = "made", .path = "", .count = COUNT, .channels = C, .height = H, .width = W, .classes = 10},
        .split = split,
        .info.mean = mean,
        .info.std = deviation,
        .augment = "crop=2,flip"};
}

static inline lk_loader *loader_of(const lk_dataset *data, size_t batch, int workers, const char *augment)
{
    lk_loader *loader = NULL;
    lk_loader_opts opts = {.batch = batch, .shuffle = true, .seed = 42, .workers = workers, .augment = augment};
    assert_ok(lk_loader_create(data, &opts, &loader));
    return loader;
}

/* The samples of an epoch in their order. */
typedef struct epoch {
    size_t count;
    float x[COUNT * SIZE];
    int32_t labels[COUNT];
    uint32_t ids[COUNT];
} epoch;

static inline void collect(lk_loader *loader, size_t number, size_t first, size_t batch, epoch *out)
{
    memset(out, 0, sizeof *out);
    assert_ok(lk_loader_start(loader, number, first));
    for (size_t b = first;; b++) {
        const lk_batch *got = NULL;
        assert_ok(lk_loader_next(loader, &got));
        if (got == NULL)
            break;
        size_t left = COUNT - b * batch;
        assert_int_equal(got->count, left < batch ? left : batch);
        memcpy(out->x + out->count * SIZE, got->x, got->count * SIZE * sizeof *got->x);
        memcpy(out->labels + out->count, got->labels, got->count * sizeof *got->labels);
        memcpy(out->ids + out->count, got->ids, got->count * sizeof *got->ids);
        out->count += got->count;
    }
    const lk_batch *after = NULL;
    assert_ok(lk_loader_next(loader, &after));
    assert_null(after);
}

#endif
