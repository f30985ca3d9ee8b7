/* public.c - lk_train: checks the options of a program, fills in what is not given, finds the ranks and the checkpoint,
 * and runs one rank of the loop. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "comm/detect/task.h"
#include "parallel/layout/defaults.h"
#include "tensor/device.h"
#include "train/parts.h"

/* The ranks of the job: those of opts->group, of a launcher, or one. */
typedef struct job {
    int rank, size;
    bool joins; /* the loop joins the tasks of a launcher */
} job;

/* A call of lk_train. */
typedef struct call {
    lk_train_opts settings;
    job job;
    char model[LK_TRAIN_GRAPH_TEXT];
    lk_resume resume;
    lk_train_hooks hooks;
    lk_notice_fn notice;
    lk_train_fault fault; /* of a failure */
} call;

static lk_status check_model(const lk_train_opts *opts)
{
    if (opts->model && opts->graph)
        return lk__fail(LK_STATUS_USAGE, "`model` and `graph` are two models: give one");
    if (opts->graph && opts->init)
        return lk__fail(LK_STATUS_USAGE, "`init` is for `model`; for a graph call lk_init_all before lk_train");
    if (opts->train && !opts->graph && !opts->model)
        return lk__fail(LK_STATUS_USAGE, "`train` is given without a model for it: add `graph`, or `model`");
    return opts->graph ? lk_graph_check(opts->graph) : LK_OK;
}

static lk_status check_data(const lk_train_opts *opts)
{
    if (opts->train && (opts->data || opts->data_dir))
        return lk__fail(LK_STATUS_USAGE, "`train` and `%s` contradict each other: give data sets or names",
                        opts->data ? "data" : "data_dir");
    if (opts->test && !opts->train)
        return lk__fail(LK_STATUS_USAGE, "`test` is given and `train` is not: give both data sets, or names");
    if (opts->graph && !opts->train && !opts->data)
        return lk__fail(LK_STATUS_USAGE, "`graph` is given without data for it: add `train`, or `data`");
    if (opts->test && opts->no_test)
        return lk__fail(LK_STATUS_USAGE, "`test` has no effect with `no_test`: leave one of them out");
    if (opts->data_dir && !opts->data)
        return lk__fail(LK_STATUS_USAGE, "`data_dir` %s says where data are, but not which: add `data`",
                        opts->data_dir);
    return LK_OK;
}

/* Refuses options that would have no effect. */
static lk_status check_kept(const lk_train_opts *opts)
{
    bool automatic = opts->resume && strcmp(opts->resume, "auto") == 0;
    if (automatic && !opts->checkpoint)
        return lk__fail(LK_STATUS_USAGE, "`resume` auto looks in the folder `checkpoint`: give it");
    if ((opts->save_every || opts->keep) && !opts->checkpoint)
        return lk__fail(LK_STATUS_USAGE, "`%s` has no effect without `checkpoint`, the folder",
                        opts->save_every ? "save_every" : "keep");
    if (opts->reshard && !opts->resume)
        return lk__fail(LK_STATUS_USAGE, "`reshard` has no effect without `resume`");
    if (opts->trace_file && !opts->trace)
        return lk__fail(LK_STATUS_USAGE, "`trace_file` %s: give the steps too, as in `trace` 10-14", opts->trace_file);
    if (opts->alone && opts->group)
        return lk__fail(LK_STATUS_USAGE, "`alone` and `group` contradict each other: give one");
    return LK_OK;
}

/* Fills in the names of the graph and of the data, by which messages and checkpoints know them. */
static void name_parts(call *c)
{
    lk_train_opts *settings = &c->settings;
    if (settings->graph) {
        lk__train_graph_text(settings->graph, c->model);
        settings->model = c->model;
    }
    if (settings->train)
        settings->data = lk_dataset_get_info(settings->train)->name;
    else if (!settings->data)
        settings->data = "digits";
    settings->no_test = settings->no_test || (settings->train && !settings->test);
}

/* Shards that are not given depend on the number of ranks. */
static lk_status fill_shards(call *c)
{
    lk_train_opts *settings = &c->settings;
    if (!settings->shards)
        settings->shards = lk__engine_default_shards(c->job.size, settings->stages);
    return lk__train_accumulate(settings);
}

/* The tasks of a launcher, as lk_group_join finds them. */
static lk_status find_tasks(job *out)
{
    lk_task *task;
    LK_TRY(LK_ALLOC(1, "the launcher's variables", &task));
    lk__task_find(NULL, NULL, task);
    lk_status status = LK_OK;
    if (lk__task_joins(task)) {
        status = lk__task_check(task);
        if (status == LK_OK)
            status = lk__task_need(task, LK_TASK_QUANTITY_RANK);
        if (status == LK_OK)
            status = lk__task_need(task, LK_TASK_QUANTITY_SIZE);
        out->rank = lk__task_number(task, LK_TASK_QUANTITY_RANK, 0);
        out->size = lk__task_number(task, LK_TASK_QUANTITY_SIZE, 1);
        out->joins = out->size > 1;
    }
    if (status == LK_OK && out->rank >= out->size)
        status = lk__fail(LK_STATUS_USAGE, "the launcher's variables say rank %d of %d: unset RANK, or set `alone`",
                          out->rank, out->size);
    lk__mem_free(task);
    return status;
}

