/* nonfinite.c - checking a step for non-finite values, and finding the parameter, sample or shard.
 *
 * A rank checks its own partial sums before they are added to those of other ranks; in a recorded step the
 * devices check the losses and sums of all ranks. If a value is non-finite, nothing has been updated yet,
 * and each rank computes the gradients of its shards again, one by one. */
#include "parallel/step/nonfinite.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "parallel/agree.h"
#include "parallel/step/run_waves.h"

/* The result of a rank's check of its own partial sums. If they are LARGE, the sum over the ranks may not be
 * finite. */
enum { FINITE, LARGE, NONFINITE };

static const char advice[] = "if the weights and the data are sound, a smaller learning rate may help";

/* The number of the current step, which the optimiser has not counted. */
static unsigned long long step_number(const lk_engine *engine)
{
    return (unsigned long long)lk__optim_steps(engine->optim) + 1;
}

/* The first shard of this rank with a non-finite loss, or -1. */
static int find_loss(const lk_engine *engine, const lk_engine_part *part, char *text, size_t bytes)
{
    const lk_waves *waves = engine->waves;
    for (int s = waves->first; lk__engine_has_losses(engine) && s < waves->last; s++) {
        for (size_t i = lk__waves_own(waves, s), end = lk__waves_own(waves, s + 1); i < end; i++) {
            if (isfinite(engine->host_losses[i]))
                continue;
            snprintf(text, bytes, "step %llu: the loss of sample %u (shard %d) is %g; %s", step_number(engine),
                     part->names[i], s, (double)engine->host_losses[i], advice);
            return s;
        }
    }
    return -1;
}

/* Finds the shard whose gradient has the non-finite element that the buckets found; -1 if only the sum of the
 * shards is non-finite. Collective over the stages of a replica. */
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

/* In place of a shard: only the sum over the shards is non-finite, or the shard is not known. */
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

/* Collective: NONFINITE with the text of the rank with the lowest precedence; ranks that have found nothing
 * give -1 (see lk__agree_failure). */
static lk_status fail_nonfinite(lk_engine *engine, int precedence, const char *text)
{
    if (engine->grid.world)
        return lk__agree_failure(engine->grid.world, precedence, text, LK_STATUS_NONFINITE, &engine->agreed);
    return precedence >= 0 ? lk__fail(LK_STATUS_NONFINITE, "%s", text) : LK_OK;
}

/* Collective: NONFINITE with the key of a non-finite parameter, if any rank has one. */
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

/* Collective: NONFINITE with parameter and shard, if a rank's own partial sums are non-finite. */
static lk_status fail_own_sums(lk_engine *engine, const lk_engine_part *part)
{
    char text[LK_AGREED_TEXT] = "";
    size_t element = engine->buckets->bad;
    bool mine = element < engine->params->count;
    int shard = -1;
    LK_TRY(find_shard(engine, part, &shard));
    if (mine)
        describe_grad(engine, element, shard >= 0 ? shard : THE_SUM, text, sizeof text);
    int precedence = shard >= 0 ? shard : engine->waves->last;
    return fail_nonfinite(engine, mine ? precedence : -1, text);
}

/* Collective: repeats the passes of a recorded step if all ranks have kept its samples; *out says whether. */
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

/* Collective, after the checks of losses and own sums: NONFINITE if any rank gives an element of the gradient
 * summed over the ranks; a rank that has none gives an index out of range. */
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

/* MISMATCH if the ranks have parts of batches of different sizes. */
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

/* MISMATCH if only some of the ranks that have samples give weights. */
static lk_status check_weights(lk_engine *engine, const lk_engine_part *part, bool some, bool not_all)
{
    char text[LK_AGREED_TEXT];
    bool bare = part->count > 0 && !part->weights;
    if (!some || !not_all)
        return LK_OK;
    snprintf(text, sizeof text, "rank %d has a batch without `weights`, others have weights; give them at all ranks",
             lk_group_rank(engine->grid.world));
    LK_TRY(lk__buckets_wait_all(engine->buckets));
    return lk__agree_failure(engine->grid.world, bare ? 0 : -1, text, LK_STATUS_MISMATCH, &engine->agreed);
}

