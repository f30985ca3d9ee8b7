/* libraries.h - the optional libraries, and whether this build has them. */
#ifndef LK_BASE_LIBRARIES_H
#define LK_BASE_LIBRARIES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct lk_library {
    const char *name;
    const char *use; /* what uses it */
    bool present;
    bool loaded; /* when it is needed, not at the start of the program */
} lk_library;

/* Row `index` of the table; NULL after the last. */
const lk_library *lk__library_list(size_t index);

#endif
