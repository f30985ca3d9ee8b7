/* trace.h - the trace of some steps of a run, for the files trace*.c.
 *
 * Before the first step the clocks are aligned (trace_clock.c). After the last step each rank packs its events
 * (trace_pack.c) and sends them to rank 0, which writes them (trace_json.c) and finds what holds the steps back
 * (trace_parts.c), one rank after the other. */
#ifndef LK_TRAIN_TRACE_H
#define LK_TRAIN_TRACE_H

#include "base/file.h"
#include "base/trace.h"
#include "train/run.h"

/* trace_clock.c. A clock; tests give one that differs between ranks. */
typedef struct lk_train_trace_clock {
    double (*now)(void *arg); /* seconds */
    void *arg;
    bool shared; /* the ranks of a host have the same clock */
} lk_train_trace_clock;
/* Collective: *offset is what this rank adds to its clock to get the clock of rank 0. The error is at most half of
 * the shortest round trip to rank 0; 0 if both are on one host and share the clock. */
lk_status lk__train_trace_align(lk_group *group, const lk_train_trace_clock *clock, double *offset) LK_CHECKED;

/* The events of a rank in one block of memory: this struct, then threads, spans and texts. */
typedef struct lk_train_trace_pack {
    uint64_t bytes; /* of the block */
    uint64_t threads, spans, text;
    uint64_t dropped; /* events that did not fit into the memory of their thread */
} lk_train_trace_pack;

typedef struct lk_train_trace_thread {
    uint32_t name; /* offset in the texts */
    int32_t index; /* -1: none */
} lk_train_trace_thread;

/* lk_trace_event, with the clock of rank 0. */
typedef struct lk_train_trace_span {
    double begin, end;
    int64_t from, to;
    int32_t kind, number;
    uint32_t name, thread;
} lk_train_trace_span;

/* The parts of a block; borrowed from it. The first text is the name of the rank. */
typedef struct lk_train_trace_view {
    const lk_train_trace_pack *pack;
    const lk_train_trace_thread *threads;
    const lk_train_trace_span *spans;
    const char *text;
} lk_train_trace_view;

/* trace_pack.c. Packs the events of a rank that began at `since` or later, on the clock of rank 0, which is this
 * rank's clock plus offset. Free *out with lk__mem_free. */
lk_status lk__train_trace_pack_create(int rank, const char *name, double since, double offset,
                                      lk_train_trace_pack **out) LK_CHECKED;
/* Checks a block that another rank has sent, and finds its parts. FORMAT if they do not fit together. */
lk_status lk__train_trace_pack_view(const lk_train_trace_pack *pack, lk_train_trace_view *out) LK_CHECKED;

/* trace_json.c. Writes a trace file: begin, the ranks in any order, end. Times are microseconds since `base`. */
typedef struct lk_train_trace_json {
    lk_writer *writer;
    double base;
    uint64_t flights;
    bool comma;
} lk_train_trace_json;
lk_status lk__train_trace_json_begin(const char *path, double base, lk_train_trace_json *out) LK_CHECKED;
lk_status lk__train_trace_json_rank(lk_train_trace_json *json, int rank, const lk_train_trace_view *view) LK_CHECKED;
/* Frees the writer, also on failure. */
lk_status lk__train_trace_json_end(lk_train_trace_json *json) LK_CHECKED;

/* trace_parts.c. The mean time of a step in each part, of the thread that runs the steps. False if there is no
 * complete step. */
bool lk__train_trace_row(int rank, const lk_train_trace_view *view, lk_train_trace_row *out);
/* Sets the fields of out that say which rank and which part hold the steps back. */
void lk__train_trace_blame(const lk_train_trace_row *rows, int ranks, lk_train_trace *out);

#endif
