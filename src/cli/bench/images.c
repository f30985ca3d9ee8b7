/* images.c - random images, drawn when they are read. */
#include "cli/bench/images.h"

#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

static const size_t most_channels = 3;
/* ImageNet's mean and deviation, as for a folder of images. */
static const float mean[] = {.485f, .456f, .406f}, deviation[] = {.229f, .224f, .225f};

/* An lk_dataset_read_fn. The numbers are those of the built-in digits, which no process has beside random images. */
static lk_status draw(void *arg, size_t index, void *sample, void *target)
{
    const lk_bench_images *images = arg;
    lk_model_shape shape = images->shape;
    size_t bytes = shape.channels * shape.height * shape.width;
    lk_rng rng = lk__rng(images->seed, LK_RNG_PURPOSE_DIGITS, 0, 0, (uint32_t)index);
    uint32_t words[4];
    for (size_t begin = 0; begin < bytes; begin += sizeof words) {
        lk__rng_block(&rng, (uint32_t)(begin / sizeof words), words);
        memcpy((uint8_t *)sample + begin, words, lk__size_min(bytes - begin, sizeof words));
    }
    *(int32_t *)target = (int32_t)(index % shape.classes);
    return LK_OK;
}

lk_status lk__bench_images_open(const lk_bench_images *images, lk_dataset **out)
{
    lk_model_shape shape = images->shape;
    lk_dataset_opts opts = {.name = "random",
                            .count = images->count,
                            .dtype = LK_DTYPE_U8,
                            .dims = {shape.channels, shape.height, shape.width},
                            .classes = shape.classes,
                            .mean = mean,
                            .std = deviation};
    if (shape.channels != 1 && shape.channels != most_channels)
        return lk__fail(LK_STATUS_USAGE, "random images have 1 or 3 channels, `input` gives %zu", shape.channels);
    return lk_dataset_create(&opts, draw, (void *)(uintptr_t)images, out);
}
