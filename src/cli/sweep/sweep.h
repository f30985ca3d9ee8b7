/* sweep.h - a sweep: `train` with every combination of the values of some options.
 *
 * A combination is a cell. The folder of the sweep has sweep.json (what is swept) and a folder for each cell, in which
 * train makes its run folders (--log-dir). A cell is done if one of its runs is; this is read from the run folders, so
 * cells that Slurm ran on other hosts count as soon as their files are there. */
#ifndef LK_CLI_SWEEP_SWEEP_H
#define LK_CLI_SWEEP_SWEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "cli/options/args.h"

enum { LK_SWEEP_CELL = 160, LK_SWEEP_MOST_CELLS = 10000 };

typedef struct lk_sweep_axis {
    char *option; /* with dashes: "batch-size" */
    size_t count;
    char **values; /* (count) */
} lk_sweep_axis;

typedef struct lk_sweep {
    char *dir;
    size_t axis_count;
    lk_sweep_axis axes[LK_SWEPT_MAX];
    size_t word_count;
    char **words; /* (word_count) of train, without "train" */
    size_t cells; /* the product of the axes' counts */
} lk_sweep;

/* Whether an option of train may be in a sweep: cells have folders of their own. */
bool lk__sweep_takes(const char *option);

/* The sweep of a command line; its words begin with "train". Every cell's line is checked as train would check it.
 * USAGE if an option cannot be swept, has the same value twice, has a wrong value, or names a model, an optimiser or a
 * file of options that does not exist. */
lk_status lk__sweep_create(const lk_args *args, lk_sweep **out) LK_CHECKED;
/* The sweep that sweep.json in dir describes. NOT_FOUND if there is none. */
lk_status lk__sweep_load(const char *dir, lk_sweep **out) LK_CHECKED;
void lk__sweep_destroy(lk_sweep *sweep);

/* Makes the folder, locks it until the process ends, and writes sweep.json. USAGE if the folder has another sweep, or
 * if another process works in it. */
lk_status lk__sweep_begin(const lk_sweep *sweep) LK_CHECKED;

/* The value of an axis in a cell; the last axis changes fastest. */
const char *lk__sweep_value(const lk_sweep *sweep, size_t cell, size_t axis);
/* The name of a cell's folder, "nproc=1,threads=2", and its path. A name with a replaced character ends with a hash. */
void lk__sweep_name(const lk_sweep *sweep, size_t cell, char out[LK_SWEEP_CELL]);
lk_status lk__sweep_path(const lk_sweep *sweep, size_t cell, const char *file, char *out, size_t bytes) LK_CHECKED;
/* What people read: "nproc 1, threads 2". */
void lk__sweep_title(const lk_sweep *sweep, size_t cell, char *out, size_t bytes);
/* The words of a cell's training, from "train" on, NULL after the last. The caller frees each word and the array. */
lk_status lk__sweep_line(const lk_sweep *sweep, size_t cell, char ***out) LK_CHECKED;
void lk__sweep_line_free(char **line);
/* Ranks times threads of a cell; 0 if the line gives neither of them as a number. */
lk_status lk__sweep_cores(const lk_sweep *sweep, size_t cell, long long *out) LK_CHECKED;

typedef enum lk_sweep_state {
    LK_SWEEP_STATE_NEW,
    LK_SWEEP_STATE_RUNNING, /* or waiting in Slurm's queue */
    LK_SWEEP_STATE_STOPPED, /* interrupted, or its process does not exist any more */
    LK_SWEEP_STATE_FAILED,
    LK_SWEEP_STATE_DONE,
    LK_SWEEP_STATE_COUNT
} lk_sweep_state;
extern const char *const lk__sweep_state_names[LK_SWEEP_STATE_COUNT];

/* The file in a cell's folder that has the number of its job. */
#define LK_SWEEP_JOB_FILE "slurm-job"

/* A cell's job of Slurm. */
typedef struct lk_sweep_job {
    long long number; /* 0: the cell was not submitted */
    bool lives;       /* it waits or runs */
} lk_sweep_job;

/* The state of a cell by its files and its job, and the path of its newest run; of its newest run that is done, if
 * there is one. *run is "" if it has none. A run whose process or job does not exist any more is stopped, whatever its
 * files say: a process that is killed hard cannot write how it ended. */
lk_status lk__sweep_look(const lk_sweep *sweep, size_t cell, const lk_sweep_job *job, lk_sweep_state *state, char *run,
                         size_t bytes) LK_CHECKED;
/* Removes the run folders of a cell, none of which is done, and forgets its job. */
lk_status lk__sweep_clear(const lk_sweep *sweep, size_t cell) LK_CHECKED;

/* Trains a cell in a child process, whose output goes to "output.txt" in the cell's folder. Blocks until it ends.
 * SIGINT, SIGTERM and SIGHUP are passed on to it; *caught is the last of them, or 0. *code is the exit status. */
lk_status lk__sweep_run(const lk_sweep *sweep, size_t cell, int *code, int *caught) LK_CHECKED;
/* The last error message in "output.txt", otherwise the last line that begins with "lockstep ", made printable; "" if
 * there is none. */
void lk__sweep_message(const lk_sweep *sweep, size_t cell, char *out, size_t bytes);

/* Submits a cell to Slurm; `options` are more options of sbatch, separated by blanks. UNSUPPORTED if there is no
 * sbatch. *job is Slurm's number, which the cell's folder keeps. */
lk_status lk__sweep_submit(const lk_sweep *sweep, size_t cell, const char *options, long long *job) LK_CHECKED;
/* The jobs of all cells, by one question to Slurm. Fails if a cell was submitted and Slurm cannot be asked; the numbers
 * are written even then, and no job lives. */
lk_status lk__sweep_jobs(const lk_sweep *sweep, lk_sweep_job *jobs /* (cells) */) LK_CHECKED;
/* Writes a word as sh reads it, in quotes if it needs them. */
void lk__sweep_put_word(const char *word, FILE *out);

#endif
