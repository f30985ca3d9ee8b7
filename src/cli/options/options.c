/* options.c - the table-driven parser of the command line. */
#include "cli/options/options.h"

#include <assert.h>
#include <ctype.h>
#include <stdint.h>
#include <string.h>

#include "base/spec.h"

enum { NAME_BYTES = 64, TYPED_BYTES = 256 };

static bool exists(const lk_options_set *set, size_t row)
{
    return (set->rows[row].commands & set->commands) != 0;
}

/* The index of the row whose long name is the first `length` bytes of name, or count. */
static size_t find_row(const lk_options_set *set, const char *name, size_t length)
{
    const lk_option *row = lk__options_find_name(set, name, length);
    return row ? (size_t)(row - set->rows) : set->count;
}

static size_t find_letter(const lk_options_set *set, char letter)
{
    const lk_option *row = lk__options_find_letter(set, letter);
    return row ? (size_t)(row - set->rows) : set->count;
}

static lk_status fail_unknown(const lk_options_set *set, const char *word)
{
    char name[NAME_BYTES];
    const char *start = word + strspn(word, "-");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(start, "="), start);
    lk_options_set all = *set;
    all.commands |= set->swept;
    const char *near = lk__options_nearest_word(&all, name);
    if (near)
        return lk__fail(LK_STATUS_USAGE, "%s: no option '%s'; did you mean '--%s'?", set->command, word, near);
    return lk__fail(LK_STATUS_USAGE, "%s: no option '%s'; 'lockstep %s --help' lists those there are", set->command,
                    word, set->command);
}

static const char *next_choice(const void *arg, size_t index)
{
    const lk_option *row = arg;
    return row->choices[index];
}

const char *lk__options_value_name(const lk_option *row, char *text, size_t bytes)
{
    if (row->kind != LK_OPTION_KIND_CHOICE)
        return row->arg;
    size_t used = 0;
    for (size_t i = 0; row->choices[i] && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? "|" : "", row->choices[i]);
    return text;
}

static const lk_options_foreign_value *find_foreign_value(const lk_options_set *set, const lk_option *row,
                                                          const char *value)
{
    for (const lk_options_foreign_value *v = set->foreign_values; v && v->value; v++)
        if (strcmp(v->option, row->name) == 0 && strcmp(v->value, value) == 0)
            return v;
    return NULL;
}

static lk_status set_choice(const lk_options_set *set, const lk_option *row, const char *value, int *field)
{
    for (int i = 0; row->choices[i]; i++) {
        if (strcmp(row->choices[i], value) == 0) {
            *field = i;
            return LK_OK;
        }
    }
    char known[NAME_BYTES];
    const lk_options_foreign_value *foreign = find_foreign_value(set, row, value);
    const char *near = foreign ? foreign->near : lk__names_nearest(value, next_choice, row);
    if (foreign && foreign->why)
        return lk__fail(LK_STATUS_USAGE, "%s: --%s '%s': %s; write '--%s %s'", set->command, row->name, value,
                        foreign->why, row->name, near);
    return lk__fail(LK_STATUS_USAGE, "%s: --%s '%s' must be one of %s%s%s%s", set->command, row->name, value,
                    lk__options_value_name(row, known, sizeof known), near ? "; did you mean '" : "", near ? near : "",
                    near ? "'?" : "");
}

static lk_status parse_whole(const lk_options_set *set, const lk_option *row, const char *value, long long *out)
{
    const char *word = row->choices ? row->choices[0] : NULL;
    long long min = row->kind == LK_OPTION_KIND_SEED ? 0 : (long long)row->min;
    long long max = row->kind == LK_OPTION_KIND_SEED ? INT64_MAX : (long long)row->max;
    *out = row->kind == LK_OPTION_KIND_INT ? LK_OPTION_WORD : 0;
    if ((word && strcmp(value, word) == 0) || lk__number_parse_int(value, min, max, out))
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE, "%s: --%s '%s' must be %s%sa whole number from %lld to %lld", set->command,
                    row->name, value, word ? word : "", word ? ", or " : "", min, max);
}

