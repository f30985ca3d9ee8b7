/* cmd_compare.c - `lockstep compare A B`: silence means the same bits. */
#include <stdio.h>

#include "cli/cli.h"
#include "cli/json.h"

static void print_difference(void *arg, const char *key, const char *what)
{
    (void)arg;
    lk__print_key(key);
    printf(": %s\n", what);
}

int lk__cmd_compare(lk_args *args)
{
    lk_state *a = NULL, *b = NULL;
    lk_status status;
    size_t differ = 0;
    LK_TRY_GOTO(lk_state_load(args->words[0], &a), destroy_states);
    LK_TRY_GOTO(lk_state_load(args->words[1], &b), destroy_states);
    differ = lk_state_compare(a, b, args->quiet ? NULL : print_difference, NULL);

destroy_states:
    lk_state_destroy(b);
    lk_state_destroy(a);
    if (status != LK_OK) {
        /* 1 would say that the models differ. */
        (void)lk__cli_fail(status);
        return LK_EXIT_USAGE;
    }
    /* main() says why. */
    if (fflush(stdout) != 0 || ferror(stdout))
        return LK_EXIT_USAGE;
    return differ ? LK_EXIT_FAILED : LK_EXIT_DONE;
}
