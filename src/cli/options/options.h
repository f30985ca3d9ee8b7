/* options.h - command-line options from a table.
 *
 * One row for each option is used by the parser, the defaults and --help. In long names dash and underscore are
 * equal; so are "--x v" and "--x=v". This file knows no option of the program: those are in train/table.c and
 * args.c. */
#ifndef LK_CLI_OPTIONS_OPTIONS_H
#define LK_CLI_OPTIONS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/option.h"
#include "base/status.h"

enum { LK_OPTIONS_MAX = 160, LK_WORDS_MAX = 1024, LK_LIST_BYTES = 1024, LK_SWEPT_MAX = 16, LK_OPTIONS_TAKEN_MAX = 16 };

/* Whether a value follows a word of another program. */
typedef enum lk_options_value { LK_OPTIONS_VALUE_NONE, LK_OPTIONS_VALUE_ONE, LK_OPTIONS_VALUE_MAYBE } lk_options_value;

/* A word of other programs, which this program's table does not have. It is either taken for what it means here, or
 * refused with the line to write. */
typedef struct lk_options_foreign {
    const char *word;  /* "--arch", "-a"; "" for a word that is no option; NULL after the last row */
    unsigned commands; /* bits, as in lk_option */
    lk_options_value value;
    /* "model": another name of this option. "precision=bf16": this option with this value. "optimizer:momentum":
     * a parameter of this option's text, left in lk_options_parsed.foreign. NULL, or an option that the command does
     * not have: the word is refused. */
    const char *means;
    /* For a word that is refused: the words that replace it, and why. "{}" is its value, "{model|MODEL}" the value of
     * --model as it was typed, or MODEL; "{--data}" is " --data VALUE" if that was typed. Text that begins with
     * "lockstep " replaces the whole line. */
    const char *instead, *why;
    const char *needs[4]; /* options, each with a value, that the new line must have too: "--nnodes 2" */
    /* If not NULL: the word is an option of this command, but a foreign word on a line with one of these words. */
    const char *const *beside;
} lk_options_foreign;

/* A value of other programs, for an option with choices. */
typedef struct lk_options_foreign_value {
    const char *option, *value; /* NULL after the last row */
    const char *near;           /* the choice to write instead */
    const char *why;            /* why it is another one; NULL: it is the same under another name */
} lk_options_foreign_value;

/* A foreign word of the command line. */
typedef struct lk_options_taken {
    const lk_options_foreign *row;
    const char *value; /* NULL: none */
    int index, used;   /* its position in argv, and how many words after it are its value */
} lk_options_taken;

/* A field that messages name and that an option of another name sets. */
typedef struct lk_options_field {
    const char *field; /* NULL after the last */
    const char *name;  /* of the option, with underscores */
} lk_options_field;

/* Options of a file that are overridden by other options on the command line. */
typedef struct lk_options_rival {
    const char *yields[8]; /* names, NULL after the last; none: the end of the table */
    const char *to[5];     /* names; "" for any word that is not an option, "$X" for the environment variable X */
} lk_options_rival;

typedef struct lk_options_set {
    const lk_option *rows;
    size_t count;        /* at most LK_OPTIONS_MAX */
    unsigned commands;   /* only rows that share a bit with it exist */
    const char *command; /* for messages */
    size_t max_words;    /* words that are not options, at most LK_WORDS_MAX */
    bool ends_at_word;   /* the first word and everything after it is a command line of its own */
    unsigned swept; /* options of these commands that the set lacks take a text of several values; 0: there are none */
    const lk_options_foreign *foreign;              /* or NULL */
    const lk_options_foreign_value *foreign_values; /* or NULL */
    const lk_options_rival *rivals;                 /* or NULL */
    const lk_options_field *fields;                 /* or NULL */
} lk_options_set;

/* An option that was given with several values, as one text. */
typedef struct lk_options_swept {
    const lk_option *row;
    const char *text;
} lk_options_swept;

typedef struct lk_options_parsed {
    const char *words[LK_WORDS_MAX];
    size_t word_count;
    bool given[LK_OPTIONS_MAX];           /* by row */
    const char *from[LK_OPTIONS_MAX];     /* by row: where a file gave it ("r1.yaml:7"); NULL: the command line */
    const char *said[LK_OPTIONS_MAX];     /* by row: the foreign word that set it to a fixed value ("--amp"), or NULL */
    lk_options_swept swept[LK_SWEPT_MAX]; /* in the order of the line */
    size_t swept_count;
    char *const *rest;                              /* with ends_at_word: the first word in argv, or NULL */
    lk_options_taken foreign[LK_OPTIONS_TAKEN_MAX]; /* those that are parameters of a text, "optimizer:momentum" */
    size_t foreign_count;
} lk_options_parsed;

/* An option in a file. */
typedef struct lk_options_entry {
    const lk_option *row;
    const char *value;  /* NULL: the option has no value */
    const char *source; /* for messages, "r1.yaml:7" */
} lk_options_entry;

