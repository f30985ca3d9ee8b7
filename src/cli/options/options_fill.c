/* options_fill.c - adds the options of a file; the command line has precedence. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options/options.h"

/* A command line that was parsed. */
typedef struct command_line {
    const lk_options_set *set;
    const lk_options_parsed *parsed;
    const void *values;
} command_line;

/* Whether the row's option was on the command line, in any spelling or as an alias. */
static bool typed(const command_line *line, const lk_option *row)
{
    const lk_options_parsed *parsed = line->parsed;
    for (size_t i = 0; i < line->set->count; i++) {
        if (parsed->given[i] && !parsed->from[i] && lk__options_same(&line->set->rows[i], row))
            return true;
    }
    return false;
}

/* A flag that was set to false is not a rival. */
static bool rival_typed(const command_line *line, const char *name)
{
    if (!*name)
        return line->parsed->word_count > 0;
    if (*name == '$') {
        const char *text = getenv(name + 1);
        return text && *text;
    }
    const lk_option *row = lk__options_find(line->set, name);
    if (!row || !typed(line, row))
        return false;
    return row->kind != LK_OPTION_KIND_FLAG || *(const bool *)((const char *)line->values + row->offset);
}

static bool yields(const lk_options_set *set, const lk_options_rival *rival, const lk_option *row)
{
    for (size_t i = 0; rival->yields[i]; i++) {
        const lk_option *other = lk__options_find(set, rival->yields[i]);
        if (other && lk__options_same(other, row))
            return true;
    }
    return false;
}

/* Whether the command line overrides the row's option. */
static bool overridden(const command_line *line, const lk_option *row)
{
    bool over = typed(line, row);
    for (const lk_options_rival *rival = line->set->rivals; !over && rival && *rival->yields; rival++) {
        for (size_t i = 0; !over && rival->to[i] && yields(line->set, rival, row); i++)
            over = rival_typed(line, rival->to[i]);
    }
    return over;
}

/* Replaces an alias by the option that it stands for. */
static lk_options_entry resolve(const lk_options_set *set, const lk_options_entry *entry)
{
    lk_options_entry out = *entry;
    if (entry->row->kind == LK_OPTION_KIND_ALIAS)
        out.row = lk__options_alias(set, entry->row, &out.value);
    else if (!entry->value)
        out.value = entry->row->kind == LK_OPTION_KIND_FLAG ? "true" : "";
    return out;
}

/* Compares entries[index] with those before it. */
static lk_status check_entries(const lk_options_set *set, const lk_options_entry *entries, size_t index)
{
    lk_options_entry entry = resolve(set, &entries[index]);
    for (size_t i = 0; i < index; i++) {
        lk_options_entry other = resolve(set, &entries[i]);
        if (entries[i].row == entries[index].row)
            return lk__fail(LK_STATUS_USAGE, "%s: %s is at %s already; give it once", entry.source,
                            entries[i].row->name, other.source);
        if (lk__options_same(other.row, entry.row) && strcmp(other.value, entry.value) != 0)
            return lk__fail(LK_STATUS_USAGE, "%s: %s and %s, at %s, contradict each other; give one", entry.source,
                            entries[index].row->name, entries[i].row->name, other.source);
    }
    return LK_OK;
}

/* Checks the value as the row reads it, but sets nothing. */
static lk_status check_value(const lk_options_set *set, const lk_options_entry *entry)
{
    union {
        uint64_t number;
        double real;
        const char *text;
        char list[LK_LIST_BYTES];
    } field;
    lk_option row = *entry->row;
    row.offset = 0;
    if (row.kind == LK_OPTION_KIND_OPTIONAL && !*entry->value)
        return lk__options_fail_empty(set, &row);
    return lk__options_set_value(set, &row, entry->value, &field);
}

lk_status lk__options_fill(const lk_options_set *set, const lk_options_entry *entries, size_t count, void *values,
                           lk_options_parsed *parsed)
{
    const command_line line = {.set = set, .parsed = parsed, .values = values};
    for (size_t i = 0; i < count; i++) {
        lk_options_set here = *set;
        here.command = entries[i].source;
        lk_options_entry entry = resolve(set, &entries[i]);
        LK_TRY(check_entries(set, entries, i));
        if (entries[i].value)
            LK_TRY(check_value(&here, &entries[i]));
        if (overridden(&line, entry.row))
            continue;
        LK_TRY(lk__options_set_value(&here, entry.row, entry.value, values));
        size_t index = (size_t)(entry.row - set->rows);
        parsed->given[index] = true;
        parsed->from[index] = entry.source;
    }
    return LK_OK;
}
