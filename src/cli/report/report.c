/* report.c - log lines, JSON lines and progress of a training run, printed by rank 0 for all. report_start.c and
 * report_end.c have the first and last lines, report_rank.c the lines that each rank prints about itself. */
#include "cli/report/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "cli/cli.h"
#include "cli/job/signals.h"
#include "cli/report/json.h"

/* Seconds between two lines of progress where it is not redrawn. */
static const double line_every = 10;

static bool prints_own(const lk_report *report)
{
    return report->args->log_ranks == LK_ARGS_LOG_RANKS_ALL;
}

/* Whether lines besides the results are printed. */
static bool prints_lines(const lk_report *report)
{
    const lk_args *args = report->args;
    return !args->quiet || args->json || args->log_interval_typed || prints_own(report);
}

/* Whether a line is printed for every interval. On a terminal the progress line replaces them. */
static bool prints_intervals(const lk_report *report)
{
    const lk_args *args = report->args;
    bool asked = args->json || args->log_interval_typed || prints_own(report);
    return asked || (!args->quiet && !report->redrawn);
}

/* Called before and after the lines of a rank; false if the rank prints none. */
static bool begin_lines(lk_report *report)
{
    if (report->rank != 0 && !prints_own(report))
        return false;
    lk__screen_begin_lines(report->screen);
    return true;
}

static void end_lines(lk_report *report)
{
    lk__screen_end_lines(report->screen);
}

static void on_start(void *arg, const lk_train_begin *start)
{
    lk_report *report = arg;
    report->train_count = start->train->count;
    report->classes = start->train->classes;
    report->batches = start->batches;
    report->steps = start->steps;
    report->done = start->done;
    report->rank = start->self.rank;
    report->ranks = start->self.ranks;
    report->stage = start->self.layout.stage;
    report->stages = start->self.layout.stages;
    report->share = start->self.share;
    report->bar = (lk_bar){.epochs = report->plan->train.epochs,
                           .step = start->done,
                           .steps = start->steps,
                           .loss = NAN,
                           .accuracy = NAN,
                           .lr = start->rates.first,
                           .eta = -1,
                           .epoch = start->batches ? start->done / start->batches + 1 : 1,
                           .ranks = report->ranks};
    if (report->level)
        lk__job_signals_watch(report->level, report->plan->join.way == LK_JOIN_WAY_ALONE);
    if (!begin_lines(report))
        return;
    if (report->rank == 0 && report->args->json)
        lk__report_start_json(report, start);
    else if (report->rank == 0 && prints_lines(report))
        lk__report_start_text(report, start);
    else if (report->rank == 0)
        lk__report_start_notices(report, start);
    if (report->rank == 0 && start->done == 0)
        lk__report_suspect("train", report->plan->train.init_from);
    if (report->rank == 0)
        lk__report_notice("train", report->args->notice);
    if (report->rank == 0 && *report->plan->join.note)
        fprintf(stderr, "lockstep train: %s\n", report->plan->join.note);
    if (report->rank == 0 && start->traced)
        fprintf(stderr, "lockstep train: --trace %s: these steps are done, and no trace is written\n",
                report->plan->train.trace);
    if (report->rank == 0 && *lk__fault_text())
        fprintf(stderr, "LOCKSTEP_FAULT is set: %s\n", lk__fault_text());
    if (prints_own(report))
        lk__report_rank_start(report, start);
    end_lines(report);
}

static void json_step(const lk_train_step *step)
{
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "event", "step");
    cJSON_AddNumberToObject(line, "epoch", (double)step->epoch);
    cJSON_AddNumberToObject(line, "batch", (double)step->batch);
    cJSON_AddNumberToObject(line, "step", (double)step->step);
    cJSON_AddNumberToObject(line, "loss", step->metrics.loss);
    cJSON_AddNumberToObject(line, "accuracy", lk__report_percent(step->metrics.correct, step->metrics.count));
    cJSON_AddNumberToObject(line, "top5", lk__report_percent(step->metrics.top5, step->metrics.count));
    cJSON_AddNumberToObject(line, "lr", step->lr);
    if (!isnan(step->grad_norm))
        cJSON_AddNumberToObject(line, "grad_norm", step->grad_norm);
    cJSON_AddNumberToObject(line, "img_per_s", lk__report_rate(step->samples, step->train_seconds));
    cJSON_AddNumberToObject(line, "seconds", step->seconds);
    lk__cli_json_line(line);
}

