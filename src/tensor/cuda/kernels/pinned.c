/* pinned.c - trials of algorithms, and runs of whole batches or of parts of them. */
#include "tensor/cuda/kernels/pinned.h"

#include <assert.h>
#include <stdio.h>

#include "base/mem.h"

enum { ALIGNMENT = 256, MOST_TRIED = 64, MOST_ROWS = 512, LEAST_TRIED = 8, MOST_KINDS = 4 };

static const int small_cuts[] = {3, 7, 16};
enum { SMALL_CUTS = sizeof small_cuts / sizeof *small_cuts };

/* Bytes of the larger of a layer's input and output in a trial of step 3. */
static const size_t tried_bytes = (size_t)32 << 20;

/* A candidate must be this many times as fast as one before it: what is measured varies a little. */
static const double faster = 1.03;

/* A number of samples that has occurred. */
typedef struct lk_cuda_pinned_size {
    int n;
    int candidate; /* whose call it is */
    void *call;    /* gives the bits of each sample alone; NULL: there is none */
    struct lk_cuda_pinned_size *next;
} pinned_size;

int lk__cuda_pinned_weight(int rank)
{
    enum { WHOLE = 840 }; /* is divided by 1 to 8 without a rest */
    return WHOLE / (rank + 1);
}

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
    int most = problem->linear ? MOST_ROWS : MOST_TRIED;
    return fit < LEAST_TRIED ? LEAST_TRIED : fit > (size_t)most ? most : (int)fit;
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

/* Runs a call of problem->n samples, outside of trials. */
static lk_status run_call(const lk_cuda_pinned *pinned, void *call, const lk_cuda_problem *problem,
                          const lk_cuda_io *io)
{
    void *workspace;
    LK_TRY(lk__cuda_workspace(io, pinned->type->workspace(call), &workspace));
    return pinned->type->run(pinned->layer, call, problem, io, workspace);
}

static pinned_size *find(const lk_cuda_pinned *pinned, int n)
{
    pinned_size *size = pinned->sizes;
    while (size && size->n != n)
        size = size->next;
    return size;
}

static lk_status add_size(lk_cuda_pinned *pinned, int n, pinned_size **out)
{
    LK_TRY(LK_ALLOC(1, "a number of samples", out));
    (*out)->n = n;
    (*out)->next = pinned->sizes;
    pinned->sizes = *out;
    return LK_OK;
}

/* Prepares a call of a candidate; *call is NULL if it refuses problem->n samples. */
static lk_status prepare(const lk_cuda_pinned *pinned, int candidate, const lk_cuda_problem *problem, void **call)
{
    pinned->type->take(pinned->layer, candidate);
    return pinned->type->prepare(pinned->layer, problem, call);
}

/* UNSUPPORTED is an answer, and not an error of the trial. */
static lk_status answer(lk_status status, bool *out)
{
    *out = status == LK_OK;
    if (status != LK_STATUS_UNSUPPORTED)
        return status;
    (void)cudaGetLastError(); /* clears the error of the attempt */
    return LK_OK;
}

/* Memory of a trial: the number of differences, the arguments, the result of a reference call, and results of all. */
typedef enum block { BLOCK_DIFFERENT, BLOCK_IN, BLOCK_W, BLOCK_B, BLOCK_REFERENCE, BLOCK_RESULTS } block;

typedef struct trial {
    const lk_cuda_pinned *pinned;
    lk_cuda_problem problem; /* n: of the trial */
    lk_cuda_io io;           /* its output is set for each call */
    void *memory, *at[BLOCK_RESULTS];
    char *results; /* of `result` bytes each */
    size_t result;
    void *workspace; /* of the calls: most of them are not used any more afterwards */
    size_t room;     /* of it */
} trial;

