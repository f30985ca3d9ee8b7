/* links.c - opening the links of a stage, pair after pair. */
#include "parallel/step/links.h"

#include <assert.h>
#include <stdio.h>

enum { ACTIVATIONS, GRADIENTS };
enum { CHANNELS = 4 }; /* most kinds of channels of a device */

/* Makes the groups of the pairs whose first stage is even, or of those whose first stage is odd. Rank 0 sends:
 * activations go to the later stage, gradients to the earlier one. */
static lk_status split_pairs(lk_links *links, const lk_grid *grid, int odd)
{
    int pair = grid->stage < odd ? -1 : (grid->stage - odd) / 2;
    bool first = grid->stage % 2 == odd;
    if (2 * pair + odd + 1 >= grid->stages)
        pair = -1;
    lk_links_side *side = first ? &links->next : &links->previous, none = {0};
    if (pair < 0)
        side = &none;
    LK_TRY(lk_group_split(grid->pipeline, pair, grid->stage, &side->groups[ACTIVATIONS]));
    return lk_group_split(grid->pipeline, pair, -grid->stage, &side->groups[GRADIENTS]);
}

/* Collective in the groups of the side. */
static lk_status choose_side(lk_links_side *side, lk_device *dev, lk_device_channel_choice *choice)
{
    if (!side->groups[ACTIVATIONS])
        return LK_OK;
    LK_TRY(lk__device_channel_choose(side->groups[ACTIVATIONS], dev, choice));
    side->channel = choice->channel;
    return LK_OK;
}

/* "nccl", "nccl and ipc" */
static void write_names(const lk_channel_type *const *types, const int64_t *used, char text[LK_LINKS_NAMES])
{
    size_t length = 0;
    text[0] = 0;
    for (int i = 0; types[i] && length < LK_LINKS_NAMES; i++)
        if (used[i])
            length +=
                (size_t)snprintf(text + length, LK_LINKS_NAMES - length, "%s%s", length ? " and " : "", types[i]->name);
}

/* Collective in the world: tells all ranks which channels there are, and the first obstacle. The earlier stage of a
 * pair speaks for it. */
static lk_status share_choices(lk_links *links, const lk_grid *grid, const lk_channel_type *const *types,
                               const char *obstacle)
{
    lk_group *world = grid->world;
    int64_t used[CHANNELS + 1] = {0}, *lacking = &used[CHANNELS]; /* size - rank of the first pair without a link */
    for (int i = 0; types[i]; i++) {
        assert(i < CHANNELS);
        used[i] = links->next.channel == types[i];
    }
    if (grid->stage + 1 < grid->stages && !links->next.channel)
        *lacking = lk_group_size(world) - lk_group_rank(world);
    LK_TRY(lk_allreduce(world, (lk_buffer){used, CHANNELS + 1, LK_DTYPE_I64}, LK_REDUCTION_MAX, NULL));
    if (*lacking == 0) {
        write_names(types, used, links->names);
        return LK_OK;
    }
    snprintf(links->obstacle, sizeof links->obstacle, "%s", obstacle);
    lk_buffer text = {links->obstacle, sizeof links->obstacle, LK_DTYPE_U8};
    return lk_broadcast(world, text, lk_group_size(world) - (int)*lacking, NULL);
}

/* Even pairs first, so that no stage waits for a neighbour that waits for another one. */
lk_status lk__links_choose(lk_links *links, const lk_grid *grid, lk_device *dev, const char *name)
{
    lk_device_channel_choice previous = {.name = name}, next = previous;
    for (int odd = 0; odd < 2 && odd + 1 < grid->stages; odd++) {
        bool first = grid->stage % 2 == odd;
        LK_TRY(split_pairs(links, grid, odd));
        LK_TRY(first ? choose_side(&links->next, dev, &next) : choose_side(&links->previous, dev, &previous));
    }
    return share_choices(links, grid, dev->type->channels, next.obstacle);
}

/* Collective in the groups of the side. */
static lk_status open_side(lk_links_side *side, lk_device *dev, const lk_links_opts *opts, bool next)
{
    lk_device_link **activations = next ? &side->out : &side->in, **gradients = next ? &side->in : &side->out;
    if (!side->channel)
        return LK_OK;
    lk_device_link_opts link = {.group = side->groups[ACTIVATIONS],
                                .dev = dev,
                                .channel = side->channel,
                                .most = next ? opts->next : opts->previous,
                                .lanes = opts->lanes};
    LK_TRY(lk__device_link_create(&link, activations));
    link.group = side->groups[GRADIENTS];
    return lk__device_link_create(&link, gradients);
}

lk_status lk__links_open(lk_links *links, const lk_grid *grid, lk_device *dev, const lk_links_opts *opts)
{
    for (int odd = 0; odd < 2; odd++) {
        bool next = grid->stage % 2 == odd;
        LK_TRY(open_side(next ? &links->next : &links->previous, dev, opts, next));
    }
    return LK_OK;
}

static void leave_side(lk_links_side *side, bool next)
{
    lk__device_link_leave(next ? side->out : side->in);
    lk__device_link_leave(next ? side->in : side->out);
}

static void destroy_groups(lk_links_side *side)
{
    for (int g = 0; g < 2; g++) {
        lk_group_destroy(side->groups[g]);
        side->groups[g] = NULL;
    }
}

void lk__links_leave(lk_links *links)
{
    leave_side(&links->previous, false);
    leave_side(&links->next, true);
    destroy_groups(&links->previous);
    destroy_groups(&links->next);
}

/* Both ends of a pair close activations before gradients: libraries may wait for the other end. */
static void close_side(lk_links_side *side, bool next)
{
    lk__device_link_destroy(next ? side->out : side->in);
    lk__device_link_destroy(next ? side->in : side->out);
    *side = (lk_links_side){0};
}

void lk__links_fini(lk_links *links)
{
    close_side(&links->previous, false);
    close_side(&links->next, true);
}

lk_status lk__links_clear(const lk_links *links, int lane)
{
    if (links->previous.out)
        LK_TRY(lk__device_link_clear(links->previous.out, lane));
    return links->next.out ? lk__device_link_clear(links->next.out, lane) : LK_OK;
}
