/* cmd_bench.c - `lockstep bench`: which case to run. */
#include "base/spec.h"
#include "cli/cli.h"

static const struct {
    const char *name;
    lk_status (*run)(const lk_args *args);
} cases[] = {
    {"allreduce", lk__bench_allreduce},
    {"data", lk__bench_data},
    {"kernels", lk__bench_kernels},
    {"train", lk__bench_train},
};

enum { CASES = sizeof cases / sizeof *cases };

static const char *next_case(const void *arg, size_t index)
{
    (void)arg;
    return index < CASES ? cases[index].name : NULL;
}

static lk_status run_case(lk_args *args)
{
    static const lk_names names = {.what = "bench", .kind = "case", .next = next_case};
    size_t found = 0;
    LK_TRY(lk__args_complete(args));
    LK_TRY(lk__args_one_device(args, "bench"));
    lk__args_choose_shards(args, args->train.device, args->nproc > 0 ? args->nproc : 1);
    LK_TRY(lk__names_find(&names, args->words[0], &found));
    return cases[found].run(args);
}

int lk__cmd_bench(lk_args *args)
{
    lk_status status = run_case(args);
    return status == LK_OK ? LK_EXIT_DONE : lk__cli_fail(status);
}
