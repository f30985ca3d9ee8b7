/* group.c - creates, splits and destroys groups; their history. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/forks.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/thread.h"
#include "comm/collective/argument.h"
#include "comm/collective/group_impl.h"
#include "comm/collective/progress.h"
#include "comm/detect/task.h"
#include "comm/transport/tcp.h"
#include "tensor/device.h"

void lk_group_abort(lk_group *group, const char *reason)
{
    if (lk__argument_group(group, "lk_group_abort") != LK_OK)
        return;
    lk__progress_take(group);
    (void)lk__group_break(group, lk__fail(LK_STATUS_PEER, "rank %d gave up: %s", lk__group_job_rank(group, group->rank),
                                          reason ? reason : "for no reason given"));
    lk__progress_give(group);
}

lk_status lk_group_poll(lk_group *group)
{
    LK_TRY(lk__argument_group(group, "lk_group_poll"));
    lk__progress_take(group);
    lk_status status = lk__executor_poll(group);
    lk__progress_give(group);
    return status;
}

static lk_status allocate(lk_control *control, int size, lk_group **out)
{
    lk_group *group = NULL;
    size_t n = (size_t)size;
    lk_status status;
    LK_TRY(LK_ALLOC(1, "a group", &group));
    group->control = control;
    group->size = size;
    group->forks = lk__forks();
    group->tail = &group->first;
    LK_TRY_GOTO(LK_ALLOC(n, "members of a group", &group->members), destroy_group);
    LK_TRY_GOTO(LK_ALLOC(n, "hosts of a group", &group->host), destroy_group);
    LK_TRY_GOTO(LK_ALLOC(n, "messages of a group", &group->sent_count), destroy_group);
    LK_TRY_GOTO(LK_ALLOC(n, "messages of a group", &group->recv_count), destroy_group);
    LK_TRY_GOTO(LK_ALLOC(n, "ranks of a group", &group->parent_ranks), destroy_group);
    /* The first half is for peers of a phase, the second for pairs with a message under way. */
    LK_TRY_GOTO(LK_ALLOC(2 * n, "pairs of a group", &group->busy), destroy_group);
    LK_TRY_GOTO(LK_ALLOC((size_t)lk__control_size(control), "ranks of the job", &group->absent), destroy_group);
    LK_TRY_GOTO(lk__device_open("cpu", &(lk_device_opts){.threads = 1}, &group->device), destroy_group);
    *out = group;
    return LK_OK;
destroy_group:
    group->control = NULL;
    lk_group_destroy(group);
    return status;
}

/* Ranks count as one host if the transport lets them share memory. */
static void find_hosts(lk_group *group)
{
    bool alone = group->transport->type == &lk__transport_tcp;
    bool one = group->transport->type == &lk__transport_inproc;
    group->topology = (lk_schedule_topology){.size = group->size, .host = group->host};
    for (int r = 0; r < group->size; r++) {
        int same = 0;
        while (same < r && !one && (alone || group->members[same].host_key != group->members[r].host_key))
            same++;
        group->host[r] = same < r ? group->host[same] : group->topology.hosts++;
    }
    for (int r = 0; r < group->size; r++) {
        if (!lk_group_is_local(group, r))
            continue;
        group->local_rank += r < group->rank;
        group->local_size++;
    }
}

static lk_status boot_check(void *arg)
{
    lk_group *group = arg;
    return lk__control_check(group->control);
}

static lk_status open_transport(lk_group *group, const lk_transport_type *type)
{
    group->boot.rank = group->rank;
    group->boot.size = group->size;
    group->boot.members = group->members;
    group->boot.group = group->id;
    group->boot.token = *lk__control_token(group->control);
    group->boot.timeout = lk__control_timeout(group->control);
    group->boot.check = boot_check;
    group->boot.world = group->whole->world;
    group->boot.arg = group;
    group->opened_as = type;
    LK_TRY(type->open(&group->boot, &group->transport));
    find_hosts(group);
    return LK_OK;
}

/* From here on the group's requests advance whenever any group of the job waits. */
static void join_family(lk_group *group)
{
    group->sibling = group->whole->family;
    group->whole->family = group;
}

