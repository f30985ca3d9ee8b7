/* schedule_sum.c - schedules with sums: exchange, allreduce, reduce-scatter and reduce.
 *
 * In two levels the vector is divided into rails, as many as the smallest host has ranks. Rank j of each host
 * folds rail j for its host. Then the ranks j of all hosts divide rail j among them, and each folds its part
 * over all hosts. The other ranks only send their partial sums and receive results. */
#include "comm/collective/schedule_build.h"

/* Returns the span that a rank folds, or should end with. */
typedef lk_span (*owned_fn)(const void *arg, int rank);

/* Every rank receives the partial sums of its span from all ranks, and folds them. */
static void fold_at_owners(lk_builder *build, owned_fn owned, const void *arg)
{
    lk_span mine = owned(arg, build->rank);
    lk__builder_fold(build, LK_SCHEDULE_LEVEL_RANK, LK_SCHEDULE_LEVEL_ALL, mine);
    for (int i = 1; i < build->topology->size; i++) {
        int peer = lk__builder_peer(build, i);
        lk__builder_send(build, peer, owned(arg, peer), false);
        lk__builder_recv(build, peer, mine, false);
    }
}

typedef struct whole {
    size_t count;
    int parts; /* for `even` */
    int root;  /* for `at_root` */
} whole;

static lk_span everything(const void *arg, int rank)
{
    const whole *all = arg;
    (void)rank;
    return (lk_span){0, all->count};
}

static lk_span at_root(const void *arg, int rank)
{
    const whole *all = arg;
    return (lk_span){0, rank == all->root ? all->count : 0};
}

static lk_span even(const void *arg, int rank)
{
    const whole *all = arg;
    return lk__span_segment(all->count, all->parts, rank);
}

static lk_span given(const void *arg, int rank)
{
    return ((const lk_span *)arg)[rank];
}

lk_span lk__builder_rail(const lk_builder *build, size_t count, int rank)
{
    int j = build->local[rank];
    return j < build->rails ? lk__span_segment(count, build->rails, j) : (lk_span){0};
}

lk_span lk__builder_part(const lk_builder *build, size_t count, int rank)
{
    return lk__span_sub(lk__builder_rail(build, count, rank), build->topology->hosts, build->topology->host[rank]);
}

/* Whether two ranks fold the same rail for different hosts. */
static bool on_same_rail(const lk_builder *build, int a, int b)
{
    return build->local[a] == build->local[b] && build->local[a] < build->rails;
}

void lk__builder_fold_in_host(lk_builder *build, size_t count)
{
    lk_span mine = lk__builder_rail(build, count, build->rank);
    lk__builder_fold(build, LK_SCHEDULE_LEVEL_RANK, LK_SCHEDULE_LEVEL_HOST, mine);
    for (int i = 1; i < build->topology->size; i++) {
        int peer = lk__builder_peer(build, i);
        if (!lk__builder_same_host(build, peer, build->rank))
            continue;
        lk__builder_send(build, peer, lk__builder_rail(build, count, peer), false);
        lk__builder_recv(build, peer, mine, false);
    }
}

lk_span lk__builder_folds(lk_builder *build, size_t count)
{
    lk__builder_fold_in_host(build, count);
    lk_span mine = lk__builder_part(build, count, build->rank);
    lk__builder_fold(build, LK_SCHEDULE_LEVEL_HOST, LK_SCHEDULE_LEVEL_ALL, mine);
    for (int i = 1; i < build->topology->size; i++) {
        int peer = lk__builder_peer(build, i);
        if (!on_same_rail(build, peer, build->rank))
            continue;
        lk__builder_send(build, peer, lk__builder_part(build, count, peer), false);
        lk__builder_recv(build, peer, mine, false);
    }
    return mine;
}

static void allgather_between_hosts(lk_builder *build, size_t count)
{
    lk__builder_copy(build);
    for (int i = 1; i < build->topology->size; i++) {
        int peer = lk__builder_peer(build, i);
        if (!on_same_rail(build, peer, build->rank))
            continue;
        lk__builder_send(build, peer, lk__builder_part(build, count, build->rank), false);
        lk__builder_recv(build, peer, lk__builder_part(build, count, peer), false);
    }
}

