/* cut.h - cuts a run folder back to a step, before a resumed run goes on in it. */
#ifndef LK_RECORD_CUT_H
#define LK_RECORD_CUT_H

#include "record/read.h"

/* Removes rows and events after `step`, and incomplete ends of files: of metrics.jsonl, metrics.csv, ranks.jsonl and
 * the event files. Files that do not exist are left out. A file that changes is replaced, so that a reader notices. */
lk_status lk__record_cut(const char *folder, size_t step) LK_CHECKED;

#endif
