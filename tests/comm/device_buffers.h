/* device_buffers.h - every collective call with buffers on a device, compared by their bits with the same call on host
 * memory. */
#ifndef LK_TESTS_COMM_DEVICE_BUFFERS_H
#define LK_TESTS_COMM_DEVICE_BUFFERS_H

#include "comm/harness.h"
#include "tensor/device.h"

enum { SMALL_COUNT = 2003, LARGE_COUNT = 3000017, ROOM = 2 }; /* elements; a buffer has ROOM vectors */

/* The buffers of a call: on a device, or in host memory. */
typedef struct side {
    lk_group *group;
    const char *name; /* NULL: host */
    lk_device *dev;
    float *in, *out; /* (ROOM * count) */
    size_t count;
} side;

static inline lk_buffer buffer_of(const side *s, float *at, size_t count)
{
    return (lk_buffer){at, count, LK_DTYPE_F32, s->name};
}

/* Device addresses are numbers: the test never reads them. */
static inline float *element(float *at, size_t index)
{
    return (float *)((uintptr_t)at + index * sizeof *at);
}

/* Counts that differ from rank to rank; the last rank has the rest. */
static inline void cut(const side *s, size_t counts[TEAM_MAX])
{
    size_t left = s->count;
    int size = lk_group_size(s->group);
    for (int r = 0; r < size; r++) {
        counts[r] = r == size - 1 ? left : left / (size_t)(2 + r);
        left -= counts[r];
    }
}

static inline size_t first_of(const size_t *counts, int rank)
{
    size_t first = 0;
    for (int r = 0; r < rank; r++)
        first += counts[r];
    return first;
}

static inline lk_status call_allreduce(const side *s, lk_request **request)
{
    return lk_allreduce(s->group, buffer_of(s, s->in, s->count), LK_REDUCTION_MEAN, request);
}

static inline lk_status call_reduce(const side *s, lk_request **request)
{
    return lk_reduce(s->group, buffer_of(s, s->in, s->count), LK_REDUCTION_SUM, lk_group_size(s->group) - 1, request);
}

static inline lk_status call_reduce_scatter(const side *s, lk_request **request)
{
    size_t counts[TEAM_MAX];
    cut(s, counts);
    return lk_reduce_scatter(s->group, buffer_of(s, s->in, s->count), counts, s->out, LK_REDUCTION_MAX, request);
}

/* The result is written over the own part of the input. */
static inline lk_status call_reduce_scatter_in_place(const side *s, lk_request **request)
{
    size_t counts[TEAM_MAX];
    cut(s, counts);
    return lk_reduce_scatter(s->group, buffer_of(s, s->in, s->count), counts,
                             element(s->in, first_of(counts, lk_group_rank(s->group))), LK_REDUCTION_SUM, request);
}

/* Rank r has 2 r + 1 shards. Its vectors start one element apart: inputs may overlap. */
static inline lk_status call_shards(const side *s, bool all, lk_request **request)
{
    int bounds[TEAM_MAX + 1] = {0}, rank = lk_group_rank(s->group), size = lk_group_size(s->group);
    const void *roots[LK_MAX_ROOTS];
    for (int r = 0; r < size; r++)
        bounds[r + 1] = bounds[r] + 2 * r + 1;
    int count = lk_shard_roots(bounds[size], bounds[rank], bounds[rank + 1], NULL);
    for (int i = 0; i < count; i++)
        roots[i] = element(s->in, (size_t)i % s->count);
    lk_shard_sums sums = {bounds, roots};
    lk_buffer out = buffer_of(s, s->out, s->count);
    return all ? lk_allreduce_shards(s->group, &sums, out, LK_REDUCTION_SUM, request)
               : lk_reduce_shards(s->group, &sums, out, LK_REDUCTION_MEAN, 0, request);
}

static inline lk_status call_allreduce_shards(const side *s, lk_request **request)
{
    return call_shards(s, true, request);
}

static inline lk_status call_reduce_shards(const side *s, lk_request **request)
{
    return call_shards(s, false, request);
}

