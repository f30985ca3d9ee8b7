/* pinned.c - trials of algorithms, and runs of whole batches or of parts of them. */
#include "tensor/cuda/kernels/pinned.h"

#include <stdio.h>

#include "base/mem.h"

enum { ALIGNMENT = 256, MOST_TRIED = 64, LEAST_TRIED = 8 };

static const int small_cuts[] = {3, 7, 16};
enum { SMALL_CUTS = sizeof small_cuts / sizeof *small_cuts };

/* Bytes of the larger of a layer's input and output in a trial of step 3. */
static const size_t tried_bytes = (size_t)48 << 20;

/* A number of samples that has occurred. */
typedef struct lk_cuda_pinned_size {
    int n;
    void *call; /* NULL: the algorithm refuses so many */
    bool whole; /* one call gives the bits of each sample alone */
    struct lk_cuda_pinned_size *next;
} pinned_size;

void lk__cuda_pinned_clear(lk_cuda_pinned *pinned)
{
    for (pinned_size *size = pinned->sizes, *next; size; size = next) {
        next = size->next;
        if (size->call)
            pinned->type->destroy(pinned->layer, size->call);
        lk__mem_free(size);
    }
    pinned->sizes = NULL;
    pinned->chosen = false;
}

static size_t value_bytes(const lk_cuda_problem *p)
{
    return lk_dtype_size((lk_dtype)p->values);
}

/* Bytes of a sample of the pass's input and output. */
static size_t in_bytes(const lk_cuda_problem *p)
{
    size_t x = (size_t)p->h * (size_t)p->w * (size_t)p->x_pitch, y = (size_t)p->p * (size_t)p->q * (size_t)p->y_pitch;
    return (p->pass == LK_CUDA_PASS_FORWARD ? x : y) * value_bytes(p);
}

static size_t out_bytes(const lk_cuda_problem *p)
{
    lk_cuda_problem other = *p;
    other.pass = p->pass == LK_CUDA_PASS_FORWARD ? LK_CUDA_PASS_GRAD_INPUT : LK_CUDA_PASS_FORWARD;
    return in_bytes(&other);
}

int lk__cuda_pinned_samples(const lk_cuda_problem *problem)
{
    size_t fit = tried_bytes / lk__size_max(in_bytes(problem), out_bytes(problem));
    return fit < LEAST_TRIED ? LEAST_TRIED : fit > MOST_TRIED ? MOST_TRIED : (int)fit;
}

static void *output_of(const lk_cuda_problem *p, const lk_cuda_io *io)
{
    return p->pass == LK_CUDA_PASS_FORWARD ? io->y : io->dx;
}

/* io with another input and output of the pass. */
static lk_cuda_io io_with(const lk_cuda_problem *p, const lk_cuda_io *io, const void *in, void *out)
{
    lk_cuda_io at = *io;
    if (p->pass == LK_CUDA_PASS_FORWARD)
        at.x = in, at.y = out;
    else
        at.dy = in, at.dx = out;
    return at;
}

/* The arguments for the samples from `begin` on; `out` is where the result of these samples goes. */
static lk_cuda_io io_at(const lk_cuda_problem *p, const lk_cuda_io *io, int begin, void *out)
{
    const char *in = p->pass == LK_CUDA_PASS_FORWARD ? io->x : io->dy;
    return io_with(p, io, in + (size_t)begin * in_bytes(p), out);
}

static void *output_at(const lk_cuda_problem *p, const lk_cuda_io *io, int begin)
{
    return (char *)output_of(p, io) + (size_t)begin * out_bytes(p);
}

static lk_cuda_problem with_samples(const lk_cuda_problem *problem, int n)
{
    lk_cuda_problem part = *problem;
    part.n = n;
    return part;
}

static lk_status run_call(const lk_cuda_pinned *pinned, const pinned_size *size, const lk_cuda_problem *problem,
                          const lk_cuda_io *io)
{
    lk_cuda_problem part = with_samples(problem, size->n);
    void *workspace;
    LK_TRY(lk__cuda_workspace(io, pinned->type->workspace(size->call), &workspace));
    return pinned->type->run(pinned->layer, size->call, &part, io, workspace);
}

static pinned_size *find(const lk_cuda_pinned *pinned, int n)
{
    pinned_size *size = pinned->sizes;
    while (size && size->n != n)
        size = size->next;
    return size;
}

static lk_status prepare(lk_cuda_pinned *pinned, const lk_cuda_problem *problem, int n, pinned_size **out)
{
    lk_cuda_problem part = with_samples(problem, n);
    pinned_size *size;
    LK_TRY(LK_ALLOC(1, "a number of samples", &size));
    size->n = n;
    lk_status status = pinned->type->prepare(pinned->layer, &part, &size->call);
    if (status != LK_OK) {
        lk__mem_free(size);
        return status;
    }
    size->whole = n == 1 && size->call;
    size->next = pinned->sizes;
    pinned->sizes = *out = size;
    return LK_OK;
}

