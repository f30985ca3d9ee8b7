/* program.c - makes a rank's schedule, its multicasts and its fold plans. */
#include "comm/collective/program.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* Bytes of received frames that wait to be folded, all peers together, and bounds for one frame. */
#define FOLD_SCRATCH ((size_t)4 << 20)
#define FOLD_FRAME_MIN ((size_t)4 << 10)
#define FOLD_FRAME_MAX ((size_t)256 << 10)

/* Largest number of received bytes for which allreduce uses one exchange instead of segments, and the most
 * ranks: every rank sends a message to every other. */
#define SMALL_BYTES ((size_t)16 << 10)
enum { SMALL_RANKS = 32 };
/* Allreduce uses vector halving between at least so many hosts if the segment of a host is smaller than this
 * many bytes. A number of hosts that is a power of two has no largest segment in the last row: only other numbers
 * move more bytes with halving than with segments. */
static const struct {
    size_t hosts, segment;
} halving[] = {{4, (size_t)64 << 10}, {8, (size_t)512 << 10}};
/* Smallest vector that reduce and broadcast divide into segments. */
#define LARGE_BYTES ((size_t)128 << 10)

enum { MAX_SUBTREES = 4 * LK_MAX_ROOTS, DEFAULT_ROOM = 32 };

static bool is_sum(lk_call_kind kind)
{
    return kind == LK_CALL_KIND_ALLREDUCE || kind == LK_CALL_KIND_REDUCE || kind == LK_CALL_KIND_REDUCE_SCATTER;
}

static bool is_small(const lk_program_key *key, int size)
{
    return size <= SMALL_RANKS && key->count * key->element * (size_t)(size - 1) <= SMALL_BYTES;
}

static bool wants_halving(const lk_program_key *key, const lk_program_input *in, const int *bounds)
{
    enum { LAST = sizeof halving / sizeof *halving - 1 };
    size_t hosts = (size_t)in->topology->hosts, bytes = key->count * key->element;
    bool wanted = hosts >= halving[LAST].hosts && (hosts & (hosts - 1)) == 0;
    for (size_t i = 0; i <= LAST; i++)
        wanted |= hosts >= halving[i].hosts && bytes < hosts * halving[i].segment;
    return wanted && lk__schedule_hosts_even(in->topology, bounds);
}

/* How allreduce moves its vector. */
typedef lk_status (*allreduce_fn)(const lk_schedule_topology *topology, int rank, size_t count, lk_schedule *out);

static allreduce_fn choose_allreduce(const lk_program_key *key, const lk_program_input *in, const int *bounds)
{
    if (in->segments)
        return lk__schedule_allreduce;
    if (is_small(key, in->topology->size))
        return lk__schedule_exchange;
    return wants_halving(key, in, bounds) ? lk__schedule_halving : lk__schedule_allreduce;
}

static bool is_large(const lk_program_key *key)
{
    return key->count * key->element >= LARGE_BYTES;
}

/* One move, possibly empty, to or from the peer in key->root. */
static lk_status make_message(const lk_program_key *key, bool sending, lk_schedule *out)
{
    lk_schedule_phase *phase = &out->phases[0];
    lk_schedule_move **moves = sending ? &phase->sends : &phase->recvs;
    LK_TRY(LK_ALLOC(1, "a message", moves));
    (*moves)[0] = (lk_schedule_move){.peer = key->root, .span = {0, key->count}};
    *(sending ? &phase->send_count : &phase->recv_count) = 1;
    out->phase_count = 1;
    out->senders = 1;
    return LK_OK;
}

static int local_ranks(const lk_schedule_topology *where, int rank)
{
    int count = 0;
    for (int r = 0; r < where->size; r++)
        count += where->host[r] == where->host[rank];
    return count;
}

/* Whether every host folds to fewer vectors than it has ranks. It does not if neighbouring ranks are on
 * different hosts; then two levels move more bytes than one. */
static bool worth_two_levels(const lk_program_input *in, const int *bounds)
{
    lk_schedule_subtree list[MAX_SUBTREES];
    for (int r = 0; r < in->topology->size; r++) {
        int ranks = local_ranks(in->topology, r);
        if (ranks == 1)
            continue;
        int subtrees = lk__schedule_subtrees(in->topology, bounds, LK_SCHEDULE_LEVEL_HOST, r, list, MAX_SUBTREES);
        if (subtrees < 0 || subtrees >= ranks)
            return false;
    }
    return true;
}

