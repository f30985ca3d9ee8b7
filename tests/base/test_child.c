/* test_child.c - programs run to their end: input, output, exit statuses, a timeout, no program. */
#include "base/child.h"
#include "check.h"

static lk_child_output run(const char *script, const char *input)
{
    char *const argv[] = {"sh", "-c", (char *)(uintptr_t)script, NULL};
    lk_child_output output;
    assert_ok(lk__child_run(argv, input, strlen(input), 60, &output));
    return output;
}

static void output_and_status_come_back(void **state)
{
    lk_child_output output = run("cat; echo first >&2; printf 'a\\033[2J  \\n\\n' >&2; exit 3", "some text");
    assert_int_equal(output.status, 3);
    assert_int_equal(output.out_bytes, 9);
    assert_string_equal((char *)output.out, "some text");
    assert_string_equal(lk__child_last_words(&output), "a?[2J");
    lk__child_output_free(&output);
    output = run("kill -TERM $$", "");
    assert_int_equal(output.status, 128 + 15);
    assert_string_equal(lk__child_last_words(&output), "");
    lk__child_output_free(&output);
}

/* More than a pipe holds, in both directions, to a program that reads nothing before it has written all. */
static void large_texts_do_not_block(void **state)
{
    enum { BYTES = 1 << 20 };
    char *input = calloc(BYTES + 1, 1);
    assert_non_null(input);
    memset(input, 'x', BYTES);
    lk_child_output output = run("head -c 1048576 /dev/zero; cat >/dev/null; head -c 1048576 /dev/zero >&2", input);
    assert_int_equal(output.status, 0);
    assert_int_equal(output.out_bytes, BYTES);
    assert_int_equal(output.err_bytes, BYTES);
    lk__child_output_free(&output);
    free(input);
}

static void failures_name_the_program(void **state)
{
    char *const nothing[] = {"no-such-program-at-all", NULL}, *const slow[] = {"sleep", "60", NULL};
    lk_child_output output;
    assert_int_equal(lk__child_run(nothing, "", 0, 60, &output), LK_STATUS_NOT_FOUND);
    assert_non_null(strstr(lk_error_detail(), "'no-such-program-at-all'"));
    assert_int_equal(lk__child_run(slow, "", 0, .05, &output), LK_STATUS_IO);
    assert_non_null(strstr(lk_error_detail(), "sleep had not ended after 0.05 seconds"));
}

TEST_MAIN(NULL, NULL, TEST(output_and_status_come_back), TEST(large_texts_do_not_block),
          TEST(failures_name_the_program))
