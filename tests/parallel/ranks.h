/* ranks.h - runs of the engine by several ranks. Every rank must end with the bits of the run by one
 * rank: the state, and the metrics of every step.
 *
 * The truth is the result of one rank with one thread, computed before the ranks start. Ranks are
 * threads, processes (comm/harness.h), or threads of processes. */
#ifndef LK_TESTS_RANKS_H
#define LK_TESTS_RANKS_H

#include <math.h>

#include "law.h"

#include "comm/harness.h"

enum { RANKS_STEPS = 30, RANKS_EVALS = 2, RANKS_TIMEOUT = 100 };

/* The result of one rank. */
typedef struct ranks_truth {
    uint64_t hash;
    lk_metrics steps[RANKS_STEPS];
    double norms[RANKS_STEPS]; /* of the gradient; every second step computes it */
    lk_metrics evals[RANKS_EVALS];
    bool known; /* of ranks_know */
} ranks_truth;

typedef struct ranks_job {
    law_case c;
    law_way way;
    ranks_truth truth;
} ranks_job;

/* Batches of evaluation: one with more samples than an engine's batch, and one with a single sample,
 * of which most ranks have nothing. */
static inline law_case ranks_eval_case(const law_case *c, int which)
{
    law_case eval = *c;
    eval.batch = which == 0 ? 2 * c->batch + 3 : 1;
    return eval;
}

/* Returns a rank's part of a whole batch. */
static inline lk_batch ranks_cut(lk_batch whole, lk_shard_range share)
{
    size_t begin = lk_shard_range_begin(share, whole.count);
    return (lk_batch){.count = lk_shard_range_count(share, whole.count),
                      .sample_floats = whole.sample_floats,
                      .x = share.labels_only ? NULL : whole.x + begin * whole.sample_floats,
                      .labels = whole.labels + begin,
                      .ids = whole.ids + begin,
                      .target_floats = whole.target_floats,
                      .targets = whole.targets ? whole.targets + begin * whole.target_floats : NULL,
                      .weights = whole.weights ? whole.weights + begin : NULL,
                      .total = whole.count};
}

static inline bool ranks_same(const lk_metrics *a, const lk_metrics *b)
{
    const double left[] = {a->loss, a->absolute_error, a->squared_error, a->weight};
    const double right[] = {b->loss, b->absolute_error, b->squared_error, b->weight};
    return a->count == b->count && a->correct == b->correct && a->top5 == b->top5 &&
           memcmp(left, right, sizeof left) == 0;
}

static inline lk_status ranks_step(lk_engine *engine, const law_way *way, const lk_batch *batch, lk_metrics *out)
{
    if (!way->halves)
        return lk_engine_step(engine, batch, out);
    LK_TRY(lk_engine_gradients(engine, batch, out));
    return lk_engine_update(engine);
}

static inline void ranks_run_steps(const ranks_job *job, lk_engine *engine, ranks_truth *out)
{
    law_samples s = law_samples_make(&job->c);
    for (int i = 0; i < law_steps(&job->c); i++) {
        lk_batch batch;
        law_batch(&job->c, job->c.first + i, s.x, s.labels, s.ids, &batch);
        if (job->way.share)
            batch = ranks_cut(batch, lk_engine_shard_range(engine));
        CHECK_OK(lk_engine_set_grad_norm(engine, i % 2 == 0));
        CHECK_OK(ranks_step(engine, &job->way, &batch, &out->steps[i]));
        out->norms[i] = lk_engine_grad_norm(engine);
        CHECK(i % 2 ? isnan(out->norms[i]) || job->c.clip_norm > 0 : out->norms[i] > 0);
    }
    law_samples_free(&s);
}

static inline void ranks_run_evals(const ranks_job *job, lk_engine *engine, lk_metrics *out)
{
    for (int i = 0; i < RANKS_EVALS; i++) {
        law_case c = ranks_eval_case(&job->c, i);
        law_samples s = law_samples_make(&c);
        lk_batch batch;
        law_batch(&c, 0, s.x, s.labels, s.ids, &batch);
        if (job->way.share)
            batch = ranks_cut(batch, lk_engine_shard_range(engine));
        CHECK_OK(lk_engine_eval(engine, &batch, &out[i]));
        law_samples_free(&s);
    }
}

static inline void ranks_run(const ranks_job *job, lk_engine *engine, ranks_truth *out)
{
    ranks_run_steps(job, engine, out);
    ranks_run_evals(job, engine, out->evals);
    out->hash = law_hash(engine);
}

/* Ends the process if a rank's result is not the truth. */
static inline void ranks_compare(const ranks_job *job, int rank, const ranks_truth *ours)
{
    bool same = ours->hash == job->truth.hash;
    if (!same)
        fprintf(stderr, "rank %d: hash 0x%016llx, expected 0x%016llx\n", rank, (unsigned long long)ours->hash,
                (unsigned long long)job->truth.hash);
    for (int i = 0; i < law_steps(&job->c); i += 2) {
        if (memcmp(&ours->norms[i], &job->truth.norms[i], sizeof *ours->norms) == 0)
            continue;
        same = false;
        fprintf(stderr, "rank %d, step %d: the gradient's norm is %a, expected %a\n", rank, i, ours->norms[i],
                job->truth.norms[i]);
    }
    for (int i = 0; i < law_steps(&job->c) + RANKS_EVALS; i++) {
        bool eval = i >= law_steps(&job->c);
        int at = eval ? i - law_steps(&job->c) : i;
        const lk_metrics *a = eval ? &ours->evals[at] : &ours->steps[at];
        const lk_metrics *b = eval ? &job->truth.evals[at] : &job->truth.steps[at];
        if (ranks_same(a, b))
            continue;
        same = false;
        fprintf(stderr, "rank %d, %s %d: %zu of %zu correct, loss %a, expected %zu of %zu, %a\n", rank,
                eval ? "evaluation" : "step", at, a->correct, a->count, a->loss, b->correct, b->count, b->loss);
    }
    CHECK(same);
}

