/* test_differences.c - which options differ between runs, labels of runs, and what is shown of odd texts. */
#include "check.h"
#include "record/differences.h"

enum { MOST = 4 };

typedef struct fixture {
    cJSON *runs[MOST];
    lk_record_differences *found;
} fixture;

static fixture find(const char *const *texts, size_t count)
{
    fixture f = {0};
    for (size_t i = 0; i < count; i++) {
        f.runs[i] = cJSON_Parse(texts[i]);
        assert_non_null(f.runs[i]);
    }
    assert_ok(lk__record_differences_find((const cJSON *const *)f.runs, count, &f.found));
    return f;
}

static void drop(fixture *f)
{
    for (size_t i = 0; i < MOST; i++)
        cJSON_Delete(f->runs[i]);
    lk__record_differences_destroy(f->found);
}

static void assert_label(const fixture *f, size_t run, const char *wanted)
{
    char text[128];
    lk__record_differences_label(f->found, run, text, sizeof text);
    assert_string_equal(text, wanted);
}

static void a_flag_that_negates_is_not_negated_twice(void **state)
{
    const char *const texts[] = {"{\"name\":\"a\",\"options\":{\"no-test\":\"true\"}}",
                                 "{\"name\":\"b\",\"options\":{}}"};
    fixture f = find(texts, 2);
    assert_label(&f, 0, "no-test");
    assert_label(&f, 1, "test");
    drop(&f);
}

static void options_that_differ_are_found(void **state)
{
    const char *const texts[] = {"{\"name\":\"a\",\"ranks\":1,\"threads\":2,\"options\":{\"lr\":\"0.1\",\"seed\":\"1\","
                                 "\"log-dir\":\"x\",\"nproc\":\"1\"}}",
                                 "{\"name\":\"b\",\"ranks\":2,\"threads\":2,\"options\":{\"lr\":\"0.01\",\"seed\":"
                                 "\"1\",\"log-dir\":\"y\",\"nproc\":\"2\","
                                 "\"pipelined\":\"true\"}}"};
    fixture f = find(texts, 2);
    assert_int_equal(f.found->count, 3);
    assert_string_equal(f.found->names[0], "ranks");
    assert_string_equal(f.found->names[1], "lr");
    assert_string_equal(f.found->names[2], "pipelined");
    assert_null(f.found->values[2 * 2 + 0]);
    assert_string_equal(f.found->values[2 * 2 + 1], "true");
    assert_label(&f, 0, "1 rank, lr 0.1, no pipelined");
    assert_label(&f, 1, "2 ranks, lr 0.01, pipelined");
    char text[64];
    const char *const skip[] = {"ranks", NULL};
    lk__record_differences_label_without(f.found, 1, skip, text, sizeof text);
    assert_string_equal(text, "lr 0.01, pipelined");
    drop(&f);
}

/* Runs with the same values are told apart by their names. */
static void equal_runs_are_told_apart_by_name(void **state)
{
    const char *const texts[] = {"{\"name\":\"a\",\"options\":{\"lr\":\"1\"}}",
                                 "{\"name\":\"b\",\"options\":{\"lr\":\"1\"}}",
                                 "{\"name\":\"c\",\"options\":{\"lr\":\"2\"}}"};
    fixture f = find(texts, 3);
    assert_label(&f, 0, "lr 1, a");
    assert_label(&f, 1, "lr 1, b");
    assert_label(&f, 2, "lr 2");
    drop(&f);
    f = find(texts, 2);
    assert_int_equal(f.found->count, 0);
    assert_label(&f, 1, "b");
    drop(&f);
    f = find(texts, 1);
    assert_label(&f, 0, "a");
    drop(&f);
}

/* Texts are cleaned and cut; wrong types are as if they were absent. */
static void odd_texts_are_cleaned_and_cut(void **state)
{
    const char *const texts[] = {"{\"ranks\":\"many\",\"options\":{\"data\":\"a\\u001b[2J\\nb\",\"lr\":3}}",
                                 "{\"name\":7,\"options\":[1,2]}"};
    fixture f = find(texts, 2);
    assert_int_equal(f.found->count, 1);
    assert_label(&f, 0, "data a?[2J?b");
    assert_label(&f, 1, "no data");
    char text[10];
    lk__record_differences_label(f.found, 0, text, sizeof text);
    assert_string_equal(text, "data a...");
    drop(&f);
    f = find(texts, 0);
    assert_int_equal(f.found->count, 0);
    drop(&f);
}

TEST_MAIN(NULL, NULL, TEST(options_that_differ_are_found), TEST(a_flag_that_negates_is_not_negated_twice),
          TEST(equal_runs_are_told_apart_by_name), TEST(odd_texts_are_cleaned_and_cut))
