/* simulate.h - runs the schedules of all ranks in one thread, on arrays.
 *
 * Ranks work in a random order, one message at a time. A message has the values at the time of
 * sending; messages between two ranks arrive in order. Elements that nobody wrote are NaN. */
#ifndef LK_TESTS_COMM_SIMULATE_H
#define LK_TESTS_COMM_SIMULATE_H

#include <math.h>

#include "check.h"
#include "comm/collective/fold.h"
#include "comm/collective/schedule.h"
#include "comm/tree.h"

enum { MAX_WORLD = 70, MAX_HELD = 64, LEVELS = LK_SCHEDULE_LEVEL_BLOCK + 7 };

typedef struct message {
    struct message *next;
    lk_span span;
    float data[];
} message;

/* One vector of the whole length for each subtree that a rank has. */
typedef struct held {
    int count;
    lk_schedule_subtree trees[MAX_HELD];
    float *at[MAX_HELD];
} held;

typedef struct sim_rank {
    lk_schedule schedule;
    held held[LEVELS]; /* at[0] of LK_SCHEDULE_LEVEL_ALL is the result of a sum */
    const float *from; /* LK_SCHEDULE_PHASE_KIND_COPY sends from here */
    float *to;         /* and receives to here */
    int phase, next;   /* next: index in the phase's recvs */
    bool sent;         /* the phase's sends are done */
    message *inbox[MAX_WORLD];
    int part;                        /* subtrees of the next move that have arrived */
    float *in[MAX_WORLD * MAX_HELD]; /* vectors that arrived for the fold, in order */
    int in_count;
} sim_rank;

typedef struct sim {
    lk_schedule_topology topology;
    const int *bounds; /* NULL where there is no sum */
    size_t count;
    lk_device *device;
    sim_rank ranks[MAX_WORLD];
    uint32_t random;
} sim;

static inline float *new_vector(size_t count)
{
    float *p = malloc((count + 1) * sizeof *p);
    assert_non_null(p);
    for (size_t i = 0; i <= count; i++)
        p[i] = NAN;
    return p;
}

static inline void sim_post(sim *s, int from, int to, lk_span span, const float *vector)
{
    message *m = malloc(sizeof *m + span.count * sizeof *m->data);
    assert_non_null(m);
    *m = (message){.span = span};
    if (span.count)
        memcpy(m->data, vector + span.first, span.count * sizeof *m->data);
    message **end = &s->ranks[to].inbox[from];
    while (*end)
        end = &(*end)->next;
    *end = m;
}

static inline void sim_send(sim *s, int rank, const lk_schedule_phase *phase)
{
    sim_rank *r = &s->ranks[rank];
    for (int i = 0; i < phase->send_count; i++) {
        lk_schedule_move move = phase->sends[i];
        assert_int_not_equal(move.peer, rank);
        if (phase->kind == LK_SCHEDULE_PHASE_KIND_COPY)
            sim_post(s, rank, move.peer, move.span, r->from);
        for (int k = 0; phase->kind == LK_SCHEDULE_PHASE_KIND_FOLD && k < r->held[phase->level].count; k++)
            sim_post(s, rank, move.peer, move.span, r->held[phase->level].at[k]);
    }
}

