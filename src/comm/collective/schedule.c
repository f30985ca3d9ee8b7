/* schedule.c - the building blocks of all schedules: segments, phases, moves, and the subtrees that ranks
 * hold at each level. */
#include "comm/collective/schedule.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/tree.h"
#include "comm/collective/schedule_build.h"

/* Segments begin at multiples of this many elements: whole cache lines for most types, so that two ranks do
 * not write to the same line. */
enum { GRAIN = 32 };

lk_span lk__span_segment(size_t count, int parts, int i)
{
    size_t grain = count / GRAIN >= (size_t)parts ? GRAIN : 1;
    size_t begin = lk__shard_begin(count / grain, parts, i) * grain;
    size_t end = i + 1 == parts ? count : lk__shard_begin(count / grain, parts, i + 1) * grain;
    return (lk_span){begin, end - begin};
}

/* Rounding adds at most one grain to an even part, and the remainder is less than one grain. */
size_t lk__schedule_segment_most(size_t count, int parts)
{
    return lk__size_round_up(count / (size_t)parts, GRAIN) + 2 * GRAIN;
}

void lk__schedule_fini(lk_schedule *schedule)
{
    for (int i = 0; i < schedule->phase_count; i++) {
        lk__mem_free(schedule->phases[i].sends);
        lk__mem_free(schedule->phases[i].recvs);
    }
    *schedule = (lk_schedule){0};
}

void lk__builder_init(lk_builder *build, const lk_schedule_topology *topology, int rank)
{
    assert(0 <= rank && rank < topology->size);
    *build = (lk_builder){.topology = topology, .rank = rank, .schedule.senders = topology->size};
}

void lk__builder_hosts(lk_builder *build)
{
    const lk_schedule_topology *topology = build->topology;
    size_t size = (size_t)topology->size;
    build->status = LK_ALLOC(size + (size_t)topology->hosts, "a schedule", &build->local);
    if (build->status != LK_OK)
        return;
    build->local_size = build->local + size;
    for (int r = 0; r < topology->size; r++)
        build->local[r] = build->local_size[topology->host[r]]++;
    int least = topology->size, most = 0;
    for (int h = 0; h < topology->hosts; h++) {
        int ranks = build->local_size[h];
        least = ranks < least ? ranks : least;
        most = ranks > most ? ranks : most;
    }
    build->rails = least;
    build->most_local = most;
    build->flat = topology->hosts == 1 || most == 1;
}

lk_status lk__builder_finish(lk_builder *build, lk_schedule *out)
{
    lk__mem_free(build->local);
    if (build->status == LK_OK)
        *out = build->schedule;
    else
        lk__schedule_fini(&build->schedule);
    return build->status;
}

static void begin_phase(lk_builder *build, lk_schedule_phase phase)
{
    assert(build->schedule.phase_count < LK_MAX_PHASES);
    build->phase = &build->schedule.phases[build->schedule.phase_count++];
    *build->phase = phase;
}

void lk__builder_copy(lk_builder *build)
{
    begin_phase(build, (lk_schedule_phase){.kind = LK_SCHEDULE_PHASE_KIND_COPY});
}

void lk__builder_fold(lk_builder *build, int level, int level_out, lk_span keep)
{
    begin_phase(build, (lk_schedule_phase){
                           .kind = LK_SCHEDULE_PHASE_KIND_FOLD, .level = level, .level_out = level_out, .keep = keep});
}

/* The capacity is 4, and doubles whenever the count is a larger power of two. */
static lk_status push(lk_schedule_move **moves, int *count, lk_schedule_move move)
{
    int used = *count;
    if (used == 0 || (used >= 4 && (used & (used - 1)) == 0)) {
        lk_schedule_move *more;
        LK_TRY(LK_ALLOC(used ? 2 * (size_t)used : 4, "a schedule", &more));
        if (used)
            memcpy(more, *moves, (size_t)used * sizeof *more);
        lk__mem_free(*moves);
        *moves = more;
    }
    (*moves)[used] = move;
    *count = used + 1;
    return LK_OK;
}

void lk__builder_send(lk_builder *build, int peer, lk_span span, bool empty)
{
    if ((span.count || empty) && build->status == LK_OK)
        build->status = push(&build->phase->sends, &build->phase->send_count, (lk_schedule_move){peer, span});
}

void lk__builder_recv(lk_builder *build, int peer, lk_span span, bool empty)
{
    if ((span.count || empty) && build->status == LK_OK)
        build->status = push(&build->phase->recvs, &build->phase->recv_count, (lk_schedule_move){peer, span});
}

int lk_shard_roots(int shards, int first, int last, int *begin)
{
    static_assert((int)LK_MAX_ROOTS >= LK_TREE_MAX_DEPTH, "begin has room for every root");
    if (shards < 1 || shards > LK_MAX_SHARDS || first < 0 || first > last || last > shards)
        return -1;
    return lk__tree_roots(shards, first, last, begin);
}

/* Appends the maximal subtrees of [first,last) after `count` entries. Returns the new count, or -1 if there
 * is no room. */
static int add_subtrees(int shards, int first, int last, lk_schedule_subtree *out, int count, int room)
{
    int begin[LK_TREE_MAX_DEPTH];
    int roots = lk__tree_roots(shards, first, last, begin);
    if (roots > room - count)
        return -1;
    for (int i = 0; i < roots; i++)
        out[count + i] = (lk_schedule_subtree){begin[i], i + 1 < roots ? begin[i + 1] : last};
    return count + roots;
}

int lk__schedule_subtrees(const lk_schedule_topology *topology, const int *bounds, int level, int rank,
                          lk_schedule_subtree *out, int room)
{
    int shards = bounds[topology->size], height = level > LK_SCHEDULE_LEVEL_BLOCK ? level - LK_SCHEDULE_LEVEL_BLOCK : 0;
    if (level == LK_SCHEDULE_LEVEL_ALL)
        return add_subtrees(shards, 0, shards, out, 0, room);
    if (level == LK_SCHEDULE_LEVEL_RANK)
        return add_subtrees(shards, bounds[rank], bounds[rank + 1], out, 0, room);
    /* Adjacent ranges are joined. Every subtree inside the union is inside one of the joined ranges. */
    int count = 0, first = 0, last = 0;
    for (int r = 0; r < topology->size && count >= 0; r++) {
        if (topology->host[r] >> height != topology->host[rank] >> height || bounds[r] == bounds[r + 1])
            continue;
        if (bounds[r] > last) {
            count = add_subtrees(shards, first, last, out, count, room);
            first = bounds[r];
        }
        last = bounds[r + 1];
    }
    return count < 0 ? -1 : add_subtrees(shards, first, last, out, count, room);
}
