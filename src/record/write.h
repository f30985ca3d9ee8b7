/* write.h - writes a run folder: run.json, rows, the log, states, event files. Only rank 0 has a writer.
 *
 * Rows are appended with one write each and are not synced: a killed process loses none, a crashed machine the last
 * seconds. A row that cannot be written whole is not written at all. Whole files are replaced atomically. run.json can
 * be replaced on a full disk, too, once: 64 KiB are kept free for it. */
#ifndef LK_RECORD_WRITE_H
#define LK_RECORD_WRITE_H

#include <lockstep/state.h>

#include "record/columns.h"

/* What the name of a run folder says. */
typedef struct lk_record_scenario {
    const char *data, *model;
    const char *init; /* NULL: the model's own */
    int ranks;
    size_t batch;
    const char *optimizer;
    double lr;
    const char *schedule;
    size_t epochs;
} lk_record_scenario;

/* Writes "2026-11-16_22-40-12_mnist_cnn_default_n2_b64_adadelta_lr1_step-size=1-gamma=0.7_e14"; `seconds` is Unix time,
 * in local time. Only letters, digits and "._=-"; long parts are cut. */
enum { LK_RECORD_NAME = 201 };
void lk__record_name(const lk_record_scenario *scenario, double seconds, char out[LK_RECORD_NAME]);

typedef struct lk_record_writer lk_record_writer;

/* Makes dir, with its parents, and dir/name in it; "-2", "-3" ... is appended to a name that exists. */
lk_status lk__record_create(const char *dir, const char *name, lk_record_writer **out) LK_CHECKED;
/* Opens the run folder dir/name to go on in it. NOT_FOUND if there is none. */
lk_status lk__record_continue(const char *dir, const char *name, lk_record_writer **out) LK_CHECKED;
/* Writes what is left of the log's last line, and closes the files. NULL is allowed. */
void lk__record_destroy(lk_record_writer *writer);

/* The path of the folder, and its name. Borrowed. */
const char *lk__record_path(const lk_record_writer *writer);
const char *lk__record_own_name(const lk_record_writer *writer);
/* Whether the folder was there before (lk__record_continue). */
bool lk__record_is_continued(const lk_record_writer *writer);

/* Begins the rows, for a run of which `step` steps are done: in a folder that was there before, removes the rows and
 * events after that step and incomplete last lines. Must precede lk__record_row and lk__record_ranks. *seconds is the
 * time of the last row that is left, 0 if there is none. */
lk_status lk__record_begin(lk_record_writer *writer, size_t step, double *seconds) LK_CHECKED;

/* The object that becomes run.json, borrowed; the caller changes it. lk__record_publish replaces the file. */
cJSON *lk__record_object(lk_record_writer *writer);
lk_status lk__record_publish(lk_record_writer *writer) LK_CHECKED;

/* Replaces a whole file of the folder. */
lk_status lk__record_put(lk_record_writer *writer, const char *name, const void *data, size_t bytes) LK_CHECKED;
/* Saves a state as NAME.safetensors. */
lk_status lk__record_put_state(lk_record_writer *writer, const char *name, const lk_state *state) LK_CHECKED;

/* Appends a row of training, test or validation to metrics.jsonl, metrics.csv and the event file. A row whose step is
 * not above that of the last row of its kind is left out: a resumed run repeats an evaluation. */
lk_status lk__record_row(lk_record_writer *writer, lk_record_kind kind, const lk_record_row *row) LK_CHECKED;

/* A rank in a line of ranks.jsonl; the row has the numbers. */
typedef struct lk_record_rank {
    lk_record_row row;
    const char *host, *device; /* "": unknown */
} lk_record_rank;
lk_status lk__record_ranks(lk_record_writer *writer, size_t step, double seconds, const lk_record_rank *ranks,
                           int count) LK_CHECKED;

/* Adds a histogram of every f32 tensor to the event file, as "PREFIX/KEY". Nothing without event files. */
lk_status lk__record_histograms(lk_record_writer *writer, size_t step, const char *prefix,
                                const lk_state *state) LK_CHECKED;

/* Appends to log.txt what the run prints. Bytes that control a terminal are left out: escape sequences, and a line that
 * a carriage return overwrites. Any thread may call. A write that fails ends the log; the next lk__record_row fails
 * with the reason. */
void lk__record_log(lk_record_writer *writer, const char *text, size_t bytes);

#endif