static lk_status parse_real(const lk_options_set *set, const lk_option *row, const char *value, double *out)
{
    double number;
    if (lk__number_parse_double(value, &number) && number >= row->min && number <= row->max) {
        *out = number;
        return LK_OK;
    }
    return lk__fail(LK_STATUS_USAGE, "%s: --%s '%s' must be a number from %g to %g", set->command, row->name, value,
                    row->min, row->max);
}

lk_status lk__options_fail_empty(const lk_options_set *set, const lk_option *row)
{
    return lk__fail(LK_STATUS_USAGE, "%s: --%s is empty; it wants %s", set->command, row->name, row->arg);
}

static lk_status fail_long(const lk_options_set *set, const lk_option *row)
{
    return lk__fail(LK_STATUS_USAGE, "%s: --%s is longer than the %d characters that it may have", set->command,
                    row->name, LK_LIST_BYTES - 1);
}

/* text is a list of values separated by commas, none of them empty. */
static lk_status set_list(const lk_options_set *set, const lk_option *row, const char *text, char *field)
{
    if (!*text)
        return lk__options_fail_empty(set, row);
    if (strlen(text) >= LK_LIST_BYTES)
        return fail_long(set, row);
    for (const char *value = text;; value++) {
        size_t length = strcspn(value, ",");
        if (length == 0)
            return lk__fail(LK_STATUS_USAGE, "%s: --%s '%s': a value is missing beside a comma; it wants %s",
                            set->command, row->name, text, row->arg);
        value += length;
        if (!*value)
            break;
    }
    snprintf(field, LK_LIST_BYTES, "%s", text);
    return LK_OK;
}

lk_status lk__options_set_value(const lk_options_set *set, const lk_option *row, const char *value, void *values)
{
    void *field = (char *)values + row->offset;
    long long whole = 0;
    switch (row->kind) {
    case LK_OPTION_KIND_FLAG:
    case LK_OPTION_KIND_ALIAS:
        *(bool *)field = !value || strcmp(value, "false") != 0;
        break;
    case LK_OPTION_KIND_TEXT:
    case LK_OPTION_KIND_ONCE:
    case LK_OPTION_KIND_SPEC:
    case LK_OPTION_KIND_TERMS:
        if (!*value)
            return lk__options_fail_empty(set, row);
        *(const char **)field = value;
        break;
    case LK_OPTION_KIND_OPTIONAL:
        *(const char **)field = value;
        break;
    case LK_OPTION_KIND_COUNT:
        LK_TRY(parse_whole(set, row, value, &whole));
        *(size_t *)field = (size_t)whole;
        break;
    case LK_OPTION_KIND_INT:
        LK_TRY(parse_whole(set, row, value, &whole));
        *(int *)field = (int)whole;
        break;
    case LK_OPTION_KIND_SEED:
        LK_TRY(parse_whole(set, row, value, &whole));
        *(uint64_t *)field = (uint64_t)whole;
        break;
    case LK_OPTION_KIND_REAL:
        return parse_real(set, row, value, field);
    case LK_OPTION_KIND_CHOICE:
        return set_choice(set, row, value, field);
    case LK_OPTION_KIND_LIST:
        return set_list(set, row, value, field);
    }
    return LK_OK;
}

/* A command line that is being parsed. */
typedef struct command_line {
    const lk_options_set *set;
    void *values;
    lk_options_parsed parsed;
    const char *own[LK_OPTIONS_MAX]; /* by row: the value given explicitly, or NULL */
    /* By row: the foreign word that gave it; NULL: its own name. */
    const lk_options_foreign *said[LK_OPTIONS_MAX];
    const lk_options_foreign *alias; /* the foreign word that is being read as an option, or NULL */
    int at;                          /* the position of the current word */
    char *const *after;              /* the words after the option */
    int after_count;
    int used; /* how many of them are the option's values */
} command_line;

/* The row of an alias contains "name=value" for the option that it stands for. */
const lk_option *lk__options_alias(const lk_options_set *set, const lk_option *alias, const char **value)
{
    size_t length = strcspn(alias->initial, "=");
    size_t target = find_row(set, alias->initial, length);
    assert(target < set->count && set->rows[target].kind != LK_OPTION_KIND_LIST);
    *value = alias->initial + length + 1;
    return &set->rows[target];
}

