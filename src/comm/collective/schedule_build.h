/* schedule_build.h - a schedule under construction, shared by the schedule_*.c files. */
#ifndef LK_COMM_COLLECTIVE_SCHEDULE_BUILD_H
#define LK_COMM_COLLECTIVE_SCHEDULE_BUILD_H

#include "comm/collective/schedule.h"

/* After the first failure, status keeps it, and later additions have no effect. */
typedef struct lk_builder {
    const lk_schedule_topology *topology;
    int rank;
    int *local;               /* (size) index of each rank among the ranks of its host, in rank order */
    int *local_size;          /* (hosts) */
    int rails;                /* ranks on the smallest host: rank j of every host is on rail j */
    int most_local;           /* ranks on the largest host */
    bool flat;                /* one host, or one rank on each host */
    lk_schedule_phase *phase; /* the last phase */
    lk_schedule schedule;
    lk_status status;
} lk_builder;

/* init sets topology and rank. hosts fills the fields from local to flat; the caller checks status after
 * it. */
void lk__builder_init(lk_builder *build, const lk_schedule_topology *topology, int rank);
void lk__builder_hosts(lk_builder *build);
/* Frees everything except the schedule, which out gets; after a failure also the schedule. */
lk_status lk__builder_finish(lk_builder *build, lk_schedule *out) LK_CHECKED;

void lk__builder_copy(lk_builder *build);
void lk__builder_fold(lk_builder *build, int level, int level_out, lk_span keep);
/* Add a move to the last phase. An empty span is ignored, unless `empty`. */
void lk__builder_send(lk_builder *build, int peer, lk_span span, bool empty);
void lk__builder_recv(lk_builder *build, int peer, lk_span span, bool empty);

/* The span of the rail that a rank folds for its host; empty if the rank is on no rail. */
lk_span lk__builder_rail(const lk_builder *build, size_t count, int rank);
/* Adds the fold of the rails in the host, or the allgather of their results. */
void lk__builder_fold_in_host(lk_builder *build, size_t count);
void lk__builder_allgather_in_host(lk_builder *build, size_t count);
/* Adds the two folds of a sum in two levels. Returns the part of the whole sum that this rank then has. */
lk_span lk__builder_folds(lk_builder *build, size_t count);
/* The part of the whole sum that a rank has after lk__builder_folds. */
lk_span lk__builder_part(const lk_builder *build, size_t count, int rank);
/* Adds the phases of an allgather. Ranks of host `without` (-1: none) receive nothing. */
void lk__builder_allgather(lk_builder *build, const lk_span *spans, bool empty, int without);

/* Peer i, from 1 to size - 1, beginning after this rank. */
static inline int lk__builder_peer(const lk_builder *build, int i)
{
    return (build->rank + i) % build->topology->size;
}

static inline bool lk__builder_same_host(const lk_builder *build, int a, int b)
{
    return build->topology->host[a] == build->topology->host[b];
}

/* Segment i of a span. */
static inline lk_span lk__span_sub(lk_span span, int parts, int i)
{
    lk_span inner = lk__span_segment(span.count, parts, i);
    return (lk_span){span.first + inner.first, inner.count};
}

#endif
