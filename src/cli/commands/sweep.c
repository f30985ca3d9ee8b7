/* sweep.c - `lockstep sweep`: runs or submits the cells that are not done, then prints a table and draws. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/plot/draw.h"
#include "cli/sweep/sweep.h"
#include "launch/cause.h"

enum { TITLE = 256, MOST_WIDTH = 40 };

/* What is known about a cell at the end. */
typedef struct cell {
    lk_sweep_state state;
    char run[LK_PATH_BYTES]; /* its newest run, or "" */
    lk_record_summary summary;
    char hash[20];
    char error[1024]; /* what run.json says, or "" */
} cell;

/* Where rows could not be written, on a full disk, the result in run.json has the last figures. */
static void fill_from_result(const lk_record *record, lk_record_summary *s)
{
    const struct {
        double *to;
        const char *name;
    } figures[] = {{&s->top1, "test_top1"},
                   {&s->test_loss, "test_loss"},
                   {&s->val_top1, "val_top1"},
                   {&s->val_loss, "val_loss"},
                   {&s->img_per_s, "img_per_s"}};
    bool lacking = *lk__record_text(record, "error") != 0;
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        double value = lk__record_result(record, figures[i].name);
        if (isfinite(value) && (lacking || !isfinite(*figures[i].to)))
            *figures[i].to = value;
    }
}

static lk_status summarise(const lk_record *record, lk_record_summary *out)
{
    LK_TRY(lk__record_summarise(record, out));
    fill_from_result(record, out);
    return LK_OK;
}

static void print_done(size_t number, const lk_sweep *sweep, const char *title, const char *how, const char *run)
{
    lk_record *record;
    lk_record_summary s = {.top1 = NAN, .img_per_s = NAN};
    if (lk__record_open(run, &record) == LK_OK) {
        (void)!summarise(record, &s);
        lk__record_close(record);
    }
    printf("[%zu/%zu] %s: %s", number + 1, sweep->cells, title, how);
    if (isfinite(s.top1))
        printf(", %.2f %% correct", s.top1);
    if (isfinite(s.img_per_s))
        printf(", %.0f img/s", s.img_per_s);
    putchar('\n');
}

/* How a cell ended, with the word of the table: "failed with status 2", "stopped, killed by SIGKILL". */
static void describe_end(lk_sweep_state state, int code, char *out, size_t bytes)
{
    const char *word = state == LK_SWEEP_STATE_DONE ? "ended" : lk__sweep_state_names[state];
    char name[32];
    if (code <= 128) {
        snprintf(out, bytes, "%s with status %d", word, code);
        return;
    }
    lk__cause_signal_name(code - 128, name, sizeof name);
    snprintf(out, bytes, "%s, killed by %s", word, name);
}

/* Runs a cell here. *caught: the signal that ends the sweep, or 0. */
static lk_status run_cell(const lk_sweep *sweep, size_t number, const char *title, int *caught)
{
    char how[64], why[512], run[LK_PATH_BYTES], output[LK_PATH_BYTES];
    lk_sweep_state state;
    lk_sweep_job job = {0};
    int code = 0;
    double start = lk__clock();
    printf("[%zu/%zu] %s ...\n", number + 1, sweep->cells, title);
    LK_TRY(lk__sweep_run(sweep, number, &code, caught));
    LK_TRY(lk__sweep_look(sweep, number, &job, &state, run, sizeof run));
    if (*caught)
        return LK_OK;
    if (code == 0 && state == LK_SWEEP_STATE_DONE) {
        snprintf(how, sizeof how, "done in %.1f s", lk__clock() - start);
        print_done(number, sweep, title, how, run);
        return LK_OK;
    }
    LK_TRY(lk__sweep_path(sweep, number, "output.txt", output, sizeof output));
    lk__sweep_message(sweep, number, why, sizeof why);
    describe_end(state, code, how, sizeof how);
    fprintf(stderr, "lockstep: sweep: %s %s: %s (%s)\n", title, how, *why ? why : "it gave no reason", output);
    return LK_OK;
}

