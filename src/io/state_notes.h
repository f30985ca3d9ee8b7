/* state_notes.h - the notes of a state as members of a JSON object, for the formats of state files. */
#ifndef LK_IO_STATE_NOTES_H
#define LK_IO_STATE_NOTES_H

#include <lockstep/state.h>

struct cJSON;

/* The most bytes that lk__state_notes_put writes. */
size_t lk__state_notes_room(const lk_state *state, const char *prefix);
/* Writes ,"prefixNAME":"TEXT" for each note, without a terminating 0; returns the bytes written. prefix has only
 * letters and dots. */
size_t lk__state_notes_put(const lk_state *state, const char *prefix, char *out);
/* Sets a note for each text of the object whose name begins with prefix. The others, and notes that are too many, are
 * passed over. object may be NULL. */
lk_status lk__state_notes_take(const struct cJSON *object, const char *prefix, lk_state *state) LK_CHECKED;

#endif
