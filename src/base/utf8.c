/* utf8.c - decodes UTF-8. */
#include "base/utf8.h"

#include <string.h>

size_t lk__utf8_read(const char *text, size_t bytes, uint32_t *value)
{
    /* Row i: the first byte of a character with i more bytes, and its smallest legal code point. */
    static const struct {
        uint8_t mask, lead;
        uint32_t least;
    } forms[] = {{0x80, 0, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    const uint8_t *byte = (const uint8_t *)text;
    for (size_t more = 0; more < bytes && more < sizeof forms / sizeof *forms; more++) {
        if ((byte[0] & forms[more].mask) != forms[more].lead)
            continue;
        uint32_t point = byte[0] & (uint8_t)~forms[more].mask;
        for (size_t i = 1; i <= more; i++) {
            if ((byte[i] & 0xc0) != 0x80)
                return 0;
            point = point << 6 | (byte[i] & 0x3f);
        }
        if (point < forms[more].least || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
            return 0;
        if (value)
            *value = point;
        return more + 1;
    }
    return 0;
}

size_t lk__utf8_valid_bytes(const char *text, size_t bytes)
{
    size_t valid = 0, length = 1;
    for (; length > 0 && valid < bytes; valid += length)
        length = lk__utf8_read(text + valid, bytes - valid, NULL);
    return valid;
}

bool lk__utf8_is_valid(const char *text)
{
    size_t bytes = strlen(text);
    return lk__utf8_valid_bytes(text, bytes) == bytes;
}
