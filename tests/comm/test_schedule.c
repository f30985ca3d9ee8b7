/* test_schedule.c - schedules of sums without a transport. For many worlds and divisions of the shards, all
 * ranks end with the bits of the tree's definition, every message is taken, and the number of
 * elements sent is bounded. */
#include "schedule_worlds.h"

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
                for (size_t i = 0; level == LK_SCHEDULE_LEVEL_RANK && i < s->count; i++)
                    h->at[k][i] = tree_sum(h->trees[k].first, h->trees[k].last, i);
            }
        }
        assert_int_equal(rank->held[LK_SCHEDULE_LEVEL_ALL].count, 1);
        rank->from = rank->to = rank->held[LK_SCHEDULE_LEVEL_ALL].at[0];
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
                assert_true(schedule.phases[p].kind == LK_SCHEDULE_PHASE_KIND_COPY ||
                            schedule.phases[p].recv_count <= 1);
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
            size_t parts =
                (size_t)lk__schedule_subtrees(&w.topology, w.bounds, LK_SCHEDULE_LEVEL_RANK, r, roots, MAX_HELD);
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
        int height = level > LK_SCHEDULE_LEVEL_BLOCK ? level - LK_SCHEDULE_LEVEL_BLOCK : 0;
        bool mine = level == LK_SCHEDULE_LEVEL_RANK ? r == rank : w->host[r] >> height == w->host[rank] >> height;
        mine |= level == LK_SCHEDULE_LEVEL_ALL;
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

TEST_MAIN(NULL, NULL, TEST(test_segments), TEST(test_roots), TEST(test_values_show_the_order), TEST(test_sums),
          TEST(test_halving), TEST(test_hosts_even), TEST(test_halving_sends), TEST(test_no_more_than_a_ring),
          TEST(test_one_sum_crosses_between_hosts))
