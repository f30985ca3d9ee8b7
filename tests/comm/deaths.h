/* deaths.h - ranks that are killed inside a collective. */
#ifndef LK_TESTS_COMM_DEATHS_H
#define LK_TESTS_COMM_DEATHS_H

#include "comm/harness.h"

enum { DEATH_FLOATS = 400000 };

static const struct {
    const char *name;
    team_call call;
} deaths[] = {
    {"allreduce", {.count = DEATH_FLOATS}},
    {"small allreduce", {.count = 4, .op = LK_REDUCTION_MAX}},
    {"reduce", {.kind = LK_CALL_KIND_REDUCE, .count = DEATH_FLOATS, .root = 2}},
    {"reduce_scatter", {.kind = LK_CALL_KIND_REDUCE_SCATTER, .count = DEATH_FLOATS}},
    {"broadcast", {.kind = LK_CALL_KIND_BROADCAST, .count = DEATH_FLOATS, .root = 1}},
    {"allgather", {.kind = LK_CALL_KIND_ALLGATHER, .count = DEATH_FLOATS / 8}},
    {"gather", {.kind = LK_CALL_KIND_GATHER, .count = DEATH_FLOATS / 8}},
    {"scatter", {.kind = LK_CALL_KIND_SCATTER, .count = DEATH_FLOATS / 8}},
    {"alltoall", {.kind = LK_CALL_KIND_ALLTOALL, .count = DEATH_FLOATS}},
    {"barrier", {.kind = LK_CALL_KIND_BARRIER}},
};
enum { DEATHS = COUNT_OF(deaths) };

typedef struct death {
    int rank;
    const team_call *call;
    int after; /* calls that are finished before the rank dies */
} death;

/* One rank dies while its call is under way; the others call until they get the error. */
static inline bool die_inside(lk_group *group, const team_spec *team, const void *arg)
{
    const death *how = arg;
    float *data = calloc(2 * DEATH_FLOATS, sizeof *data), *out = data + DEATH_FLOATS;
    lk_request *request = NULL;
    char who[64], text[1024];
    CHECK(data);
    /* The error may reach a rank in a call that the dead rank has finished. */
    lk_status status = lk_barrier(group, NULL);
    for (int i = 0; i < how->after && status == LK_OK; i++)
        status = team_make_call(group, how->call, data, out, NULL);
    if (lk_group_rank(group) == how->rank) {
        CHECK(status == LK_OK);
        CHECK_OK(team_make_call(group, how->call, data, out, &request));
        raise(SIGKILL);
    }
    for (double end = lk__clock() + 60; status == LK_OK && lk__clock() < end;)
        status = team_make_call(group, how->call, data, out, NULL);
    CHECK(status == LK_STATUS_PEER);
    snprintf(who, sizeof who, "rank %d", how->rank);
    snprintf(text, sizeof text, "%s", lk_error_detail());
    CHECK_TEXT(text, who);
    /* Rank 0 has the control server: without it the others only lose their connection. */
    if (how->rank != 0)
        CHECK_TEXT(text, "died");
    CHECK_FAILS(lk_barrier(group, NULL), LK_STATUS_PEER, text);
    free(data);
    return false;
}

static inline bool run_death(team_spec team, int rank, size_t which, int after)
{
    death how = {rank, &deaths[which].call, after};
    team.killed = 1u << rank;
    team.timeout = 100;
    bool fine = team_run(team, die_inside, &how);
    if (!fine)
        fprintf(stderr, "while rank %d died in %s after %d calls\n", rank, deaths[which].name, after);
    return fine;
}

#endif
