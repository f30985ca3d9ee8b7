/* bench.c - `lockstep bench`: chooses the case to run. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/group.h>

#include "base/spec.h"
#include "cli/cli.h"
#include "cli/job/plan.h"

/* A bit for each case, in the order of the table. */
enum { ALLREDUCE = 1 << 0, DATA = 1 << 1, KERNELS = 1 << 2, LAYERS = 1 << 3, PREDICT = 1 << 4, TRAIN = 1 << 5 };

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

/* The cases that use an option. Options that are not in the table are of all cases. */
static const struct {
    const char *option; /* with underscores */
    unsigned cases;
} uses[] = {
    {"model", LAYERS | PREDICT | TRAIN},
    {"data", DATA | LAYERS | PREDICT | TRAIN},
    {"data_dir", DATA | LAYERS | PREDICT | TRAIN},
    {"augment", DATA | LAYERS | TRAIN},
    {"input", LAYERS | TRAIN},
    {"classes", LAYERS | TRAIN},
    {"batch_size", DATA | LAYERS | TRAIN},
    {"seed", DATA | LAYERS | PREDICT | TRAIN},
    {"optimizer", LAYERS | TRAIN},
    {"lr", LAYERS | TRAIN},
    {"clip_norm", LAYERS | TRAIN},
    {"label_smoothing", LAYERS | TRAIN},
    {"init", LAYERS | PREDICT | TRAIN},
    {"stages", TRAIN},
    {"pipelined", TRAIN},
    {"threads", KERNELS | LAYERS | PREDICT | TRAIN},
    {"num_workers", DATA | LAYERS | TRAIN},
    {"shards", KERNELS | LAYERS | TRAIN},
    {"micro_batch", LAYERS | TRAIN},
    {"bucket_mb", TRAIN},
    {"check_every", TRAIN},
    {"bn", LAYERS | TRAIN},
    {"conv", LAYERS | PREDICT | TRAIN},
    {"precision", LAYERS | PREDICT | TRAIN},
    {"reduce", TRAIN},
    {"steps", LAYERS | PREDICT | TRAIN},
    {"repeat", KERNELS},
    {"nproc", ALLREDUCE | TRAIN},
    {"independent", TRAIN},
    {"in_step", TRAIN},
    {"backend", ALLREDUCE | TRAIN},
    {"max_bytes", ALLREDUCE},
    {"runs", ALLREDUCE | DATA | TRAIN},
};

static const char *next_case(const void *arg, size_t index)
{
    (void)arg;
    return index < CASES ? cases[index].name : NULL;
}

/* "layers, train" */
static void join_cases(unsigned bits, char *text, size_t bytes)
{
    size_t used = 0;
    *text = '\0';
    for (size_t i = 0; i < CASES; i++)
        if (bits >> i & 1 && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used > 0 ? ", " : "", cases[i].name);
}

/* Refuses options of the command line that would have no effect. Those of a file are left alone: it is made for
 * training. */
static lk_status check_options(size_t bench)
{
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        char users[64];
        if (uses[i].cases >> bench & 1 || !lk__args_typed(uses[i].option))
            continue;
        join_cases(uses[i].cases, users, sizeof users);
        return lk__fail(LK_STATUS_USAGE, "`%s` is an option of bench %s; bench %s does not use it", uses[i].option,
                        users, cases[bench].name);
    }
    return LK_OK;
}

/* Refuses ranks of a launcher: each would measure itself alone. `bench allreduce` may be started by mpirun, to measure
 * Open MPI. */
static lk_status check_alone(size_t bench)
{
    if (!(TRAIN >> bench & 1) || !lk_group_launched())
        return LK_OK;
    return lk__fail(
        LK_STATUS_USAGE,
        "bench %s starts its ranks itself and does not join those of a launcher: write 'lockstep bench %s -n "
        "N'",
        cases[bench].name, cases[bench].name);
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
    int ranks = args->nproc > 0 ? args->nproc : 1;
    size_t found = 0;
    bool usable = true;
    LK_TRY(lk__names_find(&names, args->words[0], &found));
    LK_TRY(check_options(found));
    LK_TRY(check_alone(found));
    LK_TRY(lk__args_complete(args));
    if (cases[found].gpus)
        args->devices = lk__job_plan_host("bench", args, ranks);
    LK_TRY(lk__job_plan_one_device(args, "bench", ranks, &plan));
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
