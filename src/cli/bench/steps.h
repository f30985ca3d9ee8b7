/* steps.h - an engine and batches in memory, whose steps `bench train` and `bench layers` time. */
#ifndef LK_CLI_BENCH_STEPS_H
#define LK_CLI_BENCH_STEPS_H

#include <lockstep/engine.h>
#include <lockstep/group.h>

#include "cli/bench/images.h"
#include "cli/options/args.h"

enum { LK_BENCH_STEPS_WARM_UP = 3, LK_BENCH_STEPS_BATCHES = 32 };

typedef struct lk_bench_steps {
    /* Set by the caller. */
    const lk_args *args;
    lk_group *group; /* of the engine; NULL: the only rank */
    size_t parts;    /* the engine gets one of so many parts of the batch and of its shards */
    int threads;
    const char *device; /* NULL: that of the options */
    /* Set by lk__bench_steps_open. */
    size_t batch; /* samples of a step of the engine, and their shards */
    int shards;
    lk_bench_images images; /* with --input: of data */
    lk_dataset *data;
    lk_loader *loader;
    lk_graph *graph;
    lk_engine *engine;
    lk_batch batches[LK_BENCH_STEPS_BATCHES]; /* copies of a loader's batches */
    size_t count;
} lk_bench_steps;

/* Makes the engine and the batches, as the options say. USAGE if the batch has fewer samples than parts.
 * lk__bench_steps_close frees them even after a failure. */
lk_status lk__bench_steps_open(lk_bench_steps *steps) LK_CHECKED;
void lk__bench_steps_close(lk_bench_steps *steps);

/* Takes `count` steps, with as many under way as the engine allows. After each of them `each`, if it is not NULL. */
lk_status lk__bench_steps_run(lk_bench_steps *steps, size_t count, lk_status (*each)(void *arg), void *arg) LK_CHECKED;

/* What they train on: the name of a data set, or --input. */
const char *lk__bench_steps_data(const lk_args *args);

#endif
