/* test_marks.c - the row of a device's stream in a trace: layers of steps that are done at once, whole recorded steps
 * and evaluations. The bits stay the same, also where marks fail. */
#include "far.h"
#include "law.h"
#include "tape.h"

#include "base/clock.h"
#include "base/trace.h"

enum { ROOM = 8, STEPS = 4 };

static const law_case mlp = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "adam", 1e-3, STEPS, 24, .shards = 4};

static double times[LK_DEVICE_MARKS]; /* 0: no mark */
static bool marks_fail;

static lk_status mark(lk_device *dev, int index)
{
    tape_require(!tape_plays, "a mark in a recording");
    if (marks_fail)
        return LK_STATUS_IO;
    times[index] = lk__clock();
    return LK_OK;
}

static bool mark_time(lk_device *dev, int index, double *out)
{
    *out = times[index];
    return times[index] > 0;
}

static int add_device(void **state)
{
    if (far_add() != LK_OK)
        return -1;
    tape_extend(&far_type);
    far_type.mark = mark;
    far_type.mark_time = mark_time;
    return 0;
}

static lk_engine *run_steps(law_way way)
{
    law_samples s = law_samples_make(&mlp);
    lk_engine *engine = law_engine(&mlp, way);
    for (int step = 0; step < STEPS; step++) {
        lk_batch batch;
        lk_metrics metrics;
        law_batch(&mlp, step, s.x, s.labels, s.ids, &batch);
        law_require(lk_engine_step(engine, &batch, &metrics));
    }
    law_samples_free(&s);
    return engine;
}

/* The second evaluation is recorded. */
static void evaluate_twice(lk_engine *engine)
{
    law_samples s = law_samples_make(&mlp);
    lk_batch batch;
    lk_metrics first, second;
    law_batch(&mlp, 0, s.x, s.labels, s.ids, &batch);
    law_require(lk_engine_eval(engine, &batch, &first));
    law_require(lk_engine_eval(engine, &batch, &second));
    assert_memory_equal(&first, &second, sizeof first);
    law_samples_free(&s);
}

static lk_trace_track find_stream(void)
{
    lk_trace_track tracks[ROOM];
    size_t count = lk__trace_tracks(0, tracks, ROOM);
    for (size_t i = 0; i < count && i < ROOM; i++)
        if (strcmp(tracks[i].name, "stream") == 0)
            return tracks[i];
    return (lk_trace_track){0};
}

/* Counts the spans of a kind and name; NULL: any name. All spans must be one after the other. */
static size_t count_spans(lk_trace_track track, lk_trace_kind kind, const char *name)
{
    size_t found = 0;
    for (size_t i = 0; i < track.count; i++) {
        const lk_trace_event *event = &track.events[i];
        assert_true(event->begin <= event->end);
        assert_true(i == 0 || track.events[i - 1].end <= event->begin);
        found += event->kind == kind && (!name || strcmp(event->name, name) == 0);
    }
    return found;
}

static void streams_are_shown(void **state)
{
    uint64_t wanted = law_run(&mlp, (law_way){.threads = 1});
    const law_way ways[] = {{.threads = 1, .device = "far"}, {.threads = 1, .device = "far", .micro_batch = 6}};
    for (int w = 0; w < 2; w++) {
        lk__trace_thread(0, "steps", -1);
        lk__trace_start();
        lk_engine *engine = run_steps(ways[w]);
        evaluate_twice(engine);
        lk_trace_track stream = find_stream();
        size_t waves = w == 0 ? 1 : 4, recorded = count_spans(stream, LK_TRACE_KIND_DEVICE, "recorded step");
        size_t at_once = STEPS - recorded;
        assert_true(recorded > 0 && at_once > 0);
        assert_int_equal(count_spans(stream, LK_TRACE_KIND_DEVICE, "recorded evaluation"), 1);
        size_t forward = count_spans(stream, LK_TRACE_KIND_FORWARD, "chunk1.1");
        assert_int_equal(forward, at_once * waves);
        assert_int_equal(count_spans(stream, LK_TRACE_KIND_BACKWARD, "chunk1.1"), at_once * waves);
        assert_int_equal(count_spans(stream, LK_TRACE_KIND_UPDATE, "update"), at_once);
        lk__trace_stop();
        assert_true(law_hash(engine) == wanted);
        lk_engine_destroy(engine);
    }
}

static void failed_marks_cost_the_row_only(void **state)
{
    uint64_t wanted = law_run(&mlp, (law_way){.threads = 1});
    memset(times, 0, sizeof times);
    marks_fail = true;
    lk__trace_thread(0, "steps", -1);
    lk__trace_start();
    lk_engine *engine = run_steps((law_way){.threads = 1, .device = "far"});
    assert_int_equal(find_stream().count, 0);
    assert_true(law_hash(engine) == wanted);
    lk__trace_stop();
    lk_engine_destroy(engine);
    marks_fail = false;
}

static void nothing_is_marked_without_a_trace(void **state)
{
    memset(times, 0, sizeof times);
    lk_engine_destroy(run_steps((law_way){.threads = 1, .device = "far"}));
    for (int i = 0; i < LK_DEVICE_MARKS; i++)
        assert_true(times[i] == 0);
}

TEST_MAIN(add_device, NULL, TEST(streams_are_shown), TEST(failed_marks_cost_the_row_only),
          TEST(nothing_is_marked_without_a_trace))