static lk_status set_alias(command_line *line, const lk_option *row)
{
    const lk_options_set *set = line->set;
    const char *value;
    const lk_option *target = lk__options_alias(set, row, &value);
    line->parsed.given[target - set->rows] = true;
    return lk__options_set_value(set, target, value, line->values);
}

static lk_status fail_missing(const lk_options_set *set, const lk_option *row)
{
    char name[NAME_BYTES];
    const char *arg = lk__options_value_name(row, name, sizeof name);
    if (row->initial)
        return lk__fail(LK_STATUS_USAGE, "%s: --%s needs a value (%s), as in '--%s %s'", set->command, row->name, arg,
                        row->name, row->initial);
    return lk__fail(LK_STATUS_USAGE, "%s: --%s needs a value (%s)", set->command, row->name, arg);
}

/* An option as it was typed: "--model cnn", "--arch cnn"; word is the foreign word, or NULL. A foreign word without a
 * value is explained: "--amp (--precision bf16)". */
static const char *typed_as(const lk_option *row, const lk_options_foreign *word, const char *value,
                            char text[TYPED_BYTES])
{
    bool bare = word && word->value == LK_OPTIONS_VALUE_NONE;
    snprintf(text, TYPED_BYTES, bare ? "%s (--%s %s)" : "%s%s %s", word ? word->word : "--",
             word && !bare ? "" : row->name, value);
    return text;
}

/* Refuses a value that differs from the value under another spelling of the option. */
static lk_status check_spellings(const command_line *line, size_t index, const char *value)
{
    const lk_options_set *set = line->set;
    const lk_option *row = &set->rows[index];
    for (size_t i = 0; i < set->count; i++) {
        const lk_option *other = &set->rows[i];
        const char *own = line->own[i];
        bool elsewhere = own && (i != index || line->said[i] != line->alias);
        if (elsewhere && lk__options_same(row, other) && strcmp(own, value) != 0) {
            char first[TYPED_BYTES], second[TYPED_BYTES];
            return lk__fail(LK_STATUS_USAGE, "%s: %s and %s contradict each other; give one", set->command,
                            typed_as(other, line->said[i], own, first), typed_as(row, line->alias, value, second));
        }
    }
    return LK_OK;
}

/* Sets an option to an explicit value. */
static lk_status set_own(command_line *line, size_t index, const char *value)
{
    const lk_option *row = &line->set->rows[index];
    if (row->kind == LK_OPTION_KIND_OPTIONAL && !*value)
        return lk__options_fail_empty(line->set, row);
    if (row->kind == LK_OPTION_KIND_ONCE && line->own[index])
        return lk__fail(LK_STATUS_USAGE, "%s: --%s is given twice, '%s' and '%s'; give one", line->set->command,
                        row->name, line->own[index], value);
    LK_TRY(check_spellings(line, index, value));
    LK_TRY(lk__options_set_value(line->set, row, value, line->values));
    /* The text of a list is temporary, so the field is kept instead. */
    line->own[index] = row->kind == LK_OPTION_KIND_LIST ? (const char *)line->values + row->offset : value;
    line->said[index] = line->alias;
    return LK_OK;
}

/* Whether a word continues a list that has count values. "-1" is a bad value, not an option. */
static bool goes_on(const lk_options_set *set, const char *word, int count)
{
    if (word[0] == '-')
        return isdigit((unsigned char)word[1]);
    return count == 0 || set->max_words == 0 || !word[strspn(word, "0123456789,")];
}

/* Joins the words of a list into one string. */
static lk_status take_list(command_line *line, size_t index)
{
    const lk_options_set *set = line->set;
    const lk_option *row = &set->rows[index];
    char text[LK_LIST_BYTES] = "";
    size_t length = 0;
    assert(!set->ends_at_word);
    for (; line->used < line->after_count && goes_on(set, line->after[line->used], line->used); line->used++) {
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%s", line->used ? "," : "",
                                   line->after[line->used]);
        if (length >= sizeof text)
            return fail_long(set, row);
    }
    return line->used ? set_own(line, index, text) : fail_missing(set, row);
}

/* "-1" may be a bad value, but "--x" is the next option, and so is a known "-n". */
static bool is_option(const lk_options_set *set, const char *word)
{
    return word[0] == '-' && (word[1] == '-' || (word[1] && find_letter(set, word[1]) < set->count));
}

