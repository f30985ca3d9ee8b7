/* deaths.h - ranks that are killed inside a collective. */
#ifndef LK_TESTS_COMM_DEATHS_H
#define LK_TESTS_COMM_DEATHS_H

#include "comm/harness.h"

/* Of each vector; gathers take an eighth of it from each rank. */
enum { DEATH_FLOATS = 400000 };

/* A call under way, with data of its own. */
typedef lk_status (*death_fn)(lk_group *group, float *data, lk_request **request);

static inline lk_status death_allreduce(lk_group *group, float *data, lk_request **request)
{
    return lk_allreduce(group, (lk_buffer){data, DEATH_FLOATS, LK_DTYPE_F32}, LK_REDUCTION_SUM, request);
}

static inline lk_status death_exchange(lk_group *group, float *data, lk_request **request)
{
    return lk_allreduce(group, (lk_buffer){data, 4, LK_DTYPE_F32}, LK_REDUCTION_MAX, request);
}

static inline lk_status death_reduce(lk_group *group, float *data, lk_request **request)
{
    return lk_reduce(group, (lk_buffer){data, DEATH_FLOATS, LK_DTYPE_F32}, LK_REDUCTION_SUM, 2, request);
}

static inline lk_status death_reduce_scatter(lk_group *group, float *data, lk_request **request)
{
    lk_buffer in = {data, DEATH_FLOATS, LK_DTYPE_F32};
    return lk_reduce_scatter(group, in, NULL, data + DEATH_FLOATS, LK_REDUCTION_SUM, request);
}

static inline lk_status death_broadcast(lk_group *group, float *data, lk_request **request)
{
    return lk_broadcast(group, (lk_buffer){data, DEATH_FLOATS, LK_DTYPE_F32}, 1, request);
}

static inline lk_status death_allgather(lk_group *group, float *data, lk_request **request)
{
    lk_buffer mine = {data, DEATH_FLOATS / 8, LK_DTYPE_F32};
    return lk_allgather(group, mine, NULL, data + DEATH_FLOATS, request);
}

static inline lk_status death_gather(lk_group *group, float *data, lk_request **request)
{
    lk_buffer mine = {data, DEATH_FLOATS / 8, LK_DTYPE_F32};
    return lk_gather(group, mine, NULL, data + DEATH_FLOATS, 0, request);
}

static inline lk_status death_scatter(lk_group *group, float *data, lk_request **request)
{
    lk_buffer mine = {data, DEATH_FLOATS / 8, LK_DTYPE_F32};
    return lk_scatter(group, data + DEATH_FLOATS, NULL, mine, 0, request);
}

static inline lk_status death_alltoall(lk_group *group, float *data, lk_request **request)
{
    size_t count = DEATH_FLOATS - DEATH_FLOATS % (size_t)lk_group_size(group);
    lk_buffer in = {data, count, LK_DTYPE_F32}, out = {data + DEATH_FLOATS, count, LK_DTYPE_F32};
    return lk_alltoall(group, in, NULL, out, NULL, request);
}

static inline lk_status death_barrier(lk_group *group, float *data, lk_request **request)
{
    return lk_barrier(group, request);
}

static const struct {
    const char *name;
    death_fn call;
} deaths[] = {
    {"allreduce", death_allreduce}, {"small allreduce", death_exchange},
    {"reduce", death_reduce},       {"reduce_scatter", death_reduce_scatter},
    {"broadcast", death_broadcast}, {"allgather", death_allgather},
    {"gather", death_gather},       {"scatter", death_scatter},
    {"alltoall", death_alltoall},   {"barrier", death_barrier},
};
enum { DEATHS = sizeof deaths / sizeof *deaths };

typedef struct death {
    int rank;
    death_fn call;
    int after; /* calls that are whole before */
} death;

/* The one that dies has its call under way; the others go on until they know. */
static inline bool die_inside(lk_group *group, const team_spec *team, const void *arg)
{
    const death *how = arg;
    float *data = calloc(2 * DEATH_FLOATS, sizeof *data);
    lk_request *request = NULL;
    char who[64], text[1024];
    CHECK(data);
    /* Others may still be in a call that the dead one has finished. */
    lk_status status = lk_barrier(group, NULL);
    for (int i = 0; i < how->after && status == LK_OK; i++)
        status = how->call(group, data, NULL);
    if (lk_group_rank(group) == how->rank) {
        CHECK(status == LK_OK);
        CHECK_OK(how->call(group, data, &request));
        raise(SIGKILL);
    }
    for (double end = lk__clock() + 60; status == LK_OK && lk__clock() < end;)
        status = how->call(group, data, NULL);
    CHECK(status == LK_STATUS_PEER);
    snprintf(who, sizeof who, "rank %d", how->rank);
    snprintf(text, sizeof text, "%s", lk_error_detail());
    CHECK_TEXT(text, who);
    /* Without the one that joined all, none is left to tell who died. */
    if (how->rank != 0)
        CHECK_TEXT(text, "died");
    CHECK_FAILS(lk_barrier(group, NULL), LK_STATUS_PEER, text);
    free(data);
    return false;
}

static inline bool run_death(team_spec team, int rank, size_t which, int after)
{
    death how = {rank, deaths[which].call, after};
    team.killed = 1u << rank;
    team.timeout = 100;
    bool fine = team_run(team, die_inside, &how);
    if (!fine)
        fprintf(stderr, "while rank %d died in %s after %d calls\n", rank, deaths[which].name, after);
    return fine;
}

#endif
