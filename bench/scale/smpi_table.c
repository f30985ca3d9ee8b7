/* smpi_table.c - the table over SMPI. A request of the table is an index in `messages`, so that scale_wait can
 * end a request that the transport only learns about in its next test. */
#include "smpi_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <smpi/smpi.h>
#include <smpi/smpi_helpers_internal.h>

enum { MOST = 8192 };

typedef struct message {
    MPI_Request request; /* MPI_REQUEST_NULL: ended, or never used */
    bool fresh;          /* not tested yet */
    size_t bytes;        /* of an ended receive */
    int next;            /* free entry */
} message;

/* SMPI gives every simulated rank variables of its own. There is no communicator beside MPI_COMM_WORLD: making one
 * takes a million messages with 1,024 ranks. */
static message messages[MOST];
static int used, spare = -1;
static bool tests_all = true;

static void fail(const char *what)
{
    fprintf(stderr, "scale: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static int take_entry(void)
{
    int at = spare;
    if (at >= 0)
        spare = messages[at].next;
    else if (used == MOST)
        fail("too many messages are under way");
    else
        at = used++;
    messages[at].fresh = true;
    return at;
}

static int start(lk_mpi_level wanted, lk_mpi_place *out)
{
    (void)wanted;
    *out = (lk_mpi_place){.tag_limit = 32767, .level = LK_MPI_LEVEL_SERIALIZED, .library = "SMPI"};
    MPI_Comm_rank(MPI_COMM_WORLD, &out->rank);
    return MPI_Comm_size(MPI_COMM_WORLD, &out->size);
}

/* main ends MPI. */
static int finish(void)
{
    return 0;
}

static void abort_all(int code)
{
    MPI_Abort(MPI_COMM_WORLD, code);
}

static void explain(int code, char *text, size_t bytes)
{
    snprintf(text, bytes, "SMPI's error %d", code);
}

static int send(lk_mpi_comm comm, const void *data, size_t bytes, int peer, int tag, lk_mpi_request *out)
{
    (void)comm; /* only MPI_COMM_WORLD is used */
    int at = take_entry();
    *out = (lk_mpi_request)at + 1;
    return MPI_Isend(data, (int)bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &messages[at].request);
}

static int receive(lk_mpi_comm comm, void *data, size_t bytes, int peer, int tag, lk_mpi_request *out)
{
    (void)comm; /* only MPI_COMM_WORLD is used */
    int at = take_entry();
    *out = (lk_mpi_request)at + 1;
    return MPI_Irecv(data, (int)bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &messages[at].request);
}

static void keep_length(message *m, const MPI_Status *state)
{
    int bytes = 0;
    MPI_Get_count(state, MPI_BYTE, &bytes);
    m->bytes = bytes > 0 ? (size_t)bytes : 0;
}

/* A test is a switch of contexts in the simulation. */
static int test(lk_mpi_request *requests, int count, lk_mpi_done *done, int *done_count)
{
    int found = 0;
    for (int i = 0; i < count; i++) {
        if (requests[i] == 0)
            continue;
        message *m = &messages[requests[i] - 1];
        int ended = m->request == MPI_REQUEST_NULL;
        if (!ended && (m->fresh || tests_all)) {
            MPI_Status state;
            MPI_Test(&m->request, &ended, &state);
            if (ended)
                keep_length(m, &state);
        }
        m->fresh = false;
        if (!ended)
            continue;
        m->next = spare;
        spare = (int)requests[i] - 1;
        requests[i] = 0;
        done[found++] = (lk_mpi_done){i, m->bytes};
    }
    *done_count = found;
    return 0;
}

static bool cancel(lk_mpi_request *request)
{
    message *m = &messages[*request - 1];
    *request = 0;
    if (m->request != MPI_REQUEST_NULL)
        MPI_Request_free(&m->request);
    return false;
}

void scale_test_all(bool all)
{
    tests_all = all;
}

void scale_wait(void)
{
    static MPI_Request live[MOST];
    static int where[MOST];
    MPI_Status state;
    int count = 0, ended = MPI_UNDEFINED;
    for (int i = 0; i < used; i++) {
        if (messages[i].request == MPI_REQUEST_NULL)
            continue;
        live[count] = messages[i].request;
        where[count++] = i;
    }
    if (count == 0)
        fail("a rank waits, but none of its messages is under way");
    MPI_Waitany(count, live, &ended, &state);
    keep_length(&messages[where[ended]], &state);
    messages[where[ended]].request = MPI_REQUEST_NULL;
}

void scale_sleep(double seconds)
{
    struct timespec time = {.tv_sec = (time_t)seconds};
    time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
    if (seconds > 0)
        smpi_nanosleep(&time, NULL);
}

void *scale_shared_alloc(size_t bytes)
{
    return SMPI_SHARED_MALLOC(bytes);
}

void scale_shared_free(void *block)
{
    if (block)
        SMPI_SHARED_FREE(block);
}

const lk_mpi *scale_table(void)
{
    static const lk_mpi table = {
        .version = LK_MPI_VERSION,
        .name = "smpi",
        .built_as = "SMPI",
        .sends_bare = false, /* SMPI does not move the bytes of gradients, so no header may arrive in their memory */
        .start = start,
        .finish = finish,
        .abort = abort_all,
        .explain = explain,
        .send = send,
        .receive = receive,
        .test = test,
        .cancel = cancel,
    };
    return &table;
}
