/* recording.c - events of rank 0 as rows and files of the run folder. recording_run.c fills run.json. */
#include "cli/report/recording.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <lockstep/version.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/options/resume.h"
#include "cli/report/effective.h"
#include "cli/report/recording_run.h"
#include "cli/report/report.h"
#include "cli/report/tee.h"
#include "record/events.h"

/* Whether rows are written. */
static bool is_on(const lk_recording *recording)
{
    return recording->writer && !recording->muted;
}

/* Before run.json's object is changed; publish writes the file. Another thread may note a closed pipe. */
static void begin_change(lk_recording *recording)
{
    pthread_mutex_lock(&recording->lock);
}

static lk_status publish(lk_recording *recording)
{
    lk_status status = lk__record_publish(recording->writer);
    pthread_mutex_unlock(&recording->lock);
    return status;
}

/* publish where a failure is of no interest any more. */
static void try_publish(lk_recording *recording)
{
    lk_status ignored = publish(recording);
    (void)ignored;
}

/* After a failed write: says so once, on the screen and in run.json. Rows and log end; the run does not, and its end
 * will be noted in run.json, if that can be written. */
static void check(lk_recording *recording, lk_status status)
{
    char why[LK_PATH_BYTES];
    if (status == LK_OK || recording->muted)
        return;
    snprintf(why, sizeof why, "%s", lk__args_spell(lk_error_detail()));
    recording->muted = true;
    lk__tee_end();
    begin_change(recording);
    lk__recording_describe_muted(recording, why);
    try_publish(recording);
    lk__screen_begin_lines(recording->screen);
    fprintf(stderr, "lockstep train: the run goes on, but nothing more is written to %s: %s\n",
            lk__record_path(recording->writer), why);
    lk__screen_end_lines(recording->screen);
}

static double percent(size_t part, size_t whole)
{
    return lk__report_percent(part, whole);
}

static void set_known(lk_record_row *row, lk_record_column column, double value)
{
    if (!isnan(value))
        lk__record_row_set(row, column, value);
}

static void set_metrics(lk_record_row *row, const lk_recording *recording, size_t step, const lk_metrics *metrics)
{
    lk__record_row_set(row, LK_RECORD_COLUMN_STEP, (double)step);
    lk__record_row_set(row, LK_RECORD_COLUMN_EPOCH, (double)step / (double)recording->batches);
    lk__record_row_set(row, LK_RECORD_COLUMN_LOSS, metrics->loss);
    lk__record_row_set(row, LK_RECORD_COLUMN_TOP1, percent(metrics->correct, metrics->count));
    lk__record_row_set(row, LK_RECORD_COLUMN_TOP5, percent(metrics->top5, metrics->count));
}

static lk_status write_config(lk_recording *recording)
{
    char *text = NULL, comment[LK_PATH_BYTES + 64], directory[LK_PATH_BYTES];
    size_t bytes;
    snprintf(comment, sizeof comment, "lockstep %s; of a run that began in %s", LK_VERSION,
             lk__recording_directory(directory));
    lk_status status = lk__effective_yaml(recording->args, recording->plan, comment, &text, &bytes);
    if (status == LK_OK)
        status = lk__record_put(recording->writer, "config.yaml", text, bytes);
    free(text);
    return status;
}

/* Makes config.yaml and run.json those of this process's run. */
static lk_status begin_run(lk_recording *recording)
{
    LK_TRY(write_config(recording));
    begin_change(recording);
    lk__recording_begin_run(recording);
    recording->begun = true;
    return publish(recording);
}

/* Whether run.json already has the end at this step. A run that was stopped at its last step may be without its end. */
static bool is_repeat(const lk_recording *recording, const lk_train_begin *start)
{
    bool ended = start->done > start->steps || lk__recording_is_done(recording);
    return !recording->begun && ended && lk__recording_has_result(recording, start->done);
}

static lk_status describe_run(lk_recording *recording, const lk_train_begin *start)
{
    if (!recording->begun)
        LK_TRY(begin_run(recording));
    begin_change(recording);
    lk__recording_describe(recording, start);
    return publish(recording);
}

static lk_status begin_rows(lk_recording *recording, const lk_train_begin *start)
{
    size_t epoch =
        start->train->count < start->batches * start->batch ? start->train->count : start->batches * start->batch;
    recording->batches = start->batches;
    recording->earlier_samples = start->done / start->batches * epoch + start->done % start->batches * start->batch;
    LK_TRY(lk__record_begin(recording->writer, start->done, &recording->earlier));
    if (lk__record_is_continued(recording->writer))
        recording->earlier = fmax(recording->earlier, lk__recording_earlier(recording, start));
    recording->repeated = is_repeat(recording, start);
    recording->start = *start;
    return recording->repeated ? LK_OK : describe_run(recording, start);
}

