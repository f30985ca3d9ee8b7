/* status.h - setting the error detail, and the second flow macro. */
#ifndef LK_BASE_STATUS_H
#define LK_BASE_STATUS_H

#include <stddef.h>

#include <lockstep/status.h>

/* Sets this thread's detail to the formatted sentence and returns status. The
 * first detector calls it; callers above pass the status on untouched. */
lk_status lk__fail(lk_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The status of a system call that failed: NOT_FOUND, MEMORY or IO. */
lk_status lk__status_of(int error);

/* Out of memory while asking for bytes, in words of the caller. */
lk_status lk__fail_memory(size_t bytes, const char *what);

/* Assigns to a local `status` and jumps to label, which names what it undoes. */
#define LK_TRY_GOTO(expr, label) \
    do {                         \
        status = (expr);         \
        if (status != LK_OK)     \
            goto label;          \
    } while (0)

#endif
