/* options.c - the options that a checkpoint keeps, and whether a run that goes on
 * from it was told the same. Those of the result must be the same; others are
 * kept for whoever goes on without saying them again. Where and on how many ranks
 * the work is done is not among them. */
#include <stdio.h>
#include <string.h>

#include "base/spec.h"
#include "io/io.h"
#include "train/parts.h"

enum { NUMBER = 40 };

/* What is done with each option: its value as text, NULL where it has none. */
typedef struct visitor {
    lk_status (*each)(struct visitor *v, const char *name, const char *text, bool bound);
    const lk_train_rank *rank;
    const lk_train_effective *effective;
    lk_checkpoint *to;
} visitor;

static lk_status visit_count(visitor *v, const char *name, size_t value, bool bound)
{
    char text[NUMBER];
    snprintf(text, sizeof text, "%zu", value);
    return v->each(v, name, text, bound);
}

/* 0 stands for an option that was not given. */
static lk_status visit_given(visitor *v, const char *name, size_t value, bool bound)
{
    return value ? visit_count(v, name, value, bound) : v->each(v, name, NULL, bound);
}

static lk_status visit_real(visitor *v, const char *name, double value, bool bound)
{
    char text[LK_NUMBER_TEXT];
    return v->each(v, name, lk__number_text(value, text), bound);
}

static const char SCHEDULE[] = "--schedule";

static lk_status visit_result(visitor *v)
{
    const lk_train_opts *opts = v->rank->opts;
    LK_TRY(v->each(v, "--model", opts->model, true));
    LK_TRY(v->each(v, "--augment", lk__train_augment(v->rank->shared->train, opts->augment), true));
    LK_TRY(visit_count(v, "--seed", opts->seed, true));
    LK_TRY(v->each(v, "--optimizer", opts->optimizer, true));
    LK_TRY(visit_real(v, "--lr", v->effective->lr, true));
    LK_TRY(v->each(v, SCHEDULE, opts->schedule, true));
    if (opts->clip_norm > 0)
        LK_TRY(visit_real(v, "--clip-norm", opts->clip_norm, true));
    else
        LK_TRY(v->each(v, "--clip-norm", NULL, true));
    LK_TRY(visit_real(v, "--label-smoothing", opts->label_smoothing, true));
    LK_TRY(v->each(v, "--init", opts->init, true));
    return v->each(v, "--bn", opts->bn == LK_BN_BATCH ? "batch" : "shard", true);
}

/* Not bound, or bound in a way of their own. */
static lk_status visit_others(visitor *v)
{
    const lk_train_opts *opts = v->rank->opts;
    size_t waves = opts->accumulate ? opts->accumulate : 1;
    LK_TRY(v->each(v, "--data", opts->data, false));
    LK_TRY(v->each(v, "--data-dir", opts->data_dir, false));
    LK_TRY(v->each(v, "--test-augment", opts->test_augment, false));
    LK_TRY(visit_count(v, "--batch-size", opts->batch / waves, false));
    LK_TRY(visit_count(v, "--accumulate", waves, false));
    LK_TRY(visit_count(v, "--shards", (size_t)opts->shards / waves, false));
    LK_TRY(visit_count(v, "--test-batch-size", opts->test_batch, false));
    LK_TRY(visit_count(v, "--epochs", opts->epochs, false));
    LK_TRY(v->each(v, "--precision", lk__device_precision_names[opts->precision], false));
    LK_TRY(visit_given(v, "--max-steps", opts->max_steps, false));
    LK_TRY(v->each(v, "--no-test", opts->no_test ? "true" : NULL, false));
    LK_TRY(v->each(v, "--save-model", opts->save_model, false));
    LK_TRY(visit_given(v, "--save-every", opts->save_every, false));
    return visit_count(v, "--keep", opts->keep, false);
}

/* A path that a note cannot hold must be given again. */
static lk_status note_option(visitor *v, const char *name, const char *text, bool bound)
{
    if (!text || (!bound && !lk__utf8_is_valid(text)))
        return LK_OK;
    return lk_checkpoint_set_note(v->to, name, text);
}

lk_status lk__train_options_note(const lk_train_rank *rank, const lk_train_effective *effective,
                                 lk_checkpoint *checkpoint)
{
    visitor v = {.each = note_option, .rank = rank, .effective = effective, .to = checkpoint};
    LK_TRY(visit_result(&v));
    return visit_others(&v);
}

static lk_status contradiction(const lk_train_rank *rank, const char *name, const char *here, const char *there)
{
    return lk__fail(
        LK_STATUS_MISMATCH,
        "%s %s contradicts the checkpoint %s, which has %s %s: leave %s out to go on with that run, or begin "
        "another one in a folder of its own",
        name, here ? here : "(not given)", rank->opts->resume, name, there ? there : "(not given)",
        strcmp(name, SCHEDULE) == 0 ? "--schedule or --gamma" : name);
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && lk__spec_same(a, b));
}

