/* nccl.c - a communicator of NCCL with a stream of its own.
 *
 * It does not block: a call that NCCL has not finished is asked after, and between two
 * questions the caller's `wait` says whether to go on. A communicator that failed, or
 * is given up, is aborted: its work on the GPUs ends then. */
#include "tensor/cuda/nccl.h"

#include <assert.h>
#include <nccl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tensor/cuda/cuda.h"
#include "tensor/cuda/memory.h"

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

struct lk_channel {
    lk_cuda_device *cuda;
    const lk_cuda_nccl *nccl;
    lk_channel_opts opts; /* the key is gone after open */
    ncclComm_t comm;      /* NULL: none, or aborted */
    cudaStream_t stream;
    cudaEvent_t place;  /* in one of the two streams */
    cudaEvent_t *marks; /* (opts.marks) */
};

/* Seconds for the ranks to take leave of each other. */
static const double LEAVE_WITHIN = 5;

static_assert(LK_CHANNEL_KEY == sizeof(ncclUniqueId), "a key is NCCL's id");

static lk_status nccl_place(lk_device *dev, char place[LK_CHANNEL_PLACE])
{
    struct cudaDeviceProp props;
    const char *host = getenv("NCCL_HOSTID");
    char uuid[2 * sizeof props.uuid.bytes + 1];
    LK_TRY(lk__cuda_status(dev, cudaGetDeviceProperties(&props, ((lk_cuda_device *)dev)->index), "asking for its id"));
    for (size_t i = 0; i < sizeof props.uuid.bytes; i++)
        snprintf(uuid + 2 * i, 3, "%02x", (unsigned char)props.uuid.bytes[i]);
    snprintf(place, LK_CHANNEL_PLACE, "GPU %s%s%s", uuid, host ? ", NCCL_HOSTID " : "", host ? host : "");
    return LK_OK;
}

