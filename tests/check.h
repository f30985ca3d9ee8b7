/* check.h - included by every test: cmocka, the most common headers of C, checks and RUN_TESTS.
 *
 * cmocka's asserts work only in the main thread of the test's own process. CHECK works in every
 * thread and in forked processes: it prints what is wrong and ends the process with status 1. */
#ifndef LK_TESTS_CHECK_H
#define LK_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <lockstep/status.h>

/* Names the thread in the message of a failed CHECK; empty in a process with one thread. */
static _Thread_local char check_who[48];

static inline _Noreturn void check_failed(const char *file, int line, const char *what, const char *how,
                                          const char *text)
{
    fprintf(stderr, "%s:%d: pid %d%s%s: '%s' %s '%s'\n", file, line, (int)getpid(), *check_who ? ", " : "", check_who,
            what, how, text);
    _exit(1);
}

#define CHECK(condition)   \
    ((condition) ? (void)0 \
                 : check_failed(__FILE__, __LINE__, #condition, "is not true; the last error:", lk_error_detail()))
#define CHECK_OK(expr) CHECK((expr) == LK_OK)

/* Checks that text contains part. */
#define CHECK_TEXT(text, part) \
    (strstr(text, part) ? (void)0 : check_failed(__FILE__, __LINE__, part, "is not in", text))

/* Checks that expr returns the status and that the error's detail contains part. */
#define CHECK_FAILS(expr, status, part) (CHECK((expr) == (status)), CHECK_TEXT(lk_error_detail(), part))

/* CHECK_OK, CHECK_TEXT and CHECK_FAILS as asserts of cmocka, for the main thread. */
static inline void assert_ok_at(lk_status status, const char *expr, const char *file, int line)
{
    if (status == LK_OK)
        return;
    print_error("%s: %s: %s\n", expr, lk_status_string(status), lk_error_detail());
    _fail(file, line);
}

static inline void assert_contains_at(const char *text, const char *part, const char *file, int line)
{
    if (strstr(text, part))
        return;
    print_error("\"%s\" lacks \"%s\"\n", text, part);
    _fail(file, line);
}

#define assert_ok(expr) assert_ok_at(expr, #expr, __FILE__, __LINE__)
#define assert_contains(text, part) assert_contains_at(text, part, __FILE__, __LINE__)
#define assert_detail(part) assert_contains(lk_error_detail(), part)
#define assert_fails(expr, status, part) (assert_int_equal(expr, status), assert_detail(part))

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* TEST(f) is a row of a table of tests; cmocka_unit_test_setup_teardown(f, set_up, tear_down) is a row with
 * fixtures of its own, which files with many such rows name CASE(f). TESTS(row, ...) is a table and its length. */
#define TEST(function) cmocka_unit_test(function)
#define TESTS(...)                            \
    (const struct CMUnitTest[]){__VA_ARGS__}, \
        sizeof((const struct CMUnitTest[]){__VA_ARGS__}) / sizeof(struct CMUnitTest)

/* RUN_TESTS(set_up, tear_down, row, ...) runs the rows and returns the number of failures. set_up runs
 * before all rows, tear_down after all; each may be NULL. */
#define RUN_TESTS(set_up, tear_down, ...) _cmocka_run_group_tests("tests", TESTS(__VA_ARGS__), set_up, tear_down)

/* The main function of a program that only runs its tests. */
#define TEST_MAIN(set_up, tear_down, ...)                 \
    int main(void)                                        \
    {                                                     \
        return RUN_TESTS(set_up, tear_down, __VA_ARGS__); \
    }

#endif
