/* ipc.c - channels between ranks on one GPU: they read each other's memory.
 *
 * In move a rank copies what it sends into an outbox of its own, which the other ranks have mapped, and waits
 * for the copy. In take, when the senders have finished move, a rank copies what is addressed to it. Two outboxes are
 * used in turn: before a rank moves through one again, its caller knows that all have read it. Ranks of the same
 * process read an outbox directly, other processes by CUDA IPC. */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "tensor/cuda/runtime/channel.h"
#include "tensor/cuda/runtime/memory.h"

/* How other ranks find a rank's outboxes. */
typedef struct lent {
    cudaIpcMemHandle_t handle;
    uint64_t process;
    uint64_t at;     /* address in that process */
    uint64_t stride; /* elements for each rank */
} lent;

static_assert(sizeof(lent) <= LK_CHANNEL_KEY, "a key has room for it");

typedef struct peer {
    const float *
        boxes; /* (LK_CHANNEL_OUTBOXES, size - 1, stride), the peer's outboxes for the other ranks; here its own, too */
    size_t stride;
    bool mapped; /* must be unmapped */
    size_t used; /* elements of the current move */
} peer;

typedef struct ipc_channel {
    lk_channel base;
    float *boxes;
    peer *peers; /* (size) */
    unsigned turn;
} ipc_channel;

/* Identifies the namespace in which process numbers are unique. */
static uint64_t process_space(void)
{
    char text[64] = "";
    unsigned long long number = 0;
    ssize_t length = readlink("/proc/self/ns/pid", text, sizeof text - 1);
    if (length > 0)
        (void)sscanf(text, "pid:[%llu]", &number);
    return number;
}

/* A GPU's id is unique in the world, so ranks of two hosts differ. */
static lk_status ipc_device_id(lk_device *dev, char id[LK_CHANNEL_DEVICE_ID])
{
    LK_TRY(lk__cuda_channel_device_id(dev, id));
    size_t length = strlen(id);
    snprintf(id + length, LK_CHANNEL_DEVICE_ID - length, ", processes %llu", (unsigned long long)process_space());
    return LK_OK;
}

/* Not every driver can share memory between processes. */
static lk_status ipc_load(lk_device *dev)
{
    cudaIpcMemHandle_t handle;
    void *block;
    LK_TRY(lk__cuda_alloc_raw(dev, 1, "a trial of CUDA IPC", &block));
    cudaError_t error = cudaIpcGetMemHandle(&handle, block);
    lk__cuda_free(dev, block);
    return lk__cuda_status(dev, error, "lending memory to other processes");
}

/* Two ranks of one process map the same memory of another process. The driver counts mappings, but fails if two threads
 * map the same memory at the same time. */
static pthread_mutex_t mapping = PTHREAD_MUTEX_INITIALIZER;

static cudaError_t map_memory(cudaIpcMemHandle_t handle, void **at)
{
    pthread_mutex_lock(&mapping);
    cudaError_t error = cudaIpcOpenMemHandle(at, handle, cudaIpcMemLazyEnablePeerAccess);
    pthread_mutex_unlock(&mapping);
    return error;
}

static void unmap_memory(const void *at)
{
    pthread_mutex_lock(&mapping);
    (void)cudaIpcCloseMemHandle((void *)(uintptr_t)at);
    pthread_mutex_unlock(&mapping);
}

static void ipc_leave(lk_channel *channel)
{
    ipc_channel *ipc = (ipc_channel *)channel;
    (void)cudaSetDevice(channel->cuda->index);
    if (channel->stream)
        (void)cudaStreamSynchronize(channel->stream);
    for (int r = 0; ipc->peers && r < channel->opts.size; r++) {
        if (ipc->peers[r].mapped)
            unmap_memory(ipc->peers[r].boxes);
        ipc->peers[r].mapped = false;
    }
    channel->lost = true;
}

static void ipc_close(lk_channel *channel)
{
    ipc_channel *ipc = (ipc_channel *)channel;
    if (!ipc)
        return;
    ipc_leave(channel);
    lk__cuda_free(&channel->cuda->base, ipc->boxes);
    lk__mem_free(ipc->peers);
    lk__cuda_channel_fini(channel);
    lk__mem_free(ipc);
}

static size_t others(const ipc_channel *ipc)
{
    return ipc->base.opts.size > 1 ? (size_t)ipc->base.opts.size - 1 : 1;
}

static lk_status lend(ipc_channel *ipc, void *out)
{
    const lk_channel_opts *opts = &ipc->base.opts;
    lk_device *dev = &ipc->base.cuda->base;
    size_t stride = lk__size_round_up(lk__size_max(opts->most, 1), 64);
    lent mine = {.process = (uint64_t)getpid(), .stride = stride};
    LK_TRY(lk__cuda_alloc_raw(dev, LK_CHANNEL_OUTBOXES * others(ipc) * stride * sizeof(float), "data for other ranks",
                              (void **)&ipc->boxes));
    mine.at = (uint64_t)(uintptr_t)ipc->boxes;
    LK_TRY(lk__cuda_status(dev, cudaIpcGetMemHandle(&mine.handle, ipc->boxes), "lending memory to other processes"));
    memcpy(out, &mine, sizeof mine);
    return LK_OK;
}

