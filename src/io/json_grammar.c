/* json_grammar.c - the grammar of JSON, to tell an invalid text from a lack of memory. */
#include <string.h>

#include "io/json.h"

/* A text and a position. Each take_ function moves the position past what its name says, or returns
 * false. */
typedef struct cursor {
    const char *text;
    size_t bytes, at;
} cursor;

static bool take(cursor *c, char wanted)
{
    bool there = c->at < c->bytes && c->text[c->at] == wanted;
    c->at += there;
    return there;
}

static void take_spaces(cursor *c)
{
    while (take(c, ' ') || take(c, '\n') || take(c, '\t') || take(c, '\r'))
        ;
}

static bool take_digits(cursor *c)
{
    size_t start = c->at;
    while (c->at < c->bytes && c->text[c->at] >= '0' && c->text[c->at] <= '9')
        c->at++;
    return c->at > start;
}

/* cJSON reads at most 63 characters of a number. */
static bool take_number(cursor *c)
{
    size_t start = c->at;
    (void)take(c, '-');
    if (!take(c, '0') && !take_digits(c))
        return false;
    if (take(c, '.') && !take_digits(c))
        return false;
    if (take(c, 'e') || take(c, 'E')) {
        if (!take(c, '+'))
            (void)take(c, '-');
        if (!take_digits(c))
            return false;
    }
    return c->at - start < 64;
}

/* Takes "uXXXX"; the backslash was taken before. */
static bool take_unit(cursor *c, unsigned *unit)
{
    *unit = 0;
    if (!take(c, 'u') || c->bytes - c->at < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        static const char digits[] = "0123456789abcdef0123456789ABCDEF";
        const char *digit = c->text[c->at] ? strchr(digits, c->text[c->at]) : NULL;
        if (!digit)
            return false;
        *unit = *unit << 4 | (unsigned)(digit - digits) % 16;
        c->at++;
    }
    return true;
}

/* A character above U+FFFF is two units, a high and a low surrogate. */
static bool take_escape(cursor *c)
{
    unsigned unit, second;
    if (c->at < c->bytes && c->text[c->at] && strchr("\"\\/bfnrt", c->text[c->at])) {
        c->at++;
        return true;
    }
    if (!take_unit(c, &unit) || (unit >= 0xdc00 && unit <= 0xdfff))
        return false;
    if (unit < 0xd800 || unit > 0xdfff)
        return true;
    return take(c, '\\') && take_unit(c, &second) && second >= 0xdc00 && second <= 0xdfff;
}

static bool take_string(cursor *c)
{
    if (!take(c, '"'))
        return false;
    while (c->at < c->bytes) {
        if (take(c, '"'))
            return true;
        if (take(c, '\\') ? !take_escape(c) : c->at++ >= c->bytes)
            return false;
    }
    return false;
}

static bool take_word(cursor *c, const char *word)
{
    for (; *word; word++)
        if (!take(c, *word))
            return false;
    return true;
}

static bool take_value(cursor *c, int depth);

/* Takes everything up to and including the closing bracket. */
static bool take_members(cursor *c, char close, int depth)
{
    take_spaces(c);
    if (take(c, close))
        return true;
    do {
        take_spaces(c);
        if (close == '}') {
            if (!take_string(c))
                return false;
            take_spaces(c);
            if (!take(c, ':'))
                return false;
        }
        if (!take_value(c, depth))
            return false;
    } while (take(c, ','));
    return take(c, close);
}

/* Takes a value and the spaces around it. */
static bool take_value(cursor *c, int depth)
{
    bool good = false;
    take_spaces(c);
    if (depth == 0 || c->at == c->bytes)
        return false;
    switch (c->text[c->at]) {
    case '{':
    case '[':
        c->at++;
        good = take_members(c, c->text[c->at - 1] == '{' ? '}' : ']', depth - 1);
        break;
    case '"':
        good = take_string(c);
        break;
    case 'n':
        good = take_word(c, "null");
        break;
    case 't':
        good = take_word(c, "true");
        break;
    case 'f':
        good = take_word(c, "false");
        break;
    default:
        good = take_number(c);
    }
    take_spaces(c);
    return good;
}

bool lk__json_is_valid(const char *text, size_t bytes)
{
    cursor c = {.text = text, .bytes = bytes};
    return take_value(&c, LK_JSON_MAX_DEPTH + 2);
}
