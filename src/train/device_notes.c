/* device_notes.c - notes of a checkpoint about the device of rank 0: its kind, and the facts on which its bits depend.
 * A run that resumes on another device says what differs. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "train/parts.h"

enum { NAME = 64 };

static const char kind_note[] = "device", precision_note[] = "--precision";

/* "device.cuDNN" */
static const char *note_name(const lk_device_fact *fact, char text[NAME])
{
    snprintf(text, NAME, "%s.%s", kind_note, fact->name);
    return text;
}

static const char *kind_of(const char *device)
{
    const lk_device_type *type = lk__device_find(device);
    return type ? type->name : device;
}

lk_status lk__device_notes_add(const char *device, lk_checkpoint *checkpoint)
{
    lk_device_fact facts[LK_DEVICE_FACTS];
    size_t count = lk__device_facts(device, facts);
    char name[NAME];
    LK_TRY(lk_checkpoint_set_note(checkpoint, kind_note, kind_of(device)));
    for (size_t i = 0; i < count; i++)
        LK_TRY(lk_checkpoint_set_note(checkpoint, note_name(&facts[i], name), facts[i].value));
    return LK_OK;
}

const char lk__train_mixed_text[] =
    "the ranks have different GPUs, or different versions of CUDA, cuDNN or cuBLASLt: the result depends on which rank "
    "has which";

/* Below 2^62, so that its negation is a number, too. */
static int64_t hash_facts(const char *device)
{
    lk_device_fact facts[LK_DEVICE_FACTS];
    size_t count = lk__device_facts(device, facts);
    uint64_t hash = 0;
    for (size_t i = 0; i < count; i++)
        hash = lk__hash(facts[i].value, strlen(facts[i].value), hash);
    return (int64_t)(hash >> 2);
}

lk_status lk__device_notes_mixed(lk_group *group, const char *device, bool *out)
{
    int64_t hash = hash_facts(device), least[] = {hash, -hash};
    LK_TRY(lk_allreduce(group, (lk_buffer){least, 2, LK_DTYPE_I64}, LK_REDUCTION_MIN, NULL));
    *out = least[0] != -least[1];
    return LK_OK;
}

/* Adds "cuDNN 9.13.0 instead of 9.9.0" if the texts differ; a text that the checkpoint does not have is unknown. */
static void add_difference(const char *what, const char *here, const char *there, char text[LK_DEVICE_NOTES_TEXT])
{
    size_t used = strlen(text);
    if (there && strcmp(here, there) != 0)
        snprintf(text + used, LK_DEVICE_NOTES_TEXT - used, "%s%s %s instead of %s", used ? ", " : "", what, here,
                 there);
}

void lk__device_notes_compare(const char *device, lk_precision precision, const lk_checkpoint *resume,
                              char text[LK_DEVICE_NOTES_TEXT])
{
    lk_device_fact facts[LK_DEVICE_FACTS];
    size_t count = lk__device_facts(device, facts);
    char name[NAME];
    text[0] = '\0';
    add_difference("device", kind_of(device), lk_checkpoint_note(resume, kind_note), text);
    for (size_t i = 0; i < count; i++)
        add_difference(facts[i].name, facts[i].value, lk_checkpoint_note(resume, note_name(&facts[i], name)), text);
    add_difference("precision", lk__device_precision_names[precision], lk_checkpoint_note(resume, precision_note),
                   text);
}