static lk_status make_schedule(const lk_program_key *key, const lk_program_input *in, const int *bounds,
                               lk_schedule *out)
{
    const lk_schedule_topology *where = in->topology;
    switch (key->kind) {
    case LK_CALL_KIND_ALLREDUCE:
        return choose_allreduce(key, in, bounds)(where, in->rank, key->count, out);
    case LK_CALL_KIND_REDUCE:
        return lk__schedule_reduce(where, in->rank, key->count, key->root, is_large(key), out);
    case LK_CALL_KIND_REDUCE_SCATTER:
        return lk__schedule_reduce_scatter(where, in->rank, in->spans, out);
    case LK_CALL_KIND_BROADCAST:
        return lk__schedule_broadcast(where, in->rank, key->count, key->root, is_large(key), out);
    case LK_CALL_KIND_ALLGATHER:
        return lk__schedule_allgather(where, in->rank, in->spans, false, out);
    case LK_CALL_KIND_BARRIER:
        return lk__schedule_allgather(where, in->rank, in->spans, true, out);
    case LK_CALL_KIND_GATHER:
        return lk__schedule_gather(where, in->rank, in->spans, key->root, out);
    case LK_CALL_KIND_SCATTER:
        return lk__schedule_scatter(where, in->rank, in->spans, key->root, out);
    case LK_CALL_KIND_MESSAGE:
        return make_message(key, key->detail == LK_MESSAGE_SEND, out);
    default:
        return lk__schedule_alltoall(where, in->rank, in->spans, in->recv_spans, out);
    }
}

static bool same_span(lk_span a, lk_span b)
{
    return a.first == b.first && a.count == b.count;
}

/* Combines sends of equal spans, so that a transport that copies a payload copies it once. Multicasts are in
 * the order in which their spans appear. */
static lk_status make_multicasts(const lk_schedule_phase *phase, lk_program_phase *details)
{
    LK_TRY(LK_ALLOC((size_t)phase->send_count, "sends of a phase", &details->multicasts));
    for (int i = 0; i < phase->send_count; i++) {
        const lk_schedule_move *move = &phase->sends[i];
        int c = 0;
        while (c < details->multicast_count && !same_span(details->multicasts[c].span, move->span))
            c++;
        lk_multicast *multicast = &details->multicasts[c];
        if (c == details->multicast_count) {
            LK_TRY(LK_ALLOC((size_t)phase->send_count, "peers of a send", &multicast->peers));
            multicast->span = move->span;
            details->multicast_count++;
        }
        multicast->peers[multicast->count++] = move->peer;
    }
    return LK_OK;
}

/* Writes the subtrees that rank holds at a level to list; *added is their count. */
static lk_status add_subtrees(const lk_program_input *in, const int *bounds, int level, int rank,
                              lk_schedule_subtree *list, int room, int *added)
{
    int count = lk__schedule_subtrees(in->topology, bounds, level, rank, list, room);
    if (count < 0)
        return lk__fail(LK_STATUS_UNSUPPORTED, "%d shards on %d ranks make more partial sums than there is room for",
                        bounds[in->topology->size], in->topology->size);
    *added = count;
    return LK_OK;
}

static lk_status make_fold(const lk_program_input *in, const int *bounds, const lk_schedule_phase *phase,
                           lk_program_phase *details)
{
    size_t recvs = (size_t)phase->recv_count;
    size_t room = (recvs + 1) * MAX_SUBTREES;
    lk_schedule_subtree *inputs = NULL;
    lk_schedule_subtree outputs[MAX_SUBTREES];
    lk_status status;
    LK_TRY(LK_ALLOC(room, "partial sums of a call", &inputs));
    LK_TRY_GOTO(LK_ALLOC(recvs, "partial sums of peers", &details->recv_partials), free_inputs);
    LK_TRY_GOTO(LK_ALLOC(recvs, "partial sums of peers", &details->recv_first), free_inputs);
    LK_TRY_GOTO(add_subtrees(in, bounds, phase->level, in->rank, inputs, MAX_SUBTREES, &details->own), free_inputs);
    details->inputs = details->own;
    for (int i = 0; i < phase->recv_count; i++) {
        details->recv_first[i] = details->inputs;
        LK_TRY_GOTO(add_subtrees(in, bounds, phase->level, phase->recvs[i].peer, inputs + details->inputs, MAX_SUBTREES,
                                 &details->recv_partials[i]),
                    free_inputs);
        details->inputs += details->recv_partials[i];
    }
    /* A rank that keeps nothing may not receive all inputs of the result. */
    if (phase->keep.count > 0) {
        LK_TRY_GOTO(add_subtrees(in, bounds, phase->level_out, in->rank, outputs, MAX_SUBTREES, &details->out),
                    free_inputs);
        status = lk__fold_plan_create(bounds[in->topology->size], inputs, details->inputs, outputs, details->out,
                                      &details->plan);
    }
free_inputs:
    lk__mem_free(inputs);
    return status;
}

static bool sends_kept(const lk_schedule_phase *phase)
{
    bool sends = false;
    for (int i = 0; i < phase->send_count; i++) {
        lk_span span = phase->sends[i].span;
        sends |= span.first < phase->keep.first + phase->keep.count && phase->keep.first < span.first + span.count;
    }
    return sends;
}

/* The largest number of vectors that a rank sends to another rank in a FOLD phase. In vector halving, blocks of
 * hosts have one. */
static lk_status most_partials(const lk_program_input *in, const int *bounds, int levels, int *out)
{
    lk_schedule_subtree list[MAX_SUBTREES];
    int most = 1;
    for (int level = 0; level < levels; level++) {
        for (int r = 0; r < in->topology->size; r++) {
            int count = 0;
            LK_TRY(add_subtrees(in, bounds, level, r, list, MAX_SUBTREES, &count));
            most = count > most ? count : most;
        }
    }
    *out = most;
    return LK_OK;
}

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

