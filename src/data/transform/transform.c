/* transform.c - the table of transforms: parses a list of them, computes the shape of its results,
 * applies it.
 *
 * Transforms work on bytes, as PyTorch's do on PIL images; normalising comes after them. The files
 * transform_*.c implement them. */
#include "data/transform/transform.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { MAX_ITEM = 128, MAX_FORM = 128 };

static const lk_transform_row *const rows[] = {
    &lk__transform_crop,   &lk__transform_flip,        &lk__transform_vflip,
    &lk__transform_resize, &lk__transform_center_crop, &lk__transform_resized_crop,
    &lk__transform_jitter, &lk__transform_affine,      &lk__transform_grayscale,
};

enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

const lk_transform_info *lk_transform_list(size_t index)
{
    return index < ROW_COUNT ? &rows[index]->info : NULL;
}

bool lk__transform_uncertain(const double *values)
{
    return values[0] > 0 && values[0] < 1;
}

bool lk__transform_always_random(const double *values)
{
    (void)values;
    return true;
}

/* The names of the rows, then the words that stand for a whole list. */
static const char *word_at(const void *arg, size_t index)
{
    static const char *const lists[] = {"none", "auto", NULL};
    (void)arg;
    return index < ROW_COUNT ? rows[index]->info.name : lists[lk__size_min(index - ROW_COUNT, 2)];
}

static size_t value_count(const lk_transform_row *row)
{
    size_t count = 0;
    while (count < LK_TRANSFORM_VALUES && row->values[count].name != NULL)
        count++;
    return count;
}

/* Writes how a transform is given: "resize=N[/W]". */
static void write_form(const lk_transform_row *row, char text[MAX_FORM])
{
    size_t used = (size_t)snprintf(text, MAX_FORM, "%s", row->info.name), count = value_count(row);
    for (size_t i = 0; i < count && used < MAX_FORM; i++)
        used += (size_t)snprintf(text + used, MAX_FORM - used, "%s%c%s%s", i >= row->needed ? "[" : "",
                                 i == 0 ? '=' : '/', row->values[i].name, i >= row->needed ? "]" : "");
}

/* A transform as it was written, and the option that it belongs to. */
typedef struct written {
    const char *option, *text;
} written;

static lk_status parse_value(const lk_transform_row *row, size_t i, written item, const char *word, double *out)
{
    const lk_spec_param *param = &row->values[i];
    double value = 0;
    bool read = lk__number_parse_double(word, &value) && value >= param->min && value <= param->max;
    if (read && param->whole)
        read = (double)(long long)value == value;
    if (!read) {
        char form[MAX_FORM];
        write_form(row, form);
        return lk__fail(LK_STATUS_USAGE, "%s '%s': write %s with %s %sfrom %g to %g", item.option, item.text, form,
                        param->name, param->whole ? "a whole number " : "", param->min, param->max);
    }
    *out = value;
    return LK_OK;
}

/* Parses the values of an item; text is the part after '='. */
static lk_status parse_values(const lk_transform_row *row, written item, const char *text, double *out)
{
    size_t count = value_count(row);
    for (size_t i = 0;; i++) {
        char word[MAX_ITEM];
        size_t length = strcspn(text, "/");
        if (i == count) {
            char form[MAX_FORM];
            write_form(row, form);
            return lk__fail(LK_STATUS_USAGE, "%s '%s' has a value too many: write %s", item.option, item.text, form);
        }
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        LK_TRY(parse_value(row, i, item, word, &out[i]));
        if (text[length] == '\0')
            return i + 1 < row->needed ? parse_value(row, i + 1, item, "", &out[i + 1]) : LK_OK;
        text += length + 1;
    }
}

static lk_status parse_step(written item, lk_transform_step *out)
{
    char name[MAX_ITEM];
    size_t word = strcspn(item.text, "="), index = 0;
    snprintf(name, sizeof name, "%.*s", (int)word, item.text);
    LK_TRY(lk__names_find(&(lk_names){.what = item.option, .kind = "transform", .next = word_at}, name, &index));
    if (index >= ROW_COUNT)
        return lk__fail(LK_STATUS_USAGE, "%s '%s': %s stands alone, not in a list", item.option, item.text, name);
    const lk_transform_row *row = rows[index];
    lk_transform_step step = {.row = index};
    for (size_t i = 0; i < value_count(row); i++)
        step.values[i] = row->values[i].value;
    if (item.text[word] == '=' || row->needed > 0)
        LK_TRY(parse_values(row, item, item.text[word] == '=' ? item.text + word + 1 : "", step.values));
    const char *wrong = row->check != NULL ? row->check(step.values) : NULL;
    if (wrong != NULL)
        return lk__fail(LK_STATUS_USAGE, "%s '%s': %s", item.option, item.text, wrong);
    *out = step;
    return LK_OK;
}

