/* test_ranks.c - several ranks in one process have the results and events of one rank; of several
 * failures the first is reported once. */
#include "processes.h"
#include "tiny.h"
#include "train/start.h"

/* Every rank reports the metrics of the whole batch, and those of its own samples. */
static void check_ranks(const record *told, int count, const record *single)
{
    for (size_t i = 0; i < single->steps; i++) {
        size_t samples = 0, correct = 0;
        for (int r = 0; r < count; r++) {
            const lk_train_step *step = &told[r].step[i];
            assert_memory_equal(&step->metrics, &single->step[i].metrics, sizeof step->metrics);
            samples += step->own.count;
            correct += step->own.correct;
        }
        assert_int_equal(samples, single->step[i].metrics.count);
        assert_int_equal(correct, single->step[i].metrics.correct);
    }
}

static void ranks_leave_no_trace(void **state)
{
    static record alone, told[MAX_RANKS];
    lk_train_outcome single, result;
    lk_train_failure failure;
    lk_train_opts opts = options();
    single = train_well(&opts, &alone);
    for (int count = 2; count <= MAX_RANKS; count++) {
        opts.threads = count % 2;
        assert_int_equal(train_ranks(&opts, count, told, &result, &failure), LK_OK);
        check_ranks(told, count, &alone);
        for (int r = 0; r < count; r++) {
            assert_true(told[r].end.hash == single.hash);
            assert_int_equal(told[r].end.ranks, count);
            assert_int_equal(told[r].start.self.rank, r);
            assert_memory_equal(&told[r].test[1].metrics, &alone.test[1].metrics, sizeof(lk_metrics));
        }
    }
}

/* The phases of a rank add up to the time of its steps. */
static void check_phases(const lk_train_use *use)
{
    const lk_train_phases *phases = &use->phases;
    double sum = phases->data + phases->compute + phases->wait + phases->other;
    assert_true(phases->data >= 0 && phases->compute > 0 && phases->wait >= 0 && phases->other >= 0);
    assert_true(fabs(sum - use->seconds) <= 1e-9 * use->seconds);
    assert_true(use->cpu_seconds > 0 && use->memory_mb > 0 && use->peak_mb >= use->memory_mb);
    assert_string_equal(use->device, "cpu");
}

/* Rank 0 gets the uses of all ranks: at the end, and after every second batch (0 and 2 of both epochs) because it asks
 * for it. */
static void uses_are_gathered(void **state)
{
    static record told[MAX_RANKS];
    lk_train_outcome result;
    lk_train_failure failure;
    lk_train_opts opts = options();
    for (int count = 1; count <= MAX_RANKS; count++) {
        uint64_t samples = 0;
        train_uses_every = 2;
        assert_int_equal(train_ranks(&opts, count, told, &result, &failure), LK_OK);
        assert_null(result.uses);
        assert_int_equal(told[0].gathers, 4);
        for (int r = 0; r < count; r++) {
            assert_true((told[r].end.uses != NULL) == (r == 0));
            assert_int_equal(told[0].use[r].rank, r);
            assert_int_equal(told[0].use[r].steps, 6);
            assert_int_equal(told[0].gathered[r].steps, 6);
            assert_int_equal(told[0].gathered[r].samples, told[0].use[r].samples);
            check_phases(&told[0].use[r]);
            samples += told[0].use[r].samples;
        }
        assert_int_equal(samples, 2 * TRAIN_COUNT);
        assert_true(count > 1 || told[0].use[0].phases.wait == 0);
    }
    train_uses_every = 0;
    assert_int_equal(train_ranks(&opts, 2, told, &result, &failure), LK_OK);
    assert_int_equal(told[0].gathers, 0);
}

static void accumulation_is_a_larger_batch(void **state)
{
    static record told[MAX_RANKS];
    lk_train_outcome single, result;
    lk_train_failure failure;
    lk_train_opts opts = options();
    opts.batch = 60;
    opts.shards = 48;
    single = train_well(&opts, told);
    opts.accumulate = 3;
    assert_int_equal(train_ranks(&opts, 2, told, &result, &failure), LK_OK);
    assert_true(result.hash == single.hash);
    assert_int_equal(told[0].start.self.layout.capacity, 10);
}

static void stages_are_told(void **state)
{
    static record told[MAX_RANKS];
    lk_train_outcome single, result;
    lk_train_failure failure;
    lk_train_opts opts = options();
    single = train_well(&opts, told);
    opts.stages = "chunk2";
    opts.pipelined = true;
    assert_int_equal(train_ranks(&opts, 4, told, &result, &failure), LK_OK);
    assert_true(result.hash == single.hash);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(told[r].start.self.layout.stage, r % 2);
        assert_int_equal(told[r].start.self.layout.replica, r / 2);
        assert_true((told[r].step[0].own.count == 0) == (r % 2 == 0));
    }
}

