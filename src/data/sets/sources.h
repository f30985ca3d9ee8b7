/* sources.h - the published files of each data set: servers, sizes and sums. A row belongs to the
 * row of lk_dataset_list with the same name. */
#ifndef LK_DATA_SETS_SOURCES_H
#define LK_DATA_SETS_SOURCES_H

#include <stddef.h>

#include "data/sets/checksum.h"

/* A file as training reads it. */
typedef struct lk_source_part {
    const char *member; /* its name in the archive; NULL: the download is this file, gzipped */
    const char *file;   /* its plain name in the folder; with ".gz" it may be gzipped */
    const char *alias;  /* another accepted name, or NULL */
    lk_checksum_published content;
} lk_source_part;

/* A file as servers provide it. */
typedef struct lk_source_file {
    const char *name;
    lk_checksum_published published;
    const lk_source_part *parts;
    size_t part_count;
} lk_source_file;

enum { LK_SOURCE_MAX_SERVERS = 4 };

typedef struct lk_source {
    const char *name;                           /* of the data set */
    const char *folder;                         /* below a search folder */
    const char *servers[LK_SOURCE_MAX_SERVERS]; /* folders as URLs, each ending in '/'; NULL after the last */
    const lk_source_file *files;
    size_t file_count;
} lk_source;

/* NULL if the data set cannot be downloaded. */
const lk_source *lk__source_find(const char *name);
/* Advice for a data set that cannot be downloaded. */
const char *lk__source_hint(const char *name);
/* Bytes of all downloads. */
size_t lk__source_bytes(const lk_source *source);

#endif
