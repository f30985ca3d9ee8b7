/* resident.c - copying data sets to the device. */
#include "parallel/step/resident.h"

#include "base/mem.h"
#include "data/loader/loader.h"
#include "data/transform/transform.h"

/* Bytes that are uploaded at once; at least one sample. */
static const size_t PIECE = (size_t)4 << 20;

struct lk_resident {
    const void *name;      /* lk_batch.source of its batches */
    size_t count;          /* samples */
    size_t bytes;          /* of a sample */
    uint8_t *samples;      /* device, (count, bytes) */
    float *table;          /* device: normalisation of bytes; NULL: samples are floats */
    lk_gather_desc gather; /* without the epoch */
};

/* A value that no other data set of the process gets. An address would be used again after free. */
static const void *new_name(void)
{
    static uintptr_t last;
    return (const void *)__atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
}

/* Adds the transforms to the gather kernel's description; false if the kernel cannot do them. */
static bool take_transforms(const lk_transforms *list, lk_gather_desc *out)
{
    for (size_t i = 0; i < list->count; i++) {
        const lk_transform_step *step = &list->steps[i];
        const lk_transform_info *info = lk_transform_list(step->row);
        if (info == &lk__transform_crop.info) {
            out->crop = (uint32_t)step->values[0];
            out->crop_layer = (uint32_t)i;
        } else if (info == &lk__transform_flip.info) {
            out->flip = step->values[0];
            out->flip_layer = (uint32_t)i;
        } else {
            return false;
        }
    }
    return true;
}

/* Whether samples have one size, which is the shape of the model's input. */
static bool fits_model(const lk_engine *engine, const lk_loader_source *source)
{
    lk_shape input = engine->graph->layers[0].shape;
    return !source->data->ops->load && source->shape.channels == input.c && source->shape.height == input.h &&
           source->shape.width == input.w;
}

/* Bytes of a value: images are kept as bytes, other samples as the floats of a batch. */
static size_t value_size(const lk_dataset *data)
{
    return data->ops->values ? sizeof(float) : sizeof(uint8_t);
}

/* Whether the data set takes at most half of the device's free memory, divided by the ranks that may share
 * the device: they all measure at the same time. Each rank has its own device if the channel requires it;
 * otherwise all ranks of the host may share one. */
static bool has_room(const lk_engine *engine, size_t count, size_t sample)
{
    bool own = engine->channel && !engine->channel->one_device;
    size_t bytes, parts = 2 * (own ? 1 : (size_t)lk__grid_neighbours(&engine->grid));
    lk_device *dev = engine->dev;
    return !dev->type->host_memory && dev->type->room && !__builtin_mul_overflow(count, sample, &bytes) &&
           bytes <= dev->type->room(dev) / parts;
}

/* Host memory for some samples and for the target of one, which is not kept. */
typedef struct piece {
    size_t most;      /* samples */
    size_t bytes;     /* of a sample */
    uint8_t *samples; // (most, bytes)
    float *target;    /* a label or the floats of a target */
} piece;

/* Reads samples [begin, begin + count). Floats are checked here as the samples of an uploaded batch are. */
static lk_status read_samples(const lk_engine *engine, const lk_dataset *data, size_t begin, size_t count,
                              const piece *to)
{
    for (size_t i = 0; i < count; i++) {
        void *sample = to->samples + i * to->bytes;
        uint32_t id = (uint32_t)(begin + i);
        LK_TRY(lk_dataset_get(data, id, sample, to->target));
        if (data->ops->values)
            LK_TRY(lk__graph_check_samples(engine->graph, sample, 1, data->origins ? &data->origins[id] : &id));
    }
    return LK_OK;
}

static lk_status upload_samples(const lk_engine *engine, const lk_dataset *data, const lk_resident *resident,
                                const piece *through)
{
    lk_device *dev = engine->dev;
    size_t bytes = resident->bytes, count = 0;
    for (size_t begin = 0; begin < resident->count; begin += count) {
        count = lk__size_min(through->most, resident->count - begin);
        LK_TRY(read_samples(engine, data, begin, count, through));
        LK_TRY(dev->type->upload(dev, through->samples, count * bytes, resident->samples + begin * bytes));
    }
    return LK_OK;
}

static lk_status fill_samples(const lk_engine *engine, const lk_dataset *data, lk_resident *resident)
{
    size_t bytes = resident->bytes, most = lk__size_min(lk__size_max(PIECE / bytes, 1), resident->count);
    piece p = {.most = most, .bytes = bytes};
    LK_TRY(engine->dev->type->alloc(engine->dev, resident->count * bytes, "the data set", (void **)&resident->samples));
    lk_status status = LK_ALLOC(most * bytes, "samples", &p.samples);
    if (status == LK_OK)
        status = LK_ALLOC(lk__size_max(data->info.targets, 1), "a target", &p.target);
    if (status == LK_OK)
        status = upload_samples(engine, data, resident, &p);
    lk__mem_free(p.samples);
    lk__mem_free(p.target);
    return status;
}

