/* check.h - checks inside ranks: what fails is printed and ends the process,
 * whose parent is the test. */
#ifndef LK_TESTS_COMM_CHECK_H
#define LK_TESTS_COMM_CHECK_H

#include <stdio.h>
#include <unistd.h>

#include <lockstep/status.h>

#define CHECK(condition)                                                                                            \
    do {                                                                                                            \
        if (!(condition)) {                                                                                         \
            fprintf(stderr, "%s:%d: %s is false; detail: %s\n", __FILE__, __LINE__, #condition, lk_error_detail()); \
            _exit(1);                                                                                               \
        }                                                                                                           \
    } while (0)
#define CHECK_OK(expr) CHECK((expr) == LK_OK)

#endif
