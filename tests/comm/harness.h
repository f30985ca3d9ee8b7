/* harness.h - teams of ranks for the tests of groups: a function runs as every
 * rank, as threads, or as processes (of one rank or several) that join over a
 * port of their own. Each team lives in children of the test, bounded by an
 * alarm, so that a rank may fail, die or hang without taking the test along;
 * what went wrong is printed. */
#ifndef LK_TESTS_COMM_HARNESS_H
#define LK_TESTS_COMM_HARNESS_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/group.h>

#include "base/clock.h"
#include "comm/check.h"
#include "net/socket.h"

enum { TEAM_MAX = 16, TEAM_SECONDS = 240 };

/* Both texts are shown when the first does not contain the second. */
#define CHECK_TEXT(text, part)                                                                       \
    do {                                                                                             \
        if (!strstr(text, part)) {                                                                   \
            fprintf(stderr, "%s:%d: \"%s\" is not in \"%s\"\n", __FILE__, __LINE__, (part), (text)); \
            _exit(1);                                                                                \
        }                                                                                            \
    } while (0)

/* What all ranks of a team share, beside their group. */
typedef struct team_page {
    _Atomic int counter;
    _Atomic int begun; /* ranks */
    _Atomic int notices;
    char text[1024]; /* the last notice */
} team_page;

typedef struct team_spec {
    int size;
    const char *transport; /* "inproc", "shm", "tcp", "auto" */
    const char *hosts;     /* a letter for each rank's host; NULL: all on one */
    int threads;           /* ranks in each process that joins; 0: one */
    bool env;              /* they join by env://, not by tcp:// */
    double timeout;        /* 0: the default */
    unsigned killed;       /* processes that are to be killed by SIGKILL, a mask */
    team_page *page;       /* set by team_run */
} team_spec;

/* Destroys the group itself if it wants to leave early: then it returns true. */
typedef bool (*team_fn)(lk_group *group, const team_spec *team, const void *arg);

typedef struct team_rank {
    pthread_t thread;
    lk_group *group;
    lk_group_opts opts; /* of a rank that joins */
    const team_spec *team;
    team_fn fn;
    const void *arg;
} team_rank;

static inline void *team_be_rank(void *arg)
{
    team_rank *rank = arg;
    if (!rank->fn(rank->group, rank->team, rank->arg))
        lk_group_destroy(rank->group);
    return NULL;
}

static inline void team_notice(void *arg, const char *text)
{
    team_page *page = arg;
    snprintf(page->text, sizeof page->text, "%s", text);
    page->notices++;
}

/* The child that is all ranks. */
static inline void team_be_threads(const team_spec *team, team_fn fn, const void *arg)
{
    team_rank ranks[TEAM_MAX];
    lk_group *groups[TEAM_MAX] = {0};
    lk_group_opts opts = {.timeout = team->timeout, .notice = team_notice, .notice_arg = team->page};
    CHECK_OK(lk_group_create_threads(team->size, &opts, groups));
    for (int r = 0; r < team->size; r++) {
        ranks[r] = (team_rank){.group = groups[r], .team = team, .fn = fn, .arg = arg};
        CHECK(pthread_create(&ranks[r].thread, NULL, team_be_rank, &ranks[r]) == 0);
    }
    for (int r = 0; r < team->size; r++)
        pthread_join(ranks[r].thread, NULL);
}

static inline void *team_join(void *arg)
{
    team_rank *rank = arg;
    CHECK_OK(lk_group_join(&rank->opts, &rank->group));
    return team_be_rank(rank);
}

static inline int team_threads(const team_spec *team)
{
    return team->threads ? team->threads : 1;
}

static inline void team_set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* Variables of a process, before it has threads. */
static inline void team_set_env(const team_spec *team, int process, int port)
{
    char host[64];
    if (team->hosts) {
        snprintf(host, sizeof host, "host-%c-of-%d", team->hosts[process * team_threads(team)], (int)getppid());
        setenv("LOCKSTEP_HOSTID", host, 1);
    }
    if (!team->env)
        return;
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    team_set_number("MASTER_PORT", port);
    team_set_number("RANK", process);
    team_set_number("WORLD_SIZE", team->size / team_threads(team));
}