/* Runs a call in a trial. MEMORY if there is none for its workspace. */
static lk_status run_tried(trial *t, void *call, const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    const lk_cuda_pinned *pinned = t->pinned;
    size_t bytes = pinned->type->workspace(call);
    if (bytes > t->room) {
        pinned->trial->free(&t->io, t->workspace);
        t->workspace = NULL;
        t->room = 0;
        LK_TRY(pinned->trial->alloc(&t->io, bytes, &t->workspace));
        t->room = bytes;
    }
    return pinned->type->run(pinned->layer, call, problem, io, bytes ? t->workspace : NULL);
}

static void fill_trial(trial *t, const lk_cuda_io *io)
{
    const lk_cuda_problem *p = &t->problem;
    const lk_cuda_trial_type *type = t->pinned->trial;
    lk_dtype values = (lk_dtype)p->values;
    lk_cuda_io at = {.dev = io->dev, .stream = io->stream, .scratch = io->scratch};
    type->fill(io, values, (size_t)p->n * in_bytes(p) / value_bytes(p), 1, t->at[BLOCK_IN]);
    type->fill(io, values, lk__cuda_weights(p), 2, t->at[BLOCK_W]);
    type->fill(io, values, (size_t)p->y_pitch, 3, t->at[BLOCK_B]);
    at.w = t->at[BLOCK_W];
    at.b = p->bias ? t->at[BLOCK_B] : NULL;
    t->io = io_with(p, &at, t->at[BLOCK_IN], NULL);
}

/* Samples of a reference call in a trial of n samples. Step 3 has compared calls of N samples with samples alone. */
static int reference_samples(const lk_cuda_problem *problem, int n)
{
    int most = lk__cuda_pinned_samples(problem);
    return n > most ? most : 1;
}

/* Allocates a trial of n samples with this many results, and draws its numbers. */
static lk_status begin_trial(const lk_cuda_pinned *pinned, const lk_cuda_problem *problem, int n, int results,
                             const lk_cuda_io *io, trial *t)
{
    *t = (trial){.pinned = pinned, .problem = with_samples(problem, n), .io = *io};
    const lk_cuda_problem *p = &t->problem;
    size_t offset[BLOCK_RESULTS], total = 0;
    const size_t bytes[BLOCK_RESULTS] = {
        [BLOCK_DIFFERENT] = sizeof(unsigned),
        [BLOCK_IN] = (size_t)n * in_bytes(p),
        [BLOCK_W] = lk__cuda_weights(p) * value_bytes(p),
        [BLOCK_B] = (size_t)p->y_pitch * value_bytes(p),
        [BLOCK_REFERENCE] = (size_t)reference_samples(p, n) * out_bytes(p),
    };
    for (int i = 0; i < BLOCK_RESULTS; i++) {
        offset[i] = total;
        total += lk__size_round_up(bytes[i], ALIGNMENT);
    }
    t->result = lk__size_round_up((size_t)n * out_bytes(p), ALIGNMENT);
    LK_TRY(pinned->trial->alloc(io, total + (size_t)results * t->result, &t->memory));
    for (int i = 0; i < BLOCK_RESULTS; i++)
        t->at[i] = (char *)t->memory + offset[i];
    t->results = (char *)t->memory + total;
    fill_trial(t, io);
    return LK_OK;
}

static void end_trial(trial *t)
{
    t->pinned->trial->free(&t->io, t->workspace);
    t->pinned->trial->free(&t->io, t->memory);
}

/* Computes the first n samples of the trial in one call. */
static lk_status compute(trial *t, void *call, int n, void *out, bool *done)
{
    lk_cuda_problem part = with_samples(&t->problem, n);
    lk_cuda_io at = io_at(&part, &t->io, 0, out);
    return answer(run_tried(t, call, &part, &at), done);
}

/* Prepares a call of a candidate for the first n samples, and computes them; *call is NULL if it refuses. */
static lk_status compute_by(trial *t, int candidate, int n, void *out, void **call)
{
    lk_cuda_problem part = with_samples(&t->problem, n);
    bool done = false;
    LK_TRY(prepare(t->pinned, candidate, &part, call));
    lk_status status = *call ? compute(t, *call, n, out, &done) : LK_OK;
    if (*call && !done) {
        t->pinned->type->destroy(t->pinned->layer, *call);
        *call = NULL;
    }
    return status;
}

