/* options_foreign.c - words of other programs: what they mean here, or the line to write instead. */
#include <string.h>

#include "base/spec.h"
#include "cli/options/options.h"

enum { LINE_BYTES = 1024, WHY_BYTES = 768, NAMES_BYTES = 128 };

const lk_options_foreign *lk__options_find_foreign(const lk_options_set *set, const char *word)
{
    size_t length = strcspn(word, "=");
    for (const lk_options_foreign *row = set->foreign; row && row->word; row++) {
        bool here = (row->commands & set->commands) && !row->beside;
        if (here && lk__options_same_name(word, row->word, length))
            return row;
    }
    return NULL;
}

const lk_option *lk__options_foreign_option(const lk_options_set *set, const lk_options_foreign *row,
                                            const char **fixed)
{
    char name[64];
    size_t length = row->means ? strcspn(row->means, "=") : 0;
    *fixed = length && row->means[length] ? row->means + length + 1 : NULL;
    snprintf(name, sizeof name, "%.*s", (int)length, row->means ? row->means : "");
    return *name ? lk__options_find(set, name) : NULL;
}

bool lk__options_foreign_is_key(const lk_options_set *set, const lk_options_foreign *row)
{
    char name[64];
    const char *colon = row->means ? strchr(row->means, ':') : NULL;
    if (!colon)
        return false;
    snprintf(name, sizeof name, "%.*s", (int)(colon - row->means), row->means);
    return lk__options_find(set, name) != NULL;
}

/* Writes a word as a shell reads it. */
static void put_word(lk_options_buffer *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%^";
    if (*word && !word[strspn(word, plain)]) {
        lk__options_put(out, "%s", word);
        return;
    }
    lk__options_put(out, "'");
    for (; *word; word++)
        lk__options_put(out, *word == '\'' ? "'\\''" : "%c", *word);
    lk__options_put(out, "'");
}

/* The value of an option as it was typed, in any spelling; NULL if it was not. */
static const char *typed_value(const lk_options_refused *line, const char *name)
{
    const lk_option *wanted = lk__options_find(line->set, name);
    for (size_t i = 0; wanted && i < line->set->count; i++)
        if (line->typed[i] && lk__options_same(&line->set->rows[i], wanted))
            return line->typed[i];
    return NULL;
}

/* Whether the option that begins `words`, "--nnodes 2", was typed. */
static bool has_typed(const lk_options_refused *line, const char *words)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(words, " ") - 2, words + 2);
    return typed_value(line, name) != NULL;
}

/* Replaces "{model|data|WORD}". `names` is the text between the braces: options, then a word. Writes the value of the
 * first of these options that was typed; if none was, writes the word. An option with the value "auto" counts as not
 * typed. Of a value like "sgd:lr=.1" only the name before the colon is written. */
static void put_option(lk_options_buffer *out, const lk_options_refused *line, char *names)
{
    char *name = names;
    for (char *bar; (bar = strchr(name, '|')) != NULL; name = bar + 1) {
        *bar = 0;
        const char *value = typed_value(line, name);
        if (!value || strcmp(value, "auto") == 0)
            continue;
        bool spec = lk__options_find(line->set, name)->kind == LK_OPTION_KIND_SPEC;
        if (spec)
            lk__options_put(out, "%.*s", (int)strcspn(value, ":"), value);
        else
            put_word(out, value);
        return;
    }
    lk__options_put(out, "%s", name);
}

/* Writes " --data VALUE" if that option was typed. */
static void put_typed(lk_options_buffer *out, const lk_options_refused *line, const char *flag)
{
    const char *value = typed_value(line, flag + 2);
    if (!value)
        return;
    lk__options_put(out, " %s ", flag);
    put_word(out, value);
}

/* Writes text with the words in braces replaced; value may be NULL. */
static void put_template(lk_options_buffer *out, const lk_options_refused *line, const char *text, const char *value)
{
    while (*text) {
        char inner[64];
        size_t before = strcspn(text, "{");
        lk__options_put(out, "%.*s", (int)before, text);
        text += before;
        if (!*text)
            break;
        size_t length = strcspn(text, "}");
        snprintf(inner, sizeof inner, "%.*s", (int)length - 1, text + 1);
        text += length + 1;
        if (!*inner)
            put_word(out, value ? value : "N");
        else if (*inner == '-')
            put_typed(out, line, inner);
        else
            put_option(out, line, inner);
    }
}

/* The foreign word at this position, or NULL. */
static const lk_options_taken *taken_at(const lk_options_refused *line, int index)
{
    for (size_t i = 0; i < line->count; i++)
        if (line->taken[i].index == index)
            return &line->taken[i];
    return NULL;
}

static bool is_beside(const lk_options_refused *line, const char *const *words)
{
    for (size_t i = 0; i < line->count; i++)
        for (size_t k = 0; words[k]; k++)
            if (strcmp(line->taken[i].row->word, words[k]) == 0)
                return true;
    return false;
}

/* The row of an option of this command that has another meaning on this line, or NULL. */
static const lk_options_foreign *find_changed(const lk_options_refused *line, const char *word)
{
    const lk_options_set *set = line->set;
    for (const lk_options_foreign *row = set->foreign; row->word; row++) {
        bool here = (row->commands & set->commands) && row->beside && strcmp(row->word, word) == 0;
        if (here && is_beside(line, row->beside) && !has_typed(line, row->instead))
            return row;
    }
    return NULL;
}

/* Words that mean something are typed again as they are. */
static bool is_refused(const lk_options_refused *line, const lk_options_taken *taken)
{
    return !lk__options_foreign_is_key(line->set, taken->row);
}

