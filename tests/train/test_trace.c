/* test_trace.c - the parts of a trace: the range of steps, clocks, packs, and who holds the steps back. Times are
 * given, so every sum is exact. */
#include "base/mem.h"
#include "comm/harness.h"
#include "train/trace.h"

static void ranges_of_steps(void **state)
{
    static const struct {
        const char *text;
        size_t first, last;
    } good[] = {{"1", 1, 1}, {"10", 10, 10}, {"10-14", 10, 14}, {"7-7", 7, 7}, {"1-1000", 1, 1000}};
    static const char *const bad[] = {"",    "0",   "0-3", "-",   "-3",    "3-",
                                      "5-4", "a",   "1,2", "1 2", "1-2-3", "1-2x",
                                      "+1",  "1.5", "1e3", " 1",  "1 ",    "99999999999999999999999",
                                      "1:2"};
    size_t first = 0, last = 0;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_ok(lk__train_trace_range(good[i].text, &first, &last));
        assert_int_equal(first, good[i].first);
        assert_int_equal(last, good[i].last);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(lk__train_trace_range(bad[i], &first, &last), LK_STATUS_USAGE,
                     "write `trace` 10 or `trace` 10-14");
    assert_fails(lk__train_trace_range("1-1001", &first, &last), LK_STATUS_USAGE, "has 1001 steps");
    assert_int_equal(last, 1000); /* outputs are written on success only */
}

/* A clock that ticks once at each reading of any rank, plus the rank's own error. */
typedef struct skewed {
    team_page *page;
    double error;
} skewed;

static double tick(void *arg)
{
    skewed *clock = arg;
    return (double)(atomic_fetch_add(&clock->page->counter, 1) + 1) + clock->error;
}

static double error_of(int rank)
{
    return rank % 2 ? 1e6 * rank : -4096.5 * rank;
}

/* The shortest round trip has three readings in a row, so its middle is the answer's time, to the bit. */
static bool align_skewed(lk_group *group, const team_spec *team, const void *arg)
{
    int rank = lk_group_rank(group);
    skewed state = {team->page, error_of(rank)};
    lk_train_trace_clock clock = {.now = tick, .arg = &state, .shared = *(const bool *)arg};
    double offset = -1;
    CHECK_OK(lk__train_trace_align(group, &clock, &offset));
    bool same = clock.shared && lk_group_is_local(group, 0);
    CHECK(offset == (rank == 0 || same ? 0 : -error_of(rank)));
    return false;
}

static void clocks_are_aligned(void **state)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    double offset = -1;
    assert_ok(lk__train_trace_align(NULL, &(lk_train_trace_clock){.now = tick}, &offset));
    assert_true(offset == 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        team_run((team_spec){.size = sizes[i], .transport = "inproc"}, align_skewed, &(bool){false});
    team_run((team_spec){.size = 3, .transport = "shm"}, align_skewed, &(bool){true});
    team_run((team_spec){.size = 4, .transport = "auto", .hosts = "aabb"}, align_skewed, &(bool){true});
}

static void add(lk_trace_kind kind, double begin, double end)
{
    lk__trace_record(
        &(lk_trace_event){.begin = begin, .end = end, .name = lk__trace_kinds[kind], .kind = kind, .number = -1});
}

/* Two steps of 100 and 60 seconds; spans are recorded when they end. The second begins at 200. */
static void record_steps(void)
{
    add(LK_TRACE_KIND_EVAL, 1, 99); /* before the first step */
    add(LK_TRACE_KIND_DATA, 100, 110);
    add(LK_TRACE_KIND_WAIT, 112, 117); /* a wave from another stage */
    add(LK_TRACE_KIND_FORWARD, 111, 120);
    add(LK_TRACE_KIND_FORWARD, 110, 130);
    add(LK_TRACE_KIND_SUM, 140, 142);
    add(LK_TRACE_KIND_BACKWARD, 130, 145);
    add(LK_TRACE_KIND_BACKWARD, 145, 160);
    add(LK_TRACE_KIND_BACKWARD, 130, 170);
    add(LK_TRACE_KIND_BUCKET, 141, 181); /* a flight */
    add(LK_TRACE_KIND_SUM, 175, 176);
    add(LK_TRACE_KIND_WAIT, 172, 180);
    add(LK_TRACE_KIND_UPDATE, 182, 190);
    add(LK_TRACE_KIND_UPDATE, 171, 195);
    add(LK_TRACE_KIND_STEP, 100, 200);
    add(LK_TRACE_KIND_WAIT, 200, 260);
    add(LK_TRACE_KIND_STEP, 200, 260);
}

static lk_train_trace_pack *pack_steps(double since, double offset)
{
    lk_train_trace_pack *pack = NULL;
    lk__trace_thread(2, "steps", -1);
    lk__trace_start();
    record_steps();
    lk__trace_stop();
    assert_ok(lk__train_trace_pack_create(2, "rank 2", since, offset, &pack));
    return pack;
}

