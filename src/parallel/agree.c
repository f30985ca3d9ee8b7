/* agree.c - ranks agree on one failure, so that all of them return the same detail. */
#include "parallel/agree.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/status.h"

/* The rank with the lowest precedence, or -1. */
static lk_status find_first(lk_group *group, int precedence, int *out)
{
    int size = lk_group_size(group), best = INT_MAX;
    int32_t mine = precedence >= 0 ? precedence : INT_MAX, *all;
    LK_TRY(LK_ALLOC((size_t)size, "ranks", &all));
    lk_status status = lk_allgather(group, (lk_buffer){&mine, 1, LK_DTYPE_I32}, NULL, all, NULL);
    int winner = -1;
    for (int r = 0; status == LK_OK && r < size; r++) {
        if (all[r] >= best)
            continue;
        best = all[r];
        winner = r;
    }
    lk__mem_free(all);
    *out = winner;
    return status;
}

lk_status lk__agree_failure(lk_group *group, int precedence, const char *text, lk_status failure, bool *agreed)
{
    int winner = -1;
    char message[LK_AGREED_TEXT] = "";
    LK_TRY(find_first(group, precedence, &winner));
    if (winner < 0)
        return LK_OK;
    if (winner == lk_group_rank(group))
        snprintf(message, sizeof message, "%s", text);
    LK_TRY(lk_broadcast(group, (lk_buffer){message, sizeof message, LK_DTYPE_U8}, winner, NULL));
    message[sizeof message - 1] = '\0';
    *agreed = true;
    return lk__fail(failure, "%s", message);
}

/* A line of a text: the part that is only shown, and the part that is compared and shown. */
typedef struct agreed_line {
    const char *shown, *compared;
    int shown_bytes, bytes;
} agreed_line;

static agreed_line next_line(const char **text)
{
    agreed_line line = {.shown = *text, .compared = *text};
    size_t length = strcspn(*text, "\n"), tab = strcspn(*text, "\t\n");
    if (tab < length) {
        line.shown_bytes = (int)tab;
        line.compared += tab + 1;
    }
    line.bytes = (int)(*text + length - line.compared);
    *text += length + ((*text)[length] == '\n');
    return line;
}

/* Writes the first line in which the texts differ; false if they are equal. */
static bool find_difference(const char *mine, const char *theirs, char *text, size_t bytes)
{
    while (*mine || *theirs) {
        agreed_line own = next_line(&mine), other = next_line(&theirs);
        if (own.bytes != other.bytes || strncmp(own.compared, other.compared, (size_t)own.bytes) != 0) {
            snprintf(text, bytes, "has %.*s%.*s, rank 0 has %.*s%.*s", own.shown_bytes, own.shown, own.bytes,
                     own.compared, other.shown_bytes, other.shown, other.bytes, other.compared);
            return true;
        }
    }
    return false;
}

const char *lk__agree_value(const char *value, char text[LK_AGREED_VALUE])
{
    enum { SHOWN = 80 };
    size_t length = strlen(value);
    if (length < LK_AGREED_VALUE)
        return value;
    snprintf(text, LK_AGREED_VALUE, "%.*s... (hash %016" PRIx64 ")", SHOWN, value, lk__hash(value, length, 0));
    return text;
}

void lk__agree_add(lk_agree_text *lines, const char *format, ...)
{
    va_list values;
    size_t room = sizeof lines->at - lines->used;
    va_start(values, format);
    int wrote = vsnprintf(lines->at + lines->used, room, format, values);
    va_end(values);
    assert(wrote >= 0 && (size_t)wrote < room);
    lines->used += (size_t)wrote;
}

void lk__agree_add_option(lk_agree_text *lines, const lk_option *row, const void *values)
{
    char number[LK_OPTION_TEXT_BYTES], shown[LK_AGREED_VALUE];
    const char *value = lk__option_value(row, values, number);
    lk__agree_add(lines, "`%s` %s\n", lk__option_field(row), lk__agree_value(lk__option_shown(row, value), shown));
}

lk_status lk__agree_lines(lk_group *group, const char *lines, bool *agreed)
{
    char theirs[LK_AGREED_LINES] = "", what[LK_AGREED_TEXT - 128], text[LK_AGREED_TEXT];
    int rank = lk_group_rank(group);
    assert(strlen(lines) < sizeof theirs);
    if (rank == 0)
        snprintf(theirs, sizeof theirs, "%s", lines);
    LK_TRY(lk_broadcast(group, (lk_buffer){theirs, sizeof theirs, LK_DTYPE_U8}, 0, NULL));
    theirs[sizeof theirs - 1] = '\0';
    bool differs = find_difference(lines, theirs, what, sizeof what);
    snprintf(text, sizeof text, "rank %d %s; start all ranks with the same options and data", rank,
             differs ? what : "");
    return lk__agree_failure(group, differs ? rank : -1, text, LK_STATUS_MISMATCH, agreed);
}