static lk_status nccl_load(lk_device *dev)
{
    lk_cuda_device *cuda = (lk_cuda_device *)dev;
    lk_cuda_library lib = {.what = "NCCL 2.14 or later",
                           .need = "sums between GPUs",
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
        lk__free(nccl);
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
    return lk__fail(
        LK_STATUS_IO, "cuda:%d: NCCL %d: %s failed: %s%s%s; --backend shm or tcp sums gradients without NCCL",
        cuda->index, version, what, cuda->nccl->ncclGetErrorString(failed), why && why[0] ? ": " : "", why ? why : "");
}

static lk_status nccl_key(lk_device *dev, void *key)
{
    lk_cuda_device *cuda = (lk_cuda_device *)dev;
    ncclResult_t result = cuda->nccl->ncclGetUniqueId(key);
    return result == ncclSuccess ? LK_OK : fail_nccl(cuda, NULL, result, "meeting other ranks");
}

static void give_up(lk_channel *channel)
{
    if (channel->comm)
        (void)channel->nccl->ncclCommAbort(channel->comm);
    channel->comm = NULL;
}

/* Until a call is done that gave this result: then its work is in the stream. */
static lk_status finish_call(lk_channel *channel, ncclResult_t result, const char *what)
{
    lk_status status = LK_OK;
    while (result == ncclInProgress && status == LK_OK) {
        ncclResult_t asked = channel->nccl->ncclCommGetAsyncError(channel->comm, &result);
        if (asked != ncclSuccess)
            result = asked;
        else if (result == ncclInProgress)
            status = channel->opts.wait(channel->opts.arg);
    }
    if (status == LK_OK && result != ncclSuccess)
        status = fail_nccl(channel->cuda, channel->comm, result, what);
    if (status != LK_OK)
        give_up(channel);
    return status;
}

static lk_status check_whole(const lk_channel *channel)
{
    if (!channel->comm)
        return lk__fail(LK_STATUS_IO, "cuda:%d: NCCL was given up after a failure", channel->cuda->index);
    return lk__cuda_use(&channel->cuda->base);
}

static cudaError_t create_events(lk_channel *channel)
{
    cudaError_t error = cudaStreamCreateWithFlags(&channel->stream, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = cudaEventCreateWithFlags(&channel->place, cudaEventDisableTiming);
    for (int i = 0; error == cudaSuccess && i < channel->opts.marks; i++)
        error = cudaEventCreateWithFlags(&channel->marks[i], cudaEventDisableTiming);
    return error;
}

static lk_status meet(lk_channel *channel)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id = *(const ncclUniqueId *)channel->opts.key;
    config.blocking = 0;
    ncclResult_t result =
        channel->nccl->ncclCommInitRankConfig(&channel->comm, channel->opts.size, id, channel->opts.rank, &config);
    channel->opts.key = NULL;
    if (result != ncclSuccess && result != ncclInProgress)
        return fail_nccl(channel->cuda, NULL, result, "meeting other ranks");
    /* What ncclCommInitRankConfig says of a communicator that does not block is not its state. */
    return finish_call(channel, ncclInProgress, "meeting other ranks");
}

/* Leaves the others in order, as far as they still answer. */
static void leave(lk_channel *channel)
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

static void nccl_close(lk_channel *channel)
{
    if (!channel)
        return;
    (void)cudaSetDevice(channel->cuda->index);
    /* Work that is not done waits for ranks that may never come. */
    if (channel->comm && channel->stream && cudaStreamQuery(channel->stream) == cudaSuccess)
        leave(channel);
    give_up(channel);
    if (channel->stream)
        (void)cudaStreamSynchronize(channel->stream);
    for (int i = 0; channel->marks && i < channel->opts.marks; i++) {
        if (channel->marks[i])
            (void)cudaEventDestroy(channel->marks[i]);
    }
    if (channel->place)
        (void)cudaEventDestroy(channel->place);
    if (channel->stream)
        (void)cudaStreamDestroy(channel->stream);
    (void)cudaGetLastError();
    lk__free(channel->marks);
    lk__free(channel);
}

static lk_status nccl_open(lk_device *dev, const lk_channel_opts *opts, lk_channel **out)
{
    lk_channel *channel;
    lk_status status;
    LK_TRY(lk__cuda_use(dev));
    LK_TRY(LK_ALLOC(1, "a channel", &channel));
    channel->cuda = (lk_cuda_device *)dev;
    channel->nccl = channel->cuda->nccl;
    channel->opts = *opts;
    LK_TRY_GOTO(LK_ALLOC((size_t)opts->marks + 1, "a channel", &channel->marks), close_channel);
    LK_TRY_GOTO(lk__cuda_status(dev, create_events(channel), "creating streams"), close_channel);
    LK_TRY_GOTO(meet(channel), close_channel);
    *out = channel;
    return LK_OK;

close_channel:
    nccl_close(channel);
    return status;
}

/* Makes `after` wait for all that `before` has been given. */
static lk_status order(lk_channel *channel, cudaStream_t before, cudaStream_t after)
{
    lk_device *dev = &channel->cuda->base;
    LK_TRY(lk__cuda_status(dev, cudaEventRecord(channel->place, before), "marking a place in a stream"));
    return lk__cuda_status(dev, cudaStreamWaitEvent(after, channel->place, 0), "ordering two streams");
}

static lk_status nccl_follow(lk_channel *channel)
{
    LK_TRY(check_whole(channel));
    return order(channel, lk__cuda_stream(&channel->cuda->base), channel->stream);
}

static lk_status nccl_move(lk_channel *channel, const lk_channel_move *moves, int count)
{
    const lk_cuda_nccl *nccl = channel->nccl;
    LK_TRY(check_whole(channel));
    ncclResult_t result = nccl->ncclGroupStart();
    for (int i = 0; i < count && result == ncclSuccess; i++) {
        const lk_channel_move *m = &moves[i];
        result = m->send ? nccl->ncclSend(m->at, m->count, ncclFloat, m->peer, channel->comm, channel->stream)
                         : nccl->ncclRecv(m->at, m->count, ncclFloat, m->peer, channel->comm, channel->stream);
        result = result == ncclInProgress ? ncclSuccess : result;
    }
    ncclResult_t ended = nccl->ncclGroupEnd();
    return finish_call(channel, result == ncclSuccess ? ended : result, "moving gradients");
}

static lk_status nccl_add(lk_channel *channel, size_t count, const float *a, const float *b, float *out)
{
    LK_TRY(check_whole(channel));
    if (count > 0)
        lk__cuda_add_on(&channel->cuda->base, channel->stream, count, a, b, out);
    return LK_OK;
}

static lk_status nccl_sum(lk_channel *channel, size_t count, float *x)
{
    LK_TRY(check_whole(channel));
    ncclResult_t result = channel->nccl->ncclAllReduce(x, x, count, ncclFloat, ncclSum, channel->comm, channel->stream);
    return finish_call(channel, result, "summing gradients");
}

static lk_status nccl_mark(lk_channel *channel, int mark)
{
    LK_TRY(check_whole(channel));
    return lk__cuda_status(&channel->cuda->base, cudaEventRecord(channel->marks[mark], channel->stream),
                           "marking a place in a stream");
}

static lk_status nccl_lead(lk_channel *channel, int mark)
{
    LK_TRY(check_whole(channel));
    lk_device *dev = &channel->cuda->base;
    return lk__cuda_status(dev, cudaStreamWaitEvent(lk__cuda_stream(dev), channel->marks[mark], 0),
                           "ordering two streams");
}

static lk_status nccl_settle(lk_channel *channel, int mark)
{
    lk_device *dev = &channel->cuda->base;
    cudaError_t error;
    LK_TRY(check_whole(channel));
    while ((error = cudaEventQuery(channel->marks[mark])) == cudaErrorNotReady) {
        ncclResult_t state = ncclSuccess;
        lk_status status = channel->opts.wait(channel->opts.arg);
        if (status != LK_OK) {
            give_up(channel);
            return status;
        }
        ncclResult_t asked = channel->nccl->ncclCommGetAsyncError(channel->comm, &state);
        LK_TRY(finish_call(channel, asked == ncclSuccess ? state : asked, "summing gradients"));
    }
    return lk__cuda_status(dev, error, "summing gradients");
}

const lk_channel_type lk__nccl_channel = {
    .name = "nccl",
    .place = nccl_place,
    .load = nccl_load,
    .key = nccl_key,
    .open = nccl_open,
    .close = nccl_close,
    .follow = nccl_follow,
    .move = nccl_move,
    .add = nccl_add,
    .sum = nccl_sum,
    .mark = nccl_mark,
    .lead = nccl_lead,
    .settle = nccl_settle,
};
