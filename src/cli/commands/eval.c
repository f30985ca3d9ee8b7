/* eval.c - `lockstep eval FILE`: evaluates a saved model on the test split. */
#include "cli/cli.h"
#include "cli/job/plan.h"
#include "cli/report/report.h"

/* The number of ranks: -n, or one for each device that was named. */
static lk_status count_ranks(const lk_args *args, int *out)
{
    const lk_devices *devices = &args->devices;
    bool several = devices->named && devices->count > 1;
    if (several && args->nproc && args->nproc != devices->count)
        return lk__fail(LK_STATUS_USAGE,
                        "eval: `nproc` %d ranks, and %d devices are named, which have a rank each; "
                        "leave `nproc` out",
                        args->nproc, devices->count);
    *out = several ? devices->count : args->nproc ? args->nproc : 1;
    return LK_OK;
}

/* Evaluates with a progress line, if stderr is a terminal and --quiet was not given. */
static lk_status evaluate_shown(const lk_args *args, const lk_train_opts *opts, const char *const *devices, int ranks,
                                lk_metrics *metrics, size_t *classes)
{
    lk_screen screen;
    lk__screen_init(&screen, args->quiet ? -1 : lk__screen_terminal(), false);
    lk_report report = {.args = args, .screen = &screen, .draws = screen.terminal >= 0};
    lk_train_hooks hooks = lk__report_hooks(&report);
    lk_status status = lk__train_evaluate(opts, devices, ranks, &hooks, metrics, classes);
    lk__screen_fini(&screen);
    return status;
}

/* Several ranks are on the devices in turn. */
static lk_status evaluate_on(const lk_args *args, const lk_job_plan *plan, int ranks, lk_metrics *metrics,
                             size_t *classes)
{
    const char *devices[LK_EVALUATE_MAX_RANKS];
    for (int i = 0; i < ranks; i++)
        devices[i] = plan->host.name[i % plan->host.count];
    return evaluate_shown(args, &plan->train, devices, ranks, metrics, classes);
}

/* Uses the CPU if a GPU was not named and cannot be used. */
static lk_status evaluate(const lk_args *args, lk_metrics *metrics, size_t *classes)
{
    lk_job_plan plan, cpu;
    int ranks = 1;
    LK_TRY(count_ranks(args, &ranks));
    lk__job_plan_ranks(args, ranks, &plan);
    if (plan.devices.named || lk__device_probe(plan.train.device, 0) == LK_OK)
        return evaluate_on(args, &plan, ranks, metrics, classes);
    lk__job_plan_print_cpu("eval", lk_error_detail());
    lk__job_plan_on_cpu(args, &plan, &cpu);
    return evaluate_on(args, &cpu, ranks, metrics, classes);
}

int lk__cmd_eval(lk_args *args)
{
    if (args->word_count == 1 && args->train.init_from)
        return lk__cli_fail(lk__fail(LK_STATUS_USAGE, "eval: two model files, '%s' and `init_from` '%s'; give one",
                                     args->words[0], args->train.init_from));
    if (args->word_count == 1)
        args->train.init_from = args->words[0];
    if (!args->train.init_from)
        return lk__cli_fail(lk__fail(LK_STATUS_USAGE, "eval wants a model file: lockstep eval FILE [options]"));
    lk_metrics metrics;
    size_t classes;
    lk_status status = lk__args_complete(args);
    if (status == LK_OK)
        status = evaluate(args, &metrics, &classes);
    if (status == LK_STATUS_MISMATCH && *args->notice)
        status = lk__fail(status, "%s. %s", lk_error_detail(), args->notice);
    if (status != LK_OK)
        return lk__cli_fail(status);
    lk__report_notice("eval", args->notice);
    lk__report_suspect("eval", args->train.init_from);
    lk__report_metrics(&metrics, classes, args->json);
    return LK_EXIT_DONE;
}
