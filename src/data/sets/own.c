/* own.c - data sets of the program's own: samples that a function reads, or samples in memory.
 *
 * Samples that can be transformed as images are bytes in C,H,W order (ops.get); all others are floats in H,W,C order,
 * normalised (ops.values). */
#include "data/sets/dataset.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { LARGEST_I32 = 1 << 24 }; /* the integers up to it are exact as floats */

typedef struct own {
    lk_dataset_read_fn read; /* NULL: samples in memory */
    void *arg;
    const uint8_t *samples;
    const void *targets;
    lk_dtype dtype;
    bool channels_first; /* elements are in C,H,W order, and the two orders differ */
    size_t elements, target_bytes;
    float *mean, *std; /* (channels) */
} own;

static const own *own_of(const lk_dataset *data)
{
    return data->own;
}

static lk_status check_label(const lk_dataset *data, size_t index, int32_t label)
{
    if (label >= 0 && (size_t)label < data->info.classes)
        return LK_OK;
    return lk__fail(LK_STATUS_FORMAT, "sample %zu of %s: label %d is not in [0, %zu)", index, data->info.name, label,
                    data->info.classes);
}

/* Reads the sample as the program has it. */
static lk_status read_sample(const lk_dataset *data, size_t index, void *sample, void *target)
{
    const own *o = own_of(data);
    size_t bytes = o->elements * lk_dtype_size(o->dtype);
    if (!o->read) {
        memcpy(sample, o->samples + index * bytes, bytes);
        memcpy(target, (const uint8_t *)o->targets + index * o->target_bytes, o->target_bytes);
        return LK_OK;
    }
    lk__fail_clear();
    lk_status status = o->read(o->arg, index, sample, target);
    if (status != LK_OK)
        return lk__fail_callback(status, "sample %zu of %s", index, data->info.name);
    return data->info.targets ? LK_OK : check_label(data, index, *(const int32_t *)target);
}

/* (H, W, C) bytes to (C, H, W). */
static void split_channels(const uint8_t *from, size_t area, size_t channels, uint8_t *to)
{
    for (size_t i = 0; i < area; i++)
        for (size_t c = 0; c < channels; c++)
            to[c * area + i] = from[i * channels + c];
}

static lk_status get_image(const lk_dataset *data, size_t index, void *sample, void *target)
{
    const own *o = own_of(data);
    uint8_t *pixels;
    if (o->channels_first || data->info.channels == 1)
        return read_sample(data, index, sample, target);
    LK_TRY(LK_ALLOC(o->elements, "a sample", &pixels));
    lk_status status = read_sample(data, index, pixels, target);
    if (status == LK_OK)
        split_channels(pixels, data->info.height * data->info.width, data->info.channels, sample);
    lk__mem_free(pixels);
    return status;
}

static lk_status float_of(lk_dtype dtype, const void *from, size_t at, float *to)
{
    if (dtype == LK_DTYPE_F32) {
        *to = ((const float *)from)[at];
    } else if (dtype == LK_DTYPE_U8) {
        *to = (float)((const uint8_t *)from)[at] / 255.0f;
    } else {
        int32_t value = ((const int32_t *)from)[at];
        if (value > LARGEST_I32 || value < -LARGEST_I32)
            return lk__fail(LK_STATUS_FORMAT, "element %zu is %d; integers up to %d can be used", at, value,
                            LARGEST_I32);
        *to = (float)value;
    }
    return LK_OK;
}

/* Elements as the program has them to normalised floats in H,W,C order. from may be x if its order and type are. */
static lk_status convert(const lk_dataset *data, const void *from, float *x)
{
    const own *o = own_of(data);
    size_t channels = data->info.channels, area = o->elements / channels;
    for (size_t i = 0; i < area; i++)
        for (size_t c = 0; c < channels; c++) {
            float value = 0;
            LK_TRY(float_of(o->dtype, from, o->channels_first ? c * area + i : i * channels + c, &value));
            x[i * channels + c] = (value - o->mean[c]) / o->std[c];
        }
    return LK_OK;
}

static lk_status get_values(const lk_dataset *data, size_t index, float *x, void *target)
{
    const own *o = own_of(data);
    uint8_t *raw = NULL;
    if (o->dtype == LK_DTYPE_F32 && !o->channels_first) {
        LK_TRY(read_sample(data, index, x, target));
        return convert(data, x, x);
    }
    LK_TRY(lk__mem_alloc(o->elements, lk_dtype_size(o->dtype), "a sample", (void **)&raw));
    lk_status status = read_sample(data, index, raw, target);
    if (status == LK_OK)
        status = convert(data, raw, x);
    lk__mem_free(raw);
    return status;
}

static int32_t label_of(const lk_dataset *data, size_t index)
{
    return ((const int32_t *)own_of(data)->targets)[index];
}

