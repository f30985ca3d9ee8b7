/* engine.h - training steps on the lockstep law.
 *
 * An engine holds a compiled graph, its parameters and an optimiser. A step is
 * cut into shards; every sum over samples is taken per shard and folded over
 * one fixed tree, so the weights after a step do not depend on threads, waves
 * or machine. */
#ifndef LOCKSTEP_ENGINE_H
#define LOCKSTEP_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/data.h>
#include <lockstep/graph.h>
#include <lockstep/state.h>
#include <lockstep/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_engine lk_engine;

/* Zero means the default. */
typedef struct lk_engine_opts {
    const char *device; /* "cpu" */
    int threads;        /* default: the cores this process may use */
    size_t batch;       /* samples a step, required */
    int shards;         /* default 16; part of the result */
    size_t micro_batch; /* samples in flight; default: the whole batch */
    lk_bn_mode bn;
    const char *optimizer; /* "sgd", "adam", "adadelta", with parameters: "sgd:momentum=.9" */
    double lr;             /* default: the optimiser's */
    uint64_t seed;
    bool allow_nonfinite; /* go on when a loss or gradient is not finite */
} lk_engine_opts;

/* graph may be destroyed afterwards. */
lk_status lk_engine_create(const lk_graph *graph, const lk_engine_opts *opts, lk_engine **out) LK_CHECKED;
void lk_engine_destroy(lk_engine *engine);

typedef struct lk_metrics {
    size_t count;   /* samples */
    size_t correct; /* whose largest score is their label's; the first of equals */
    double loss;    /* mean over the samples */
} lk_metrics;

/* Forward, backward and one optimiser step. count may be anything from 1 to the
 * engine's batch. */
lk_status lk_engine_step(lk_engine *engine, const lk_batch *batch, lk_metrics *out) LK_CHECKED;
/* Forward in evaluation mode; any count. */
lk_status lk_engine_eval(lk_engine *engine, const lk_batch *batch, lk_metrics *out) LK_CHECKED;
/* The step in two halves: gradients (and BatchNorm's running statistics), then
 * the update of the parameters, which needs the gradients of a whole first
 * half. */
lk_status lk_engine_gradients(lk_engine *engine, const lk_batch *batch, lk_metrics *out) LK_CHECKED;
lk_status lk_engine_update(lk_engine *engine) LK_CHECKED;

double lk_engine_lr(const lk_engine *engine);
void lk_engine_set_lr(lk_engine *engine, double lr);
/* Optimiser steps taken. */
uint64_t lk_engine_steps(const lk_engine *engine);

/* Copies of parameters and buffers, or of the last step's gradients, under
 * PyTorch's names. */
lk_status lk_engine_state(const lk_engine *engine, lk_state **out) LK_CHECKED;
lk_status lk_engine_grads(const lk_engine *engine, lk_state **out) LK_CHECKED;
/* Replaces parameters and buffers. A missing, unknown or differently shaped
 * key is MISMATCH and nothing is replaced. */
lk_status lk_engine_set_state(lk_engine *engine, const lk_state *state) LK_CHECKED;

#ifdef __cplusplus
}
#endif
#endif
