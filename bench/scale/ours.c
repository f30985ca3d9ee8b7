/* ours.c - runs the real schedules over the real MPI transport, for one simulated rank. */
#include "ours.h"

#include <stdio.h>
#include <stdlib.h>

#include <smpi/smpi.h>

#include "base/mem.h"
#include "comm/collective/group_impl.h"
#include "comm/mpi/load.h"
#include "smpi_table.h"
#include "tensor/device.h"

struct scale_ours {
    scale_ours_opts opts;
    lk_group *group;
};

/* Folds take this time; SMPI gives every rank a variable of its own. */
static double seconds_for_byte;

static void check(lk_status status)
{
    if (status == LK_OK)
        return;
    fprintf(stderr, "scale: %s\n", lk_error_detail());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void timed_reduce(lk_device *dev, lk_dtype dtype, lk_reduction op, size_t count, const void *a, const void *b,
                         void *out)
{
    (void)dev, (void)op, (void)a, (void)b, (void)out;
    scale_sleep((double)(count * lk_dtype_size(dtype)) * seconds_for_byte);
}

/* Copies inside a rank only happen where vectors overlap, and when a small frame arrives. */
static void no_copy(lk_device *dev, size_t bytes, const void *src, void *dst)
{
    (void)dev, (void)bytes, (void)src, (void)dst;
}

static lk_status shared_alloc(lk_device *dev, size_t bytes, const char *what, void **out)
{
    (void)dev;
    *out = scale_shared_alloc(bytes);
    return *out ? LK_OK : lk__fail_memory(bytes, what);
}

static void shared_free(lk_device *dev, void *block)
{
    (void)dev;
    scale_shared_free(block);
}

/* A device whose sums take time and do nothing. */
static lk_device *timed_device(void)
{
    static const lk_device_type type = {.name = "timed", .alloc = shared_alloc, .free = shared_free};
    static const lk_kernels kernels = {.reduce = timed_reduce, .copy_bytes = no_copy};
    static lk_device device = {.type = &type, .kernels = &kernels};
    return &device;
}

static lk_status exchange(void *arg, const void *mine, size_t bytes, void *all)
{
    (void)arg;
    MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
    return LK_OK;
}

static lk_status fine(void *arg)
{
    (void)arg;
    return LK_OK;
}

static void name_members(lk_group *group, int local)
{
    group->topology =
        (lk_schedule_topology){.size = group->size, .hosts = (group->size + local - 1) / local, .host = group->host};
    for (int r = 0; r < group->size; r++) {
        group->host[r] = r / local;
        group->members[r].host_key = (uint64_t)(r / local) + 1;
        group->members[r].pid = r + 1;
        snprintf(group->members[r].host, sizeof group->members[r].host, "host-%d", r / local);
    }
}

scale_ours *scale_ours_open(const scale_ours_opts *opts)
{
    scale_ours *ours = NULL;
    lk_group *group = NULL;
    size_t size = (size_t)opts->size;
    check(LK_ALLOC(1, "a simulated rank", &ours));
    check(LK_ALLOC(1, "a group", &group));
    *ours = (scale_ours){*opts, group};
    group->rank = opts->rank;
    group->size = opts->size;
    group->tail = &group->first;
    group->programs.room = 256;
    check(LK_ALLOC(size, "members", &group->members));
    check(LK_ALLOC(size, "hosts", &group->host));
    check(LK_ALLOC(2 * size, "pairs", &group->busy));
    name_members(group, opts->local);
    if (opts->fold_rate > 0) {
        seconds_for_byte = 1 / opts->fold_rate;
        group->device = timed_device();
    } else {
        check(lk__device_open("cpu", &(lk_device_opts){.threads = 1}, &group->device));
    }
    group->boot = (lk_boot){.rank = opts->rank,
                            .size = opts->size,
                            .members = group->members,
                            .timeout = 0, /* MPI starts in this thread: SMPI knows no other */
                            .exchange = exchange,
                            .check = fine};
    lk__mpi_use(scale_table());
    check(lk__transport_mpi.open(&group->boot, &group->transport));
    return ours;
}

void scale_ours_close(scale_ours *ours)
{
    lk_group *group = ours->group;
    group->transport->type->close(group->transport);
    while (group->made) {
        lk_request *request = group->made;
        group->made = request->made_next;
        lk__request_free(request);
    }
    lk__program_cache_fini(&group->programs);
    group->device->type->free(group->device, group->scratch);
    group->device->type->free(group->device, group->sums);
    if (ours->opts.fold_rate == 0)
        lk__device_close(group->device);
    lk__mem_free(group->members);
    lk__mem_free(group->host);
    lk__mem_free(group->busy);
    lk__mem_free(group);
    lk__mem_free(ours);
}

void scale_ours_start(scale_ours *ours, float *data, size_t count)
{
    lk_group *group = ours->group;
    lk_program_key key = {.kind = LK_CALL_KIND_ALLREDUCE, .element = sizeof *data, .count = count, .root = -1};
    lk_program_input input = {.topology = &group->topology, .rank = group->rank, .segments = ours->opts.direct};
    lk_program *program = NULL;
    lk_request *request = NULL;
    check(lk__program_find(&group->programs, &key, &input, &program));
    check(lk__request_create(group, program, &request));
    request->call = (lk_call){.number = group->calls++,
                              .kind = LK_CALL_KIND_ALLREDUCE,
                              .dtype = LK_DTYPE_F32,
                              .op = LK_REDUCTION_SUM,
                              .root = -1,
                              .count = count};
    request->op = LK_REDUCTION_SUM;
    request->out = (lk_request_window){(char *)data, 0, count};
    request->partials[0] = (const char *)data;
    request->record = group->history_count++;
    lk__executor_start(request);
}

bool scale_ours_poll(scale_ours *ours)
{
    lk_group *group = ours->group;
    bool moved = true;
    while (moved && group->first) {
        lk_request *request = group->first;
        moved = false;
        check(group->transport->type->progress(group->transport));
        check(lk__steps_run(request, &moved));
        if (!request->done)
            continue;
        group->first = request->next;
        group->tail = group->first ? group->tail : &group->first;
        lk__request_retire(request);
    }
    return group->first != NULL;
}

void scale_ours_wait(scale_ours *ours)
{
    scale_test_all(false);
    while (scale_ours_poll(ours))
        scale_wait();
    scale_test_all(true);
}
