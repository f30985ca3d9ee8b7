/* share.c - starts reading the data. The processes of a job on one host read each large file once, into memory that all
 * of them map (data/sets/store.h). The first rank of a host makes it. */
#include "base/mem.h"
#include "comm/collective/group_memory.h"
#include "train/parts.h"

static int first_on_host(const lk_group *group)
{
    int rank = 0;
    while (!lk_group_is_local(group, rank))
        rank++;
    return rank;
}

/* Without a store every process reads the files for itself, so a failure only costs memory and time. */
static void make_store(lk_train_shared *shared)
{
    lk_store_key keys[LK_STORE_MAX_FILES];
    size_t count = 0;
    for (int i = 0; i < shared->opened_count; i++)
        lk__dataset_keys(shared->opened[i], keys, &count);
    if (count > 0 && lk__store_create(keys, count, &shared->store) != LK_OK)
        shared->store = NULL;
}

static lk_status share_store(lk_group *group, bool reads, int threads, lk_train_shared *shared)
{
    int first = first_on_host(group);
    bool makes = reads && lk_group_rank(group) == first && lk_group_local_size(group) > threads;
    lk_store_offer mine = {0}, *all;
    LK_TRY(LK_ALLOC((size_t)lk_group_size(group), "offers of shared data", &all));
    if (makes)
        make_store(shared);
    if (makes && shared->store)
        mine = lk__store_offer(shared->store);
    lk_status status = lk__group_exchange(group, &mine, sizeof mine, all);
    if (status == LK_OK && reads && !makes && all[first].bytes > 0 &&
        lk__store_open(&all[first], &shared->store) != LK_OK)
        shared->store = NULL;
    lk__mem_free(all);
    return status;
}

static lk_status begin(lk_group *group, lk_train_shared *shared)
{
    int reader = group ? lk_group_local_rank(group) : 0, readers = group ? lk_group_local_size(group) : 1;
    for (int i = 0; i < shared->opened_count; i++)
        LK_TRY(lk__dataset_begin(shared->opened[i], shared->store, reader, readers));
    return LK_OK;
}

lk_status lk__train_begin_data(lk_group *group, bool reads, int threads, lk_train_shared *shared)
{
    if (group)
        LK_TRY(share_store(group, reads, threads, shared));
    lk_status status = reads ? begin(group, shared) : LK_OK;
    if (status != LK_OK && group)
        lk_group_abort(group, lk_error_detail());
    return status;
}
