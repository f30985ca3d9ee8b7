/* bench.c - `lockstep bench`: chooses the case to run. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/spec.h"
#include "cli/cli.h"
#include "cli/job/plan.h"

static const struct {
    const char *name;
    lk_status (*run)(const lk_args *args);
    bool gpus; /* it can use GPUs */
} cases[] = {
    {"allreduce", lk__bench_allreduce, false}, {"data", lk__bench_data, false},
    {"kernels", lk__bench_kernels, false},     {"layers", lk__bench_layers, false},
    {"predict", lk__bench_predict, true},      {"train", lk__bench_train, true},
};

enum { CASES = sizeof cases / sizeof *cases };

static const char *next_case(const void *arg, size_t index)
{
    (void)arg;
    return index < CASES ? cases[index].name : NULL;
}

/* Checks in a process of its own, because ranks are forked later and the driver must not be started before. */
static bool is_usable(const char *device, char *why, size_t bytes)
{
    int ends[2], status = 0;
    if (pipe(ends) != 0)
        return true; /* the benchmark will report the failure */
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        bool usable = lk__device_probe(device, 0) == LK_OK;
        const char *detail = usable ? "" : lk_error_detail();
        _exit(write(ends[1], detail, strlen(detail)) < 0);
    }
    close(ends[1]);
    ssize_t got = child > 0 ? read(ends[0], why, bytes - 1) : 0;
    close(ends[0]);
    why[got > 0 ? got : 0] = '\0';
    if (child > 0)
        (void)waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        snprintf(why, bytes, "%s: its driver ended a process that asked for it, by signal %d", device,
                 WTERMSIG(status));
    return !*why;
}

/* Whether the case runs on the plan's GPU; otherwise it runs on the CPU. */
static lk_status check_device(const lk_job_plan *plan, size_t bench, bool *usable)
{
    char why[LK_PATH_BYTES];
    const char *device = plan->train.device;
    const lk_device_type *type = lk__device_find(device);
    bool named = plan->devices.named, gpu = type && type->probe;
    if (gpu && named && !cases[bench].gpus)
        return lk__fail(LK_STATUS_USAGE, "bench %s is of the CPU: leave `devices` %s out", cases[bench].name, device);
    *usable = !gpu || named || (cases[bench].gpus && is_usable(device, why, sizeof why));
    if (!*usable && cases[bench].gpus)
        lk__job_plan_print_cpu("bench", why);
    return LK_OK;
}

static lk_status run_case(lk_args *args)
{
    static const lk_names names = {.what = "bench", .kind = "case", .next = next_case};
    lk_job_plan plan, cpu;
    size_t found = 0;
    bool usable = true;
    LK_TRY(lk__args_complete(args));
    LK_TRY(lk__job_plan_one_device(args, "bench", args->nproc > 0 ? args->nproc : 1, &plan));
    LK_TRY(lk__names_find(&names, args->words[0], &found));
    bool trains = cases[found].run == lk__bench_train || cases[found].run == lk__bench_layers;
    if ((args->input || args->classes) && !trains)
        return lk__fail(LK_STATUS_USAGE,
                        "`input` and `classes` are of bench train and bench layers; bench %s has no random images",
                        cases[found].name);
    LK_TRY(check_device(&plan, found, &usable));
    lk__job_plan_on_cpu(args, &plan, &cpu);
    args->train = usable ? plan.train : cpu.train;
    return cases[found].run(args);
}

int lk__cmd_bench(lk_args *args)
{
    lk_status status = run_case(args);
    return status == LK_OK ? LK_EXIT_DONE : lk__cli_fail(status);
}