/* value is what followed '=', or NULL. */
static lk_status apply(command_line *line, size_t index, const char *value)
{
    const lk_options_set *set = line->set;
    const lk_option *row = &set->rows[index];
    bool bare = row->kind == LK_OPTION_KIND_FLAG || row->kind == LK_OPTION_KIND_ALIAS;
    bool truth =
        row->kind == LK_OPTION_KIND_FLAG && value && (strcmp(value, "true") == 0 || strcmp(value, "false") == 0);
    line->parsed.given[index] = true;
    if (bare && value && !truth)
        return lk__fail(LK_STATUS_USAGE, "%s: --%s takes no value; leave '=%s' out", set->command, row->name, value);
    if (row->kind == LK_OPTION_KIND_ALIAS)
        return set_alias(line, row);
    if (bare)
        return lk__options_set_value(set, row, value, line->values);
    if (value)
        return set_own(line, index, value);
    if (row->kind == LK_OPTION_KIND_LIST)
        return take_list(line, index);
    const char *next = line->after_count > 0 ? line->after[0] : NULL;
    bool optional = row->kind == LK_OPTION_KIND_OPTIONAL;
    line->used = next && (optional ? next[0] != '-' : !is_option(set, next));
    if (!line->used && !optional)
        return fail_missing(set, row);
    return line->used ? set_own(line, index, next) : lk__options_set_value(set, row, "", line->values);
}

/* Keeps a foreign word that does not stand for an option. value is what followed '=', or NULL. */
static lk_status keep_foreign(command_line *line, const lk_options_foreign *row, const char *value)
{
    const lk_options_set *set = line->set;
    const char *next = line->after_count > 0 ? line->after[0] : NULL;
    bool wanted = row->value != LK_OPTIONS_VALUE_NONE && !value;
    bool is_key = lk__options_foreign_is_key(set, row);
    line->used = wanted && next && (row->value == LK_OPTIONS_VALUE_ONE ? !is_option(set, next) : next[0] != '-');
    value = line->used ? next : value;
    if (line->parsed.foreign_count == LK_OPTIONS_TAKEN_MAX)
        return lk__fail(LK_STATUS_USAGE,
                        "%s: '%s' is one word of another program too many; 'lockstep %s --help' lists "
                        "the options there are",
                        set->command, row->word, set->command);
    if (is_key && row->value == LK_OPTIONS_VALUE_ONE && !value)
        return lk__fail(LK_STATUS_USAGE, "%s: %s needs a value (a number)", set->command, row->word);
    if (is_key && row->value == LK_OPTIONS_VALUE_NONE && value)
        return lk__fail(LK_STATUS_USAGE, "%s: %s takes no value; leave '=%s' out", set->command, row->word, value);
    line->parsed.foreign[line->parsed.foreign_count++] =
        (lk_options_taken){.row = row, .value = value, .index = line->at, .used = line->used};
    return LK_OK;
}

/* Keeps the values of an option that a swept command has. `word` is for messages, value is what followed '=' or the
 * letter, or NULL. */
static lk_status take_swept(command_line *line, size_t index, const char *word, const char *value)
{
    const lk_options_set *set = line->set;
    lk_options_parsed *parsed = &line->parsed;
    if (index == set->count)
        return fail_unknown(set, word);
    const lk_option *row = &set->rows[index];
    for (size_t i = 0; i < parsed->swept_count; i++)
        if (lk__options_same(parsed->swept[i].row, row))
            return lk__fail(LK_STATUS_USAGE, "%s: --%s is given twice; give all its values at once", set->command,
                            row->name);
    if (parsed->swept_count == LK_SWEPT_MAX)
        return lk__fail(LK_STATUS_USAGE, "%s: more than %d options with lists", set->command, LK_SWEPT_MAX);
    line->used = !value && line->after_count > 0 && !is_option(set, line->after[0]);
    value = line->used ? line->after[0] : value;
    if (!value || !*value)
        return lk__fail(LK_STATUS_USAGE, "%s: --%s needs values, as in '--%s A,B'", set->command, row->name, row->name);
    parsed->swept[parsed->swept_count++] = (lk_options_swept){row, value};
    return LK_OK;
}