static inline void ranks_check_layout(const ranks_job *job, const lk_engine *engine, int rank)
{
    lk_layout at = lk_engine_layout(engine);
    CHECK(at.stages * at.replicas == job->way.ranks);
    CHECK(at.replica == rank / at.stages && at.stage == rank % at.stages);
    CHECK(at.first_layer < at.last_layer && (at.stage == 0) == (at.first_layer <= 1));
    lk_waits waits = lk_engine_waits(engine);
    CHECK(waits.gradients >= 0 && waits.other >= 0);
    CHECK(lk_engine_steps(engine) == (uint64_t)law_steps(&job->c));
}

/* The sum of the ranks' own metrics of the last step must be the metrics of the batch. */
static inline void ranks_check_own(const ranks_job *job, const lk_engine *engine, lk_group *group)
{
    lk_layout at = lk_engine_layout(engine);
    lk_metrics own = lk_engine_own_metrics(engine);
    const lk_metrics *all = &job->truth.steps[law_steps(&job->c) - 1];
    CHECK(own.count ==
          (at.stage == at.stages - 1 ? lk_shard_range_count(lk_engine_shard_range(engine), all->count) : 0));
    int64_t sums[2] = {(int64_t)own.count, (int64_t)own.correct};
    CHECK_OK(lk_allreduce(group, (lk_buffer){sums, 2, LK_DTYPE_I64}, LK_REDUCTION_SUM, NULL));
    CHECK(sums[0] == (int64_t)all->count && sums[1] == (int64_t)all->correct);
}

/* Makes an engine of the case for a rank of the group. */
static inline lk_engine *ranks_engine(const law_case *c, const law_way *way, lk_group *group)
{
    lk_engine *engine;
    lk_engine_opts opts = law_opts(c, way);
    opts.group = group;
    CHECK_OK(law_create(c, &opts, &engine));
    return engine;
}

/* A team_fn; arg is a ranks_job. */
static inline bool ranks_be(lk_group *group, const team_spec *team, const void *arg)
{
    const ranks_job *job = arg;
    ranks_truth ours = {0};
    lk_engine *engine = ranks_engine(&job->c, &job->way, group);
    ranks_run(job, engine, &ours);
    ranks_compare(job, lk_group_rank(group), &ours);
    ranks_check_layout(job, engine, lk_group_rank(group));
    ranks_check_own(job, engine, group);
    CHECK_OK(lk_engine_check(engine));
    lk_engine_destroy(engine);
    return false;
}

static inline void ranks_find_truth(const law_case *c, ranks_truth *out)
{
    ranks_job job = {.c = *c, .way = {.threads = 1}};
    lk_engine *engine = law_engine(c, job.way);
    assert_true(c->steps <= RANKS_STEPS);
    ranks_run(&job, engine, out);
    lk_engine_destroy(engine);
}

/* Finds the truth on the first call; it must be zeroed before. */
static inline const ranks_truth *ranks_know(const law_case *c, ranks_truth *truth)
{
    if (!truth->known)
        ranks_find_truth(c, truth);
    truth->known = true;
    return truth;
}

static inline team_spec ranks_team(const law_way *way)
{
    return (team_spec){.size = way->ranks,
                       .transport = way->transport,
                       .hosts = way->hosts,
                       .threads = way->devices,
                       .timeout = RANKS_TIMEOUT};
}

/* A row of a table: the number of a case, and how it is run. */
typedef struct ranks_row {
    const char *name;
    int c;
    law_way way;
} ranks_row;

/* Runs a test for each row whose name contains `only` (NULL: all, or LAW_EVERY); returns the number of failures. */
static inline int ranks_run_rows(const ranks_row *rows, size_t count, const char *only, CMUnitTestFunction test)
{
    static struct CMUnitTest tests[128];
    size_t used = 0;
    CHECK(count <= COUNT_OF(tests));
    for (size_t i = 0; i < count; i += only ? 1 : law_every())
        if (!only || strstr(rows[i].name, only))
            tests[used++] = (struct CMUnitTest){
                .name = rows[i].name, .test_func = test, .initial_state = (void *)(uintptr_t)&rows[i]};
    return _cmocka_run_group_tests("rows", tests, used, NULL, NULL);
}

static inline void ranks_expect(const law_case *c, law_way way, const ranks_truth *truth)
{
    ranks_job job = {.c = *c, .way = way, .truth = *truth};
    if (!team_run(ranks_team(&way), ranks_be, &job))
        fail_msg(
            "%s %s bn=%d batch %zu shards %d clip %g, steps %d to %d, on %s by %d ranks (%d a process), %s, hosts %s, "
            "stages %s%s, "
            "%d threads, micro-batch %zu, buckets of %zu, %s: not as by one rank",
            c->model, c->optimizer, (int)c->bn, c->batch, c->shards, c->clip_norm, c->first,
            c->first + law_steps(c) - 1, way.device ? way.device : "cpu", way.ranks, way.devices, way.transport,
            way.hosts ? way.hosts : "one", way.stages ? way.stages : "1", way.pipelined ? " pipelined" : "",
            way.threads, way.micro_batch, way.bucket_bytes, way.share ? "shares" : "whole batches");
}

#endif