/* No row can be repeated, so a list fits, with one more step until the repetition is found. */
_Static_assert((size_t)ROW_COUNT < (size_t)LK_MAX_TRANSFORMS, "lk_transforms has no room for all transforms");

/* option: the one that the text belongs to. */
static lk_status parse(const char *text, const char *option, lk_transforms *out)
{
    lk_transforms list = {0};
    if (strcmp(text, "none") == 0) {
        *out = list;
        return LK_OK;
    }
    for (const char *item = text;; item++) {
        char word[MAX_ITEM];
        size_t length = strcspn(item, ",");
        if (length >= sizeof word)
            return lk__fail(LK_STATUS_USAGE, "%s '%.20s...' is too long (at most %d characters)", option, item,
                            MAX_ITEM - 1);
        snprintf(word, sizeof word, "%.*s", (int)length, item);
        LK_TRY(parse_step((written){option, word}, &list.steps[list.count]));
        for (size_t i = 0; i < list.count; i++)
            if (list.steps[i].row == list.steps[list.count].row)
                return lk__fail(LK_STATUS_USAGE, "%s '%s': %s is there twice", option, text,
                                rows[list.steps[i].row]->info.name);
        list.count++;
        item += length;
        if (*item == '\0')
            break;
    }
    *out = list;
    return LK_OK;
}

lk_status lk__transforms_parse(const char *text, lk_transforms *out)
{
    return parse(text, "`augment`", out);
}

static const char *option_of(const lk_dataset *data)
{
    return data->split == LK_SPLIT_TEST ? "`test_augment`" : "`augment`";
}

lk_status lk__transforms_choose(const lk_dataset *data, const char *augment, lk_transforms *out)
{
    bool test = data->split == LK_SPLIT_TEST;
    lk_transforms list = {0};
    if (augment == NULL || strcmp(augment, "auto") == 0)
        augment = test ? data->test_augment : data->augment;
    LK_TRY(parse(augment != NULL ? augment : "none", option_of(data), &list));
    if (list.count > 0 && data->ops != NULL && data->ops->values != NULL)
        return lk__fail(LK_STATUS_USAGE,
                        "%s '%s': transforms need images, which are u8 samples of three dims with 1 or 3 channels; the "
                        "samples of %s are other tensors",
                        option_of(data), augment, data->info.name);
    for (size_t i = 0; i < list.count && test; i++) {
        const lk_transform_row *row = rows[list.steps[i].row];
        if (row->random != NULL && row->random(list.steps[i].values))
            return lk__fail(
                LK_STATUS_USAGE,
                "%s '%s': %s is random, and a test split must look the same each time; use resize, center_crop "
                "and the like",
                option_of(data), augment, row->info.name);
    }
    *out = list;
    return LK_OK;
}

lk_sample_shape lk__transforms_shape(const lk_transforms *list, lk_sample_shape shape)
{
    for (size_t i = 0; i < list->count; i++) {
        const lk_transform_row *row = rows[list->steps[i].row];
        if (row->shape != NULL)
            shape = row->shape(list->steps[i].values, shape);
    }
    return shape;
}

static lk_sample_shape shape_of(const lk_dataset *data)
{
    return (lk_sample_shape){data->info.channels, data->info.height, data->info.width};
}

bool lk__transforms_fix_size(const lk_transforms *list)
{
    lk_sample_shape shape = lk__transforms_shape(list, (lk_sample_shape){.channels = LK_DATASET_MAX_CHANNELS});
    return shape.height > 0 && shape.width > 0;
}

/* The shape of all images before any transform; height and width are 0 if they differ. size is
 * filled if the images' headers were read. */
static lk_status common_shape(const lk_dataset *data, lk_transforms_common_size *size, lk_sample_shape *out)
{
    lk_sample_shape own = shape_of(data);
    *size = (lk_transforms_common_size){0};
    if (own.height == 0 && data->ops != NULL && data->ops->common_size != NULL)
        LK_TRY(data->ops->common_size(data, size));
    if (size->height > 0 && size->other == 0)
        own = (lk_sample_shape){own.channels, size->height, size->width};
    *out = own;
    return LK_OK;
}

enum { EXAMPLE_NAME = 512, EXAMPLE_TEXT = 2 * EXAMPLE_NAME + 128 };

