/* test_read.c - the reader of run folders: columns, growing files, torn lines, cut files, damaged files. */
#include <math.h>
#include <sys/stat.h>

#include "check.h"
#include "record/read.h"
#include "temp_folder.h"

static const char run_json[] = "{\"format\":\"lockstep-run-1\",\"name\":\"a\",\"ranks\":2}";
static const char first_rows[] = "{\"kind\":\"train\",\"step\":1,\"epoch\":0.5,\"loss\":2.25,\"lr\":0.1}\n"
                                 "{\"kind\":\"train\",\"step\":2,\"epoch\":1,\"loss\":null,\"grad_norm\":3}\n"
                                 "{\"kind\":\"test\",\"step\":2,\"epoch\":1,\"loss\":2,\"top1\":12.5}\n"
                                 "{\"kind\":\"later\",\"step\":2}\n";

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    temp_write(path, text, strlen(text));
}

static void append(const char *folder, const char *name, const char *text)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "ab");
    assert_non_null(file);
    assert_int_equal(fputs(text, file) >= 0, 1);
    assert_int_equal(fclose(file), 0);
}

static const char *make_run(const char *name, const char *rows)
{
    const char *folder = temp_path(name);
    assert_int_equal(mkdir(folder, 0700), 0);
    write_text(folder, "run.json", run_json);
    if (rows)
        write_text(folder, "metrics.jsonl", rows);
    return folder;
}

static void test_columns(void **state)
{
    lk_record *record;
    assert_ok(lk__record_open(make_run("columns", first_rows), &record));
    const lk_record_table *train = lk__record_table(record, LK_RECORD_KIND_TRAIN);
    const lk_record_table *test = lk__record_table(record, LK_RECORD_KIND_TEST);
    assert_int_equal(cJSON_GetObjectItem(lk__record_run(record), "ranks")->valueint, 2);
    assert_int_equal(train->count, 2);
    assert_true(train->column[LK_RECORD_COLUMN_STEP][1] == 2 && train->column[LK_RECORD_COLUMN_EPOCH][0] == 0.5);
    assert_true(train->column[LK_RECORD_COLUMN_LOSS][0] == 2.25 && isnan(train->column[LK_RECORD_COLUMN_LOSS][1]));
    assert_true(train->mask[1] & 1u << LK_RECORD_COLUMN_LOSS);
    assert_true(isnan(train->column[LK_RECORD_COLUMN_LR][1]) && !(train->mask[1] & 1u << LK_RECORD_COLUMN_LR));
    assert_true(isnan(train->column[LK_RECORD_COLUMN_GRAD_NORM][0]) &&
                train->column[LK_RECORD_COLUMN_GRAD_NORM][1] == 3);
    assert_null(train->column[LK_RECORD_COLUMN_TOP1]);
    assert_int_equal(test->count, 1);
    assert_true(test->column[LK_RECORD_COLUMN_TOP1][0] == 12.5);
    assert_int_equal(lk__record_table(record, LK_RECORD_KIND_VAL)->count, 0);
    assert_null(lk__record_last_ranks(record));
    lk__record_close(record);
}

static void test_grows(void **state)
{
    lk_record *record;
    bool again;
    const char *folder = make_run("grows", NULL);
    assert_ok(lk__record_open(folder, &record));
    const lk_record_table *train = lk__record_table(record, LK_RECORD_KIND_TRAIN);
    assert_int_equal(train->count, 0);
    for (int i = 1; i <= 1000; i++) {
        char line[96];
        snprintf(line, sizeof line, "{\"kind\":\"train\",\"step\":%d%s}\n", i, i > 700 ? ",\"lr\":0.5" : "");
        append(folder, "metrics.jsonl", line);
        if (i % 300 == 0) {
            assert_ok(lk__record_refresh(record, &again));
            assert_false(again);
            assert_int_equal(train->count, i);
        }
    }
    append(folder, "metrics.jsonl", "{\"kind\":\"train\",\"st");
    assert_ok(lk__record_refresh(record, &again));
    assert_int_equal(train->count, 1000);
    append(folder, "metrics.jsonl", "ep\":1001}\n");
    assert_ok(lk__record_refresh(record, &again));
    assert_int_equal(train->count, 1001);
    for (size_t i = 0; i < 1001; i++)
        assert_true(train->column[LK_RECORD_COLUMN_STEP][i] == (double)(i + 1));
    assert_true(isnan(train->column[LK_RECORD_COLUMN_LR][699]) && train->column[LK_RECORD_COLUMN_LR][700] == 0.5);
    assert_true(isnan(train->column[LK_RECORD_COLUMN_LR][1000]));
    lk__record_close(record);
}

