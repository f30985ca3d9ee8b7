/* agree.c - what all ranks must have been told alike, beside the engine's own
 * options: the data, and the course of the run. Where files lie may differ. */
#include "parallel/agree.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/text.h"
#include "data/sets/dataset.h"
#include "train/parts.h"

typedef struct text {
    char at[LK_AGREED_LINES];
    size_t used;
} text;

__attribute__((format(printf, 2, 3))) static void add(text *lines, const char *format, ...)
{
    va_list values;
    size_t room = sizeof lines->at - lines->used;
    va_start(values, format);
    int wrote = vsnprintf(lines->at + lines->used, room, format, values);
    va_end(values);
    assert(wrote >= 0 && (size_t)wrote < room);
    lines->used += (size_t)wrote;
}

static void add_value(text *lines, const char *option, const char *value)
{
    char shown[LK_AGREED_VALUE];
    add(lines, "%s %s\n", option, lk__agree_value(value, shown));
}

void lk__train_data_text(const lk_dataset *data, const char *split, uint64_t hash, char out[LK_DATA_TEXT])
{
    const lk_dataset_info *info = lk_dataset_get_info(data);
    char sizes[64];
    if (info->height == 0)
        snprintf(sizes, sizeof sizes, "several sizes");
    else
        snprintf(sizes, sizeof sizes, "%zux%zux%zu", info->channels, info->height, info->width);
    snprintf(out, LK_DATA_TEXT, "%zu %s samples of %s in %zu classes (hash %016" PRIx64 ")", info->count, split, sizes,
             info->classes, hash);
}

/* What a user typed, for a message alone: on other hosts the same may lie elsewhere.
 * A path may hold anything, lines and tabs among it. */
static void add_shown(text *lines, const char *option, const char *typed)
{
    char shown[LK_AGREED_VALUE];
    snprintf(shown, sizeof shown, "%s", typed);
    lk__text_clean(shown, LK_TEXT_LINE);
    add(lines, "%s %s\t", option, shown);
}

/* Names and labels first, so that a difference in the line behind them is of contents. */
static lk_status add_data(text *lines, const char *split, const lk_dataset *data)
{
    char what[LK_DATA_TEXT];
    lk_dataset_contents contents;
    if (!data)
        return LK_OK;
    LK_TRY(lk__dataset_sample_contents(data, &contents));
    lk__train_data_text(data, split, lk__dataset_fingerprint(data), what);
    add_shown(lines, "--data", lk_dataset_get_info(data)->name);
    add(lines, ", %s\n", what);
    if (contents.files == 0)
        return LK_OK;
    add_shown(lines, "--data", lk_dataset_get_info(data)->name);
    add(lines,
        ", whose %s images differ in content though names and labels agree (hash %016" PRIx64 " of %zu of %zu files)\n",
        split, contents.hash, contents.read, contents.files);
    return LK_OK;
}

/* Ranks that chose for themselves may have chosen differently. */
static void add_resume(text *lines, const char *path, const lk_checkpoint *resume)
{
    if (!resume) {
        add(lines, "--resume nothing\n");
        return;
    }
    add_shown(lines, "--resume", path);
    add(lines, ", a checkpoint of step %s (model %016" PRIx64 ", optimiser %016" PRIx64 ")\n",
        lk_checkpoint_note(resume, "step"), lk_state_hash(lk_checkpoint_model(resume)),
        lk_state_hash(lk_checkpoint_optimizer(resume)));
}

static void add_initial(text *lines, const char *path, const lk_state *initial)
{
    if (!initial) {
        add(lines, "--init-from nothing\n");
        return;
    }
    add_shown(lines, "--init-from", path);
    add(lines, ", a file of state hash %016" PRIx64 "\n", lk_state_hash(initial));
}

static const char *who_saves(const lk_train_opts *opts)
{
    if (!opts->save_model)
        return "nobody";
    return lk__train_saves(opts, 1) ? "every rank" : "rank 0";
}

lk_status lk__train_agree(const lk_train_rank *rank, bool *agreed)
{
    const lk_train_opts *opts = rank->opts;
    const lk_train_shared *shared = rank->shared;
    text lines = {.at = ""};
    /* First: options that were not given come from there. */
    add_resume(&lines, opts->resume, shared->resume);
    add(&lines, "--no-test %s\n", opts->no_test ? "on" : "off");
    LK_TRY(add_data(&lines, "training", shared->train));
    LK_TRY(add_data(&lines, "test", shared->test));
    add(&lines, "--epochs %zu\n--max-steps %zu\n", opts->epochs, opts->max_steps);
    add(&lines, "--dry-run %s\n", opts->dry_run ? "on" : "off");
    add(&lines, "--test-batch-size %zu\n--accumulate %zu\n", opts->test_batch, opts->accumulate);
    add_initial(&lines, opts->init_from, shared->initial);
    add_value(&lines, "--schedule", opts->schedule);
    add_value(&lines, "--init", opts->init ? opts->init : "as the model has it");
    add_value(&lines, "--init-skip", opts->init_skip ? opts->init_skip : "nothing");
    add_value(&lines, "--augment", opts->augment ? opts->augment : "auto");
    if (shared->test)
        add_value(&lines, "--test-augment", shared->test_augment);
    add(&lines, "--save-model for %s\n", who_saves(opts));
    add(&lines, "--checkpoint %s\n--save-every %zu\n--reshard %s\n", opts->checkpoint ? "given" : "not given",
        opts->save_every, opts->reshard ? "on" : "off");
    return lk__agree_lines(rank->group, lines.at, agreed);
}
