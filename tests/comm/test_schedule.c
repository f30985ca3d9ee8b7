/* test_schedule.c - schedules without a transport. For many worlds and divisions of the shards, all
 * ranks end with the bits of the tree's definition, every message is taken, and the number of
 * elements sent is bounded. */
#include "simulate.h"

/* One digit for the host of each rank. */
static const char *const worlds[] = {"0",
                                     "00",
                                     "01",
                                     "000",
                                     "012",
                                     "001",
                                     "010",
                                     "011",
                                     "00000",
                                     "01234",
                                     "00111",
                                     "01010",
                                     "01112",
                                     "011122",
                                     "010202",
                                     "00000000",
                                     "01234567",
                                     "00001111",
                                     "01010101",
                                     "01111111",
                                     "00112233",
                                     "0000000000000000",
                                     "0123456789abcdef",
                                     "0000111122223333",
                                     "0101010101010101",
                                     "0111111111111111",
                                     "0120120120120123"};
enum { WORLDS = COUNT_OF(worlds), CUTS = 5, MAX_SHARDS = 64 };

static const size_t counts[] = {0, 1, 7, 1000};
enum { COUNTS = COUNT_OF(counts) };

typedef struct world {
    int host[MAX_WORLD];
    lk_schedule_topology topology;
    int bounds[MAX_WORLD + 1];
} world;

/* Divides the shards: one for each rank, four for each rank, 16 evenly, 16 among a few ranks, 13
 * unevenly. */
static void world_cut(world *w, int cut)
{
    int size = w->topology.size;
    static const int odd[17] = {0, 1, 1, 4, 5, 5, 5, 6, 9, 10, 10, 11, 12, 12, 12, 13, 13};
    for (int r = 0; r <= size; r++) {
        int bounds[CUTS] = {r, 4 * r, 16 * r / size,
                            r * 2 > size ? 16
                            : r > 0      ? 3
                                         : 0,
                            r < size && r < 17 ? odd[r] : 13};
        w->bounds[r] = bounds[cut];
    }
}

static void world_init(world *w, const char *text, int cut)
{
    *w = (world){.topology = {.size = (int)strlen(text), .host = w->host}};
    for (int r = 0; r < w->topology.size; r++) {
        char c = text[r];
        w->host[r] = c <= '9' ? c - '0' : c - 'a' + 10;
        if (w->host[r] >= w->topology.hosts)
            w->topology.hosts = w->host[r] + 1;
    }
    world_cut(w, cut);
}

/* Magnitudes differ: another order of the additions rounds to other bits. */
static float leaf(int shard, size_t i)
{
    uint32_t x = (uint32_t)shard * 2654435761u + (uint32_t)i * 40503u + 12345u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    float sign = x & 1 ? -1.0f : 1.0f;
    return sign * ldexpf((float)(x >> 8) + 1.0f, (int)((x >> 1) % 6) - 24);
}

static float tree_sum(int lo, int hi, size_t i)
{
    if (hi - lo == 1)
        return leaf(lo, i);
    return tree_sum(lo, tree_middle(lo, hi), i) + tree_sum(tree_middle(lo, hi), hi, i);
}

static sim *sim_open(const world *w, size_t count)
{
    static uint32_t seed;
    sim *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->topology = w->topology;
    s->count = count;
    s->random = ++seed;
    assert_int_equal(lk__device_open("cpu", &(lk_device_opts){.threads = 1}, &s->device), LK_OK);
    return s;
}

static void sim_open_sums(sim *s, const world *w)
{
    s->bounds = w->bounds;
    for (int r = 0; r < s->topology.size; r++) {
        sim_rank *rank = &s->ranks[r];
        for (int level = 0; level < LEVELS; level++) {
            held *h = &rank->held[level];
            h->count = lk__schedule_subtrees(&s->topology, s->bounds, level, r, h->trees, MAX_HELD);
            assert_true(h->count >= 0);
            for (int k = 0; k < h->count; k++) {
                h->at[k] = new_vector(s->count);
                for (size_t i = 0; level == LK_LEVEL_RANK && i < s->count; i++)
                    h->at[k][i] = tree_sum(h->trees[k].first, h->trees[k].last, i);
            }
        }
        assert_int_equal(rank->held[LK_LEVEL_ALL].count, 1);
        rank->from = rank->to = rank->held[LK_LEVEL_ALL].at[0];
    }
}

