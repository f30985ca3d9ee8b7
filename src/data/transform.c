/* transform.c - random changes of training samples, and normalising.
 *
 * Changes work on bytes, as PyTorch's do on PIL images: what a crop pads with is
 * byte 0, which normalising then maps like any other. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/spec.h"
#include "data/dataset.h"

enum { MAX_ITEM = 32 };

typedef struct transform_row {
    const char *name;
    size_t min, max; /* of its value; max 0: takes none */
    /* in and out are (C, H, W) and do not overlap. */
    void (*apply)(const lk_rng *rng, size_t value, const lk_dataset_info *shape, const uint8_t *in, uint8_t *out);
} transform_row;

/* value zeros on each side, then a random window of the old size. */
static void crop(const lk_rng *rng, size_t value, const lk_dataset_info *shape, const uint8_t *in, uint8_t *out)
{
    size_t h = shape->height, w = shape->width;
    uint32_t choices = 2 * (uint32_t)value + 1;
    size_t top = lk__rng_below(lk__rng_u32(rng, 0), choices), left = lk__rng_below(lk__rng_u32(rng, 1), choices);
    /* Output column x shows input column x + left - value. */
    size_t begin = left < value ? value - left : 0, skip = left > value ? left - value : 0;
    size_t shown = begin + skip < w ? w - begin - skip : 0;
    memset(out, 0, shape->channels * h * w);
    for (size_t c = 0; c < shape->channels; c++) {
        for (size_t y = 0; y < h; y++) {
            if (y + top < value || y + top - value >= h)
                continue;
            if (shown > 0)
                memcpy(out + (c * h + y) * w + begin, in + (c * h + y + top - value) * w + skip, shown);
        }
    }
}

static void flip(const lk_rng *rng, size_t value, const lk_dataset_info *shape, const uint8_t *in, uint8_t *out)
{
    (void)value;
    size_t w = shape->width, rows = shape->channels * shape->height;
    if (lk__rng_below(lk__rng_u32(rng, 0), 2) == 0) {
        memcpy(out, in, rows * w);
        return;
    }
    for (size_t r = 0; r < rows; r++)
        for (size_t x = 0; x < w; x++)
            out[r * w + x] = in[r * w + w - 1 - x];
}

static const transform_row rows[] = {
    {.name = "crop", .min = 1, .max = 1024, .apply = crop},
    {.name = "flip", .apply = flip},
};

enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

/* The rows, then what stands for a whole list. */
static const char *word_at(const void *arg, size_t index)
{
    static const char *const lists[] = {"none", "auto", NULL};
    (void)arg;
    return index < ROW_COUNT ? rows[index].name : lists[lk__min_size(index - ROW_COUNT, 2)];
}

static const lk_names words = {.what = "--augment", .kind = "augmentation", .next = word_at};

static lk_status parse_step(const char *item, lk_transform_step *out)
{
    char name[MAX_ITEM];
    size_t word = strcspn(item, "="), row = 0;
    snprintf(name, sizeof name, "%.*s", (int)word, item);
    LK_TRY(lk__names_find(&words, name, &row));
    if (row >= ROW_COUNT)
        return lk__fail(LK_STATUS_USAGE, "augmentation '%s': %s stands alone, not in a list", item, name);
    const transform_row *t = &rows[row];
    const char *text = item[word] == '=' ? item + word + 1 : NULL;
    if (t->max == 0 && text != NULL)
        return lk__fail(LK_STATUS_USAGE, "augmentation '%s': %s takes no value", item, t->name);
    long long value = 0;
    if (t->max > 0 && (text == NULL || !lk__parse_int(text, (long long)t->min, (long long)t->max, &value)))
        return lk__fail(LK_STATUS_USAGE, "augmentation '%s': write %s=N with N from %zu to %zu", item, t->name, t->min,
                        t->max);
    *out = (lk_transform_step){.row = row, .value = (size_t)value};
    return LK_OK;
}

/* No row comes twice, so that a list and the step that may be one too many fit. */
_Static_assert((size_t)ROW_COUNT < (size_t)LK_MAX_TRANSFORMS, "lk_transforms has no room for all transforms");

lk_status lk__transforms_parse(const char *text, lk_transforms *out)
{
    lk_transforms list = {0};
    if (strcmp(text, "none") == 0) {
        *out = list;
        return LK_OK;
    }
    for (const char *item = text;; item++) {
        char word[MAX_ITEM];
        size_t length = strcspn(item, ",");
        snprintf(word, sizeof word, "%.*s", (int)lk__min_size(length, sizeof word - 1), item);
        LK_TRY(parse_step(word, &list.steps[list.count]));
        for (size_t i = 0; i < list.count; i++)
            if (list.steps[i].row == list.steps[list.count].row)
                return lk__fail(LK_STATUS_USAGE, "augmentation '%s': %s is there twice", text,
                                rows[list.steps[i].row].name);
        list.count++;
        item += length;
        if (*item == '\0')
            break;
    }
    *out = list;
    return LK_OK;
}

void lk__transforms_apply(const lk_transforms *list, const lk_dataset_info *shape, uint64_t seed, uint32_t epoch,
                          uint32_t sample, uint8_t *pixels, uint8_t *scratch)
{
    for (size_t i = 0; i < list->count; i++) {
        lk_rng rng = lk__rng(seed, LK_RNG_AUGMENT, (uint32_t)i, epoch, sample);
        rows[list->steps[i].row].apply(&rng, list->steps[i].value, shape, pixels, scratch);
        memcpy(pixels, scratch, shape->channels * shape->height * shape->width);
    }
}

void lk__normalise_init(lk_normalise *normalise, const float *mean, const float *std, size_t channels)
{
    for (size_t c = 0; c < channels; c++)
        for (size_t b = 0; b < 256; b++)
            normalise->table[c][b] = ((float)b / 255.0f - mean[c]) / std[c];
}

void lk__normalise_apply(const lk_normalise *normalise, const lk_dataset_info *shape, const uint8_t *pixels, float *x)
{
    size_t area = shape->height * shape->width, channels = shape->channels;
    for (size_t c = 0; c < channels; c++)
        for (size_t i = 0; i < area; i++)
            x[i * channels + c] = normalise->table[c][pixels[c * area + i]];
}
