/* append.h - appends to the files of a run folder. */
#ifndef LK_RECORD_APPEND_H
#define LK_RECORD_APPEND_H

#include <stdbool.h>
#include <stddef.h>

/* Appends all bytes to a file, or none: after a failed write, as on a full disk, the part that was written is cut off.
 * Sets errno on failure. */
bool lk__record_append(int fd, const void *data, size_t bytes);
/* The length of a file, and cutting it back to that length; errors are ignored. */
long long lk__record_length(int fd);
void lk__record_cut_to(int fd, long long length);

#endif