static lk_status submit_cell(const lk_sweep *sweep, size_t number, const char *title, const char *options)
{
    long long job = 0;
    LK_TRY(lk__sweep_submit(sweep, number, options, &job));
    printf("[%zu/%zu] %s: job %lld\n", number + 1, sweep->cells, title, job);
    return LK_OK;
}

/* Runs or submits a cell that is neither done nor running. A cell of another host that says that it is running is left
 * alone: this host cannot know better. */
static lk_status treat_cell(const lk_sweep *sweep, size_t number, const lk_sweep_job *job, const lk_args *args,
                            int *caught)
{
    char title[TITLE], run[LK_PATH_BYTES];
    lk_sweep_state state;
    lk__sweep_title(sweep, number, title, sizeof title);
    LK_TRY(lk__sweep_look(sweep, number, job, &state, run, sizeof run));
    if (state == LK_SWEEP_STATE_DONE) {
        print_done(number, sweep, title, "done before", run);
    } else if (job->lives) {
        printf("[%zu/%zu] %s: job %lld waits or runs\n", number + 1, sweep->cells, title, job->number);
    } else if (state == LK_SWEEP_STATE_RUNNING) {
        fprintf(stderr,
                "lockstep: sweep: %s is still running and is left alone; if it does not run any more, remove its "
                "folder, %s, and give the same line again\n",
                title, run);
    } else {
        return args->slurm ? submit_cell(sweep, number, title, args->slurm) : run_cell(sweep, number, title, caught);
    }
    return LK_OK;
}

static lk_status look_at_all(const lk_sweep *sweep, const lk_sweep_job *jobs, cell *cells)
{
    for (size_t i = 0; i < sweep->cells; i++) {
        lk_record *record;
        cell *c = &cells[i];
        c->summary = LK_RECORD_SUMMARY_NONE;
        LK_TRY(lk__sweep_look(sweep, i, &jobs[i], &c->state, c->run, sizeof c->run));
        if (!*c->run || lk__record_open(c->run, &record) != LK_OK)
            continue;
        lk_status status = summarise(record, &c->summary);
        snprintf(c->error, sizeof c->error, "%s", lk__record_text(record, "error"));
        lk__text_clean(c->error, LK_TEXT_KIND_LINE);
        snprintf(c->hash, sizeof c->hash, "%s", lk__record_text(record, "hash"));
        lk__text_clean(c->hash, LK_TEXT_KIND_LINE);
        lk__record_close(record);
        LK_TRY(status);
    }
    return LK_OK;
}

static int column_width(const lk_sweep_axis *axis)
{
    size_t width = strlen(axis->option);
    for (size_t i = 0; i < axis->count; i++)
        width = lk__size_max(width, strlen(axis->values[i]));
    return (int)lk__size_min(width, MOST_WIDTH);
}

static void print_number(const char *format, int width, double value)
{
    char text[32] = "-";
    if (isfinite(value))
        snprintf(text, sizeof text, format, value);
    printf("  %*s", width, text);
}

/* Whether a cell has validation results, of --val-split. */
static bool has_validation(const lk_sweep *sweep, const cell *cells)
{
    for (size_t i = 0; i < sweep->cells; i++)
        if (isfinite(cells[i].summary.val_top1))
            return true;
    return false;
}