static void sim_close(sim *s)
{
    for (int r = 0; r < s->topology.size; r++) {
        for (int level = 0; level < LEVELS; level++) {
            for (int k = 0; k < s->ranks[r].held[level].count; k++)
                free(s->ranks[r].held[level].at[k]);
        }
    }
    lk__device_close(s->device);
    free(s);
}

/* Peers must be in order, beginning after rank; only a barrier may have empty moves. */
static void check_moves(const lk_schedule_topology *topology, int rank, const lk_schedule_move *moves, int count,
                        bool once, bool empty)
{
    int before = 0;
    for (int i = 0; i < count; i++) {
        int distance = (moves[i].peer - rank + topology->size) % topology->size;
        assert_true(once ? distance > before : distance > 0 && distance >= before);
        assert_true(empty || moves[i].span.count > 0);
        before = distance;
    }
}

static void check_schedule(const lk_schedule_topology *topology, int rank, const lk_schedule *schedule, bool empty)
{
    for (int i = 0; i < schedule->phase_count; i++) {
        const lk_schedule_phase *phase = &schedule->phases[i];
        bool fold = phase->kind == LK_PHASE_FOLD;
        check_moves(topology, rank, phase->sends, phase->send_count, fold || empty, empty);
        check_moves(topology, rank, phase->recvs, phase->recv_count, fold || empty, empty);
    }
}

/* Uneven spans: those of ranks 1, 4, 7, ... are empty. */
static void uneven_spans(size_t count, int size, lk_span *spans)
{
    size_t first = 0;
    for (int r = 0; r < size; r++) {
        size_t n = r % 3 == 1 ? 0 : count / (size_t)(size + r);
        spans[r] = (lk_span){first, r + 1 == size ? count - first : n};
        first += spans[r].count;
    }
}

typedef enum sum_kind { EXCHANGE, ALLREDUCE, REDUCE_SCATTER, HALVING, REDUCE_SMALL, REDUCE_LARGE, SUM_KINDS } sum_kind;

static lk_status make_sum(sum_kind kind, const lk_schedule_topology *topology, int rank, size_t count, lk_schedule *out)
{
    lk_span spans[MAX_WORLD];
    uneven_spans(count, topology->size, spans);
    switch (kind) {
    case EXCHANGE:
        return lk__schedule_exchange(topology, rank, count, out);
    case ALLREDUCE:
        return lk__schedule_allreduce(topology, rank, count, out);
    case HALVING:
        return lk__schedule_halving(topology, rank, count, out);
    case REDUCE_SCATTER:
        return lk__schedule_reduce_scatter(topology, rank, spans, out);
    default:
        return lk__schedule_reduce(topology, rank, count, topology->size / 2, kind == REDUCE_LARGE, out);
    }
}

/* The elements that rank must have in the end. */
static lk_span sum_wanted(sum_kind kind, const sim *s, int rank)
{
    lk_span spans[MAX_WORLD];
    uneven_spans(s->count, s->topology.size, spans);
    if (kind == REDUCE_SCATTER)
        return spans[rank];
    bool none = kind >= REDUCE_SMALL && rank != s->topology.size / 2;
    return (lk_span){0, none ? 0 : s->count};
}