/* Whether n samples have the same bits in two results. */
static lk_status compare(const trial *t, const void *a, const void *b, int n, bool *same)
{
    const lk_cuda_trial_type *type = t->pinned->trial;
    unsigned different;
    LK_TRY(type->reset(&t->io, t->at[BLOCK_DIFFERENT]));
    type->compare(&t->io, a, b, (size_t)n * out_bytes(&t->problem), t->at[BLOCK_DIFFERENT]);
    LK_TRY(type->fetch(&t->io, t->at[BLOCK_DIFFERENT], &different));
    *same = different == 0;
    return LK_OK;
}

/* Computes the trial's samples by calls of `width` samples each, and compares these with their parts of a result. The
 * last call begins earlier if the rest is smaller. */
static lk_status compare_parts(trial *t, void *call, int width, const char *result, bool *same)
{
    const lk_cuda_trial_type *type = t->pinned->trial;
    lk_cuda_problem part = with_samples(&t->problem, width);
    size_t bytes = (size_t)width * out_bytes(&part);
    char *out = t->at[BLOCK_REFERENCE];
    unsigned different;
    LK_TRY(type->reset(&t->io, t->at[BLOCK_DIFFERENT]));
    for (int done = 0; done < t->problem.n; done += width) {
        int begin = done + width > t->problem.n ? t->problem.n - width : done;
        lk_cuda_io at = io_at(&part, &t->io, begin, out);
        LK_TRY(run_tried(t, call, &part, &at));
        type->compare(&t->io, out, result + (size_t)begin * out_bytes(&part), bytes, t->at[BLOCK_DIFFERENT]);
    }
    LK_TRY(type->fetch(&t->io, t->at[BLOCK_DIFFERENT], &different));
    *same = different == 0;
    return LK_OK;
}

/* The kinds of candidates. */
typedef struct kinds {
    int count;
    int weight[MOST_KINDS];
    int of[LK_CUDA_MOST_CANDIDATES]; /* a candidate's kind; -1: it has none */
} kinds;

static char *result_at(const trial *t, int i)
{
    return t->results + (size_t)i * t->result;
}

/* Finds the kind of a candidate. The result of a kind is that of its first candidate; the next free one is used for
 * computing. A candidate of a kind too many is not used. */
static lk_status sort_candidate(trial *t, int candidate, int weight, const lk_cuda_io *io, kinds *k)
{
    const lk_cuda_pinned_type *type = t->pinned->type;
    void *call;
    bool good = true;
    int kind = 0;
    k->of[candidate] = -1;
    LK_TRY(compute_by(t, candidate, t->problem.n, result_at(t, k->count), &call));
    if (!call)
        return LK_OK;
    type->destroy(t->pinned->layer, call);
    if (type->suits)
        LK_TRY(type->suits(t->pinned->layer, &t->problem, io, &good));
    for (bool same = false; good && kind < k->count; kind++) {
        LK_TRY(compare(t, result_at(t, kind), result_at(t, k->count), t->problem.n, &same));
        if (same)
            break;
    }
    if (!good || kind == MOST_KINDS)
        return LK_OK;
    if (kind == k->count)
        k->weight[k->count++] = 0;
    k->of[candidate] = kind;
    k->weight[kind] += weight;
    return LK_OK;
}