/* Sets values to the defaults, then to the options in argv. Texts in values point into argv or the table; lists
 * are copies. If an option is given twice, the last one counts, but two spellings of it must agree. A list
 * given as words ends before the next option and, if the command takes words, before a word that is not a
 * number; sets that end at a word have no lists. Foreign words stand for the options that they mean; others are
 * refused together, with the whole line to write. Every failure is USAGE. */
lk_status lk__options_parse(const lk_options_set *set, int argc, char *const *argv, void *values,
                            lk_options_parsed *out) LK_CHECKED;

/* Adds the options of a file. Options that the command line has given, in any spelling or by a rival, are
 * checked and skipped. Contradicting entries and bad values are USAGE, with the position in the file. Texts in
 * values and parsed belong to the entries. */
lk_status lk__options_fill(const lk_options_set *set, const lk_options_entry *entries, size_t count, void *values,
                           lk_options_parsed *parsed) LK_CHECKED;

/* The row of a long name, or of a letter; NULL if there is none. */
const lk_option *lk__options_find(const lk_options_set *set, const char *name);
/* The option's name that is nearest to `name`, or NULL. */
const char *lk__options_nearest(const lk_options_set *set, const char *name);
/* As lk__options_nearest; also finds words of other programs. */
const char *lk__options_nearest_word(const lk_options_set *set, const char *name);
/* Whether both rows are spellings of one option. */
bool lk__options_same(const lk_option *a, const lk_option *b);

/* Whether this option, in any spelling, was on the command line or in a file. */
bool lk__options_given(const lk_options_set *set, const lk_options_parsed *parsed, const char *name);
/* Whether it was on the command line. */
bool lk__options_typed(const lk_options_set *set, const lk_options_parsed *parsed, const char *name);
/* The name under which the command line or a file gave the option; `name` itself if neither did. */
const char *lk__options_spelling(const lk_options_set *set, const lk_options_parsed *parsed, const char *name);

/* The text with every `field` replaced by the option that sets it, as it was given ("--max-steps", "-n");
 * positions of options in files follow at the end: " (--lr is from r1.yaml:7)". Other words in backquotes do
 * not change. parsed may be NULL. Returns out, cut off if it does not fit. */
const char *lk__options_spell(const lk_options_set *set, const lk_options_parsed *parsed, const char *text, char *out,
                              size_t bytes);

/* The row of a foreign word, up to '=', of the set's command; NULL if there is none. Rows with `beside` are left
 * out. */
const lk_options_foreign *lk__options_find_foreign(const lk_options_set *set, const char *word);
/* The option that a foreign word means, and in *fixed its value or NULL; NULL if it means no option of the command. */
const lk_option *lk__options_foreign_option(const lk_options_set *set, const lk_options_foreign *row,
                                            const char **fixed);
/* Whether it means a parameter of the text of an option that the command has. */
bool lk__options_foreign_is_key(const lk_options_set *set, const lk_options_foreign *row);

/* A command line with foreign words that are refused. */
typedef struct lk_options_refused {
    const lk_options_set *set;
    char *const *argv;
    int argc, end;                 /* end: the position of the first word of another command line, or argc */
    const lk_options_taken *taken; /* (count) the foreign words that do not stand for an option, in order */
    size_t count;
    const char *const *typed; /* by row: the value on the command line, or NULL */
} lk_options_refused;
/* USAGE, with the line to write, if one of the words is refused. */
lk_status lk__options_refuse(const lk_options_refused *line) LK_CHECKED;

/* Parts of the parser: sets the field of a row from a value, NULL for a flag; finds the row that an alias
 * stands for, and its value; refuses an empty value with USAGE. */
lk_status lk__options_set_value(const lk_options_set *set, const lk_option *row, const char *value,
                                void *values) LK_CHECKED;
const lk_option *lk__options_alias(const lk_options_set *set, const lk_option *alias, const char **value);
lk_status lk__options_fail_empty(const lk_options_set *set, const lk_option *row) LK_CHECKED;
/* The row of a long name of `length` bytes, and of a letter. */
const lk_option *lk__options_find_name(const lk_options_set *set, const char *name, size_t length);
const lk_option *lk__options_find_letter(const lk_options_set *set, char letter);
/* Whether the first `length` bytes of a are the name b, which has dashes where a may have underscores. */
bool lk__options_same_name(const char *a, const char *b, size_t length);
/* Text under construction; what does not fit is cut off. */
typedef struct lk_options_buffer {
    char *at; /* (bytes) */
    size_t used, bytes;
} lk_options_buffer;
void lk__options_put(lk_options_buffer *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The name of the value in the help: "N", or the choices as "a|b". */
const char *lk__options_value_name(const lk_option *row, char *text, size_t bytes);
/* Prints all options of the set with their defaults, by group. */
void lk__options_help(const lk_options_set *set, FILE *out);

#endif
