/* harness.h - teams of ranks for the tests of groups: a function runs as every
 * rank, as threads, or as processes (of one rank or several) that join over a
 * port of their own. Each team lives in children of the test, bounded by an
 * alarm, so that a rank may fail, die or hang without taking the test along;
 * what went wrong is printed. */
#ifndef LK_TESTS_COMM_HARNESS_H
#define LK_TESTS_COMM_HARNESS_H

#include <lockstep/group.h>

#include "base/clock.h"
#include "net/socket.h"
#include "processes.h"

enum { TEAM_MAX = 16 };

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

/* What a child of the team is given. */
typedef struct team_run_args {
    const team_spec *team;
    team_fn fn;
    const void *arg;
    int process, port;
    lk_group **groups; /* of ranks that are threads of one child */
} team_run_args;

static inline void team_be_rank(const team_run_args *run, lk_group *group)
{
    if (!run->fn(group, run->team, run->arg))
        lk_group_destroy(group);
}

static inline void team_notice(void *arg, const char *text)
{
    team_page *page = arg;
    snprintf(page->text, sizeof page->text, "%s", text);
    page->notices++;
}

static inline void team_be_thread(int rank, void *arg)
{
    const team_run_args *run = arg;
    team_be_rank(run, run->groups[rank]);
}

/* The child that is all ranks. */
static inline void team_be_threads(team_run_args *run)
{
    lk_group *groups[TEAM_MAX] = {0};
    const team_spec *team = run->team;
    lk_group_opts opts = {.timeout = team->timeout, .notice = team_notice, .notice_arg = team->page};
    CHECK_OK(lk_group_create_threads(team->size, &opts, groups));
    run->groups = groups;
    threads_run(team->size, team_be_thread, run);
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

/* One rank of a process of the team. */
static inline void team_join(int thread, void *arg)
{
    const team_run_args *run = arg;
    const team_spec *team = run->team;
    char url[64];
    lk_group *group = NULL;
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", run->port);
    lk_group_opts opts = {.init_method = team->env ? "env://" : url,
                          .rank = run->process,
                          .world_size = team->size / team_threads(team),
                          .threads = team->threads,
                          .thread = thread,
                          .backend = team->transport,
                          .timeout = team->timeout,
                          .token = "the token of a test",
                          .notice = team_notice,
                          .notice_arg = team->page};
    CHECK_OK(lk_group_join(&opts, &group));
    team_be_rank(run, group);
}

static inline void team_be_child(int process, void *arg)
{
    team_run_args *run = arg;
    run->process = process;
    if (strcmp(run->team->transport, "inproc") == 0) {
        team_be_threads(run);
        return;
    }
    team_set_env(run->team, process, run->port);
    if (team_threads(run->team) == 1)
        team_join(0, run);
    else
        threads_run(team_threads(run->team), team_join, run);
}

/* Runs fn as every rank; whether all ended as they should. */
static inline bool team_run(team_spec team, team_fn fn, const void *arg)
{
    team_run_args run = {.team = &team, .fn = fn, .arg = arg};
    int holder = -1;
    int count = strcmp(team.transport, "inproc") == 0 ? 1 : team.size / team_threads(&team);
    CHECK_OK(lk__net_reserve("127.0.0.1", &holder, &run.port));
    team.page = process_share(sizeof *team.page);
    bool fine = processes_run(count, team_be_child, &run, team.killed);
    if (!fine)
        fprintf(stderr, "%s, %d ranks on hosts %s: not as it should be\n", team.transport, team.size,
                team.hosts ? team.hosts : "one");
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