static const float *targets_of(const lk_dataset *data, size_t index)
{
    return (const float *)own_of(data)->targets + index * data->info.targets;
}

static void close_own(lk_dataset *data)
{
    own *o = (own *)(uintptr_t)data->own;
    lk__mem_free(o->mean);
    lk__mem_free(o->std);
    lk__mem_free(o);
}

/* The rows of operations: images or other samples, in memory with labels or with other targets, or read. */
static const lk_dataset_ops *choose_ops(bool images, bool memory, bool labels)
{
#define SAMPLES(images) .get = (images) ? get_image : NULL, .values = (images) ? NULL : get_values, .close = close_own
    static const lk_dataset_ops read[2] = {{SAMPLES(false)}, {SAMPLES(true)}};
    static const lk_dataset_ops labelled[2] = {{SAMPLES(false), .label = label_of}, {SAMPLES(true), .label = label_of}};
    static const lk_dataset_ops other[2] = {{SAMPLES(false), .targets = targets_of},
                                            {SAMPLES(true), .targets = targets_of}};
#undef SAMPLES
    return memory ? &(labels ? labelled : other)[images] : &read[images];
}

static size_t count_dims(const lk_dataset_opts *opts)
{
    size_t count = 0;
    while (count < LK_SAMPLE_DIMS && opts->dims[count] > 0)
        count++;
    return count;
}

static lk_status check_shape(const lk_dataset_opts *opts, size_t *elements)
{
    size_t dims = count_dims(opts), bytes;
    if (dims == 0 || (dims < LK_SAMPLE_DIMS && opts->dims[LK_SAMPLE_DIMS - 1] > 0))
        return lk__fail(LK_STATUS_USAGE,
                        "`dims` is {%zu, %zu, %zu}; a sample has 1 to %d dims, each above 0, and unused "
                        "ones are 0 at the end",
                        opts->dims[0], opts->dims[1], opts->dims[2], LK_SAMPLE_DIMS);
    *elements = 1;
    for (size_t i = 0; i < dims; i++)
        if (__builtin_mul_overflow(*elements, opts->dims[i], elements))
            return lk__fail(LK_STATUS_USAGE, "`dims`: a sample is larger than can be addressed");
    size_t widest = *elements > opts->targets ? *elements : opts->targets;
    if (__builtin_mul_overflow(widest, sizeof(float), &bytes) || __builtin_mul_overflow(bytes, opts->count, &bytes))
        return lk__fail(LK_STATUS_USAGE, "`count`: %zu samples are more than can be addressed", opts->count);
    return LK_OK;
}

static lk_status check_numbers(const char *field, const float *values, size_t count, bool positive)
{
    for (size_t i = 0; values && i < count; i++)
        if (!(values[i] - values[i] == 0) || (positive && values[i] <= 0))
            return lk__fail(LK_STATUS_USAGE, "`%s`: value %zu is %g, which is not %s", field, i, (double)values[i],
                            positive ? "a positive number" : "a finite number");
    return LK_OK;
}

static lk_status check_opts(const lk_dataset_opts *opts)
{
    LK_TRY(LK_CLEAR(opts, "lk_dataset_opts"));
    if (opts->count == 0)
        return lk__fail(LK_STATUS_USAGE, "`count` is 0; a data set has at least one sample");
    if (opts->dtype != LK_DTYPE_F32 && opts->dtype != LK_DTYPE_U8 && opts->dtype != LK_DTYPE_I32)
        return lk__fail(LK_STATUS_USAGE, "`dtype`: samples are f32, u8 or i32");
    if (opts->order != LK_SAMPLE_ORDER_CHW && opts->order != LK_SAMPLE_ORDER_HWC)
        return lk__fail(LK_STATUS_USAGE, "`order` %d is not a value of lk_sample_order", (int)opts->order);
    LK_TRY(lk__dataset_check_split(opts->split));
    if (opts->classes == 0 && opts->targets == 0)
        return lk__fail(LK_STATUS_USAGE, "`classes` and `targets` are both 0: say how many classes the labels have, or "
                                         "how many floats a target has");
    if (opts->classes > 0 && opts->targets > 0 && opts->classes != opts->targets)
        return lk__fail(LK_STATUS_USAGE,
                        "`classes` %zu and `targets` %zu differ: a target of probabilities has one "
                        "for each class",
                        opts->classes, opts->targets);
    return LK_OK;
}