static bool move_family(void *arg)
{
    bool moved = false;
    return lk__executor_move_others(arg, NULL, &moved);
}

static lk_status job_exchange(void *arg, const void *mine, size_t bytes, void *all)
{
    lk_group *group = arg;
    return lk__control_exchange(group->control, mine, bytes, all);
}

/* Collective. MISMATCH if a rank has another transport than rank 0. */
static lk_status agree_transport(lk_group *group, const lk_transport_type *type)
{
    char mine[16] = "", *all = NULL;
    if (group->size == 1)
        return LK_OK;
    snprintf(mine, sizeof mine, "%s", type->name);
    LK_TRY(LK_ALLOC((size_t)group->size * sizeof mine, "names of transports", &all));
    lk_status status = job_exchange(group, mine, sizeof mine, all);
    for (int r = 1; r < group->size && status == LK_OK; r++) {
        const char *name = all + (size_t)r * sizeof mine;
        if (memcmp(name, all, sizeof mine) != 0)
            status = lk__fail(LK_STATUS_MISMATCH,
                              "rank %d has `backend` %.15s, rank 0 has `backend` %.15s: give all ranks the same", r,
                              name, all);
    }
    lk__mem_free(all);
    return status;
}

/* A job that is being made. */
typedef struct new_job {
    lk_control *control;
    lk_mpi_world *world; /* NULL: none */
    const lk_transport_type *type;
    bool progress_thread;
} new_job;

/* Makes the group of all ranks of a job. Takes control and world over, also when it fails. */
static lk_status create_job(const new_job *job, lk_group **out)
{
    lk_group *group = NULL;
    lk_control *control = job->control;
    lk_tcp_checksum unused; /* only tcp uses it, but an unknown word is an error with every transport */
    lk_status status = allocate(control, lk__control_size(control), &group);
    if (status != LK_OK) {
        lk__control_abort(control, status, lk_error_detail());
        lk__control_destroy(control);
        lk__mpi_world_close(job->world, true);
        return status;
    }
    group->whole = group;
    group->world = job->world;
    group->boot.progress = job->progress_thread;
    group->rank = lk__control_rank(control);
    memcpy(group->members, lk__control_members(control), (size_t)group->size * sizeof *group->members);
    group->boot.exchange = job_exchange;
    LK_TRY_GOTO(lk__tcp_checksum(&unused), destroy_group);
    LK_TRY_GOTO(agree_transport(group, job->type), destroy_group);
    LK_TRY_GOTO(open_transport(group, job->type), destroy_group);
    join_family(group);
    lk__control_set_idle(control, move_family, group);
    if (job->progress_thread)
        LK_TRY_GOTO(lk__progress_create(group, &group->progress), destroy_group);
    *out = group;
    return LK_OK;
destroy_group:
    (void)lk__group_break(group, status);
    lk_group_destroy(group);
    return status;
}

/* Sets the rank of this thread, and of the process, for faults on request. */
static void set_fault_rank(int rank, bool of_process)
{
    lk_fault_site site = lk__fault_site();
    if (of_process)
        lk__fault_set_process(rank);
    site.rank = rank;
    lk__fault_set_site(site);
}

static lk_status prepare_job(const lk_group_opts *opts, new_job *job)
{
    LK_TRY(lk__fault_load());
    LK_TRY(lk__progress_wanted(opts, &job->progress_thread));
    LK_TRY(lk__transport_find(lk__task_backend(opts->backend), &job->type));
    return lk__control_join(opts, job->world, &job->control);
}

lk_status lk__group_join(const lk_group_opts *opts, lk_mpi_world *world, lk_group **out)
{
    new_job job = {.world = world};
    lk_status status = prepare_job(opts, &job);
    if (status != LK_OK) {
        lk__mpi_world_close(world, true);
        return status;
    }
    set_fault_rank(lk__control_rank(job.control), opts->thread == 0);
    return create_job(&job, out);
}

lk_status lk_group_join(const lk_group_opts *opts, lk_group **out)
{
    static const lk_group_opts defaults;
    LK_TRY(lk__argument_set(out, "out", "lk_group_join"));
    opts = opts ? opts : &defaults;
    LK_TRY(LK_CLEAR(opts, "lk_group_opts"));
    return lk__group_join(opts, NULL, out);
}

