/* options_spell.c - names of options in messages. Texts of the library write an option as the field that it
 * sets, in backquotes; users read the option as they would write it and, if a file gave it, its position in the
 * file. */
#include <string.h>

#include "cli/options/options.h"

/* Positions in files, which end a message. */
typedef char origins_text[1024];

static bool is_word(const char *word, size_t length, const char *name)
{
    return strncmp(word, name, length) == 0 && !name[length];
}

/* The option's name with underscores matches too: `num_workers`. */
static bool is_named(const lk_option *row, const char *word, size_t length)
{
    char name[64];
    snprintf(name, sizeof name, "%s", row->name);
    for (char *dash = name; (dash = strchr(dash, '-')) != NULL;)
        *dash = '_';
    return is_word(word, length, lk__option_field(row)) || is_word(word, length, name);
}

/* The row of a word, preferably one of the set's commands; NULL for any other word. */
static const lk_option *find_word(const lk_options_set *set, const char *word, size_t length)
{
    const lk_option *found = NULL;
    for (const lk_options_field *other = set->fields; other && other->field; other++)
        if (is_word(word, length, other->field))
            return find_word(set, other->name, strlen(other->name));
    for (size_t i = 0; i < set->count; i++) {
        const lk_option *row = &set->rows[i];
        if (row->kind == LK_OPTION_KIND_ALIAS || !is_named(row, word, length))
            continue;
        if (row->commands & set->commands)
            return row;
        found = found ? found : row;
    }
    return found;
}

/* Adds the position in a file that gave the row's option, unless it was added before. */
static void add_origin(const lk_options_set *set, const lk_options_parsed *parsed, const lk_option *row,
                       lk_options_buffer *origins)
{
    for (size_t i = 0; parsed && i < set->count; i++) {
        char text[sizeof(origins_text)];
        const char *source = parsed->from[i];
        if (!source || !lk__options_same(&set->rows[i], row))
            continue;
        snprintf(text, sizeof text, "--%s is from %s", set->rows[i].name, source);
        if (!strstr(origins->at, text))
            lk__options_put(origins, "%s%s", origins->used ? ", " : " (", text);
    }
}

static void put_name(const lk_options_set *set, const lk_options_parsed *parsed, const lk_option *row,
                     lk_options_buffer *out)
{
    if (row->letter)
        lk__options_put(out, "-%c", row->letter);
    else
        lk__options_put(out, "--%s", parsed ? lk__options_spelling(set, parsed, row->name) : row->name);
}

const char *lk__options_spell(const lk_options_set *set, const lk_options_parsed *parsed, const char *text, char *out,
                              size_t bytes)
{
    origins_text origins = "";
    lk_options_buffer to = {.at = out, .bytes = bytes}, from = {.at = origins, .bytes = sizeof origins};
    *out = 0;
    while (*text) {
        size_t before = strcspn(text, "`"), length = text[before] ? strcspn(text + before + 1, "`") : 0;
        const char *word = text + before + 1;
        const lk_option *row = length && word[length] ? find_word(set, word, length) : NULL;
        lk__options_put(&to, "%.*s", (int)before, text);
        text += before;
        if (row) {
            put_name(set, parsed, row, &to);
            add_origin(set, parsed, row, &from);
            text += length + 2;
        } else if (*text) {
            lk__options_put(&to, "`");
            text++;
        }
    }
    lk__options_put(&to, "%s%s", origins, *origins ? ")" : "");
    return out;
}
