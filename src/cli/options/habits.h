/* habits.h - words that users of other programs type: options of PyTorch's scripts, of torchrun and of MPI's
 * launchers, and PyTorch's names of parameters in --optimizer and --schedule. A word that can mean only one thing here
 * is taken for it; any other is refused with the line to write. */
#ifndef LK_CLI_OPTIONS_HABITS_H
#define LK_CLI_OPTIONS_HABITS_H

#include "cli/options/args.h"

/* The words on a command line. */
extern const lk_options_foreign lk__habits_words[];
extern const lk_options_foreign_value lk__habits_values[];

/* Takes a learning rate out of --optimizer, "sgd:lr=.1", or --schedule, "onecycle:max_lr=.1", as if it were --lr.
 * Called before options of a checkpoint are added. USAGE if it contradicts --lr. Texts that this function or the next
 * one writes are valid until the function is called again. */
lk_status lk__habits_take_lr(const lk_options_set *set, lk_args *args, lk_options_parsed *parsed) LK_CHECKED;
/* Writes --optimizer, --schedule and --backend with the names that they have here, and adds --momentum and other
 * parameters of its text to --optimizer. USAGE for a parameter that contradicts another, or that has no meaning here.
 */
lk_status lk__habits_complete(const lk_options_set *set, lk_args *args, const lk_options_parsed *parsed) LK_CHECKED;

#endif
