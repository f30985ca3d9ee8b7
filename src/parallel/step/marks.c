/* marks.c - marks of the device's stream, and their spans. */
#include "parallel/step/marks.h"

#include <sched.h>

#include "base/mem.h"
#include "parallel/step/recorded.h"

/* The first marks are those of recorded steps. */
enum { STEP_MARKS = 2 * LK_RECORDED_DEPTH, MARKS = LK_DEVICE_MARKS - STEP_MARKS };

/* Tries to read the time of a mark that the device is about to reach. */
enum { LOOKS = 10000 };

struct lk_marks {
    lk_trace_label labels[MARKS];
    int count;
};

/* A mark that fails is a fault of the device, which the next sync returns; the trace goes on without marks. */
static bool set_mark(lk_engine *engine, int index)
{
    return engine->dev->type->mark && engine->dev->type->mark(engine->dev, index) == LK_OK;
}

static bool is_traced(lk_engine *engine)
{
    if (!lk__trace_is_on() || !engine->dev->type->mark)
        return false;
    return engine->marks || LK_ALLOC(1, "a trace", &engine->marks) == LK_OK;
}

void lk__marks_add(lk_engine *engine, lk_trace_label label)
{
    if (!is_traced(engine) || engine->marks->count == MARKS)
        return;
    int index = engine->marks->count;
    engine->marks->labels[index] = label;
    engine->marks->count += set_mark(engine, STEP_MARKS + index);
}

static void record(lk_trace_label label, double begin, double end)
{
    lk__trace_record_stream(&(lk_trace_event){.begin = begin,
                                              .end = end > begin ? end : begin,
                                              .name = label.name,
                                              .kind = label.kind,
                                              .number = label.number});
}

void lk__marks_read(lk_engine *engine)
{
    lk_marks *marks = engine->marks;
    double before = 0, time;
    for (int i = 0; marks && i < marks->count; i++) {
        if (!engine->dev->type->mark_time(engine->dev, STEP_MARKS + i, &time))
            break;
        if (i > 0 && marks->labels[i].name)
            record(marks->labels[i], before, time);
        before = time;
    }
    if (marks)
        marks->count = 0;
}

void lk__marks_begin_step(lk_engine *engine, int slot)
{
    if (is_traced(engine))
        (void)set_mark(engine, 2 * slot);
}

void lk__marks_end_step(lk_engine *engine, int slot)
{
    if (is_traced(engine))
        (void)set_mark(engine, 2 * slot + 1);
}

/* The results of a step are there a moment before its end. */
static bool time_of(lk_engine *engine, int index, double *out)
{
    for (int looks = 0; looks < LOOKS; looks++) {
        if (engine->dev->type->mark_time(engine->dev, index, out))
            return true;
        sched_yield();
    }
    return false;
}

bool lk__marks_read_step(lk_engine *engine, int slot, lk_trace_label label)
{
    double begin, end;
    if (!is_traced(engine) || !time_of(engine, 2 * slot, &begin) || !time_of(engine, 2 * slot + 1, &end))
        return false;
    record(label, begin, end);
    return true;
}

void lk__marks_destroy(lk_marks *marks)
{
    lk__mem_free(marks);
}