static lk_status check_option(visitor *v, const char *name, const char *text, bool bound)
{
    const char *there = lk_checkpoint_note(v->rank->shared->resume, name);
    if (!bound || same_text(text, there))
        return LK_OK;
    return contradiction(v->rank, name, text, there);
}

static lk_status read_count(const lk_train_rank *rank, const char *name, size_t *out)
{
    const char *text = lk_checkpoint_note(rank->shared->resume, name);
    long long value;
    if (!text || !lk__number_parse_int(text, 0, INT64_MAX, &value))
        return lk__fail(LK_STATUS_FORMAT, "%s: the note '%s' is '%s', which is no whole number", rank->opts->resume,
                        name, text ? text : "");
    *out = (size_t)value;
    return LK_OK;
}

static lk_status check_shards(const lk_train_rank *rank, size_t saved)
{
    const lk_train_opts *opts = rank->opts;
    if ((size_t)opts->shards == saved || opts->reshard)
        return LK_OK;
    return lk__fail(
        LK_STATUS_MISMATCH,
        "%d shards contradict the checkpoint %s, which has %zu (--shards times --accumulate): shards belong "
        "to the result. Leave --shards out to go on to the same bits, or add --reshard to go on with %d, to "
        "other bits",
        opts->shards, opts->resume, saved, opts->shards);
}

static lk_status check_batch(const lk_train_rank *rank, size_t saved)
{
    const lk_train_opts *opts = rank->opts;
    char here[NUMBER], there[NUMBER];
    if (opts->batch == saved)
        return LK_OK;
    snprintf(here, sizeof here, "%zu", opts->batch);
    snprintf(there, sizeof there, "%zu", saved);
    return contradiction(rank, opts->accumulate > 1 ? "--batch-size (times --accumulate)" : "--batch-size", here,
                         there);
}

bool lk__train_rates_stay(const lk_train_rank *rank, const lk_train_effective *effective, size_t epochs, size_t saved,
                          size_t steps)
{
    bool stay = true;
    for (size_t step = 0; stay && saved != epochs && step < steps; step++) {
        lk_lr_schedule_at at = {.epoch = step / effective->batches,
                                .epochs = epochs,
                                .batch = step % effective->batches,
                                .batches = effective->batches};
        double now = lk__lr_schedule_lr(rank->shared->schedule, effective->lr, at);
        at.epochs = saved;
        stay = now == lk__lr_schedule_lr(rank->shared->schedule, effective->lr, at);
    }
    return stay;
}

/* A run may become longer or shorter where the rates of its past stay. */
static lk_status check_epochs(const lk_train_rank *rank, const lk_train_effective *effective,
                              const lk_position *position)
{
    size_t saved = 0;
    LK_TRY(read_count(rank, "--epochs", &saved));
    if (lk__train_rates_stay(rank, effective, rank->opts->epochs, saved, position->step))
        return LK_OK;
    return lk__fail(LK_STATUS_MISMATCH,
                    "--epochs %zu contradicts the checkpoint %s, which has --epochs %zu: with --schedule %s the "
                    "rates of the steps that are done would have been others. Leave --epochs out to go on with that "
                    "run",
                    rank->opts->epochs, rank->opts->resume, saved, rank->opts->schedule);
}

lk_status lk__train_options_check(const lk_train_rank *rank, const lk_train_effective *effective,
                                  const lk_position *position, int *shards, bool *touched)
{
    visitor v = {.each = check_option, .rank = rank, .effective = effective};
    size_t batch = 0, waves = 0, saved = 0;
    LK_TRY(visit_result(&v));
    LK_TRY(lk__data_notes_check(rank->shared->data_notes, rank->opts, rank->shared->resume, touched));
    LK_TRY(read_count(rank, "--batch-size", &batch));
    LK_TRY(read_count(rank, "--accumulate", &waves));
    LK_TRY(read_count(rank, "--shards", &saved));
    LK_TRY(check_batch(rank, batch * waves));
    LK_TRY(check_shards(rank, saved * waves));
    LK_TRY(check_epochs(rank, effective, position));
    if (position->step != position->epoch * effective->batches + position->batch ||
        position->batch > effective->batches)
        return lk__fail(LK_STATUS_FORMAT, "%s: step %zu is not batch %zu of epoch %zu, of %zu batches each",
                        rank->opts->resume, position->step, position->batch, position->epoch, effective->batches);
    *shards = (int)(saved * waves);
    return LK_OK;
}