/* The three sizes that layers see. */
static void set_shape(const lk_dataset_opts *opts, lk_dataset_info *info)
{
    const size_t *dims = opts->dims;
    size_t count = count_dims(opts);
    bool last = count == LK_SAMPLE_DIMS && opts->order == LK_SAMPLE_ORDER_HWC;
    info->channels = count == 1 ? dims[0] : count == 2 ? dims[1] : last ? dims[2] : dims[0];
    info->height = count < LK_SAMPLE_DIMS ? 1 : last ? dims[0] : dims[1];
    info->width = count == 1 ? 1 : count == 2 ? dims[0] : last ? dims[1] : dims[2];
}

static lk_status copy_numbers(const float *from, float otherwise, size_t count, float **out)
{
    LK_TRY(LK_ALLOC(count, "the normalisation", out));
    for (size_t i = 0; i < count; i++)
        (*out)[i] = from ? from[i] : otherwise;
    return LK_OK;
}

static bool are_images(const lk_dataset_opts *opts, size_t channels)
{
    return opts->dtype == LK_DTYPE_U8 && count_dims(opts) == LK_SAMPLE_DIMS &&
           (channels == 1 || channels == LK_DATASET_MAX_CHANNELS);
}

static lk_status check_labels(const lk_dataset *data)
{
    if (data->ops->label)
        for (size_t i = 0; i < data->info.count; i++)
            if (check_label(data, i, label_of(data, i)) != LK_OK)
                return LK_STATUS_USAGE;
    return LK_OK;
}

/* "auto" stands for the opts' transforms, whatever the split. */
static lk_status set_augment(const lk_dataset_opts *opts, lk_dataset *data)
{
    if (opts->augment)
        LK_TRY(lk__mem_copy_text(opts->augment, "transforms", &data->own_augment));
    data->augment = data->own_augment ? data->own_augment : "none";
    data->test_augment = data->augment;
    return LK_OK;
}

static lk_status fill(const lk_dataset_opts *opts, own *o, lk_dataset *data)
{
    lk_dataset_info *info = &data->info;
    data->own = o;
    data->split = opts->split;
    data->known = true;
    *info = (lk_dataset_info){.count = opts->count, .classes = opts->classes, .targets = opts->targets};
    set_shape(opts, info);
    bool images = are_images(opts, info->channels);
    info->dtype = images ? LK_DTYPE_U8 : LK_DTYPE_F32;
    info->order = images ? LK_SAMPLE_ORDER_CHW : LK_SAMPLE_ORDER_HWC;
    data->ops = choose_ops(images, !o->read, opts->targets == 0);
    o->channels_first = count_dims(opts) == LK_SAMPLE_DIMS && opts->order == LK_SAMPLE_ORDER_CHW && info->channels > 1;
    LK_TRY(check_numbers("mean", opts->mean, info->channels, false));
    LK_TRY(check_numbers("std", opts->std, info->channels, true));
    LK_TRY(copy_numbers(opts->mean, 0, info->channels, &o->mean));
    LK_TRY(copy_numbers(opts->std, 1, info->channels, &o->std));
    info->mean = o->mean;
    info->std = o->std;
    LK_TRY(set_augment(opts, data));
    LK_TRY(lk__mem_copy_text(opts->name ? opts->name : "own", "a name", &data->name));
    info->name = data->name;
    info->path = "";
    return check_labels(data);
}

static lk_status create(const lk_dataset_opts *opts, const own *from, lk_dataset **out)
{
    lk_dataset *data = NULL;
    own *o = NULL;
    size_t elements = 0;
    LK_TRY(check_opts(opts));
    LK_TRY(check_shape(opts, &elements));
    LK_TRY(LK_ALLOC(1, "a data set", &o));
    *o = *from;
    o->dtype = opts->dtype;
    o->elements = elements;
    o->target_bytes = opts->targets ? opts->targets * sizeof(float) : sizeof(int32_t);
    lk_status status = LK_ALLOC(1, "a data set", &data);
    if (status != LK_OK) {
        lk__mem_free(o);
        return status;
    }
    status = fill(opts, o, data);
    if (status != LK_OK) {
        lk_dataset_destroy(data);
        return status;
    }
    *out = data;
    return LK_OK;
}

lk_status lk_dataset_create(const lk_dataset_opts *opts, lk_dataset_read_fn read, void *arg, lk_dataset **out)
{
    LK_TRY(LK_GIVEN(opts));
    LK_TRY(LK_GIVEN(read));
    LK_TRY(LK_GIVEN(out));
    return create(opts, &(own){.read = read, .arg = arg}, out);
}

lk_status lk_dataset_from_memory(const lk_dataset_opts *opts, const void *samples, const void *targets,
                                 lk_dataset **out)
{
    LK_TRY(LK_GIVEN(opts));
    LK_TRY(LK_GIVEN(samples));
    LK_TRY(LK_GIVEN(targets));
    LK_TRY(LK_GIVEN(out));
    return create(opts, &(own){.samples = samples, .targets = targets}, out);
}
