/* options.c - writes options as notes of a checkpoint, and compares them at a resume. table.c marks the options
 * that are kept (KEPT), and those that change the result and must be equal (BOUND). Batch, shards and epochs
 * have their own checks here. */
#include <stdio.h>
#include <string.h>

#include "base/spec.h"
#include "base/utf8.h"
#include "train/parts.h"

enum { NUMBER = 40, NAME = 64 };

/* The name of an option's note: "--max-steps". */
static const char *note_name(const lk_option *row, char text[NAME])
{
    snprintf(text, NAME, "--%s", row->name);
    return text;
}

/* The options as a user would give them: batch and shards divided by accumulate, with "auto" and the rate 0
 * resolved. */
static lk_train_opts given_options(const lk_train_rank *rank, const lk_train_effective *effective)
{
    lk_train_opts opts = *rank->opts;
    opts.accumulate = opts.accumulate ? opts.accumulate : 1;
    opts.batch /= opts.accumulate;
    opts.shards /= (int)opts.accumulate;
    opts.augment = lk__train_augment(rank->shared->train, opts.augment);
    opts.lr = effective->lr;
    return opts;
}

/* A path that is not UTF-8 cannot be a note; it is left out and must be given again. */
lk_status lk__train_options_note(const lk_train_rank *rank, const lk_train_effective *effective,
                                 lk_checkpoint *checkpoint)
{
    lk_train_opts opts = given_options(rank, effective);
    const lk_option *row;
    for (size_t i = 0; (row = lk__train_option(i)) != NULL; i++) {
        char name[NAME], number[LK_OPTION_TEXT_BYTES];
        const char *text = row->properties & LK_OPTION_KEPT ? lk__option_value(row, &opts, number) : NULL;
        if (text && (row->properties & LK_OPTION_BOUND || lk__utf8_is_valid(text)))
            LK_TRY(lk_checkpoint_set_note(checkpoint, note_name(row, name), text));
    }
    return LK_OK;
}

static lk_status contradiction(const lk_train_rank *rank, const char *what, const char *here, const char *there)
{
    return lk__fail(
        LK_STATUS_USAGE,
        "%s %s contradicts the checkpoint %s, which has %s %s: leave %s out to go on with that run, or begin "
        "another one in a folder of its own",
        what, here, rank->opts->resume, what, there, what);
}

/* The model is a graph of the program's own, here or there. */
static lk_status other_model(const lk_train_rank *rank, const char *here, const char *there)
{
    const lk_train_opts *opts = rank->opts;
    return lk__fail(LK_STATUS_USAGE,
                    "`%s` %s is another model than that of the checkpoint %s, %s: resume with the same model, or begin "
                    "another run in a folder of its own",
                    opts->graph ? "graph" : "model", here, opts->resume, there);
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && lk__spec_same(a, b));
}

/* Compares the options that change the result. */
static lk_status check_bound(const lk_train_rank *rank, const lk_train_effective *effective)
{
    lk_train_opts opts = given_options(rank, effective);
    const lk_option *row;
    for (size_t i = 0; (row = lk__train_option(i)) != NULL; i++) {
        char name[NAME], what[NAME], number[LK_OPTION_TEXT_BYTES];
        if (!(row->properties & LK_OPTION_BOUND))
            continue;
        const char *here = lk__option_value(row, &opts, number);
        const char *there = lk_checkpoint_note(rank->shared->resume, note_name(row, name));
        snprintf(what, sizeof what, "`%s`", lk__option_field(row));
        if (same_text(here, there))
            continue;
        here = lk__option_shown(row, here);
        there = lk__option_shown(row, there);
        bool model = strcmp(row->name, "model") == 0 && (rank->opts->graph || lk__train_is_graph(there));
        return model ? other_model(rank, here, there) : contradiction(rank, what, here, there);
    }
    return LK_OK;
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
        LK_STATUS_USAGE,
        "%d shards contradict the checkpoint %s, which has %zu (`shards` times `accumulate`): shards belong "
        "to the result. Leave `shards` out to go on to the same bits, or add `reshard` to go on with %d, to "
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
    return contradiction(rank, opts->accumulate > 1 ? "`batch` (times `accumulate`)" : "`batch`", here, there);
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
        double now = lk_lr_schedule_lr(rank->shared->schedule, effective->lr, at);
        at.epochs = saved;
        stay = now == lk_lr_schedule_lr(rank->shared->schedule, effective->lr, at);
    }
    return stay;
}

/* The number of epochs may differ if the learning rates of all steps that are done stay the same. */
static lk_status check_epochs(const lk_train_rank *rank, const lk_train_effective *effective,
                              const lk_position *position)
{
    size_t saved = 0;
    LK_TRY(read_count(rank, "--epochs", &saved));
    if (lk__train_rates_stay(rank, effective, rank->opts->epochs, saved, position->step))
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE,
                    "`epochs` %zu contradicts the checkpoint %s, which has `epochs` %zu: with `schedule` %s the "
                    "rates of the steps that are done would have been others. Leave `epochs` out to go on with that "
                    "run",
                    rank->opts->epochs, rank->opts->resume, saved, rank->opts->schedule);
}

/* Where the rates or the end of the run depend on results, these depend on how they are computed. */
static lk_status check_evaluation(const lk_train_rank *rank)
{
    static const char *const names[] = {"test-batch-size", "test-augment"};
    const lk_option *row;
    if (!lk_lr_schedule_watches(rank->shared->schedule) && !rank->opts->early_stop)
        return LK_OK;
    for (size_t i = 0; (row = lk__train_option(i)) != NULL; i++) {
        char name[NAME], what[NAME], number[LK_OPTION_TEXT_BYTES];
        if (strcmp(row->name, names[0]) != 0 && strcmp(row->name, names[1]) != 0)
            continue;
        const char *here = lk__option_value(row, rank->opts, number);
        const char *there = lk_checkpoint_note(rank->shared->resume, note_name(row, name));
        snprintf(what, sizeof what, "`%s`", lk__option_field(row));
        if (!same_text(here, there))
            return contradiction(rank, what, lk__option_shown(row, here), lk__option_shown(row, there));
    }
    return LK_OK;
}

lk_status lk__train_options_check(const lk_train_rank *rank, const lk_train_effective *effective,
                                  const lk_position *position, int *shards, bool *touched)
{
    size_t batch = 0, waves = 0, saved = 0;
    LK_TRY(check_bound(rank, effective));
    LK_TRY(check_evaluation(rank));
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