static void put_own_words(lk_options_buffer *out, const lk_options_refused *line, int begin, int count)
{
    for (int i = begin; i < begin + count && i < line->argc; i++) {
        lk__options_put(out, " ");
        put_word(out, line->argv[i]);
    }
}

/* Writes the words at position i, replaced where they are foreign; returns how many there are. */
static int put_position(lk_options_buffer *out, const lk_options_refused *line, int i)
{
    const lk_options_taken *taken = taken_at(line, i);
    const lk_options_foreign *changed = taken ? NULL : find_changed(line, line->argv[i]);
    bool own = taken ? !is_refused(line, taken) : !changed;
    int count = 1 + (taken ? taken->used : changed && i + 1 < line->argc);
    if (own) {
        put_own_words(out, line, i, count);
        return count;
    }
    const char *instead = taken ? taken->row->instead : changed->instead;
    if (*instead)
        lk__options_put(out, " ");
    put_template(out, line, instead, taken ? taken->value : count > 1 ? line->argv[i + 1] : NULL);
    return count;
}

/* Whether the option that begins `need` was typed or is in the new line. */
static bool has_option(const lk_options_refused *line, const char *text, const char *need)
{
    size_t length = strcspn(need, " ");
    for (const char *at = strchr(text, ' '); at; at = strchr(at + 1, ' '))
        if (strncmp(at + 1, need, length) == 0 && at[1 + length] == ' ')
            return true;
    return has_typed(line, need);
}

/* Adds what a row needs beside its words. */
static void put_needs(lk_options_buffer *out, const lk_options_refused *line, const lk_options_foreign *row)
{
    for (size_t k = 0; k < sizeof row->needs / sizeof *row->needs && row->needs[k]; k++)
        if (!has_option(line, out->at, row->needs[k]))
            lk__options_put(out, " %s", row->needs[k]);
}

/* Adds what the refused words need beside them; a single node needs nothing. */
static void put_all_needs(lk_options_buffer *out, const lk_options_refused *line)
{
    for (size_t i = 0; i < line->count; i++)
        put_needs(out, line, line->taken[i].row);
    for (int i = 0; i + 1 < line->end; i++) {
        const lk_options_foreign *changed = taken_at(line, i) ? NULL : find_changed(line, line->argv[i]);
        if (changed && strcmp(line->argv[i + 1], "1") != 0)
            put_needs(out, line, changed);
    }
}

/* Writes the whole line to type. */
static void put_line(lk_options_buffer *out, const lk_options_refused *line)
{
    for (size_t i = 0; i < line->count; i++) {
        const lk_options_taken *taken = &line->taken[i];
        if (is_refused(line, taken) && strncmp(taken->row->instead, "lockstep ", 9) == 0) {
            put_template(out, line, taken->row->instead, taken->value);
            return;
        }
    }
    lk__options_put(out, "lockstep %s", line->set->command);
    for (int i = 0; i < line->end;)
        i += put_position(out, line, i);
    put_all_needs(out, line);
    put_own_words(out, line, line->end, line->argc - line->end);
}

/* Writes the refused words and why each is refused; words with the same reason share it. */
static void put_reasons(lk_options_buffer *words, lk_options_buffer *why, const lk_options_refused *line)
{
    for (size_t i = 0; i < line->count; i++) {
        const lk_options_taken *taken = &line->taken[i];
        char reason[WHY_BYTES] = "";
        lk_options_buffer text = {.at = reason, .bytes = sizeof reason};
        if (!is_refused(line, taken))
            continue;
        const char *word = line->argv[taken->index];
        lk__options_put(words, "%s'%.*s'", words->used ? ", " : "", (int)strcspn(word, "="), word);
        put_template(&text, line, taken->row->why, taken->value);
        if (!strstr(why->at, reason))
            lk__options_put(why, "%s%s", why->used ? "; " : "", reason);
    }
}

/* Refuses a number after a parameter without a value: "sgd:momentum .9". */
static lk_status check_parameter(const lk_options_refused *line, const lk_options_taken *taken)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const char *word = line->argv[taken->index], *before = taken->index > 0 ? line->argv[taken->index - 1] : "";
    const char *colon = strchr(before, ':'), *comma = strrchr(before, ',');
    const char *key = comma ? comma + 1 : colon ? colon + 1 : "";
    double number;
    if (*taken->row->word || !colon || !*key || key[strspn(key, letters)] || !lk__number_parse_double(word, &number))
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE, "%s: one word too many, '%s'; a parameter has its value behind '=': write %s=%s",
                    line->set->command, word, before, word);
}

lk_status lk__options_refuse(const lk_options_refused *line)
{
    char words_text[NAMES_BYTES] = "", why_text[WHY_BYTES] = "", line_text[LINE_BYTES] = "";
    lk_options_buffer words = {.at = words_text, .bytes = sizeof words_text};
    lk_options_buffer why = {.at = why_text, .bytes = sizeof why_text};
    lk_options_buffer text = {.at = line_text, .bytes = sizeof line_text};
    for (size_t i = 0; i < line->count; i++)
        LK_TRY(check_parameter(line, &line->taken[i]));
    put_reasons(&words, &why, line);
    if (!words.used)
        return LK_OK;
    put_line(&text, line);
    bool cut = text.used == text.bytes - 1;
    return lk__fail(LK_STATUS_USAGE, "%s: %s %s; %s: %s%s", line->set->command,
                    words_text[1] == '-' ? "no option" : "one word too many,", words_text, why_text, line_text,
                    cut ? " ..." : "");
}
