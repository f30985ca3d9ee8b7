/* nccl.c - a communicator of NCCL with a stream of its own.
 *
 * The communicator is nonblocking: `poll` asks whether NCCL has finished a call. give_up aborts the
 * communicator, which ends its work on the GPUs. Aborting waits until no recorded step uses the communicator,
 * and a recording can be forgotten only when its work has ended. Therefore a thread of its own aborts.
 *
 * The first channel opens NCCL at run time. Two ranks may use the same GPU if each has its own NCCL_HOSTID in
 * the environment: NCCL then treats them as two hosts. */
#include <assert.h>
#include <nccl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "tensor/cuda/runtime/channel.h"
#include "tensor/cuda/runtime/memory.h"

#define NCCL_LIST(X)          \
    X(ncclGetVersion)         \
    X(ncclGetErrorString)     \
    X(ncclGetLastError)       \
    X(ncclGetUniqueId)        \
    X(ncclCommInitRankConfig) \
    X(ncclCommGetAsyncError)  \
    X(ncclCommFinalize)       \
    X(ncclCommDestroy)        \
    X(ncclCommAbort)          \
    X(ncclGroupStart)         \
    X(ncclGroupEnd)           \
    X(ncclSend)               \
    X(ncclRecv)               \
    X(ncclAllReduce)

struct lk_cuda_nccl {
#define FIELD(name) __typeof__(name) *name;
    NCCL_LIST(FIELD)
#undef FIELD
};

typedef struct nccl_channel {
    lk_channel base;
    const lk_cuda_nccl *nccl;
    const char *doing; /* the current call, for messages */
    ncclComm_t comm;   /* NULL: none, or it is being aborted */
    pthread_t aborter;
    bool aborts;
    ncclComm_t aborted;
} nccl_channel;

/* Seconds that a rank waits for the others when it leaves. */
static const double LEAVE_WITHIN = 5;

static_assert(LK_CHANNEL_KEY == sizeof(ncclUniqueId), "a key is NCCL's id");

static lk_status nccl_device_id(lk_device *dev, char id[LK_CHANNEL_DEVICE_ID])
{
    const char *host = getenv("NCCL_HOSTID");
    LK_TRY(lk__cuda_channel_device_id(dev, id));
    size_t length = strlen(id);
    if (host)
        snprintf(id + length, LK_CHANNEL_DEVICE_ID - length, ", NCCL_HOSTID %s", host);
    return LK_OK;
}

static lk_status nccl_load(lk_device *dev)
{
    lk_cuda_device *cuda = (lk_cuda_device *)dev;
    lk_cuda_library lib = {.what = "NCCL 2.14 or later",
                           .need = "work between GPUs",
                           .install = "NVIDIA's libnccl2 or pip's nvidia-nccl",
                           .file = "libnccl.so.2"};
    lk_cuda_nccl *nccl;
    void *file;
    if (cuda->nccl)
        return LK_OK;
    LK_TRY(lk__cuda_library_open(&lib, &file));
    LK_TRY(LK_ALLOC(1, "a library", &nccl));
#define ROW(name) {#name, &nccl->name},
    const lk_cuda_symbol symbols[] = {NCCL_LIST(ROW)};
#undef ROW
    lk_status status = lk__cuda_library_find(file, &lib, symbols, sizeof symbols / sizeof *symbols);
    if (status != LK_OK) {
        lk__mem_free(nccl);
        return status;
    }
    cuda->nccl = nccl;
    return LK_OK;
}

static lk_status fail_nccl(const lk_cuda_device *cuda, ncclComm_t comm, ncclResult_t failed, const char *what)
{
    const char *why = cuda->nccl->ncclGetLastError(comm);
    int version = 0;
    (void)cuda->nccl->ncclGetVersion(&version);
    return lk__fail(LK_STATUS_IO, "cuda:%d: NCCL %d.%d.%d: %s failed: %s%s%s; `backend` shm or tcp does without NCCL",
                    cuda->index, version / 10000, version / 100 % 100, version % 100, what,
                    cuda->nccl->ncclGetErrorString(failed), why && why[0] ? ": " : "", why ? why : "");
}

static void *abort_comm(void *arg)
{
    nccl_channel *channel = arg;
    (void)cudaSetDevice(channel->base.cuda->index);
    (void)channel->nccl->ncclCommAbort(channel->aborted);
    return NULL;
}

static void give_up(nccl_channel *channel)
{
    channel->base.lost = true;
    if (!channel->comm)
        return;
    channel->aborted = channel->comm;
    channel->comm = NULL;
    channel->aborts = lk__thread_create(&channel->aborter, abort_comm, channel) == 0;
    if (!channel->aborts)
        (void)abort_comm(channel);
}

/* Handles the result of a call, which may be complete, in progress or failed. */
static lk_status begin_call(nccl_channel *channel, ncclResult_t result, const char *what)
{
    channel->doing = what;
    if (result == ncclSuccess || result == ncclInProgress)
        return LK_OK;
    return fail_nccl(channel->base.cuda, channel->comm, result, what);
}

