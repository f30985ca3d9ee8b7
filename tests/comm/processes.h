/* processes.h - ranks as forked processes for tests of what needs processes:
 * each runs a function, ends within a minute, and gives its exit status. In a
 * child CHECK takes the place of cmocka's asserts, which belong to the parent. */
#ifndef TESTS_COMM_PROCESSES_H
#define TESTS_COMM_PROCESSES_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <lockstep/status.h>

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: pid %d: not true: %s (detail: %s)\n", __FILE__, __LINE__, (int)getpid(), \
                    #condition, lk_error_detail());                                                          \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

/* That text contains part. */
#define CHECK_TEXT(text, part)                                                                                     \
    do {                                                                                                           \
        if (!strstr((text), (part))) {                                                                             \
            fprintf(stderr, "%s:%d: pid %d: no '%s' in: %s\n", __FILE__, __LINE__, (int)getpid(), (part), (text)); \
            exit(1);                                                                                               \
        }                                                                                                          \
    } while (0)

typedef void (*process_fn)(int rank, void *arg);

static inline pid_t process_start(process_fn fn, int rank, void *arg)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        fn(rank, arg);
        exit(0);
    }
    return pid;
}

/* Exit status, or 128 + signal. */
static inline int process_wait(pid_t pid)
{
    int status;
    if (waitpid(pid, &status, 0) != pid)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline void sleep_ms(int milliseconds)
{
    struct timespec pause = {.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000L};
    nanosleep(&pause, NULL);
}

#endif
