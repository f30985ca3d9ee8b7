/* defaults.c - the defaults of an engine's options. */
#include "parallel/layout/defaults.h"

#include "parallel/layout/partition.h"
#include "tensor/device.h"

enum { DEFAULT_SHARDS = 16, DEFAULT_CHECK_EVERY = 100 };
static const size_t DEFAULT_BUCKET = (size_t)4 << 20;

int lk__engine_default_shards(int ranks, const char *stages)
{
    int count = lk__partition_count(stages), replicas = count > 0 ? ranks / count : 1;
    return replicas > DEFAULT_SHARDS ? replicas : DEFAULT_SHARDS;
}

lk_engine_opts lk__engine_defaults(const lk_engine_opts *opts)
{
    lk_engine_opts full = *opts;
    if (!full.device)
        full.device = "cpu";
    if (!full.shards)
        full.shards = lk__engine_default_shards(full.group ? lk_group_size(full.group) : 1, full.stages);
    full.precision = lk__device_precision(full.device, full.precision);
    if (!full.optimizer)
        full.optimizer = "sgd";
    if (!full.bucket_bytes)
        full.bucket_bytes = DEFAULT_BUCKET;
    if (!full.check_every)
        full.check_every = DEFAULT_CHECK_EVERY;
    return full;
}