/* A resumed run has cut its rows and written others: the file may be shorter or longer than before. */
static void test_cut(void **state)
{
    static const char *const after[] = {"{\"kind\":\"train\",\"step\":1}\n",
                                        "{\"kind\":\"train\",\"step\":1}\n{\"kind\":\"train\",\"step\":2,\"loss\":1}\n"
                                        "{\"kind\":\"train\",\"step\":3,\"loss\":1}\n"};
    for (size_t i = 0; i < COUNT_OF(after); i++) {
        lk_record *record;
        bool again;
        const char *folder = make_run(i ? "cut1" : "cut0", "{\"kind\":\"train\",\"step\":1}\n"
                                                           "{\"kind\":\"train\",\"step\":2}\n");
        assert_ok(lk__record_open(folder, &record));
        write_text(folder, "metrics.jsonl", after[i]);
        assert_ok(lk__record_refresh(record, &again));
        assert_true(again);
        assert_int_equal(lk__record_table(record, LK_RECORD_KIND_TRAIN)->count, i ? 3 : 1);
        assert_ok(lk__record_refresh(record, &again));
        assert_false(again);
        lk__record_close(record);
    }
}

static void test_ranks(void **state)
{
    lk_record *record;
    const char *folder = make_run("ranks", NULL);
    write_text(folder, "ranks.jsonl",
               "{\"step\":5,\"seconds\":2,\"ranks\":[{\"rank\":0,\"host\":\"h\",\"img_per_s\":10},"
               "{\"rank\":1,\"host\":\"i\",\"wait_pct\":50}]}\n");
    assert_ok(lk__record_open(folder, &record));
    const lk_record_table *ranks = lk__record_table(record, LK_RECORD_KIND_RANKS);
    assert_int_equal(ranks->count, 2);
    assert_true(ranks->column[LK_RECORD_COLUMN_STEP][1] == 5 && ranks->column[LK_RECORD_COLUMN_RANK][1] == 1);
    assert_true(ranks->column[LK_RECORD_COLUMN_WAIT_PCT][1] == 50 &&
                !(ranks->mask[1] & 1u << LK_RECORD_COLUMN_IMG_PER_S));
    const cJSON *last = cJSON_GetArrayItem(cJSON_GetObjectItem(lk__record_last_ranks(record), "ranks"), 1);
    assert_string_equal(cJSON_GetObjectItem(last, "host")->valuestring, "i");
    lk__record_close(record);
    write_text(folder, "ranks.jsonl", "{\"step\":5,\"ranks\":[[1]]}\n");
    assert_fails(lk__record_open(folder, &record), LK_STATUS_FORMAT, "no object");
}

static void test_errors(void **state)
{
    lk_record *record = NULL;
    bool again;
    assert_fails(lk__record_open(temp_path("nothing"), &record), LK_STATUS_NOT_FOUND, "is not a run folder");
    const char *folder = make_run("damaged", "{\"kind\":\"train\",\"step\":1}\nnonsense\n");
    assert_fails(lk__record_open(folder, &record), LK_STATUS_FORMAT, "metrics.jsonl:2: ");
    write_text(folder, "metrics.jsonl", "{\"step\":1}\n");
    assert_fails(lk__record_open(folder, &record), LK_STATUS_FORMAT, "no \"kind\"");
    write_text(folder, "metrics.jsonl", "");
    write_text(folder, "run.json", "{\"format\":\"lockstep-run-9\"}");
    assert_fails(lk__record_open(folder, &record), LK_STATUS_FORMAT, "lockstep-run-9");
    write_text(folder, "run.json", "{\"form");
    assert_fails(lk__record_open(folder, &record), LK_STATUS_FORMAT, "run.json");
    assert_null(record);
    write_text(folder, "run.json", run_json);
    assert_ok(lk__record_open(folder, &record));
    temp_folder_remove(folder);
    assert_fails(lk__record_refresh(record, &again), LK_STATUS_NOT_FOUND, "run.json");
    lk__record_close(record);
}

