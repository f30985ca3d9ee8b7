/* resume.c - options from a checkpoint or a model file; the command line and a file of options have precedence. train
 * checks whether they contradict the checkpoint. */
#include "cli/options/resume.h"

#include <stdio.h>
#include <string.h>

#include "base/spec.h"
#include "cli/options/run_folder.h"
#include "io/checkpoint/checkpoint.h"
#include "io/state/state_file.h"
#include "train/description.h"

enum { VALUE_BYTES = 1024 };

/* The checkpoint whose notes are in use, and its folder. */
static struct {
    lk_resume found;
    char dir[LK_PATH_BYTES], source[LK_PATH_BYTES];
    char texts[2][VALUE_BYTES]; /* values from the run folder */
    char model[LK_PATH_BYTES];  /* of a run folder */
    lk_state *notes;            /* of a model file, or NULL */
} loaded;

const lk_resume *lk__cli_resume_found(void)
{
    return &loaded.found;
}

void lk__cli_resume_unload(void)
{
    lk__resume_fini(&loaded.found);
    lk_state_destroy(loaded.notes);
    loaded.notes = NULL;
}

/* --gamma is another way to write --schedule. */
static bool is_said(const lk_options_set *set, const lk_options_parsed *parsed, const char *name)
{
    return lk__options_given(set, parsed, name) ||
           (strcmp(name, "schedule") == 0 && lk__options_given(set, parsed, "gamma"));
}

/* Makes entries from the notes that are options of the set and were not given; returns their number. */
static size_t take_entries(const lk_options_set *set, const lk_options_parsed *parsed, lk_options_entry *entries)
{
    const lk_checkpoint *notes = loaded.found.notes;
    size_t count = 0;
    const char *name;
    for (size_t i = 0; (name = lk_checkpoint_note_name(notes, i)) != NULL && count < LK_OPTIONS_MAX; i++) {
        const lk_option *row = strncmp(name, "--", 2) == 0 ? lk__options_find(set, name + 2) : NULL;
        if (row && !is_said(set, parsed, row->name))
            entries[count++] =
                (lk_options_entry){.row = row, .value = lk_checkpoint_note(notes, name), .source = loaded.source};
    }
    return count;
}

static lk_status fill(const lk_options_set *set, lk_args *args, lk_options_parsed *parsed)
{
    lk_options_entry entries[LK_OPTIONS_MAX];
    snprintf(loaded.source, sizeof loaded.source, "%s", loaded.found.path);
    size_t count = take_entries(set, parsed, entries);
    return lk__options_fill(set, entries, count, args, parsed);
}

/* The folder that contains path, or path itself if it is a folder of checkpoints. */
static void folder_of(const char *path)
{
    size_t length = strlen(path);
    snprintf(loaded.dir, sizeof loaded.dir, "%s", path);
    if (!lk__checkpoint_is(path))
        return;
    while (length > 1 && path[length - 1] == '/')
        length--;
    while (length > 0 && path[length - 1] != '/')
        length--;
    while (length > 1 && path[length - 1] == '/')
        length--;
    snprintf(loaded.dir, sizeof loaded.dir, "%.*s", length ? (int)length : 1, length ? path : ".");
}

/* Options that a checkpoint does not have as they were given, and the folder of its run has: how often rows are
 * written, and an --augment of "auto". */
static lk_status fill_from_run(const lk_options_set *set, lk_args *args, lk_options_parsed *parsed)
{
    static const char *const names[] = {"log-interval", "augment"};
    const char *run = lk_checkpoint_note(loaded.found.notes, lk__train_run_note);
    lk_options_entry entries[sizeof names / sizeof *names];
    size_t count = 0;
    for (size_t i = 0; args->log_dir && run && i < sizeof names / sizeof *names; i++) {
        if (!is_said(set, parsed, names[i]) &&
            lk__cli_run_option(args->log_dir, run, names[i], loaded.texts[i], sizeof loaded.texts[i]))
            entries[count++] = (lk_options_entry){
                .row = lk__options_find(set, names[i]), .value = loaded.texts[i], .source = loaded.source};
    }
    return lk__options_fill(set, entries, count, args, parsed);
}

/* Runs that may be of this line, and are not taken. */
static void notice_damaged(const lk_cli_run_found *found, lk_args *args)
{
    char more[64] = "";
    if (found->damaged > 1)
        snprintf(more, sizeof more, " (and %zu more)", found->damaged - 1);
    if (found->damaged)
        snprintf(
            args->notice, sizeof args->notice,
            "--resume auto: the folder of a run with checkpoints is passed over%s: %s; --resume FOLDER/checkpoints "
            "goes on with them",
            more, found->why);
}

/* --resume auto without --checkpoint looks for a run of the same line in --log-dir. */
static lk_status search_runs(const lk_cli_run_line *line, lk_args *args)
{
    lk_cli_run_found found;
    LK_TRY(lk__cli_run_find(line, args->log_dir, &found));
    notice_damaged(&found, args);
    snprintf(loaded.dir, sizeof loaded.dir, "%s", found.checkpoints);
    args->resume_searched = true;
    if (*loaded.dir)
        args->train.checkpoint = loaded.dir;
    return LK_OK;
}

