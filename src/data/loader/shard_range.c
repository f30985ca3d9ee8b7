/* shard_range.c - the samples of a batch that a shard range has: pure arithmetic. */
#include "base/tree.h"
#include "data/loader/loader.h"
#include "data/sets/dataset.h"

static bool is_whole(lk_shard_range share)
{
    return share.shards == 0 && share.first == 0 && share.last == 0;
}

size_t lk_shard_range_begin(lk_shard_range share, size_t total)
{
    return is_whole(share) ? 0 : lk__shard_begin(total, share.shards, share.first);
}

size_t lk_shard_range_count(lk_shard_range share, size_t total)
{
    if (is_whole(share))
        return total;
    return lk__shard_begin(total, share.shards, share.last) - lk__shard_begin(total, share.shards, share.first);
}

size_t lk__shard_range_most(lk_shard_range share, size_t batch)
{
    return is_whole(share) ? batch : lk__shard_most(batch, share.shards, share.last - share.first);
}

lk_status lk__shard_range_check(lk_shard_range share)
{
    if (is_whole(share) && !share.labels_only)
        return LK_OK;
    if (share.shards < 1)
        return lk__fail(LK_STATUS_USAGE, "`share`: a batch cannot be cut into %d shards: it has at least 1",
                        share.shards);
    if (share.first < 0 || share.last > share.shards || share.first >= share.last)
        return lk__fail(
            LK_STATUS_USAGE,
            "`share`: shards %d to %d are impossible: a share begins at 0 or later, holds at least one shard "
            "and ends by %d, the number of shards",
            share.first, share.last, share.shards);
    return LK_OK;
}