/* All ranks must open the transport at the same time, so each has a thread for it. */
typedef struct rank_opening {
    pthread_t thread;
    lk_control *control;
    bool progress_thread;
    lk_group *group;
    lk_status status;
    char *detail;
} rank_opening;

static void *open_rank(void *arg)
{
    rank_opening *opening = arg;
    set_fault_rank(lk__control_rank(opening->control), false);
    new_job job = {
        .control = opening->control, .type = &lk__transport_inproc, .progress_thread = opening->progress_thread};
    opening->status = create_job(&job, &opening->group);
    if (opening->status != LK_OK)
        opening->detail = strdup(lk_error_detail());
    return NULL;
}

/* The caller's thread opens rank 0. If a thread cannot be started, the job is aborted. */
static lk_status open_ranks(rank_opening *ranks, int count)
{
    int started = 1;
    lk_status status = LK_OK;
    while (started < count && lk__thread_create(&ranks[started].thread, open_rank, &ranks[started]) == 0)
        started++;
    if (started < count) {
        status = lk__fail(LK_STATUS_MEMORY, "no thread could be started for rank %d of %d", started, count);
        lk__control_abort(ranks[0].control, status, lk_error_detail());
        for (int r = started; r < count; r++)
            lk__control_destroy(ranks[r].control);
    }
    open_rank(&ranks[0]);
    for (int r = 1; r < started; r++)
        pthread_join(ranks[r].thread, NULL);
    for (int r = 0; r < started && status == LK_OK; r++)
        if (ranks[r].status != LK_OK)
            status = lk__fail(ranks[r].status, "%s", ranks[r].detail ? ranks[r].detail : "out of memory");
    return status;
}

lk_status lk_group_create_threads(int count, const lk_group_opts *opts, lk_group **out)
{
    static const lk_group_opts defaults;
    lk_control **controls = NULL;
    rank_opening *ranks = NULL;
    bool progress_thread = false;
    lk_status status;
    LK_TRY(lk__argument_set(out, "out", "lk_group_create_threads"));
    opts = opts ? opts : &defaults;
    LK_TRY(LK_CLEAR(opts, "lk_group_opts"));
    if (count < 1 || count > LK_MAX_RANKS)
        return lk__fail(LK_STATUS_USAGE, "a group has 1 to %d ranks, not %d", LK_MAX_RANKS, count);
    LK_TRY(lk__fault_load());
    LK_TRY(lk__progress_wanted(opts, &progress_thread));
    LK_TRY(LK_ALLOC((size_t)count, "controls of thread ranks", &controls));
    LK_TRY_GOTO(LK_ALLOC((size_t)count, "thread ranks", &ranks), free_controls);
    LK_TRY_GOTO(lk__control_threads(count, opts, controls), free_ranks);
    for (int r = 0; r < count; r++)
        ranks[r] = (rank_opening){.control = controls[r], .progress_thread = progress_thread};
    status = open_ranks(ranks, count);
    for (int r = 0; r < count; r++) {
        free(ranks[r].detail);
        if (status == LK_OK)
            out[r] = ranks[r].group;
        else
            lk_group_destroy(ranks[r].group);
    }
free_ranks:
    lk__mem_free(ranks);
free_controls:
    lk__mem_free(controls);
    return status;
}

typedef struct split_choice {
    int32_t colour, key;
} split_choice;

/* Writes the parent's ranks with that colour, ordered by key, then by rank. Returns their count. */
static int find_part(const split_choice *choices, int size, int32_t colour, int *ranks)
{
    int count = 0;
    for (int r = 0; r < size; r++) {
        if (choices[r].colour != colour)
            continue;
        int at = count++;
        for (; at > 0 && choices[ranks[at - 1]].key > choices[r].key; at--)
            ranks[at] = ranks[at - 1];
        ranks[at] = r;
    }
    return count;
}

/* Exchanges bytes between the members of a part by messages of the parent: the part's first rank collects and
 * distributes them. */
