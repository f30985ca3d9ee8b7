/* defaults.c - the defaults of an engine's options. */
#include "parallel/layout/defaults.h"

#include "parallel/layout/partition.h"
#include "tensor/device.h"

enum { DEFAULT_SHARDS = 16, DEFAULT_CHECK_EVERY = 100 };
static const size_t DEFAULT_BUCKET = (size_t)4 << 20;

/* A device that computes shard by shard (by_shard) is faster with few shards. */
static int default_shards(const lk_engine_opts *opts)
{
    const lk_device_type *type = lk__device_find(opts->device);
    int replicas = (opts->group ? lk_group_size(opts->group) : 1) / lk__partition_count(opts->stages);
    if (!type || !type->by_shard)
        return DEFAULT_SHARDS;
    return replicas > 0 ? replicas : 1;
}

lk_engine_opts lk__engine_defaults(const lk_engine_opts *opts)
{
    lk_engine_opts full = *opts;
    if (!full.device)
        full.device = "cpu";
    if (!full.shards)
        full.shards = default_shards(&full);
    if (!full.optimizer)
        full.optimizer = "sgd";
    if (!full.bucket_bytes)
        full.bucket_bytes = DEFAULT_BUCKET;
    if (!full.check_every)
        full.check_every = DEFAULT_CHECK_EVERY;
    return full;
}
