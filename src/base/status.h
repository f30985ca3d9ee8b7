/* status.h - sets the error detail; LK_TRY_GOTO. */
#ifndef LK_BASE_STATUS_H
#define LK_BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/status.h>

/* Sets this thread's detail to the formatted sentence and returns status. The first detector calls
 * it; its callers only return the status. */
lk_status lk__fail(lk_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Makes the detail "", before a function of the program is called that may set one. */
void lk__fail_clear(void);
/* After such a function has failed: the detail becomes the formatted text, which says where, and the detail that the
 * function has set, or the meaning of the status if it has set none. Returns status, or USAGE if that is no lk_status.
 */
lk_status lk__fail_callback(lk_status status, const char *where, ...) __attribute__((format(printf, 2, 3)));

/* The status for an errno: NOT_FOUND, MEMORY or IO. */
lk_status lk__status_of(int error);

/* Fails with MEMORY: an allocation of `bytes` for `what` failed. */
lk_status lk__fail_memory(size_t bytes, const char *what);

/* USAGE if `given` is false: the argument `name` of the public function `call` is NULL. */
lk_status lk__fail_unless(bool given, const char *name, const char *call) LK_CHECKED;
/* The check of a pointer at the beginning of a public function: LK_TRY(LK_GIVEN(state)). */
#define LK_GIVEN(pointer) lk__fail_unless((pointer) != NULL, #pointer, __func__)

/* USAGE if one of the `count` reserved words of a public struct of this type is not 0. */
lk_status lk__fail_unless_clear(const uint64_t *words, size_t count, const char *type) LK_CHECKED;
/* The check of the struct at `pointer`: LK_TRY(LK_CLEAR(opts, "lk_engine_opts")). */
#define LK_CLEAR(pointer, type) \
    lk__fail_unless_clear((pointer)->reserved, sizeof(pointer)->reserved / sizeof *(pointer)->reserved, type)

/* Assigns to a local `status` and on failure jumps to label, which names what it undoes. */
#define LK_TRY_GOTO(expr, label) \
    do {                         \
        status = (expr);         \
        if (status != LK_OK)     \
            goto label;          \
    } while (0)

#endif