/* Whether a candidate has the bits of its kind in small calls, too, and of each sample alone. *alone is that call. */
static lk_status is_independent(trial *t, int candidate, const kinds *k, void **alone, bool *good)
{
    const char *result = result_at(t, k->of[candidate]);
    char *out = result_at(t, k->count);
    *good = false;
    LK_TRY(compute_by(t, candidate, 1, out, alone));
    if (!*alone)
        return LK_OK;
    lk_status status = compare_parts(t, *alone, 1, result, good);
    for (int i = 0; i < SMALL_CUTS && status == LK_OK && *good && small_cuts[i] < t->problem.n; i++) {
        void *call = NULL;
        status = compute_by(t, candidate, small_cuts[i], out, &call);
        *good = call != NULL;
        if (status == LK_OK && call)
            status = compare(t, result, out, small_cuts[i], good);
        if (call)
            t->pinned->type->destroy(t->pinned->layer, call);
    }
    return status;
}

/* Pins the candidate: its call of a sample alone is that of one sample. */
static lk_status pin(lk_cuda_pinned *pinned, int candidate, const kinds *k, int candidates, void *alone)
{
    pinned_size *one;
    LK_TRY(add_size(pinned, 1, &one));
    one->candidate = pinned->basis = candidate;
    one->call = alone;
    pinned->count = 0;
    for (int i = 0; i < candidates; i++)
        if (k->of[i] == k->of[candidate])
            pinned->alike[pinned->count++] = i;
    pinned->chosen = true;
    return LK_OK;
}

/* Pins the first independent candidate of a kind, if there is one. */
static lk_status pin_kind(lk_cuda_pinned *pinned, trial *t, const kinds *k, int kind, int candidates)
{
    for (int i = 0; i < candidates; i++) {
        void *alone = NULL;
        bool good;
        if (k->of[i] != kind)
            continue;
        lk_status status = is_independent(t, i, k, &alone, &good);
        if (status == LK_OK && good)
            status = pin(pinned, i, k, candidates, alone);
        if (alone && !pinned->chosen)
            pinned->type->destroy(pinned->layer, alone);
        LK_TRY(answer(status, &good));
        if (pinned->chosen)
            break;
    }
    return LK_OK;
}

/* The heaviest kind; its weight becomes 0. */
static int next_kind(kinds *k)
{
    int best = 0;
    for (int i = 1; i < k->count; i++)
        if (k->weight[i] > k->weight[best])
            best = i;
    k->weight[best] = 0;
    return best;
}