/* Memory of a trial: the number of differences, the arguments, and the result of one sample alone. */
typedef enum block { BLOCK_DIFFERENT, BLOCK_IN, BLOCK_W, BLOCK_B, BLOCK_ALONE, BLOCK_OUT, BLOCKS } block;

typedef struct trial {
    void *memory;
    void *at[BLOCKS];
} trial;

/* `own` has room for the result of all samples; NULL: the trial allocates it. */
static lk_status alloc_trial(const lk_cuda_pinned *pinned, const lk_cuda_problem *p, const lk_cuda_io *io, void *own,
                             trial *t)
{
    size_t n = (size_t)p->n, offset[BLOCKS], total = 0;
    const size_t bytes[BLOCKS] = {
        [BLOCK_DIFFERENT] = sizeof(unsigned),
        [BLOCK_IN] = n * in_bytes(p),
        [BLOCK_W] = lk__cuda_weights(p) * value_bytes(p),
        [BLOCK_B] = (size_t)p->y_pitch * value_bytes(p),
        [BLOCK_ALONE] = out_bytes(p),
        [BLOCK_OUT] = own ? 0 : n * out_bytes(p),
    };
    for (int i = 0; i < BLOCKS; i++) {
        offset[i] = total;
        total += lk__size_round_up(bytes[i], ALIGNMENT);
    }
    LK_TRY(pinned->trial->alloc(io, total, &t->memory));
    for (int i = 0; i < BLOCKS; i++)
        t->at[i] = (char *)t->memory + offset[i];
    if (own)
        t->at[BLOCK_OUT] = own;
    return LK_OK;
}

static lk_cuda_io fill_trial(const lk_cuda_pinned *pinned, const lk_cuda_problem *p, const lk_cuda_io *io,
                             const trial *t)
{
    lk_cuda_io at = {.dev = io->dev, .stream = io->stream, .scratch = io->scratch};
    const lk_cuda_trial_type *type = pinned->trial;
    lk_dtype values = (lk_dtype)p->values;
    type->fill(io, values, (size_t)p->n * in_bytes(p) / value_bytes(p), 1, t->at[BLOCK_IN]);
    type->fill(io, values, lk__cuda_weights(p), 2, t->at[BLOCK_W]);
    type->fill(io, values, (size_t)p->y_pitch, 3, t->at[BLOCK_B]);
    at.w = t->at[BLOCK_W];
    at.b = p->bias ? t->at[BLOCK_B] : NULL;
    return io_with(p, &at, t->at[BLOCK_IN], t->at[BLOCK_OUT]);
}

/* Computes each sample alone and compares it with its part of the result of all samples. */
static lk_status compare(const lk_cuda_pinned *pinned, const pinned_size *alone, const lk_cuda_problem *problem,
                         const lk_cuda_io *io, const trial *t, bool *same)
{
    unsigned different;
    LK_TRY(pinned->trial->reset(io, t->at[BLOCK_DIFFERENT]));
    for (int i = 0; i < problem->n; i++) {
        lk_cuda_io at = io_at(problem, io, i, t->at[BLOCK_ALONE]);
        LK_TRY(run_call(pinned, alone, problem, &at));
        pinned->trial->compare(io, t->at[BLOCK_ALONE], output_at(problem, io, i), out_bytes(problem),
                               t->at[BLOCK_DIFFERENT]);
    }
    LK_TRY(pinned->trial->fetch(io, t->at[BLOCK_DIFFERENT], &different));
    *same = different == 0;
    return LK_OK;
}

static lk_status run_trial(lk_cuda_pinned *pinned, pinned_size *size, const lk_cuda_problem *problem,
                           const lk_cuda_io *io, void *own, trial *t)
{
    pinned_size *alone = find(pinned, 1);
    if (!alone)
        LK_TRY(prepare(pinned, problem, 1, &alone));
    if (!size->call || !alone->call)
        return LK_OK;
    LK_TRY(alloc_trial(pinned, problem, io, own, t));
    lk_cuda_io at = fill_trial(pinned, problem, io, t);
    LK_TRY(run_call(pinned, size, problem, &at));
    return compare(pinned, alone, problem, &at, t, &size->whole);
}

