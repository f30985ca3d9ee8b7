/* pages.h - man pages and completion scripts, written from the tables of commands and options. */
#ifndef LK_CLI_COMMANDS_PAGES_H
#define LK_CLI_COMMANDS_PAGES_H

#include "cli/cli.h"

/* Writes the source (roff) of a command's man page; NULL: of the program's. */
void lk__command_man(const lk_command *command, FILE *out);

/* What can follow an option, or can be a word of a command. */
typedef struct lk_command_values {
    char words[2048]; /* separated by single blanks; "" for none */
    bool files, folders, programs;
    bool anything; /* a value that no list has, as a number */
} lk_command_values;
/* Whether the command has the option: its own, or one of a command that it sweeps. */
bool lk__command_has(const lk_options_set *set, const lk_option *row);
/* What can follow an option of the command. anything is false if the option has no value. */
lk_command_values lk__command_option_values(const lk_options_set *set, const lk_option *row);
/* The option that a word of other programs stands for, if a value follows it; NULL if there is none. */
const lk_option *lk__command_foreign_option(const lk_options_set *set, const lk_options_foreign *row);
lk_command_values lk__command_word_values(const lk_command *command);

/* Write the completion script of a shell. */
void lk__command_complete_bash(FILE *out);
void lk__command_complete_zsh(FILE *out);

#endif