static inline lk_status call_reduce_scatter_shards(const side *s, lk_request **request)
{
    int bounds[TEAM_MAX + 1], rank = lk_group_rank(s->group);
    size_t counts[TEAM_MAX];
    const void *roots[] = {s->in};
    cut(s, counts);
    for (int r = 0; r <= lk_group_size(s->group); r++)
        bounds[r] = r;
    lk_shard_sums sums = {bounds, roots};
    return lk_reduce_scatter_shards(s->group, &sums, counts, buffer_of(s, s->out, counts[rank]), LK_REDUCTION_SUM,
                                    request);
}

static inline lk_status call_broadcast(const side *s, lk_request **request)
{
    return lk_broadcast(s->group, buffer_of(s, s->in, s->count), lk_group_size(s->group) / 2, request);
}

static inline lk_status call_allgather(const side *s, lk_request **request)
{
    size_t counts[TEAM_MAX];
    cut(s, counts);
    return lk_allgather(s->group, buffer_of(s, s->in, counts[lk_group_rank(s->group)]), counts, s->out, request);
}

static inline lk_status call_allgather_in_place(const side *s, lk_request **request)
{
    size_t counts[TEAM_MAX];
    int rank = lk_group_rank(s->group);
    cut(s, counts);
    return lk_allgather(s->group, buffer_of(s, element(s->out, first_of(counts, rank)), counts[rank]), counts, s->out,
                        request);
}

static inline lk_status call_gather(const side *s, lk_request **request)
{
    size_t counts[TEAM_MAX];
    cut(s, counts);
    return lk_gather(s->group, buffer_of(s, s->in, counts[lk_group_rank(s->group)]), counts, s->out, 0, request);
}

static inline lk_status call_scatter(const side *s, lk_request **request)
{
    size_t counts[TEAM_MAX];
    cut(s, counts);
    return lk_scatter(s->group, s->in, counts, buffer_of(s, s->out, counts[lk_group_rank(s->group)]), 0, request);
}

static inline lk_status call_alltoall(const side *s, lk_request **request)
{
    size_t size = (size_t)lk_group_size(s->group), all = s->count / size * size;
    return lk_alltoall(s->group, buffer_of(s, s->in, all), NULL, buffer_of(s, s->out, all), NULL, request);
}

/* A message to the next rank; the last one goes nowhere. */
static inline lk_status call_message(const side *s, lk_request **request)
{
    int rank = lk_group_rank(s->group), peer = rank ^ 1;
    if (peer >= lk_group_size(s->group))
        return lk_barrier(s->group, request);
    lk_status status = rank % 2 ? lk_send(s->group, buffer_of(s, s->in, s->count), peer, NULL)
                                : lk_recv(s->group, buffer_of(s, s->out, s->count), peer, NULL);
    return status == LK_OK ? lk_barrier(s->group, request) : status;
}

static inline lk_status call_ring(const side *s, lk_request **request)
{
    int rank = lk_group_rank(s->group), size = lk_group_size(s->group);
    LK_TRY(lk_sendrecv(s->group, buffer_of(s, s->in, s->count), (rank + 1) % size, buffer_of(s, s->out, s->count),
                       (rank + size - 1) % size));
    return lk_barrier(s->group, request);
}

static inline void fill_side(const side *s, float *scratch)
{
    size_t bytes = ROOM * s->count * sizeof *scratch;
    for (size_t i = 0; i < ROOM * s->count; i++)
        scratch[i] = 1.0f / (float)(1 + (i * 7 + 31 * (size_t)lk_group_rank(s->group)) % 9973);
    for (int i = 0; i < 2; i++) {
        void *to = i ? s->out : s->in;
        if (s->dev)
            CHECK_OK(s->dev->type->upload(s->dev, scratch, bytes, to));
        else
            memcpy(to, scratch, bytes);
    }
    if (s->dev)
        CHECK_OK(s->dev->type->sync(s->dev));
}

static inline void compare(const side *host, const side *device, float *scratch)
{
    size_t bytes = ROOM * host->count * sizeof *scratch;
    CHECK_OK(device->dev->type->download(device->dev, device->in, bytes, scratch));
    CHECK(memcmp(scratch, host->in, bytes) == 0);
    CHECK_OK(device->dev->type->download(device->dev, device->out, bytes, scratch));
    CHECK(memcmp(scratch, host->out, bytes) == 0);
}

typedef lk_status (*side_call)(const side *s, lk_request **request);