/* The child that is one process of the team: a rank, or one in each thread. */
static inline void team_be_process(const team_spec *team, int process, int port, team_fn fn, const void *arg)
{
    char url[64];
    team_rank ranks[TEAM_MAX];
    int threads = team_threads(team);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", port);
    team_set_env(team, process, port);
    for (int t = 0; t < threads; t++) {
        ranks[t] = (team_rank){.team = team, .fn = fn, .arg = arg};
        ranks[t].opts = (lk_group_opts){.init_method = team->env ? "env://" : url,
                                        .rank = process,
                                        .world_size = team->size / threads,
                                        .threads = team->threads,
                                        .thread = t,
                                        .backend = team->transport,
                                        .timeout = team->timeout,
                                        .token = "the token of a test",
                                        .notice = team_notice,
                                        .notice_arg = team->page};
    }
    for (int t = 1; t < threads; t++)
        CHECK(pthread_create(&ranks[t].thread, NULL, team_join, &ranks[t]) == 0);
    team_join(&ranks[0]);
    for (int t = 1; t < threads; t++)
        pthread_join(ranks[t].thread, NULL);
}

static inline void team_be_child(const team_spec *team, int child, int port, team_fn fn, const void *arg)
{
    alarm(TEAM_SECONDS);
    if (strcmp(team->transport, "inproc") == 0)
        team_be_threads(team, fn, arg);
    else
        team_be_process(team, child, port, fn, arg);
    exit(0);
}

static inline bool team_ended_well(const team_spec *team, int child, int status)
{
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    bool fine = team->killed >> child & 1 ? killed : WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!fine)
        fprintf(stderr, "%s, %d ranks on hosts %s: child %d ended with %s %d\n", team->transport, team->size,
                team->hosts ? team->hosts : "one", child, WIFSIGNALED(status) ? "signal" : "exit status",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return fine;
}

/* Runs fn as every rank; whether all ended as they should. */
static inline bool team_run(team_spec team, team_fn fn, const void *arg)
{
    pid_t children[TEAM_MAX];
    int holder = -1, port = 0;
    int count = strcmp(team.transport, "inproc") == 0 ? 1 : team.size / team_threads(&team);
    bool fine = true;
    team.page = mmap(NULL, sizeof *team.page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (team.page == MAP_FAILED || lk__net_reserve("127.0.0.1", &holder, &port) != LK_OK)
        return false;
    fflush(NULL);
    for (int c = 0; c < count; c++) {
        children[c] = fork();
        if (children[c] == 0)
            team_be_child(&team, c, port, fn, arg);
    }
    for (int c = 0; c < count; c++) {
        int status = 0;
        fine = children[c] > 0 && waitpid(children[c], &status, 0) == children[c] &&
               team_ended_well(&team, c, status) && fine;
    }
    close(holder);
    munmap(team.page, sizeof *team.page);
    return fine;
}

static const lk_dtype team_dtypes[] = {LK_DTYPE_F32, LK_DTYPE_F64, LK_DTYPE_BF16,
                                       LK_DTYPE_I64, LK_DTYPE_I32, LK_DTYPE_U8};
enum { TEAM_DTYPES = sizeof team_dtypes / sizeof *team_dtypes };

/* Nearest, ties to even; for finite values. */
static inline uint16_t team_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t rest = bits & 0xffff, half = 0x8000;
    uint16_t high = (uint16_t)(bits >> 16);
    return (uint16_t)(high + (rest > half || (rest == half && (high & 1))));
}

static inline float team_float(uint16_t bf16)
{
    uint32_t bits = (uint32_t)bf16 << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* value must have a place in the type, but for rounding. */
static inline void team_put(lk_dtype dtype, void *at, size_t i, double value)
{
    if (dtype == LK_DTYPE_F32)
        ((float *)at)[i] = (float)value;
    else if (dtype == LK_DTYPE_F64)
        ((double *)at)[i] = value;
    else if (dtype == LK_DTYPE_BF16)
        ((uint16_t *)at)[i] = team_bf16((float)value);
    else if (dtype == LK_DTYPE_I64)
        ((int64_t *)at)[i] = (int64_t)value;
    else if (dtype == LK_DTYPE_I32)
        ((int32_t *)at)[i] = (int32_t)value;
    else
        ((uint8_t *)at)[i] = (uint8_t)value;
}

static inline double team_get(lk_dtype dtype, const void *at, size_t i)
{
    if (dtype == LK_DTYPE_F32)
        return (double)((const float *)at)[i];
    if (dtype == LK_DTYPE_F64)
        return ((const double *)at)[i];
    if (dtype == LK_DTYPE_BF16)
        return (double)team_float(((const uint16_t *)at)[i]);
    if (dtype == LK_DTYPE_I64)
        return (double)((const int64_t *)at)[i];
    if (dtype == LK_DTYPE_I32)
        return (double)((const int32_t *)at)[i];
    return (double)((const uint8_t *)at)[i];
}

/* Pseudo-random bits of two numbers. */
static inline uint64_t team_hash(uint64_t a, uint64_t b)
{
    uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x632be59bd9b4e019u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

#endif
