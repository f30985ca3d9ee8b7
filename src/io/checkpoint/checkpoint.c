/* checkpoint.c - a checkpoint in memory: two states, and notes in their order. checkpoint_json.c,
 * checkpoint_save.c and checkpoint_load.c read and write files. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "io/checkpoint/checkpoint_impl.h"

const char lk__checkpoint_model[] = "model.safetensors";
const char lk__checkpoint_optimizer[] = "optimizer.safetensors";
const char lk__checkpoint_notes[] = "checkpoint.json";

const char *const lk__checkpoint_parts[LK_PARTS] = {
    [LK_PART_MODEL] = lk__checkpoint_model,
    [LK_PART_OPTIMIZER] = lk__checkpoint_optimizer,
};

lk_status lk_checkpoint_create(lk_state *model, lk_state *optimizer, lk_checkpoint **out)
{
    lk_checkpoint *checkpoint;
    lk_status status;
    LK_TRY_GOTO(LK_GIVEN(out), destroy_states);
    LK_TRY_GOTO(LK_ALLOC(1, "a checkpoint", &checkpoint), destroy_states);
    checkpoint->states[LK_PART_MODEL] = model;
    checkpoint->states[LK_PART_OPTIMIZER] = optimizer;
    *out = checkpoint;
    return LK_OK;
destroy_states:
    lk_state_destroy(model);
    lk_state_destroy(optimizer);
    return status;
}

void lk_checkpoint_destroy(lk_checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    for (int i = 0; i < LK_PARTS; i++)
        lk_state_destroy(checkpoint->states[i]);
    for (size_t i = 0; i < checkpoint->count; i++) {
        lk__mem_free(checkpoint->notes[i].name);
        lk__mem_free(checkpoint->notes[i].text);
    }
    lk__mem_free(checkpoint->notes);
    lk__mem_free(checkpoint);
}

const lk_state *lk_checkpoint_model(const lk_checkpoint *checkpoint)
{
    return checkpoint ? checkpoint->states[LK_PART_MODEL] : NULL;
}

const lk_state *lk_checkpoint_optimizer(const lk_checkpoint *checkpoint)
{
    return checkpoint ? checkpoint->states[LK_PART_OPTIMIZER] : NULL;
}

static lk_checkpoint_note_pair *find_note(const lk_checkpoint *checkpoint, const char *name)
{
    for (size_t i = 0; i < checkpoint->count; i++)
        if (strcmp(checkpoint->notes[i].name, name) == 0)
            return &checkpoint->notes[i];
    return NULL;
}

static lk_status add_note(lk_checkpoint *checkpoint, const char *name, char *text)
{
    lk_checkpoint_note_pair note = {.text = text};
    if (checkpoint->count == LK_MAX_NOTES)
        return lk__fail(LK_STATUS_USAGE, "a checkpoint has %d notes at most; there is no room for %s", LK_MAX_NOTES,
                        lk__json_quote_short(name).text);
    if (checkpoint->count == checkpoint->capacity)
        LK_TRY(LK_GROW(checkpoint->count, "the notes of a checkpoint", &checkpoint->capacity, &checkpoint->notes));
    LK_TRY(lk__mem_copy_text(name, "a note of a checkpoint", &note.name));
    checkpoint->notes[checkpoint->count++] = note;
    return LK_OK;
}

lk_status lk_checkpoint_set_note(lk_checkpoint *checkpoint, const char *name, const char *text)
{
    LK_TRY(LK_GIVEN(checkpoint));
    LK_TRY(LK_GIVEN(name));
    LK_TRY(LK_GIVEN(text));
    if (!*name || !lk__utf8_is_valid(name) || !lk__utf8_is_valid(text))
        return lk__fail(LK_STATUS_USAGE, "the note %s of a checkpoint must have a name, and both must be UTF-8",
                        lk__json_quote_short(name).text);
    char *copy;
    LK_TRY(lk__mem_copy_text(text, "a note of a checkpoint", &copy));
    lk_checkpoint_note_pair *note = find_note(checkpoint, name);
    if (note) {
        lk__mem_free(note->text);
        note->text = copy;
        return LK_OK;
    }
    lk_status status = add_note(checkpoint, name, copy);
    if (status != LK_OK)
        lk__mem_free(copy);
    return status;
}

const char *lk_checkpoint_note(const lk_checkpoint *checkpoint, const char *name)
{
    const lk_checkpoint_note_pair *note = checkpoint && name ? find_note(checkpoint, name) : NULL;
    return note ? note->text : NULL;
}

const char *lk_checkpoint_note_name(const lk_checkpoint *checkpoint, size_t index)
{
    return checkpoint && index < checkpoint->count ? checkpoint->notes[index].name : NULL;
}

lk_status lk__checkpoint_join(const char *folder, const char *name, char out[LK_CHECKPOINT_PATH])
{
    if (!lk__path_join(folder, name, out, LK_CHECKPOINT_PATH))
        return lk__fail(LK_STATUS_USAGE, "%s/%s: a path has %d bytes at most", folder, name, LK_CHECKPOINT_PATH - 1);
    return LK_OK;
}
