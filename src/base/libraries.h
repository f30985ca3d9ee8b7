/* libraries.h - the libraries that this build was made with or without. */
#ifndef LK_BASE_LIBRARIES_H
#define LK_BASE_LIBRARIES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct lk_library {
    const char *name;
    const char *use; /* what needs it */
    bool present;
} lk_library;

/* Rows of the table, NULL after the last. */
const lk_library *lk__library_list(size_t index);

#endif