lk_status lk__cli_resume_options(const lk_cli_run_line *line, lk_args *args, lk_options_parsed *parsed)
{
    const char *where = *args->resume && strcmp(args->resume, "auto") != 0 ? args->resume : NULL;
    lk__cli_resume_unload();
    if (!where && !args->train.checkpoint && args->log_dir) {
        LK_TRY(search_runs(line, args));
        if (!args->train.checkpoint)
            return LK_OK;
    }
    LK_TRY(lk__resume_find(where, args->train.checkpoint, &loaded.found));
    if (!*loaded.found.path)
        return LK_OK;
    snprintf(loaded.source, sizeof loaded.source, "%s", loaded.found.path);
    LK_TRY(fill_from_run(line->set, args, parsed));
    LK_TRY(fill(line->set, args, parsed));
    args->train.resume = loaded.found.path;
    args->resume_exact = loaded.found.exact;
    if (where && !args->train.checkpoint) {
        folder_of(where);
        args->train.checkpoint = loaded.dir;
    }
    return LK_OK;
}

/* The options that the notes of a model file give. */
static const struct {
    const char *option, *note;
    bool told; /* whether another value is reported; other transforms are meant for other images */
} described[] = {{"model", lk__description_model, true},
                 {"data", lk__description_data, true},
                 {"test-augment", lk__description_transforms, false}};

enum { DESCRIBED = sizeof described / sizeof *described };

/* Options that were given win, and it is said that the file has others. */
static void notice_contradiction(const char *path, const lk_option *row, const char *text, lk_args *args)
{
    char number[LK_OPTION_TEXT_BYTES];
    const char *here = lk__option_value(row, args, number);
    size_t used = strlen(args->notice);
    if (!here || lk__spec_same(here, text))
        return;
    snprintf(args->notice + used, sizeof args->notice - used, "%s--%s %s contradicts %s, which says %s; %s is used",
             used ? "; " : "", row->name, here, path, text, here);
}

/* The options of the set that the file has notes of and that were not given; returns their number. */
static size_t take_described(const lk_options_set *set, const char *path, lk_args *args,
                             const lk_options_parsed *parsed, lk_options_entry entries[DESCRIBED])
{
    size_t count = 0;
    for (size_t i = 0; i < DESCRIBED; i++) {
        const lk_option *row = lk__options_find(set, described[i].option);
        const char *text = lk_state_note(loaded.notes, described[i].note);
        if (!text || !row)
            continue;
        bool given = lk__options_given(set, parsed, row->name);
        if (given && described[i].told)
            notice_contradiction(path, row, text, args);
        if (!given)
            entries[count++] = (lk_options_entry){.row = row, .value = text, .source = loaded.source};
    }
    return count;
}

/* An option that neither the file nor the command line has gets its default; the notice says that this was assumed. */
static void notice_assumed(const lk_options_set *set, const lk_options_parsed *parsed, const char *option,
                           const char *path, lk_args *args)
{
    bool model = strcmp(option, "model") == 0;
    size_t used = strlen(args->notice);
    if (lk__options_given(set, parsed, option) ||
        lk_state_note(loaded.notes, model ? lk__description_model : lk__description_data))
        return;
    snprintf(args->notice + used, sizeof args->notice - used, "%s%s does not say which %s: --%s %s is assumed",
             used ? "; " : "", path, model ? "model it has" : "data it was trained on", option,
             model ? args->train.model : LK_ARGS_DATA);
}

static lk_status fill_described(const lk_options_set *set, const char *path, lk_args *args, lk_options_parsed *parsed)
{
    lk_options_entry entries[DESCRIBED];
    lk__cli_resume_unload();
    snprintf(loaded.source, sizeof loaded.source, "%s", path);
    LK_TRY(lk__state_file_notes(path, &loaded.notes));
    size_t count = take_described(set, path, args, parsed, entries);
    if (set->commands == LK_CMD_EVAL) {
        notice_assumed(set, parsed, "model", path, args);
        notice_assumed(set, parsed, "data", path, args);
    }
    return lk__options_fill(set, entries, count, args, parsed);
}

/* The model that is evaluated; a run folder stands for its model. */
static lk_status find_model(lk_args *args, lk_options_parsed *parsed, const char **path)
{
    *path = parsed->word_count ? parsed->words[0] : args->train.init_from;
    if (!*path || !lk__cli_run_is(*path))
        return LK_OK;
    LK_TRY(lk__cli_run_model(*path, loaded.model));
    snprintf(args->notice, sizeof args->notice, "the model is %s", loaded.model);
    *path = loaded.model;
    if (parsed->word_count)
        parsed->words[0] = loaded.model;
    else
        args->train.init_from = loaded.model;
    return LK_OK;
}

lk_status lk__cli_resume_model(const lk_options_set *set, lk_args *args, lk_options_parsed *parsed)
{
    const char *path;
    LK_TRY(find_model(args, parsed, &path));
    if (!path)
        return LK_OK;
    if (!lk__checkpoint_is(path))
        return fill_described(set, path, args, parsed);
    lk__cli_resume_unload();
    LK_TRY(lk_checkpoint_load_notes(path, &loaded.found.notes));
    snprintf(loaded.found.path, sizeof loaded.found.path, "%s", path);
    return fill(set, args, parsed);
}
