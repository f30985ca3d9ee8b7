/* resume.c - options from a checkpoint; the command line and a file of options have precedence. train checks
 * whether they contradict the checkpoint. */
#include "cli/options/resume.h"

#include <stdio.h>
#include <string.h>

#include "io/checkpoint/checkpoint.h"

/* The checkpoint whose notes are in use, and its folder. */
static struct {
    lk_resume found;
    char dir[LK_PATH_BYTES], source[LK_PATH_BYTES];
} loaded;

const lk_resume *lk__cli_resume_found(void)
{
    return &loaded.found;
}

void lk__cli_resume_unload(void)
{
    lk__resume_fini(&loaded.found);
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

lk_status lk__cli_resume_options(const lk_options_set *set, lk_args *args, lk_options_parsed *parsed)
{
    const char *where = *args->resume && strcmp(args->resume, "auto") != 0 ? args->resume : NULL;
    lk__cli_resume_unload();
    LK_TRY(lk__resume_find(where, args->train.checkpoint, &loaded.found));
    if (!*loaded.found.path)
        return LK_OK;
    LK_TRY(fill(set, args, parsed));
    args->train.resume = loaded.found.path;
    args->train.resume_exact = loaded.found.exact;
    if (where && !args->train.checkpoint) {
        folder_of(where);
        args->train.checkpoint = loaded.dir;
    }
    return LK_OK;
}

lk_status lk__cli_resume_model(const lk_options_set *set, const char *path, lk_args *args, lk_options_parsed *parsed)
{
    if (!lk__checkpoint_is(path))
        return LK_OK;
    lk__cli_resume_unload();
    LK_TRY(lk_checkpoint_load_notes(path, &loaded.found.notes));
    snprintf(loaded.found.path, sizeof loaded.found.path, "%s", path);
    return fill(set, args, parsed);
}