/* Each part has the time of its spans without that of the spans inside them; the parts add up to the step. */
static void parts_add_up(void **state)
{
    lk_train_trace_view view;
    lk_train_trace_row row;
    lk_train_trace_pack *pack = pack_steps(0, 0);
    static const double twice[LK_TRAIN_TRACE_PART_COUNT] = {
        [LK_TRAIN_TRACE_PART_DATA] = 10,     [LK_TRAIN_TRACE_PART_FORWARD] = 15, [LK_TRAIN_TRACE_PART_BACKWARD] = 38,
        [LK_TRAIN_TRACE_PART_SUMS] = 3,      [LK_TRAIN_TRACE_PART_UPDATE] = 16,  [LK_TRAIN_TRACE_PART_OTHER] = 6,
        [LK_TRAIN_TRACE_PART_WAIT] = 12 + 60};
    assert_ok(lk__train_trace_pack_view(pack, &view));
    assert_string_equal(view.text, "rank 2");
    assert_true(lk__train_trace_row(2, &view, &row));
    assert_int_equal(row.rank, 2);
    assert_true(row.step == 80);
    for (int p = 0; p < LK_TRAIN_TRACE_PART_COUNT; p++)
        assert_true(row.parts[p] == twice[p] / 2);
    lk__mem_free(pack);
}

/* Times become those of rank 0, and earlier events are left out. */
static void packs_have_one_clock(void **state)
{
    lk_train_trace_view view;
    lk_train_trace_row row;
    lk_train_trace_pack *pack = pack_steps(1200, 1000);
    assert_ok(lk__train_trace_pack_view(pack, &view));
    assert_int_equal(pack->spans, 2);
    assert_true(view.spans[0].begin == 1200 && view.spans[0].end == 1260);
    assert_string_equal(view.text + view.spans[0].name, "wait");
    assert_string_equal(view.text + view.threads[view.spans[0].thread].name, "steps");
    assert_true(lk__train_trace_row(2, &view, &row));
    assert_true(row.step == 60 && row.parts[LK_TRAIN_TRACE_PART_WAIT] == 60);
    lk__mem_free(pack);
    pack = pack_steps(5000, 0);
    assert_ok(lk__train_trace_pack_view(pack, &view));
    assert_false(lk__train_trace_row(2, &view, &row));
    lk__mem_free(pack);
}

static void expect_damage(const lk_train_trace_pack *pack)
{
    lk_train_trace_view view;
    assert_fails(lk__train_trace_pack_view(pack, &view), LK_STATUS_FORMAT, "do not fit together");
}

static void damage_is_found(void **state)
{
    lk_train_trace_pack *pack = pack_steps(0, 0), good = *pack;
    lk_train_trace_thread *threads = (lk_train_trace_thread *)(pack + 1);
    lk_train_trace_span *span = (lk_train_trace_span *)(threads + pack->threads), spared = *span;
    pack->spans++;
    expect_damage(pack);
    *pack = good;
    pack->spans = UINT64_MAX / sizeof *span;
    expect_damage(pack);
    *pack = good;
    span->kind = LK_TRACE_KIND_COUNT;
    expect_damage(pack);
    *span = spared;
    span->name = (uint32_t)pack->text;
    expect_damage(pack);
    *span = spared;
    span->thread = (uint32_t)pack->threads;
    expect_damage(pack);
    *span = spared;
    span->end = span->begin - 1;
    expect_damage(pack);
    *span = spared;
    ((char *)pack)[pack->bytes - 1] = 'x';
    expect_damage(pack);
    lk__mem_free(pack);
}

/* A row whose parts add up to the step. */
static lk_train_trace_row row_of(int rank, double data, double backward, double wait)
{
    lk_train_trace_row row = {.rank = rank, .step = data + backward + wait};
    row.parts[LK_TRAIN_TRACE_PART_DATA] = data;
    row.parts[LK_TRAIN_TRACE_PART_BACKWARD] = backward;
    row.parts[LK_TRAIN_TRACE_PART_WAIT] = wait;
    return row;
}

static void the_slowest_is_named(void **state)
{
    lk_train_trace trace = {0};
    /* Rank 1 loads slowly: its backward is still its longest part. */
    lk_train_trace_row loads[] = {row_of(0, 1, 40, 23), row_of(1, 22, 40, 2), row_of(2, 1, 40, 23)};
    lk__train_trace_blame(loads, 3, &trace);
    assert_true(trace.holds_back && trace.slowest == 1 && trace.part == LK_TRAIN_TRACE_PART_DATA);
    assert_true(trace.more == 21 && trace.awaited == 21);
    lk_train_trace_row computes[] = {row_of(0, 1, 40, 32), row_of(1, 1, 40, 32), row_of(2, 1, 70, 2)};
    lk__train_trace_blame(computes, 3, &trace);
    assert_true(trace.holds_back && trace.slowest == 2 && trace.part == LK_TRAIN_TRACE_PART_BACKWARD);
    assert_true(trace.more == 30 && trace.awaited == 30);
    /* All wait for the network: nobody is to blame. */
    lk_train_trace_row equal[] = {row_of(0, 1, 40, 50), row_of(1, 2, 40, 49)};
    lk__train_trace_blame(equal, 2, &trace);
    assert_false(trace.holds_back);
    assert_int_equal(trace.slowest, 1);
    lk_train_trace_row alone[] = {row_of(0, 1, 40, 0)};
    lk__train_trace_blame(alone, 1, &trace);
    assert_false(trace.holds_back);
    assert_true(trace.slowest == 0 && trace.part == LK_TRAIN_TRACE_PART_BACKWARD && trace.awaited == 0);
}

TEST_MAIN(NULL, NULL, TEST(ranges_of_steps), TEST(clocks_are_aligned), TEST(parts_add_up), TEST(packs_have_one_clock),
          TEST(damage_is_found), TEST(the_slowest_is_named))