/* A word of a signal level and a rank. The largest word of all ranks has the largest level and, of the ranks
 * with this level, the lowest. Level 0 is the word 0. */
enum { RANK_BITS = 32 };

static int64_t signal_word(const lk_engine *engine)
{
    int level = engine->signal_source ? engine->signal_source(engine->signal_arg) : 0;
    int rank = engine->grid.world ? lk_group_rank(engine->grid.world) : 0;
    return level > 0 ? ((int64_t)level << RANK_BITS) + (INT32_MAX - rank) : 0;
}

/* The words that the ranks exchange; each gets the maximum over the ranks. */
enum { MOST, MINUS_LEAST, RAISED, WORST, WEIGHTED, BARE, WORDS };

static lk_status exchange_words(lk_engine *engine, const lk_engine_part *part, int64_t worst, int64_t all[WORDS])
{
    size_t total = part->total;
    all[MOST] = (int64_t)total;
    all[MINUS_LEAST] = -(int64_t)total;
    all[RAISED] = signal_word(engine);
    all[WORST] = worst;
    all[WEIGHTED] = part->count > 0 && part->weights;
    all[BARE] = part->count > 0 && !part->weights;
    if (engine->grid.world)
        LK_TRY(lk_allreduce(engine->grid.world, (lk_buffer){all, WORDS, LK_DTYPE_I64}, LK_REDUCTION_MAX, NULL));
    engine->agreed_signal = (int)(all[RAISED] >> RANK_BITS);
    engine->agreed_signal_rank = (int)(INT32_MAX - (all[RAISED] & UINT32_MAX));
    LK_TRY(check_total(engine, (size_t)-all[MINUS_LEAST], (size_t)all[MOST], total));
    return check_weights(engine, part, all[WEIGHTED], all[BARE]);
}

lk_status lk__nonfinite_check_total(lk_engine *engine, const lk_engine_part *part)
{
    int64_t all[WORDS];
    return exchange_words(engine, part, FINITE, all);
}

/* The check of this rank's losses and partial sums, in a step that is done at once. */
static int64_t check_own_values(const lk_engine *engine, const lk_engine_part *part)
{
    if (engine->opts.allow_nonfinite)
        return FINITE;
    if (engine->buckets->bad < engine->params->count || find_loss(engine, part, NULL, 0) >= 0)
        return NONFINITE;
    return engine->buckets->large ? LARGE : FINITE;
}

lk_status lk__nonfinite_check_step(lk_engine *engine, const lk_engine_part *part, const lk_flag *found, bool *bad)
{
    int64_t all[WORDS], worst = !found ? check_own_values(engine, part) : found->bad ? NONFINITE : FINITE;
    LK_TRY(exchange_words(engine, part, worst, all));
    engine->may_overflow = all[WORST] == LARGE;
    *bad = all[WORST] == NONFINITE;
    return LK_OK;
}

/* Enqueues the check of the losses of all ranks and of the summed gradients. The flag's index counts the
 * losses first, then the gradients. */
static lk_status flag_nonfinite(lk_engine *engine, const lk_engine_part *part)
{
    lk_device *dev = engine->dev;
    const lk_params *params = engine->params;
    lk_flag *flag = (lk_flag *)(uintptr_t)part->flag;
    if (engine->device_sums)
        LK_TRY(lk__device_sums_lead_share(engine->device_sums));
    if (engine->opts.allow_nonfinite)
        return LK_OK;
    lk_flag_part parts[] = {{.count = part->total, .x = engine->losses},
                            {.count = params->count, .x = params->grads, .base = part->total}};
    dev->kernels->flag_above(dev, sizeof parts / sizeof *parts, parts, FLT_MAX, flag);
    return LK_OK;
}

lk_status lk__nonfinite_check_sums(lk_engine *engine, const lk_engine_part *part)
{
    const lk_params *params = engine->params;
    size_t first = params->count;
    if (part->flag)
        return flag_nonfinite(engine, part);
    if (!engine->may_overflow)
        return LK_OK;
    LK_TRY(lk__buckets_first_above(params, params->grads, 0, params->count, FLT_MAX, &first));
    return fail_sum(engine, first, THE_SUM);
}