/* Writes "; a.png has 37 by 29 pixels, b.png 11 by 16", or "" if unknown. */
static void write_example(const lk_dataset *data, const lk_transforms_common_size *size, char text[EXAMPLE_TEXT])
{
    char first[EXAMPLE_NAME], second[EXAMPLE_NAME];
    *text = '\0';
    if (size->other == 0)
        return;
    data->ops->path(data, 0, first, sizeof first);
    data->ops->path(data, size->other, second, sizeof second);
    snprintf(text, EXAMPLE_TEXT, "; %s has %zu by %zu pixels, %s %zu by %zu", first, size->width, size->height, second,
             size->other_width, size->other_height);
}

lk_status lk__transforms_one_shape(const lk_transforms *list, const lk_dataset *data, lk_sample_shape *out)
{
    lk_sample_shape shape = lk__transforms_shape(list, shape_of(data));
    lk_transforms_common_size size = {0};
    char example[EXAMPLE_TEXT];
    if (shape.height == 0 || shape.width == 0) {
        LK_TRY(common_shape(data, &size, &shape));
        shape = lk__transforms_shape(list, shape);
    }
    if (shape.height == 0 || shape.width == 0) {
        write_example(data, &size, example);
        return lk__fail(LK_STATUS_USAGE,
                        "the images of %s have sizes of their own, and a batch needs one: add resize=H/W, "
                        "resized_crop=N or center_crop=N to %s%s",
                        data->info.name, option_of(data), example);
    }
    *out = shape;
    return LK_OK;
}

lk_status lk_augmented_shape(const lk_dataset *data, const char *augment, lk_sample_shape *out)
{
    LK_TRY(LK_GIVEN(data));
    LK_TRY(LK_GIVEN(out));
    lk_transforms list = {0};
    LK_TRY(lk__transforms_choose(data, augment, &list));
    return lk__transforms_one_shape(&list, data, out);
}

static lk_rng rng_of(lk_transforms_address address, size_t step)
{
    return lk__rng(address.seed, LK_RNG_PURPOSE_AUGMENT, (uint32_t)step, address.epoch, address.sample);
}

lk_image_region lk__transforms_part(const lk_transforms *list, lk_transforms_address address, size_t height,
                                    size_t width)
{
    const lk_transform_row *first = list->count > 0 ? rows[list->steps[0].row] : NULL;
    if (!first || !first->part)
        return (lk_image_region){.height = height, .width = width};
    lk_rng rng = rng_of(address, 0);
    return first->part(list->steps[0].values, &rng, height, width);
}

lk_status lk__transforms_apply(const lk_transforms *list, lk_transforms_address address, lk_image *image,
                               lk_image *scratch)
{
    for (size_t i = 0; i < list->count; i++) {
        const lk_transform_step *step = &list->steps[i];
        lk_rng rng = rng_of(address, i);
        LK_TRY(rows[step->row]->apply(step->values, &rng, image, scratch));
    }
    return LK_OK;
}

/* ImageNet's recipe crops 224 of 256 pixels. */
enum { RESIZED = 256, CUT = 224 };

/* The length of the shorter side before the crop. */
static size_t first_side(lk_sample_shape shape)
{
    size_t side = (lk__size_max(shape.height, shape.width) * RESIZED + CUT / 2) / CUT;
    return lk__size_min(side, LK_MAX_SIDE);
}

lk_status lk__transforms_for_test(const lk_dataset *test, lk_sample_shape shape, bool fixed, char text[LK_AUGMENT_TEXT])
{
    lk_sample_shape own = shape_of(test);
    lk_transforms_common_size size;
    lk_transforms list = {0};
    if (!fixed)
        LK_TRY(common_shape(test, &size, &own));
    bool as_they_are = !fixed && own.height == shape.height && own.width == shape.width;
    if (test->test_augment != NULL && !as_they_are) {
        LK_TRY(lk__transforms_parse(test->test_augment, &list));
        lk_sample_shape usual = lk__transforms_shape(&list, own);
        if (usual.height == shape.height && usual.width == shape.width) {
            snprintf(text, LK_AUGMENT_TEXT, "%s", test->test_augment);
            return LK_OK;
        }
    }
    if (own.height == shape.height && own.width == shape.width)
        snprintf(text, LK_AUGMENT_TEXT, "none");
    else if (own.height > 0)
        snprintf(text, LK_AUGMENT_TEXT, "resize=%zu/%zu", shape.height, shape.width);
    else if (shape.height == shape.width)
        snprintf(text, LK_AUGMENT_TEXT, "resize=%zu,center_crop=%zu", first_side(shape), shape.height);
    else
        snprintf(text, LK_AUGMENT_TEXT, "resize=%zu,center_crop=%zu/%zu", first_side(shape), shape.height, shape.width);
    return LK_OK;
}