static lk_status part_exchange(void *arg, const void *mine, size_t bytes, void *all)
{
    lk_group *part = arg;
    lk_group *parent = part->parent;
    lk_buffer whole = {all, bytes * (size_t)part->size, LK_DTYPE_U8};
    if (part->rank != 0) {
        lk_buffer own = {(void *)(uintptr_t)mine, bytes, LK_DTYPE_U8};
        LK_TRY(lk_send(parent, own, part->parent_ranks[0], NULL));
        return lk_recv(parent, whole, part->parent_ranks[0], NULL);
    }
    memcpy(all, mine, bytes);
    for (int r = 1; r < part->size; r++) {
        lk_buffer theirs = {(char *)all + bytes * (size_t)r, bytes, LK_DTYPE_U8};
        LK_TRY(lk_recv(parent, theirs, part->parent_ranks[r], NULL));
    }
    for (int r = 1; r < part->size; r++)
        LK_TRY(lk_send(parent, whole, part->parent_ranks[r], NULL));
    return LK_OK;
}

static lk_status create_part(lk_group *parent, const split_choice *choices, int *ranks, lk_group **out)
{
    int32_t colour = choices[parent->rank].colour;
    int count = find_part(choices, parent->size, colour, ranks);
    uint32_t name[] = {parent->id, parent->parts, (uint32_t)colour};
    lk_group *part = NULL;
    lk_status status = allocate(parent->control, count, &part);
    if (status != LK_OK)
        return lk__group_break(parent, status);
    part->parent = parent;
    part->whole = parent->whole;
    part->id = (uint32_t)lk__hash(name, sizeof name, 0) | 1;
    part->boot.exchange = part_exchange;
    for (int r = 0; r < count; r++) {
        part->parent_ranks[r] = ranks[r];
        part->members[r] = parent->members[ranks[r]];
        if (ranks[r] == parent->rank)
            part->rank = r;
    }
    status = open_transport(part, parent->opened_as);
    if (status != LK_OK) {
        (void)lk__group_break(parent, status);
        lk_group_destroy(part);
        return status;
    }
    join_family(part);
    *out = part;
    return LK_OK;
}

lk_status lk_group_split(lk_group *parent, int colour, int key, lk_group **out)
{
    split_choice mine = {colour < 0 ? -1 : colour, key};
    split_choice *choices = NULL;
    int *ranks = NULL;
    lk_group *part = NULL;
    lk_status status;
    LK_TRY(LK_GIVEN(parent));
    LK_TRY(lk__argument_group(parent, "lk_group_split"));
    LK_TRY(lk__argument_set(out, "out", "lk_group_split"));
    lk__progress_take(parent);
    /* The other ranks may be in this call already, so a failure must reach them. */
    status = LK_ALLOC((size_t)parent->size, "colours of the ranks", &choices);
    if (status == LK_OK)
        status = LK_ALLOC((size_t)parent->size, "ranks of a part", &ranks);
    if (status != LK_OK) {
        status = lk__group_break(parent, status);
        goto free_ranks;
    }
    LK_TRY_GOTO(lk_allgather(parent, (lk_buffer){&mine, 2, LK_DTYPE_I32}, NULL, choices, NULL), free_ranks);
    parent->parts++;
    if (mine.colour >= 0)
        LK_TRY_GOTO(create_part(parent, choices, ranks, &part), free_ranks);
    *out = part;
free_ranks:
    lk__progress_give(parent);
    lk__mem_free(ranks);
    lk__mem_free(choices);
    return status;
}

static void leave_family(lk_group *group)
{
    lk_group **link = group->whole ? &group->whole->family : NULL;
    while (link && *link) {
        if (*link == group)
            *link = group->sibling;
        else
            link = &(*link)->sibling;
    }
}

/* Marks the remaining parts as failed. They can only be destroyed. */
static void orphan_parts(lk_group *whole)
{
    while (whole->family) {
        lk_group *part = whole->family;
        whole->family = part->sibling;
        if (part->broken == LK_OK)
            part->reason = strdup("the group that this one is a part of was destroyed");
        part->broken = LK_STATUS_USAGE;
        lk__group_fail_requests(part);
        part->parent = NULL;
        part->whole = part;
        part->sibling = NULL;
        part->control = NULL;
    }
}

