/* harness.h - teams of ranks for the tests of groups. A function runs on every rank; ranks are
 * threads, or processes of one or several ranks that join over a port of their own. All ranks are
 * in child processes with an alarm: a rank that fails, dies or hangs does not end the test. */
#ifndef LK_TESTS_COMM_HARNESS_H
#define LK_TESTS_COMM_HARNESS_H

#include <lockstep/group.h>

#include "base/clock.h"
#include "base/math.h"
#include "comm/call.h"
#include "net/socket.h"
#include "processes.h"

enum { TEAM_MAX = 16 };

/* Memory that all ranks of a team share. */
typedef struct team_page {
    _Atomic int counter;
    _Atomic int begun; /* number of ranks */
    _Atomic int notices;
    char text[1024]; /* the last notice */
} team_page;

typedef struct team_spec {
    int size;
    const char *transport; /* "inproc", "shm", "tcp", "auto" */
    const char *hosts;     /* a letter for each rank's host; NULL: one host for all */
    int threads;           /* ranks in each process; 0: one */
    bool env;              /* join with env:// instead of tcp:// */
    double timeout;        /* seconds; 0: the default */
    unsigned killed;       /* bit mask of the processes that must be ended by SIGKILL */
    team_page *page;       /* set by team_run */
} team_spec;

/* Runs on every rank. Returns true if it has destroyed the group. */
typedef bool (*team_fn)(lk_group *group, const team_spec *team, const void *arg);

/* The arguments of a child process. */
typedef struct team_run_args {
    const team_spec *team;
    team_fn fn;
    const void *arg;
    int process, port;
    lk_group **groups; /* of ranks that are threads */
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

/* All ranks are threads of one child. */
static inline void team_be_threads(team_run_args run)
{
    lk_group *groups[TEAM_MAX] = {0};
    const team_spec *team = run.team;
    lk_group_opts opts = {.timeout = team->timeout, .notice = team_notice, .notice_arg = team->page};
    CHECK_OK(lk_group_create_threads(team->size, &opts, groups));
    run.groups = groups;
    threads_run(team->size, team_be_thread, &run);
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

/* Sets the environment of a process before it starts threads. */
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

/* Joins as one rank of a process. */
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
        team_be_threads(*run);
        return;
    }
    team_set_env(run->team, process, run->port);
    if (team_threads(run->team) == 1)
        team_join(0, run);
    else
        threads_run(team_threads(run->team), team_join, run);
}

/* Runs fn on every rank; returns whether all processes ended as the team says. */
static inline bool team_run(team_spec team, team_fn fn, const void *arg)
{
    team_run_args run = {.team = &team, .fn = fn, .arg = arg};
    int holder = -1;
    int count = strcmp(team.transport, "inproc") == 0 ? 1 : team.size / team_threads(&team);
    CHECK_OK(lk__net_reserve("127.0.0.1", &holder, &run.port));
    team.page = process_share(sizeof *team.page);
    bool fine = processes_run(count, team_be_child, &run, team.killed);
    if (!fine)
        fprintf(stderr, "%s, %d ranks on hosts %s: failed\n", team.transport, team.size,
                team.hosts ? team.hosts : "one");
    close(holder);
    munmap(team.page, sizeof *team.page);
    return fine;
}

/* Runs fn with each of the teams. */
static inline void team_run_each(const team_spec *teams, size_t count, team_fn fn, const void *arg)
{
    for (size_t i = 0; i < count; i++)
        assert_true(team_run(teams[i], fn, arg));
}

enum { TEAM_WITHOUT_AUTO = 3, TEAM_TRANSPORTS };

/* Runs fn with the team over the first `count` transports; team.hosts counts for "auto" only. */
static inline bool team_run_over(int count, team_spec team, team_fn fn, const void *arg)
{
    static const char *const names[TEAM_TRANSPORTS] = {"inproc", "shm", "tcp", "auto"};
    const char *hosts = team.hosts;
    bool fine = true;
    for (int i = 0; i < count && fine; i++) {
        team.transport = names[i];
        team.hosts = i == TEAM_WITHOUT_AUTO ? hosts : NULL;
        fine = team_run(team, fn, arg);
    }
    return fine;
}