static void text_step(const lk_report *report, const lk_train_step *step)
{
    printf("Train Epoch: %zu [%zu/%zu (%.0f%%)]\tLoss: %.6f\n", step->epoch, step->seen, report->train_count,
           lk__report_percent(step->batch, report->batches), step->metrics.loss);
}

static double seconds_left(const lk_report *report, const lk_train_step *step)
{
    return step->seconds / (double)(step->step - report->done) * (double)(report->steps - step->step);
}

/* Adds the step to the means of its epoch. */
static void count_step(lk_report *report, const lk_train_step *step)
{
    lk_metrics *sum = &report->epoch;
    if (step->epoch != report->bar.epoch || step->batch == 0)
        *sum = (lk_metrics){0};
    sum->count += step->metrics.count;
    sum->correct += step->metrics.correct;
    sum->loss += step->metrics.loss * (double)step->metrics.count;
    lk_bar *bar = &report->bar;
    bar->doing = NULL;
    bar->epoch = step->epoch;
    bar->step = step->step;
    bar->loss = sum->loss / (double)sum->count;
    bar->accuracy = lk__report_percent(sum->correct, sum->count);
    bar->lr = step->lr;
    bar->img_per_s = lk__report_rate(step->samples, step->train_seconds);
    bar->eta = seconds_left(report, step);
}

/* Where nothing is redrawn: a line from time to time. */
static void print_progress(lk_report *report, const lk_train_step *step)
{
    const lk_bar *bar = &report->bar;
    if (report->args->quiet || report->screen->terminal >= 0 || step->seconds - report->drawn_at < line_every)
        return;
    report->drawn_at = step->seconds;
    unsigned long long eta = (unsigned long long)(bar->eta + 0.5);
    lk__screen_begin_lines(report->screen);
    fprintf(stderr,
            "epoch %zu, step %zu/%zu, loss %.4f, accuracy %.1f%%, lr %.4g, %.0f img/s, ETA %llu:%02llu:%02llu\n",
            step->epoch, step->step, report->steps, step->metrics.loss, bar->accuracy, step->lr, bar->img_per_s,
            eta / 3600, eta / 60 % 60, eta % 60);
    lk__screen_end_lines(report->screen);
}

static void on_activity(void *arg, lk_train_activity activity, size_t done, size_t total)
{
    static const char *const names[LK_TRAIN_ACTIVITY_COUNT] = {
        [LK_TRAIN_ACTIVITY_OPEN] = "opening data and model",
        [LK_TRAIN_ACTIVITY_JOIN] = "waiting for all ranks",
        [LK_TRAIN_ACTIVITY_PLAN] = "planning",
        [LK_TRAIN_ACTIVITY_TEST] = "testing",
        [LK_TRAIN_ACTIVITY_END] = "checking the final model",
    };
    lk_report *report = arg;
    lk_bar *bar = &report->bar;
    bar->doing = names[activity];
    bar->done = done;
    bar->total = total;
    lk__screen_show(report->screen, bar);
}

static void print_step(const lk_report *report, const lk_train_step *step)
{
    if (report->rank == 0 && report->args->json)
        json_step(step);
    else if (report->rank == 0)
        text_step(report, step);
    if (prints_own(report))
        lk__report_rank_step(report, step);
}

static void on_step(void *arg, const lk_train_step *step)
{
    lk_report *report = arg;
    if (step->step == report->done + 1)
        report->first_step_s = lk__clock() - report->exec_at;
    if (report->rank == 0) {
        count_step(report, step);
        lk__screen_show(report->screen, &report->bar);
    }
    if (step->batch % report->args->log_interval == 0 && prints_intervals(report) && begin_lines(report)) {
        print_step(report, step);
        end_lines(report);
    }
    if (report->rank == 0)
        print_progress(report, step);
}

static void text_metrics(const char *which, const lk_metrics *metrics, size_t classes)
{
    printf("%s set: Average loss: %.4f, Accuracy: %zu/%zu (%.0f%%)", which, metrics->loss, metrics->correct,
           metrics->count, lk__report_percent(metrics->correct, metrics->count));
    if (classes > LK_REPORT_FEW_CLASSES)
        printf(", Top-5: %zu/%zu (%.0f%%)", metrics->top5, metrics->count,
               lk__report_percent(metrics->top5, metrics->count));
    printf("\n");
}

