/* spec.h - "name:key=value,key=value" strings, as options use them. */
#ifndef LK_BASE_SPEC_H
#define LK_BASE_SPEC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum { LK_SPEC_MAX_NAME = 64, LK_SPEC_MAX_LIST = 16 };

/* One parameter that a spec may set. */
typedef struct lk_spec_key {
    const char *name;
    double *value;   /* holds the default before, the result after */
    double min, max; /* legal range, both ends included */
    bool whole;      /* no fractions */
} lk_spec_key;

/* A row of a table of parameters. */
typedef struct lk_spec_param {
    const char *name;       /* NULL after the last */
    double value, min, max; /* the default; the legal range */
    bool whole;
} lk_spec_param;

/* A parameter of several numbers that rise, written "30/60/90". */
typedef struct lk_spec_list {
    const char *name; /* NULL: there is none */
    double min, max;  /* legal range of each */
    bool whole;
    size_t count;                    /* at least 1 */
    double values[LK_SPEC_MAX_LIST]; /* (count) hold the defaults before, the result after */
} lk_spec_list;

/* The names that a word may be one of. */
typedef struct lk_names {
    const char *what;                                   /* where the word stands: "`optimizer`" */
    const char *kind;                                   /* what it should name: "optimiser" */
    const char *(*next)(const void *arg, size_t index); /* NULL after the last */
    const void *arg;
    const char *list; /* what the names are called in a message; NULL: "known" */
} lk_names;

/* Index of the name that equals word. Otherwise USAGE, with the nearest name if
 * one is near, and with all of them. */
lk_status lk__names_find(const lk_names *names, const char *word, size_t *index) LK_CHECKED;
/* The names as "a, b, c"; what does not fit is cut. */
void lk__names_join(const lk_names *names, char *text, size_t bytes);

/* Copies the part of text before ':' into name. USAGE when empty or too long;
 * what says whose spec it is ("`optimizer`"). */
lk_status lk__spec_name(const char *text, const char *what, char name[LK_SPEC_MAX_NAME]) LK_CHECKED;

/* Index of the name that the spec's part before ':' equals, as lk__names_find. */
lk_status lk__spec_find(const char *text, const lk_names *names, size_t *index) LK_CHECKED;

/* Reads the parameters after ':' into keys. An unknown key names the nearest
 * known one; a bad, fractional or out-of-range value names its range. A key without '='
 * means 1 where 0 and 1 are all there is. */
lk_status lk__spec_params(const char *text, const char *what, const lk_spec_key *keys, size_t count) LK_CHECKED;

/* The same for a table of at most max rows; values[i] becomes row i's default or
 * what the spec says. */
lk_status lk__spec_values(const char *text, const char *what, const lk_spec_param *params, size_t max,
                          double *values) LK_CHECKED;

/* The same where one more parameter is a list. */
lk_status lk__spec_values_list(const char *text, const char *what, const lk_spec_param *params, size_t max,
                               double *values, lk_spec_list *list) LK_CHECKED;

/* Whether the parameters after ':' turn the switch `name` on. Other keys are not
 * looked at; what is wrong is left to who reads them all. */
bool lk__spec_has_switch(const char *text, const char *name);

/* A finite number filling all of text. */
bool lk__number_parse_double(const char *text, double *out);
/* Whether both say the same, "sgd:momentum=.9,nesterov" and "sgd:nesterov,momentum=0.9"
 * say: numbers by value, items in any order; defaults are not known here. */
bool lk__spec_same(const char *a, const char *b);
/* The fewest digits that read back as the same number; returns text. */
enum { LK_NUMBER_TEXT = 32 };
const char *lk__number_text(double value, char text[LK_NUMBER_TEXT]);
/* A whole number in [min,max] filling all of text. */
bool lk__number_parse_int(const char *text, long long min, long long max, long long *out);
/* The whole number in [0,max] that the environment's variable holds; -1 for anything
 * else, and where it is not set. */
int lk__variable_int(const char *name, int max);

/* The candidate nearest to word by edit distance, or NULL when none is near: at most
 * one edit for each three letters of the word, and one for shorter words.
 * '-' and '_' count as the same, and so do small and capital letters. next(index) returns NULL after the last. */
const char *lk__names_nearest(const char *word, const char *(*next)(const void *arg, size_t index), const void *arg);

#endif
