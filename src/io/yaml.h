/* yaml.h - the part of YAML that a file of options needs.
 *
 * One document with a mapping at its top; texts, lists and mappings in it, a few levels deep.
 * Anchors, aliases, tags and further documents are refused, so that a small file cannot expand to a
 * large one; nothing is executed. */
#ifndef LK_IO_YAML_H
#define LK_IO_YAML_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum { LK_YAML_MAX_BYTES = 1 << 16, LK_YAML_MAX_ITEMS = 1024, LK_YAML_MAX_DEPTH = 4 };

typedef enum lk_yaml_kind {
    LK_YAML_KIND_TEXT,
    LK_YAML_KIND_NULL, /* empty, "~" or "null", without quotes */
    LK_YAML_KIND_LIST, /* its elements follow, one level deeper */
    LK_YAML_KIND_MAP   /* its pairs follow, one level deeper */
} lk_yaml_kind;

typedef struct lk_yaml_item {
    lk_yaml_kind kind;
    const char *key;  /* NULL for an element of a list */
    const char *text; /* of LK_YAML_KIND_TEXT, as written; else NULL */
    bool quoted;      /* with quotes: "true" is then a word */
    size_t line;      /* from 1 */
    int depth;        /* 0: in the top mapping */
} lk_yaml_item;

/* All items in the order of the file. */
typedef struct lk_yaml {
    size_t count;
    lk_yaml_item *items;
} lk_yaml;

/* Reads a file. FORMAT with "PATH:LINE:" for malformed content; no items for an empty file;
 * UNSUPPORTED in a build without libyaml. */
lk_status lk__yaml_read(const char *path, lk_yaml **out) LK_CHECKED;
/* As lk__yaml_read, from memory; messages use `name` as the path. */
lk_status lk__yaml_parse(const char *name, const void *data, size_t bytes, lk_yaml **out) LK_CHECKED;
void lk__yaml_destroy(lk_yaml *yaml);

#endif
