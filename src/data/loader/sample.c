/* sample.c - makes one sample of a batch: reads it, applies the transforms, normalises it. The result depends only on
 * the sample, the epoch and the seed. */
#include <stdio.h>
#include <string.h>

#include "data/loader/loader.h"

/* Adds the sample to the error detail of a transform. */
static lk_status blame_sample(const lk_loader_source *source, uint32_t id, lk_status status)
{
    char sample[LK_MAX_PATH], why[LK_LOADER_DETAIL];
    if (status == LK_OK)
        return LK_OK;
    snprintf(why, sizeof why, "%s", lk_error_detail());
    if (source->data->ops->path != NULL)
        source->data->ops->path(source->data, id, sample, sizeof sample);
    else
        snprintf(sample, sizeof sample, "sample %u of %s", source->data->origins ? source->data->origins[id] : id,
                 source->data->info.name);
    return lk__fail(status, "%s: %s", sample, why);
}

/* Without a transform that fixes the size, a file may have changed since all sizes were compared. */
static lk_status check_shape(const lk_loader_source *source, const lk_image *image)
{
    const lk_sample_shape *want = &source->shape;
    if (image->channels == want->channels && image->height == want->height && image->width == want->width)
        return LK_OK;
    return lk__fail(LK_STATUS_FORMAT, "the image comes out with %zu by %zu pixels, the others with %zu by %zu",
                    image->width, image->height, want->width, want->height);
}

/* The memory for the target of sample i. */
static void *target_at(const lk_loader_source *source, const lk_loader_room *room, size_t i)
{
    return room->targets ? (void *)(room->targets + i * source->data->info.targets) : (void *)&room->labels[i];
}

/* Sets the label of sample i where targets are probabilities; it is 0 where they are other values. */
static void set_label(const lk_loader_source *source, const lk_loader_room *room, size_t i)
{
    const lk_dataset_info *info = &source->data->info;
    if (room->targets)
        room->labels[i] = info->classes ? lk__dataset_likeliest(room->targets + i * info->targets, info->classes) : 0;
}

/* Writes the target of a sample that is not loaded. False if the sample must be read for it. */
static bool fill_target(const lk_loader_source *source, uint32_t id, const lk_loader_room *room, size_t i)
{
    const lk_dataset_ops *ops = source->data->ops;
    if (ops->label)
        room->labels[i] = ops->label(source->data, id);
    else if (ops->targets)
        memcpy(target_at(source, room, i), ops->targets(source->data, id),
               source->data->info.targets * sizeof *room->targets);
    return ops->label || ops->targets;
}

/* Reads a sample of floats: into the batch, or into the scratch memory for its target only. */
static lk_status fill_values(const lk_loader_source *source, uint32_t id, const lk_loader_room *room, size_t i,
                             lk_loader_scratch *scratch)
{
    float *x = room->x ? room->x + i * lk__loader_sample_floats(source) : NULL;
    if (!x) {
        LK_TRY(lk__image_resize(&scratch->other, sizeof *x, 1, lk__loader_sample_floats(source)));
        x = (float *)(void *)scratch->other.pixels;
    }
    return source->data->ops->values(source->data, id, x, target_at(source, room, i));
}

/* The transforms of one sample. */
typedef struct change {
    const lk_transforms *list;
    lk_transforms_address address;
} change;

static lk_image_region part_of(const void *arg, size_t height, size_t width)
{
    const change *c = arg;
    return lk__transforms_part(c->list, c->address, height, width);
}

static lk_status fill_image(const lk_loader_source *source, uint32_t id, const lk_loader_room *room, size_t i,
                            lk_loader_scratch *scratch)
{
    lk_transforms_address address = {.seed = source->seed, .epoch = source->epoch, .sample = id};
    const change c = {source->transforms, address};
    LK_TRY(
        lk__dataset_load(source->data, id, &(lk_image_want){part_of, &c}, &scratch->image, target_at(source, room, i)));
    if (room->x == NULL)
        return LK_OK;
    LK_TRY(
        blame_sample(source, id, lk__transforms_apply(source->transforms, address, &scratch->image, &scratch->other)));
    LK_TRY(blame_sample(source, id, check_shape(source, &scratch->image)));
    lk__normalise_apply(source->normalise, &scratch->image, room->x + i * lk__loader_sample_floats(source));
    return LK_OK;
}

lk_status lk__loader_make_sample(const lk_loader_source *source, uint32_t id, const lk_loader_room *room, size_t i,
                                 lk_loader_scratch *scratch)
{
    room->ids[i] = id;
    if (room->origins)
        room->origins[i] = source->data->origins[id];
    if (room->x != NULL || !fill_target(source, id, room, i))
        LK_TRY(source->data->ops->values ? fill_values(source, id, room, i, scratch)
                                         : fill_image(source, id, room, i, scratch));
    set_label(source, room, i);
    return LK_OK;
}
