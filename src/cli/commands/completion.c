/* completion.c - what can follow an option or a command, from the tables; the scripts of both shells use it. */
#include <ctype.h>
#include <string.h>

#include "cli/commands/pages.h"
#include "cli/sweep/sweep.h"
#include "nn/init.h"
#include "optim/optim.h"

static const char *model_name(size_t index)
{
    const lk_model_info *row = lk_model_list(index);
    return row ? row->name : NULL;
}

static const char *data_name(size_t index)
{
    const lk_dataset_row *row = lk_dataset_list(index);
    return row ? row->name : NULL;
}

static const char *optimizer_name(size_t index)
{
    const lk_optim_info *row = lk_optimizer_list(index);
    return row ? row->name : NULL;
}

static const char *schedule_name(size_t index)
{
    const lk_optim_info *row = lk_lr_schedule_list(index);
    return row ? row->name : NULL;
}

static const char *init_name(size_t index)
{
    const lk_init_info *row = lk__init_list(index);
    return row ? row->name : NULL;
}

static const char *transform_name(size_t index)
{
    const lk_transform_info *row = lk_transform_list(index);
    return row ? row->name : NULL;
}

static const char *device_name(size_t index)
{
    const lk_device_type *type = lk__device_list(index);
    return type ? type->name : NULL;
}

static const char *command_name(size_t index)
{
    const lk_command *command = lk__command_list(index);
    return command ? command->name : NULL;
}

/* Options whose values are names of a table. */
static const struct {
    const char *option;
    const char *(*next)(size_t index);
} tables[] = {
    {"model", model_name}, {"data", data_name},         {"optimizer", optimizer_name},    {"schedule", schedule_name},
    {"init", init_name},   {"augment", transform_name}, {"test-augment", transform_name}, {"devices", device_name}};

/* Adds the first `length` bytes of word, up to a sign that a name cannot have, unless it is there. */
static void add_word(lk_command_values *values, const char *word, size_t length)
{
    size_t used = strlen(values->words), room = sizeof values->words - used;
    char name[64], padded[sizeof values->words + 2], wanted[sizeof name + 2];
    snprintf(name, sizeof name, "%.*s", (int)length, word);
    name[strcspn(name, "=:[ ")] = 0;
    snprintf(padded, sizeof padded, " %s ", values->words);
    snprintf(wanted, sizeof wanted, " %s ", name);
    if (*name && !strstr(padded, wanted))
        snprintf(values->words + used, room, "%s%s", used ? " " : "", name);
}

static void add_names(lk_command_values *values, const char *(*next)(size_t index))
{
    const char *name;
    for (size_t i = 0; (name = next(i)); i++)
        add_word(values, name, strlen(name));
}

/* Whether all of the first `length` bytes are small letters: words that are typed as they are. */
static bool is_literal(const char *word, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!islower((unsigned char)word[i]))
            return false;
    return length > 0;
}

/* An option that the command itself lacks has a list of values, for the command that is swept. */
static bool is_swept(const lk_options_set *set, const lk_option *row)
{
    return !(row->commands & set->commands) && (row->commands & set->swept) && row->kind != LK_OPTION_KIND_ALIAS &&
           lk__sweep_takes(row->name);
}

bool lk__command_has(const lk_options_set *set, const lk_option *row)
{
    return (row->commands & set->commands) || is_swept(set, row);
}

const lk_option *lk__command_foreign_option(const lk_options_set *set, const lk_options_foreign *row)
{
    const char *fixed;
    bool named = (row->commands & set->commands) && !row->beside && *row->word && row->value != LK_OPTIONS_VALUE_NONE;
    const lk_option *option = named ? lk__options_foreign_option(set, row, &fixed) : NULL;
    return option && !fixed ? option : NULL;
}

lk_command_values lk__command_option_values(const lk_options_set *set, const lk_option *row)
{
    lk_command_values values = {.words = ""};
    if (row->kind == LK_OPTION_KIND_FLAG && is_swept(set, row))
        add_word(&values, "true,false", strlen("true,false"));
    if (row->kind == LK_OPTION_KIND_FLAG || row->kind == LK_OPTION_KIND_ALIAS)
        return values;
    values.anything = row->kind != LK_OPTION_KIND_CHOICE;
    for (size_t i = 0; row->choices && row->choices[i]; i++)
        add_word(&values, row->choices[i], strlen(row->choices[i]));
    for (const char *at = row->arg; at && *at;) {
        size_t length = strcspn(at, "|");
        if (is_literal(at, length))
            add_word(&values, at, length);
        at += length + (at[length] == '|');
    }
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (strcmp(tables[i].option, row->name) == 0)
            add_names(&values, tables[i].next);
    values.files = row->arg && (strstr(row->arg, "FILE") || strstr(row->arg, "PATH"));
    values.folders = row->arg && strstr(row->arg, "DIR") != NULL;
    return values;
}

/* Adds one word of a synopsis: "list", "NAME", "FILE". */
static void add_synopsis(lk_command_values *values, const char *word)
{
    if (strcmp(word, "options") == 0 || strcmp(word, "ARGUMENTS") == 0)
        return;
    if (is_literal(word, strlen(word)))
        add_word(values, word, strlen(word));
    else if (strcmp(word, "COMMAND") == 0)
        add_names(values, command_name);
    else if (strcmp(word, "PROGRAM") == 0)
        values->programs = true;
    else if (strcmp(word, "NAME") == 0)
        add_names(values, data_name);
    else if (strcmp(word, "DIR") == 0)
        values->folders = true;
    else
        values->files = true;
}

lk_command_values lk__command_word_values(const lk_command *command)
{
    static const char letters[] = "-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char value[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ,";
    lk_command_values values = {.words = ""};
    for (const char *at = command->synopsis; *at && command->max_words > 0;) {
        char word[64];
        size_t length = strspn(at, letters);
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        at += length ? length : 1;
        if (*word == '-') /* an option and its value */
            at += *at == ' ' ? 1 + strspn(at + 1, value) : 0;
        else if (*word)
            add_synopsis(&values, word);
    }
    return values;
}
