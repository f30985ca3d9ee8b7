/* agree.h - failures that all ranks report alike. */
#ifndef LK_PARALLEL_AGREE_H
#define LK_PARALLEL_AGREE_H

#include <lockstep/group.h>

#include "base/option.h"

enum { LK_AGREED_TEXT = 1024, LK_AGREED_LINES = 4096, LK_AGREED_VALUE = 128 };

/* Together: of all ranks that give a place >= 0 the lowest wins (the lowest rank
 * of equals), and its text becomes everyone's error detail: returns `failure`.
 * LK_OK when none gives one. *agreed is set when the failure is known to all;
 * otherwise a failure is the group's. */
lk_status lk__agree_failure(lk_group *group, int place, const char *text, lk_status failure, bool *agreed) LK_CHECKED;

/* A value as it can stand in a line: one that is long is cut, and its hash
 * stands for the rest. */
const char *lk__agree_value(const char *value, char text[LK_AGREED_VALUE]);

/* The values of options, in the order of lk_bn_mode and lk_reduce_order; NULL after the last. */
extern const char *const lk__agree_bn_names[], *const lk__agree_reduce_names[];

/* Lines under construction. Adding more than fits is a bug of the caller. */
typedef struct lk_agree_text {
    char at[LK_AGREED_LINES];
    size_t used;
} lk_agree_text;
__attribute__((format(printf, 2, 3))) void lk__agree_add(lk_agree_text *lines, const char *format, ...);
/* Adds "`field` value", the value that the option has in the struct `values`. */
void lk__agree_add_option(lk_agree_text *lines, const lk_option *row, const void *values);

/* Together: MISMATCH at every rank, naming rank and line, unless all give the
 * same lines ("name value\n" each), which have fewer than LK_AGREED_LINES bytes.
 * What stands before a tab in a line is shown and not compared: where a file lies. */
lk_status lk__agree_lines(lk_group *group, const char *lines, bool *agreed) LK_CHECKED;

#endif
