/* test_train.c - the training loop on a small data set of its own: what it
 * tells, what it saves, that mistakes are found before the first step, and that
 * several ranks of a process do and tell the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "temp_folder.h"
#include "train/parts.h"
#include "train/start.h"
#include "train/train.h"

enum { TRAIN_COUNT = 90, TEST_COUNT = 40, SIDE = 8, BAD_COUNT = 200, BAD_SIDE = 28, PATH = 512, MAX_RANKS = 5 };

static char scratch[TEMP_FOLDER_BYTES];

static const char *below(const char *name, char path[PATH])
{
    snprintf(path, PATH, "%.300s/%.200s", scratch, name);
    return path;
}

static FILE *create(const char *folder, const char *prefix, const char *rest)
{
    char name[PATH], path[PATH];
    snprintf(name, sizeof name, "%s/%s-%s", folder, prefix, rest);
    FILE *file = fopen(below(name, path), "wb");
    assert_non_null(file);
    return file;
}

/* IDX files of count images; each class has its own stripe, so that a model
 * can learn them. */
static void write_split(const char *folder, const char *prefix, unsigned char count, unsigned char side)
{
    FILE *file = create(folder, prefix, "images-idx3-ubyte");
    fwrite((unsigned char[]){0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, side, 0, 0, 0, side}, 1, 16, file);
    for (int i = 0; i < count; i++)
        for (int pixel = 0; pixel < side * side; pixel++)
            fputc(pixel % 10 == i % 10 ? 255 : (i * 31 + pixel * 7) % 64, file);
    assert_int_equal(fclose(file), 0);
    file = create(folder, prefix, "labels-idx1-ubyte");
    fwrite((unsigned char[]){0, 0, 8, 1, 0, 0, 0, count}, 1, 8, file);
    for (int i = 0; i < count; i++)
        fputc(i % 10, file);
    assert_int_equal(fclose(file), 0);
}

static void make_folder(const char *name)
{
    char path[PATH];
    assert_int_equal(mkdir(below(name, path), 0700), 0);
}

/* Packs a file and changes a byte of it: its check sum tells, when it is unpacked
 * and not when it is opened. */
static void damage(const char *name)
{
    static unsigned char bytes[16 + BAD_COUNT * BAD_SIDE * BAD_SIDE];
    char plain[PATH], packed[PATH + 4];
    FILE *file = fopen(below(name, plain), "rb");
    assert_non_null(file);
    assert_int_equal(fread(bytes, 1, sizeof bytes, file), sizeof bytes);
    fclose(file);
    unlink(plain);
    snprintf(packed, sizeof packed, "%s.gz", plain);
    gzFile out = gzopen(packed, "wb0");
    assert_int_equal(gzwrite(out, bytes, sizeof bytes), sizeof bytes);
    assert_int_equal(gzclose(out), Z_OK);
    file = fopen(packed, "r+b");
    assert_non_null(file);
    fseek(file, sizeof bytes / 2, SEEK_SET);
    fputc(0xA5, file); /* no pixel has it */
    fclose(file);
}

static int make_data(void **state)
{
    (void)state;
    temp_folder_create(scratch);
    make_folder("tiny");
    write_split("tiny", "train", TRAIN_COUNT, SIDE);
    write_split("tiny", "t10k", TEST_COUNT, SIDE);
    make_folder("bad");
    write_split("bad", "train", TRAIN_COUNT, BAD_SIDE);
    write_split("bad", "t10k", BAD_COUNT, BAD_SIDE);
    damage("bad/t10k-images-idx3-ubyte");
    make_folder("half");
    write_split("half", "train", TRAIN_COUNT, SIDE);
    make_folder("odd");
    write_split("odd", "train", TRAIN_COUNT, SIDE);
    write_split("odd", "t10k", TEST_COUNT, SIDE + 1);
    return 0;
}

static int remove_data(void **state)
{
    (void)state;
    temp_folder_remove(scratch);
    return 0;
}

/* Everything a run told, for looking at afterwards. */
typedef struct record {
    int starts, tests, ends;
    lk_train_start start;
    bool has_test;
    size_t steps;
    lk_train_step step[64];
    lk_train_test test[8];
    lk_train_result end;
} record;

static void on_start(void *arg, const lk_train_start *start)
{
    record *told = arg;
    told->starts++;
    told->start = *start;
    told->has_test = start->test != NULL;
}