static lk_status make_phases(lk_program *program, const lk_program_input *in, const int *bounds)
{
    for (int p = 0; p < program->schedule.phase_count; p++) {
        const lk_schedule_phase *phase = &program->schedule.phases[p];
        lk_program_phase *details = &program->phases[p];
        LK_TRY(make_multicasts(phase, details));
        program->max_multicasts = max_int(program->max_multicasts, details->multicast_count);
        program->max_recvs = max_int(program->max_recvs, phase->recv_count);
        if (phase->kind != LK_SCHEDULE_PHASE_KIND_FOLD)
            continue;
        LK_TRY(make_fold(in, bounds, phase, details));
        details->sends_kept = sends_kept(phase);
        program->max_inputs = max_int(program->max_inputs, details->inputs);
        /* Later partial sums replace earlier ones: they cover parts of the same span. */
        if (phase->level_out != LK_SCHEDULE_LEVEL_ALL && program->stored == 0) {
            program->store = phase->keep;
            program->stored = phase->keep.count * (size_t)details->out;
        }
    }
    return LK_OK;
}

static lk_status fill(lk_program *program, const lk_program_input *in, const int *bounds)
{
    int size = in->topology->size, most = 1;
    bool flat = in->topology->hosts == 1 || in->topology->hosts == size;
    LK_TRY(make_schedule(&program->key, in, bounds, &program->schedule));
    LK_TRY(make_phases(program, in, bounds));
    if (program->max_inputs > 0)
        LK_TRY(most_partials(in, bounds, flat ? 1 : 2, &most));
    size_t bytes = FOLD_SCRATCH / (size_t)(program->schedule.senders * most);
    bytes = lk__size_min(lk__size_max(bytes, FOLD_FRAME_MIN), FOLD_FRAME_MAX);
    program->fold_frame = bytes / program->key.element;
    program->shards = bounds[size];
    return LK_OK;
}

lk_status lk__program_create(const lk_program_key *key, const lk_program_input *input, lk_program **out)
{
    lk_program *program = NULL;
    int *each = NULL;
    lk_program_input flat = *input;
    lk_schedule_topology apart = *input->topology;
    size_t size = (size_t)input->topology->size;
    lk_status status;
    LK_TRY(LK_ALLOC(1, "a call's program", &program));
    program->key = *key;
    program->users = 1;
    LK_TRY_GOTO(LK_ALLOC(size + 1, "shards of the ranks", &each), release_program);
    for (size_t r = 0; r <= size; r++)
        each[r] = (int)r;
    const int *bounds = input->bounds ? input->bounds : each;
    if (is_sum(key->kind) && apart.hosts > 1 && apart.hosts < apart.size && !worth_two_levels(input, bounds)) {
        apart.hosts = apart.size;
        apart.host = each;
        flat.topology = &apart;
    }
    LK_TRY_GOTO(fill(program, &flat, bounds), release_program);
    lk__mem_free(each);
    *out = program;
    return LK_OK;
release_program:
    lk__mem_free(each);
    lk__program_release(program);
    return status;
}

void lk__program_release(lk_program *program)
{
    if (!program || --program->users > 0)
        return;
    for (int p = 0; p < program->schedule.phase_count; p++) {
        lk_program_phase *details = &program->phases[p];
        for (int c = 0; c < details->multicast_count; c++)
            lk__mem_free(details->multicasts[c].peers);
        lk__mem_free(details->multicasts);
        lk__mem_free(details->recv_partials);
        lk__mem_free(details->recv_first);
        lk__fold_plan_destroy(details->plan);
    }
    lk__schedule_fini(&program->schedule);
    lk__mem_free(program);
}

static bool same_key(const lk_program_key *a, const lk_program_key *b)
{
    return a->kind == b->kind && a->element == b->element && a->count == b->count && a->root == b->root &&
           a->detail == b->detail;
}

lk_status lk__program_find(lk_program_cache *cache, const lk_program_key *key, const lk_program_input *input,
                           lk_program **out)
{
    lk_program *found = NULL;
    if (!cache->rows) {
        cache->room = cache->room ? cache->room : DEFAULT_ROOM;
        LK_TRY(LK_ALLOC(cache->room, "programs of calls", &cache->rows));
    }
    for (size_t i = 0; i < cache->room && !found; i++)
        found = cache->rows[i] && same_key(&cache->rows[i]->key, key) ? cache->rows[i] : NULL;
    if (!found) {
        LK_TRY(lk__program_create(key, input, &found));
        lk_program **row = &cache->rows[cache->next++ % cache->room];
        lk__program_release(*row);
        *row = found;
    }
    found->users++;
    *out = found;
    return LK_OK;
}

void lk__program_cache_fini(lk_program_cache *cache)
{
    for (size_t i = 0; cache->rows && i < cache->room; i++)
        lk__program_release(cache->rows[i]);
    lk__mem_free(cache->rows);
    *cache = (lk_program_cache){0};
}
