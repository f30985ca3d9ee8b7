/* completion_zsh.c - the completion script of zsh, for a folder of $fpath. */
#include <string.h>

#include "cli/commands/pages.h"

/* Writes text inside single quotes, where _arguments gives brackets and colons a meaning. */
static void put_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", out);
        else if (strchr("[]:\\", *text))
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
    }
}

/* Writes the action that offers the values. */
static void put_action(FILE *out, const lk_command_values *values)
{
    const char *files = values->programs ? "_command_names" : values->files ? "_files" : "_files -/";
    bool named = values->programs || values->files || values->folders;
    if (*values->words && named)
        fprintf(out, " _alternative \"words\\:word\\:(%s)\" \"files\\:file\\:%s\"", values->words, files);
    else if (*values->words)
        fprintf(out, "(%s)", values->words);
    else
        fputs(named ? files : " ", out);
}

static void put_option(FILE *out, const lk_options_set *set, const lk_option *row)
{
    char name[64], help[1024];
    lk_command_values values = lk__command_option_values(set, row);
    const char *arg = lk__options_value_name(row, name, sizeof name);
    if (!arg && *values.words) /* a flag that is swept */
        arg = "VALUES";
    fprintf(out, " \\\n            ");
    if (row->letter)
        fprintf(out, "'(-%c --%s)'{-%c%s,--%s%s}'[", row->letter, row->name, row->letter, arg ? "+" : "", row->name,
                arg ? "=" : "");
    else
        fprintf(out, "'--%s%s[", row->name, arg ? "=" : "");
    put_text(out, lk__options_spell(set, NULL, row->help, help, sizeof help));
    fputc(']', out);
    if (arg) {
        fputs(row->kind == LK_OPTION_KIND_OPTIONAL ? "::" : ":", out);
        put_text(out, arg);
        fputc(':', out);
        put_action(out, &values);
    }
    fputc('\'', out);
}

/* A word of other programs: '!' keeps it out of what is offered. */
static void put_foreign(FILE *out, const lk_options_set *set, const lk_options_foreign *row)
{
    const lk_option *option = lk__command_foreign_option(set, row);
    if (!option)
        return;
    lk_command_values values = lk__command_option_values(set, option);
    fprintf(out, " \\\n            '!%s%s:%s:", row->word, row->word[1] == '-' ? "=" : "+", option->name);
    put_action(out, &values);
    fputc('\'', out);
}

/* The words of a command that are no options. */
static void put_words(FILE *out, const lk_command *command)
{
    lk_command_values values = lk__command_word_values(command);
    if (values.programs) {
        fprintf(out, " \\\n            '(-)1:program:_command_names -e' \\\n            '*::arguments:_normal'");
    } else if (*values.words || values.files || values.folders) {
        fprintf(out, " \\\n            '*:word:");
        put_action(out, &values);
        fputc('\'', out);
    }
}

static void put_command(FILE *out, const lk_command *command)
{
    lk_options_set set = lk__args_options(command->name, command->bit, command->max_words);
    fprintf(out, "    (%s)\n        _arguments -S", command->name);
    for (size_t i = 0; i < set.count; i++)
        if (lk__command_has(&set, &set.rows[i]))
            put_option(out, &set, &set.rows[i]);
    for (const lk_options_foreign *row = set.foreign; row->word; row++)
        put_foreign(out, &set, row);
    put_words(out, command);
    fprintf(out, "\n        ;;\n");
}

void lk__command_complete_zsh(FILE *out)
{
    const lk_command *command;
    fprintf(out, "#compdef lockstep\n"
                 "# Completion of lockstep for zsh, written by 'lockstep help --completion zsh'.\n"
                 "_lockstep() {\n    local -a commands\n    commands=(\n");
    for (size_t i = 0; (command = lk__command_list(i)); i++) {
        fprintf(out, "        '%s:", command->name);
        put_text(out, command->summary);
        fprintf(out, "'\n");
    }
    fprintf(out, "    )\n"
                 "    if (( CURRENT == 2 )); then\n"
                 "        _describe command commands\n"
                 "        return\n"
                 "    fi\n"
                 "    shift words\n"
                 "    (( CURRENT-- ))\n"
                 "    # 'sweep ... -- train ...' goes on as train.\n"
                 "    local -i at=${words[(i)train]}\n"
                 "    if [[ $words[1] == sweep ]] && (( at < CURRENT )); then\n"
                 "        shift $(( at - 1 )) words\n"
                 "        (( CURRENT -= at - 1 ))\n"
                 "    fi\n"
                 "    case $words[1] in\n");
    for (size_t i = 0; (command = lk__command_list(i)); i++)
        put_command(out, command);
    fprintf(out, "    esac\n}\n"
                 "_lockstep \"$@\"\n");
}
