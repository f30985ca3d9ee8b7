/* fail.c - prints errors, and maps each status to an exit status. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"

int lk__cli_fail(lk_status status)
{
    static const int codes[LK_STATUS_COUNT] = {
        [LK_STATUS_USAGE] = LK_EXIT_USAGE,       [LK_STATUS_NOT_FOUND] = LK_EXIT_USAGE,
        [LK_STATUS_IO] = LK_EXIT_FAILED,         [LK_STATUS_FORMAT] = LK_EXIT_FAILED,
        [LK_STATUS_MISMATCH] = LK_EXIT_FAILED,   [LK_STATUS_MEMORY] = LK_EXIT_FAILED,
        [LK_STATUS_NONFINITE] = LK_EXIT_FAILED,  [LK_STATUS_PEER] = LK_EXIT_FAILED,
        [LK_STATUS_UNSUPPORTED] = LK_EXIT_USAGE,
    };
    fflush(stdout);
    fprintf(stderr, "lockstep: %s\n", lk__args_spell(lk_error_detail()));
    return codes[status];
}

int lk__cli_group_fail(lk_status status, const lk_group *group)
{
    size_t bytes = group ? lk_group_history(group, NULL, 0) : 1;
    char *text = bytes > 1 ? malloc(bytes) : NULL;
    if (text) {
        lk_group_history(group, text, bytes);
        fprintf(stderr, "the last calls of rank %d:\n%s", lk_group_rank(group), text);
        free(text);
    }
    /* The reason comes last, because a launcher keeps the end of a rank's output. */
    return lk__cli_fail(status);
}
