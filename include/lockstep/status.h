/* status.h - the status that every function which can fail returns.
 *
 * The code that first detects a failure also writes its detail: a sentence that says what failed,
 * where, and what to do. lk_error_detail() returns that sentence to the same thread until the
 * thread's next failure.
 *
 * In all headers: a pointer must not be NULL unless a comment says what NULL means; outputs are
 * written on success only; destroy functions accept NULL; a status is named without its prefix, so
 * USAGE is LK_STATUS_USAGE.
 *
 * Structs of options end with `reserved` words, which a later version may use for new options: programs then keep
 * working without being compiled again, because sizes and offsets stay. The words must be zero, else the call is USAGE;
 * designated initialisers and `= {0}` set them. Zero means the default of an option, also of a later one.
 *
 * Errors: each header and function names the statuses that it returns and when. Two are not repeated: USAGE for NULL
 * and for reserved words that are not zero, and MEMORY, which every function that allocates may return.
 *
 * Threads: any thread may call the functions of this header; a detail belongs to the thread that failed.
 *
 * A function that returns a status returns USAGE for a pointer that must not be NULL, before it does anything
 * else: in a collective call, other ranks may already wait. Other functions then do nothing and return 0, NULL,
 * false or "". A builder (graph.h) leaves the mistake in its graph. */
#ifndef LOCKSTEP_STATUS_H
#define LOCKSTEP_STATUS_H

/* Every public function is declared between LK_API_BEGIN and LK_API_END: it has the linkage of C, also in C++, and is a
 * symbol of the shared library, which has no other symbols. */
#if defined(__GNUC__)
#define LK_API_SHOW _Pragma("GCC visibility push(default)")
#define LK_API_HIDE _Pragma("GCC visibility pop")
#else
#define LK_API_SHOW
#define LK_API_HIDE
#endif
#ifdef __cplusplus
#define LK_API_BEGIN \
    extern "C" {     \
    LK_API_SHOW
#define LK_API_END \
    LK_API_HIDE    \
    }
#else
#define LK_API_BEGIN LK_API_SHOW
#define LK_API_END LK_API_HIDE
#endif

LK_API_BEGIN

/* X(name, meaning) */
#define LK_STATUS_LIST(X)                                        \
    X(OK, "success")                                             \
    X(USAGE, "impossible argument or option")                    \
    X(NOT_FOUND, "no such file, name or key")                    \
    X(IO, "the operating system failed a file operation")        \
    X(FORMAT, "malformed or unsupported file")                   \
    X(MISMATCH, "two things that must agree do not")             \
    X(MEMORY, "out of memory")                                   \
    X(NONFINITE, "a loss or gradient is not finite")             \
    X(PEER, "another rank failed, left or exceeded the timeout") \
    X(UNSUPPORTED, "not available on this machine or build")

typedef enum lk_status {
#define LK_STATUS_ENUM(name, meaning) LK_STATUS_##name,
    LK_STATUS_LIST(LK_STATUS_ENUM)
#undef LK_STATUS_ENUM
        LK_STATUS_COUNT
} lk_status;

#define LK_OK LK_STATUS_OK

#if defined(__GNUC__)
#define LK_CHECKED __attribute__((warn_unused_result))
#define LK_PRINTF __attribute__((format(printf, 2, 3)))
#else
#define LK_CHECKED
#define LK_PRINTF
#endif

/* The meaning of a status; never NULL. */
const char *lk_status_string(lk_status status);

/* The detail of the calling thread's last failure; "" if there was none. Valid until the thread's next failure or its
 * end. Fields of option structs are written in backquotes in it: `max_steps`. */
const char *lk_error_detail(void);

/* Sets the detail of the calling thread, a text as of printf, and returns status: for functions that a program gives to
 * the library, as in return lk_fail(LK_STATUS_IO, "%s: no such table", path). */
lk_status lk_fail(lk_status status, const char *format, ...) LK_PRINTF;

/* Returns the status of expr to the caller unless it is LK_OK. */
#define LK_TRY(expr)                \
    do {                            \
        lk_status lk_try_ = (expr); \
        if (lk_try_ != LK_OK)       \
            return lk_try_;         \
    } while (0)

LK_API_END
#endif