/* Takes the group out of its job, and fails what is still under way. The thread ends first, as it uses the
 * group of the whole job. */
static void leave(lk_group *group)
{
    lk_group *whole = group->whole;
    if (!group->parent) {
        lk__progress_destroy(group->progress);
        group->progress = NULL;
    }
    if (whole)
        lk__progress_take(whole);
    leave_family(group);
    if (!group->parent)
        orphan_parts(group);
    /* Peers may still read memory of requests under way. */
    if (group->first)
        lk__group_fail_requests(group);
    if (whole)
        lk__progress_give(whole);
}

/* A forked child must not close connections of its parent's job or read from them. */
void lk_group_destroy(lk_group *group)
{
    if (!group || group->forks != lk__forks())
        return;
    leave(group);
    if (group->transport)
        group->transport->type->close(group->transport);
    if (!group->parent)
        lk__control_destroy(group->control);
    lk__mpi_world_close(group->world, group->broken != LK_OK);
    while (group->made) {
        lk_request *request = group->made;
        group->made = request->made_next;
        lk__request_free(request);
    }
    lk__program_cache_fini(&group->programs);
    lk__device_copies_fini(&group->device_copies);
    for (size_t i = 0; i < group->block_count; i++)
        lk__mem_free(group->blocks[i]);
    free(group->blocks);
    if (group->device) {
        group->device->type->free(group->device, group->scratch);
        group->device->type->free(group->device, group->sums);
    }
    lk__device_close(group->device);
    lk__mem_free(group->members);
    lk__mem_free(group->host);
    lk__mem_free(group->sent_count);
    lk__mem_free(group->recv_count);
    lk__mem_free(group->parent_ranks);
    lk__mem_free(group->busy);
    lk__mem_free(group->absent);
    free(group->reason);
    lk__mem_free(group);
}

int lk_group_rank(const lk_group *group)
{
    return group ? group->rank : 0;
}

int lk_group_size(const lk_group *group)
{
    return group ? group->size : 0;
}

int lk_group_local_rank(const lk_group *group)
{
    return group ? group->local_rank : 0;
}

int lk_group_local_size(const lk_group *group)
{
    return group ? group->local_size : 0;
}

const char *lk_group_host(const lk_group *group, int rank)
{
    return group && rank >= 0 && rank < group->size ? group->members[rank].host : "";
}

bool lk_group_is_local(const lk_group *group, int rank)
{
    if (!group || rank < 0 || rank >= group->size)
        return false;
    return group->transport->type == &lk__transport_inproc ||
           group->members[rank].host_key == group->members[group->rank].host_key;
}

double lk_group_timeout(const lk_group *group)
{
    return group ? group->boot.timeout : 0;
}

const char *lk_group_transport(const lk_group *group)
{
    return group ? group->transport->type->name : "";
}

static size_t record_line(const lk_call_record *record, double now, char *text, size_t bytes)
{
    char call[LK_CALL_TEXT], peer[32] = "";
    if (record->peer >= 0)
        snprintf(peer, sizeof peer, " with rank %d", record->peer);
    const char *state = record->end == 0 ? "under way for" : record->failed ? "failed after" : "done in";
    double end = record->end == 0 ? now : record->end, seconds = record->begin == 0 ? 0 : end - record->begin;
    int used =
        snprintf(text, bytes, "%s%s: %s %.3f ms\n", lk__call_text(&record->call, call), peer, state, 1e3 * seconds);
    return used > 0 ? (size_t)used : 0;
}

size_t lk_group_history(const lk_group *group, char *text, size_t bytes)
{
    if (!group || (!text && bytes > 0))
        return 0;
    size_t begin = group->history_count > LK_HISTORY ? group->history_count - LK_HISTORY : 0;
    size_t used = 0;
    double now = lk__clock();
    if (bytes > 0)
        *text = 0;
    lk__progress_take(group);
    for (size_t i = begin; i < group->history_count; i++) {
        size_t room = used < bytes ? bytes - used : 0;
        used += record_line(&group->history[i % LK_HISTORY], now, room ? text + used : NULL, room);
    }
    lk__progress_give(group);
    return used + 1;
}
