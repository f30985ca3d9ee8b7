/* check.h - what every test includes: cmocka with the headers that cmocka wants, the
 * commonest headers of C, and checks.
 *
 * cmocka's asserts belong to the main thread of the test's own process. CHECK can be
 * used everywhere, so in ranks too, which are threads or forked processes: it prints
 * what is wrong and ends the process. */
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

/* Who checks, for the message: a rank, where it is one of several threads. */
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

/* text contains part. */
#define CHECK_TEXT(text, part) \
    (strstr(text, part) ? (void)0 : check_failed(__FILE__, __LINE__, part, "is not in", text))

/* expr fails with the status, and the detail contains part. */
#define CHECK_FAILS(expr, status, part) (CHECK((expr) == (status)), CHECK_TEXT(lk_error_detail(), part))

/* The same for cmocka's own thread. */
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

/* TESTS(TEST(a), TEST(b)) is a list of tests and its length. RUN_TESTS runs a list, with set_up
 * before and tear_down after all of it (NULL: none), and returns the number of failures. */
#define TEST(function) cmocka_unit_test(function)
#define TESTS(...)                            \
    (const struct CMUnitTest[]){__VA_ARGS__}, \
        sizeof((const struct CMUnitTest[]){__VA_ARGS__}) / sizeof(struct CMUnitTest)
#define RUN_TESTS(set_up, tear_down, ...) _cmocka_run_group_tests("tests", TESTS(__VA_ARGS__), set_up, tear_down)

/* main of a program that does nothing but run its tests. */
#define TEST_MAIN(set_up, tear_down, ...)                 \
    int main(void)                                        \
    {                                                     \
        return RUN_TESTS(set_up, tear_down, __VA_ARGS__); \
    }

#endif
