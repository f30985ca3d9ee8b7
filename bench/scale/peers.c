/* peers.c - a ring (reduce-scatter, then allgather), and MPI_Allreduce. */
#include "peers.h"

#include <stdlib.h>
#include <string.h>

#include <smpi/smpi.h>

#include "smpi_table.h"

/* SMPI gives every rank variables of its own. */
static int rank, size;
static double seconds_for_byte;
static MPI_Op add;
static float *inbox;
static size_t inbox_count;

static void add_floats(const float *from, float *to, size_t count)
{
    scale_sleep((double)(count * sizeof *to) * seconds_for_byte);
    for (size_t i = 0; i < count && seconds_for_byte == 0; i++)
        to[i] += from[i];
}

static void add_for_mpi(void *from, void *to, int *count, MPI_Datatype *type)
{
    (void)type;
    add_floats(from, to, (size_t)*count);
}

static void mpi_sum(float *data, size_t count)
{
    MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, add, MPI_COMM_WORLD);
}

static size_t segment_begin(size_t count, int i)
{
    return count / (size_t)size * (size_t)i + count % (size_t)size * (size_t)i / (size_t)size;
}

/* Sends segment `give` to the next rank and receives segment `take` from the one before. */
static void pass(float *data, size_t count, int give, int take, bool fold)
{
    MPI_Request requests[2];
    size_t give_at = segment_begin(count, give), take_at = segment_begin(count, take);
    size_t give_count = segment_begin(count, give + 1) - give_at, take_count = segment_begin(count, take + 1) - take_at;
    float *to = fold ? inbox : data + take_at;
    MPI_Irecv(to, (int)take_count, MPI_FLOAT, (rank + size - 1) % size, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(data + give_at, (int)give_count, MPI_FLOAT, (rank + 1) % size, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    if (fold)
        add_floats(inbox, data + take_at, take_count);
}

static void ring_sum(float *data, size_t count)
{
    if (inbox_count < count / (size_t)size + 1) {
        scale_shared_free(inbox);
        inbox_count = count / (size_t)size + 1;
        inbox = scale_shared_alloc(inbox_count * sizeof *inbox);
    }
    for (int i = 0; i < size - 1; i++)
        pass(data, count, (rank - i + size) % size, (rank - i - 1 + size) % size, true);
    for (int i = 0; i < size - 1; i++)
        pass(data, count, (rank + 1 - i + size) % size, (rank - i + size) % size, false);
}

bool scale_peer_open(const char *name, double fold_rate, scale_peer *out)
{
    bool ring = !strcmp(name, "ring");
    if (!ring && strcmp(name, "mpi"))
        return false;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Op_create(add_for_mpi, 1, &add);
    seconds_for_byte = fold_rate > 0 ? 1 / fold_rate : 0;
    *out = (scale_peer){ring ? ring_sum : mpi_sum};
    return true;
}

void scale_peer_sum(const scale_peer *peer, float *data, size_t count)
{
    peer->sum(data, count);
}
