/* help.c - `lockstep help`: commands and options, from their tables; as text, man pages or completion scripts. */
#include <stdio.h>

#include <lockstep/version.h>

#include "cli/cli.h"
#include "cli/commands/pages.h"

void lk__command_program_help(FILE *out)
{
    fprintf(out,
            "lockstep %s - %s\n\n"
            "usage: lockstep COMMAND [options]\n\n",
            LK_VERSION, LK_COMMAND_PROGRAM_SUMMARY);
    const lk_command *command;
    for (size_t i = 0; (command = lk__command_list(i)); i++)
        fprintf(out, "  %-10s %s\n", command->name, command->summary);
    fprintf(out, "\n'lockstep help COMMAND' shows its options and their defaults.\n");
}

void lk__command_help(const lk_command *command)
{
    lk_options_set set = lk__args_options(command->name, command->bit, command->max_words);
    printf("usage: lockstep %s %s\n\n%s\n", command->name, command->synopsis, command->summary);
    if (*command->about)
        printf("%s\n", command->about);
    printf("\n");
    lk__options_help(&set, stdout);
}

static int print_completion(const lk_args *args)
{
    if (args->man || args->word_count)
        return lk__cli_fail(lk__fail(LK_STATUS_USAGE,
                                     "help: `completion` is one script for all commands, and stands "
                                     "alone: lockstep help --completion %s",
                                     lk__args_completion_names[args->completion]));
    if (args->completion == LK_ARGS_COMPLETION_BASH)
        lk__command_complete_bash(stdout);
    else
        lk__command_complete_zsh(stdout);
    return LK_EXIT_DONE;
}

int lk__cmd_help(lk_args *args)
{
    if (args->completion != LK_ARGS_COMPLETION_NONE)
        return print_completion(args);
    const lk_command *command = args->word_count ? lk__command_find(args->words[0]) : NULL;
    if (args->word_count && !command)
        return lk__cli_fail(LK_STATUS_USAGE);
    if (args->man)
        lk__command_man(command, stdout);
    else if (command)
        lk__command_help(command);
    else
        lk__command_program_help(stdout);
    return LK_EXIT_DONE;
}