static lk_status fill_table(lk_device *dev, const lk_loader_source *source, lk_resident *resident)
{
    size_t bytes = source->shape.channels * sizeof source->normalise->table[0];
    LK_TRY(dev->type->alloc(dev, bytes, "the data set", (void **)&resident->table));
    return dev->type->upload(dev, source->normalise->table, bytes, resident->table);
}

static lk_status fill(const lk_engine *engine, const lk_loader_source *source, lk_resident *resident)
{
    bool floats = source->data->ops->values != NULL;
    LK_TRY(fill_samples(engine, source->data, resident));
    if (!floats)
        LK_TRY(fill_table(engine->dev, source, resident));
    resident->gather.table = resident->table;
    resident->gather.pixels = floats ? NULL : resident->samples;
    resident->gather.values = floats ? (const float *)(const void *)resident->samples : NULL;
    return LK_OK;
}

static void destroy(lk_device *dev, lk_resident *resident)
{
    if (!resident)
        return;
    dev->type->free(dev, resident->samples);
    dev->type->free(dev, resident->table);
    lk__mem_free(resident);
}

static lk_status create(const lk_engine *engine, const lk_loader_source *source, const lk_gather_desc *gather,
                        lk_resident **out)
{
    lk_resident *resident;
    LK_TRY(LK_ALLOC(1, "a data set on the device", &resident));
    *resident = (lk_resident){.name = new_name(),
                              .count = source->data->info.count,
                              .bytes = gather->record * value_size(source->data),
                              .gather = *gather};
    lk_status status = fill(engine, source, resident);
    if (status != LK_OK) {
        destroy(engine->dev, resident);
        return status;
    }
    *out = resident;
    return LK_OK;
}

/* The index of the engine's cached data set of this name, or for NULL of a free slot; -1 if there is none. */
static int find_slot(const lk_engine *engine, const void *name)
{
    for (int i = 0; i < LK_MAX_RESIDENTS; i++) {
        const lk_resident *resident = engine->residents[i];
        if ((resident ? resident->name : NULL) == name)
            return i;
    }
    return -1;
}

lk_status lk__resident_add(lk_engine *engine, lk_loader *loader, bool *cached)
{
    lk_loader_source source = lk__loader_source(loader);
    lk_gather_desc gather = {.record = source.shape.channels * source.shape.height * source.shape.width,
                             .seed = source.seed};
    int slot = find_slot(engine, source.named);
    if (source.named && slot < 0)
        return lk__fail(
            LK_STATUS_USAGE,
            "the samples of this loader are cached on the device of another engine: use one loader for each engine");
    bool named = source.named != NULL;
    *cached = named;
    if (named || slot < 0 || engine->grid.stage > 0 || !fits_model(engine, &source) ||
        !take_transforms(source.transforms, &gather) ||
        !has_room(engine, source.data->info.count, gather.record * value_size(source.data)))
        return LK_OK;
    lk_status status = create(engine, &source, &gather, &engine->residents[slot]);
    if (status != LK_OK)
        return status == LK_STATUS_MEMORY ? LK_OK : status;
    lk__loader_names_only(loader, engine->residents[slot]->name);
    *cached = true;
    return LK_OK;
}

void lk__residents_destroy(lk_engine *engine)
{
    for (int i = 0; i < LK_MAX_RESIDENTS; i++)
        destroy(engine->dev, engine->residents[i]);
}

lk_status lk__resident_find(const lk_engine *engine, const lk_batch *batch, const lk_resident **out)
{
    int slot = find_slot(engine, batch->source);
    if (slot < 0)
        return lk__fail(LK_STATUS_USAGE, "the samples of this batch are not cached on this engine's device: take a "
                                         "batch of a loader that this engine has cached");
    const lk_resident *found = engine->residents[slot];
    if (batch->epoch > UINT32_MAX)
        return lk__fail(LK_STATUS_USAGE, "epoch %zu is out of range (0 to %u)", batch->epoch, UINT32_MAX);
    for (size_t i = 0; batch->ids && i < batch->count; i++)
        if (batch->ids[i] >= found->count)
            return lk__fail(LK_STATUS_USAGE, "there is no sample %u on the device, which has %zu", batch->ids[i],
                            found->count);
    *out = found;
    return LK_OK;
}

void lk__resident_gather(lk_engine *engine, const lk_resident *resident, const uint32_t *ids, lk_tensor *x)
{
    lk_gather_desc gather = resident->gather;
    gather.epoch = &engine->inputs->numbers.epoch;
    engine->dev->kernels->gather(engine->dev, &gather, ids, x);
}
