/* io.h - what the files of io/ share: the formats of state files, and text that
 * comes from, or goes into, JSON. */
#ifndef LK_IO_IO_H
#define LK_IO_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/state.h>

#include "base/status.h"

/* A file of a state that is read. */
typedef struct lk_state_source {
    const char *path;
    int fd;
    uint64_t size;
} lk_state_source;

/* bytes from byte `at` on; the caller has compared them with the size. */
lk_status lk__state_source_read(const lk_state_source *in, uint64_t at, void *out, size_t bytes) LK_CHECKED;

/* A row of the table in state_file.c. */
typedef struct lk_state_format {
    const char *name;
    const char *endings[3]; /* of names of files to write, up to a NULL; none: it is only read */
    /* Whether a file has the format, by its first 64 bytes or all that it has. */
    bool (*probe)(const uint8_t *start, size_t bytes);
    lk_status (*load)(const lk_state_source *in, lk_state **out);
    lk_status (*save)(const lk_state *state, const char *path); /* NULL: it is only read */
} lk_state_format;

extern const lk_state_format lk__state_format_safetensors, lk__state_format_pth, lk__state_format_pth_legacy;

/* For what is saved in more than one file: a source of that path, for
 * lk__state_source_close. */
lk_status lk__state_source_open(const char *path, lk_state_source *out) LK_CHECKED;
void lk__state_source_close(lk_state_source *in);

/* Told of each tensor of a file, without its data and in the order of the file;
 * entries are borrowed. */
typedef void (*lk_state_source_fn)(void *arg, const lk_state_entry *entry);
lk_status lk__safetensors_list(const lk_state_source *in, lk_state_source_fn seen, void *arg) LK_CHECKED;
/* Writes what a .safetensors file has; path is for messages. */
struct lk_writer;
lk_status lk__safetensors_write(const lk_state *state, const char *path, struct lk_writer *writer) LK_CHECKED;
/* The order that tensors have in such a file; sorted has room for all. */
void lk__safetensors_order(const lk_state *state, const lk_state_entry **sorted);

/* USAGE unless path ends as a format does that can be written, or, where no ending is
 * needed, has none. */
lk_status lk__state_file_check_ending(const char *path, bool needed) LK_CHECKED;

/* Names go into messages escaped and cut, for they may hold anything. */
typedef struct lk_json_quoted {
    char text[6 * 80 + 8];
} lk_json_quoted;
lk_json_quoted lk__json_quote_short(const char *name);

/* Bytes of the well-formed UTF-8 character that text starts with; 0 if there
 * is none within the given bytes. */
size_t lk__utf8_length(const char *text, size_t bytes);
/* Whether all of text is such characters. */
bool lk__utf8_is_valid(const char *text);

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

/* Whether a text that lk__json_check has passed begins with a JSON value. cJSON says
 * alike by NULL that a text is no JSON and that memory was short: it reads every valid
 * text, so NULL for a valid one is a lack of memory. */
bool lk__json_is_valid(const char *text, size_t bytes);

/* Whether a parsed value is an integer from 0 to 2^53 - 1; NULL is none. */
struct cJSON;
bool lk__json_integer(const struct cJSON *item, uint64_t *out);

/* Writes the byte or the control character that *text starts with as a JSON
 * string has it, and moves *text past it; returns the bytes written. */
enum { LK_JSON_MAX_ESCAPE = 6 };
size_t lk__json_escape(const char **text, char out[LK_JSON_MAX_ESCAPE]);

/* Writes text as a JSON string with its quotes, at most 6 bytes for each of
 * text's and 2 more, without a terminating 0; returns its length. */
size_t lk__json_quote(const char *text, char *out);

#endif