static void on_step(void *arg, const lk_train_step *step)
{
    record *told = arg;
    assert_true(told->steps < 64);
    told->step[told->steps++] = *step;
}

static void on_test(void *arg, const lk_train_test *test)
{
    record *told = arg;
    assert_true(told->tests < 8);
    told->test[told->tests++] = *test;
}

static void on_end(void *arg, const lk_train_result *result)
{
    record *told = arg;
    told->ends++;
    told->end = *result;
}

static lk_train_opts options(void)
{
    static char data[PATH];
    return (lk_train_opts){
        .model = "mlp",
        .data = below("tiny", data),
        .augment = "auto",
        .batch = 32,
        .test_batch = 16,
        .epochs = 2,
        .optimizer = "adadelta",
        .schedule = "step:size=1,gamma=.5",
        .seed = 1,
        .threads = 2,
        .workers = 1,
        .shards = 16,
        .device = "cpu",
    };
}

/* count ranks in this process; told has an entry for each. */
static lk_status train_ranks(const lk_train_opts *opts, int count, record *told, lk_train_result *result,
                             lk_train_failure *failure)
{
    lk_train_events events[MAX_RANKS];
    const char *devices[MAX_RANKS];
    for (int i = 0; i < count; i++) {
        told[i] = (record){0};
        events[i] = (lk_train_events){&told[i], on_start, on_step, on_test, on_end};
        devices[i] = "cpu";
    }
    lk_group_opts group = {.timeout = 60};
    lk_train_ranks ranks = {
        .opts = opts, .count = count, .devices = devices, .group = &group, .alone = true, .events = events};
    return lk__train(&ranks, result, failure);
}

static lk_status train(const lk_train_opts *opts, record *told, lk_train_result *result)
{
    lk_train_failure failure;
    lk_status status = train_ranks(opts, 1, told, result, &failure);
    if (status != LK_OK) {
        assert_int_equal(failure.status, status);
        assert_string_equal(failure.detail, lk_error_detail());
        lk__train_failure_fini(&failure);
    }
    return status;
}

static void events_tell_the_run(void **state)
{
    (void)state;
    lk_train_opts opts = options();
    record told;
    lk_train_result result;
    assert_int_equal(train(&opts, &told, &result), LK_OK);
    assert_int_equal(told.starts, 1);
    assert_int_equal(told.start.batches, 3);
    assert_int_equal(told.start.steps, 6);
    assert_int_equal(told.start.threads, 2);
    assert_true(told.has_test);
    assert_int_equal(told.steps, 6);
    for (size_t i = 0; i < 6; i++) {
        const lk_train_step *step = &told.step[i];
        assert_int_equal(step->epoch, i / 3 + 1);
        assert_int_equal(step->batch, i % 3);
        assert_int_equal(step->seen, i % 3 * 32);
        assert_int_equal(step->step, i + 1);
        assert_int_equal(step->metrics.count, i % 3 == 2 ? 26 : 32);
        assert_true(step->lr == (i < 3 ? 1.0 : 0.5));
    }
    assert_int_equal(told.step[5].samples, 2 * TRAIN_COUNT);
    assert_int_equal(told.tests, 2);
    assert_int_equal(result.steps, 6);
    assert_int_equal(result.samples, 2 * TRAIN_COUNT);
    assert_string_equal(result.saved, "");
    assert_int_equal(told.ends, 1);
    assert_true(told.end.hash == result.hash);
    assert_int_equal(told.start.place.ranks, 1);
    assert_int_equal(told.step[0].own.count, 32);
}

static void each_test_sample_counts_once(void **state)
{
    (void)state;
    const size_t batches[] = {1, 7, 16, TEST_COUNT, 1000};
    lk_train_result first = {0};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        lk_train_opts opts = options();
        opts.test_batch = batches[i];
        record told;
        lk_train_result result;
        assert_int_equal(train(&opts, &told, &result), LK_OK);
        assert_int_equal(result.test.count, TEST_COUNT);
        if (i == 0)
            first = result;
        assert_int_equal(result.test.correct, first.test.correct);
        assert_true(fabs(result.test.loss - first.test.loss) < 1e-5 * (1 + first.test.loss));
        assert_true(result.hash == first.hash);
    }
}

