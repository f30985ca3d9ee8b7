/* spec.h - "name:key=value,key=value" strings, as options use them. */
#ifndef LK_BASE_SPEC_H
#define LK_BASE_SPEC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum { LK_SPEC_MAX_NAME = 64 };

/* One parameter that a spec may set. */
typedef struct lk_spec_key {
    const char *name;
    double *value;   /* holds the default before, the result after */
    double min, max; /* legal range, both ends included */
} lk_spec_key;

/* Copies the part of text before ':' into name. USAGE when empty or too long;
 * what says whose spec it is ("--optimizer"). */
lk_status lk__spec_name(const char *text, const char *what, char name[LK_SPEC_MAX_NAME]) LK_CHECKED;

/* Reads the parameters after ':' into keys. An unknown key names the nearest
 * known one; a bad or out-of-range value names its range. A key without '='
 * means 1. */
lk_status lk__spec_params(const char *text, const char *what, const lk_spec_key *keys, size_t count) LK_CHECKED;

/* A finite number filling all of text. */
bool lk__parse_double(const char *text, double *out);
/* A whole number in [min,max] filling all of text. */
bool lk__parse_int(const char *text, long long min, long long max, long long *out);

/* The candidate nearest to word by edit distance, or NULL when none is near.
 * '-' and '_' count as the same. next(index) returns NULL after the last. */
const char *lk__nearest(const char *word, const char *(*next)(const void *arg, size_t index), const void *arg);

#endif