static void each_rank_may_save_its_own(void **state)
{
    static record told[MAX_RANKS];
    char pattern[PATH], path[PATH];
    lk_train_outcome result;
    lk_train_failure failure;
    lk_train_opts opts = options();
    opts.save_model = below("part-{rank}.safetensors", pattern);
    opts.stages = "3";
    assert_int_equal(train_ranks(&opts, 3, told, &result, &failure), LK_OK);
    for (int r = 0; r < 3; r++) {
        char name[32];
        lk_state *saved;
        snprintf(name, sizeof name, "part-%d.safetensors", r);
        assert_string_equal(told[r].end.saved, below(name, path));
        assert_int_equal(lk_state_load(path, &saved), LK_OK);
        assert_true(lk_state_hash(saved) == result.hash);
        lk_state_destroy(saved);
    }
    opts.stages = NULL;
    opts.save_model = below("one.safetensors", pattern);
    assert_int_equal(train_ranks(&opts, 3, told, &result, &failure), LK_OK);
    assert_string_equal(told[0].end.saved, pattern);
    assert_string_equal(told[1].end.saved, "");
}

/* All ranks of the process have one failure of the given kind. */
static void fail_together(const lk_train_opts *opts, lk_train_fault fault, lk_status status, const char *word)
{
    static record told[MAX_RANKS];
    lk_train_outcome result;
    lk_train_failure failure = {0};
    lk_status got = train_ranks(opts, 3, told, &result, &failure);
    if (got != status || failure.fault != fault || !strstr(failure.detail, word))
        fail_msg("status %d, not %d, fault %d, not %d: '%s' should name '%s'", (int)got, (int)status,
                 (int)failure.fault, (int)fault, failure.detail, word);
    assert_int_equal(failure.status, status);
    for (int r = 0; r < 3; r++)
        assert_int_equal(told[r].ends, 0);
    lk__train_failure_fini(&failure);
}

static void the_first_reason_is_told_once(void **state)
{
    char path[PATH];
    lk_train_opts opts = options();
    opts.model = "cnm";
    fail_together(&opts, LK_TRAIN_FAULT_SETUP, LK_STATUS_USAGE, "cnm");
    opts = options();
    opts.optimizer = "adm";
    fail_together(&opts, LK_TRAIN_FAULT_COMMON, LK_STATUS_USAGE, "adm");
    opts = options();
    opts.shards = 2;
    fail_together(&opts, LK_TRAIN_FAULT_COMMON, LK_STATUS_USAGE, "`shards`");
    opts = options();
    opts.optimizer = "sgd";
    opts.lr = 1e30;
    fail_together(&opts, LK_TRAIN_FAULT_COMMON, LK_STATUS_NONFINITE, "the loss of sample ");
    opts = options();
    opts.model = "mlp:hidden=8";
    opts.epochs = 0;
    opts.save_model = below("small.safetensors", path);
    static record told;
    (void)train_well(&opts, &told);
    opts = options();
    opts.init_from = path;
    fail_together(&opts, LK_TRAIN_FAULT_COMMON, LK_STATUS_MISMATCH, "small.safetensors: ");
    opts = options();
    opts.data = below("bad", path);
    fail_together(&opts, LK_TRAIN_FAULT_OWN, LK_STATUS_FORMAT, "t10k-images");
}

/* A rank with other options than the rest, as in another process. */
typedef struct odd_rank {
    lk_train_opts opts;
    const char *device;
    lk_group *group;
    lk_train_outcome result;
    lk_status status;
    lk_train_rank_failure failure;
    char detail[2048];
} odd_rank;

static void be_odd_rank(int number, void *arg)
{
    odd_rank *self = (odd_rank *)arg + number;
    lk_train_hooks hooks = {0};
    lk_train_ranks ranks = {.opts = &self->opts, .count = 1, .first = lk_group_rank(self->group)};
    lk_train_shared shared;
    lk_train_rank rank = {
        .opts = &self->opts, .shared = &shared, .group = self->group, .device = self->device, .hooks = &hooks};
    CHECK_OK(lk__train_shared_open(&ranks, &shared));
    self->status = lk__train_rank(&rank, &self->result, &self->failure);
    snprintf(self->detail, sizeof self->detail, "%s", lk_error_detail());
    lk_group_destroy(self->group);
    lk__train_shared_close(&shared);
}

/* Rank 1 gets opts and device, rank 0 the usual options. */
static void run_oddly(lk_train_opts opts, const char *device, odd_rank ranks[2])
{
    lk_group *groups[2];
    lk_group_opts group = {.timeout = 60};
    assert_int_equal(lk_group_create_threads(2, &group, groups), LK_OK);
    ranks[0] = (odd_rank){.opts = options(), .device = "cpu", .group = groups[0]};
    ranks[1] = (odd_rank){.opts = opts, .device = device, .group = groups[1]};
    threads_run(2, be_odd_rank, ranks);
}

