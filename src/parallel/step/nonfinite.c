/* nonfinite.c - looking for values that are not finite, and finding out whose they are.
 *
 * Ranks look at their own sums before these are mixed with others'; in a recorded step
 * the devices look at the losses and sums of all. When something was found, nothing has
 * been updated, and each rank computes the gradients of its shards again, one by one. */
#include "parallel/step/nonfinite.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "parallel/agree.h"
#include "parallel/step/run_waves.h"

/* What a rank finds in its own sums. LARGE ones may have a total that is not
 * finite. */
enum { SOUND, LARGE, NONFINITE };

static const char advice[] = "if the weights and the data are sound, a smaller learning rate may help";

/* Of the step at hand, which is not yet counted, or not any more. */
static unsigned long long step_number(const lk_engine *engine)
{
    return (unsigned long long)lk__optim_steps(engine->optim) + 1;
}

/* The first shard of this rank with such a loss, or -1. */
static int find_loss(const lk_engine *engine, const lk_engine_part *part, char *text, size_t bytes)
{
    const lk_waves *waves = engine->waves;
    for (int s = waves->first; lk__engine_has_losses(engine) && s < waves->last; s++) {
        for (size_t i = lk__waves_own(waves, s); i < lk__waves_own(waves, s + 1); i++) {
            if (isfinite(engine->loss[i]))
                continue;
            snprintf(text, bytes, "step %llu: the loss of sample %u (shard %d) is %g; %s", step_number(engine),
                     part->ids[i], s, (double)engine->loss[i], advice);
            return s;
        }
    }
    return -1;
}

/* Which shard made the element that buckets found non-finite; -1 when only their
 * sum is. Ranks of a pipeline take part in each other's search. */
static lk_status find_shard(lk_engine *engine, const lk_engine_part *part, int *out)
{
    size_t element = engine->buckets->bad;
    bool searching = element < engine->params->count;
    int found = -1;
    if (!searching && engine->grid.stages == 1) {
        *out = -1;
        return LK_OK;
    }
    for (int s = engine->waves->first; s < engine->waves->last; s++) {
        size_t first = element;
        LK_TRY(lk__engine_run_leaf(engine, part, s));
        if (searching && found < 0)
            LK_TRY(
                lk__buckets_first_above(engine->params, engine->params->grads, element, element + 1, FLT_MAX, &first));
        if (searching && found < 0 && first == element)
            found = s;
        if (found >= 0 && engine->grid.stages == 1)
            break;
    }
    *out = found;
    return LK_OK;
}

/* What to say of a gradient beside its shard. */
enum { THE_SUM = -1, UNKNOWN = -2 };

static void describe_grad(const lk_engine *engine, size_t element, int shard, char *text, size_t bytes)
{
    char key[LK_MAX_KEY], where[32] = "";
    lk__params_key_at(engine->params, element, key);
    if (shard == THE_SUM)
        snprintf(where, sizeof where, " (the sum over shards)");
    if (shard >= 0)
        snprintf(where, sizeof where, " (shard %d)", shard);
    snprintf(text, bytes, "step %llu: the gradient of %s is not finite%s; %s", step_number(engine), key, where, advice);
}

/* Together: NONFINITE with the text of the rank whose place is lowest; those with none
 * have -1, and a rank alone fails by its own. */
static lk_status fail_nonfinite(lk_engine *engine, int place, const char *text)
{
    if (engine->grid.world)
        return lk__agree_failure(engine->grid.world, place, text, LK_STATUS_NONFINITE, &engine->agreed);
    return place >= 0 ? lk__fail(LK_STATUS_NONFINITE, "%s", text) : LK_OK;
}

/* Together: NONFINITE with the key of a parameter that is not finite, if any rank has one. */
static lk_status fail_parameters(lk_engine *engine)
{
    const lk_params *params = engine->params;
    char text[LK_AGREED_TEXT] = "", key[LK_MAX_KEY], rank[32] = "";
    size_t first = params->count;
    LK_TRY(lk__buckets_first_above(params, params->params, 0, params->count, FLT_MAX, &first));
    if (first < params->count) {
        lk__params_key_at(params, first, key);
        if (engine->grid.world)
            snprintf(rank, sizeof rank, " at rank %d", lk_group_rank(engine->grid.world));
        snprintf(
            text, sizeof text,
            "step %llu: before the step %s%s has a value that is not finite, from an earlier step or from where it "
            "was loaded; begin with sound weights, or with a smaller learning rate",
            step_number(engine), key, rank);
    }
    return fail_nonfinite(engine, first < params->count ? engine->grid.stage : -1, text);
}

/* Together: NONFINITE where a rank's own sums are not, with parameter and shard. */
static lk_status fail_own_sums(lk_engine *engine, const lk_engine_part *part)
{
    char text[LK_AGREED_TEXT] = "";
    size_t element = engine->buckets->bad;
    bool mine = element < engine->params->count;
    int shard = -1;
    LK_TRY(find_shard(engine, part, &shard));
    if (mine)
        describe_grad(engine, element, shard >= 0 ? shard : THE_SUM, text, sizeof text);
    int place = shard >= 0 ? shard : engine->waves->last;
    return fail_nonfinite(engine, mine ? place : -1, text);
}

/* Together: does the passes of a recorded step again, where all ranks still have its samples. */
static lk_status run_again(lk_engine *engine, const lk_engine_part *part, bool *out)
{
    int64_t can = part->x || part->resident;
    if (engine->grid.world)
        LK_TRY(lk_allreduce(engine->grid.world, (lk_buffer){&can, 1, LK_DTYPE_I64}, LK_REDUCTION_MIN, NULL));
    *out = can;
    if (!can)
        return LK_OK;
    LK_TRY(lk__engine_run_waves(engine, part));
    return lk__buckets_wait_all(engine->buckets);
}

