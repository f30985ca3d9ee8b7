/* trace.h - records what threads do at which time, for `--trace`.
 *
 * A span is a part of a thread's time with a name. Spans of a thread nest. A flight is a time that begins and ends
 * beside the spans: a bucket that is being summed. Each thread appends to memory of its own, without a lock; other
 * threads may read what is complete. While no rank traces, a call of this header costs one load and one branch.
 *
 * Ranks may be threads of one process, so every thread says for which rank it works (lk__trace_thread). */
#ifndef LK_BASE_TRACE_H
#define LK_BASE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"

/* X(kind, text). WAIT is waiting for other ranks; SUM is this rank's own work for sums and messages; DEVICE is
 * waiting for a GPU, whatever the GPU waits for. The kinds from BUCKET on are flights. */
#define LK_TRACE_KIND_LIST(X) \
    X(STEP, "step")           \
    X(DATA, "data")           \
    X(FORWARD, "forward")     \
    X(BACKWARD, "backward")   \
    X(SUM, "sums")            \
    X(UPDATE, "update")       \
    X(CHECK, "check")         \
    X(DEVICE, "device")       \
    X(SAVE, "save")           \
    X(EVAL, "eval")           \
    X(WAIT, "wait")           \
    X(BUCKET, "bucket")       \
    X(MESSAGE, "message")     \
    X(LAUNCHED, "launched")

typedef enum lk_trace_kind {
#define LK_TRACE_KIND_ENUM(name, text) LK_TRACE_KIND_##name,
    LK_TRACE_KIND_LIST(LK_TRACE_KIND_ENUM)
#undef LK_TRACE_KIND_ENUM
        LK_TRACE_KIND_COUNT
} lk_trace_kind;

/* The text of each kind. */
extern const char *const lk__trace_kinds[LK_TRACE_KIND_COUNT];

static inline bool lk__trace_kind_is_flight(lk_trace_kind kind)
{
    return kind >= LK_TRACE_KIND_BUCKET;
}

typedef struct lk_trace_event {
    double begin, end; /* lk__clock() times */
    const char *name;  /* borrowed; valid until the events are read */
    lk_trace_kind kind;
    int number;       /* of the step, wave, layer, bucket or batch; -1: none */
    int64_t from, to; /* first and last shard of a wave; 0 and the bytes of a bucket; 0 and 0: none */
} lk_trace_event;

/* The number of ranks of this process that trace. */
extern atomic_int lk__trace_ranks;

static inline bool lk__trace_is_on(void)
{
    return atomic_load_explicit(&lk__trace_ranks, memory_order_relaxed) > 0;
}

/* Says for which rank the calling thread works, and the thread's name, a literal such as "loader", with an index;
 * -1: none. A thread that starts others gives them its rank. */
void lk__trace_thread(int rank, const char *name, int index);
/* The rank of the calling thread; -1: not known, and nothing is recorded. */
int lk__trace_rank(void);

/* Appends an event to the memory of the calling thread; counts it as dropped when that is full. */
void lk__trace_record(const lk_trace_event *event);

/* The same for the row of a device's stream, which the calling thread keeps: what the device did. */
void lk__trace_record_stream(const lk_trace_event *event);

/* The time at which a span begins; 0 while no rank traces. */
static inline double lk__trace_begin(void)
{
    return lk__trace_is_on() ? lk__clock() : 0;
}

/* The end of a span; nothing if begin is 0. */
static inline void lk__trace_end(lk_trace_kind kind, const char *name, int number, double begin)
{
    if (begin > 0)
        lk__trace_record(
            &(lk_trace_event){.begin = begin, .end = lk__clock(), .name = name, .kind = kind, .number = number});
}

/* What the calling thread works on, for the spans of the threads that help it (pool.h). */
typedef struct lk_trace_label {
    const char *name; /* NULL: none */
    lk_trace_kind kind;
    int number;
} lk_trace_label;
void lk__trace_set_label(lk_trace_label label);
lk_trace_label lk__trace_label(void);

/* lk__trace_begin that also sets the label. */
static inline double lk__trace_begin_label(lk_trace_kind kind, const char *name, int number)
{
    if (!lk__trace_is_on())
        return 0;
    lk__trace_set_label((lk_trace_label){name, kind, number});
    return lk__clock();
}

/* A rank of this process begins to trace, and ends. The first one that begins discards earlier events. */
void lk__trace_start(void);
void lk__trace_stop(void);

/* The events of one thread, in the order in which they ended. Borrowed; valid until the next lk__trace_start. */
typedef struct lk_trace_track {
    const char *name;
    int index;
    const lk_trace_event *events; /* (count) */
    size_t count;
    size_t dropped; /* events that did not fit */
} lk_trace_track;
/* The tracks of a rank: fills out with at most `room` of them and returns their number. */
size_t lk__trace_tracks(int rank, lk_trace_track *out, size_t room);

#endif
