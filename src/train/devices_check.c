/* devices_check.c - checks whether every rank of a job can use the GPU that "auto" has chosen for it: either all
 * ranks compute on GPUs or all on the CPU. */
#include <stdio.h>

#include "base/mem.h"
#include "parallel/memory/memory.h"
#include "train/parts.h"

/* The device of a rank. */
enum { ON_CPU, ON_GPU, UNUSABLE };

enum { WHY_BYTES = 1024 };

static size_t at_least_one(size_t count)
{
    return lk__size_max(count, 1);
}

/* Estimates the device memory of a rank, in bytes, by measuring the model on the CPU: a GPU is not open yet. */
static size_t estimate_need(const lk_train_rank *rank)
{
    const lk_train_opts *opts = rank->opts;
    size_t ranks = rank->group ? (size_t)lk_group_size(rank->group) : 1;
    size_t stages = at_least_one((size_t)lk__partition_count(opts->stages)), replicas = at_least_one(ranks / stages);
    size_t most = lk_dataset_get_info(rank->shared->train)->count;
    lk_engine_opts engine = {
        .threads = 1,
        .batch = at_least_one(lk__size_min(opts->batch, most) / at_least_one(opts->accumulate) / replicas),
        .shards = 1,
        .bn = opts->bn,
        .optimizer = opts->optimizer};
    lk_engine_size size;
    if (opts->micro_batch)
        engine.batch = lk__size_min(engine.batch, opts->micro_batch);
    if (lk__engine_measure(rank->shared->graph, &engine, &size) != LK_OK)
        return 0;
    if (opts->precision == LK_PRECISION_BF16)
        size.activations /= 2;
    return (lk__engine_size_total(&size) - size.scratch) / stages;
}

static int probe(const lk_train_rank *rank, bool named, char why[WHY_BYTES])
{
    const lk_device_type *type = lk__device_find(rank->device);
    if (!type || !type->probe)
        return ON_CPU;
    if (named || lk__device_probe(rank->device, estimate_need(rank)) == LK_OK)
        return ON_GPU;
    snprintf(why, WHY_BYTES, "%s", lk_error_detail());
    return UNUSABLE;
}

/* This rank's GPU was named, but other ranks cannot use theirs. */
static lk_status fail_named(const lk_train_rank *rank, const char *why)
{
    char text[WHY_BYTES];
    snprintf(text, sizeof text, "rank %d was given `device` %s, but %.800s; name devices for all ranks, or for none",
             lk_group_rank(rank->group), rank->device, why);
    lk_group_abort(rank->group, text);
    return lk__fail(LK_STATUS_MISMATCH, "%s", text);
}

/* Collective. If some ranks can use GPUs and one cannot, no rank uses one: the first rank that cannot gives the
 * reason, and the first rank whose devices were not named prints it (*speaker). */
static lk_status agree_on_devices(const lk_train_rank *rank, bool named, int mine, const char *why, int *speaker)
{
    lk_group *group = rank->group;
    int own = lk_group_rank(group);
    char reason[WHY_BYTES] = "";
    int64_t first[] = {mine == ON_GPU ? INT64_MAX : own, mine == ON_CPU ? INT64_MAX : own, named ? INT64_MAX : own};
    LK_TRY(lk_allreduce(group, (lk_buffer){first, 3, LK_DTYPE_I64}, LK_REDUCTION_MIN, NULL));
    if (first[0] == INT64_MAX || first[1] == INT64_MAX)
        return LK_OK;
    if (first[0] == own)
        snprintf(reason, sizeof reason, "rank %d on %s: %.800s", own, lk_group_host(group, own),
                 mine == UNUSABLE ? why : "no GPU is used here, and other ranks have one");
    LK_TRY(lk_broadcast(group, (lk_buffer){reason, sizeof reason, LK_DTYPE_U8}, (int)first[0], NULL));
    reason[sizeof reason - 1] = '\0';
    if (named)
        return mine == ON_GPU ? fail_named(rank, reason) : LK_OK;
    *speaker = (int)first[2];
    return lk__fail(LK_STATUS_UNSUPPORTED, "%s", reason);
}

lk_status lk__train_check_devices(const lk_train_rank *rank, bool named, int *speaker)
{
    char why[WHY_BYTES] = "";
    int mine = probe(rank, named, why);
    *speaker = -1;
    if (rank->group)
        return agree_on_devices(rank, named, mine, why, speaker);
    if (mine != UNUSABLE)
        return LK_OK;
    *speaker = 0;
    return lk__fail(LK_STATUS_UNSUPPORTED, "%s", why);
}