static void print_folder(const lk_recording *recording)
{
    if (recording->args->json || recording->args->quiet)
        return;
    lk__screen_begin_lines(recording->screen);
    printf("Run folder %s\n", lk__record_path(recording->writer));
    lk__screen_end_lines(recording->screen);
}

static void on_begin(void *arg, const lk_train_begin *start)
{
    lk_recording *recording = arg;
    if (recording->next.begin)
        recording->next.begin(recording->next.arg, start);
    if (!is_on(recording))
        return;
    print_folder(recording);
    check(recording, begin_rows(recording, start));
}

static void record_step(lk_recording *recording, const lk_train_step *step)
{
    lk_record_row row = {0};
    double seconds = step->train_seconds - recording->train_seconds;
    set_metrics(&row, recording, step->step, &step->metrics);
    lk__record_row_set(&row, LK_RECORD_COLUMN_LR, step->lr);
    set_known(&row, LK_RECORD_COLUMN_GRAD_NORM, step->grad_norm);
    if (seconds > 0)
        lk__record_row_set(&row, LK_RECORD_COLUMN_IMG_PER_S, (double)(step->samples - recording->samples) / seconds);
    lk__record_row_set(&row, LK_RECORD_COLUMN_SECONDS, recording->earlier + step->seconds);
    recording->samples = step->samples;
    recording->train_seconds = step->train_seconds;
    check(recording, lk__record_row(recording->writer, LK_RECORD_KIND_TRAIN, &row));
}

static void on_step(void *arg, const lk_train_step *step)
{
    lk_recording *recording = arg;
    if (recording->next.step)
        recording->next.step(recording->next.arg, step);
    if (is_on(recording) && recording->repeated) {
        recording->repeated = false;
        check(recording, describe_run(recording, &recording->start));
    }
    if (is_on(recording) && step->batch % recording->args->log_interval == 0)
        record_step(recording, step);
}

static void on_test(void *arg, const lk_train_test *test)
{
    lk_recording *recording = arg;
    lk_record_row row = {0};
    if (recording->next.test)
        recording->next.test(recording->next.arg, test);
    if (!is_on(recording))
        return;
    recording->tested = true;
    set_metrics(&row, recording, test->step, &test->metrics);
    lk__record_row_set(&row, LK_RECORD_COLUMN_SECONDS, recording->earlier + test->seconds);
    check(recording, lk__record_row(recording->writer, test->val ? LK_RECORD_KIND_VAL : LK_RECORD_KIND_TEST, &row));
}

/* wall: seconds since the last row of ranks, in which cpu_seconds were used. */
static lk_record_rank rank_row(const lk_train_use *use, double wall)
{
    lk_record_rank rank = {.host = use->host, .device = use->device};
    const lk_train_phases *phases = &use->phases;
    lk__record_row_set(&rank.row, LK_RECORD_COLUMN_RANK, (double)use->rank);
    lk__record_row_set(&rank.row, LK_RECORD_COLUMN_MEMORY_MB, use->memory_mb);
    if (wall > 0)
        lk__record_row_set(&rank.row, LK_RECORD_COLUMN_CPU_PCT, 100 * use->cpu_seconds / wall);
    set_known(&rank.row, LK_RECORD_COLUMN_GPU_PCT, use->gpu_pct);
    set_known(&rank.row, LK_RECORD_COLUMN_GPU_MEMORY_MB, use->gpu_memory_mb);
    set_known(&rank.row, LK_RECORD_COLUMN_GPU_CELSIUS, use->gpu_celsius);
    if (use->seconds <= 0)
        return rank;
    lk__record_row_set(&rank.row, LK_RECORD_COLUMN_IMG_PER_S, (double)use->samples / use->seconds);
    lk__record_row_set(&rank.row, LK_RECORD_COLUMN_DATA_PCT, 100 * phases->data / use->seconds);
    lk__record_row_set(&rank.row, LK_RECORD_COLUMN_COMPUTE_PCT, 100 * phases->compute / use->seconds);
    if (!use->joint)
        lk__record_row_set(&rank.row, LK_RECORD_COLUMN_WAIT_PCT, 100 * phases->wait / use->seconds);
    return rank;
}

