/* option_rows.h - short forms for rows of option tables; only files with such a table include it. */
#ifndef LK_BASE_OPTION_ROWS_H
#define LK_BASE_OPTION_ROWS_H

#include "base/option.h"

/* The middle of a row: kind, field, the value's name in the help, its range. The file
 * of the table defines FIELD(f) as LK_FIELD(the struct, f). */
#define LK_FIELD(type, f) offsetof(type, f), #f
#define FLAG(f) LK_OPTION_KIND_FLAG, FIELD(f), NULL, 0, 0, NULL
#define TEXT(f, arg) LK_OPTION_KIND_TEXT, FIELD(f), arg, 0, 0, NULL
#define ONCE(f, arg) LK_OPTION_KIND_ONCE, FIELD(f), arg, 0, 0, NULL
#define SPEC(f, arg) LK_OPTION_KIND_SPEC, FIELD(f), arg, 0, 0, NULL
#define TERMS(f, arg) LK_OPTION_KIND_TERMS, FIELD(f), arg, 0, 0, NULL
#define OPTIONAL(f, arg) LK_OPTION_KIND_OPTIONAL, FIELD(f), arg, 0, 0, NULL
#define COUNT(f, min, max) LK_OPTION_KIND_COUNT, FIELD(f), "N", min, max, NULL
#define COUNT_OR(f, arg, word, max) LK_OPTION_KIND_COUNT, FIELD(f), arg, 1, max, word
#define INTEGER(f, min, max) LK_OPTION_KIND_INT, FIELD(f), "N", min, max, NULL
#define INTEGER_OR(f, arg, word, min, max) LK_OPTION_KIND_INT, FIELD(f), arg, min, max, word
#define SEED(f) LK_OPTION_KIND_SEED, FIELD(f), "N", 0, 0, NULL
#define REAL(f, arg, min, max) LK_OPTION_KIND_REAL, FIELD(f), arg, min, max, NULL
#define CHOICE(f, words) LK_OPTION_KIND_CHOICE, FIELD(f), NULL, 0, 0, words
#define LIST(f, arg) LK_OPTION_KIND_LIST, FIELD(f), arg, 0, 0, NULL
#define ALIAS LK_OPTION_KIND_ALIAS, 0, "", NULL, 0, 0, NULL

#endif
