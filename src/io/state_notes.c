/* state_notes.c - the notes of a state as members of a JSON object. */
#include "io/state_notes.h"

#include <cjson/cJSON.h>
#include <string.h>

#include "base/status.h"
#include "io/json.h"

size_t lk__state_notes_room(const lk_state *state, const char *prefix)
{
    size_t room = 0;
    const char *name;
    for (size_t i = 0; (name = lk_state_note_name(state, i)) != NULL; i++)
        room += strlen(prefix) + 6 * (strlen(name) + strlen(lk_state_note(state, name))) + 8;
    return room;
}

size_t lk__state_notes_put(const lk_state *state, const char *prefix, char *out)
{
    size_t at = 0, length = strlen(prefix);
    const char *name;
    for (size_t i = 0; (name = lk_state_note_name(state, i)) != NULL; i++) {
        out[at] = ',';
        size_t quoted = lk__json_quote(name, out + at + 1 + length); /* its first quote moves before the prefix */
        out[at + 1] = '"';
        memcpy(out + at + 2, prefix, length);
        at += 1 + length + quoted;
        out[at++] = ':';
        at += lk__json_quote(lk_state_note(state, name), out + at);
    }
    return at;
}

lk_status lk__state_notes_take(const cJSON *object, const char *prefix, lk_state *state)
{
    const size_t length = strlen(prefix);
    size_t count = 0;
    for (const cJSON *item = object ? object->child : NULL; item && count < LK_MAX_STATE_NOTES; item = item->next) {
        if (strncmp(item->string, prefix, length) != 0 || !item->string[length] || !cJSON_IsString(item))
            continue;
        LK_TRY(lk_state_set_note(state, item->string + length, item->valuestring));
        count++;
    }
    return LK_OK;
}
