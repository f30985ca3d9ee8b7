/* agree.c - compares between ranks what the engine does not compare: the options that table.c marks with
 * AGREED, the data, and the content of files. Paths of files may differ. */
#include "parallel/agree.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/text.h"
#include "data/sets/dataset.h"
#include "train/parts.h"

enum { HASHED_SAMPLES = 64 };

void lk__train_data_text(const lk_dataset *data, const char *split, uint64_t hash, char out[LK_DATA_TEXT])
{
    const lk_dataset_info *info = lk_dataset_get_info(data);
    char sizes[64];
    if (info->height == 0)
        snprintf(sizes, sizeof sizes, "several sizes");
    else
        snprintf(sizes, sizeof sizes, "%zux%zux%zu", info->channels, info->height, info->width);
    snprintf(out, LK_DATA_TEXT, "%zu %s samples of %s %s %zu %s (hash %016" PRIx64 ")", info->count, split, sizes,
             info->classes ? "in" : "with", info->classes ? info->classes : info->targets,
             info->classes ? "classes" : "targets", hash);
}

/* Adds a path that is shown in messages but not compared, because paths may differ between hosts. Newlines
 * and tabs in it are replaced. */
static void add_shown(lk_agree_text *lines, const char *option, const char *typed)
{
    char shown[LK_AGREED_VALUE];
    snprintf(shown, sizeof shown, "%s", typed);
    lk__text_clean(shown, LK_TEXT_KIND_LINE);
    lk__agree_add(lines, "%s %s\t", option, shown);
}

/* Data sets of the program's own are in memory, or a function reads them; those of image files are compared by
 * add_data. */
static lk_status add_own(lk_agree_text *lines, const char *field, const lk_dataset *data)
{
    uint64_t hash = 0;
    if (!data || lk__dataset_elements(data) == 0)
        return LK_OK;
    LK_TRY(lk__dataset_hash_samples(data, HASHED_SAMPLES, &hash));
    lk__agree_add(lines, "`%s` with samples of hash %016" PRIx64 "\n", field, hash);
    return LK_OK;
}

/* The first line has names and labels; if only the second one differs, the content of images differs. */
static lk_status add_data(lk_agree_text *lines, const char *split, const lk_dataset *data)
{
    char what[LK_DATA_TEXT];
    lk_dataset_contents contents;
    if (!data)
        return LK_OK;
    LK_TRY(lk__dataset_sample_contents(data, &contents));
    lk__train_data_text(data, split, lk__dataset_fingerprint(data), what);
    add_shown(lines, "`data`", lk_dataset_get_info(data)->name);
    lk__agree_add(lines, ", %s\n", what);
    if (contents.files == 0)
        return LK_OK;
    add_shown(lines, "`data`", lk_dataset_get_info(data)->name);
    lk__agree_add(lines,
                  ", whose %s images differ in content though names and labels agree (hash %016" PRIx64
                  " of %zu of %zu files)\n",
                  split, contents.hash, contents.read, contents.files);
    return LK_OK;
}

/* Each rank has chosen the checkpoint by itself, so the choices may differ. */
static void add_resume(lk_agree_text *lines, const char *path, const lk_checkpoint *resume)
{
    if (!resume) {
        lk__agree_add(lines, "`resume` nothing\n");
        return;
    }
    add_shown(lines, "`resume`", path);
    lk__agree_add(lines, ", a checkpoint of step %s (model %016" PRIx64 ", optimiser %016" PRIx64 ")\n",
                  lk_checkpoint_note(resume, "step"), lk_state_hash(lk_checkpoint_model(resume)),
                  lk_state_hash(lk_checkpoint_optimizer(resume)));
}

static void add_initial(lk_agree_text *lines, const char *path, const lk_state *initial)
{
    if (!initial) {
        lk__agree_add(lines, "`init_from` nothing\n");
        return;
    }
    add_shown(lines, "`init_from`", path);
    lk__agree_add(lines, ", a file of state hash %016" PRIx64 "\n", lk_state_hash(initial));
}

lk_status lk__train_agree_files(const lk_train_rank *rank, const char *split, const lk_dataset *data, bool *agreed)
{
    const lk_dataset_info *info = lk_dataset_get_info(data);
    lk_agree_text lines = {.at = ""};
    uint64_t hash = 0;
    LK_TRY(lk__dataset_hash_files(data, &hash));
    add_shown(&lines, "`data`", *info->path ? info->path : info->name);
    lk__agree_add(&lines, ", whose %s images and labels have the hash %016" PRIx64 "\n", split, hash);
    return lk__agree_lines(rank->group, lines.at, agreed);
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
    const lk_option *row;
    char shown[LK_AGREED_VALUE];
    lk_agree_text lines = {.at = ""};
    /* The checkpoint first: options that were not given come from it. */
    add_resume(&lines, opts->resume, shared->resume);
    for (size_t i = 0; (row = lk__train_option(i)) != NULL; i++)
        if (row->properties & LK_OPTION_AGREED)
            lk__agree_add_option(&lines, row, opts);
    LK_TRY(add_data(&lines, "training", lk__train_whole(shared)));
    LK_TRY(add_data(&lines, "test", shared->test));
    LK_TRY(add_own(&lines, "train", opts->train));
    LK_TRY(add_own(&lines, "test", opts->train ? shared->test : NULL));
    add_initial(&lines, opts->init_from, shared->initial);
    if (shared->test)
        lk__agree_add(&lines, "`test_augment` %s\n", lk__agree_value(shared->test_augment, shown));
    lk__agree_add(&lines, "`save_model` for %s\n", who_saves(opts));
    lk__agree_add(&lines, "`checkpoint` %s\n", opts->checkpoint ? "given" : "not given");
    return lk__agree_lines(rank->group, lines.at, agreed);
}