static lk_status find_job(const lk_train_opts *opts, job *out)
{
    *out = (job){.size = 1};
    if (opts->group)
        *out = (job){.rank = lk_group_rank(opts->group), .size = lk_group_size(opts->group)};
    else if (!opts->alone)
        return find_tasks(out);
    return LK_OK;
}

static lk_status fill_settings(const lk_train_opts *opts, call *c)
{
    LK_TRY(check_model(opts));
    LK_TRY(check_data(opts));
    LK_TRY(check_kept(opts));
    LK_TRY(lk__train_settings(opts, &c->settings));
    if (!c->settings.schedule)
        c->settings.schedule = "step:size=1,gamma=0.7";
    if (!c->settings.device)
        c->settings.device = "cpu";
    c->settings.precision = lk__device_precision(c->settings.device, c->settings.precision);
    name_parts(c);
    LK_TRY(find_job(opts, &c->job));
    return fill_shards(c);
}

static void notice(const call *c, const char *text)
{
    if (c->notice && *text)
        c->notice(c->hooks.arg, text);
}

/* Finds the checkpoint of `resume`, and reports damaged ones. */
static lk_status find_checkpoint(call *c)
{
    lk_train_opts *settings = &c->settings;
    if (!settings->resume)
        return LK_OK;
    const char *where = strcmp(settings->resume, "auto") == 0 ? NULL : settings->resume;
    LK_TRY(lk__resume_find(where, settings->checkpoint, &c->resume));
    settings->resume = *c->resume.path ? c->resume.path : NULL;
    for (char *line = c->resume.why; *line;) {
        char *end = line + strcspn(line, "\n"), last = *end;
        *end = '\0';
        notice(c, line);
        line = end + (last != '\0');
    }
    return LK_OK;
}

static void take_events(const lk_train_events *events, call *c)
{
    if (!events)
        return;
    c->notice = events->notice;
    c->hooks = (lk_train_hooks){.arg = events->arg,
                                .start = events->start,
                                .before_step = events->before_step,
                                .step = events->step,
                                .epoch = events->epoch,
                                .test = events->test,
                                .saved = events->saved,
                                .notice = events->notice,
                                .norm_every = events->norm_every};
}

static lk_train_result public_result(const call *c, const lk_train_outcome *outcome)
{
    lk_train_result result = {
        .rank = c->job.rank,
        .ranks = outcome->ranks,
        .stopped = outcome->stopped,
        .steps = outcome->steps,
        .samples = outcome->samples,
        .seconds = outcome->seconds,
        .train_seconds = outcome->train_seconds,
        .test = outcome->test,
        .val = outcome->val,
        .best_step = outcome->best_step,
        .best_correct = outcome->best_correct,
        .best_loss = outcome->best_loss,
        .stale = outcome->stale,
        .hash = outcome->hash,
    };
    snprintf(result.checkpoint, sizeof result.checkpoint, "%s", outcome->checkpoint);
    return result;
}

static lk_status run_rank(call *c, lk_train_outcome *outcome)
{
    lk_group_opts group = {.notice = c->notice, .notice_arg = c->hooks.arg};
    lk_train_failure failure;
    lk_train_ranks ranks = {.opts = &c->settings,
                            .resume_exact = c->resume.exact,
                            .count = 1,
                            .first = c->job.rank,
                            .devices = &c->settings.device,
                            .joins = c->settings.group,
                            .group = &group,
                            .one_process = !c->job.joins,
                            .asks = true,
                            .hooks = &c->hooks};
    lk_status status = lk__train(&ranks, outcome, &failure);
    if (status != LK_OK) {
        c->fault = failure.fault;
        lk__train_failure_fini(&failure);
    }
    return status;
}

/* After a failure before the first collective call, the other ranks of a group wait for this one. */
static lk_status abort_group(const lk_train_opts *opts, const call *c, lk_status status)
{
    char why[sizeof((lk_train_failure *)NULL)->detail];
    if (status == LK_OK || !opts->group || c->fault != LK_TRAIN_FAULT_SETUP)
        return status;
    snprintf(why, sizeof why, "%s", lk_error_detail());
    lk_group_abort(opts->group, why);
    return lk__fail(status, "%s", why);
}

static lk_status train(const lk_train_opts *opts, const lk_train_events *events, call *c, lk_train_outcome *outcome)
{
    take_events(events, c);
    lk_status status = fill_settings(opts, c);
    if (status == LK_OK)
        status = find_checkpoint(c);
    if (status == LK_OK)
        status = run_rank(c, outcome);
    lk__resume_fini(&c->resume);
    return abort_group(opts, c, status);
}

lk_status lk_train(const lk_train_opts *opts, const lk_train_events *events, lk_train_result *out)
{
    call c = {.fault = LK_TRAIN_FAULT_SETUP};
    lk_train_outcome outcome;
    LK_TRY(LK_GIVEN(opts));
    LK_TRY(LK_CLEAR(opts, "lk_train_opts"));
    if (events)
        LK_TRY(LK_CLEAR(events, "lk_train_events"));
    LK_TRY(train(opts, events, &c, &outcome));
    if (out)
        *out = public_result(&c, &outcome);
    return LK_OK;
}
