/* option.h - the description of one option: a row of a table.
 *
 * Rows feed the command line, option files and the help (src/cli), the notes of a checkpoint and
 * the comparison of ranks (src/train), and the names of options in messages: the library writes
 * `field`, the program prints "--name". */
#ifndef LK_BASE_OPTION_H
#define LK_BASE_OPTION_H

#include <stdbool.h>
#include <stddef.h>

/* The value that follows the option, and the type of the field that it fills. */
typedef enum lk_option_kind {
    LK_OPTION_KIND_FLAG,     /* nothing, or after '=' true or false; bool */
    LK_OPTION_KIND_TEXT,     /* any text; const char * */
    LK_OPTION_KIND_ONCE,     /* any text, not twice; const char * */
    LK_OPTION_KIND_SPEC,     /* "name:key=value,key=value"; const char * */
    LK_OPTION_KIND_TERMS,    /* "term,term=value"; const char * */
    LK_OPTION_KIND_OPTIONAL, /* text or nothing; const char *, "" for nothing */
    LK_OPTION_KIND_COUNT,    /* whole number in [min,max], or the first of choices for 0; size_t */
    LK_OPTION_KIND_INT,      /* whole number in [min,max], or the first of choices for LK_OPTION_WORD; int */
    LK_OPTION_KIND_SEED,     /* whole number below 2^63; uint64_t */
    LK_OPTION_KIND_REAL,     /* number in [min,max]; double */
    LK_OPTION_KIND_CHOICE,   /* one of choices; int or an enum: the index in choices */
    LK_OPTION_KIND_LIST,     /* "0,1" or the words "0 1"; char[LK_LIST_BYTES], always "0,1", "" when not given */
    LK_OPTION_KIND_ALIAS     /* nothing; stands for the option in initial, "bn=batch" */
} lk_option_kind;

/* The value of an LK_OPTION_KIND_INT for its word. */
enum { LK_OPTION_WORD = -1 };

/* Properties of an option in a run. */
enum {
    LK_OPTION_KEPT = 1 << 0,   /* a checkpoint stores it as a note; a resumed run takes its value from there */
    LK_OPTION_BOUND = 1 << 1,  /* it determines the result: a resumed run must have the same value */
    LK_OPTION_AGREED = 1 << 2, /* training compares it between ranks; the engine compares its own options */
};

typedef struct lk_option {
    const char *group;   /* heading in the help */
    const char *name;    /* with dashes */
    char letter;         /* short form, 0 for none */
    unsigned commands;   /* the commands that have this option: one bit each */
    unsigned properties; /* LK_OPTION_KEPT ... */
    lk_option_kind kind;
    size_t offset;              /* of the field; rows with the same field are spellings of one option */
    const char *field;          /* its name in the library's messages; text up to the last '.' is not printed */
    const char *arg;            /* what the help calls the value */
    double min, max;            /* of numbers */
    const char *const *choices; /* of LK_OPTION_KIND_CHOICE, NULL after the last; NULL for other kinds */
    const char *initial;        /* default as one would type it; NULL: the field is not set */
    const char *help;
} lk_option;

/* The option's name in messages. */
const char *lk__option_field(const lk_option *row);

/* The value in the struct `values` as one would type it, "true" for a flag. NULL if the option was
 * not given: no text, a flag that is off, or 0 without a default. `text` is room for numbers. */
enum { LK_OPTION_TEXT_BYTES = 40 };
const char *lk__option_value(const lk_option *row, const void *values, char text[LK_OPTION_TEXT_BYTES]);

/* The text of lk__option_value as messages show it: NULL becomes "false" for a flag, "(not given)" for others. */
const char *lk__option_shown(const lk_option *row, const char *value);

#endif
