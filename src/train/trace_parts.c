/* trace_parts.c - the parts of the traced steps, and the rank and the part that hold them back. */
#include "train/trace.h"

/* A rank holds the others back if these wait this part of its step longer than it does. */
static const double NOTABLE = 0.05;

const char *const lk__train_trace_parts[LK_TRAIN_TRACE_PART_COUNT] = {
#define TEXT(name, text) [LK_TRAIN_TRACE_PART_##name] = text,
    LK_TRAIN_TRACE_PART_LIST(TEXT)
#undef TEXT
};

static lk_train_trace_part part_of(int32_t kind)
{
    static const lk_train_trace_part parts[LK_TRACE_KIND_COUNT] = {
        [LK_TRACE_KIND_STEP] = LK_TRAIN_TRACE_PART_OTHER,      [LK_TRACE_KIND_DATA] = LK_TRAIN_TRACE_PART_DATA,
        [LK_TRACE_KIND_FORWARD] = LK_TRAIN_TRACE_PART_FORWARD, [LK_TRACE_KIND_BACKWARD] = LK_TRAIN_TRACE_PART_BACKWARD,
        [LK_TRACE_KIND_SUM] = LK_TRAIN_TRACE_PART_SUMS,        [LK_TRACE_KIND_UPDATE] = LK_TRAIN_TRACE_PART_UPDATE,
        [LK_TRACE_KIND_CHECK] = LK_TRAIN_TRACE_PART_CHECK,     [LK_TRACE_KIND_DEVICE] = LK_TRAIN_TRACE_PART_DEVICE,
        [LK_TRACE_KIND_SAVE] = LK_TRAIN_TRACE_PART_OTHER,      [LK_TRACE_KIND_EVAL] = LK_TRAIN_TRACE_PART_OTHER,
        [LK_TRACE_KIND_WAIT] = LK_TRAIN_TRACE_PART_WAIT,
    };
    return parts[kind];
}

enum { DEPTH = 64 };

/* Adds the times of the parts of one step: of each span, its time without the spans inside it. Spans are in the order
 * in which they ended. Backwards, a span comes before the spans inside it, so the stack has the spans around the
 * current one. */
static void add_step(const lk_train_trace_view *view, uint64_t at, double parts[LK_TRAIN_TRACE_PART_COUNT])
{
    const lk_train_trace_span *step = &view->spans[at], *around[DEPTH] = {step};
    int depth = 1;
    parts[LK_TRAIN_TRACE_PART_OTHER] += step->end - step->begin;
    while (at-- > 0) {
        const lk_train_trace_span *span = &view->spans[at];
        if (span->thread != step->thread || span->end < step->begin)
            break;
        if (lk__trace_kind_is_flight((lk_trace_kind)span->kind) || span->begin < step->begin)
            continue;
        while (around[depth - 1]->begin > span->begin)
            depth--;
        parts[part_of(around[depth - 1]->kind)] -= span->end - span->begin;
        parts[part_of(span->kind)] += span->end - span->begin;
        if (depth < DEPTH)
            around[depth++] = span;
    }
}

bool lk__train_trace_row(int rank, const lk_train_trace_view *view, lk_train_trace_row *out)
{
    lk_train_trace_row row = {.rank = rank};
    int steps = 0;
    for (uint64_t i = 0; i < view->pack->spans; i++) {
        const lk_train_trace_span *span = &view->spans[i];
        if (span->kind != LK_TRACE_KIND_STEP)
            continue;
        steps++;
        row.step += span->end - span->begin;
        add_step(view, i, row.parts);
    }
    for (int p = 0; steps > 0 && p < LK_TRAIN_TRACE_PART_COUNT; p++)
        row.parts[p] /= steps;
    row.step /= steps > 0 ? steps : 1;
    *out = row;
    return steps > 0;
}

static double mean_of_others(const lk_train_trace_row *rows, int ranks, int rank, lk_train_trace_part part)
{
    double sum = 0;
    for (int r = 0; r < ranks; r++)
        sum += r == rank ? 0 : rows[r].parts[part];
    return ranks > 1 ? sum / (ranks - 1) : 0;
}

/* All ranks wait while data move; the rank for which the others wait does not wait for them. */
static int least_waiting(const lk_train_trace_row *rows, int ranks)
{
    int least = 0;
    for (int r = 1; r < ranks; r++)
        if (rows[r].parts[LK_TRAIN_TRACE_PART_WAIT] < rows[least].parts[LK_TRAIN_TRACE_PART_WAIT])
            least = r;
    return least;
}

void lk__train_trace_blame(const lk_train_trace_row *rows, int ranks, lk_train_trace *out)
{
    int slowest = least_waiting(rows, ranks);
    out->slowest = slowest;
    out->part = LK_TRAIN_TRACE_PART_DATA;
    out->more = 0;
    for (int p = 0; p < LK_TRAIN_TRACE_PART_WAIT; p++) {
        double more = rows[slowest].parts[p] - mean_of_others(rows, ranks, slowest, (lk_train_trace_part)p);
        if (more <= out->more)
            continue;
        out->more = more;
        out->part = (lk_train_trace_part)p;
    }
    out->awaited =
        mean_of_others(rows, ranks, slowest, LK_TRAIN_TRACE_PART_WAIT) - rows[slowest].parts[LK_TRAIN_TRACE_PART_WAIT];
    out->holds_back = ranks > 1 && out->awaited > NOTABLE * rows[slowest].step;
}
