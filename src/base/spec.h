/* spec.h - "name:key=value,key=value" strings of options, names in tables, and numbers as text. */
#ifndef LK_BASE_SPEC_H
#define LK_BASE_SPEC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum { LK_SPEC_MAX_NAME = 64, LK_SPEC_MAX_LIST = 16 };

/* One parameter that a spec may set. */
typedef struct lk_spec_key {
    const char *name;
    double *value;   /* the default before parsing, the result after it */
    double min, max; /* legal range, both ends included */
    bool whole;      /* no fractions */
} lk_spec_key;

/* A row of a table of parameters. */
typedef struct lk_spec_param {
    const char *name;       /* NULL after the last */
    double value, min, max; /* the default; the legal range */
    bool whole;
} lk_spec_param;

/* A parameter of several increasing numbers, written "30/60/90". */
typedef struct lk_spec_list {
    const char *name; /* NULL: there is none */
    double min, max;  /* legal range of each number */
    bool whole;
    size_t count;                    /* at least 1 */
    double values[LK_SPEC_MAX_LIST]; /* (count) the defaults before parsing, the result after it */
} lk_spec_list;

/* The names that are legal for a word. */
typedef struct lk_names {
    const char *what;                                   /* where the word was read: "`optimizer`" */
    const char *kind;                                   /* what it names: "optimiser" */
    const char *(*next)(const void *arg, size_t index); /* NULL after the last */
    const void *arg;
    const char *list; /* what messages call the names; NULL: "known" */
} lk_names;

/* Finds the index of the name that equals word. Otherwise USAGE, with the nearest name if one is
 * near, and with all names. */
lk_status lk__names_find(const lk_names *names, const char *word, size_t *index) LK_CHECKED;
/* Writes the names as "a, b, c", cut to fit. */
void lk__names_join(const lk_names *names, char *text, size_t bytes);

/* Copies the part of text before ':' into name. USAGE if it is empty or too long. `what` says whose
 * spec it is ("`optimizer`"). */
lk_status lk__spec_name(const char *text, const char *what, char name[LK_SPEC_MAX_NAME]) LK_CHECKED;

/* lk__names_find for the part of the spec before ':'. */
lk_status lk__spec_find(const char *text, const lk_names *names, size_t *index) LK_CHECKED;

/* Reads the parameters after ':' into keys. The error for an unknown key has the nearest known key;
 * the error for a bad, fractional or out-of-range value has the legal range. A key without '='
 * means 1 if only 0 and 1 are legal. */
lk_status lk__spec_params(const char *text, const char *what, const lk_spec_key *keys, size_t count) LK_CHECKED;

/* lk__spec_params for a table of at most max rows; values[i] becomes the value in the spec or row i's
 * default. */
lk_status lk__spec_values(const char *text, const char *what, const lk_spec_param *params, size_t max,
                          double *values) LK_CHECKED;

/* lk__spec_values with a list as one more parameter. */
lk_status lk__spec_values_list(const char *text, const char *what, const lk_spec_param *params, size_t max,
                               double *values, lk_spec_list *list) LK_CHECKED;

/* Whether the parameters after ':' turn on the switch `name`. Other keys are not checked. */
bool lk__spec_has_switch(const char *text, const char *name);

/* Parses a finite number that fills all of text. */
bool lk__number_parse_double(const char *text, double *out);
/* Whether two specs are equal: numbers are compared by value, items in any order, as in
 * "sgd:momentum=.9,nesterov" and "sgd:nesterov,momentum=0.9". Defaults are not known here. */
bool lk__spec_same(const char *a, const char *b);
/* Writes the fewest digits that parse as the same number; returns text. */
enum { LK_NUMBER_TEXT = 32 };
const char *lk__number_text(double value, char text[LK_NUMBER_TEXT]);
/* Parses a whole number in [min,max] that fills all of text. */
bool lk__number_parse_int(const char *text, long long min, long long max, long long *out);
/* The whole number in [0,max] that this environment variable holds; -1 if it is unset or anything
 * else. */
int lk__variable_int(const char *name, int max);

/* The candidate nearest to word by edit distance, or NULL if none is near: at most one edit for
 * every three letters of word, at least one. '-' equals '_', and capitals equal small letters.
 * next(arg, index) returns NULL after the last candidate. */
const char *lk__names_nearest(const char *word, const char *(*next)(const void *arg, size_t index), const void *arg);

#endif
