/* cmd_bench.c - `lockstep bench`: which case to run. */
#include <string.h>

#include "base/spec.h"
#include "cli/cli.h"

static const struct {
    const char *name;
    lk_status (*run)(const lk_args *args);
} cases[] = {
    {"kernels", lk__bench_kernels},
    {"train", lk__bench_train},
};

enum { CASES = sizeof cases / sizeof *cases };

static const char *next_case(const void *arg, size_t index)
{
    (void)arg;
    return index < CASES ? cases[index].name : NULL;
}

int lk__cmd_bench(lk_args *args)
{
    const char *word = args->words[0];
    lk_status status = lk__args_complete(args);
    if (status != LK_OK)
        return lk__cli_fail(status);
    for (size_t i = 0; i < CASES; i++) {
        if (strcmp(cases[i].name, word) == 0) {
            status = cases[i].run(args);
            return status == LK_OK ? LK_EXIT_DONE : lk__cli_fail(status);
        }
    }
    const char *near = lk__nearest(word, next_case, NULL);
    return lk__cli_fail(lk__fail(LK_STATUS_USAGE, "bench: no case '%s'; did you mean '%s'? There are kernels and train",
                                 word, near ? near : cases[0].name));
}