static lk_status record_uses(lk_recording *recording, const lk_train_uses *uses)
{
    lk_record_rank *ranks;
    LK_TRY(LK_ALLOC((size_t)uses->ranks, "a row of ranks", &ranks));
    for (int i = 0; i < uses->ranks; i++)
        ranks[i] = rank_row(&uses->use[i], uses->seconds - recording->uses_at);
    recording->uses_at = uses->seconds;
    lk_status status =
        lk__record_ranks(recording->writer, uses->step, recording->earlier + uses->seconds, ranks, uses->ranks);
    lk__mem_free(ranks);
    if (status != LK_OK || recording->uses_known)
        return status;
    recording->uses_known = true;
    begin_change(recording);
    lk__recording_describe_ranks(recording, uses);
    return publish(recording);
}

static void on_uses(void *arg, const lk_train_uses *uses)
{
    lk_recording *recording = arg;
    if (recording->next.uses)
        recording->next.uses(recording->next.arg, uses);
    if (is_on(recording))
        check(recording, record_uses(recording, uses));
}

static lk_status record_state(lk_recording *recording, const lk_train_state *state)
{
    lk_record_writer *writer = recording->writer;
    if (state->moment != LK_TRAIN_MOMENT_EPOCH)
        return lk__record_put_state(writer, state->moment == LK_TRAIN_MOMENT_FIRST ? "first" : "final", state->model);
    LK_TRY(lk__record_histograms(writer, state->step, "weights", state->model));
    return lk__record_histograms(writer, state->step, "gradients", state->grads);
}

static void on_state(void *arg, const lk_train_state *state)
{
    lk_recording *recording = arg;
    if (recording->next.state)
        recording->next.state(recording->next.arg, state);
    if (is_on(recording))
        check(recording, record_state(recording, state));
}

static void end_run(lk_recording *recording, const lk_train_outcome *result)
{
    if (!recording->writer || (recording->repeated && !recording->tested))
        return;
    begin_change(recording);
    if (recording->repeated)
        lk__recording_add_tests(recording, result);
    else
        lk__recording_conclude(recording, result);
    check(recording, publish(recording));
}

static void on_end(void *arg, const lk_train_outcome *result)
{
    lk_recording *recording = arg;
    if (recording->next.end)
        recording->next.end(recording->next.arg, result);
    end_run(recording, result);
}

static void on_stopped(void *arg, const lk_train_outcome *result)
{
    lk_recording *recording = arg;
    if (recording->next.stopped)
        recording->next.stopped(recording->next.arg, result);
    end_run(recording, result);
}

static void on_saved(void *arg, const lk_train_saved *saved)
{
    lk_recording *recording = arg;
    if (recording->next.saved)
        recording->next.saved(recording->next.arg, saved);
}

static void on_trace(void *arg, const lk_train_trace *trace)
{
    lk_recording *recording = arg;
    if (recording->next.trace)
        recording->next.trace(recording->next.arg, trace);
}

static void on_activity(void *arg, lk_train_activity activity, size_t done, size_t total)
{
    lk_recording *recording = arg;
    if (recording->next.activity)
        recording->next.activity(recording->next.arg, activity, done, total);
}

/* Every hook that the program uses must be passed on, with the argument of its owner; start, before_step, epoch, notice
 * and step_time are not used. */
_Static_assert(sizeof(lk_train_hooks) == 19 * sizeof(void *), "lk__recording_listen has all event functions");

void lk__recording_listen(lk_recording *recording, const lk_job_plan *plan, lk_screen *screen, lk_train_hooks *hooks)
{
    recording->plan = plan;
    recording->screen = screen;
    if (!recording->writer)
        return;
    recording->next = *hooks;
    hooks->arg = recording;
    hooks->activity = on_activity;
    hooks->begin = on_begin;
    hooks->step = on_step;
    hooks->test = on_test;
    hooks->end = on_end;
    hooks->stopped = on_stopped;
    hooks->saved = on_saved;
    hooks->trace = on_trace;
    hooks->uses = on_uses;
    hooks->uses_every = recording->args->log_interval;
    hooks->state = on_state;
}

static lk_status make_folder(lk_recording *recording, const lk_args *args, const lk_job_plan *plan)
{
    char name[LK_RECORD_NAME];
    const lk_train_opts *opts = &plan->train;
    int processes = plan->join.processes > 0 ? plan->join.processes : 1;
    lk_record_scenario scenario = {.data = opts->data,
                                   .model = opts->model,
                                   .init = opts->init,
                                   .ranks = processes * plan->devices.count,
                                   .batch = opts->batch,
                                   .optimizer = opts->optimizer,
                                   .lr = opts->lr > 0 ? opts->lr : lk__optim_default_lr(opts->optimizer),
                                   .schedule = opts->schedule,
                                   .epochs = opts->epochs};
    lk__record_name(&scenario, (double)time(NULL), name);
    return lk__record_create(args->log_dir, name, &recording->writer);
}