static void test_list(void **state)
{
    lk_record_list *list;
    char dir[512];
    snprintf(dir, sizeof dir, "%s", temp_path("dir"));
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_ok(lk__record_list(dir, &list));
    assert_int_equal(list->count, 0);
    lk__record_list_destroy(list);
    make_run("dir/b", NULL);
    make_run("dir/a", NULL);
    assert_int_equal(mkdir(temp_path("dir/other"), 0700), 0);
    assert_ok(lk__record_list(dir, &list));
    assert_int_equal(list->count, 2);
    assert_string_equal(list->names[0], "a");
    assert_string_equal(list->names[1], "b");
    lk__record_list_destroy(list);
    assert_fails(lk__record_list(temp_path("nothing"), &list), LK_STATUS_NOT_FOUND, "nothing");
}

/* Rows 0 to count - 1 of training; the caller frees the text. */
static char *many_rows(size_t count)
{
    enum { ROW = 48 };
    char *text = malloc(count * ROW + 1), *at = text;
    assert_non_null(text);
    for (size_t i = 0; i < count; i++)
        at += snprintf(at, ROW, "{\"kind\":\"train\",\"step\":%zu}\n", i);
    return text;
}

static void test_parts(void **state)
{
    enum { ROWS = 100000 };
    lk_record *record;
    bool again;
    size_t calls = 1;
    char *rows = many_rows(ROWS);
    const lk_record_limits limits = {.bytes = 1 << 19, .no_ranks = true};
    assert_ok(lk__record_open_within(make_run("parts", rows), limits, &record));
    const lk_record_table *train = lk__record_table(record, LK_RECORD_KIND_TRAIN);
    assert_false(lk__record_is_complete(record));
    assert_true(train->count > 0 && train->count < ROWS);
    for (; !lk__record_is_complete(record); calls++)
        assert_ok(lk__record_refresh(record, &again));
    assert_true(calls > 2);
    assert_int_equal(train->count, ROWS);
    for (size_t i = 0; i < ROWS; i++)
        assert_true(train->column[LK_RECORD_COLUMN_STEP][i] == (double)i);
    lk__record_close(record);
    free(rows);
}

/* The end of a file only, then only what is new. */
static void test_tail(void **state)
{
    lk_record *record;
    bool again;
    char *rows = many_rows(1000);
    const char *folder = make_run("tail", rows);
    assert_ok(lk__record_open_within(folder, (lk_record_limits){.tail = 200}, &record));
    const lk_record_table *train = lk__record_table(record, LK_RECORD_KIND_TRAIN);
    assert_true(train->count > 1 && train->count < 8);
    assert_true(train->column[LK_RECORD_COLUMN_STEP][train->count - 1] == 999);
    assert_ok(lk__record_refresh(record, &again));
    assert_true(train->count > 1 && !again);
    append(folder, "metrics.jsonl", "{\"kind\":\"train\",\"step\":7}\n");
    assert_ok(lk__record_refresh(record, &again));
    assert_int_equal(train->count, 1);
    assert_true(train->column[LK_RECORD_COLUMN_STEP][0] == 7);
    lk__record_close(record);
    /* A line that is longer than the tail is read all the same. */
    assert_ok(lk__record_open_within(folder, (lk_record_limits){.tail = 4}, &record));
    train = lk__record_table(record, LK_RECORD_KIND_TRAIN);
    assert_true(train->count >= 1 && train->column[LK_RECORD_COLUMN_STEP][train->count - 1] == 7);
    lk__record_close(record);
    free(rows);
}

/* Within a file whose first lines were not read, a message names the byte at which the line begins. */
static void test_tail_is_damaged(void **state)
{
    enum { ROWS = 1000 };
    lk_record *record;
    bool again;
    char *rows = many_rows(ROWS), place[64];
    const lk_record_limits limits = {.tail = 200};
    const char *folder = make_run("damaged_tail", rows);
    snprintf(place, sizeof place, "metrics.jsonl, the line at byte %zu: ", strlen(rows));
    assert_ok(lk__record_open_within(folder, limits, &record));
    append(folder, "metrics.jsonl", "nonsense\n");
    assert_fails(lk__record_refresh(record, &again), LK_STATUS_FORMAT, place);
    write_text(folder, "metrics.jsonl", "{\"kind\":\"train\",\"step\":1}\nnonsense\n");
    assert_fails(lk__record_refresh(record, &again), LK_STATUS_FORMAT, "metrics.jsonl:2: ");
    lk__record_close(record);
    free(rows);
}

TEST_MAIN(temp_folder_set_up, temp_folder_tear_down, TEST(test_columns), TEST(test_grows), TEST(test_cut),
          TEST(test_ranks), TEST(test_errors), TEST(test_list), TEST(test_parts), TEST(test_tail),
          TEST(test_tail_is_damaged))