static void check_sum(const world *w, sum_kind kind, size_t count, const float *want)
{
    sim *s = sim_open(w, count);
    sim_open_sums(s, w);
    for (int r = 0; r < s->topology.size; r++) {
        assert_int_equal(make_sum(kind, &s->topology, r, count, &s->ranks[r].schedule), LK_OK);
        check_schedule(&s->topology, r, &s->ranks[r].schedule, false);
    }
    sim_run(s);
    for (int r = 0; r < s->topology.size; r++) {
        lk_span span = sum_wanted(kind, s, r);
        assert_memory_equal(s->ranks[r].to + span.first, want + span.first, span.count * sizeof *want);
    }
    sim_close(s);
}

static void test_sums(void **state)
{
    for (int i = 0; i < WORLDS * CUTS; i++) {
        world w;
        world_init(&w, worlds[i / CUTS], i % CUTS);
        float *want = new_vector(1000);
        for (size_t e = 0; e < 1000; e++)
            want[e] = tree_sum(0, w.bounds[w.topology.size], e);
        for (int kind = 0; kind < SUM_KINDS; kind++) {
            bool possible = kind != HALVING || (w.topology.hosts > 1 && lk__schedule_hosts_even(&w.topology, w.bounds));
            for (int c = 0; c < COUNTS && possible; c++)
                check_sum(&w, (sum_kind)kind, counts[c], want);
        }
        free(want);
    }
}

/* `size` ranks, `local` of them on each host except the last, each with `shards` shards. */
static void world_of_hosts(world *w, int size, int local, int shards)
{
    *w = (world){.topology = {.size = size, .hosts = (size + local - 1) / local, .host = w->host}};
    for (int r = 0; r <= size; r++) {
        w->bounds[r] = shards * r;
        if (r < size)
            w->host[r] = r / local;
    }
}

static void check_halving(int size, int local, int shards)
{
    world w;
    world_of_hosts(&w, size, local, shards);
    assert_true(lk__schedule_hosts_even(&w.topology, w.bounds));
    float *want = new_vector(1000);
    for (size_t e = 0; e < 1000; e++)
        want[e] = tree_sum(0, w.bounds[size], e);
    for (int c = 0; c < COUNTS; c++)
        check_sum(&w, HALVING, counts[c], want);
    free(want);
}

static void test_halving(void **state)
{
    for (int size = 2; size <= MAX_WORLD; size++)
        check_halving(size, 1, size % 3 == 0 ? 4 : 1);
    for (int size = 5; size <= 24; size++) {
        check_halving(size, 2, 1);
        check_halving(size, 4, 2);
    }
}

