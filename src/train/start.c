/* start.c - information about a rank for the start event: rank and host, cuts of the stages, and a better
 * number of shards. */
#include "train/start.h"

#include "base/mem.h"
#include "base/tree.h"

lk_train_rank_info lk__train_rank_info(const lk_train_rank *rank)
{
    lk_group *group = rank->group;
    if (!group)
        return (lk_train_rank_info){.ranks = 1, .host = "", .transport = "", .device = rank->device};
    int number = lk_group_rank(group);
    return (lk_train_rank_info){
        .rank = number,
        .ranks = lk_group_size(group),
        .local_rank = lk_group_local_rank(group),
        .host = lk_group_host(group, number),
        .transport = lk_group_transport(group),
        .device = rank->device,
    };
}

int lk__train_better_shards(int shards, int replicas)
{
    int better = replicas;
    if (replicas == 1)
        return 0;
    while (better < shards && better <= LK_MAX_SHARDS / 2)
        better *= 2;
    return better == shards ? 0 : better;
}

lk_status lk__train_cuts(const lk_graph *graph, const char *spec, char (**out)[LK_LAYER_TEXT])
{
    int stages, first[LK_MAX_STAGES + 1];
    char(*cuts)[LK_LAYER_TEXT] = NULL;
    if (spec) {
        LK_TRY(lk__partition(graph, spec, &stages, first));
        LK_TRY(LK_ALLOC((size_t)stages, "the stages' names", &cuts));
        for (int stage = 1; stage < stages; stage++)
            lk__partition_layer_text(graph, first[stage], cuts[stage - 1]);
    }
    *out = cuts;
    return LK_OK;
}
