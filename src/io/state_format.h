/* state_format.h - a format of state files: a row of the table in state/state_file.c. */
#ifndef LK_IO_STATE_FORMAT_H
#define LK_IO_STATE_FORMAT_H

#include <stdbool.h>

#include <lockstep/state.h>

#include "io/state_source.h"

typedef struct lk_state_format {
    const char *name;
    const char *endings[3]; /* of names of written files, NULL after the last; none: only read */
    /* Whether a file has the format; start is its first 64 bytes, or all if it has fewer. */
    bool (*probe)(const uint8_t *start, size_t bytes);
    lk_status (*load)(const lk_state_source *in, lk_state **out);
    /* Adds the file's notes to a state, without reading tensors. NULL: the format has no notes. */
    lk_status (*load_notes)(const lk_state_source *in, lk_state *state);
    lk_status (*save)(const lk_state *state, const char *path); /* NULL: only read */
} lk_state_format;

extern const lk_state_format lk__state_format_safetensors, lk__state_format_pth, lk__state_format_pth_legacy;

#endif
