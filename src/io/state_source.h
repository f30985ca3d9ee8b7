/* state_source.h - a state file that is open for reading. */
#ifndef LK_IO_STATE_SOURCE_H
#define LK_IO_STATE_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct lk_state_source {
    const char *path; /* borrowed */
    int fd;
    uint64_t size;
} lk_state_source;

lk_status lk__state_source_open(const char *path, lk_state_source *out) LK_CHECKED;
void lk__state_source_close(lk_state_source *in);

/* Reads bytes [at, at + bytes); the caller has checked that they are inside the file's size. */
lk_status lk__state_source_read(const lk_state_source *in, uint64_t at, void *out, size_t bytes) LK_CHECKED;

#endif