lk_status lk__cuda_pinned_choose(lk_cuda_pinned *pinned, const int *weights, int candidates,
                                 const lk_cuda_problem *problem, const lk_cuda_io *io)
{
    kinds k = {0};
    trial t;
    if (candidates == 0)
        return LK_OK;
    LK_TRY(begin_trial(pinned, problem, lk__cuda_pinned_samples(problem), MOST_KINDS + 1, io, &t));
    lk_status status = LK_OK;
    for (int i = 0; i < candidates && status == LK_OK; i++)
        status = sort_candidate(&t, i, weights[i], io, &k);
    for (int i = 0; i < k.count && status == LK_OK && !pinned->chosen; i++)
        status = pin_kind(pinned, &t, &k, next_kind(&k), candidates);
    end_trial(&t);
    return status;
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

/* The search for the fastest candidate with the bits of each sample alone. */
typedef struct search {
    trial t;
    pinned_size *size; /* gets the call */
    char *good;        /* the result of the first candidate that passed */
    double seconds;    /* of the fastest so far */
} search;

/* What is measured: a call, whose result is written to `out`. */
typedef struct timed_call {
    trial *t;
    void *call, *out;
} timed_call;

static lk_status run_timed(void *arg)
{
    const timed_call *timed = arg;
    lk_cuda_io at = io_at(&timed->t->problem, &timed->t->io, 0, timed->out);
    return run_tried(timed->t, timed->call, &timed->t->problem, &at);
}

/* Replaces the call of the size by a faster one. */
static lk_status take_faster(search *s, int candidate, void *call, void *out)
{
    const lk_cuda_pinned *pinned = s->t.pinned;
    timed_call timed = {&s->t, call, out};
    double seconds;
    lk_status status = pinned->trial->time(&s->t.io, run_timed, &timed, &seconds);
    if (status == LK_OK && (!s->size->call || seconds * faster < s->seconds)) {
        void *old = s->size->call;
        s->size->call = call;
        s->size->candidate = candidate;
        s->seconds = seconds;
        call = old;
    }
    if (call)
        pinned->type->destroy(pinned->layer, call);
    return status;
}

/* Whether a result has the bits of each sample alone. Many samples are compared with calls of N samples by the pinned
 * algorithm, which have these bits: a call for each sample would take seconds. */
static lk_status compare_reference(trial *t, const char *result, bool *same)
{
    const lk_cuda_pinned *pinned = t->pinned;
    int width = reference_samples(&t->problem, t->problem.n);
    lk_cuda_problem part = with_samples(&t->problem, width);
    void *call;
    if (width == 1)
        return compare_parts(t, find(pinned, 1)->call, 1, result, same);
    *same = false;
    LK_TRY(prepare(pinned, pinned->basis, &part, &call));
    if (!call)
        return LK_OK;
    lk_status status = compare_parts(t, call, width, result, same);
    pinned->type->destroy(pinned->layer, call);
    return status;
}

/* Tries one candidate with the trial's samples: the first that passes is compared with the reference, all others with
 * the result of that one. */
static lk_status try_candidate(search *s, int candidate)
{
    trial *t = &s->t;
    void *call;
    bool same = false, first = !s->size->call;
    char *out = first ? s->good : t->results;
    LK_TRY(compute_by(t, candidate, t->problem.n, out, &call));
    if (!call)
        return LK_OK;
    lk_status status = first ? compare_reference(t, out, &same) : compare(t, s->good, out, t->problem.n, &same);
    if (status == LK_OK && same)
        return take_faster(s, candidate, call, out);
    t->pinned->type->destroy(t->pinned->layer, call);
    return status;
}

/* Finds problem->n, or tries it. `own` has room for the result of all samples. Without memory for a second result, the
 * first candidate that passes is used; a candidate without memory for its workspace is not. */
static lk_status try_samples(lk_cuda_pinned *pinned, const lk_cuda_problem *problem, const lk_cuda_io *io, void *own,
                             pinned_size **out)
{
    search s = {.good = own};
    int spare = 1;
    *out = find(pinned, problem->n);
    if (*out)
        return LK_OK;
    LK_TRY(add_size(pinned, problem->n, out));
    s.size = *out;
    lk_status status = begin_trial(pinned, problem, problem->n, spare, io, &s.t);
    if (status == LK_STATUS_MEMORY)
        status = begin_trial(pinned, problem, problem->n, spare = 0, io, &s.t);
    if (status == LK_STATUS_MEMORY && problem->n == lk__cuda_pinned_samples(problem)) { /* step 3 has tried it */
        s.size->candidate = pinned->basis;
        return prepare(pinned, pinned->basis, problem, &s.size->call);
    }
    for (int i = 0; i < pinned->count && status == LK_OK && (spare || !s.size->call); i++) {
        status = try_candidate(&s, pinned->alike[i]);
        status = status == LK_STATUS_MEMORY ? LK_OK : status;
    }
    end_trial(&s.t);
    return status;
}

int lk__cuda_pinned_describe(const lk_cuda_pinned *pinned, const lk_cuda_problem *problem, int n,
                             char text[LK_CUDA_PINNED_TEXT])
{
    const pinned_size *size = find(pinned, n);
    int most = lk__cuda_pinned_samples(problem);
    if (size && !size->call && n > most)
        snprintf(text, LK_CUDA_PINNED_TEXT, "in parts of at most %d samples", most);
    else
        snprintf(text, LK_CUDA_PINNED_TEXT, "%s", size && size->call ? "whole" : "each sample alone");
    return size && size->call ? size->candidate : pinned->basis;
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
    if (size->call)
        return run_call(pinned, size->call, problem, io);
    assert(problem->n > 1); /* the pinned call of one sample is there */
    return run_parts(pinned, problem->n > most ? most : 1, problem, io);
}
