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

/* The same checks as asserts of cmocka, for the main thread. */
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

/* Runs the tests and returns the number of failures. names is their list in the source, "first,
 * second": cmocka prints each name. The fixtures may be NULL; they run around all tests, or around
 * each test. */
static inline int test_program(const char *names, const CMUnitTestFunction *functions, size_t count,
                               const CMFixtureFunction around_all[2], const CMFixtureFunction around_each[2])
{
    static char text[4096];
    static struct CMUnitTest tests[64];
    char *name = text;
    CHECK(count <= COUNT_OF(tests) && snprintf(text, sizeof text, "%s,", names) < (int)sizeof text);
    for (size_t i = 0; i < count; i++) {
        tests[i] = (struct CMUnitTest){name, functions[i], around_each[0], around_each[1], NULL};
        name += strcspn(name, ",");
        *name++ = '\0';
        name += strspn(name, " ");
    }
    return _cmocka_run_group_tests("tests", tests, count, around_all[0], around_all[1]);
}

#define TEST_PROGRAM(all_begin, all_end, each_begin, each_end, ...)                                                \
    test_program(#__VA_ARGS__, (const CMUnitTestFunction[]){__VA_ARGS__},                                          \
                 COUNT_OF(((const CMUnitTestFunction[]){__VA_ARGS__})), (CMFixtureFunction[]){all_begin, all_end}, \
                 (CMFixtureFunction[]){each_begin, each_end})

/* The result of main: RUN_TESTS(first_test, second_test, ...). */
#define RUN_TESTS(...) TEST_PROGRAM(NULL, NULL, NULL, NULL, __VA_ARGS__)
#define RUN_TESTS_WITH(begin, end, ...) TEST_PROGRAM(begin, end, NULL, NULL, __VA_ARGS__)
#define RUN_EACH_WITH(begin, end, ...) TEST_PROGRAM(NULL, NULL, begin, end, __VA_ARGS__)

/* TESTS(TEST(a), TEST(b)) is a list of tests and its length. RUN_LIST runs a list, with set_up
 * before and tear_down after all of it (NULL: none), and returns the number of failures. */
#define TEST(function) cmocka_unit_test(function)
#define TESTS(...)                            \
    (const struct CMUnitTest[]){__VA_ARGS__}, \
        sizeof((const struct CMUnitTest[]){__VA_ARGS__}) / sizeof(struct CMUnitTest)
#define RUN_LIST(set_up, tear_down, ...) _cmocka_run_group_tests("tests", TESTS(__VA_ARGS__), set_up, tear_down)

/* main of a program that does nothing but run its tests. */
#define TEST_MAIN(set_up, tear_down, ...)                \
    int main(void)                                       \
    {                                                    \
        return RUN_LIST(set_up, tear_down, __VA_ARGS__); \
    }

#endif