static lk_status ipc_open(lk_device *dev, const lk_channel_opts *opts, void *key, lk_channel **out)
{
    ipc_channel *ipc;
    lk_status status;
    LK_TRY(LK_ALLOC(1, "a channel", &ipc));
    LK_TRY_GOTO(lk__cuda_channel_init(dev, opts, &ipc->base), close_channel);
    LK_TRY_GOTO(LK_ALLOC((size_t)opts->size, "ranks", &ipc->peers), close_channel);
    LK_TRY_GOTO(lend(ipc, key), close_channel);
    *out = &ipc->base;
    return LK_OK;

close_channel:
    ipc_close(&ipc->base);
    return status;
}

static lk_status borrow(ipc_channel *ipc, const lent *its, peer *p)
{
    void *at = (void *)(uintptr_t)its->at;
    p->stride = its->stride;
    if (its->process != (uint64_t)getpid()) {
        cudaError_t error = map_memory(its->handle, &at);
        LK_TRY(lk__cuda_status(&ipc->base.cuda->base, error, "mapping another rank's memory"));
        p->mapped = true;
    }
    p->boxes = at;
    return LK_OK;
}

static lk_status ipc_join(lk_channel *channel, const void *keys)
{
    ipc_channel *ipc = (ipc_channel *)channel;
    LK_TRY(lk__cuda_channel_use(channel));
    for (int r = 0; r < channel->opts.size; r++) {
        lent its;
        memcpy(&its, (const char *)keys + (size_t)r * LK_CHANNEL_KEY, sizeof its);
        LK_TRY(borrow(ipc, &its, &ipc->peers[r]));
    }
    return LK_OK;
}

/* Address of the next elements from one rank to another. */
static const float *next_in_box(const ipc_channel *ipc, int from, int to, size_t used)
{
    const peer *p = &ipc->peers[from];
    size_t box = ipc->turn % LK_CHANNEL_OUTBOXES * others(ipc) + (size_t)(to > from ? to - 1 : to);
    return p->boxes + box * p->stride + used;
}

/* Copies the sends of a list of moves into this rank's outbox, or the receives out of the peers' outboxes. */
static cudaError_t copy_moves(ipc_channel *ipc, const lk_channel_move *moves, int count, bool sends)
{
    cudaError_t error = cudaSuccess;
    int rank = ipc->base.opts.rank;
    for (int r = 0; r < ipc->base.opts.size; r++)
        ipc->peers[r].used = 0;
    for (int i = 0; i < count && error == cudaSuccess; i++) {
        const lk_channel_move *m = &moves[i];
        size_t *used = &ipc->peers[m->peer].used;
        if (m->send != sends)
            continue;
        float *box = (float *)(uintptr_t)next_in_box(ipc, sends ? rank : m->peer, sends ? m->peer : rank, *used);
        error = cudaMemcpyAsync(sends ? box : m->at, sends ? m->at : box, m->count * sizeof(float),
                                cudaMemcpyDeviceToDevice, ipc->base.stream);
        *used += m->count;
    }
    return error;
}

static lk_status ipc_move(lk_channel *channel, const lk_channel_move *moves, int count)
{
    LK_TRY(lk__cuda_channel_use(channel));
    cudaError_t error = copy_moves((ipc_channel *)channel, moves, count, true);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(channel->stream);
    return lk__cuda_status(&channel->cuda->base, error, "handing data out");
}

static lk_status ipc_take(lk_channel *channel, const lk_channel_move *moves, int count)
{
    ipc_channel *ipc = (ipc_channel *)channel;
    LK_TRY(lk__cuda_channel_use(channel));
    cudaError_t error = copy_moves(ipc, moves, count, false);
    ipc->turn++;
    return lk__cuda_status(&channel->cuda->base, error, "taking data in");
}

/* All work under way is this rank's own and ends by itself. */
static void ipc_give_up(lk_channel *channel)
{
    channel->lost = true;
}

const lk_channel_type lk__cuda_channel_ipc = {
    .name = "ipc",
    .title = "CUDA IPC",
    .one_device = true,
    .device_id = ipc_device_id,
    .load = ipc_load,
    .open = ipc_open,
    .join = ipc_join,
    .leave = ipc_leave,
    .close = ipc_close,
    .follow = lk__cuda_channel_follow,
    .move = ipc_move,
    .take = ipc_take,
    .add = lk__cuda_channel_add,
    .mark = lk__cuda_channel_mark,
    .lead = lk__cuda_channel_lead,
    .reached = lk__cuda_channel_reached,
    .give_up = ipc_give_up,
};
