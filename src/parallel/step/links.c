/* links.c - opening the links of a stage, pair after pair. */
#include "parallel/step/links.h"

enum { ACTIVATIONS, GRADIENTS };

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
static lk_status open_side(lk_links_side *side, const lk_links_opts *opts, bool next)
{
    lk_device_channel_choice choice = {0};
    lk_device_link **activations = next ? &side->out : &side->in, **gradients = next ? &side->in : &side->out;
    if (!side->groups[ACTIVATIONS])
        return LK_OK;
    LK_TRY(lk__device_channel_choose(side->groups[ACTIVATIONS], opts->dev, &choice));
    if (!choice.channel)
        return LK_OK;
    lk_device_link_opts link = {.group = side->groups[ACTIVATIONS],
                                .dev = opts->dev,
                                .channel = choice.channel,
                                .most = next ? opts->next : opts->previous,
                                .lanes = opts->lanes};
    LK_TRY(lk__device_link_create(&link, activations));
    link.group = side->groups[GRADIENTS];
    return lk__device_link_create(&link, gradients);
}

/* Even pairs first, so that no stage waits for a neighbour that waits for another one. */
lk_status lk__links_init(lk_links *links, const lk_links_opts *opts)
{
    for (int odd = 0; odd < 2 && odd + 1 < opts->grid->stages; odd++) {
        bool next = opts->grid->stage % 2 == odd;
        LK_TRY(split_pairs(links, opts->grid, odd));
        LK_TRY(open_side(next ? &links->next : &links->previous, opts, next));
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