static void train_loss_is_the_mean_over_samples(void **state)
{
    (void)state;
    lk_train_opts opts = options();
    record told;
    lk_train_result result;
    assert_int_equal(train(&opts, &told, &result), LK_OK);
    double sum = 0;
    for (size_t i = 0; i < 3; i++)
        sum += told.step[i].metrics.loss * (double)told.step[i].metrics.count;
    assert_true(fabs(told.test[0].train_loss - sum / TRAIN_COUNT) < 1e-12 * sum);
}

static void a_model_learns(void **state)
{
    (void)state;
    lk_train_opts opts = options();
    opts.epochs = 6;
    record told;
    lk_train_result result;
    assert_int_equal(train(&opts, &told, &result), LK_OK);
    assert_true(told.test[5].metrics.loss < told.test[0].metrics.loss);
    assert_true(result.test.correct > TEST_COUNT / 2);
}

static void the_division_of_work_leaves_no_trace(void **state)
{
    (void)state;
    record told;
    lk_train_result plain, other;
    lk_train_opts opts = options();
    opts.threads = 1;
    opts.workers = 0;
    assert_int_equal(train(&opts, &told, &plain), LK_OK);
    opts.threads = 3;
    opts.workers = 3;
    opts.micro_batch = 5;
    assert_int_equal(train(&opts, &told, &other), LK_OK);
    assert_true(plain.hash == other.hash);
    opts.seed = 2;
    assert_int_equal(train(&opts, &told, &other), LK_OK);
    assert_true(plain.hash != other.hash);
}

static void short_runs_end_in_time(void **state)
{
    (void)state;
    record told;
    lk_train_result result;
    lk_train_opts opts = options();
    opts.max_steps = 4;
    assert_int_equal(train(&opts, &told, &result), LK_OK);
    assert_int_equal(told.steps, 4);
    assert_int_equal(told.tests, 2);
    opts.dry_run = true;
    assert_int_equal(train(&opts, &told, &result), LK_OK);
    assert_int_equal(told.steps, 1);
    assert_int_equal(told.tests, 1);
    assert_int_equal(result.test.count, 16);
    opts.no_test = true;
    assert_int_equal(train(&opts, &told, &result), LK_OK);
    assert_int_equal(told.tests, 0);
    assert_false(told.has_test);
    assert_int_equal(result.test.count, 0);
}

static void a_batch_larger_than_the_data_is_the_data(void **state)
{
    (void)state;
    record told;
    lk_train_result result;
    lk_train_opts opts = options();
    opts.batch = 1000000000;
    assert_int_equal(train(&opts, &told, &result), LK_OK);
    assert_int_equal(told.steps, 2);
    assert_int_equal(told.step[0].metrics.count, TRAIN_COUNT);
}

static void saved_models_come_back(void **state)
{
    (void)state;
    char pattern[PATH], path[PATH];
    record told;
    lk_train_result result;
    lk_train_opts opts = options();
    opts.save_model = below("of-{rank}.safetensors", pattern);
    assert_int_equal(train(&opts, &told, &result), LK_OK);
    assert_string_equal(result.saved, below("of-0.safetensors", path));

    lk_state *saved;
    assert_int_equal(lk_state_load(path, &saved), LK_OK);
    assert_true(lk_state_hash(saved) == result.hash);
    lk_state_destroy(saved);

    lk_metrics metrics;
    opts.init_from = path;
    assert_int_equal(lk__evaluate(&opts, LK_SPLIT_TEST, &metrics), LK_OK);
    assert_int_equal(metrics.count, TEST_COUNT);
    assert_int_equal(metrics.correct, result.test.correct);
    assert_true(metrics.loss == result.test.loss);
    assert_int_equal(lk__evaluate(&opts, LK_SPLIT_TRAIN, &metrics), LK_OK);
    assert_int_equal(metrics.count, TRAIN_COUNT);

    uint64_t hash = result.hash;
    opts.epochs = 0;
    opts.save_model = NULL;
    assert_int_equal(train(&opts, &told, &result), LK_OK);
    assert_true(result.hash == hash);
    opts.model = "mlp:hidden=8";
    assert_int_equal(train(&opts, &told, &result), LK_STATUS_MISMATCH);
    assert_int_equal(told.starts, 0);
}