/* The same set with the options of the swept commands only. */
static lk_options_set swept_set(const lk_options_set *set)
{
    lk_options_set other = *set;
    other.commands = set->swept;
    return other;
}

/* The position of the option that a word of another program stands for in a swept command; otherwise the count. */
static size_t find_swept_foreign(const lk_options_set *swept, const char *word)
{
    const char *fixed;
    const lk_options_foreign *row = swept->commands ? lk__options_find_foreign(swept, word) : NULL;
    const lk_option *option = row ? lk__options_foreign_option(swept, row, &fixed) : NULL;
    return option && !fixed ? (size_t)(option - swept->rows) : swept->count;
}

/* A word of another program stands for an option, or is kept. */
static lk_status take_foreign(command_line *line, const lk_options_foreign *row, const char *value)
{
    const char *fixed;
    const lk_option *option = lk__options_foreign_option(line->set, row, &fixed);
    const char *next = line->after_count > 0 ? line->after[0] : NULL;
    bool valued = value || (next && next[0] != '-');
    if (!option || (row->value == LK_OPTIONS_VALUE_MAYBE && !valued))
        return keep_foreign(line, row, value);
    if (fixed && value)
        return lk__fail(LK_STATUS_USAGE, "%s: %s takes no value; leave '=%s' out", line->set->command, row->word,
                        value);
    line->alias = row;
    line->parsed.said[option - line->set->rows] = fixed ? row->word : NULL;
    lk_status status = apply(line, (size_t)(option - line->set->rows), fixed ? fixed : value);
    line->alias = NULL;
    return status;
}

static lk_status parse_long(command_line *line, const char *word)
{
    size_t length = strcspn(word + 2, "=");
    size_t row = find_row(line->set, word + 2, length);
    const char *value = word[2 + length] ? word + 2 + length + 1 : NULL;
    lk_options_set swept = swept_set(line->set);
    size_t swept_row = find_row(&swept, word + 2, length);
    const lk_options_foreign *foreign = lk__options_find_foreign(line->set, word);
    if (row < line->set->count)
        return apply(line, row, value);
    if (foreign && swept_row == line->set->count)
        return take_foreign(line, foreign, value);
    if (swept_row == line->set->count)
        swept_row = find_swept_foreign(&swept, word);
    return take_swept(line, swept_row, word, value);
}

/* The foreign word of one letter that begins the word, if its value follows at once: "-j4". */
static const lk_options_foreign *joined_foreign(const lk_options_set *set, const char *word)
{
    const char letter[] = {word[0], word[1], 0};
    const lk_options_foreign *row = lk__options_find_foreign(set, letter);
    return row && row->value == LK_OPTIONS_VALUE_ONE ? row : NULL;
}

/* "-n 4" and "-n4". Several letters cannot be joined, and a flag has no value. */
static lk_status parse_short(command_line *line, const char *word)
{
    const lk_options_set *set = line->set;
    lk_options_set swept = swept_set(set);
    size_t row = find_letter(set, word[1]), length = strcspn(word, "=");
    const lk_options_foreign *foreign = lk__options_find_foreign(set, word);
    if (foreign)
        return take_foreign(line, foreign, word[length] ? word + length + 1 : NULL);
    if (row == set->count && (foreign = joined_foreign(set, word)) != NULL)
        return take_foreign(line, foreign, word + 2);
    if (row == set->count)
        return take_swept(line, find_letter(&swept, word[1]), word, word[2] ? word + 2 : NULL);
    if (!word[2] || set->rows[row].kind != LK_OPTION_KIND_FLAG)
        return apply(line, row, word[2] ? word + 2 : NULL);
    if (find_letter(set, word[2]) < set->count)
        return lk__fail(LK_STATUS_USAGE, "%s: '%s': write short options one by one, as in '-%c -%c'", set->command,
                        word, word[1], word[2]);
    return lk__fail(LK_STATUS_USAGE, "%s: -%c takes no value; leave '%s' out", set->command, word[1], word + 2);
}

/* Refuses an alias beside a different explicit value of its option. The default, written explicitly, is
 * overridden by the alias. */
