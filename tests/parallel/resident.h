/* resident.h - what the tests of cached data sets share: device "far" with memory for data sets, which can record
 * steps, and a rank that trains on its shards of a cached data set. */
#ifndef LK_TESTS_RESIDENT_H
#define LK_TESTS_RESIDENT_H

#include "far.h"
#include "ranks.h"
#include "tape.h"

static size_t resident_free; /* bytes that the device has for data sets */
static lk_device_type resident_plain;

static inline size_t resident_room(lk_device *dev)
{
    return resident_free;
}

/* Makes the device record steps or not, from now on. */
static inline void resident_record(bool on)
{
    far_type = resident_plain;
    if (on)
        tape_extend(&far_type);
    far_type.prompt_upload = 1 << 20;
    tape_recorded = 0;
}

/* Adds the device; far_type and far_kernels can be changed before the call of resident_keep. */
static inline int resident_add(void)
{
    if (far_add() != LK_OK)
        return -1;
    far_type.room = resident_room;
    return 0;
}

static inline int resident_keep(void)
{
    tape_watch(&far_kernels);
    resident_plain = far_type;
    return 0;
}

/* The set-up of every test: much memory, no recording. */
static inline int resident_reset(void **state)
{
    resident_free = (size_t)1 << 30;
    resident_record(false);
    return 0;
}

/* Returns whether the engine has cached the loader's data set. */
static inline bool resident_place(lk_engine *engine, lk_loader *loader)
{
    bool cached;
    law_require(lk_engine_cache_dataset(engine, loader, &cached));
    return cached;
}

/* A rank's epoch on its shards of the data set, which the first stage caches. The state has the hash `want` after it.
 * Returns true if something is wrong. */
static inline bool resident_train_rank(lk_engine *engine, const lk_dataset *data, lk_loader_opts opts, size_t epoch,
                                       uint64_t want)
{
    lk_loader *loader;
    const lk_batch *batch;
    lk_metrics metrics;
    bool cached;
    opts.share = lk_engine_shard_range(engine);
    CHECK_OK(lk_loader_create(data, &opts, &loader));
    CHECK_OK(lk_engine_cache_dataset(engine, loader, &cached));
    CHECK(cached == (lk_engine_layout(engine).stage == 0));
    CHECK_OK(lk_loader_start(loader, epoch, 0));
    for (size_t i = 0; i < lk_loader_batches(loader); i++) {
        CHECK_OK(lk_loader_next(loader, &batch));
        CHECK(!batch->x && (batch->source != NULL) == cached);
        CHECK(!batch->targets == !lk_dataset_get_info(data)->targets);
        CHECK_OK(lk_engine_step(engine, batch, &metrics));
    }
    CHECK(law_hash(engine) == want);
    lk_loader_destroy(loader);
    return false;
}

#endif
