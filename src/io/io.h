/* io.h - what the files of io/ share: text that comes from, or goes into, JSON. */
#ifndef LK_IO_IO_H
#define LK_IO_IO_H

#include <stddef.h>

/* Bytes of the well-formed UTF-8 character that text starts with; 0 if there
 * is none within the given bytes. */
size_t lk__utf8_length(const char *text, size_t bytes);

typedef struct lk_json_limits {
    int depth;    /* of nested objects and arrays, at most LK_JSON_MAX_DEPTH */
    size_t array; /* elements of one array */
} lk_json_limits;

#define LK_JSON_MAX_DEPTH 16

/* Checks what a JSON parser may be lax about, or would run out of stack or
 * memory on, before it sees a file from outside: nesting, array lengths, UTF-8,
 * bare control characters, \u0000 (which would cut a C string short). Returns
 * NULL if all is well, else what is wrong, with its offset in *at. It does not
 * replace parsing. */
const char *lk__json_check(const char *text, size_t bytes, lk_json_limits limits, size_t *at);
/* What it returns where a limit was passed, for the caller to name the limit. */
extern const char lk__json_too_deep[], lk__json_too_long[];

/* Writes the byte or the control character that *text starts with as a JSON
 * string has it, and moves *text past it; returns the bytes written. */
enum { LK_JSON_MAX_ESCAPE = 6 };
size_t lk__json_escape(const char **text, char out[LK_JSON_MAX_ESCAPE]);

/* Writes text as a JSON string with its quotes, at most 6 bytes for each of
 * text's and 2 more, without a terminating 0; returns its length. */
size_t lk__json_quote(const char *text, char *out);

#endif
