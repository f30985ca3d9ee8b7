/* test_schedule_moves.c - schedules that move vectors without adding, and without a transport: allgather, broadcast,
 * gather, scatter, all-to-all and barrier. */
#include "schedule_worlds.h"

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

TEST_MAIN(NULL, NULL, TEST(test_moves), TEST(test_moves_cross_once), TEST(test_alltoall), TEST(test_barrier))
