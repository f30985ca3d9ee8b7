/* tail.h - the end of a run's log, and what is added to it. */
#ifndef LK_SERVE_TAIL_H
#define LK_SERVE_TAIL_H

#include <stdint.h>

#include "base/status.h"
#include "serve/body.h"

/* Writes a JSON object: "text", whole lines of log.txt; "from" and "next", the offsets of the text's begin and end. The
 * text begins at `from`; if that is -1 or behind the end of the file, a few screens before the end. A log that does not
 * exist is empty. */
lk_status lk__tail_write(const char *folder, int64_t from, lk_body *body) LK_CHECKED;

#endif
