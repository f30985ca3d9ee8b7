/* trace.c - traces some steps of a run: begins and ends recording, and collects the events of all ranks at rank 0. */
#include "train/trace.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/spec.h"

#define DEFAULT_FILE "trace.json"

/* Steps of a trace; more would not fit into the memory for spans. */
enum { MOST_STEPS = 1000 };
/* Seconds by which clocks of hosts may differ after they were aligned; the trace begins earlier by that. */
static const double MARGIN = 1e-3;

static bool read_step(const char *text, size_t length, size_t *out)
{
    char word[24];
    long long number;
    if (length == 0 || length >= sizeof word || strspn(text, "0123456789") < length)
        return false;
    memcpy(word, text, length);
    word[length] = '\0';
    if (!lk__number_parse_int(word, 1, 1000000000, &number))
        return false;
    *out = (size_t)number;
    return true;
}

lk_status lk__train_trace_range(const char *text, size_t *first, size_t *last)
{
    size_t begin = 0, end, length = strcspn(text, "-");
    bool good = read_step(text, length, &begin);
    end = begin;
    if (good && text[length] == '-')
        good = read_step(text + length + 1, strlen(text + length + 1), &end) && end >= begin;
    if (!good)
        return lk__fail(
            LK_STATUS_USAGE,
            "`trace` '%.64s' is neither a step nor a range of steps: write `trace` 10 or `trace` 10-14; the "
            "first step is 1",
            text);
    if (end - begin >= MOST_STEPS)
        return lk__fail(LK_STATUS_USAGE, "`trace` %s has %zu steps; a trace may have %d", text, end - begin + 1,
                        MOST_STEPS);
    *first = begin;
    *last = end;
    return LK_OK;
}

static const char *file_of(const lk_train_run *run)
{
    return run->opts->trace_file ? run->opts->trace_file : DEFAULT_FILE;
}

/* Finds before the first step that the file cannot be written. */
static lk_status check_file(const char *path)
{
    lk_writer *probe;
    lk_status status = lk__writer_open(path, &probe);
    if (status != LK_OK)
        return lk__fail(
            status, "`trace_file` '%s' cannot be written: %s; name a file in a folder that exists and can be written",
            path, lk_error_detail());
    lk__writer_abort(probe);
    return LK_OK;
}

lk_status lk__run_trace_open(lk_train_run *run)
{
    lk_run_trace *trace = &run->trace;
    if (!run->opts->trace)
        return LK_OK;
    LK_TRY(lk__run_common_result(run, lk__train_trace_range(run->opts->trace, &trace->first, &trace->last)));
    if (trace->first > run->total_steps)
        return lk__run_common_result(run,
                                     lk__fail(LK_STATUS_USAGE, "`trace` %s: the run has only %zu step%s",
                                              run->opts->trace, run->total_steps, run->total_steps == 1 ? "" : "s"));
    trace->last = lk__size_min(trace->last, run->total_steps);
    if (trace->last <= run->at.step) {
        *trace = (lk_run_trace){0};
        return LK_OK;
    }
    trace->first = lk__size_max(trace->first, run->at.step + 1);
    return run->self.rank == 0 ? lk__run_own_result(run, check_file(file_of(run))) : LK_OK;
}

static double now(void *arg)
{
    (void)arg;
    return lk__clock();
}

/* The trace begins at one time for all ranks. */
static lk_status agree_time(lk_train_run *run)
{
    lk_run_trace *trace = &run->trace;
    const lk_train_trace_clock clock = {.now = now, .shared = true};
    LK_TRY(lk__train_trace_align(run->rank->group, &clock, &trace->offset));
    trace->since = lk__clock() - MARGIN;
    if (!run->rank->group)
        return LK_OK;
    return lk_broadcast(run->rank->group, (lk_buffer){&trace->since, 1, LK_DTYPE_F64}, 0, NULL);
}

lk_status lk__run_trace_before(lk_train_run *run)
{
    lk_run_trace *trace = &run->trace;
    if (trace->on || trace->first == 0 || run->at.step + 1 != trace->first || run->under_way > 0)
        return LK_OK;
    LK_TRY(lk__run_collective_result(run, agree_time(run)));
    lk__trace_start();
    trace->on = true;
    return LK_OK;
}

lk_status lk__run_trace_after(lk_train_run *run)
{
    return run->trace.on && run->at.step >= run->trace.last ? lk__run_trace_finish(run) : LK_OK;
}

bool lk__run_trace_cuts(const lk_train_run *run, size_t steps)
{
    return run->trace.first > 0 && (steps + 1 == run->trace.first || steps == run->trace.last);
}

void lk__run_trace_close(lk_train_run *run)
{
    if (run->trace.on)
        lk__trace_stop();
    run->trace.on = false;
}

static lk_buffer as_bytes(void *at, size_t bytes)
{
    return (lk_buffer){at, bytes, LK_DTYPE_U8};
}

static lk_status pack_own(const lk_train_run *run, lk_train_trace_pack **out)
{
    char name[256];
    const lk_train_rank_info *self = &run->self;
    int used =
        snprintf(name, sizeof name, "rank %d (%s%s%s)", self->rank, self->host, *self->host ? ", " : "", self->device);
    if (self->layout.stages > 1 && used > 0 && (size_t)used < sizeof name)
        snprintf(name + used, sizeof name - (size_t)used, ", stage %d", self->layout.stage);
    return lk__train_trace_pack_create(self->rank, name, run->trace.since, run->trace.offset, out);
}

