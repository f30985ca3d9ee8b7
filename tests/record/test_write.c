/* test_write.c - the writer of run folders: names, rows, what a resumed run cuts, the log, a full disk, and what a
 * folder that cannot be made says. */
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "check.h"
#include "record/write.h"
#include "temp_folder.h"

static void read_text(const char *folder, const char *name, char *out, size_t room)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t bytes = fread(out, 1, room - 1, file);
    out[bytes] = '\0';
    fclose(file);
}

static void test_name(void **state)
{
    lk_record_scenario scenario = {.data = "/some/where/my data/",
                                   .model = "resnet20:width=4",
                                   .ranks = 2,
                                   .batch = 64,
                                   .optimizer = "sgd:momentum=.9",
                                   .lr = 0.1,
                                   .schedule = "cosine",
                                   .epochs = 14};
    struct {
        char name[LK_RECORD_NAME], behind[8];
    } room = {.behind = "\xc3\xc3"};
    char *name = room.name;
    setenv("TZ", "UTC", 1);
    lk__record_name(&scenario, 1e9, name);
    assert_string_equal(name,
                        "2001-09-09_01-46-40_my-data_resnet20-width=4_default_n2_b64_sgd-momentum=.9_lr0.1_cosine_e14");
    char longest[300];
    memset(longest, '\xc3', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    scenario.data = scenario.model = scenario.init = scenario.optimizer = scenario.schedule = longest;
    scenario.lr = 1.2345678901234567e-101;
    scenario.batch = scenario.epochs = SIZE_MAX;
    scenario.ranks = INT_MAX;
    lk__record_name(&scenario, 1e9, name);
    assert_int_equal(strlen(name), LK_RECORD_NAME - 1);
    assert_string_equal(room.behind, "\xc3\xc3");
    assert_int_equal(strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._=-"), strlen(name));
}

static lk_record_row train_row(size_t step, double loss)
{
    lk_record_row row = {0};
    lk__record_row_set(&row, LK_RECORD_COLUMN_STEP, (double)step);
    lk__record_row_set(&row, LK_RECORD_COLUMN_EPOCH, (double)step / 4);
    lk__record_row_set(&row, LK_RECORD_COLUMN_LOSS, loss);
    lk__record_row_set(&row, LK_RECORD_COLUMN_SECONDS, (double)step * 2);
    return row;
}

static lk_record_writer *write_run(const char *dir, size_t steps)
{
    lk_record_writer *writer;
    double seconds;
    assert_ok(lk__record_create(dir, "run", &writer));
    assert_ok(lk__record_publish(writer));
    assert_ok(lk__record_begin(writer, 0, &seconds));
    assert_true(seconds == 0);
    for (size_t step = 1; step <= steps; step++) {
        lk_record_row row = train_row(step, 1.0 / (double)step);
        lk_record_rank rank = {.host = "a\"b", .device = ""};
        lk__record_row_set(&rank.row, LK_RECORD_COLUMN_RANK, 0);
        assert_ok(lk__record_row(writer, LK_RECORD_KIND_TRAIN, &row));
        if (step % 4 == 0)
            assert_ok(lk__record_row(writer, LK_RECORD_KIND_TEST, &row));
        assert_ok(lk__record_ranks(writer, step, (double)step, &rank, 1));
    }
    return writer;
}

static void test_rows(void **state)
{
    char dir[512], text[4096];
    snprintf(dir, sizeof dir, "%s", temp_path("deep/er"));
    lk_record_writer *writer = write_run(dir, 1);
    lk_record_row odd = train_row(2, NAN);
    assert_ok(lk__record_row(writer, LK_RECORD_KIND_TRAIN, &odd));
    assert_ok(lk__record_row(writer, LK_RECORD_KIND_TRAIN, &odd)); /* not twice */
    assert_string_equal(lk__record_own_name(writer), "run");
    read_text(lk__record_path(writer), "metrics.jsonl", text, sizeof text);
    assert_string_equal(text, "{\"kind\":\"train\",\"step\":1,\"epoch\":0.25,\"loss\":1,\"seconds\":2}\n"
                              "{\"kind\":\"train\",\"step\":2,\"epoch\":0.5,\"loss\":null,\"seconds\":4}\n");
    read_text(lk__record_path(writer), "metrics.csv", text, sizeof text);
    assert_string_equal(text, "kind,step,epoch,loss,top1,top5,lr,grad_norm,img_per_s,seconds\n"
                              "train,1,0.25,1,,,,,,2\ntrain,2,0.5,nan,,,,,,4\n");
    read_text(lk__record_path(writer), "ranks.jsonl", text, sizeof text);
    assert_string_equal(text, "{\"step\":1,\"seconds\":1,\"ranks\":[{\"rank\":0,\"host\":\"a\\\"b\"}]}\n");
    lk__record_destroy(writer);
    assert_ok(lk__record_create(dir, "run", &writer));
    assert_string_equal(lk__record_own_name(writer), "run-2");
    lk__record_destroy(writer);
}

/* A run of 10 steps that goes on from step 5, after a kill in the middle of a line. */
static void test_continue(void **state)
{
    char dir[512], folder[600];
    double seconds;
    lk_record *record;
    snprintf(dir, sizeof dir, "%s", temp_path("again"));
    lk_record_writer *writer = write_run(dir, 10);
    snprintf(folder, sizeof folder, "%s", lk__record_path(writer));
    lk__record_destroy(writer);
    FILE *torn = fopen(temp_path("again/run/metrics.csv"), "ab");
    assert_non_null(torn);
    fputs("train,1", torn);
    fclose(torn);

    assert_ok(lk__record_continue(dir, "run", &writer));
    assert_true(lk__record_is_continued(writer));
    assert_ok(lk__record_begin(writer, 5, &seconds));
    assert_true(seconds == 10);
    for (size_t step = 4; step <= 10; step++) { /* rows that are there are left out */
        lk_record_row row = train_row(step, 1.0 / (double)step);
        assert_ok(lk__record_row(writer, LK_RECORD_KIND_TRAIN, &row));
        if (step % 4 == 0)
            assert_ok(lk__record_row(writer, LK_RECORD_KIND_TEST, &row));
    }
    lk__record_destroy(writer);
    assert_ok(lk__record_open(folder, &record));
    const lk_record_table *train = lk__record_table(record, LK_RECORD_KIND_TRAIN);
    assert_int_equal(train->count, 10);
    for (size_t i = 0; i < 10; i++)
        assert_true(train->column[LK_RECORD_COLUMN_STEP][i] == (double)(i + 1));
    assert_int_equal(lk__record_table(record, LK_RECORD_KIND_TEST)->count, 2);
    assert_int_equal(lk__record_table(record, LK_RECORD_KIND_RANKS)->count, 5);
    lk__record_close(record);
    char csv[4096];
    read_text(folder, "metrics.csv", csv, sizeof csv);
    int lines = 0;
    for (const char *c = csv; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, 13);
    assert_null(strstr(csv, "train,1\n"));
    assert_fails(lk__record_continue(dir, "other", &writer), LK_STATUS_NOT_FOUND, "other");
}

static void test_log(void **state)
{
    char text[256];
    lk_record_writer *writer;
    static const char *const parts[] = {"first\n", "\033[Kepoch 1\r", "\r\033[K",   "\033[1mbold\033[0m line\tx\n",
                                        "half ",   "and half\n",      "never ended"};
    assert_ok(lk__record_create(temp_path("logs"), "run", &writer));
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        lk__record_log(writer, parts[i], strlen(parts[i]));
    read_text(lk__record_path(writer), "log.txt", text, sizeof text);
    assert_string_equal(text, "first\nbold line\tx\nhalf and half\n");
    lk__record_destroy(writer);
    read_text(temp_path("logs/run"), "log.txt", text, sizeof text);
    assert_string_equal(text, "first\nbold line\tx\nhalf and half\nnever ended\n");
}

/* Whether a file of the run ends with a line of this step. */
static void ends_with_step(const char *name, const char *mark)
{
    char text[16384];
    read_text(temp_path("full/run"), name, text, sizeof text);
    size_t bytes = strlen(text);
    assert_true(bytes > 0 && text[bytes - 1] == '\n');
    text[bytes - 1] = '\0';
    const char *line = strrchr(text, '\n');
    assert_contains(line ? line : text, mark);
}

/* A disk that is full in the middle of a row: the limit of file sizes lets a part of it through. */
static void test_full_disk(void **state)
{
    char json[64], csv[64];
    struct rlimit limit;
    size_t step = 0;
    lk_status status = LK_OK;
    lk_record_writer *writer = write_run(temp_path("full"), 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 1500, .rlim_max = limit.rlim_max}), 0);
    while (status == LK_OK && step < 1000) {
        step++;
        lk_record_row row = train_row(step, 1);
        status = lk__record_row(writer, LK_RECORD_KIND_TRAIN, &row);
    }
    assert_int_equal(status, LK_STATUS_IO);
    assert_detail("metrics.jsonl");
    snprintf(json, sizeof json, "\"step\":%zu,", step - 1);
    snprintf(csv, sizeof csv, "train,%zu,", step - 1);
    ends_with_step("metrics.jsonl", json);
    ends_with_step("metrics.csv", csv);
    char line[2000];
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\n';
    lk__record_log(writer, "whole\n", 6);
    lk__record_log(writer, line, sizeof line);
    lk_record_row row = train_row(step, 1);
    assert_fails(lk__record_row(writer, LK_RECORD_KIND_TRAIN, &row), LK_STATUS_IO, "log.txt");
    ends_with_step("log.txt", "whole");
    assert_ok(lk__record_publish(writer));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    lk__record_destroy(writer);
}

static void test_no_folder(void **state)
{
    lk_record_writer *writer = NULL;
    temp_write(temp_path("file"), "", 0);
    assert_fails(lk__record_create(temp_path("file/dir"), "run", &writer), LK_STATUS_IO, "file/dir");
    assert_null(writer);
}

TEST_MAIN(temp_folder_set_up, temp_folder_tear_down, TEST(test_name), TEST(test_rows), TEST(test_continue),
          TEST(test_log), TEST(test_full_disk), TEST(test_no_folder))
