/* options.h - command-line options out of a table.
 *
 * One row per option feeds the parser, the defaults and --help. In long names
 * dash and underscore are the same; "--x v" and "--x=v" are too. This file
 * knows no option of the program: those are in args.c. */
#ifndef LK_CLI_OPTIONS_OPTIONS_H
#define LK_CLI_OPTIONS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/status.h"

enum { LK_OPTIONS_MAX = 128, LK_WORDS_MAX = 4, LK_LIST_BYTES = 1024 };

/* What follows the option, and the type of the field that it fills. */
typedef enum lk_option_kind {
    LK_OPTION_FLAG,     /* nothing, or after '=' true or false; bool */
    LK_OPTION_TEXT,     /* any text; const char * */
    LK_OPTION_ONCE,     /* any text, not twice; const char * */
    LK_OPTION_SPEC,     /* "name:key=value,key=value"; const char * */
    LK_OPTION_TERMS,    /* "term,term=value"; const char * */
    LK_OPTION_OPTIONAL, /* text or nothing; const char *, "" for nothing */
    LK_OPTION_COUNT,    /* whole number in [min,max]; size_t */
    LK_OPTION_INT,      /* whole number in [min,max]; int */
    LK_OPTION_SEED,     /* whole number below 2^63; uint64_t */
    LK_OPTION_REAL,     /* number in [min,max]; double */
    LK_OPTION_CHOICE,   /* one of choices; int, its place there */
    LK_OPTION_LIST,     /* "0,1" or the words "0 1"; char[LK_LIST_BYTES], always "0,1", "" when not given */
    LK_OPTION_ALIAS     /* nothing; stands for the option in initial, "bn=batch" */
} lk_option_kind;

typedef struct lk_option {
    const char *group; /* heading in the help */
    const char *name;  /* with dashes */
    char letter;       /* short form, 0 for none */
    unsigned commands; /* bits of the commands that have it */
    lk_option_kind kind;
    size_t offset;              /* of the field; rows of one field are spellings of one option */
    const char *arg;            /* what the help calls the value */
    double min, max;            /* of numbers */
    const char *const *choices; /* of LK_OPTION_CHOICE, NULL after the last */
    const char *initial;        /* default as one would type it; NULL leaves the field alone */
    const char *help;
} lk_option;

/* A spelling of another program that this one does not have. */
typedef struct lk_option_foreign {
    const char *word; /* with its dashes; NULL after the last */
    const char *instead;
} lk_option_foreign;

/* Options that give way, when a file has them, to others on the command line. */
typedef struct lk_option_rival {
    const char *yields[8]; /* names, NULL after the last; none: the end of the table */
    const char *to[5];     /* names; "" for any word that is no option, "$X" for the environment's X */
} lk_option_rival;

typedef struct lk_option_set {
    const lk_option *rows;
    size_t count;                     /* at most LK_OPTIONS_MAX */
    unsigned commands;                /* rows that share a bit with it exist */
    const char *command;              /* for messages */
    size_t max_words;                 /* words that are no options, at most LK_WORDS_MAX */
    bool ends_at_word;                /* the first word and all after it are a line of its own */
    const lk_option_foreign *foreign; /* or NULL */
    const lk_option_rival *rivals;    /* or NULL */
} lk_option_set;

typedef struct lk_option_parsed {
    const char *words[LK_WORDS_MAX];
    size_t word_count;
    bool given[LK_OPTIONS_MAX];       /* by row */
    const char *from[LK_OPTIONS_MAX]; /* by row: the place in a file that gave it; NULL: the command line */
    char *const *rest;                /* with ends_at_word: the first word in argv, or NULL */
} lk_option_parsed;

/* An option in a file. */
typedef struct lk_option_entry {
    const lk_option *row;
    const char *value; /* NULL: the option is there without one */
    const char *place; /* for messages, "r1.yaml:7" */
} lk_option_entry;

/* Fills values with the defaults, then with what argv says. Texts in values
 * point into argv or the table; lists are copies. Of one option given twice the
 * last counts, but two spellings of it must agree. A list given as words ends
 * before the next option and, where the command takes words, before one that is
 * no number; sets that end at a word have no lists. Any failure is USAGE. */
lk_status lk__options_parse(const lk_option_set *set, int argc, char *const *argv, void *values,
                            lk_option_parsed *out) LK_CHECKED;

/* Adds what a file says: values of options that the command line has given, in
 * any spelling or by a rival, are checked and passed over. Two entries that
 * contradict each other are USAGE, and so is a bad value; both name the place.
 * Texts in values and parsed are the entries' own. */
lk_status lk__options_fill(const lk_option_set *set, const lk_option_entry *entries, size_t count, void *values,
                           lk_option_parsed *parsed) LK_CHECKED;

/* The row of a long name, or of a letter; NULL when there is none. */
const lk_option *lk__options_find(const lk_option_set *set, const char *name);
/* The name of an option that is nearest to another name, or NULL. */
const char *lk__options_nearest(const lk_option_set *set, const char *name);
/* Whether both rows are spellings of one option. */
bool lk__options_same(const lk_option *a, const lk_option *b);

/* Whether the option of this name, or another spelling of it, was on the
 * command line or in a file. */
bool lk__options_given(const lk_option_set *set, const lk_option_parsed *parsed, const char *name);
/* The name under which the command line or a file gave the option, `name` itself where
 * neither did. */
const char *lk__options_spelling(const lk_option_set *set, const lk_option_parsed *parsed, const char *name);

/* Parts of the parser. The value of a row into its field, NULL for a flag; the
 * row that an alias stands for, and its value; an empty value is USAGE. */
lk_status lk__option_set_value(const lk_option_set *set, const lk_option *row, const char *value,
                               void *values) LK_CHECKED;
const lk_option *lk__option_alias(const lk_option_set *set, const lk_option *alias, const char **value);
lk_status lk__option_fail_empty(const lk_option_set *set, const lk_option *row) LK_CHECKED;

/* All options of the set with their defaults, by group. */
void lk__options_help(const lk_option_set *set, FILE *out);

#endif
