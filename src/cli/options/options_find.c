/* options_find.c - finds options of a set by name; what the parser's files share. */
#include <stdarg.h>
#include <string.h>

#include "base/spec.h"
#include "cli/options/options.h"

static bool exists(const lk_options_set *set, size_t row)
{
    return (set->rows[row].commands & set->commands) != 0;
}

static const char *next_name(const void *arg, size_t index)
{
    const lk_options_set *set = arg;
    for (size_t i = 0; i < set->count; i++) {
        if (exists(set, i) && index-- == 0)
            return set->rows[i].name;
    }
    return NULL;
}

/* The names of the set's options, then the long foreign words. */
static const char *next_word(const void *arg, size_t index)
{
    const lk_options_set *set = arg;
    size_t own = 0;
    for (const char *name; (name = next_name(set, own)) != NULL; own++)
        if (own == index)
            return name;
    for (const lk_options_foreign *row = set->foreign; row && row->word; row++) {
        bool offered = (row->commands & set->commands) && strncmp(row->word, "--", 2) == 0;
        if (offered && index-- == own)
            return row->word + 2;
    }
    return NULL;
}

bool lk__options_same_name(const char *a, const char *b, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        char left = a[i] == '_' ? '-' : a[i];
        if (left != b[i])
            return false;
    }
    return b[length] == 0;
}

void lk__options_put(lk_options_buffer *out, const char *format, ...)
{
    va_list args;
    size_t room = out->bytes - out->used;
    va_start(args, format);
    int length = vsnprintf(out->at + out->used, room, format, args);
    va_end(args);
    out->used += length < 0 ? 0 : (size_t)length < room ? (size_t)length : room - 1;
}

const lk_option *lk__options_find_name(const lk_options_set *set, const char *name, size_t length)
{
    for (size_t i = 0; i < set->count; i++) {
        if (exists(set, i) && lk__options_same_name(name, set->rows[i].name, length))
            return &set->rows[i];
    }
    return NULL;
}

const lk_option *lk__options_find_letter(const lk_options_set *set, char letter)
{
    for (size_t i = 0; i < set->count; i++) {
        if (exists(set, i) && set->rows[i].letter == letter)
            return &set->rows[i];
    }
    return NULL;
}

const lk_option *lk__options_find(const lk_options_set *set, const char *name)
{
    const lk_option *row = lk__options_find_name(set, name, strlen(name));
    return !row && *name && !name[1] ? lk__options_find_letter(set, *name) : row;
}

const char *lk__options_nearest(const lk_options_set *set, const char *name)
{
    return lk__names_nearest(name, next_name, set);
}

const char *lk__options_nearest_word(const lk_options_set *set, const char *name)
{
    return lk__names_nearest(name, next_word, set);
}

bool lk__options_same(const lk_option *a, const lk_option *b)
{
    return a == b || (a->kind != LK_OPTION_KIND_ALIAS && b->kind != LK_OPTION_KIND_ALIAS && a->offset == b->offset);
}
