/* data_notes.c - notes in a checkpoint that identify the training data, and their comparison at a resume.
 * Reading the data may take long: each process does it once, when the notes are first needed. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "train/parts.h"

enum { CONTENTS_TEXT = 96, TIMES_TEXT = 32 };

/* "data": a hash of data in memory, or of names and labels of image files (not the path, which may differ
 * between hosts). "data-contents": for image files, a hash of the contents that were read. "data-times": a
 * hash of the files' times, if not all contents were read. */
static const char DATA_NOTE[] = "data", CONTENTS_NOTE[] = "data-contents", TIMES_NOTE[] = "data-times";

struct lk_data_notes {
    const lk_dataset *data;
    pthread_mutex_t lock;
    bool known;
    char text[LK_DATA_TEXT];
    char contents[CONTENTS_TEXT], times[TIMES_TEXT]; /* "" if there is no such note */
};

lk_status lk__data_notes_create(lk_data_notes **out)
{
    lk_data_notes *notes;
    LK_TRY(LK_ALLOC(1, "notes of the data", &notes));
    pthread_mutex_init(&notes->lock, NULL);
    *out = notes;
    return LK_OK;
}

void lk__data_notes_set(lk_data_notes *notes, const lk_dataset *data)
{
    notes->data = data;
}

void lk__data_notes_destroy(lk_data_notes *notes)
{
    if (notes == NULL)
        return;
    pthread_mutex_destroy(&notes->lock);
    lk__mem_free(notes);
}

static lk_status read_data(lk_data_notes *notes)
{
    uint64_t hash = 0;
    lk_dataset_contents contents;
    LK_TRY(lk__dataset_content(notes->data, &hash));
    LK_TRY(lk__dataset_contents(notes->data, &contents));
    lk__train_data_text(notes->data, "training", hash, notes->text);
    if (contents.files)
        snprintf(notes->contents, sizeof notes->contents, "%016" PRIx64 " of %zu of %zu files", contents.hash,
                 contents.read, contents.files);
    if (contents.times)
        snprintf(notes->times, sizeof notes->times, "%016" PRIx64, contents.times);
    notes->known = true;
    return LK_OK;
}

lk_status lk__data_notes_read(lk_data_notes *notes)
{
    pthread_mutex_lock(&notes->lock);
    lk_status status = notes->known ? LK_OK : read_data(notes);
    pthread_mutex_unlock(&notes->lock);
    return status;
}

lk_status lk__data_notes_add(void *arg, lk_checkpoint *checkpoint)
{
    lk_data_notes *notes = arg;
    LK_TRY(lk__data_notes_read(notes));
    LK_TRY(lk_checkpoint_set_note(checkpoint, DATA_NOTE, notes->text));
    if (*notes->contents)
        LK_TRY(lk_checkpoint_set_note(checkpoint, CONTENTS_NOTE, notes->contents));
    return *notes->times ? lk_checkpoint_set_note(checkpoint, TIMES_NOTE, notes->times) : LK_OK;
}

/* Checkpoints of earlier versions do not have the note. */
static bool same_note(const char *here, const char *there)
{
    return !there || strcmp(here, there) == 0;
}

static lk_status check_contents(const lk_data_notes *notes, const lk_train_opts *opts, const char *there)
{
    if (same_note(notes->contents, there))
        return LK_OK;
    return lk__fail(
        LK_STATUS_MISMATCH,
        "`data` %s: the content of at least one of its %zu training images has changed since the checkpoint "
        "%s was saved, though names and labels are the same (hash %s, then %s): put the images back as they "
        "were, or begin another run in a folder of its own",
        opts->data, lk_dataset_get_info(notes->data)->count, opts->resume, notes->contents, there);
}

lk_status lk__data_notes_check(lk_data_notes *notes, const lk_train_opts *opts, const lk_checkpoint *resume,
                               bool *touched)
{
    const char *there = lk_checkpoint_note(resume, DATA_NOTE);
    if (!there || strcmp(notes->text, there) != 0)
        return lk__fail(LK_STATUS_MISMATCH,
                        "`data` %s has %s, but the checkpoint %s was trained on %s; go on with the same data",
                        opts->data, notes->text, opts->resume, there ? there : "something else");
    LK_TRY(check_contents(notes, opts, lk_checkpoint_note(resume, CONTENTS_NOTE)));
    *touched = !same_note(notes->times, lk_checkpoint_note(resume, TIMES_NOTE));
    return LK_OK;
}
