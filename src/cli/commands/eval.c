/* eval.c - `lockstep eval FILE`: evaluates a saved model on the test split. */
#include "cli/cli.h"
#include "cli/report/report.h"

/* Evaluates with a progress line, if stderr is a terminal. */
static lk_status evaluate_shown(const lk_args *args, const lk_train_opts *opts, lk_metrics *metrics, size_t *classes)
{
    lk_screen screen;
    lk__screen_init(&screen, lk__screen_terminal(), false);
    lk_report report = {.args = args, .screen = &screen, .draws = screen.terminal >= 0};
    lk_train_events events = lk__report_events(&report);
    lk_status status = lk__train_evaluate(opts, &events, metrics, classes);
    lk__screen_fini(&screen);
    return status;
}

/* Uses the CPU if a GPU was not named and cannot be used. */
static lk_status evaluate(const lk_args *args, lk_metrics *metrics, size_t *classes)
{
    lk_job_plan plan, cpu;
    LK_TRY(lk__job_plan_one_device(args, "eval", 1, &plan));
    if (plan.devices.named || lk__device_probe(plan.train.device, 0) == LK_OK)
        return evaluate_shown(args, &plan.train, metrics, classes);
    lk__job_plan_print_cpu("eval", lk_error_detail());
    lk__job_plan_on_cpu(args, &plan, &cpu);
    return evaluate_shown(args, &cpu.train, metrics, classes);
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
    if (status != LK_OK)
        return lk__cli_fail(status);
    lk__report_suspect("eval", args->train.init_from);
    lk__report_metrics(&metrics, classes, args->json);
    return LK_EXIT_DONE;
}
