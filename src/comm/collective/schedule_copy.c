/* schedule_copy.c - schedules that only move: allgather, broadcast, gather,
 * scatter and all-to-all.
 *
 * Between hosts a span goes once to each other host, to the rank whose local
 * place is the sender's (modulo the ranks there), which hands it on. */
#include "base/mem.h"
#include "comm/collective/schedule_build.h"

/* Whether rank `to` of another host gets the span of `from` for its host. */
static bool crosses(const lk_builder *build, int from, int to)
{
    return build->local[to] == build->local[from] % build->local_size[build->topology->host[to]];
}

static void allgather_first(lk_builder *build, const lk_span *spans, bool empty, int without)
{
    const int *host = build->topology->host;
    int rank = build->rank;
    lk__builder_copy(build);
    for (int i = 1; i < build->topology->size; i++) {
        int peer = lk__builder_peer(build, i);
        bool direct = build->flat || host[peer] == host[rank];
        if (host[peer] != without && (direct || crosses(build, rank, peer)))
            lk__builder_send(build, peer, spans[rank], empty);
        if (host[rank] != without && (direct || crosses(build, peer, rank)))
            lk__builder_recv(build, peer, spans[peer], empty);
    }
}

/* Spans of other hosts that came to `from` go to `to`, in rank order of their
 * owners; one that has nothing in it is enough. */
static void hand_on(lk_builder *build, const lk_span *spans, bool empty, int from, int to)
{
    const int *host = build->topology->host;
    bool told = false;
    for (int owner = 0; owner < build->topology->size; owner++) {
        if (host[owner] == host[from] || !crosses(build, owner, from))
            continue;
        bool keep = empty && !told;
        told = told || spans[owner].count == 0;
        if (build->rank == from)
            lk__builder_send(build, to, spans[owner], keep);
        else
            lk__builder_recv(build, from, spans[owner], keep);
    }
}

void lk__builder_allgather(lk_builder *build, const lk_span *spans, bool empty, int without)
{
    int rank = build->rank;
    allgather_first(build, spans, empty, without);
    if (build->flat)
        return;
    lk__builder_copy(build);
    for (int i = 1; i < build->topology->size; i++) {
        int peer = lk__builder_peer(build, i);
        if (!lk__builder_same_host(build, peer, rank) || build->topology->host[rank] == without)
            continue;
        hand_on(build, spans, empty, rank, peer);
        hand_on(build, spans, empty, peer, rank);
    }
}

lk_status lk__schedule_allgather(const lk_schedule_topology *topology, int rank, const lk_span *spans, bool empty,
                                 lk_schedule *out)
{
    lk_builder build;
    lk__builder_init(&build, topology, rank);
    lk__builder_hosts(&build);
    if (build.status == LK_OK)
        lk__builder_allgather(&build, spans, empty, -1);
    return lk__builder_finish(&build, out);
}

/* What the ranks of other hosts than root's get of it: a part a host, and a
 * segment of that a rank. */
static void remote_segments(const lk_builder *build, size_t count, int root, lk_span *spans)
{
    const lk_schedule_topology *topology = build->topology;
    int home = topology->host[root];
    for (int r = 0; r < topology->size; r++) {
        int host = topology->host[r];
        if (host == home)
            continue;
        lk_span part = lk__span_segment(count, topology->hosts - 1, host > home ? host - 1 : host);
        spans[r] = lk__span_sub(part, build->local_size[host], build->local[r]);
    }
}

/* Root sends `whole` to its own host, and to others their spans. */
static void hand_out(lk_builder *build, const lk_span *spans, lk_span whole, int root)
{
    lk__builder_copy(build);
    if (build->rank != root) {
        bool home = lk__builder_same_host(build, build->rank, root);
        lk__builder_recv(build, root, home ? whole : spans[build->rank], false);
        return;
    }
    for (int i = 1; i < build->topology->size; i++) {
        int peer = lk__builder_peer(build, i);
        lk__builder_send(build, peer, lk__builder_same_host(build, peer, root) ? whole : spans[peer], false);
    }
}

lk_status lk__schedule_broadcast(const lk_schedule_topology *topology, int rank, size_t count, int root, bool large,
                                 lk_schedule *out)
{
    lk_builder build;
    lk_span *spans = NULL, whole = {0, count};
    lk__builder_init(&build, topology, rank);
    lk__builder_hosts(&build);
    if (build.status == LK_OK)
        build.status = LK_ALLOC((size_t)topology->size, "a schedule", &spans);
    if (build.status == LK_OK && large && topology->hosts > 1) {
        remote_segments(&build, count, root, spans);
        hand_out(&build, spans, whole, root);
        lk__builder_allgather(&build, spans, false, topology->host[root]);
    } else if (build.status == LK_OK) {
        spans[root] = whole;
        lk__builder_allgather(&build, spans, false, -1);
    }
    lk__mem_free(spans);
    return lk__builder_finish(&build, out);
}

lk_status lk__schedule_gather(const lk_schedule_topology *topology, int rank, const lk_span *spans, int root,
                              lk_schedule *out)
{
    lk_builder build;
    lk__builder_init(&build, topology, rank);
    lk__builder_copy(&build);
    if (rank != root)
        lk__builder_send(&build, root, spans[rank], false);
    for (int i = 1; i < topology->size && rank == root; i++) {
        int peer = lk__builder_peer(&build, i);
        lk__builder_recv(&build, peer, spans[peer], false);
    }
    return lk__builder_finish(&build, out);
}

lk_status lk__schedule_scatter(const lk_schedule_topology *topology, int rank, const lk_span *spans, int root,
                               lk_schedule *out)
{
    lk_builder build;
    lk__builder_init(&build, topology, rank);
    lk__builder_copy(&build);
    if (rank != root)
        lk__builder_recv(&build, root, spans[rank], false);
    for (int i = 1; i < topology->size && rank == root; i++) {
        int peer = lk__builder_peer(&build, i);
        lk__builder_send(&build, peer, spans[peer], false);
    }
    return lk__builder_finish(&build, out);
}

lk_status lk__schedule_alltoall(const lk_schedule_topology *topology, int rank, const lk_span *send,
                                const lk_span *recv, lk_schedule *out)
{
    lk_builder build;
    lk__builder_init(&build, topology, rank);
    lk__builder_copy(&build);
    for (int i = 1; i < topology->size; i++) {
        int peer = lk__builder_peer(&build, i);
        lk__builder_send(&build, peer, send[peer], true);
        lk__builder_recv(&build, peer, recv[peer], true);
    }
    return lk__builder_finish(&build, out);
}
