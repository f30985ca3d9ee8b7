/* cli.h - commands and exit statuses of the program. */
#ifndef LK_CLI_CLI_H
#define LK_CLI_CLI_H

#include <lockstep/group.h>

#include "cli/options/args.h"

/* Exit statuses that scripts rely on. */
enum { LK_EXIT_DONE = 0, LK_EXIT_FAILED = 1, LK_EXIT_USAGE = 2 };

typedef struct lk_command {
    const char *name;
    const char *synopsis; /* arguments, as in the usage line */
    const char *summary;
    const char *about; /* more text for its help, or "" */
    unsigned bit;      /* selects its options in the table */
    size_t min_words, max_words;
    const char *words_wanted;  /* what is missing if there are fewer words */
    int (*run)(lk_args *args); /* returns the exit status */
} lk_command;

/* What the program is, in its help and its man page. */
#define LK_COMMAND_PROGRAM_SUMMARY "trains neural networks to the same bits, however the work is divided"

/* Rows of the command table, NULL after the last. */
const lk_command *lk__command_list(size_t index);
/* NULL if there is no such command; then the error detail suggests the nearest name. */
const lk_command *lk__command_find(const char *name);
/* Prints usage, options and defaults of a command on stdout. */
void lk__command_help(const lk_command *command);
/* Prints the list of commands. */
void lk__command_program_help(FILE *out);

/* Prints the thread's error detail and returns the exit status: 2 if another command line would help, 1 if the
 * job failed. */
int lk__cli_fail(lk_status status);
/* As lk__cli_fail; prints the last calls of the failed group, too. group may be NULL. */
int lk__cli_group_fail(lk_status status, const lk_group *group);

int lk__cmd_train(lk_args *args);
int lk__cmd_eval(lk_args *args);
int lk__cmd_predict(lk_args *args);
int lk__cmd_compare(lk_args *args);
int lk__cmd_convert(lk_args *args);
int lk__cmd_verify(lk_args *args);
int lk__cmd_bench(lk_args *args);
int lk__cmd_run(lk_args *args);
int lk__cmd_data(lk_args *args);
int lk__cmd_plot(lk_args *args);
int lk__cmd_report(lk_args *args);
int lk__cmd_sweep(lk_args *args);
int lk__cmd_info(lk_args *args);
int lk__cmd_serve(lk_args *args);
int lk__cmd_help(lk_args *args);

/* The cases of `bench`. */
lk_status lk__bench_allreduce(const lk_args *args) LK_CHECKED;
lk_status lk__bench_data(const lk_args *args) LK_CHECKED;
lk_status lk__bench_kernels(const lk_args *args) LK_CHECKED;
lk_status lk__bench_layers(const lk_args *args) LK_CHECKED;
lk_status lk__bench_predict(const lk_args *args) LK_CHECKED;
lk_status lk__bench_train(const lk_args *args) LK_CHECKED;

#endif