/* The head of a pack has its size. */
static lk_status send_pack(lk_group *group, lk_train_trace_pack *pack)
{
    LK_TRY(lk_send(group, as_bytes(pack, sizeof *pack), 0, NULL));
    return lk_send(group, as_bytes(pack + 1, pack->bytes - sizeof *pack), 0, NULL);
}

static lk_status receive_pack(lk_group *group, int rank, lk_train_trace_pack **out)
{
    lk_train_trace_pack head;
    void *block;
    LK_TRY(lk_recv(group, as_bytes(&head, sizeof head), rank, NULL));
    if (head.bytes < sizeof head)
        return lk__fail(LK_STATUS_FORMAT, "rank %d sent a trace of %zu bytes", rank, (size_t)head.bytes);
    LK_TRY(lk__mem_alloc(1, head.bytes, "a rank's trace", &block));
    lk_status status = lk_recv(group, as_bytes((char *)block + sizeof head, head.bytes - sizeof head), rank, NULL);
    if (status != LK_OK) {
        lk__mem_free(block);
        return status;
    }
    memcpy(block, &head, sizeof head);
    *out = block;
    return LK_OK;
}

/* The trace at rank 0. A failure to write is kept: the steps go on without the file. */
typedef struct collection {
    lk_train_trace_json json;
    lk_train_trace_row *rows; /* (ranks) */
    lk_train_trace event;
    bool incomplete; /* a rank has no complete step: its memory for events was full */
    lk_status written;
    char error[LK_DETAIL_BYTES];
} collection;

static void note_written(collection *c, lk_status status)
{
    if (c->written != LK_OK || status == LK_OK)
        return;
    c->written = status;
    snprintf(c->error, sizeof c->error, "%s", lk_error_detail());
    c->event.error = c->error;
}

static lk_status add_rank(collection *c, int rank, const lk_train_trace_pack *pack)
{
    lk_train_trace_view view;
    LK_TRY(lk__train_trace_pack_view(pack, &view));
    c->event.spans += pack->spans;
    c->event.dropped += pack->dropped;
    c->incomplete |= !lk__train_trace_row(rank, &view, &c->rows[rank]);
    if (c->written == LK_OK)
        note_written(c, lk__train_trace_json_rank(&c->json, rank, &view));
    return LK_OK;
}

static lk_status add_ranks(lk_train_run *run, collection *c, const lk_train_trace_pack *own)
{
    LK_TRY(lk__run_own_result(run, add_rank(c, 0, own)));
    for (int r = 1; r < run->self.ranks; r++) {
        lk_train_trace_pack *pack = NULL;
        LK_TRY(lk__run_collective_result(run, receive_pack(run->rank->group, r, &pack)));
        lk_status status = lk__run_own_result(run, add_rank(c, r, pack));
        lk__mem_free(pack);
        LK_TRY(status);
    }
    return LK_OK;
}

static void end_file(collection *c, bool opened, bool complete)
{
    if (!opened)
        return;
    if (complete && c->written == LK_OK)
        note_written(c, lk__train_trace_json_end(&c->json));
    else
        lk__writer_abort(c->json.writer);
}

/* A file that could not be written is a part of the event, or without a hook for it the run's failure. */
static lk_status emit(lk_train_run *run, collection *c)
{
    lk_train_trace *event = &c->event;
    event->path = file_of(run);
    event->first = run->trace.first;
    event->last = lk__size_min(run->trace.last, run->at.step);
    event->ranks = run->self.ranks;
    event->rows = c->rows;
    lk__train_trace_blame(c->rows, run->self.ranks, event);
    event->holds_back = event->holds_back && !c->incomplete;
    if (!run->hooks->trace)
        return c->written == LK_OK ? LK_OK : lk__run_own_result(run, lk__fail(c->written, "%s", c->error));
    run->hooks->trace(run->hooks->arg, event);
    return LK_OK;
}

static lk_status collect(lk_train_run *run, const lk_train_trace_pack *own)
{
    collection *c;
    LK_TRY(lk__run_own_result(run, LK_ALLOC(1, "a trace", &c)));
    lk_status status = lk__run_own_result(run, LK_ALLOC((size_t)run->self.ranks, "a trace", &c->rows));
    if (status == LK_OK) {
        note_written(c, lk__train_trace_json_begin(file_of(run), run->trace.since, &c->json));
        bool opened = c->written == LK_OK;
        status = add_ranks(run, c, own);
        end_file(c, opened, status == LK_OK);
    }
    if (status == LK_OK)
        status = emit(run, c);
    lk__mem_free(c->rows);
    lk__mem_free(c);
    return status;
}

lk_status lk__run_trace_finish(lk_train_run *run)
{
    lk_train_trace_pack *own = NULL;
    if (!run->trace.on)
        return LK_OK;
    lk__run_trace_close(run);
    run->trace.last = run->at.step;
    LK_TRY(lk__run_own_result(run, pack_own(run, &own)));
    lk_status status =
        run->self.rank == 0 ? collect(run, own) : lk__run_collective_result(run, send_pack(run->rank->group, own));
    lk__mem_free(own);
    return status;
}
