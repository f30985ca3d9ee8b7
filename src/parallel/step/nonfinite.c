/* nonfinite.c - finding out whose value is not finite.
 *
 * Ranks look at their own sums before these are mixed with others'. When any has
 * found something, nothing has been updated yet, and each computes the gradients
 * of its shards again, one by one. */
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "parallel/engine/agree.h"
#include "parallel/engine/engine_impl.h"

/* What a rank finds in its own sums. LARGE ones may have a total that is not
 * finite. */
enum { SOUND, LARGE, NONFINITE };

const char lk__nonfinite_advice[] = "if the weights and the data are sound, a smaller learning rate may help";

static unsigned long long step_number(const lk_engine *engine)
{
    return (unsigned long long)engine->step;
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
                     part->ids[i], s, (double)engine->loss[i], lk__nonfinite_advice);
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

static void describe_grad(const lk_engine *engine, size_t element, int shard, char *text, size_t bytes)
{
    char key[LK_MAX_KEY], where[32] = "the sum over shards";
    lk__params_key_at(engine->params, element, key);
    if (shard >= 0)
        snprintf(where, sizeof where, "shard %d", shard);
    snprintf(text, bytes, "step %llu: the gradient of %s is not finite (%s); %s", step_number(engine), key, where,
             lk__nonfinite_advice);
}

lk_status lk__nonfinite_fail(lk_engine *engine, int place, const char *text)
{
    if (engine->grid.world)
        return lk__agree_failure(engine->grid.world, place, text, LK_STATUS_NONFINITE, &engine->agreed);
    return place >= 0 ? lk__fail(LK_STATUS_NONFINITE, "%s", text) : LK_OK;
}

lk_status lk__nonfinite_fail_parameters(lk_engine *engine, unsigned long long step)
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
            step, key, rank);
    }
    return lk__nonfinite_fail(engine, first < params->count ? engine->grid.stage : -1, text);
}

static lk_status explain(lk_engine *engine, const lk_engine_part *part)
{
    char text[LK_AGREED_TEXT] = "";
    size_t element = engine->buckets->bad;
    int shard = -1;
    LK_TRY(lk__buckets_wait_all(engine->buckets));
    LK_TRY(lk__nonfinite_fail_parameters(engine, step_number(engine)));
    LK_TRY(lk__nonfinite_fail(engine, find_loss(engine, part, text, sizeof text), text));
    LK_TRY(find_shard(engine, part, &shard));
    bool mine = element < engine->params->count;
    if (mine)
        describe_grad(engine, element, shard, text, sizeof text);
    int place = shard >= 0 ? shard : engine->waves->last;
    return lk__nonfinite_fail(engine, mine ? place : -1, text);
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

/* What the ranks tell each other in one message: the largest of each. */
enum { MOST, MINUS_LEAST, RAISED, WORST, ROUND };

static lk_status go_round(lk_engine *engine, size_t total, int64_t worst, int64_t all[ROUND])
{
    all[MOST] = (int64_t)total;
    all[MINUS_LEAST] = -(int64_t)total;
    all[RAISED] = lk__engine_raise(engine);
    all[WORST] = worst;
    if (engine->grid.world)
        LK_TRY(lk_allreduce(engine->grid.world, (lk_buffer){all, ROUND, LK_DTYPE_I64}, LK_REDUCTION_MAX, NULL));
    lk__engine_note_raised(engine, all[RAISED]);
    return check_total(engine, (size_t)-all[MINUS_LEAST], (size_t)all[MOST], total);
}

lk_status lk__nonfinite_check_total(lk_engine *engine, size_t total)
{
    int64_t all[ROUND];
    return go_round(engine, total, SOUND, all);
}

lk_status lk__nonfinite_check_recorded(lk_engine *engine, size_t total, bool *bad)
{
    int64_t all[ROUND];
    LK_TRY(go_round(engine, total, *bad ? NONFINITE : SOUND, all));
    *bad = all[WORST] == NONFINITE;
    return LK_OK;
}

lk_status lk__nonfinite_check_step(lk_engine *engine, const lk_engine_part *part)
{
    char text[LK_AGREED_TEXT];
    bool care = !engine->opts.allow_nonfinite;
    int64_t worst = engine->buckets->large ? LARGE : SOUND, all[ROUND];
    if (care && (engine->buckets->bad < engine->params->count || find_loss(engine, part, text, sizeof text) >= 0))
        worst = NONFINITE;
    LK_TRY(go_round(engine, part->total, worst, all));
    engine->doubtful = care && all[WORST] == LARGE;
    return all[WORST] == NONFINITE ? explain(engine, part) : LK_OK;
}

lk_status lk__nonfinite_check_sums(lk_engine *engine)
{
    char text[LK_AGREED_TEXT] = "";
    size_t count = engine->params->count, first = count;
    if (!engine->doubtful)
        return LK_OK;
    LK_TRY(lk__buckets_first_above(engine->params, engine->params->grads, 0, count, FLT_MAX, &first));
    if (first < count)
        describe_grad(engine, first, -1, text, sizeof text);
    return lk__nonfinite_fail(engine, first < count ? engine->grid.stage : -1, text);
}
