/* page.h - the files of the live page, which the build turns into arrays (cmake/embed.cmake). */
#ifndef LK_SERVE_PAGE_H
#define LK_SERVE_PAGE_H

#include <stddef.h>

typedef struct lk_page_file {
    const char *name; /* in src/serve/page; NULL after the last */
    const char *data; /* (bytes) */
    size_t bytes;
} lk_page_file;

extern const lk_page_file lk__page_files[];

#endif
