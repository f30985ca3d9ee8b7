/* plugin.c - the table of mpi.h over one MPI library.
 *
 * Plain MPI-3, without threads and without other parts of Lockstep: it is compiled as a module against each
 * MPI library, and can be linked into a program that was compiled with an MPI's own compiler wrapper. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/mpi/mpi.h"

#ifndef LK_MPI_NAME
#define LK_MPI_NAME "mpi"
#endif
#if defined(OPEN_MPI)
#define BUILT_AS "Open MPI"
#elif defined(MPICH_VERSION)
#define BUILT_AS "MPICH " MPICH_VERSION
#else
#define BUILT_AS "MPI"
#endif

enum {
    CHUNK = 64, /* requests in one call of MPI_Testsome */
    FEW = 2     /* requests that are tested one by one */
};

static MPI_Comm world = MPI_COMM_NULL; /* the duplicate of MPI_COMM_WORLD */
static bool mine;                      /* this module has initialised MPI */

/* A request of MPI is a pointer or a number: its bytes are kept, with one bit set that says that there is
 * one, because 0 may be a valid request. */
_Static_assert(sizeof(MPI_Request) <= 8 && sizeof(MPI_Comm) <= 8, "handles fit into 64 bits");
#define SMALL_HANDLE (sizeof(MPI_Request) < 8)
#define SOME ((uint64_t)1 << 63)

static uint64_t pack(const void *handle, size_t bytes)
{
    uint64_t word = 0;
    memcpy(&word, handle, bytes);
    return bytes < 8 ? word | SOME : word;
}

static uint64_t pack_request(MPI_Request request)
{
    return request == MPI_REQUEST_NULL ? 0 : pack(&request, sizeof request);
}

static MPI_Request unpack_request(uint64_t word)
{
    MPI_Request request = MPI_REQUEST_NULL;
    uint64_t bits = SMALL_HANDLE ? word & ~SOME : word;
    if (word != 0)
        memcpy(&request, &bits, sizeof request);
    return request;
}

static MPI_Comm unpack_set(uint64_t word)
{
    MPI_Comm set = MPI_COMM_NULL;
    uint64_t bits = sizeof set < 8 ? word & ~SOME : word;
    if (word != 0)
        memcpy(&set, &bits, sizeof set);
    return set;
}

/* A communicator other than `world` is named by the address of its handle, in memory of the module's own. */
static MPI_Comm *handle_at(lk_mpi_comm word)
{
    return word ? (MPI_Comm *)(uintptr_t)word : &world;
}

static lk_mpi_level level_of(int provided)
{
    return provided == MPI_THREAD_MULTIPLE     ? LK_MPI_LEVEL_MULTIPLE
           : provided == MPI_THREAD_SERIALIZED ? LK_MPI_LEVEL_SERIALIZED
           : provided == MPI_THREAD_FUNNELED   ? LK_MPI_LEVEL_FUNNELED
                                               : LK_MPI_LEVEL_SINGLE;
}

/* The library's own text has several lines; the first is kept. */
static void library_text(char text[LK_MPI_TEXT])
{
    char full[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(full, &length);
    full[strcspn(full, "\n")] = 0;
    for (char *at = full; *at; at++)
        *at = *at == '\t' ? ' ' : *at;
    snprintf(text, LK_MPI_TEXT, "%.*s", LK_MPI_TEXT - 1, full);
}

static int init(lk_mpi_level wanted)
{
    static const int levels[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE};
    int before = 0, provided = MPI_THREAD_SINGLE;
    int code = MPI_Initialized(&before);
    if (code != MPI_SUCCESS || before)
        return code;
    code = MPI_Init_thread(NULL, NULL, levels[wanted], &provided);
    mine = code == MPI_SUCCESS;
    return code;
}

static int describe(MPI_Comm comm, lk_mpi_place *out)
{
    lk_mpi_place place = {.tag_limit = 32767};
    int *limit = NULL, found = 0, provided = MPI_THREAD_SINGLE, first = 0;
    int code = MPI_Query_thread(&provided);
    if (code == MPI_SUCCESS)
        code = MPI_Is_thread_main(&first);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_rank(comm, &place.rank);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_size(comm, &place.size);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &found);
    if (code == MPI_SUCCESS && found)
        place.tag_limit = *limit;
    place.level = level_of(provided);
    place.main_thread = first != 0;
    library_text(place.library);
    if (code == MPI_SUCCESS)
        *out = place;
    return code;
}

/* Errors are returned, not fatal: Lockstep's message comes first. */
static int start(lk_mpi_level wanted, lk_mpi_place *out)
{
    int code = init(wanted);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_dup(MPI_COMM_WORLD, &world);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    return code == MPI_SUCCESS ? describe(world, out) : code;
}

static int finish(void)
{
    int ended = 0;
    int code = MPI_Finalized(&ended);
    if (code != MPI_SUCCESS || ended)
        return code;
    if (world != MPI_COMM_NULL)
        code = MPI_Comm_free(&world);
    return mine ? MPI_Finalize() : code;
}

