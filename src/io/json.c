/* json.c - checks and quotes JSON texts; cJSON parses them. */
#include "io/json.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* JSON numbers are doubles; above this value they cannot hold every integer. */
#define MAX_INTEGER 9007199254740991.0

bool lk__json_integer(const struct cJSON *item, uint64_t *out)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) || item->valuedouble > MAX_INTEGER)
        return false;
    *out = (uint64_t)item->valuedouble;
    return (double)*out == item->valuedouble;
}

/* Checks the string whose opening quote is at *at. Moves *at to the closing quote, or to the error. */
static const char *check_string(const char *text, size_t bytes, size_t *at)
{
    for (size_t i = *at + 1; i < bytes;) {
        *at = i;
        if (text[i] == '"')
            return NULL;
        if ((unsigned char)text[i] < 0x20)
            return "a bare control character in a string";
        if (text[i] == '\\') {
            if (bytes - i >= 6 && memcmp(text + i, "\\u0000", 6) == 0)
                return "a zero character in a string";
            i += 2;
            continue;
        }
        size_t length = lk__utf8_read(text + i, bytes - i, NULL);
        if (!length)
            return "a character that is not UTF-8";
        i += length;
    }
    return "a string without an end";
}

const char lk__json_too_deep[] = "too many nested objects and arrays";
const char lk__json_too_long[] = "an array that is too long";

const char *lk__json_check(const char *text, size_t bytes, lk_json_limits limits, size_t *at)
{
    /* Commas seen at each open level; objects have no limit. */
    struct {
        bool array;
        size_t commas;
    } level[LK_JSON_MAX_DEPTH + 1] = {{false, 0}};
    int depth = 0;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        *at = i;
        if (c == '"') {
            const char *wrong = check_string(text, bytes, at);
            if (wrong)
                return wrong;
            i = *at;
        } else if (c == '{' || c == '[') {
            if (depth == limits.depth)
                return lk__json_too_deep;
            level[++depth].array = c == '[';
            level[depth].commas = 0;
        } else if (c == '}' || c == ']') {
            if (depth-- == 0)
                return "a closing bracket too many";
        } else if (c == ',') {
            if (level[depth].array && ++level[depth].commas >= limits.array)
                return lk__json_too_long;
        } else if ((unsigned char)c >= 0x7f || ((unsigned char)c < 0x20 && !strchr("\t\n\r", c)) || c == 0) {
            return "a character that may only be in a string";
        }
    }
    return NULL;
}

/* The control character at the start of text, with its length in *bytes; -1 for another character.
 * Control characters from U+0080 on have two bytes. */
static int control(const char *text, size_t *bytes)
{
    const unsigned char *c = (const unsigned char *)text;
    *bytes = c[0] == 0xc2 ? 2 : 1;
    if (c[0] < 0x20 || c[0] == 0x7f)
        return c[0];
    return c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0 ? c[1] : -1;
}

size_t lk__json_escape(const char **text, char out[LK_JSON_MAX_ESCAPE])
{
    static const char hex[] = "0123456789abcdef";
    size_t bytes;
    int code = control(*text, &bytes);
    if (code >= 0) {
        const char escape[] = {'\\', 'u', '0', '0', hex[code >> 4], hex[code & 15]};
        memcpy(out, escape, sizeof escape);
        *text += bytes;
        return sizeof escape;
    }
    size_t used = 0;
    if (**text == '"' || **text == '\\')
        out[used++] = '\\';
    out[used++] = *(*text)++;
    return used;
}

size_t lk__json_quote(const char *text, char *out)
{
    char *to = out;
    *to++ = '"';
    while (*text)
        to += lk__json_escape(&text, to);
    *to++ = '"';
    return (size_t)(to - out);
}

lk_json_quoted lk__json_quote_short(const char *name)
{
    char cut[80];
    lk_json_quoted out;
    snprintf(cut, sizeof cut, "%s", name);
    size_t length = lk__json_quote(cut, out.text);
    snprintf(out.text + length, sizeof out.text - length, "%s", strlen(name) >= sizeof cut ? "..." : "");
    return out;
}