/* Returns when every rank of the team has called it, without using the group; only once in a team_run.
 * A rank that then makes the job fail does not disturb the calls of other ranks before this one. */
static inline void team_await_all(const team_spec *team)
{
    team->page->begun++;
    for (int i = 0; i < 100000 && team->page->begun < team->size; i++)
        sleep_ms(1);
    CHECK(team->page->begun == team->size);
}

/* A collective call; zeros mean an allreduce of f32 with LK_REDUCTION_SUM. */
typedef struct team_call {
    lk_call_kind kind;
    size_t count; /* elements of a rank's vector */
    lk_dtype dtype;
    lk_reduction op;
    int root;
    const size_t *counts; /* of an allgather: elements of each rank, instead of count */
    const int *bounds;    /* of an allreduce: shard bounds; every partial sum is `out` */
} team_call;

/* Starts the call with the vectors in and out; request may be NULL. */
static inline lk_status team_make_call(lk_group *group, const team_call *c, void *in, void *out, lk_request **request)
{
    lk_buffer data = {in, c->counts ? c->counts[lk_group_rank(group)] : c->count, c->dtype}, even = data;
    const void *roots[LK_MAX_ROOTS];
    for (int i = 0; i < LK_MAX_ROOTS; i++)
        roots[i] = out;
    if (c->bounds)
        return lk_allreduce_shards(group, &(lk_shard_sums){c->bounds, roots}, data, c->op, request);
    even.count -= even.count % (size_t)lk_group_size(group);
    switch (c->kind) {
    case LK_CALL_KIND_ALLREDUCE:
        return lk_allreduce(group, data, c->op, request);
    case LK_CALL_KIND_REDUCE:
        return lk_reduce(group, data, c->op, c->root, request);
    case LK_CALL_KIND_REDUCE_SCATTER:
        return lk_reduce_scatter(group, data, NULL, out, c->op, request);
    case LK_CALL_KIND_BROADCAST:
        return lk_broadcast(group, data, c->root, request);
    case LK_CALL_KIND_ALLGATHER:
        return lk_allgather(group, data, c->counts, out, request);
    case LK_CALL_KIND_GATHER:
        return lk_gather(group, data, NULL, out, c->root, request);
    case LK_CALL_KIND_SCATTER:
        return lk_scatter(group, out, NULL, data, c->root, request);
    case LK_CALL_KIND_ALLTOALL:
        return lk_alltoall(group, even, NULL, (lk_buffer){out, even.count, c->dtype}, NULL, request);
    default:
        return lk_barrier(group, request);
    }
}

static const lk_dtype team_dtypes[] = {LK_DTYPE_F32, LK_DTYPE_F64, LK_DTYPE_BF16, LK_DTYPE_F16,
                                       LK_DTYPE_I64, LK_DTYPE_I32, LK_DTYPE_U8};
enum { TEAM_DTYPES = COUNT_OF(team_dtypes) };

/* Rounds to the nearest bf16, ties to even; x is finite. */
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

/* Stores value as element i; value must be in the range of the type. */
static inline void team_put(lk_dtype dtype, void *at, size_t i, double value)
{
    if (dtype == LK_DTYPE_F32)
        ((float *)at)[i] = (float)value;
    else if (dtype == LK_DTYPE_F64)
        ((double *)at)[i] = value;
    else if (dtype == LK_DTYPE_BF16)
        ((uint16_t *)at)[i] = team_bf16((float)value);
    else if (dtype == LK_DTYPE_F16)
        ((uint16_t *)at)[i] = lk__math_float_to_half((float)value);
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
    if (dtype == LK_DTYPE_F16)
        return (double)lk__math_half_to_float(((const uint16_t *)at)[i]);
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
