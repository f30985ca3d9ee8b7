/* info_file.c - `lockstep info FILE`: the content of a model file or a checkpoint. A file may contain any bytes, so
 * texts of it are cleaned or escaped. */
#include "cli/commands/info_file.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/spec.h"
#include "base/text.h"
#include "cli/report/json.h"
#include "io/checkpoint/checkpoint.h"

enum { KEY_COLUMN = 40, NOTE_COLUMN = 18, NOTE_BYTES = 1024 };

static size_t print_entry(const lk_state_entry *entry)
{
    char shape[LK_TEXT_DIMS_BYTES(LK_MAX_DIMS)];
    lk__text_dims(entry->dims, entry->ndim, shape, sizeof shape);
    int gap = KEY_COLUMN - (int)lk__size_min(lk__cli_json_key(entry->name), KEY_COLUMN);
    printf("%*s %-5s %s\n", gap, "", lk_dtype_name(entry->dtype), shape);
    return entry->bytes / lk_dtype_size(entry->dtype);
}

static void print_state(const lk_state *state)
{
    size_t elements = 0;
    for (size_t i = 0; i < lk_state_count(state); i++)
        elements += print_entry(lk_state_at(state, i));
    printf("%zu tensors, %zu elements, hash %016" PRIx64 "\n", lk_state_count(state), elements, lk_state_hash(state));
}

/* A text of a file as one line, without control codes. */
static void print_cleaned(const char *text)
{
    char *line;
    if (lk__mem_copy_text(text, "a note", &line) != LK_OK)
        return;
    lk__text_clean(line, LK_TEXT_KIND_LINE);
    puts(line);
    lk__mem_free(line);
}

/* What the file says about itself. */
static void print_state_notes(const lk_state *state)
{
    const char *name;
    if (lk_state_note_name(state, 0))
        printf("notes:\n");
    for (size_t i = 0; (name = lk_state_note_name(state, i)); i++) {
        fputs("  ", stdout);
        int gap = NOTE_COLUMN - (int)lk__size_min(lk__cli_json_key(name), NOTE_COLUMN);
        printf("%*s ", gap, "");
        print_cleaned(lk_state_note(state, name));
    }
    if (lk_state_note_name(state, 0))
        printf("tensors:\n");
}

static void print_file(const lk_state *state)
{
    print_state_notes(state);
    print_state(state);
}

/* The text of a note for people. Epochs are counted from 0 in a checkpoint, and from 1 where people read them. */
static void write_note(const lk_checkpoint *checkpoint, const char *name, char *text, size_t bytes)
{
    long long epoch;
    const char *note = lk_checkpoint_note(checkpoint, name);
    if (strcmp(name, "epoch") == 0 && lk__number_parse_int(note, 0, LLONG_MAX - 1, &epoch))
        snprintf(text, bytes, "%lld", epoch + 1);
    else
        lk__checkpoint_note_readable(note, text, bytes);
}

/* Prints the notes that are options, or those that are not. */
static void print_notes(const lk_checkpoint *checkpoint, const char *title, bool options)
{
    const char *name;
    printf("%s:\n", title);
    for (size_t i = 0; (name = lk_checkpoint_note_name(checkpoint, i)); i++) {
        char text[NOTE_BYTES];
        if ((strncmp(name, "--", 2) == 0) != options)
            continue;
        write_note(checkpoint, name, text, sizeof text);
        fputs("  ", stdout);
        int gap = NOTE_COLUMN - (int)lk__size_min(lk__cli_json_key(name), NOTE_COLUMN);
        printf("%*s ", gap, "");
        lk__cli_json_key(text);
        putchar('\n');
    }
}

static void print_checkpoint(const lk_checkpoint *checkpoint)
{
    print_notes(checkpoint, "position", false);
    print_notes(checkpoint, "options", true);
    printf("model:\n");
    print_state(lk_checkpoint_model(checkpoint));
    printf("optimiser:\n");
    print_state(lk_checkpoint_optimizer(checkpoint));
}

/* Adds a pair of texts of a file, both cleaned as for print_cleaned. */
static void add_cleaned(cJSON *object, const char *name, const char *text)
{
    char *key = NULL, *value = NULL;
    if (lk__mem_copy_text(name, "a note", &key) == LK_OK && lk__mem_copy_text(text, "a note", &value) == LK_OK) {
        lk__text_clean(key, LK_TEXT_KIND_LINE);
        lk__text_clean(value, LK_TEXT_KIND_LINE);
        cJSON_AddStringToObject(object, key, value);
    }
    lk__mem_free(key);
    lk__mem_free(value);
}

static size_t add_entry(cJSON *tensors, const lk_state_entry *entry)
{
    cJSON *object = cJSON_CreateObject();
    add_cleaned(object, "name", entry->name);
    cJSON_AddStringToObject(object, "dtype", lk_dtype_name(entry->dtype));
    cJSON *shape = cJSON_AddArrayToObject(object, "shape");
    for (int i = 0; i < entry->ndim; i++)
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)entry->dims[i]));
    cJSON_AddItemToArray(tensors, object);
    return entry->bytes / lk_dtype_size(entry->dtype);
}

static void add_state(cJSON *object, const lk_state *state)
{
    size_t elements = 0;
    char hash[17];
    cJSON *tensors = cJSON_AddArrayToObject(object, "tensors");
    for (size_t i = 0; i < lk_state_count(state); i++)
        elements += add_entry(tensors, lk_state_at(state, i));
    snprintf(hash, sizeof hash, "%016" PRIx64, lk_state_hash(state));
    cJSON_AddNumberToObject(object, "elements", (double)elements);
    cJSON_AddStringToObject(object, "hash", hash);
}

static void file_json(const lk_state *state)
{
    const char *name;
    cJSON *object = cJSON_CreateObject(), *notes = cJSON_AddObjectToObject(object, "notes");
    for (size_t i = 0; (name = lk_state_note_name(state, i)); i++)
        add_cleaned(notes, name, lk_state_note(state, name));
    add_state(object, state);
    lk__cli_json_line(object);
}

/* The notes of print_notes, without the dashes of options. */
static void checkpoint_json(const lk_checkpoint *checkpoint)
{
    const char *name;
    cJSON *object = cJSON_CreateObject();
    cJSON *position = cJSON_AddObjectToObject(object, "position"),
          *options = cJSON_AddObjectToObject(object, "options");
    for (size_t i = 0; (name = lk_checkpoint_note_name(checkpoint, i)); i++) {
        char text[NOTE_BYTES];
        bool option = strncmp(name, "--", 2) == 0;
        write_note(checkpoint, name, text, sizeof text);
        add_cleaned(option ? options : position, option ? name + 2 : name, text);
    }
    add_state(cJSON_AddObjectToObject(object, "model"), lk_checkpoint_model(checkpoint));
    add_state(cJSON_AddObjectToObject(object, "optimizer"), lk_checkpoint_optimizer(checkpoint));
    lk__cli_json_line(object);
}

lk_status lk__cmd_info_file(const char *path, bool json)
{
    lk_state *state = NULL;
    lk_checkpoint *checkpoint = NULL;
    if (lk__checkpoint_is(path)) {
        LK_TRY(lk_checkpoint_load(path, &checkpoint));
        (json ? checkpoint_json : print_checkpoint)(checkpoint);
    } else {
        LK_TRY(lk_state_load(path, &state));
        (json ? file_json : print_file)(state);
    }
    lk_checkpoint_destroy(checkpoint);
    lk_state_destroy(state);
    return LK_OK;
}
