/* status.c - status strings and the thread's error detail. */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include <lockstep/version.h>

enum { DETAIL_BYTES = 2048 };

static _Thread_local char detail[DETAIL_BYTES];

const char *lk_status_string(lk_status status)
{
    static const char *const meanings[] = {
#define MEANING(name, meaning) [LK_STATUS_##name] = meaning,
        LK_STATUS_LIST(MEANING)
#undef MEANING
    };
    if ((unsigned)status >= LK_STATUS_COUNT)
        return "unknown status";
    return meanings[status];
}

const char *lk_error_detail(void)
{
    return detail;
}

static void set_detail(const char *format, va_list args)
{
    /* A separate buffer: the old detail may be one of the arguments. */
    char text[DETAIL_BYTES];
    vsnprintf(text, sizeof text, format, args);
    /* Names and paths may come from outside: a detail is one line without control characters, which
     * could steer a terminal. */
    for (char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    snprintf(detail, sizeof detail, "%s", text);
}

lk_status lk__fail(lk_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    set_detail(format, args);
    va_end(args);
    return status;
}

lk_status lk_fail(lk_status status, const char *format, ...)
{
    va_list args;
    LK_TRY(LK_GIVEN(format));
    va_start(args, format);
    set_detail(format, args);
    va_end(args);
    return status;
}

void lk__fail_clear(void)
{
    *detail = '\0';
}

lk_status lk__fail_callback(lk_status status, const char *where, ...)
{
    char place[256];
    va_list args;
    va_start(args, where);
    vsnprintf(place, sizeof place, where, args);
    va_end(args);
    if ((unsigned)status >= LK_STATUS_COUNT)
        return lk__fail(LK_STATUS_USAGE, "%s: the program's function returned %d, which is no lk_status", place,
                        (int)status);
    return lk__fail(status, "%s: %s", place, *detail ? detail : lk_status_string(status));
}

lk_status lk__status_of(int error)
{
    return error == ENOENT || error == ENOTDIR ? LK_STATUS_NOT_FOUND
           : error == ENOMEM                   ? LK_STATUS_MEMORY
                                               : LK_STATUS_IO;
}

lk_status lk__fail_memory(size_t bytes, const char *what)
{
    return lk__fail(LK_STATUS_MEMORY, "no memory for %s (%zu bytes)", what, bytes);
}

lk_status lk__fail_unless(bool given, const char *name, const char *call)
{
    return given ? LK_OK : lk__fail(LK_STATUS_USAGE, "%s: %s is NULL", call, name);
}

lk_status lk__fail_unless_clear(const uint64_t *words, size_t count, const char *type)
{
    for (size_t i = 0; i < count; i++)
        if (words[i] != 0)
            return lk__fail(
                LK_STATUS_USAGE,
                "%s.reserved is not 0: the struct was not cleared before use, or the program was built for a "
                "later Lockstep than " LK_VERSION " and sets an option that this one does not have",
                type);
    return LK_OK;
}
