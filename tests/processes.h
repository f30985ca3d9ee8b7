/* processes.h - child processes and threads of tests. A child runs a function; an alarm ends a
 * child that hangs; the parent checks the exit status. Children and threads use CHECK instead of
 * cmocka's asserts. */
#ifndef LK_TESTS_PROCESSES_H
#define LK_TESTS_PROCESSES_H

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"

/* PROCESS_SECONDS is less than the timeout of a test in CTest. */
enum { PROCESSES_MAX = 32, PROCESS_SECONDS = 240 };

typedef void (*process_fn)(int number, void *arg);

static inline pid_t process_start(process_fn fn, int number, void *arg)
{
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(PROCESS_SECONDS);
        fn(number, arg);
        exit(0);
    }
    return pid;
}

/* Waits for the process; returns its exit status, or 128 + the signal that killed it. */
static inline int process_wait(pid_t pid)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Waits for all processes; returns whether those of the bit mask `killed` were ended by SIGKILL and
 * the others ended with status 0. Prints the processes that did not. */
static inline bool processes_end(const pid_t *pids, int count, unsigned killed)
{
    bool fine = true;
    for (int i = 0; i < count; i++) {
        int ended = process_wait(pids[i]), wanted = killed >> i & 1 ? 128 + SIGKILL : 0;
        if (ended != wanted)
            fprintf(stderr, "process %d of %d ended with %d, not %d\n", i, count, ended, wanted);
        fine = fine && ended == wanted;
    }
    return fine;
}

/* Runs fn in `count` processes, numbered from 0; returns the result of processes_end. */
static inline bool processes_run(int count, process_fn fn, void *arg, unsigned killed)
{
    pid_t pids[PROCESSES_MAX];
    CHECK(count <= PROCESSES_MAX);
    for (int i = 0; i < count; i++)
        pids[i] = process_start(fn, i, arg);
    return processes_end(pids, count, killed);
}

typedef struct threads_one {
    pthread_t thread;
    process_fn fn;
    int number, count;
    void *arg;
} threads_one;

static inline void *threads_be_one(void *arg)
{
    const threads_one *one = arg;
    snprintf(check_who, sizeof check_who, "thread %d of %d", one->number, one->count);
    one->fn(one->number, one->arg);
    return NULL;
}

/* Runs fn in `count` threads, numbered from 0, and joins them. */
static inline void threads_run(int count, process_fn fn, void *arg)
{
    threads_one all[PROCESSES_MAX];
    CHECK(count <= PROCESSES_MAX);
    for (int i = 0; i < count; i++) {
        all[i] = (threads_one){.fn = fn, .number = i, .count = count, .arg = arg};
        CHECK(pthread_create(&all[i].thread, NULL, threads_be_one, &all[i]) == 0);
    }
    for (int i = 0; i < count; i++)
        CHECK(pthread_join(all[i].thread, NULL) == 0);
}

/* Returns zeroed memory that is shared with all children forked later; free it with munmap. */
static inline void *process_share(size_t bytes)
{
    int fd = open("/dev/zero", O_RDWR);
    void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(fd >= 0 && shared != MAP_FAILED);
    close(fd);
    return shared;
}

static inline void sleep_ms(int milliseconds)
{
    nanosleep(&(struct timespec){.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000L}, NULL);
}

#endif
