/* schedule_copy.c - schedules without sums: allgather, broadcast, gather, scatter and all-to-all.
 *
 * Between hosts, a span is sent once to each other host. The receiver is the rank with the sender's local
 * rank (modulo the ranks on that host), which forwards the span inside its host. */
#include "base/mem.h"
#include "comm/collective/schedule_build.h"

/* `from` and `to` are on different hosts. Whether `to` is the rank of its host that receives the span of `from`. */
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

/* Adds the moves by which `from` forwards spans of other hosts to `to`, in the rank order of their owners. At
 * most one move is empty. */
static void forward_spans(lk_builder *build, const lk_span *spans, bool empty, int from, int to)
{
    const int *host = build->topology->host;
    bool has_empty = false;
    for (int owner = 0; owner < build->topology->size; owner++) {
        if (host[owner] == host[from] || !crosses(build, owner, from))
            continue;
        bool keep = empty && !has_empty;
        has_empty = has_empty || spans[owner].count == 0;
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
        forward_spans(build, spans, empty, rank, peer);
        forward_spans(build, spans, empty, peer, rank);
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

/* Divides root's vector among the other hosts, and the part of each host among its ranks. */
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

/* Root sends `whole` to the ranks of its host, and to the other ranks their spans. */
static void send_segments(lk_builder *build, const lk_span *spans, lk_span whole, int root)
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
        send_segments(&build, spans, whole, root);
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
