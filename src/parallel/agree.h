/* agree.h - ranks agree on one failure, and compare their options. */
#ifndef LK_PARALLEL_AGREE_H
#define LK_PARALLEL_AGREE_H

#include <lockstep/group.h>

#include "base/option.h"

enum { LK_AGREED_TEXT = 1024, LK_AGREED_LINES = 4096, LK_AGREED_VALUE = 128 };

/* Collective. A rank that has failed gives a precedence >= 0 and its text, another rank -1. If any rank
 * has failed, all ranks return `failure` with the same detail: the text of the rank with the lowest
 * precedence (of equal ones, of the lowest rank), and *agreed becomes true. LK_OK if no rank has
 * failed. If *agreed stays false, a returned failure is an error of the group. */
lk_status lk__agree_failure(lk_group *group, int precedence, const char *text, lk_status failure,
                            bool *agreed) LK_CHECKED;

/* A value in a length that fits a line: value itself, or text with the value's beginning and hash. */
const char *lk__agree_value(const char *value, char text[LK_AGREED_VALUE]);

/* The names of option values, in the order of lk_bn_mode, lk_conv_mode and lk_reduce_order; NULL after the last. */
extern const char *const lk__agree_bn_names[], *const lk__agree_conv_names[], *const lk__agree_reduce_names[];

/* Lines for lk__agree_lines. Adding more than fits is a bug of the caller (assert). */
typedef struct lk_agree_text {
    char at[LK_AGREED_LINES];
    size_t used;
} lk_agree_text;
__attribute__((format(printf, 2, 3))) void lk__agree_add(lk_agree_text *lines, const char *format, ...);
/* Adds "`field` value\n"; the value is that of the option in the struct `values`. */
void lk__agree_add_option(lk_agree_text *lines, const lk_option *row, const void *values);

/* Collective: compares the lines ("name value\n") of all ranks, fewer than LK_AGREED_LINES bytes.
 * MISMATCH at every rank, with the rank and the first line that differ. In a line, the text before a
 * tab is shown but not compared, for example the path of a file. */
lk_status lk__agree_lines(lk_group *group, const char *lines, bool *agreed) LK_CHECKED;

#endif
