/* subset.c - a data set that is a part of another: some of its samples. */
#include "data/sets/dataset.h"

#include "base/mem.h"

typedef struct subset {
    const lk_dataset *base; /* no part itself */
    lk_dataset_ops ops;     /* those that the base has */
    uint32_t index[];       /* (count) of each sample in the base */
} subset;

static const subset *subset_of(const lk_dataset *data)
{
    return data->own;
}

static lk_status get(const lk_dataset *data, size_t index, void *pixels, void *target)
{
    const subset *s = subset_of(data);
    return s->base->ops->get(s->base, s->index[index], pixels, target);
}

static lk_status values(const lk_dataset *data, size_t index, float *x, void *target)
{
    const subset *s = subset_of(data);
    return s->base->ops->values(s->base, s->index[index], x, target);
}

static lk_status load(const lk_dataset *data, size_t index, const lk_image_want *want, lk_image *image, int32_t *label)
{
    const subset *s = subset_of(data);
    return s->base->ops->load(s->base, s->index[index], want, image, label);
}

/* Returns the size that all samples of the base share, so that both parts of a split have the same answer. */
static lk_status common_size(const lk_dataset *data, lk_transforms_common_size *out)
{
    const lk_dataset *base = subset_of(data)->base;
    return base->ops->common_size(base, out);
}

static int32_t label(const lk_dataset *data, size_t index)
{
    const subset *s = subset_of(data);
    return s->base->ops->label(s->base, s->index[index]);
}

static const float *targets(const lk_dataset *data, size_t index)
{
    const subset *s = subset_of(data);
    return s->base->ops->targets(s->base, s->index[index]);
}

static void path(const lk_dataset *data, size_t index, char *text, size_t bytes)
{
    const subset *s = subset_of(data);
    s->base->ops->path(s->base, s->index[index], text, bytes);
}

/* Hashes the files of the whole base. */
static lk_status hash_files(const lk_dataset *data, uint64_t *hash)
{
    const lk_dataset *base = subset_of(data)->base;
    return base->ops->hash_files(base, hash);
}

static const char *class_name(const lk_dataset *data, size_t index)
{
    const lk_dataset *base = subset_of(data)->base;
    return base->ops->class_name(base, index);
}

static void close(lk_dataset *data)
{
    lk__mem_free((void *)(uintptr_t)data->own);
}

static lk_dataset_ops ops_of(const lk_dataset_ops *base)
{
    return (lk_dataset_ops){.get = base->get ? get : NULL,
                            .load = base->load ? load : NULL,
                            .values = base->values ? values : NULL,
                            .common_size = base->common_size ? common_size : NULL,
                            .label = base->label ? label : NULL,
                            .targets = base->targets ? targets : NULL,
                            .path = base->path ? path : NULL,
                            .hash_files = base->hash_files ? hash_files : NULL,
                            .class_name = base->class_name ? class_name : NULL,
                            .close = close};
}

static lk_status make_subset(const lk_dataset *base, const size_t *indices, size_t count, subset **out)
{
    subset *s;
    size_t bytes;
    if (__builtin_mul_overflow(count, sizeof *s->index, &bytes))
        return lk__fail(LK_STATUS_USAGE, "%zu samples are more than can be addressed", count);
    LK_TRY(lk__mem_alloc(1, sizeof *s + bytes, "a part of a data set", (void **)&s));
    *s = (subset){.base = base->origins ? subset_of(base)->base : base};
    s->ops = ops_of(s->base->ops);
    for (size_t i = 0; i < count; i++)
        s->index[i] = base->origins ? base->origins[indices[i]] : (uint32_t)indices[i];
    *out = s;
    return LK_OK;
}

static lk_status check_subset(const lk_dataset *base, const size_t *indices, size_t count)
{
    if (count == 0)
        return lk__fail(LK_STATUS_USAGE, "a part of a data set needs at least one index");
    for (size_t i = 0; i < count; i++)
        if (indices[i] >= base->info.count || indices[i] > UINT32_MAX)
            return lk__fail(LK_STATUS_USAGE, "index %zu of the part is %zu, but %s has %zu samples", i, indices[i],
                            base->info.name, base->info.count);
    return LK_OK;
}

lk_status lk_dataset_subset(const lk_dataset *base, const size_t *indices, size_t count, lk_split split,
                            lk_dataset **out)
{
    lk_dataset *data = NULL;
    subset *s = NULL;
    lk_status status;
    LK_TRY(LK_GIVEN(base));
    LK_TRY(LK_GIVEN(indices));
    LK_TRY(LK_GIVEN(out));
    LK_TRY(lk__dataset_check_split(split));
    LK_TRY(check_subset(base, indices, count));
    LK_TRY(LK_ALLOC(1, "a data set", &data));
    *data = (lk_dataset){.info = base->info,
                         .split = split,
                         .augment = base->augment,
                         .test_augment = base->test_augment,
                         .class_names = base->class_names,
                         .known = base->known,
                         .drawn = base->drawn};
    LK_TRY_GOTO(make_subset(base, indices, count, &s), destroy_data);
    data->own = s;
    data->origins = s->index;
    data->ops = &s->ops;
    data->info.count = count;
    LK_TRY_GOTO(lk__mem_copy_text(base->info.name, "a name", &data->name), destroy_data);
    LK_TRY_GOTO(lk__mem_copy_text(base->info.path, "a name", &data->path), destroy_data);
    data->info.name = data->name;
    data->info.path = data->path;
    *out = data;
    return LK_OK;

destroy_data:
    lk_dataset_destroy(data);
    return status;
}
