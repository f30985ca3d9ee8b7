/* mpi_sendrecv.c - Lockstep's transport over MPI beside MPI_Sendrecv: two ranks exchange the same bytes in
 * both directions. Both are measured in turn, in one run, and the smallest time of each counts: other
 * processes of the host only add time.
 *
 *     mpirun -n 2 bench_mpi_openmpi [MAX_BYTES]
 *
 * It is linked with one MPI library and with plugin.c, so nothing is loaded. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/mpi/load.h"
#include "comm/transport/transport.h"

enum { FRAME = 4 << 20 };

typedef struct pair {
    lk_transport *transport;
    int rank;
    char *out, *in;
    uint32_t number;
} pair;

static void demand(bool fine, const char *what)
{
    if (fine)
        return;
    fprintf(stderr, "mpi_sendrecv: %s: %s\n", what, lk_error_detail());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static lk_status exchange(void *arg, const void *mine, size_t bytes, void *all)
{
    (void)arg;
    MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
    return LK_OK;
}

static lk_status check(void *arg)
{
    (void)arg;
    return LK_OK;
}

static void open_transport(pair *p)
{
    lk_member mine = lk__host_member(), members[2];
    exchange(NULL, &mine, sizeof mine, members);
    lk_boot boot = {
        .rank = p->rank, .size = 2, .members = members, .timeout = 30, .exchange = exchange, .check = check};
    lk__mpi_use(lk__mpi_plugin());
    demand(lk__transport_mpi.open(&boot, &p->transport) == LK_OK, "cannot open the transport");
}

static void exchange_raw(pair *p, size_t bytes)
{
    MPI_Sendrecv(p->out, (int)bytes, MPI_BYTE, 1 - p->rank, 0, p->in, (int)bytes, MPI_BYTE, 1 - p->rank, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Takes one frame; returns its bytes, or 0 if none is complete. As a group does it, it names the payload's place. */
static size_t take(pair *p, char *to, size_t room)
{
    const lk_transport_type *type = p->transport->type;
    type->expect(p->transport, 1 - p->rank, to, room);
    const lk_frame *frame = type->arrived(p->transport, 1 - p->rank);
    const void *at = NULL;
    if (!frame)
        return 0;
    demand(type->payload(p->transport, 1 - p->rank, to, &at) == LK_OK, "a payload");
    size_t bytes = at ? (size_t)frame->bytes : 0;
    if (at && at != to)
        memcpy(to, at, bytes);
    if (at)
        type->release(p->transport, 1 - p->rank);
    return bytes;
}

static uint64_t give(pair *p, const char *data, size_t bytes)
{
    int peer = 1 - p->rank;
    uint64_t ticket = 0;
    lk_frame frame = {.call = {.kind = LK_CALL_KIND_MESSAGE, .number = p->number++, .root = -1}, .bytes = bytes};
    demand(p->transport->type->send(p->transport, &peer, 1, &frame, data, &ticket) == LK_OK, "a send");
    return ticket;
}

static void exchange_frames(pair *p, size_t bytes)
{
    const lk_transport_type *type = p->transport->type;
    size_t given = 0, taken = 0;
    uint64_t last = 0;
    while (given < bytes || taken < bytes || !type->sent(p->transport, last)) {
        size_t next = bytes - given < FRAME ? bytes - given : FRAME;
        uint64_t ticket = next ? give(p, p->out + given, next) : 0;
        given += ticket ? next : 0;
        last = ticket ? ticket : last;
        if (taken < bytes)
            taken += take(p, p->in + taken, bytes - taken);
        if (taken < bytes || !type->sent(p->transport, last))
            demand(type->progress(p->transport) == LK_OK, "progress");
    }
}

static double time_of(pair *p, void (*run)(pair *, size_t), size_t bytes, int repeat)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int i = 0; i < repeat; i++)
        run(p, bytes);
    return (MPI_Wtime() - begin) / repeat;
}

static void measure(pair *p, size_t bytes)
{
    double best[2] = {1e9, 1e9};
    int turns = bytes <= (1 << 20) ? 400 : 20, repeat = bytes <= 4096 ? 100 : bytes <= 65536 ? 20 : 1;
    memset(p->out, p->rank + 1, bytes);
    for (int turn = 0; turn < turns; turn++) {
        double raw = time_of(p, exchange_raw, bytes, repeat), own = time_of(p, exchange_frames, bytes, repeat);
        best[0] = raw < best[0] ? raw : best[0];
        best[1] = own < best[1] ? own : best[1];
    }
    for (size_t i = 0; i < bytes; i++)
        demand(p->in[i] == 2 - p->rank, "a byte is wrong");
    if (p->rank == 0)
        printf("%10zu  %12.2f  %12.2f  %6.3f\n", bytes, best[0] * 1e6, best[1] * 1e6, best[1] / best[0]);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    size_t most = argc > 1 ? strtoull(argv[1], NULL, 10) : (size_t)64 << 20;
    pair p = {0};
    int size = 0, level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &p.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    demand(size == 2, "it needs two ranks: mpirun -n 2");
    p.out = malloc(most);
    p.in = malloc(most);
    demand(p.out && p.in, "no memory");
    open_transport(&p);
    if (p.rank == 0)
        printf("%10s  %12s  %12s  %6s\n", "bytes", "Sendrecv us", "transport us", "ratio");
    for (size_t bytes = 4; bytes <= most; bytes *= 4)
        measure(&p, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    p.transport->type->close(p.transport);
    free(p.out);
    free(p.in);
    return MPI_Finalize();
}
