/* text.c - a reader of UTF-8 and a table of what does not print. */
#include "base/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

typedef struct range {
    uint32_t first, last;
} range;

/* Controls, and characters that change how others are shown or show nothing. */
static const range hidden[] = {
    {0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},     {0x61c, 0x61c},   {0x180e, 0x180e},   {0x200b, 0x200f},
    {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe0fff},
};

/* The character at text, or UINT32_MAX where there is none; *bytes: how long. */
static uint32_t read_one(const uint8_t *text, size_t *bytes)
{
    static const struct {
        uint8_t mask, lead;
        uint32_t least;
    } forms[] = {{0x80, 0, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    *bytes = 1;
    for (size_t more = 0; more < sizeof forms / sizeof *forms; more++) {
        if ((text[0] & forms[more].mask) != forms[more].lead)
            continue;
        uint32_t value = text[0] & (uint8_t)~forms[more].mask;
        for (size_t i = 1; i <= more; i++) {
            if ((text[i] & 0xc0) != 0x80)
                return UINT32_MAX;
            value = value << 6 | (text[i] & 0x3f);
        }
        bool possible = value >= forms[more].least && value <= 0x10ffff && (value < 0xd800 || value > 0xdfff);
        if (possible)
            *bytes = more + 1;
        return possible ? value : UINT32_MAX;
    }
    return UINT32_MAX;
}

static bool belongs(uint32_t value, lk_text_kind kind)
{
    if (value == UINT32_MAX)
        return false;
    if (value == '\n' || value == '\t')
        return kind == LK_TEXT_LINES;
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (value >= hidden[i].first && value <= hidden[i].last)
            return false;
    bool letter = (value >= 'a' && value <= 'z') || (value >= 'A' && value <= 'Z') || value > 0xbf;
    return kind != LK_TEXT_NAME || letter || (value >= '0' && value <= '9') || value == '.' || value == '-' ||
           value == '_';
}

void lk__text_clean(char *text, lk_text_kind kind)
{
    char *to = text;
    for (const char *from = text; *from;) {
        size_t bytes = 1;
        uint32_t value = read_one((const uint8_t *)from, &bytes);
        if (belongs(value, kind)) {
            memmove(to, from, bytes);
            to += bytes;
        } else {
            *to++ = '?';
        }
        from += bytes;
    }
    *to = '\0';
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
