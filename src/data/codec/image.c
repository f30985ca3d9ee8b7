/* image.c - an image's memory, which grows and is reused; normalises bytes to floats for a model. */
#include <assert.h>

#include "base/mem.h"
#include "data/codec/image.h"

lk_status lk__image_resize(lk_image *image, size_t channels, size_t height, size_t width)
{
    size_t area, bytes, room;
    if (__builtin_mul_overflow(height, width, &area) || __builtin_mul_overflow(area, channels, &bytes) ||
        __builtin_add_overflow(bytes, bytes / 4, &room))
        return lk__fail(LK_STATUS_MEMORY, "an image of %zux%zu is more than can be addressed", width, height);
    if (bytes > image->room) {
        uint8_t *pixels = NULL;
        /* A quarter more room, for slightly larger images. */
        LK_TRY(LK_ALLOC(room, "an image", &pixels));
        lk__mem_free(image->pixels);
        image->pixels = pixels;
        image->room = room;
    }
    image->channels = channels;
    image->height = height;
    image->width = width;
    return LK_OK;
}

void lk__image_fini(lk_image *image)
{
    lk__mem_free(image->pixels);
    *image = (lk_image){0};
}

void lk__normalise_init(lk_normalise *normalise, const float *mean, const float *std, size_t channels)
{
    for (size_t c = 0; c < channels; c++)
        for (size_t b = 0; b < 256; b++)
            normalise->table[c][b] = ((float)b / 255.0f - mean[c]) / std[c];
}

void lk__normalise_apply(const lk_normalise *normalise, const lk_image *image, float *x)
{
    size_t area = image->height * image->width, channels = image->channels;
    assert(channels <= LK_DATASET_MAX_CHANNELS);
    /* All channels of a pixel at once: x, the largest memory here, is written from its start to its end. */
    if (channels == 3) {
        const uint8_t *restrict red = image->pixels, *restrict green = red + area, *restrict blue = green + area;
        for (size_t i = 0; i < area; i++, x += 3) {
            x[0] = normalise->table[0][red[i]];
            x[1] = normalise->table[1][green[i]];
            x[2] = normalise->table[2][blue[i]];
        }
        return;
    }
    for (size_t c = 0; c < channels; c++)
        for (size_t i = 0; i < area; i++)
            x[i * channels + c] = normalise->table[c][image->pixels[c * area + i]];
}
