/* schedule_worlds.h - worlds of ranks on hosts, and checks of schedules: what test_schedule.c and
 * test_schedule_moves.c share. */
#ifndef LK_TESTS_COMM_SCHEDULE_WORLDS_H
#define LK_TESTS_COMM_SCHEDULE_WORLDS_H

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
static inline void world_cut(world *w, int cut)
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

static inline void world_init(world *w, const char *text, int cut)
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

static inline sim *sim_open(const world *w, size_t count)
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

static inline void sim_close(sim *s)
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
static inline void check_moves(const lk_schedule_topology *topology, int rank, const lk_schedule_move *moves, int count,
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

static inline void check_schedule(const lk_schedule_topology *topology, int rank, const lk_schedule *schedule,
                                  bool empty)
{
    for (int i = 0; i < schedule->phase_count; i++) {
        const lk_schedule_phase *phase = &schedule->phases[i];
        bool fold = phase->kind == LK_SCHEDULE_PHASE_KIND_FOLD;
        check_moves(topology, rank, phase->sends, phase->send_count, fold || empty, empty);
        check_moves(topology, rank, phase->recvs, phase->recv_count, fold || empty, empty);
    }
}

/* Uneven spans: those of ranks 1, 4, 7, ... are empty. */
static inline void uneven_spans(size_t count, int size, lk_span *spans)
{
    size_t first = 0;
    for (int r = 0; r < size; r++) {
        size_t n = r % 3 == 1 ? 0 : count / (size_t)(size + r);
        spans[r] = (lk_span){first, r + 1 == size ? count - first : n};
        first += spans[r].count;
    }
}

/* Counts the elements that rank sends, for each subtree it has; with `crossing` only those to other
 * hosts. */
static inline size_t elements_sent(const world *w, int rank, const lk_schedule *schedule, bool crossing)
{
    size_t sent = 0;
    for (int i = 0; i < schedule->phase_count; i++) {
        const lk_schedule_phase *phase = &schedule->phases[i];
        lk_schedule_subtree roots[MAX_HELD];
        size_t parts = 1;
        if (phase->kind == LK_SCHEDULE_PHASE_KIND_FOLD)
            parts = (size_t)lk__schedule_subtrees(&w->topology, w->bounds, phase->level, rank, roots, MAX_HELD);
        for (int k = 0; k < phase->send_count; k++) {
            if (!crossing || w->host[phase->sends[k].peer] != w->host[rank])
                sent += parts * phase->sends[k].span.count;
        }
    }
    return sent;
}

#endif
