/* convert.c - `lockstep convert A B`: a model file in another format, chosen by the ending of B. The tensors
 * keep their bits; everything else in a PyTorch checkpoint is left out. */
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "io/state/state_file.h"

/* Refuses to replace a checkpoint by its tensors, because training could not be resumed from them. */
static lk_status check_apart(const char *from, const char *to)
{
    struct stat a, b;
    if (stat(from, &a) == 0 && stat(to, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        return lk__fail(LK_STATUS_USAGE, "convert: '%s' and '%s' are one file; give the new one another name", from,
                        to);
    return LK_OK;
}

static lk_status convert(const char *from, const char *to, bool quiet)
{
    lk_state *state;
    lk_status status;
    LK_TRY(lk__state_file_check_ending(to, true));
    LK_TRY(check_apart(from, to));
    LK_TRY(lk_state_load(from, &state));
    LK_TRY_GOTO(lk_state_save(state, to), destroy_state);
    if (!quiet)
        printf("%s: %zu tensors, hash %016" PRIx64 "\n", to, lk_state_count(state), lk_state_hash(state));
destroy_state:
    lk_state_destroy(state);
    return status;
}

int lk__cmd_convert(lk_args *args)
{
    lk_status status = convert(args->words[0], args->words[1], args->quiet);
    return status == LK_OK ? LK_EXIT_DONE : lk__cli_fail(status);
}
