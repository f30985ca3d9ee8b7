/* json.h - checks and quotes JSON texts; cJSON parses them. */
#ifndef LK_IO_JSON_H
#define LK_IO_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LK_JSON_MAX_DEPTH 16

typedef struct lk_json_limits {
    int depth;    /* of nested objects and arrays, at most LK_JSON_MAX_DEPTH */
    size_t array; /* elements of one array */
} lk_json_limits;

/* Checks a text from outside before it is parsed, for things that a parser may accept, or for which
 * it would run out of stack or memory: nesting, array lengths, UTF-8, bare control characters,
 * \u0000 (which would end a C string). Returns NULL, or what is wrong with its offset in *at. Does
 * not replace parsing. */
const char *lk__json_check(const char *text, size_t bytes, lk_json_limits limits, size_t *at);
/* The results of lk__json_check for a passed limit; callers compare the pointers. */
extern const char lk__json_too_deep[], lk__json_too_long[];

/* Whether a text that passed lk__json_check starts with a JSON value. cJSON returns NULL both for
 * invalid JSON and for a lack of memory. It parses every valid text, so NULL for a valid text means
 * a lack of memory. */
bool lk__json_is_valid(const char *text, size_t bytes);

/* Whether a parsed value is an integer from 0 to 2^53 - 1; false for NULL. */
struct cJSON;
bool lk__json_integer(const struct cJSON *item, uint64_t *out);

/* Writes the byte or the control character at *text as in a JSON string, and moves *text past it;
 * returns the bytes written. */
enum { LK_JSON_MAX_ESCAPE = 6 };
size_t lk__json_escape(const char **text, char out[LK_JSON_MAX_ESCAPE]);

/* Writes text as a JSON string with its quotes, without a terminating 0; returns its length, at
 * most 6 times the bytes of text plus 2. */
size_t lk__json_quote(const char *text, char *out);

/* A name quoted and cut for a message: names from files may contain anything. */
typedef struct lk_json_quoted {
    char text[6 * 80 + 8];
} lk_json_quoted;
lk_json_quoted lk__json_quote_short(const char *name);

#endif
