/* help.c - `lockstep help`: commands and options, from their tables. */
#include <stdio.h>

#include "cli/cli.h"

void lk__command_program_help(FILE *out)
{
    fprintf(out,
            "lockstep %s - trains neural networks to the same bits, however the work is divided\n\n"
            "usage: lockstep COMMAND [options]\n\n",
            LK_VERSION);
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

int lk__cmd_help(lk_args *args)
{
    if (args->word_count == 0) {
        lk__command_program_help(stdout);
        return LK_EXIT_DONE;
    }
    const lk_command *command = lk__command_find(args->words[0]);
    if (!command)
        return lk__cli_fail(LK_STATUS_USAGE);
    lk__command_help(command);
    return LK_EXIT_DONE;
}
