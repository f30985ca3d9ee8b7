/* tiny.h - small data sets, and a record of the events of a run, for the tests of this folder. */
#ifndef LK_TESTS_TRAIN_TINY_H
#define LK_TESTS_TRAIN_TINY_H

#include <math.h>
#include <sys/stat.h>
#include <zlib.h>

#include "check.h"
#include "temp_folder.h"
#include "train/train.h"

enum { TRAIN_COUNT = 90, TEST_COUNT = 40, SIDE = 8, BAD_COUNT = 200, BAD_SIDE = 28, PATH = 512, MAX_RANKS = 5 };

static const char *below(const char *name, char path[PATH])
{
    snprintf(path, PATH, "%.300s/%.200s", temp_folder, name);
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

/* Writes IDX files of `count` images; each class has its own stripe, so a model can learn them. */
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

/* Compresses a file and changes a byte of it: the wrong checksum is found when the file is unpacked,
 * not when it is opened. */
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
    fputc(0xA5, file); /* no pixel has this value */
    fclose(file);
}

/* Changes the label of the last sample. */
static void relabel(const char *name)
{
    char path[PATH];
    FILE *file = fopen(below(name, path), "r+b");
    assert_non_null(file);
    fseek(file, -1, SEEK_END);
    fputc(3, file);
    assert_int_equal(fclose(file), 0);
}

/* Changes a pixel of the last image. */
static void repaint(const char *name)
{
    char path[PATH];
    FILE *file = fopen(below(name, path), "r+b");
    assert_non_null(file);
    fseek(file, -1, SEEK_END);
    fputc(0xA5, file); /* no pixel has this value */
    assert_int_equal(fclose(file), 0);
}

static int make_data(void **state)
{
    static const struct {
        const char *name;
        unsigned char side, tests, test_side; /* tests 0: no test samples */
    } sets[] = {
        {"tiny", SIDE, TEST_COUNT, SIDE},       {"bad", BAD_SIDE, BAD_COUNT, BAD_SIDE},
        {"copy", SIDE, TEST_COUNT, SIDE},       {"fewer", SIDE, TEST_COUNT - 1, SIDE},
        {"relabelled", SIDE, TEST_COUNT, SIDE}, {"half", SIDE, 0, SIDE},
        {"odd", SIDE, TEST_COUNT, SIDE + 1},    {"repainted", SIDE, TEST_COUNT, SIDE},
        {"retested", SIDE, TEST_COUNT, SIDE},
    };
    temp_folder_create(temp_folder);
    for (size_t i = 0; i < COUNT_OF(sets); i++) {
        make_folder(sets[i].name);
        write_split(sets[i].name, "train", TRAIN_COUNT, sets[i].side);
        if (sets[i].tests > 0)
            write_split(sets[i].name, "t10k", sets[i].tests, sets[i].test_side);
    }
    damage("bad/t10k-images-idx3-ubyte");
    relabel("relabelled/train-labels-idx1-ubyte");
    repaint("repainted/train-images-idx3-ubyte");
    repaint("retested/t10k-images-idx3-ubyte");
    return 0;
}

/* The events of a run. */
typedef struct record {
    int starts, tests, ends;
    char activities[256]; /* a letter for each event of activity: O J P S T E; a test's done and total follow */
    lk_engine_meter meter;
    lk_train_begin start; /* its pointers are not valid after the run */
    size_t counts[3];     /* of training, validation and test data */
    bool has_test;
    size_t steps;
    lk_train_step step[64];
    lk_train_test test[8];
    lk_train_outcome end;
    lk_train_use use[MAX_RANKS]; /* of the end */
    int gathers;
    lk_train_use gathered[MAX_RANKS]; /* of all events of uses together */
} record;

static void on_start(void *arg, const lk_train_begin *start)
{
    record *told = arg;
    told->starts++;
    told->start = *start;
    told->has_test = start->test != NULL;
    told->counts[0] = start->train->count;
    told->counts[1] = start->val ? start->val->count : 0;
    told->counts[2] = start->test ? start->test->count : 0;
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

static void on_end(void *arg, const lk_train_outcome *result)
{
    record *told = arg;
    told->ends++;
    told->end = *result;
    for (int i = 0; result->uses && i < result->ranks; i++)
        told->use[i] = result->uses[i];
}

static void on_uses(void *arg, const lk_train_uses *uses)
{
    record *told = arg;
    told->gathers++;
    for (int i = 0; i < uses->ranks; i++) {
        assert_int_equal(uses->use[i].rank, i);
        told->gathered[i].steps += uses->use[i].steps;
        told->gathered[i].samples += uses->use[i].samples;
        told->gathered[i].seconds += uses->use[i].seconds;
    }
}

static void on_activity(void *arg, lk_train_activity activity, size_t done, size_t total)
{
    record *told = arg;
    size_t used = strlen(told->activities);
    snprintf(told->activities + used, sizeof told->activities - used, total ? "%c%zu/%zu " : "%c ", "OJPSTE"[activity],
             done, total);
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

/* The device of all ranks. */
static const char *train_device = "cpu";

/* uses_every of rank 0. */
static size_t train_uses_every;

/* Runs `count` ranks in this process; told has an entry for each. */
static lk_status train_ranks(const lk_train_opts *opts, int count, record *told, lk_train_outcome *result,
                             lk_train_failure *failure)
{
    lk_train_hooks hooks[MAX_RANKS];
    const char *devices[MAX_RANKS];
    for (int i = 0; i < count; i++) {
        told[i] = (record){0};
        hooks[i] =
            (lk_train_hooks){.arg = &told[i], .begin = on_start, .step = on_step, .test = on_test, .end = on_end};
        hooks[i].activity = on_activity;
        hooks[i].meter = &told[i].meter;
        if (i == 0)
            hooks[i].uses = on_uses;
        hooks[i].uses_every = i == 0 ? train_uses_every : 0;
        devices[i] = train_device;
    }
    lk_group_opts group = {.timeout = 60};
    lk_train_ranks ranks = {
        .opts = opts, .count = count, .devices = devices, .group = &group, .one_process = true, .hooks = hooks};
    return lk__train(&ranks, result, failure);
}

static lk_status train(const lk_train_opts *opts, record *told, lk_train_outcome *result)
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

static lk_train_outcome train_well(const lk_train_opts *opts, record *told)
{
    lk_train_outcome result;
    assert_ok(train(opts, told, &result));
    return result;
}

#endif
