/* libraries.h - the optional libraries, whether this build has them, and symbols of those that are loaded. */
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

/* Writes the address of a symbol of a library that dlopen has loaded to the pointer at `to`, also to one to a function:
 * ISO C has no cast for that. Returns false, and writes NULL, if the library has no such symbol. */
bool lk__library_symbol(void *library, const char *name, void *to);

#endif