/* Fails with the status, names the word, takes no step, leaves no result. */
static void refuse(const lk_train_opts *opts, lk_status wanted, const char *word)
{
    record told;
    lk_train_result result = {.steps = 77};
    lk_status status = train(opts, &told, &result);
    if (status != wanted || !strstr(lk_error_detail(), word))
        fail_msg("status %d, not %d: '%s' should name '%s'", (int)status, (int)wanted, lk_error_detail(), word);
    assert_int_equal(told.starts, 0);
    assert_int_equal(result.steps, 77);
}

static void mistakes_are_found_before_the_first_step(void **state)
{
    (void)state;
    char path[PATH];
    lk_train_opts opts = options();
    opts.save_model = below("missing/model.safetensors", path);
    refuse(&opts, LK_STATUS_USAGE, "--save-model");
    opts.save_model = scratch;
    refuse(&opts, LK_STATUS_USAGE, "is a folder");
    opts.save_model = "/dev/null";
    refuse(&opts, LK_STATUS_USAGE, "not a regular file");
    opts.save_model = below("model.pth", path);
    refuse(&opts, LK_STATUS_USAGE, ".safetensors");

    opts = options();
    opts.init_from = below("absent.safetensors", path);
    refuse(&opts, LK_STATUS_NOT_FOUND, "absent.safetensors");
    opts.init_from = below("tiny/train-labels-idx1-ubyte", path);
    refuse(&opts, LK_STATUS_FORMAT, "train-labels");

    opts = options();
    opts.schedule = "stepp";
    refuse(&opts, LK_STATUS_USAGE, "stepp");
    opts = options();
    opts.model = "cnm";
    refuse(&opts, LK_STATUS_USAGE, "cnm");
    opts = options();
    opts.data = below("half", path);
    refuse(&opts, LK_STATUS_NOT_FOUND, "half");
    opts.data = below("odd", path);
    refuse(&opts, LK_STATUS_MISMATCH, "1x9x9");
}

static void a_run_that_diverges_saves_nothing(void **state)
{
    (void)state;
    char path[PATH];
    record told;
    lk_train_result result;
    lk_train_opts opts = options();
    opts.optimizer = "sgd";
    opts.lr = 1e30;
    opts.save_model = below("never.safetensors", path);
    assert_int_equal(train(&opts, &told, &result), LK_STATUS_NONFINITE);
    assert_int_equal(told.starts, 1);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void weights_that_are_not_finite_are_not_saved(void **state)
{
    (void)state;
    char path[PATH];
    record told;
    lk_train_result result;
    lk_train_opts opts = options();
    opts.optimizer = "sgd";
    opts.lr = 1e39;
    opts.max_steps = 1;
    opts.no_test = true;
    opts.save_model = below("burst.safetensors", path);
    assert_int_equal(train(&opts, &told, &result), LK_STATUS_NONFINITE);
    assert_int_equal(told.steps, 1);
    assert_non_null(strstr(lk_error_detail(), "key \""));
    assert_int_not_equal(access(path, F_OK), 0);
}

/* Every rank tells the metrics of the whole batch, and its own samples. */
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
    (void)state;
    static record alone, told[MAX_RANKS];
    lk_train_result single, result;
    lk_train_failure failure;
    lk_train_opts opts = options();
    assert_int_equal(train(&opts, &alone, &single), LK_OK);
    for (int count = 2; count <= MAX_RANKS; count++) {
        opts.threads = count % 2;
        assert_int_equal(train_ranks(&opts, count, told, &result, &failure), LK_OK);
        check_ranks(told, count, &alone);
        for (int r = 0; r < count; r++) {
            assert_true(told[r].end.hash == single.hash);
            assert_int_equal(told[r].end.ranks, count);
            assert_int_equal(told[r].start.place.rank, r);
            assert_memory_equal(&told[r].test[1].metrics, &alone.test[1].metrics, sizeof(lk_metrics));
        }
    }
}

static void accumulation_is_a_larger_batch(void **state)
{
    (void)state;
    static record told[MAX_RANKS];
    lk_train_result single, result;
    lk_train_failure failure;
    lk_train_opts opts = options();
    opts.batch = 60;
    opts.shards = 48;
    assert_int_equal(train(&opts, told, &single), LK_OK);
    opts.accumulate = 3;
    assert_int_equal(train_ranks(&opts, 2, told, &result, &failure), LK_OK);
    assert_true(result.hash == single.hash);
    assert_int_equal(told[0].start.place.layout.capacity, 10);
}

