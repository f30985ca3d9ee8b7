/* yaml.h - the small part of YAML that a file of options needs.
 *
 * One document, a mapping at its top; texts, lists and mappings in it, a few
 * levels deep. Anchors, aliases, tags and further documents are refused, so that
 * a file cannot stand for more than it holds, and nothing is ever executed. */
#ifndef LK_IO_YAML_H
#define LK_IO_YAML_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum { LK_YAML_MAX_BYTES = 1 << 16, LK_YAML_MAX_ITEMS = 1024, LK_YAML_MAX_DEPTH = 4 };

typedef enum lk_yaml_kind {
    LK_YAML_TEXT,
    LK_YAML_NULL, /* nothing, "~" or "null", without quotes */
    LK_YAML_LIST, /* its elements follow, one level deeper */
    LK_YAML_MAP   /* its pairs follow, one level deeper */
} lk_yaml_kind;

typedef struct lk_yaml_item {
    lk_yaml_kind kind;
    const char *key;  /* NULL for an element of a list */
    const char *text; /* of LK_YAML_TEXT, as it was written; else NULL */
    bool quoted;      /* "true" in quotes is a word like any other */
    size_t line;      /* from 1 */
    int depth;        /* 0: of the top mapping */
} lk_yaml_item;

/* All items in the order of the file. */
typedef struct lk_yaml {
    size_t count;
    lk_yaml_item *items;
} lk_yaml;

/* Reads a file. Malformed content is FORMAT with "PATH:LINE:", a file without
 * content has no items, a build without libyaml says UNSUPPORTED. */
lk_status lk__yaml_read(const char *path, lk_yaml **out) LK_CHECKED;
/* The same from memory; name stands for the path in messages. */
lk_status lk__yaml_parse(const char *name, const void *data, size_t bytes, lk_yaml **out) LK_CHECKED;
void lk__yaml_destroy(lk_yaml *yaml);

#endif
