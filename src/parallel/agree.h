/* agree.h - failures that all ranks report alike. */
#ifndef LK_PARALLEL_AGREE_H
#define LK_PARALLEL_AGREE_H

#include <lockstep/group.h>

enum { LK_AGREED_TEXT = 1024 };

/* Together: of all ranks that give a place >= 0 the lowest wins (the lowest rank
 * of equals), and its text becomes everyone's error detail: returns `failure`.
 * LK_OK when none gives one. *agreed is set when the failure is known to all;
 * otherwise a failure is the group's. */
lk_status lk__agree_failure(lk_group *group, int place, const char *text, lk_status failure, bool *agreed) LK_CHECKED;

/* Together: MISMATCH at every rank, naming rank and line, unless all give the
 * same lines ("name value\n" each). */
lk_status lk__agree_lines(lk_group *group, const char *lines, bool *agreed) LK_CHECKED;

#endif