static void abort_all(int code)
{
    int ended = 0;
    if (MPI_Finalized(&ended) == MPI_SUCCESS && !ended)
        MPI_Abort(MPI_COMM_WORLD, code);
}

static void explain(int code, char *text, size_t bytes)
{
    char full[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (MPI_Error_string(code, full, &length) != MPI_SUCCESS)
        snprintf(full, sizeof full, "error %d", code);
    full[strcspn(full, "\n")] = 0;
    snprintf(text, bytes, "%s", full);
}

/* A small message is often gone when MPI_Isend returns: it then needs no later test. */
static int send(lk_mpi_comm comm, const void *data, size_t bytes, int peer, int tag, lk_mpi_request *out)
{
    MPI_Request request;
    int gone = 0;
    int code = MPI_Isend(data, (int)bytes, MPI_BYTE, peer, tag, *handle_at(comm), &request);
    if (code == MPI_SUCCESS && bytes <= LK_MPI_SMALL)
        code = MPI_Test(&request, &gone, MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS)
        *out = pack_request(request);
    return code;
}

static int receive(lk_mpi_comm comm, void *data, size_t bytes, int peer, int tag, lk_mpi_request *out)
{
    MPI_Request request;
    int code = MPI_Irecv(data, (int)bytes, MPI_BYTE, peer, tag, *handle_at(comm), &request);
    if (code == MPI_SUCCESS)
        *out = pack_request(request);
    return code;
}

static size_t length_of(const MPI_Status *state)
{
    int bytes = 0;
    return MPI_Get_count(state, MPI_BYTE, &bytes) == MPI_SUCCESS && bytes > 0 ? (size_t)bytes : 0;
}

static int test_one(lk_mpi_request *word, lk_mpi_done *done, int *done_count)
{
    MPI_Request request = unpack_request(*word);
    MPI_Status state;
    int ended = 0;
    int code = MPI_Test(&request, &ended, &state);
    *done_count = ended || code != MPI_SUCCESS;
    if (*done_count) {
        *done = (lk_mpi_done){0, code == MPI_SUCCESS ? length_of(&state) : 0};
        *word = 0;
    }
    return code;
}

static int test_chunk(lk_mpi_request *requests, int count, lk_mpi_done *done, int *done_count)
{
    MPI_Request chunk[CHUNK];
    MPI_Status states[CHUNK];
    int indices[CHUNK], found = 0;
    for (int i = 0; i < count; i++)
        chunk[i] = unpack_request(requests[i]);
    int code = MPI_Testsome(count, chunk, &found, indices, states);
    if (code == MPI_ERR_IN_STATUS)
        for (int i = 0; i < found; i++)
            code = states[i].MPI_ERROR != MPI_SUCCESS && code == MPI_ERR_IN_STATUS ? states[i].MPI_ERROR : code;
    *done_count = found == MPI_UNDEFINED ? 0 : found;
    for (int i = 0; i < *done_count; i++) {
        done[i] = (lk_mpi_done){indices[i], code == MPI_SUCCESS ? length_of(&states[i]) : 0};
        requests[indices[i]] = 0;
    }
    return code;
}

/* MPI does not promise an order. */
static void sort(lk_mpi_done *values, int count)
{
    for (int i = 1; i < count; i++) {
        lk_mpi_done value = values[i];
        int at = i;
        for (; at > 0 && values[at - 1].index > value.index; at--)
            values[at] = values[at - 1];
        values[at] = value;
    }
}

/* Tests requests one by one, the newest first. For a send and a receive that is quicker than MPI_Testsome. */
static int test_few(lk_mpi_request *requests, int count, lk_mpi_done *done, int *done_count)
{
    int all = 0, code = MPI_SUCCESS;
    for (int i = count - 1; i >= 0 && code == MPI_SUCCESS; i--) {
        int found = 0;
        code = test_one(&requests[i], &done[all], &found);
        if (found)
            done[all++].index = i;
    }
    sort(done, all);
    *done_count = all;
    return code;
}

static int test(lk_mpi_request *requests, int count, lk_mpi_done *done, int *done_count)
{
    int all = 0, code = MPI_SUCCESS;
    if (count <= FEW)
        return test_few(requests, count, done, done_count);
    for (int at = 0; at < count && code == MPI_SUCCESS; at += CHUNK) {
        int found = 0;
        code = test_chunk(requests + at, count - at < CHUNK ? count - at : CHUNK, done + all, &found);
        sort(done + all, found);
        for (int i = 0; i < found; i++)
            done[all + i].index += at;
        all += found;
    }
    *done_count = all;
    return code;
}

static bool cancel(lk_mpi_request *word)
{
    MPI_Request request = unpack_request(*word);
    int ended = 1;
    *word = 0;
    if (request == MPI_REQUEST_NULL)
        return true;
    if (MPI_Cancel(&request) == MPI_SUCCESS && MPI_Test(&request, &ended, MPI_STATUS_IGNORE) == MPI_SUCCESS && ended)
        return true;
    MPI_Request_free(&request);
    return false;
}

static int sum_open(lk_mpi_comm comm, const int *ranks, int count, int tag, lk_mpi_set *out)
{
    MPI_Group all, part;
    MPI_Comm made = MPI_COMM_NULL;
    int code = MPI_Comm_group(*handle_at(comm), &all);
    if (code != MPI_SUCCESS)
        return code;
    code = MPI_Group_incl(all, count, ranks, &part);
    MPI_Group_free(&all);
    if (code != MPI_SUCCESS)
        return code;
    code = MPI_Comm_create_group(*handle_at(comm), part, tag, &made);
    MPI_Group_free(&part);
    if (code == MPI_SUCCESS)
        *out = pack(&made, sizeof made);
    return code;
}

static void sum_close(lk_mpi_set *word)
{
    MPI_Comm set = unpack_set(*word);
    *word = 0;
    if (set != MPI_COMM_NULL)
        MPI_Comm_free(&set);
}

static int sum(lk_mpi_set set, void *values, size_t count, lk_mpi_type type, lk_mpi_request *out)
{
    MPI_Request request;
    MPI_Datatype element = type == LK_MPI_TYPE_F64 ? MPI_DOUBLE : MPI_FLOAT;
    int code = MPI_Iallreduce(MPI_IN_PLACE, values, (int)count, element, MPI_SUM, unpack_set(set), &request);
    if (code == MPI_SUCCESS)
        *out = pack_request(request);
    return code;
}

static int share(lk_mpi_comm comm, void *data, size_t bytes, lk_mpi_request *out)
{
    MPI_Request request;
    int code = MPI_Ibcast(data, (int)bytes, MPI_BYTE, 0, *handle_at(comm), &request);
    if (code == MPI_SUCCESS)
        *out = pack_request(request);
    return code;
}

static lk_mpi_phase phase(void)
{
    int begun = 0, ended = 0;
    if (MPI_Initialized(&begun) != MPI_SUCCESS || !begun)
        return LK_MPI_PHASE_BEFORE;
    return MPI_Finalized(&ended) == MPI_SUCCESS && !ended ? LK_MPI_PHASE_RUNNING : LK_MPI_PHASE_ENDED;
}

static int inspect(const void *theirs, lk_mpi_handle *handle, lk_mpi_place *place)
{
    MPI_Comm comm;
    int inter = 0, code = MPI_SUCCESS;
    memcpy(&comm, theirs, sizeof comm);
    if (comm != MPI_COMM_NULL)
        code = MPI_Comm_test_inter(comm, &inter);
    if (code != MPI_SUCCESS)
        return code;
    *handle = comm == MPI_COMM_NULL ? LK_MPI_HANDLE_NULL : inter ? LK_MPI_HANDLE_INTER : LK_MPI_HANDLE_INTRA;
    return *handle == LK_MPI_HANDLE_INTRA ? describe(comm, place) : MPI_SUCCESS;
}

/* MPI writes the handle when the request is done, so it has memory that stays. */
static int adopt(const void *theirs, lk_mpi_comm *comm, lk_mpi_request *out)
{
    MPI_Comm from, *made = malloc(sizeof *made);
    MPI_Request request;
    if (!made)
        return MPI_ERR_NO_MEM;
    memcpy(&from, theirs, sizeof from);
    *made = MPI_COMM_NULL;
    int code = MPI_Comm_idup(from, made, &request);
    if (code != MPI_SUCCESS) {
        free(made);
        return code;
    }
    *comm = (uintptr_t)made;
    *out = pack_request(request);
    return MPI_SUCCESS;
}

static int adopted(lk_mpi_comm comm)
{
    return MPI_Comm_set_errhandler(*handle_at(comm), MPI_ERRORS_RETURN);
}

static void release(lk_mpi_comm comm)
{
    if (phase() == LK_MPI_PHASE_RUNNING && *handle_at(comm) != MPI_COMM_NULL)
        MPI_Comm_free(handle_at(comm));
    free(handle_at(comm));
}

const lk_mpi *lk__mpi_plugin(void)
{
    static const lk_mpi table = {
        .version = LK_MPI_VERSION,
        .name = LK_MPI_NAME,
        .built_as = BUILT_AS,
        .sends_bare = true,
        .start = start,
        .finish = finish,
        .abort = abort_all,
        .explain = explain,
        .send = send,
        .receive = receive,
        .test = test,
        .cancel = cancel,
        .sum_open = sum_open,
        .sum_close = sum_close,
        .sum = sum,
        .share = share,
        .phase = phase,
        .inspect = inspect,
        .adopt = adopt,
        .adopted = adopted,
        .release = release,
    };
    return &table;
}