/* Folds the vectors that arrived with the rank's own, over the span that the rank keeps. */
static inline void sim_fold(sim *s, int rank, const lk_schedule_phase *phase)
{
    sim_rank *r = &s->ranks[rank];
    lk_schedule_subtree trees[MAX_WORLD * MAX_HELD];
    const void *inputs[MAX_WORLD * MAX_HELD];
    void *outputs[MAX_HELD];
    held *own = &r->held[phase->level], *result = &r->held[phase->level_out];
    int count = 0;
    for (int k = 0; k < own->count; k++) {
        trees[count] = own->trees[k];
        inputs[count++] = own->at[k] + phase->keep.first;
    }
    for (int i = 0, part = 0; i < phase->recv_count; i++) {
        const held *theirs = &s->ranks[phase->recvs[i].peer].held[phase->level];
        for (int k = 0; k < theirs->count; k++) {
            trees[count] = theirs->trees[k];
            inputs[count++] = r->in[part++];
        }
    }
    for (int k = 0; k < result->count; k++)
        outputs[k] = result->at[k] + phase->keep.first;
    lk_fold_plan *plan;
    assert_int_equal(
        lk__fold_plan_create(s->bounds[s->topology.size], trees, count, result->trees, result->count, &plan), LK_OK);
    lk_fold fold = {.device = s->device, .dtype = LK_DTYPE_F32, .op = LK_REDUCTION_SUM};
    fold.count = phase->keep.count;
    fold.inputs = inputs;
    fold.outputs = outputs;
    lk__fold_run(plan, &fold);
    lk__fold_plan_destroy(plan);
}

/* Takes the message that rank waits for; returns false if it has not arrived. */
static inline bool sim_take(sim *s, int rank, const lk_schedule_phase *phase)
{
    sim_rank *r = &s->ranks[rank];
    lk_schedule_move move = phase->recvs[r->next];
    int parts = phase->kind == LK_SCHEDULE_PHASE_KIND_FOLD ? s->ranks[move.peer].held[phase->level].count : 1;
    if (r->part < parts) {
        message *m = r->inbox[move.peer];
        if (!m)
            return false;
        r->inbox[move.peer] = m->next;
        assert_int_equal(m->span.count, move.span.count);
        /* Only in an all-to-all do offsets differ between sender and receiver. */
        if (move.span.count && r->from == r->to)
            assert_int_equal(m->span.first, move.span.first);
        if (phase->kind == LK_SCHEDULE_PHASE_KIND_FOLD) {
            assert_int_equal(move.span.first, phase->keep.first);
            assert_int_equal(move.span.count, phase->keep.count);
            r->in[r->in_count] = new_vector(move.span.count);
            memcpy(r->in[r->in_count++], m->data, move.span.count * sizeof *m->data);
        } else if (move.span.count) {
            memcpy(r->to + move.span.first, m->data, move.span.count * sizeof *m->data);
        }
        free(m);
        r->part++;
    }
    if (r->part >= parts) {
        r->part = 0;
        r->next++;
    }
    return true;
}

static inline void sim_end_phase(sim *s, int rank, const lk_schedule_phase *phase)
{
    sim_rank *r = &s->ranks[rank];
    if (phase->kind == LK_SCHEDULE_PHASE_KIND_FOLD && phase->keep.count)
        sim_fold(s, rank, phase);
    for (int i = 0; i < r->in_count; i++)
        free(r->in[i]);
    r->in_count = 0;
    r->next = 0;
    r->sent = false;
    r->phase++;
}

/* Does one thing for rank; returns false if rank waits or has finished. */
static inline bool sim_step(sim *s, int rank)
{
    sim_rank *r = &s->ranks[rank];
    if (r->phase == r->schedule.phase_count)
        return false;
    const lk_schedule_phase *phase = &r->schedule.phases[r->phase];
    if (!r->sent) {
        sim_send(s, rank, phase);
        r->sent = true;
        return true;
    }
    if (r->next < phase->recv_count)
        return sim_take(s, rank, phase);
    sim_end_phase(s, rank, phase);
    return true;
}

/* Runs all ranks to the end; every message must be taken. */
static inline void sim_run(sim *s)
{
    int size = s->topology.size, idle = 0;
    while (idle < size) {
        s->random = s->random * 1664525u + 1013904223u;
        int first = (int)(s->random >> 8) % size;
        for (idle = 0; idle < size && !sim_step(s, (first + idle) % size); idle++)
            ;
    }
    for (int r = 0; r < size; r++) {
        assert_int_equal(s->ranks[r].phase, s->ranks[r].schedule.phase_count);
        for (int p = 0; p < size; p++)
            assert_null(s->ranks[r].inbox[p]);
        lk__schedule_fini(&s->ranks[r].schedule);
    }
}

#endif