/* Finds problem->n, or prepares it and tries it; `own` as for alloc_trial. */
static lk_status try_samples(lk_cuda_pinned *pinned, const lk_cuda_problem *problem, const lk_cuda_io *io, void *own,
                             pinned_size **out)
{
    trial t = {0};
    *out = find(pinned, problem->n);
    if (*out)
        return LK_OK;
    LK_TRY(prepare(pinned, problem, problem->n, out));
    if ((*out)->whole)
        return LK_OK;
    lk_status status = run_trial(pinned, *out, problem, io, own, &t);
    pinned->trial->free(io, t.memory);
    if (status != LK_STATUS_UNSUPPORTED)
        return status;
    (void)cudaGetLastError(); /* clears the error of the attempt */
    return LK_OK;
}

/* The trials of step 3. */
static lk_status try_cuts(lk_cuda_pinned *pinned, const lk_cuda_problem *problem, const lk_cuda_io *io, bool *good)
{
    int most = lk__cuda_pinned_samples(problem);
    lk_cuda_problem tried = with_samples(problem, most);
    pinned_size *size;
    LK_TRY(try_samples(pinned, &tried, io, NULL, &size));
    *good = size->whole;
    for (int i = 0; i < SMALL_CUTS && *good; i++) {
        tried.n = small_cuts[i];
        if (tried.n >= most)
            break;
        LK_TRY(try_samples(pinned, &tried, io, NULL, &size));
        *good = size->whole;
    }
    return LK_OK;
}

/* The trials of a candidate, and its other condition. */
static lk_status try_candidate(lk_cuda_pinned *pinned, const lk_cuda_problem *problem, const lk_cuda_io *io, bool *good)
{
    const lk_cuda_pinned_type *type = pinned->type;
    LK_TRY(try_cuts(pinned, problem, io, good));
    return *good && type->suits ? type->suits(pinned->layer, problem, io, good) : LK_OK;
}

lk_status lk__cuda_pinned_passes_nan(const lk_cuda_pinned *pinned, const lk_cuda_problem *problem, const lk_cuda_io *io,
                                     bool *out)
{
    const lk_cuda_pinned_type *type = pinned->type;
    lk_cuda_problem one = with_samples(problem, 1);
    lk_cuda_io nan;
    void *workspace, *call;
    *out = false;
    LK_TRY(type->prepare(pinned->layer, &one, &call));
    if (!call)
        return LK_OK;
    lk_status status = lk__cuda_nan_bias(&one, io, type->workspace(call), &nan, &workspace);
    if (status == LK_OK)
        status = type->run(pinned->layer, call, &one, &nan, workspace);
    if (status == LK_OK)
        status = lk__cuda_passed_nan(&one, io, out);
    type->destroy(pinned->layer, call);
    return status;
}

lk_status lk__cuda_pinned_choose(lk_cuda_pinned *pinned, int candidates, const lk_cuda_problem *problem,
                                 const lk_cuda_io *io)
{
    lk_status status = LK_OK;
    for (int i = 0; i < candidates && status == LK_OK && !pinned->chosen; i++) {
        bool good = false;
        pinned->type->take(pinned->layer, i);
        status = try_candidate(pinned, problem, io, &good);
        if (status != LK_OK || !good)
            lk__cuda_pinned_clear(pinned);
        else
            pinned->chosen = true;
    }
    return status;
}

void lk__cuda_pinned_describe(const lk_cuda_pinned *pinned, const lk_cuda_problem *problem, int n,
                              char text[LK_CUDA_PINNED_TEXT])
{
    const pinned_size *size = find(pinned, n);
    int most = lk__cuda_pinned_samples(problem);
    if (size && !size->whole && n > most)
        snprintf(text, LK_CUDA_PINNED_TEXT, "in parts of at most %d samples", most);
    else
        snprintf(text, LK_CUDA_PINNED_TEXT, "%s", size && size->whole ? "whole" : "each sample alone");
}

/* Runs problem->n samples in calls of `most`, whose last may be smaller. */
static lk_status run_parts(lk_cuda_pinned *pinned, int most, const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    for (int begin = 0; begin < problem->n; begin += most) {
        int rest = problem->n - begin;
        lk_cuda_problem part = with_samples(problem, rest < most ? rest : most);
        lk_cuda_io at = io_at(problem, io, begin, output_at(problem, io, begin));
        LK_TRY(lk__cuda_pinned_run(pinned, &part, &at));
    }
    return LK_OK;
}

lk_status lk__cuda_pinned_run(lk_cuda_pinned *pinned, const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    int most = lk__cuda_pinned_samples(problem);
    pinned_size *size = NULL;
    lk_status status = try_samples(pinned, problem, io, output_of(problem, io), &size);
    if (status != LK_OK && !(status == LK_STATUS_MEMORY && size))
        return status;
    if (size->whole)
        return run_call(pinned, size, problem, io);
    if (problem->n == 1)
        return lk__fail(LK_STATUS_UNSUPPORTED, "a library refuses a layer of one sample on this GPU");
    return run_parts(pinned, problem->n > most ? most : 1, problem, io);
}
