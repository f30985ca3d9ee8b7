/* device_channel_choose.c - finds a channel that can join the devices of all ranks. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "comm/collective/device_channel.h"
#include "comm/collective/group_impl.h"

/* What a rank sends to the others about its device. */
typedef struct device_info {
    char location[LK_CHANNEL_DEVICE_ID];
    char reason[LK_DEVICE_CHANNEL_TEXT]; /* why the rank cannot use the channel; "": it can */
} device_info;

/* One attempt at one channel. */
typedef struct trial {
    lk_group *group;
    lk_device *dev;
    const lk_channel_type *type;
    device_info mine;
    char obstacle[LK_DEVICE_CHANNEL_OBSTACLE]; /* why the ranks cannot use it; "": no reason so far */
    bool suits;                                /* it is made for devices that are where these are */
} trial;

/* Sets the obstacle if these two ranks cannot be joined. */
static void compare_devices(trial *t, const device_info *infos, int r, int s)
{
    bool same = strcmp(infos[r].location, infos[s].location) == 0;
    int ranks[] = {lk__group_job_rank(t->group, s), lk__group_job_rank(t->group, r)};
    if (same && !t->type->one_device)
        snprintf(t->obstacle, sizeof t->obstacle,
                 "ranks %d and %d have one device (%s), where %s needs one for each rank", ranks[0], ranks[1],
                 infos[r].location, t->type->name);
    if (!same && t->type->one_device)
        snprintf(t->obstacle, sizeof t->obstacle, "ranks %d and %d have two devices (%s; %s)", ranks[0], ranks[1],
                 infos[s].location, infos[r].location);
}

/* The obstacle is the first reason of a rank, or else a pair of ranks that cannot be joined. */
static void find_obstacle(trial *t, const device_info *infos, int ranks)
{
    for (int r = 0; r < ranks && !t->obstacle[0]; r++) {
        if (infos[r].reason[0])
            snprintf(t->obstacle, sizeof t->obstacle, "rank %d: %s", lk__group_job_rank(t->group, r), infos[r].reason);
    }
    for (int r = 1; r < ranks && !t->obstacle[0]; r++) {
        for (int s = 0; s < r && !t->obstacle[0]; s++)
            compare_devices(t, infos, r, s);
    }
}

/* Collective: finds the obstacle from the results of all ranks. */
static lk_status exchange_infos(trial *t, lk_status found)
{
    device_info *all;
    if (found != LK_OK)
        snprintf(t->mine.reason, sizeof t->mine.reason, "%s", lk_error_detail());
    LK_TRY(LK_ALLOC((size_t)lk_group_size(t->group), "ranks", &all));
    lk_status status = lk_allgather(t->group, (lk_buffer){&t->mine, sizeof t->mine, LK_DTYPE_U8}, NULL, all, NULL);
    t->obstacle[0] = 0;
    if (status == LK_OK)
        find_obstacle(t, all, lk_group_size(t->group));
    lk__mem_free(all);
    return status;
}

static lk_status try_channel(trial *t)
{
    LK_TRY(exchange_infos(t, t->type->device_id(t->dev, t->mine.location)));
    t->suits = !t->obstacle[0];
    /* The library is loaded only if the devices fit. */
    if (t->suits)
        LK_TRY(exchange_infos(t, t->type->load(t->dev)));
    if (t->obstacle[0] || !t->type->one_device)
        return LK_OK;
    /* Whether ranks on one device can map each other's memory is known only after trying. */
    return exchange_infos(t, lk__device_channel_probe(t->group, t->dev, t->type));
}

/* Whether the choice allows this channel. */
static bool is_candidate(const lk_channel_type *type, const lk_device_channel_choice *choice)
{
    return (!choice->name || strcmp(type->name, choice->name) == 0) && (!choice->own_order || type->sum);
}

/* Of two obstacles, that of a channel which suits the devices says more. */
static void keep_obstacle(const trial *t, lk_device_channel_choice *choice)
{
    if (t->suits || !choice->obstacle[0])
        snprintf(choice->obstacle, sizeof choice->obstacle, "%s", t->obstacle);
}

lk_status lk__device_channel_choose(lk_group *group, lk_device *dev, lk_device_channel_choice *choice)
{
    const lk_channel_type *const *types = dev->type->channels;
    for (; types && *types && !choice->channel; types++) {
        trial t = {.group = group, .dev = dev, .type = *types};
        if (!is_candidate(*types, choice))
            continue;
        choice->tried = true;
        if (!group)
            continue;
        LK_TRY(try_channel(&t));
        keep_obstacle(&t, choice);
        choice->channel = t.obstacle[0] ? NULL : *types;
    }
    return LK_OK;
}
