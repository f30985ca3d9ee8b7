/* pickle.h - Python pickles as data: a stream of opcodes becomes a tree of values. Nothing is
 * executed: a call is only recorded with its arguments, and only calls of globals that the caller
 * lists are accepted.
 *
 * A stream makes at most one value for each of its bytes, and twice as many items. So its size
 * bounds memory (less than 80 bytes for each byte) and work; the limits below are additional
 * bounds. The memo repeats a value for two bytes, and values may refer to each other in circles:
 * code that walks the tree must bound its depth and its work for each value. */
#ifndef LK_IO_PTH_PICKLE_H
#define LK_IO_PTH_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    LK_PICKLE_MAX_BYTES = 1 << 26,
    LK_PICKLE_MAX_VALUES = 1 << 22,
    LK_PICKLE_MAX_STACK = 1 << 20,
    LK_PICKLE_MAX_MARKS = 1 << 12,
};

typedef enum lk_pickle_kind {
    LK_PICKLE_KIND_NONE,
    LK_PICKLE_KIND_BOOL,
    LK_PICKLE_KIND_INT,
    LK_PICKLE_KIND_LONG, /* an integer of more than 64 bits, as its bytes */
    LK_PICKLE_KIND_FLOAT,
    LK_PICKLE_KIND_TEXT, /* not checked to be UTF-8 */
    LK_PICKLE_KIND_BYTES,
    LK_PICKLE_KIND_TUPLE,
    LK_PICKLE_KIND_LIST,
    LK_PICKLE_KIND_DICT, /* items are keys and values in turn */
    LK_PICKLE_KIND_SET,
    LK_PICKLE_KIND_GLOBAL,
    LK_PICKLE_KIND_CALL,      /* a call of a global */
    LK_PICKLE_KIND_PERSISTENT /* an object outside of the stream, given by its id */
} lk_pickle_kind;

/* What a pickle may do with a global. */
typedef enum lk_pickle_use {
    LK_PICKLE_USE_NAMED,     /* refer to it */
    LK_PICKLE_USE_CALLED,    /* also call it, which makes a LK_PICKLE_KIND_CALL */
    LK_PICKLE_USE_MAKES_DICT /* call it, which makes a LK_PICKLE_KIND_DICT of the pairs in its argument */
} lk_pickle_use;

typedef struct lk_pickle_global {
    const char *module, *name;
    lk_pickle_use use;
    int role; /* for the caller's use */
} lk_pickle_global;

typedef uint32_t lk_pickle_ref; /* index of a value */

typedef struct lk_pickle_value {
    lk_pickle_kind kind;
    uint32_t at; /* byte of the stream that created it */
    union {
        int64_t integer; /* 0 or 1 for a bool */
        double real;
        struct {
            const char *bytes; /* in the stream */
            uint32_t length;
        } text;
        struct {
            uint32_t first, last, count; /* cells; 0: none */
        } items;
        struct {
            const lk_pickle_global *global;
            lk_pickle_ref args; /* of a call: a tuple */
        } call;
        lk_pickle_ref id;
    } as;
} lk_pickle_value;

/* A stream, and its name in messages. */
typedef struct lk_pickle_stream {
    const char *path;
    const char *member; /* of an archive, quoted for messages; NULL: the file itself */
    const uint8_t *bytes;
    size_t size;
    size_t base; /* byte of the file or member at which the stream starts */
} lk_pickle_stream;

typedef struct lk_pickle {
    lk_pickle_stream stream; /* must outlive the pickle: texts point into it */
    lk_pickle_value *values; /* (count) */
    size_t count;
    struct lk_pickle_cell {
        lk_pickle_ref value;
        uint32_t next; /* 0: none */
    } * cells;
    lk_pickle_ref root;
    size_t used; /* bytes of the stream, its last opcode included */
} lk_pickle;

/* globals ends with a row whose module is NULL. FORMAT if the stream is no pickle or uses another
 * global. */
lk_status lk__pickle_read(const lk_pickle_stream *stream, const lk_pickle_global *globals, lk_pickle **out) LK_CHECKED;
void lk__pickle_destroy(lk_pickle *pickle);

static inline const lk_pickle_value *lk__pickle_value(const lk_pickle *pickle, lk_pickle_ref ref)
{
    return &pickle->values[ref];
}

static inline const lk_pickle_value *lk__pickle_root(const lk_pickle *pickle)
{
    return &pickle->values[pickle->root];
}

/* Iterates over the items of a tuple, list, set or dict: start with items.first, stop at NULL. */
const lk_pickle_value *lk__pickle_next(const lk_pickle *pickle, uint32_t *cell);

/* The item at index; NULL if there is none. Takes index steps. */
const lk_pickle_value *lk__pickle_item(const lk_pickle *pickle, const lk_pickle_value *value, size_t index);
/* The value of a text key in a dict; NULL if there is none. */
const lk_pickle_value *lk__pickle_find(const lk_pickle *pickle, const lk_pickle_value *dict, const char *key);
bool lk__pickle_is_text(const lk_pickle_value *value, const char *text);

/* Fails with FORMAT; the message starts with the position of byte `at` of the stream. */
lk_status lk__pickle_fail(const lk_pickle_stream *stream, size_t at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
