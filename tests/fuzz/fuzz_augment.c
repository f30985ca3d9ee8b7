/* fuzz_augment.c - libFuzzer target: the text of --augment, applied to a small image. The first three bytes
 * are the image's shape and the random stream, the rest is the text. The image must get the announced shape,
 * and the same pixels a second time. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/sets/dataset.h"
#include "data/transform/transforms.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_TEXT = 300, MOST_PIXELS = 1 << 14 };

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* Whether no transform makes a large image, which would take long. */
static bool is_small(lk_transforms list, lk_sample_shape shape)
{
    size_t count = list.count;
    for (list.count = 0; list.count <= count; list.count++) {
        lk_sample_shape after = lk__transforms_shape(&list, shape);
        if (after.height > MOST_PIXELS || after.width > MOST_PIXELS || after.height * after.width > MOST_PIXELS)
            return false;
    }
    return true;
}

static void apply(const lk_transforms *list, lk_sample_shape shape, uint8_t seed, lk_image *image)
{
    lk_image scratch = {0};
    const lk_transforms_address address = {.seed = seed, .epoch = seed & 3u, .sample = seed};
    require(lk__image_resize(image, shape.channels, shape.height, shape.width) == LK_OK);
    for (size_t i = 0; i < shape.channels * shape.height * shape.width; i++)
        image->pixels[i] = (uint8_t)(i * 37 + seed);
    require(lk__transforms_apply(list, address, image, &scratch) == LK_OK);
    lk__image_fini(&scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[MOST_TEXT];
    if (size < 4 || size > MOST_TEXT)
        return 0;
    memcpy(text, data + 3, size - 3);
    text[size - 3] = '\0';
    lk_transforms list;
    lk_status status = lk__transforms_parse(text, &list);
    require(status == LK_OK || (status == LK_STATUS_USAGE && *lk_error_detail()));
    lk_sample_shape shape = {data[0] & 1 ? 3 : 1, 1 + data[0] / 8u, 1 + data[1] / 8u};
    if (status != LK_OK || !is_small(list, shape))
        return 0;
    lk_image first = {0}, second = {0};
    lk_sample_shape after = lk__transforms_shape(&list, shape);
    apply(&list, shape, data[2], &first);
    apply(&list, shape, data[2], &second);
    require(first.channels == after.channels && first.height == after.height && first.width == after.width);
    require(memcmp(first.pixels, second.pixels, after.channels * after.height * after.width) == 0);
    lk__image_fini(&first);
    lk__image_fini(&second);
    return 0;
}
