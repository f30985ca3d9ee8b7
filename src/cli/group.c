/* group.c - what the program prints of a group that failed. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"

int lk__cli_group_fail(lk_status status, const lk_group *group)
{
    size_t bytes = group ? lk_group_history(group, NULL, 0) : 1;
    char *text = bytes > 1 ? malloc(bytes) : NULL;
    if (text) {
        lk_group_history(group, text, bytes);
        fprintf(stderr, "the last calls of rank %d:\n%s", lk_group_rank(group), text);
        free(text);
    }
    /* The reason last: a launcher keeps the end of what a rank has said. */
    return lk__cli_fail(status);
}