static void stages_are_told(void **state)
{
    (void)state;
    static record told[MAX_RANKS];
    lk_train_result single, result;
    lk_train_failure failure;
    lk_train_opts opts = options();
    assert_int_equal(train(&opts, told, &single), LK_OK);
    opts.stages = "chunk2";
    opts.pipelined = true;
    assert_int_equal(train_ranks(&opts, 4, told, &result, &failure), LK_OK);
    assert_true(result.hash == single.hash);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(told[r].start.place.layout.stage, r % 2);
        assert_int_equal(told[r].start.place.layout.replica, r / 2);
        assert_true((told[r].step[0].own.count == 0) == (r % 2 == 0));
    }
}

static void each_rank_may_save_its_own(void **state)
{
    (void)state;
    static record told[MAX_RANKS];
    char pattern[PATH], path[PATH];
    lk_train_result result;
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

/* One failure for all ranks of the process, of the kind given. */
static void fail_together(const lk_train_opts *opts, lk_fault fault, lk_status status, const char *word)
{
    static record told[MAX_RANKS];
    lk_train_result result;
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
    (void)state;
    char path[PATH];
    lk_train_opts opts = options();
    opts.model = "cnm";
    fail_together(&opts, LK_FAULT_SETUP, LK_STATUS_USAGE, "cnm");
    opts = options();
    opts.optimizer = "adm";
    fail_together(&opts, LK_FAULT_COMMON, LK_STATUS_USAGE, "adm");
    opts = options();
    opts.shards = 2;
    fail_together(&opts, LK_FAULT_COMMON, LK_STATUS_USAGE, "--shards");
    opts = options();
    opts.optimizer = "sgd";
    opts.lr = 1e30;
    fail_together(&opts, LK_FAULT_COMMON, LK_STATUS_NONFINITE, "not finite");
    opts = options();
    opts.data = below("bad", path);
    fail_together(&opts, LK_FAULT_OWN, LK_STATUS_FORMAT, "t10k-images");
}

static void shards_that_suit_the_ranks(void **state)
{
    (void)state;
    assert_int_equal(lk__better_shards(16, 1), 0);
    assert_int_equal(lk__better_shards(12, 1), 0);
    assert_int_equal(lk__better_shards(16, 4), 0);
    assert_int_equal(lk__better_shards(16, 16), 0);
    assert_int_equal(lk__better_shards(16, 3), 24);
    assert_int_equal(lk__better_shards(16, 5), 20);
    assert_int_equal(lk__better_shards(12, 2), 16);
    assert_int_equal(lk__better_shards(4096, 3), 3072);
}

static void rank_in_a_path(void **state)
{
    (void)state;
    char out[32];
    assert_int_equal(lk__save_path("a{rank}b{rank}", 12, out, sizeof out), LK_OK);
    assert_string_equal(out, "a12b12");
    assert_int_equal(lk__save_path("plain {ran}", 0, out, sizeof out), LK_OK);
    assert_string_equal(out, "plain {ran}");
    assert_int_equal(lk__save_path("abcd", 0, out, 5), LK_OK);
    assert_int_equal(lk__save_path("abcde", 0, out, 5), LK_STATUS_USAGE);
    assert_int_equal(lk__save_path("abc{rank}", 12, out, 5), LK_STATUS_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_tell_the_run),
        cmocka_unit_test(each_test_sample_counts_once),
        cmocka_unit_test(train_loss_is_the_mean_over_samples),
        cmocka_unit_test(a_model_learns),
        cmocka_unit_test(the_division_of_work_leaves_no_trace),
        cmocka_unit_test(short_runs_end_in_time),
        cmocka_unit_test(a_batch_larger_than_the_data_is_the_data),
        cmocka_unit_test(saved_models_come_back),
        cmocka_unit_test(mistakes_are_found_before_the_first_step),
        cmocka_unit_test(a_run_that_diverges_saves_nothing),
        cmocka_unit_test(weights_that_are_not_finite_are_not_saved),
        cmocka_unit_test(ranks_leave_no_trace),
        cmocka_unit_test(accumulation_is_a_larger_batch),
        cmocka_unit_test(stages_are_told),
        cmocka_unit_test(each_rank_may_save_its_own),
        cmocka_unit_test(the_first_reason_is_told_once),
        cmocka_unit_test(shards_that_suit_the_ranks),
        cmocka_unit_test(rank_in_a_path),
    };
    return cmocka_run_group_tests(tests, make_data, remove_data);
}