static void print_table(const lk_sweep *sweep, const cell *cells)
{
    bool val = has_validation(sweep, cells);
    char value[MOST_WIDTH + 1];
    putchar('\n');
    for (size_t a = 0; a < sweep->axis_count; a++)
        printf("%-*s  ", column_width(&sweep->axes[a]), sweep->axes[a].option);
    printf("%-7s%s  %9s  %9s  %9s  %9s  %s\n", "state", val ? "  val corr. %   val loss" : "", "correct %", "test loss",
           "img/s", "seconds", "state hash");
    for (size_t i = 0; i < sweep->cells; i++) {
        for (size_t a = 0; a < sweep->axis_count; a++) {
            snprintf(value, sizeof value, "%s", lk__sweep_value(sweep, i, a));
            lk__text_clean(value, LK_TEXT_KIND_LINE);
            printf("%-*s  ", column_width(&sweep->axes[a]), value);
        }
        const lk_record_summary *s = &cells[i].summary;
        printf("%-7s", lk__sweep_state_names[cells[i].state]);
        if (val) {
            print_number("%.2f", 11, s->val_top1);
            print_number("%.4f", 9, s->val_loss);
        }
        print_number("%.2f", 9, s->top1);
        print_number("%.4f", 9, s->test_loss);
        print_number("%.0f", 9, s->img_per_s);
        print_number("%.1f", 9, s->seconds);
        printf("  %s\n", *cells[i].hash ? cells[i].hash : "-");
    }
    putchar('\n');
}

/* Names the errors of cells that are done, and of all cells if none was run now. */
static void print_errors(const lk_sweep *sweep, const cell *cells, bool all)
{
    char title[TITLE];
    fflush(stdout);
    for (size_t i = 0; i < sweep->cells; i++) {
        if (!*cells[i].error || (!all && cells[i].state != LK_SWEEP_STATE_DONE))
            continue;
        lk__sweep_title(sweep, i, title, sizeof title);
        fprintf(stderr, "lockstep: sweep: %s: %s\n", title, cells[i].error);
    }
}

/* *drawn: the picture was written. Without gnuplot there is none. lacking: rows are missing that should be there. */
static lk_status draw_picture(const lk_plot_figure *figure, const char *path, bool lacking, bool *drawn)
{
    if (!figure->panel_count && lacking)
        return lk__fail(LK_STATUS_IO, "sweep: no run has rows that could be drawn; %s is not written", path);
    if (!figure->panel_count)
        return LK_OK;
    lk_status status = lk__plot_draw(figure, path);
    if (status == LK_STATUS_UNSUPPORTED) {
        fprintf(stderr, "lockstep: warning: %s\n", lk_error_detail());
        return LK_OK;
    }
    *drawn = status == LK_OK;
    return status;
}

/* Draws the runs into report.html and sweep.svg, and names what was written. */
static lk_status draw_runs(const lk_sweep *sweep, const lk_record_runs *runs, bool lacking)
{
    char picture[LK_PATH_BYTES], page[LK_PATH_BYTES];
    lk_plot_figure *figure;
    bool drawn = false;
    if (!lk__path_join(sweep->dir, "sweep.svg", picture, sizeof picture) ||
        !lk__path_join(sweep->dir, "report.html", page, sizeof page))
        return lk__fail(LK_STATUS_USAGE, "%s: the path is too long", sweep->dir);
    LK_TRY(lk__plot_figure_create(runs, &figure));
    lk_status status = lk__plot_report(runs, figure, page);
    if (status == LK_OK) {
        status = draw_picture(figure, picture, lacking, &drawn);
        printf("%s%s%s\n", drawn ? picture : "", drawn ? ", " : "", page);
    }
    lk__plot_figure_destroy(figure);
    return status;
}

static lk_status draw(const lk_sweep *sweep, const cell *cells)
{
    const char **paths;
    size_t count = 0;
    bool lacking = false;
    lk_record_runs *runs;
    LK_TRY(LK_ALLOC(sweep->cells, "runs of a sweep", &paths));
    for (size_t i = 0; i < sweep->cells; i++)
        if (cells[i].state == LK_SWEEP_STATE_DONE) {
            paths[count++] = cells[i].run;
            lacking |= *cells[i].error != 0;
        }
    lk_status status = count ? lk__record_runs_open(paths, count, NULL, NULL, &runs) : LK_OK;
    if (status == LK_OK && count) {
        status = draw_runs(sweep, runs, lacking);
        lk__record_runs_close(runs);
    }
    lk__mem_free(paths);
    return status;
}