static lk_status check_aliases(const command_line *line)
{
    const lk_options_set *set = line->set;
    for (size_t i = 0; i < set->count; i++) {
        const lk_option *alias = &set->rows[i];
        if (!line->parsed.given[i] || alias->kind != LK_OPTION_KIND_ALIAS)
            continue;
        const char *value;
        const lk_option *row = lk__options_alias(set, alias, &value);
        const char *own = line->own[row - set->rows];
        if (own && strcmp(own, value) != 0 && !(row->initial && strcmp(own, row->initial) == 0))
            return lk__fail(LK_STATUS_USAGE, "%s: --%s %s and --%s (--%s %s) contradict each other; give one",
                            set->command, row->name, own, alias->name, row->name, value);
    }
    return LK_OK;
}

/* Takes a word that is not an option. */
static lk_status take_word(command_line *line, char *const *at)
{
    const lk_options_set *set = line->set;
    lk_options_parsed *parsed = &line->parsed;
    if (set->ends_at_word) {
        parsed->rest = at;
        parsed->word_count = 1;
        parsed->words[0] = *at;
        return LK_OK;
    }
    const lk_options_foreign *foreign = parsed->word_count == set->max_words ? lk__options_find_foreign(set, "") : NULL;
    if (foreign)
        return keep_foreign(line, foreign, *at);
    if (parsed->word_count == set->max_words)
        return lk__fail(LK_STATUS_USAGE, "%s: one word too many, '%s'; options start with '--'", set->command, *at);
    parsed->words[parsed->word_count++] = *at;
    return LK_OK;
}

static lk_status parse_option(command_line *line, const char *word)
{
    return word[1] == '-' ? parse_long(line, word) : parse_short(line, word);
}

static lk_status set_defaults(const lk_options_set *set, void *values)
{
    for (size_t i = 0; i < set->count; i++) {
        const lk_option *row = &set->rows[i];
        if (exists(set, i) && row->initial && row->kind != LK_OPTION_KIND_ALIAS)
            LK_TRY(lk__options_set_value(set, row, row->initial, values));
    }
    return LK_OK;
}

lk_status lk__options_parse(const lk_options_set *set, int argc, char *const *argv, void *values,
                            lk_options_parsed *out)
{
    command_line line = {.set = set, .values = values};
    LK_TRY(set_defaults(set, values));
    bool options = true; /* until "--" */
    for (int i = 0; i < argc && !line.parsed.rest; i++) {
        const char *word = argv[i];
        line.after = argv + i + 1;
        line.after_count = argc - i - 1;
        line.used = 0;
        line.at = i;
        if (options && strcmp(word, "--") == 0)
            options = false;
        else if (options && word[0] == '-' && word[1])
            LK_TRY(parse_option(&line, word));
        else
            LK_TRY(take_word(&line, &argv[i]));
        i += line.used;
    }
    LK_TRY(check_aliases(&line));
    LK_TRY(lk__options_refuse(&(lk_options_refused){.set = set,
                                                    .argv = argv,
                                                    .argc = argc,
                                                    .end = line.parsed.rest ? (int)(line.parsed.rest - argv) : argc,
                                                    .taken = line.parsed.foreign,
                                                    .count = line.parsed.foreign_count,
                                                    .typed = line.own}));
    *out = line.parsed;
    return LK_OK;
}

bool lk__options_given(const lk_options_set *set, const lk_options_parsed *parsed, const char *name)
{
    size_t row = find_row(set, name, strlen(name));
    if (row == set->count)
        return false;
    for (size_t i = 0; i < set->count; i++) {
        if (parsed->given[i] && lk__options_same(&set->rows[i], &set->rows[row]))
            return true;
    }
    return false;
}

bool lk__options_typed(const lk_options_set *set, const lk_options_parsed *parsed, const char *name)
{
    size_t row = find_row(set, name, strlen(name));
    for (size_t i = 0; row < set->count && i < set->count; i++) {
        if (parsed->given[i] && !parsed->from[i] && lk__options_same(&set->rows[i], &set->rows[row]))
            return true;
    }
    return false;
}

const char *lk__options_spelling(const lk_options_set *set, const lk_options_parsed *parsed, const char *name)
{
    size_t row = find_row(set, name, strlen(name));
    for (size_t i = 0; row < set->count && i < set->count; i++) {
        if (parsed->given[i] && lk__options_same(&set->rows[i], &set->rows[row]))
            return set->rows[i].name;
    }
    return name;
}