/* Together, after losses and own sums: an element of the sum over all ranks, or their count. */
static lk_status fail_sum(lk_engine *engine, size_t element, int shard)
{
    char text[LK_AGREED_TEXT] = "";
    bool bad = element < engine->params->count;
    if (bad)
        describe_grad(engine, element, shard, text, sizeof text);
    return fail_nonfinite(engine, bad ? engine->grid.stage : -1, text);
}

lk_status lk__nonfinite_explain(lk_engine *engine, const lk_engine_part *part, const lk_flag *found)
{
    char text[LK_AGREED_TEXT] = "";
    bool there = !found;
    LK_TRY(lk__buckets_wait_all(engine->buckets));
    lk__waves_cut(engine->waves, part->total);
    LK_TRY(fail_parameters(engine));
    LK_TRY(fail_nonfinite(engine, find_loss(engine, part, text, sizeof text), text));
    if (found)
        LK_TRY(run_again(engine, part, &there));
    if (there)
        LK_TRY(fail_own_sums(engine, part));
    bool sums = found && found->bad && found->first >= part->total;
    LK_TRY(fail_sum(engine, sums ? (size_t)found->first - part->total : SIZE_MAX, there ? THE_SUM : UNKNOWN));
    engine->agreed = true; /* all have come to here */
    return lk__fail(LK_STATUS_NONFINITE, "step %llu: a loss or a gradient was not finite, but no rank finds which; %s",
                    step_number(engine), advice);
}

/* All ranks must have been given parts of one batch. */
static lk_status check_total(lk_engine *engine, size_t least, size_t most, size_t total)
{
    char text[LK_AGREED_TEXT];
    if (least == most)
        return LK_OK;
    snprintf(text, sizeof text,
             "rank %d has a batch of %zu samples, others have up to %zu; all must have parts of one batch",
             lk_group_rank(engine->grid.world), total, most);
    LK_TRY(lk__buckets_wait_all(engine->buckets));
    return lk__agree_failure(engine->grid.world, total == least ? 0 : -1, text, LK_STATUS_MISMATCH, &engine->agreed);
}

/* The largest of these words has the largest level and, of several ranks, the
 * lowest. 0 is for level 0. */
enum { RANK_BITS = 32 };

static int64_t raised_word(const lk_engine *engine)
{
    int level = engine->level ? engine->level(engine->level_arg) : 0;
    int rank = engine->grid.world ? lk_group_rank(engine->grid.world) : 0;
    return level > 0 ? ((int64_t)level << RANK_BITS) + (INT32_MAX - rank) : 0;
}

/* What the ranks tell each other in one message: the largest of each. */
enum { MOST, MINUS_LEAST, RAISED, WORST, ROUND };

static lk_status go_round(lk_engine *engine, size_t total, int64_t worst, int64_t all[ROUND])
{
    all[MOST] = (int64_t)total;
    all[MINUS_LEAST] = -(int64_t)total;
    all[RAISED] = raised_word(engine);
    all[WORST] = worst;
    if (engine->grid.world)
        LK_TRY(lk_allreduce(engine->grid.world, (lk_buffer){all, ROUND, LK_DTYPE_I64}, LK_REDUCTION_MAX, NULL));
    engine->raised = (int)(all[RAISED] >> RANK_BITS);
    engine->raised_by = (int)(INT32_MAX - (all[RAISED] & UINT32_MAX));
    return check_total(engine, (size_t)-all[MINUS_LEAST], (size_t)all[MOST], total);
}

lk_status lk__nonfinite_check_total(lk_engine *engine, size_t total)
{
    int64_t all[ROUND];
    return go_round(engine, total, SOUND, all);
}

/* What this rank knows of a step that was done now. */
static int64_t look_at_own(const lk_engine *engine, const lk_engine_part *part)
{
    if (engine->opts.allow_nonfinite)
        return SOUND;
    if (engine->buckets->bad < engine->params->count || find_loss(engine, part, NULL, 0) >= 0)
        return NONFINITE;
    return engine->buckets->large ? LARGE : SOUND;
}

lk_status lk__nonfinite_check_step(lk_engine *engine, const lk_engine_part *part, const lk_flag *found, bool *bad)
{
    int64_t all[ROUND], worst = !found ? look_at_own(engine, part) : found->bad ? NONFINITE : SOUND;
    LK_TRY(go_round(engine, part->total, worst, all));
    engine->doubtful = all[WORST] == LARGE;
    *bad = all[WORST] == NONFINITE;
    return LK_OK;
}

/* Losses are the first places of the flag, the gradients those behind. All ranks look at
 * the losses of all, and at the sums over all. */
static lk_status flag_nonfinite(lk_engine *engine, const lk_engine_part *part)
{
    lk_device *dev = engine->dev;
    const lk_params *params = engine->params;
    lk_flag *flag = (lk_flag *)(uintptr_t)part->flag;
    if (engine->direct)
        LK_TRY(lk__device_sums_lead_share(engine->direct));
    if (engine->opts.allow_nonfinite)
        return LK_OK;
    dev->kernels->flag_above(dev, part->total, FLT_MAX, engine->losses, 0, flag);
    dev->kernels->flag_above(dev, params->count, FLT_MAX, params->grads, part->total, flag);
    return LK_OK;
}

lk_status lk__nonfinite_check_sums(lk_engine *engine, const lk_engine_part *part)
{
    const lk_params *params = engine->params;
    size_t first = params->count;
    if (part->flag)
        return flag_nonfinite(engine, part);
    if (!engine->doubtful)
        return LK_OK;
    LK_TRY(lk__buckets_first_above(params, params->grads, 0, params->count, FLT_MAX, &first));
    return fail_sum(engine, first, THE_SUM);
}