/* When a call is complete, its work is in the stream. */
static lk_status nccl_poll(lk_channel *base, bool *done)
{
    nccl_channel *channel = (nccl_channel *)base;
    ncclResult_t state = ncclSuccess;
    LK_TRY(lk__cuda_channel_use(base));
    ncclResult_t asked = channel->nccl->ncclCommGetAsyncError(channel->comm, &state);
    state = asked == ncclSuccess ? state : asked;
    *done = state == ncclSuccess;
    return begin_call(channel, state, channel->doing);
}

/* The key of rank 0 is NCCL's id. */
static lk_status nccl_join(lk_channel *base, const void *keys)
{
    nccl_channel *channel = (nccl_channel *)base;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    memcpy(&id, keys, sizeof id);
    config.blocking = 0;
    LK_TRY(lk__cuda_channel_use(base));
    ncclResult_t result =
        channel->nccl->ncclCommInitRankConfig(&channel->comm, base->opts.size, id, base->opts.rank, &config);
    if (result != ncclSuccess && result != ncclInProgress)
        return fail_nccl(base->cuda, NULL, result, "joining the other ranks");
    return begin_call(channel, ncclInProgress, "joining the other ranks");
}

/* Leaves the communicator in order if the other ranks still answer. */
static void leave(nccl_channel *channel)
{
    ncclResult_t result = channel->nccl->ncclCommFinalize(channel->comm);
    double began = lk__clock();
    while (result == ncclInProgress && lk__clock() - began < LEAVE_WITHIN) {
        if (channel->nccl->ncclCommGetAsyncError(channel->comm, &result) != ncclSuccess)
            break;
        sched_yield();
    }
    if (result != ncclSuccess)
        return;
    (void)channel->nccl->ncclCommDestroy(channel->comm);
    channel->comm = NULL;
}

static void nccl_close(lk_channel *base)
{
    nccl_channel *channel = (nccl_channel *)base;
    if (!channel)
        return;
    (void)cudaSetDevice(base->cuda->index);
    /* Unfinished work waits for ranks that may never come. */
    if (channel->comm && base->stream && cudaStreamQuery(base->stream) == cudaSuccess)
        leave(channel);
    give_up(channel);
    if (channel->aborts)
        (void)pthread_join(channel->aborter, NULL);
    if (base->stream)
        (void)cudaStreamSynchronize(base->stream);
    lk__cuda_channel_fini(base);
    lk__mem_free(channel);
}

static lk_status nccl_open(lk_device *dev, const lk_channel_opts *opts, void *key, lk_channel **out)
{
    lk_cuda_device *cuda = (lk_cuda_device *)dev;
    nccl_channel *channel;
    lk_status status;
    LK_TRY(LK_ALLOC(1, "a channel", &channel));
    channel->nccl = cuda->nccl;
    LK_TRY_GOTO(lk__cuda_channel_init(dev, opts, &channel->base), close_channel);
    ncclResult_t result = opts->rank == 0 ? cuda->nccl->ncclGetUniqueId(key) : ncclSuccess;
    if (result != ncclSuccess)
        LK_TRY_GOTO(fail_nccl(cuda, NULL, result, "joining the other ranks"), close_channel);
    *out = &channel->base;
    return LK_OK;

close_channel:
    nccl_close(&channel->base);
    return status;
}

static lk_status nccl_move(lk_channel *base, const lk_channel_move *moves, int count)
{
    nccl_channel *channel = (nccl_channel *)base;
    const lk_cuda_nccl *nccl = channel->nccl;
    LK_TRY(lk__cuda_channel_use(base));
    ncclResult_t result = nccl->ncclGroupStart();
    for (int i = 0; i < count && result == ncclSuccess; i++) {
        const lk_channel_move *m = &moves[i];
        result = m->send ? nccl->ncclSend(m->at, m->count, ncclFloat, m->peer, channel->comm, base->stream)
                         : nccl->ncclRecv(m->at, m->count, ncclFloat, m->peer, channel->comm, base->stream);
        result = result == ncclInProgress ? ncclSuccess : result;
    }
    ncclResult_t ended = nccl->ncclGroupEnd();
    return begin_call(channel, result == ncclSuccess ? ended : result, "moving data");
}

static lk_status nccl_sum(lk_channel *base, size_t count, float *x)
{
    nccl_channel *channel = (nccl_channel *)base;
    LK_TRY(lk__cuda_channel_use(base));
    ncclResult_t result = channel->nccl->ncclAllReduce(x, x, count, ncclFloat, ncclSum, channel->comm, base->stream);
    return begin_call(channel, result, "summing gradients");
}

static void nccl_give_up(lk_channel *base)
{
    give_up((nccl_channel *)base);
}

const lk_channel_type lk__cuda_channel_nccl = {
    .name = "nccl",
    .device_id = nccl_device_id,
    .load = nccl_load,
    .open = nccl_open,
    .join = nccl_join,
    .poll = nccl_poll,
    .close = nccl_close,
    .follow = lk__cuda_channel_follow,
    .move = nccl_move,
    .add = lk__cuda_channel_add,
    .sum = nccl_sum,
    .mark = lk__cuda_channel_mark,
    .lead = lk__cuda_channel_lead,
    .reached = lk__cuda_channel_reached,
    .records = true,
    .give_up = nccl_give_up,
};
