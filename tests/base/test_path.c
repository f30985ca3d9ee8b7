/* test_path.c - parts of paths, and paths that do not fit. */
#include "base/file.h"
#include "check.h"

static void test_ends(void **state)
{
    assert_true(lk__path_ends_with("a.gz", ".gz") && lk__path_ends_with("a", "") && lk__path_ends_with(".gz", ".gz"));
    assert_false(lk__path_ends_with("gz", ".gz") || lk__path_ends_with("a.gz/", ".gz"));
}

static void test_last(void **state)
{
    static const struct {
        const char *path, *last;
        size_t whole; /* lk__path_length */
    } rows[] = {
        {"a", "a", 1}, {"a/", "a", 1}, {"a/bc", "bc", 4}, {"a/bc//", "bc", 4}, {"/a", "a", 2},
        {"/", "", 1},  {"//", "", 1},  {"", "", 0},       {".", ".", 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t length = 77;
        const char *last = lk__path_last(rows[i].path, &length);
        assert_int_equal(length, strlen(rows[i].last));
        assert_memory_equal(last, rows[i].last, length);
        assert_true(last >= rows[i].path && last + length <= rows[i].path + strlen(rows[i].path));
        assert_int_equal(lk__path_length(rows[i].path), rows[i].whole);
    }
}

/* A path that does not fit is refused, not cut. */
static void test_join(void **state)
{
    char out[8];
    assert_true(lk__path_join("a", "b", out, sizeof out));
    assert_string_equal(out, "a/b");
    assert_true(lk__path_join("abc", "def", out, sizeof out));
    assert_string_equal(out, "abc/def");
    assert_false(lk__path_join("abc", "defg", out, sizeof out));
}

TEST_MAIN(NULL, NULL, TEST(test_ends), TEST(test_last), TEST(test_join))