void lk__builder_allgather_in_host(lk_builder *build, size_t count)
{
    lk__builder_copy(build);
    for (int i = 1; i < build->topology->size; i++) {
        int peer = lk__builder_peer(build, i);
        if (!lk__builder_same_host(build, peer, build->rank))
            continue;
        lk__builder_send(build, peer, lk__builder_rail(build, count, build->rank), false);
        lk__builder_recv(build, peer, lk__builder_rail(build, count, peer), false);
    }
}

static void allgather_segments(lk_builder *build, const whole *all)
{
    if (build->topology->size == 1)
        return;
    lk__builder_copy(build);
    for (int i = 1; i < build->topology->size; i++) {
        int peer = lk__builder_peer(build, i);
        lk__builder_send(build, peer, even(all, build->rank), false);
        lk__builder_recv(build, peer, even(all, peer), false);
    }
}

lk_status lk__schedule_exchange(const lk_schedule_topology *topology, int rank, size_t count, lk_schedule *out)
{
    lk_builder build;
    lk__builder_init(&build, topology, rank);
    fold_at_owners(&build, everything, &(whole){.count = count});
    return lk__builder_finish(&build, out);
}

lk_status lk__schedule_allreduce(const lk_schedule_topology *topology, int rank, size_t count, lk_schedule *out)
{
    lk_builder build;
    whole all = {.count = count, .parts = topology->size};
    lk__builder_init(&build, topology, rank);
    lk__builder_hosts(&build);
    if (build.status == LK_OK && build.flat) {
        fold_at_owners(&build, even, &all);
        allgather_segments(&build, &all);
    } else if (build.status == LK_OK) {
        lk__builder_folds(&build, count);
        allgather_between_hosts(&build, count);
        lk__builder_allgather_in_host(&build, count);
    }
    return lk__builder_finish(&build, out);
}

static lk_span intersection(lk_span a, lk_span b)
{
    size_t first = a.first > b.first ? a.first : b.first;
    size_t a_end = a.first + a.count, b_end = b.first + b.count;
    size_t end = a_end < b_end ? a_end : b_end;
    return end > first ? (lk_span){first, end - first} : (lk_span){0};
}

/* Copies the parts of a sum in two levels to the ranks that should have them. */
static void redistribute_parts(lk_builder *build, size_t count, owned_fn owned, const void *arg)
{
    lk_span part = lk__builder_part(build, count, build->rank);
    lk_span mine = owned(arg, build->rank);
    lk__builder_copy(build);
    for (int i = 1; i < build->topology->size; i++) {
        int peer = lk__builder_peer(build, i);
        lk__builder_send(build, peer, intersection(part, owned(arg, peer)), false);
        lk__builder_recv(build, peer, intersection(lk__builder_part(build, count, peer), mine), false);
    }
}

lk_status lk__schedule_reduce_scatter(const lk_schedule_topology *topology, int rank, const lk_span *spans,
                                      lk_schedule *out)
{
    lk_builder build;
    lk__builder_init(&build, topology, rank);
    lk__builder_hosts(&build);
    if (build.status == LK_OK && build.flat) {
        fold_at_owners(&build, given, spans);
    } else if (build.status == LK_OK) {
        lk_span last = spans[topology->size - 1];
        lk__builder_folds(&build, last.first + last.count);
        redistribute_parts(&build, last.first + last.count, given, spans);
    }
    return lk__builder_finish(&build, out);
}

static void gather_at_root(lk_builder *build, const whole *all)
{
    lk__builder_copy(build);
    if (build->rank != all->root)
        lk__builder_send(build, all->root, even(all, build->rank), false);
    for (int i = 1; i < build->topology->size && build->rank == all->root; i++) {
        int peer = lk__builder_peer(build, i);
        lk__builder_recv(build, peer, even(all, peer), false);
    }
}

static void reduce_large(lk_builder *build, const whole *all)
{
    if (build->flat) {
        fold_at_owners(build, even, all);
        gather_at_root(build, all);
    } else {
        lk__builder_folds(build, all->count);
        redistribute_parts(build, all->count, at_root, all);
    }
}

lk_status lk__schedule_reduce(const lk_schedule_topology *topology, int rank, size_t count, int root, bool large,
                              lk_schedule *out)
{
    lk_builder build;
    whole all = {.count = count, .parts = topology->size, .root = root};
    lk__builder_init(&build, topology, rank);
    if (large && topology->size > 1) {
        lk__builder_hosts(&build);
        if (build.status == LK_OK)
            reduce_large(&build, &all);
    } else {
        fold_at_owners(&build, at_root, &all);
    }
    return lk__builder_finish(&build, out);
}