/* Blocks in the call, waits for the request in one of three ways. */
static inline void run_call(side_call call, const side *s, int way)
{
    lk_request *request = NULL;
    size_t index = 1;
    bool done = false;
    CHECK_OK(call(s, way == 0 ? NULL : &request));
    if (way == 1)
        CHECK_OK(lk_request_wait(request));
    while (way == 2 && !done)
        CHECK_OK(lk_request_test(request, &done));
    if (way == 3) {
        CHECK_OK(lk_request_wait_any(&request, 1, &index));
        CHECK(index == 0 && !request);
    }
}

static const side_call side_calls[] = {
    call_allreduce,
    call_reduce,
    call_reduce_scatter,
    call_reduce_scatter_in_place,
    call_allreduce_shards,
    call_reduce_shards,
    call_reduce_scatter_shards,
    call_broadcast,
    call_allgather,
    call_allgather_in_place,
    call_gather,
    call_scatter,
    call_alltoall,
    call_message,
    call_ring,
};

static inline void open_side(side *s)
{
    size_t bytes = ROOM * s->count * sizeof *s->in;
    void *in = NULL, *out = NULL;
    CHECK_OK(lk__device_open(s->name ? s->name : "cpu", &(lk_device_opts){.threads = 1}, &s->dev));
    CHECK_OK(s->dev->type->alloc(s->dev, bytes, "in", &in));
    CHECK_OK(s->dev->type->alloc(s->dev, bytes, "out", &out));
    s->in = in;
    s->out = out;
}

static inline void close_side(side *s)
{
    s->dev->type->free(s->dev, s->in);
    s->dev->type->free(s->dev, s->out);
    lk__device_close(s->dev);
}

/* All calls in a group, with vectors of `count` floats on the device of that name. */
static inline void try_device(lk_group *group, const char *name, size_t count, size_t calls)
{
    side host = {.group = group, .count = count}, device = {.group = group, .name = name, .count = count};
    float *scratch = malloc(ROOM * count * sizeof *scratch);
    CHECK(scratch);
    open_side(&host);
    open_side(&device);
    for (size_t i = 0; i < calls; i++) {
        for (int way = 0; way < 4; way++) {
            fill_side(&host, scratch);
            fill_side(&device, scratch);
            CHECK_OK(side_calls[i](&host, NULL));
            run_call(side_calls[i], &device, way);
            compare(&host, &device, scratch);
        }
    }
    close_side(&device);
    close_side(&host);
    free(scratch);
}

/* Two calls under way at once, and buffers on both sides of one call. */
static inline void try_mixed(lk_group *group, const char *name)
{
    enum { COUNT = 1009 };
    side device = {.group = group, .name = name, .count = COUNT};
    static _Thread_local float host[COUNT], scratch[ROOM * COUNT];
    lk_request *requests[2];
    int size = lk_group_size(group);
    open_side(&device);
    fill_side(&device, scratch);
    CHECK_OK(lk_allreduce(group, buffer_of(&device, device.in, COUNT), LK_REDUCTION_SUM, &requests[0]));
    CHECK_OK(lk_allreduce(group, buffer_of(&device, device.out, COUNT), LK_REDUCTION_SUM, &requests[1]));
    CHECK_OK(lk_request_wait_all(requests, 2));
    CHECK_OK(lk_sendrecv(group, buffer_of(&device, device.in, COUNT), lk_group_rank(group),
                         (lk_buffer){host, COUNT, LK_DTYPE_F32}, lk_group_rank(group)));
    CHECK_OK(device.dev->type->download(device.dev, device.out, sizeof host, scratch));
    CHECK(memcmp(host, scratch, sizeof host) == 0);
    size_t all = COUNT / (size_t)size * (size_t)size;
    CHECK_OK(lk_alltoall(group, (lk_buffer){host, all, LK_DTYPE_F32}, NULL, buffer_of(&device, device.out, all), NULL,
                         NULL));
    CHECK_OK(device.dev->type->download(device.dev, device.out, all * sizeof *host, scratch));
    for (int r = 0; r < size; r++)
        CHECK(memcmp(scratch + all / (size_t)size * (size_t)r, host + all / (size_t)size * (size_t)lk_group_rank(group),
                     all / (size_t)size * sizeof *host) == 0);
    close_side(&device);
}

#endif