/* The folder that the resumed checkpoint names; NOT_FOUND if it names none, or one that is not in --log-dir. */
static lk_status find_folder(lk_recording *recording, const lk_args *args)
{
    const lk_resume *found = lk__cli_resume_found();
    const char *name = found->notes ? lk_checkpoint_note(found->notes, lk__train_run_note) : NULL;
    if (!args->train.resume || !name || !*name || *name == '.' || strchr(name, '/'))
        return LK_STATUS_NOT_FOUND;
    return lk__record_continue(args->log_dir, name, &recording->writer);
}

static void copy_output(void *arg, const char *text, size_t bytes)
{
    const lk_recording *recording = arg;
    lk__record_log(recording->writer, text, bytes);
}

/* A run that was done before stays done. */
static void note_failure(lk_recording *recording, const char *status, const char *detail)
{
    begin_change(recording);
    if (recording->begun || !lk__recording_is_done(recording))
        lk__recording_describe_failure(recording, status, detail);
    try_publish(recording);
}

/* The reader of what this process prints has ended, and SIGPIPE will end this process. */
static void note_broken(void *arg)
{
    note_failure(arg, "stopped", "the pipe that it printed to was closed (SIGPIPE)");
}

/* Where rank 0 saves checkpoints, if saving was asked for and no folder given; other ranks only need to know that
 * there is one. */
static lk_status place_checkpoints(lk_recording *recording, lk_args *args, lk_job_plan *plan)
{
    const char *folder = recording->writer ? lk__record_path(recording->writer) : args->log_dir;
    if (args->train.checkpoint || !args->save_every_given)
        return LK_OK;
    if (!lk__path_join(folder, "checkpoints", recording->checkpoint, sizeof recording->checkpoint))
        return lk__fail(LK_STATUS_USAGE, "`log_dir` %s: the path is too long", args->log_dir);
    args->train.checkpoint = plan->train.checkpoint = recording->checkpoint;
    return LK_OK;
}

/* Where rank 0 writes the trace, if no file was given. */
static lk_status place_trace(lk_recording *recording, lk_args *args, lk_job_plan *plan)
{
    if (!recording->writer || !args->train.trace || args->train.trace_file)
        return LK_OK;
    if (!lk__path_join(lk__record_path(recording->writer), "trace.json", recording->trace, sizeof recording->trace))
        return lk__fail(LK_STATUS_USAGE, "`log_dir` %s: the path is too long", args->log_dir);
    args->train.trace_file = plan->train.trace_file = recording->trace;
    return LK_OK;
}

static lk_status open_folder(lk_recording *recording, const lk_args *args, const lk_job_plan *plan)
{
    lk_status status = find_folder(recording, args);
    if (status == LK_STATUS_NOT_FOUND)
        status = make_folder(recording, args, plan);
    return status;
}

lk_status lk__recording_open(lk_recording *recording, lk_args *args, lk_job_plan *plan)
{
    recording->args = args;
    recording->plan = plan;
    if (!args->log_dir)
        return LK_OK;
    pthread_mutex_init(&recording->lock, NULL);
    if (plan->join.rank == 0)
        LK_TRY(open_folder(recording, args, plan));
    LK_TRY(place_checkpoints(recording, args, plan));
    LK_TRY(place_trace(recording, args, plan));
    if (!recording->writer)
        return LK_OK;
    snprintf(recording->name, sizeof recording->name, "%s", lk__record_own_name(recording->writer));
    if (!lk__record_is_continued(recording->writer)) /* else at the start, when the steps that are left are known */
        LK_TRY(begin_run(recording));
    lk__tee_begin(copy_output, note_broken, recording);
    if (!lk__record_events_possible)
        fputs("lockstep train: no event files for TensorBoard: this build is without protobuf-c (libprotobuf-c-dev, "
              "protobuf-c-compiler)\n",
              stderr);
    return LK_OK;
}

void lk__recording_failed(lk_recording *recording, const char *detail)
{
    if (!recording->writer)
        return;
    note_failure(recording, "failed", detail); /* a second failure would only hide the one that is printed next */
}

void lk__recording_close(lk_recording *recording)
{
    if (!recording->writer)
        return;
    lk__tee_end();
    lk__record_destroy(recording->writer);
    recording->writer = NULL;
    pthread_mutex_destroy(&recording->lock);
}
