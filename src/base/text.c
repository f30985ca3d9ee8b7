/* text.c - cleans text by a table of unprintable characters; writes amounts; lists numbers. */
#include "base/text.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

typedef struct range {
    uint32_t first, last;
} range;

/* Control characters, and characters that are invisible or change how others are shown. */
static const range hidden[] = {
    {0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},     {0x61c, 0x61c},   {0x180e, 0x180e},   {0x200b, 0x200f},
    {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe0fff},
};

static bool belongs(uint32_t value, lk_text_kind kind)
{
    if (value == '\n' || value == '\t')
        return kind == LK_TEXT_KIND_LINES;
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (value >= hidden[i].first && value <= hidden[i].last)
            return false;
    bool letter = (value >= 'a' && value <= 'z') || (value >= 'A' && value <= 'Z') || value > 0xbf;
    return kind != LK_TEXT_KIND_NAME || letter || (value >= '0' && value <= '9') || value == '.' || value == '-' ||
           value == '_';
}

void lk__text_clean(char *text, lk_text_kind kind)
{
    char *to = text;
    for (const char *from = text; *from;) {
        uint32_t value = 0;
        size_t bytes = lk__utf8_read(from, strnlen(from, 4), &value);
        if (bytes > 0 && belongs(value, kind)) {
            memmove(to, from, bytes);
            to += bytes;
        } else {
            *to++ = '?';
        }
        from += bytes > 0 ? bytes : 1;
    }
    *to = '\0';
}

bool lk__text_is_name(const char *text, size_t most, const char *others)
{
    size_t length = strlen(text);
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!plain && !strchr(others, c))
            return false;
    }
    return length > 0 && length <= most;
}

void lk__text_dims(const size_t *dims, int ndim, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "[");
    for (int i = 0; i < ndim && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%zu", i ? ", " : "", dims[i]);
    if (used < bytes)
        snprintf(text + used, bytes - used, "]");
}

const char *lk__text_amount(size_t bytes, char text[LK_TEXT_AMOUNT])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 999.5 && unit + 1 < sizeof units / sizeof *units; unit++)
        value /= 1000;
    int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(text, LK_TEXT_AMOUNT, "%.*f %s", decimals, value, units[unit]);
    return text;
}

size_t lk__text_list(const char *noun, const uint8_t *marked, int size, char *text, size_t bytes)
{
    enum { NAMED = 16 };
    int count = 0, listed = 0;
    for (int r = 0; r < size; r++)
        count += marked[r] != 0;
    size_t used = (size_t)snprintf(text, bytes, "%s%s", noun, count == 1 ? "" : "s");
    for (int r = 0; r < size && listed < NAMED; r++) {
        if (!marked[r] || used >= bytes)
            continue;
        const char *joint = listed == 0 ? " " : listed == count - 1 ? " and " : ", ";
        used += (size_t)snprintf(text + used, bytes - used, "%s%d", joint, r);
        listed++;
    }
    if (count > listed && used < bytes)
        used += (size_t)snprintf(text + used, bytes - used, " and %d more", count - listed);
    return used;
}

void lk__text_awaited(const char *noun, const uint8_t *awaited, int size, const char *what, char *text, size_t bytes)
{
    int count = 0;
    for (int r = 0; r < size; r++)
        count += awaited[r] != 0;
    size_t used = lk__text_list(noun, awaited, size, text, bytes);
    if (used < bytes)
        snprintf(text + used, bytes - used, " of %d %s %s", size, count == 1 ? "has" : "have", what);
}
