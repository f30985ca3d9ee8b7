/* device_sums_choose.c - which channel can join the devices of all ranks. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "comm/collective/device_sums.h"

/* What a rank says of its device. */
typedef struct card {
    char place[LK_CHANNEL_DEVICE_ID];
    char reason[LK_DIRECT_TEXT]; /* why it can have no channel; "": it can */
} card;

/* A channel that is tried. */
typedef struct trial {
    lk_group *group;
    lk_device *dev;
    const lk_channel_type *type;
    card mine;
    char *obstacle; /* (bytes) what is in its way; "": nothing so far */
    size_t bytes;
} trial;

/* Why these two ranks can have no channel, if so. */
static void compare_places(const trial *t, const card *cards, int r, int s)
{
    bool same = strcmp(cards[r].place, cards[s].place) == 0;
    if (same && !t->type->one_device)
        snprintf(t->obstacle, t->bytes, "ranks %d and %d have one device (%s)", s, r, cards[r].place);
    if (!same && t->type->one_device)
        snprintf(t->obstacle, t->bytes, "ranks %d and %d have two devices (%s; %s)", s, r, cards[s].place,
                 cards[r].place);
}

/* The first reason that a rank has, and else what is wrong with their places. */
static void find_obstacle(const trial *t, const card *cards, int ranks)
{
    for (int r = 0; r < ranks && !t->obstacle[0]; r++) {
        if (cards[r].reason[0])
            snprintf(t->obstacle, t->bytes, "rank %d: %s", r, cards[r].reason);
    }
    for (int r = 1; r < ranks && !t->obstacle[0]; r++) {
        for (int s = 0; s < r && !t->obstacle[0]; s++)
            compare_places(t, cards, r, s);
    }
}

/* Together: what is in the way, by what each rank has found. */
static lk_status exchange_cards(trial *t, lk_status found)
{
    card *all;
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
    LK_TRY(exchange_cards(t, t->type->device_id(t->dev, t->mine.place)));
    /* A library is not loaded in vain. */
    if (!t->obstacle[0])
        LK_TRY(exchange_cards(t, t->type->load(t->dev)));
    if (t->obstacle[0] || !t->type->one_device)
        return LK_OK;
    /* Whether ranks on one device can map each other's memory shows when they do. */
    lk_device_sums_opts opts = {.group = t->group, .dev = t->dev, .channel = t->type};
    return exchange_cards(t, lk__device_sums_rehearse(&opts));
}

/* Whether this channel is one to be tried. */
static bool is_meant(const lk_channel_type *type, const lk_device_sums_choice *choice)
{
    return (!choice->name || strcmp(type->name, choice->name) == 0) && (!choice->own_order || type->sum);
}

lk_status lk__device_sums_choose(lk_group *group, lk_device *dev, lk_device_sums_choice *choice)
{
    const lk_channel_type *const *types = dev->type->channels;
    for (; types && *types && !choice->channel; types++) {
        trial t = {group, dev, *types, .obstacle = choice->obstacle, .bytes = sizeof choice->obstacle};
        if (!is_meant(*types, choice))
            continue;
        choice->tried = true;
        if (group)
            LK_TRY(try_channel(&t));
        choice->channel = group && !choice->obstacle[0] ? *types : NULL;
    }
    return LK_OK;
}