/* Where Slurm cannot be asked, the files alone say what is known. */
static lk_status look(const lk_sweep *sweep, cell *cells)
{
    lk_sweep_job *jobs;
    LK_TRY(LK_ALLOC(sweep->cells, "jobs of a sweep", &jobs));
    if (lk__sweep_jobs(sweep, jobs) != LK_OK)
        memset(jobs, 0, sweep->cells * sizeof *jobs);
    lk_status status = look_at_all(sweep, jobs, cells);
    lk__mem_free(jobs);
    return status;
}

/* Prints the table and draws. collect: no cell was run now. *undone: cells that are not done. */
static lk_status conclude(const lk_sweep *sweep, bool collect, size_t *undone)
{
    cell *cells;
    LK_TRY(LK_ALLOC(sweep->cells, "cells of a sweep", &cells));
    lk_status status = look(sweep, cells);
    *undone = 0;
    for (size_t i = 0; i < sweep->cells; i++)
        *undone += cells[i].state != LK_SWEEP_STATE_DONE;
    if (status == LK_OK) {
        print_table(sweep, cells);
        print_errors(sweep, cells, collect);
        status = draw(sweep, cells);
    }
    if (status == LK_OK && *undone)
        printf("%zu of %zu cells are not done\n", *undone, sweep->cells);
    lk__mem_free(cells);
    return status;
}

static int end(const lk_sweep *sweep, const lk_args *args, int caught)
{
    size_t undone = 0;
    lk_status status = conclude(sweep, !args->run.program, &undone);
    if (status != LK_OK)
        return lk__cli_fail(status);
    if (caught) {
        printf("stopped; the same line goes on\n");
        return 128 + caught;
    }
    if (args->slurm && undone) {
        printf("Jobs of Slurm end by themselves ('squeue' lists them). Then collect: lockstep sweep -o ");
        lk__sweep_put_word(sweep->dir, stdout);
        putchar('\n');
        return LK_EXIT_DONE;
    }
    return undone ? LK_EXIT_FAILED : LK_EXIT_DONE;
}

static lk_status check_slurm(const lk_args *args)
{
    if (!args->slurm || !*args->slurm || args->slurm[0] == '-')
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE, "sweep: --slurm '%s': options of sbatch begin with '-'; write '--' before train",
                    args->slurm);
}

static int run_all(const lk_args *args, lk_sweep *sweep)
{
    int caught = 0;
    lk_sweep_job *jobs = NULL;
    lk_status status = lk__sweep_begin(sweep);
    if (status == LK_OK)
        status = LK_ALLOC(sweep->cells, "jobs of a sweep", &jobs);
    if (status == LK_OK)
        status = lk__sweep_jobs(sweep, jobs);
    for (size_t i = 0; status == LK_OK && i < sweep->cells && !caught; i++)
        status = treat_cell(sweep, i, &jobs[i], args, &caught);
    lk__mem_free(jobs);
    return status == LK_OK ? end(sweep, args, caught) : lk__cli_fail(status);
}

int lk__cmd_sweep(lk_args *args)
{
    lk_sweep *sweep = NULL;
    bool collect = !args->run.program && !args->swept_count;
    lk_status status = check_slurm(args);
    if (status == LK_OK && !collect && !args->run.program)
        status =
            lk__fail(LK_STATUS_USAGE, "sweep: what is to be swept is missing: end the line with '-- train' and its "
                                      "options");
    if (status == LK_OK)
        status = collect ? lk__sweep_load(args->output, &sweep) : lk__sweep_create(args, &sweep);
    if (status != LK_OK)
        return lk__cli_fail(status);
    int code = collect ? end(sweep, args, 0) : run_all(args, sweep);
    lk__sweep_destroy(sweep);
    return code;
}