static void test_hosts_even(void **state)
{
    static const struct {
        const char *world;
        int bounds[9];
        bool even;
    } cases[] = {
        {"0000", {0, 1, 2, 3, 4}, true},
        {"0123", {0, 2, 4, 6, 8}, true},
        {"0123", {0, 2, 4, 6, 7}, true},
        {"0123", {0, 2, 4, 6, 9}, false},
        {"0123", {0, 2, 4, 6, 6}, false},
        {"0123", {0, 3, 6, 9, 12}, false},
        {"0123", {0, 1, 3, 5, 7}, false},
        {"0123", {0, 2, 3, 5, 7}, false},
        {"001122", {0, 1, 2, 3, 4, 5, 6}, true},
        {"001122", {0, 3, 4, 5, 8, 11, 12}, true},
        {"01", {0, 0, 4}, false},
        {"0101", {0, 1, 2, 3, 4}, false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        world w;
        world_init(&w, cases[i].world, 0);
        assert_int_equal(lk__schedule_hosts_even(&w.topology, cases[i].bounds), cases[i].even);
    }
}

/* test_sums could not find a wrong order if every order gave the same bits. */
static void test_values_show_the_order(void **state)
{
    int differ = 0;
    for (size_t i = 0; i < 1000; i++) {
        float forward = 0;
        for (int s = 0; s < 16; s++)
            forward += leaf(s, i);
        differ += forward != tree_sum(0, 16, i);
        differ += leaf(0, i) + (leaf(1, i) + leaf(2, i)) != tree_sum(0, 3, i);
    }
    assert_true(differ > 500);
}

/* Counts the elements that rank sends, for each subtree it has; with `crossing` only those to other
 * hosts. */
static size_t elements_sent(const world *w, int rank, const lk_schedule *schedule, bool crossing)
{
    size_t sent = 0;
    for (int i = 0; i < schedule->phase_count; i++) {
        const lk_schedule_phase *phase = &schedule->phases[i];
        lk_schedule_subtree roots[MAX_HELD];
        size_t parts = 1;
        if (phase->kind == LK_PHASE_FOLD)
            parts = (size_t)lk__schedule_subtrees(&w->topology, w->bounds, phase->level, rank, roots, MAX_HELD);
        for (int k = 0; k < phase->send_count; k++) {
            if (!crossing || w->host[phase->sends[k].peer] != w->host[rank])
                sent += parts * phase->sends[k].span.count;
        }
    }
    return sent;
}

static size_t allreduce_sent(const world *w, int rank, size_t count, bool crossing)
{
    lk_schedule schedule;
    assert_int_equal(lk__schedule_allreduce(&w->topology, rank, count, &schedule), LK_OK);
    size_t sent = elements_sent(w, rank, &schedule, crossing);
    lk__schedule_fini(&schedule);
    return sent;
}

/* The largest difference of a segment from an even share. */
enum { UNEVEN = 64 };

/* A rank sends the bytes of a ring if the number of hosts is a power of two, and at most the vector
 * twice otherwise. It sends one message in a phase, except to hosts of an uneven merge. */
static void test_halving_sends(void **state)
{
    const size_t count = 1000003;
    for (int hosts = 2; hosts <= MAX_WORLD; hosts++) {
        world w;
        world_of_hosts(&w, hosts, 1, 1);
        bool power = (hosts & (hosts - 1)) == 0;
        size_t ring = (size_t)(hosts - 1) * (count / (size_t)hosts + UNEVEN);
        for (int r = 0; r < hosts; r++) {
            lk_schedule schedule;
            assert_int_equal(lk__schedule_halving(&w.topology, r, count, &schedule), LK_OK);
            assert_true(elements_sent(&w, r, &schedule, false) <= 2 * (power ? ring : count + LEVELS * UNEVEN));
            assert_int_equal(schedule.senders, 1);
            for (int p = 0; p < schedule.phase_count; p++) {
                assert_true(schedule.phases[p].kind == LK_PHASE_COPY || schedule.phases[p].recv_count <= 1);
                assert_true(!power || schedule.phases[p].send_count == 1);
            }
            lk__schedule_fini(&schedule);
        }
    }
}

static void test_no_more_than_a_ring(void **state)
{
    const size_t count = 1000003;
    for (int i = 0; i < WORLDS * CUTS; i++) {
        world w;
        world_init(&w, worlds[i / CUTS], i % CUTS);
        size_t size = (size_t)w.topology.size;
        if (w.topology.hosts != 1 && w.topology.hosts != w.topology.size)
            continue;
        for (int r = 0; r < w.topology.size; r++) {
            lk_schedule_subtree roots[MAX_HELD];
            size_t parts = (size_t)lk__schedule_subtrees(&w.topology, w.bounds, LK_LEVEL_RANK, r, roots, MAX_HELD);
            if (i % CUTS <= 1)
                assert_int_equal(parts, 1);
            size_t ring = (size - 1) * (count / size + UNEVEN);
            assert_true(allreduce_sent(&w, r, count, false) <= (parts + 1) * ring);
        }
    }
}

static size_t smallest_host(const world *w)
{
    size_t ranks[MAX_WORLD] = {0}, least = MAX_WORLD;
    for (int r = 0; r < w->topology.size; r++)
        ranks[w->host[r]]++;
    for (int h = 0; h < w->topology.hosts; h++)
        least = ranks[h] < least ? ranks[h] : least;
    return least;
}

/* Each host sends its sum once, divided among as many ranks as the smallest host has. */
static void test_one_sum_crosses_between_hosts(void **state)
{
    const size_t count = 1000003;
    for (int i = 0; i < WORLDS * CUTS; i++) {
        world w;
        world_init(&w, worlds[i / CUTS], i % CUTS);
        size_t hosts = (size_t)w.topology.hosts, channels = smallest_host(&w), sent[MAX_WORLD] = {0};
        for (int r = 0; r < w.topology.size; r++) {
            lk_schedule_subtree roots[MAX_HELD];
            size_t parts = (size_t)lk__schedule_subtrees(&w.topology, w.bounds, 1, r, roots, MAX_HELD);
            size_t own = allreduce_sent(&w, r, count, true);
            size_t share = (hosts - 1) * (count / hosts / channels + 2 * UNEVEN);
            assert_true(own <= (parts + 1) * share);
            sent[w.host[r]] += own;
            assert_true(sent[w.host[r]] <= (parts + 1) * share * channels);
        }
    }
}

/* By definition a node is a root if all its shards are inside and those of its parent are not. */
static void collect(const world *w, const bool *inside, int lo, int hi, lk_schedule_subtree *out, int *count)
{
    bool all = true;
    for (int s = lo; s < hi; s++)
        all = all && inside[s];
    if (all) {
        out[(*count)++] = (lk_schedule_subtree){lo, hi};
        return;
    }
    if (hi - lo == 1)
        return;
    collect(w, inside, lo, tree_middle(lo, hi), out, count);
    collect(w, inside, tree_middle(lo, hi), hi, out, count);
}

static void check_roots(const world *w, int level, int rank)
{
    bool inside[MAX_SHARDS];
    for (int r = 0; r < w->topology.size; r++) {
        int height = level > LK_LEVEL_BLOCK ? level - LK_LEVEL_BLOCK : 0;
        bool mine = level == LK_LEVEL_RANK ? r == rank : w->host[r] >> height == w->host[rank] >> height;
        mine |= level == LK_LEVEL_ALL;
        for (int s = w->bounds[r]; s < w->bounds[r + 1]; s++)
            inside[s] = mine;
    }
    lk_schedule_subtree want[MAX_SHARDS], got[MAX_SHARDS];
    int count = 0;
    collect(w, inside, 0, w->bounds[w->topology.size], want, &count);
    assert_int_equal(lk__schedule_subtrees(&w->topology, w->bounds, level, rank, got, count), count);
    assert_memory_equal(got, want, (size_t)count * sizeof *got);
    if (count > 0)
        assert_int_equal(lk__schedule_subtrees(&w->topology, w->bounds, level, rank, got, count - 1), -1);
    int begin[LK_MAX_ROOTS];
    if (level > 0)
        return;
    assert_int_equal(lk_shard_roots(w->bounds[w->topology.size], w->bounds[rank], w->bounds[rank + 1], begin), count);
    for (int i = 0; i < count; i++)
        assert_int_equal(begin[i], want[i].first);
}

static void test_roots(void **state)
{
    for (int i = 0; i < WORLDS * CUTS; i++) {
        world w;
        world_init(&w, worlds[i / CUTS], i % CUTS);
        for (int level = 0; level < LEVELS; level++) {
            for (int r = 0; r < w.topology.size; r++)
                check_roots(&w, level, r);
        }
    }
}

static void test_segments(void **state)
{
    for (size_t count = 0; count < 3000; count += 1 + count / 7) {
        for (int parts = 1; parts <= 20; parts++) {
            size_t end = 0, size = (size_t)parts;
            size_t grain = count >= 32 * size ? 32 : 1;
            for (int i = 0; i < parts; i++) {
                lk_span span = lk__span_segment(count, parts, i);
                assert_int_equal(span.first, end);
                assert_int_equal(span.first % grain, 0);
                assert_true(span.count + grain > count / size / grain * grain);
                assert_true(span.count < count / size + 2 * grain);
                assert_true(span.count <= lk__schedule_segment_most(count, parts));
                end += span.count;
            }
            assert_int_equal(end, count);
            assert_true(lk__schedule_segment_most(count, parts) <= lk__schedule_segment_most(count + 1, parts));
        }
    }
}

typedef enum move_kind { ALLGATHER, BROADCAST_SMALL, BROADCAST_LARGE, GATHER, SCATTER, MOVE_KINDS } move_kind;

static lk_status make_move(move_kind kind, const lk_schedule_topology *topology, int rank, const lk_span *spans,
                           size_t count, lk_schedule *out)
{
    int root = topology->size / 2;
    switch (kind) {
    case ALLGATHER:
        return lk__schedule_allgather(topology, rank, spans, false, out);
    case GATHER:
        return lk__schedule_gather(topology, rank, spans, root, out);
    case SCATTER:
        return lk__schedule_scatter(topology, rank, spans, root, out);
    default:
        return lk__schedule_broadcast(topology, rank, count, root, kind == BROADCAST_LARGE, out);
    }
}

/* The span that rank has at first, or must have in the end; element i has the value i. */
static lk_span moved(move_kind kind, const lk_schedule_topology *topology, int rank, const lk_span *spans, size_t count,
                     bool end)
{
    bool all = rank == topology->size / 2;
    if (kind == ALLGATHER)
        all = end;
    else if (kind == GATHER)
        all = all && end;
    else if (kind != SCATTER && !all)
        return (lk_span){0, end ? count : 0};
    return all ? (lk_span){0, count} : spans[rank];
}

static void check_move(const world *w, move_kind kind, size_t count)
{
    sim *s = sim_open(w, count);
    lk_span spans[MAX_WORLD];
    uneven_spans(count, s->topology.size, spans);
    for (int r = 0; r < s->topology.size; r++) {
        sim_rank *rank = &s->ranks[r];
        rank->from = rank->to = new_vector(count);
        lk_span have = moved(kind, &s->topology, r, spans, count, false);
        for (size_t i = have.first; i < have.first + have.count; i++)
            rank->to[i] = (float)i;
        assert_int_equal(make_move(kind, &s->topology, r, spans, count, &rank->schedule), LK_OK);
        check_schedule(&s->topology, r, &rank->schedule, false);
        for (int p = 0; p < rank->schedule.phase_count && kind != ALLGATHER && kind != GATHER; p++)
            assert_true(r != s->topology.size / 2 || rank->schedule.phases[p].recv_count == 0);
    }
    sim_run(s);
    for (int r = 0; r < s->topology.size; r++) {
        lk_span want = moved(kind, &s->topology, r, spans, count, true);
        for (size_t i = want.first; i < want.first + want.count; i++)
            assert_true(s->ranks[r].to[i] == (float)i);
        free(s->ranks[r].to);
    }
    sim_close(s);
}

static void test_moves(void **state)
{
    for (int i = 0; i < WORLDS; i++) {
        world w;
        world_init(&w, worlds[i], 0);
        for (int kind = 0; kind < MOVE_KINDS; kind++) {
            for (int c = 0; c < COUNTS; c++)
                check_move(&w, (move_kind)kind, counts[c]);
        }
    }
}

/* An allgather sends each span once to each other host. A large broadcast sends root's vector once
 * to each other host, and from root's host only once. */
static void test_moves_cross_once(void **state)
{
    const size_t count = 1000003;
    for (int i = 0; i < WORLDS; i++) {
        world w;
        world_init(&w, worlds[i], 0);
        lk_span spans[MAX_WORLD];
        uneven_spans(count, w.topology.size, spans);
        size_t all = 0, root = 0, large = 0, hosts = (size_t)w.topology.hosts;
        for (int r = 0; r < w.topology.size; r++) {
            lk_schedule schedule;
            assert_int_equal(make_move(ALLGATHER, &w.topology, r, spans, count, &schedule), LK_OK);
            all += elements_sent(&w, r, &schedule, true);
            lk__schedule_fini(&schedule);
            assert_int_equal(make_move(BROADCAST_LARGE, &w.topology, r, spans, count, &schedule), LK_OK);
            large += elements_sent(&w, r, &schedule, true);
            root += r == w.topology.size / 2 ? elements_sent(&w, r, &schedule, true) : 0;
            lk__schedule_fini(&schedule);
        }
        assert_int_equal(all, (hosts - 1) * count);
        assert_int_equal(large, (hosts - 1) * count);
        assert_int_equal(root, hosts > 1 ? count : 0);
    }
}

/* Rank r sends (r + 2q) % 5 elements to rank q. */
static void spans_between(int size, int rank, bool sending, lk_span *spans)
{
    size_t first = 0;
    for (int p = 0; p < size; p++) {
        spans[p] = (lk_span){first, (size_t)(sending ? rank + 2 * p : p + 2 * rank) % 5};
        first += spans[p].count;
    }
}

static void test_alltoall(void **state)
{
    for (int i = 0; i < WORLDS; i++) {
        world w;
        world_init(&w, worlds[i], 0);
        int size = w.topology.size;
        sim *s = sim_open(&w, 0);
        float in[MAX_WORLD][MAX_WORLD * 5], out[MAX_WORLD][MAX_WORLD * 5] = {0};
        lk_span send[MAX_WORLD], recv[MAX_WORLD];
        for (int r = 0; r < size; r++) {
            spans_between(size, r, true, send);
            spans_between(size, r, false, recv);
            for (int p = 0; p < size; p++) {
                for (size_t k = 0; k < send[p].count; k++)
                    in[r][send[p].first + k] = (float)(10000 * r + 100 * p + (int)k);
            }
            s->ranks[r].from = in[r];
            s->ranks[r].to = out[r];
            assert_int_equal(lk__schedule_alltoall(&w.topology, r, send, recv, &s->ranks[r].schedule), LK_OK);
        }
        sim_run(s);
        for (int r = 0; r < size; r++) {
            spans_between(size, r, false, recv);
            for (int p = 0; p < size; p++) {
                for (size_t k = 0; k < recv[p].count && p != r; k++)
                    assert_true(out[r][recv[p].first + k] == (float)(10000 * p + 100 * r + (int)k));
            }
        }
        sim_close(s);
    }
}

/* No rank leaves a barrier before all ranks have come: while one rank does nothing, no other rank
 * finishes. */
static void test_barrier(void **state)
{
    for (int i = 0; i < WORLDS; i++) {
        world w;
        world_init(&w, worlds[i], 0);
        for (int late = 0; late < w.topology.size; late++) {
            sim *s = sim_open(&w, 0);
            float nothing = 0;
            lk_span spans[MAX_WORLD] = {0};
            for (int r = 0; r < w.topology.size; r++) {
                s->ranks[r].from = s->ranks[r].to = &nothing;
                assert_int_equal(lk__schedule_allgather(&w.topology, r, spans, true, &s->ranks[r].schedule), LK_OK);
                check_schedule(&w.topology, r, &s->ranks[r].schedule, true);
            }
            for (int round = 0; round < 500; round++) {
                for (int r = 0; r < w.topology.size; r++)
                    (void)(r != late && sim_step(s, r));
            }
            for (int r = 0; r < w.topology.size; r++)
                assert_true(s->ranks[r].phase < s->ranks[r].schedule.phase_count);
            sim_run(s);
            sim_close(s);
        }
    }
}

TEST_MAIN(NULL, NULL, TEST(test_segments), TEST(test_roots), TEST(test_values_show_the_order), TEST(test_sums),
          TEST(test_halving), TEST(test_hosts_even), TEST(test_halving_sends), TEST(test_no_more_than_a_ring),
          TEST(test_one_sum_crosses_between_hosts), TEST(test_moves), TEST(test_moves_cross_once), TEST(test_alltoall),
          TEST(test_barrier))