static void expect_odd(lk_train_opts opts, const char *word)
{
    static odd_rank ranks[2];
    run_oddly(opts, "cpu", ranks);
    for (int r = 0; r < 2; r++) {
        const odd_rank *rank = &ranks[r];
        if (rank->status != LK_STATUS_MISMATCH || rank->failure.fault != LK_TRAIN_FAULT_COMMON ||
            !strstr(rank->detail, "rank 1 has `") || !strstr(rank->detail, word))
            fail_msg("rank %d: status %d, fault %d: '%s' should name rank 1 and '%s'", r, (int)rank->status,
                     (int)rank->failure.fault, rank->detail, word);
    }
}

static void ranks_must_be_told_alike(void **state)
{
    static record told;
    char first[PATH], path[PATH];
    lk_train_opts opts = options();
    opts.save_model = below("begin.safetensors", first);
    opts.epochs = 0;
    (void)train_well(&opts, &told);
    struct {
        const char *word;
        lk_train_opts opts;
    } odd[16];
    size_t count = 0;
#define ODD(name, field, value)          \
    do {                                 \
        odd[count].word = name;          \
        odd[count].opts = options();     \
        odd[count++].opts.field = value; \
    } while (0)
    ODD("`epochs` 3", epochs, 3);
    ODD("`max_steps` 2", max_steps, 2);
    ODD("`dry_run` true, rank 0 has `dry_run` false", dry_run, true);
    ODD("`no_test` true", no_test, true);
    ODD("`drop_last` true", drop_last, true);
    ODD("`val_split` 0.25", val_split, .25);
    ODD("`early_stop` 3", early_stop, 3);
    ODD("`schedule` constant", schedule, "constant");
    ODD("`augment` flip", augment, "flip");
    ODD("`test_batch` 17", test_batch, 17);
    ODD("`accumulate` 2", accumulate, 2);
    ODD("`trace` 1-2", trace, "1-2");
    ODD(", a file of state hash", init_from, first);
#undef ODD
    for (size_t i = 0; i < count; i++)
        expect_odd(odd[i].opts, odd[i].word);
    opts = options();
    opts.data = below("fewer", path);
    expect_odd(opts, "fewer, 39 test samples");
    opts.data = below("relabelled", path);
    expect_odd(opts, "relabelled, 90 training samples");
}

/* One pixel of one image differs. */
static void ranks_must_have_the_same_pixels(void **state)
{
    char path[PATH];
    lk_train_opts opts = options();
    opts.data = below("repainted", path);
    expect_odd(opts, "repainted, whose training images and labels have the hash ");
    opts.data = below("retested", path);
    expect_odd(opts, "retested, whose test images and labels have the hash ");
}

/* The path of the data and the numbers of workers and threads may differ between ranks. */
static void hosts_may_differ(void **state)
{
    static odd_rank ranks[2];
    static record told;
    lk_train_outcome single;
    char path[PATH];
    lk_train_opts opts = options();
    single = train_well(&opts, &told);
    opts.data = below("copy", path);
    opts.workers = 0;
    opts.threads = 1;
    run_oddly(opts, "cpu", ranks);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].status, LK_OK);
        assert_true(ranks[r].result.hash == single.hash);
    }
}

/* A failure of one rank is LK_STATUS_PEER at the others. */
static void failures_have_an_owner(void **state)
{
    static odd_rank ranks[2];
    run_oddly(options(), "abacus", ranks);
    assert_int_equal(ranks[0].status, LK_STATUS_PEER);
    assert_int_equal(ranks[0].failure.fault, LK_TRAIN_FAULT_PEER);
    assert_contains(ranks[0].detail, "abacus");
    assert_int_not_equal(ranks[1].status, LK_STATUS_PEER);
    assert_int_not_equal(ranks[1].failure.fault, LK_TRAIN_FAULT_PEER);
    assert_contains(ranks[1].detail, "abacus");
}

static void shards_that_suit_the_ranks(void **state)
{
    assert_int_equal(lk__train_better_shards(16, 1), 0);
    assert_int_equal(lk__train_better_shards(12, 1), 0);
    assert_int_equal(lk__train_better_shards(16, 4), 0);
    assert_int_equal(lk__train_better_shards(16, 16), 0);
    assert_int_equal(lk__train_better_shards(16, 3), 24);
    assert_int_equal(lk__train_better_shards(16, 5), 20);
    assert_int_equal(lk__train_better_shards(12, 2), 16);
    assert_int_equal(lk__train_better_shards(4096, 3), 3072);
}

TEST_MAIN(make_data, temp_folder_tear_down, TEST(ranks_leave_no_trace), TEST(uses_are_gathered),
          TEST(accumulation_is_a_larger_batch), TEST(stages_are_told), TEST(each_rank_may_save_its_own),
          TEST(the_first_reason_is_told_once), TEST(ranks_must_be_told_alike), TEST(ranks_must_have_the_same_pixels),
          TEST(hosts_may_differ), TEST(failures_have_an_owner), TEST(shards_that_suit_the_ranks))