static cJSON *json_metrics(const char *event, const lk_metrics *metrics)
{
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "event", event);
    cJSON_AddNumberToObject(line, "loss", metrics->loss);
    cJSON_AddNumberToObject(line, "correct", (double)metrics->correct);
    cJSON_AddNumberToObject(line, "count", (double)metrics->count);
    cJSON_AddNumberToObject(line, "accuracy", lk__report_percent(metrics->correct, metrics->count));
    cJSON_AddNumberToObject(line, "top5", lk__report_percent(metrics->top5, metrics->count));
    return line;
}

void lk__report_metrics(const lk_metrics *metrics, size_t classes, bool json)
{
    if (json)
        lk__cli_json_line(json_metrics("test", metrics));
    else
        text_metrics("Test", metrics, classes);
}

static void json_test(const lk_train_test *test)
{
    cJSON *line = json_metrics(test->val ? "val" : "test", &test->metrics);
    cJSON_AddNumberToObject(line, "epoch", (double)test->epoch);
    cJSON_AddNumberToObject(line, "train_loss", test->train_loss);
    cJSON_AddNumberToObject(line, "seconds", test->seconds);
    lk__cli_json_line(line);
}

static void on_test(void *arg, const lk_train_test *test)
{
    lk_report *report = arg;
    if (report->rank != 0 || !prints_lines(report) || !begin_lines(report))
        return;
    if (report->args->json)
        json_test(test);
    else {
        report->told = true;
        text_metrics(test->val ? "Validation" : "Test", &test->metrics, report->classes);
    }
    end_lines(report);
}

static void on_saved(void *arg, const lk_train_saved *saved)
{
    lk_report *report = arg;
    if (!prints_lines(report) || !begin_lines(report))
        return;
    lk__report_saved(report, saved);
    end_lines(report);
}

static void on_trace(void *arg, const lk_train_trace *trace)
{
    lk_report *report = arg;
    if (!begin_lines(report))
        return;
    lk__report_trace(trace, report->args->json);
    end_lines(report);
}

static void text_end(const lk_report *report, const lk_train_outcome *result)
{
    lk__report_early(report, result);
    bool untold = report->args->quiet && !report->told;
    if (untold && result->val.count)
        text_metrics("Validation", &result->val, report->classes);
    if (untold && result->test.count)
        text_metrics("Test", &result->test, report->classes);
    if (!report->args->quiet)
        lk__report_table(report, result);
    printf("Total Training Time %.2f seconds\n", result->seconds);
    if (*result->saved)
        printf("Model saved to %s\n", result->saved);
    printf("State hash %016" PRIx64 "\n", result->hash);
}

static void on_end(void *arg, const lk_train_outcome *result)
{
    lk_report *report = arg;
    if (report->rank == 0)
        lk__screen_fini(report->screen);
    if (!begin_lines(report))
        return;
    if (prints_own(report))
        lk__report_rank_end(report, result);
    if (report->rank == 0 && report->args->json)
        lk__report_end_json(report, result);
    else if (report->rank == 0)
        text_end(report, result);
    end_lines(report);
}

static void on_stopped(void *arg, const lk_train_outcome *result)
{
    lk_report *report = arg;
    if (report->rank > 0 && !report->by_hand)
        return;
    if (report->rank == 0)
        lk__screen_fini(report->screen);
    lk__screen_begin_lines(report->screen);
    lk__report_stopped(report, result);
    end_lines(report);
}

void lk__report_faults(int first, int count, int ranks)
{
    lk_fault_info fault;
    for (size_t i = 0; lk__fault_at(i, &fault); i++) {
        bool anyone = fault.rank < 0 || fault.rank >= ranks;
        bool mine = anyone ? first == 0 : fault.rank >= first && fault.rank < first + count;
        if (!mine || fault.struck || fault.earlier)
            continue;
        const char *why = fault.rank >= ranks ? ": the job has no such rank" : "";
        fprintf(stderr, "lockstep train: LOCKSTEP_FAULT: %.*s never struck%s\n", fault.length, fault.text,
                fault.rank < 0 && ranks > count ? " at rank 0" : why);
    }
}

lk_train_hooks lk__report_hooks(lk_report *report)
{
    return (lk_train_hooks){.arg = report,
                            .activity = report->draws ? on_activity : NULL,
                            .meter = report->draws ? &report->screen->meter : NULL,
                            .begin = on_start,
                            .step = on_step,
                            .test = on_test,
                            .end = on_end,
                            .stopped = on_stopped,
                            .saved = on_saved,
                            .trace = on_trace};
}
