/* completion_bash.c - the completion script of bash. It needs no other script. */
#include "cli/commands/pages.h"

/* Writes a case label and what is offered there. */
static void put_case(FILE *out, const char *label, const lk_command_values *values)
{
    fprintf(out, "    %s)", label);
    if (*values->words)
        fprintf(out, " words='%s'", values->words);
    if (values->files || values->folders || values->programs)
        fprintf(out, " kind=%s", values->programs ? "programs" : values->files ? "files" : "folders");
    fprintf(out, " ;;\n");
}

static void put_option(FILE *out, const lk_command *command, const lk_options_set *set, const lk_option *row)
{
    lk_command_values values = lk__command_option_values(set, row);
    char label[256];
    int used = snprintf(label, sizeof label, "%s:--%s", command->name, row->name);
    if (row->letter)
        snprintf(label + used, sizeof label - (size_t)used, " | %s:-%c", command->name, row->letter);
    if (*values.words || values.files || values.folders || values.anything)
        put_case(out, label, &values);
}

/* The case of a word of other programs, which takes the values of the option that it stands for. */
static void put_foreign(FILE *out, const lk_command *command, const lk_options_set *set, const lk_options_foreign *row)
{
    const lk_option *option = lk__command_foreign_option(set, row);
    char label[64];
    if (!option)
        return;
    lk_command_values values = lk__command_option_values(set, option);
    snprintf(label, sizeof label, "%s:%s", command->name, row->word);
    put_case(out, label, &values);
}

/* The cases of options with values. */
static void put_options(FILE *out, const lk_command *command)
{
    lk_options_set set = lk__args_options(command->name, command->bit, command->max_words);
    for (size_t i = 0; i < set.count; i++)
        if (lk__command_has(&set, &set.rows[i]))
            put_option(out, command, &set, &set.rows[i]);
    for (const lk_options_foreign *row = set.foreign; row->word; row++)
        put_foreign(out, command, &set, row);
}

/* The cases of words that begin with a dash, and of others. */
static void put_words(FILE *out, const lk_command *command)
{
    lk_options_set set = lk__args_options(command->name, command->bit, command->max_words);
    lk_command_values values = lk__command_word_values(command);
    char label[64];
    const char *sign = "";
    fprintf(out, "    %s:-*) words='", command->name);
    for (size_t i = 0; i < set.count; i++)
        if (lk__command_has(&set, &set.rows[i])) {
            fprintf(out, "%s--%s", sign, set.rows[i].name);
            sign = " ";
        }
    fprintf(out, "' ;;\n");
    snprintf(label, sizeof label, "%s:*", command->name);
    if (*values.words || values.files || values.folders || values.programs)
        put_case(out, label, &values);
}

static void put_commands(FILE *out, void (*put)(FILE *out, const lk_command *command))
{
    const lk_command *command;
    for (size_t i = 0; (command = lk__command_list(i)); i++)
        put(out, command);
}

static void put_name(FILE *out, const lk_command *command)
{
    fprintf(out, " %s", command->name);
}

void lk__command_complete_bash(FILE *out)
{
    fprintf(out, "# Completion of lockstep for bash, written by 'lockstep help --completion bash'.\n"
                 "_lockstep()\n{\n"
                 "    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
                 "    local command=${COMP_WORDS[1]} words='' kind=''\n"
                 "    COMPREPLY=()\n"
                 "    # '=' is a word of its own.\n"
                 "    if [[ $current == = ]]; then\n"
                 "        current=''\n"
                 "    elif [[ $before == = ]]; then\n"
                 "        before=${COMP_WORDS[COMP_CWORD - 2]}\n"
                 "    fi\n"
                 "    [[ $before != --* ]] || before=${before//_/-}\n"
                 "    # 'sweep ... -- train ...' goes on as train.\n"
                 "    if [[ $command == sweep && \" ${COMP_WORDS[*]:2:COMP_CWORD-2} \" == *' train '* ]]; then\n"
                 "        command=train\n"
                 "    fi\n"
                 "    if ((COMP_CWORD == 1)); then\n"
                 "        words='--help --version");
    put_commands(out, put_name);
    fprintf(out, "'\n        command=''\n    fi\n    case $command:$before in\n    :*) ;;\n");
    put_commands(out, put_options);
    fprintf(out, "    *)\n    case $command:$current in\n");
    put_commands(out, put_words);
    fprintf(out, "    esac ;;\n    esac\n"
                 "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
                 "    local -a files=()\n"
                 "    case $kind in\n"
                 "    files) mapfile -t files < <(compgen -f -- \"$current\") ;;\n"
                 "    folders) mapfile -t files < <(compgen -d -- \"$current\") ;;\n"
                 "    programs) mapfile -t files < <(compgen -c -- \"$current\"; compgen -f -- \"$current\") ;;\n"
                 "    esac\n"
                 "    if ((${#files[@]})); then\n"
                 "        COMPREPLY+=(\"${files[@]}\")\n"
                 "        compopt -o filenames 2>/dev/null || true\n"
                 "    fi\n"
                 "}\n"
                 "complete -F _lockstep lockstep\n");
}
