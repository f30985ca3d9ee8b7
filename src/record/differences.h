/* differences.h - what differs between runs: the options whose values are not equal in all of them, and a short
 * label for each run. */
#ifndef LK_RECORD_DIFFERENCES_H
#define LK_RECORD_DIFFERENCES_H

#include <stdbool.h>
#include <stddef.h>

#include <cjson/cJSON.h>

#include "base/status.h"

typedef struct lk_record_differences {
    size_t runs, count;
    char **names;  /* (count) "ranks", "threads" and "nodes" come before the options */
    char **values; /* (count x runs) values[i * runs + r] is of names[i] in run r; NULL: the run does not have it */
    char **titles; /* (runs) names of the runs */
} lk_record_differences;

/* Finds the differences of `count` objects, each the content of a run.json. A run without "options", or with a
 * value that is not a text, is treated as if the value were absent. Options that say only where output goes, and
 * those that "ranks", "threads" and "nodes" stand for, are not compared. All texts are copies, made printable. */
lk_status lk__record_differences_find(const cJSON *const *runs, size_t count, lk_record_differences **out) LK_CHECKED;
void lk__record_differences_destroy(lk_record_differences *differences);

/* Whether a run's option is compared. */
bool lk__record_differences_compares(const char *option);

/* Whether two runs have the same values of all names but those in `skip` (NULL after the last; may be NULL). */
bool lk__record_differences_same(const lk_record_differences *differences, size_t a, size_t b, const char *const *skip);

/* Writes what distinguishes run `run`, as "2 ranks, 1 thread, lr 0.1, no pipelined"; cut with "..." if it does
 * not fit. The name of the run follows if another run has the same values, and stands alone if nothing differs.
 * The two functions write the same; the second leaves out the names that `skip` contains (NULL after the last). */
void lk__record_differences_label(const lk_record_differences *differences, size_t run, char *text, size_t bytes);
void lk__record_differences_label_without(const lk_record_differences *differences, size_t run, const char *const *skip,
                                          char *text, size_t bytes);

#endif
