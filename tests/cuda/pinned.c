/* pinned.c - the choice of an algorithm whose bits do not depend on the number of samples. The test plants algorithms
 * whose bits do, and must see that they are refused. Algorithms and trials are in host memory, so it needs no GPU. */
#include "tensor/cuda/kernels/pinned.h"

#include "check.h"

enum { IN = 40, OUT = 24, MOST = 200, MOST_CALLS = 512, WORKSPACE = 64, TRIED = 64 };

/* An algorithm of a layer of one pixel. `split` says whether the sums of a sample have two parts in a call with n
 * samples, which changes their bits. */
typedef struct algorithm {
    bool (*split)(int n, int sample);
    int refused; /* prepare refuses this n */
    int failing; /* run refuses this n */
    bool unfit;  /* `suits` refuses it */
    double time; /* seconds of a call */
} algorithm;

static bool never(int n, int sample)
{
    (void)n, (void)sample;
    return false;
}

static bool always(int n, int sample)
{
    (void)n, (void)sample;
    return true;
}

static bool for_many(int n, int sample)
{
    (void)sample;
    return n >= 32;
}

static bool for_seven(int n, int sample)
{
    (void)sample;
    return n == 7;
}

static bool for_alone(int n, int sample)
{
    (void)sample;
    return n == 1;
}

/* One sample of the largest call, in the middle and at the end. */
static bool in_middle(int n, int sample)
{
    return n == MOST && sample == 130;
}

static bool at_end(int n, int sample)
{
    return n == MOST && sample == MOST - 1;
}

/* An incomplete tile of a kernel. */
static bool in_last_sample(int n, int sample)
{
    return n > 1 && sample == n - 1;
}

static bool for_hundred(int n, int sample)
{
    (void)sample;
    return n == 100;
}

static const algorithm plain = {.split = never};

/* The layer, and what the test sees of it. */
static struct layer {
    const algorithm *list, *at;
    int calls_open;
    int run[MOST_CALLS], runs; /* n of each call */
    bool no_memory;            /* trials get none */
    int blocks;                /* of trials, in use */
    char workspace[WORKSPACE];
    const algorithm *last; /* of the last call */
} layer;

typedef struct call {
    int n;
    const algorithm *by;
} call;

static void take(void *at, int candidate)
{
    struct layer *l = at;
    l->at = &l->list[candidate];
}

static lk_status suits(void *at, const lk_cuda_problem *problem, const lk_cuda_io *io, bool *out)
{
    (void)problem, (void)io;
    *out = !((struct layer *)at)->at->unfit;
    return LK_OK;
}

static lk_status prepare(void *at, const lk_cuda_problem *problem, void **out)
{
    struct layer *l = at;
    *out = NULL;
    if (problem->n == l->at->refused)
        return LK_OK;
    call *made = calloc(1, sizeof *made);
    assert_non_null(made);
    *made = (call){problem->n, l->at};
    l->calls_open++;
    *out = made;
    return LK_OK;
}

static size_t workspace(const void *made)
{
    (void)made;
    return WORKSPACE;
}

static float product(const float *x, const float *w, bool split)
{
    float sum[2] = {0, 0};
    for (int i = 0; i < IN; i++)
        sum[split && i >= IN / 2] += x[i] * w[i];
    return split ? sum[0] + sum[1] : sum[0];
}

static lk_status run(void *at, void *made, const lk_cuda_problem *problem, const lk_cuda_io *io, void *memory)
{
    struct layer *l = at;
    const call *c = made;
    const float *x = io->x, *w = io->w;
    float *y = io->y;
    assert_int_equal(c->n, problem->n);
    assert_non_null(memory);
    assert_true(l->blocks > 0 || memory == l->workspace); /* in trials it is memory of theirs */
    l->last = c->by;
    if (problem->n == c->by->failing)
        return LK_STATUS_UNSUPPORTED;
    if (l->runs < MOST_CALLS)
        l->run[l->runs++] = problem->n;
    for (int s = 0; s < problem->n; s++)
        for (int o = 0; o < OUT; o++)
            y[s * OUT + o] = product(x + (size_t)s * IN, w + (size_t)o * IN, c->by->split(problem->n, s));
    return LK_OK;
}

static void destroy(void *at, void *made)
{
    ((struct layer *)at)->calls_open--;
    free(made);
}

static const lk_cuda_pinned_type calls = {
    .take = take,
    .suits = suits,
    .prepare = prepare,
    .workspace = workspace,
    .run = run,
    .destroy = destroy,
};

static lk_status trial_alloc(const lk_cuda_io *io, size_t bytes, void **out)
{
    (void)io;
    if (layer.no_memory)
        return LK_STATUS_MEMORY;
    *out = malloc(bytes);
    assert_non_null(*out);
    layer.blocks++;
    return LK_OK;
}

static void trial_free(const lk_cuda_io *io, void *block)
{
    (void)io;
    layer.blocks -= block != NULL;
    free(block);
}

static void fill(float *out, size_t count, unsigned seed)
{
    uint32_t state = seed * 2654435761u;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        out[i] = (float)(state >> 8) / (float)(1 << 23) - 1.0f;
    }
}

static void trial_fill(const lk_cuda_io *io, lk_dtype type, size_t count, unsigned seed, void *out)
{
    (void)io;
    assert_int_equal(type, LK_DTYPE_F32);
    fill(out, count, seed);
}

static lk_status trial_reset(const lk_cuda_io *io, unsigned *different)
{
    (void)io;
    *different = 0;
    return LK_OK;
}

static void trial_compare(const lk_cuda_io *io, const void *a, const void *b, size_t bytes, unsigned *different)
{
    (void)io;
    *different += memcmp(a, b, bytes) != 0;
}

static lk_status trial_fetch(const lk_cuda_io *io, const unsigned *different, unsigned *out)
{
    (void)io;
    *out = *different;
    return LK_OK;
}

/* By the clock of the algorithms. */
static lk_status trial_time(const lk_cuda_io *io, lk_status (*work)(void *arg), void *arg, double *seconds)
{
    (void)io;
    lk_status status = work(arg);
    *seconds = layer.last->time;
    return status;
}

static const lk_cuda_trial_type host_trial = {
    .alloc = trial_alloc,
    .free = trial_free,
    .fill = trial_fill,
    .reset = trial_reset,
    .compare = trial_compare,
    .fetch = trial_fetch,
    .time = trial_time,
};

static void *scratch(lk_device *dev, size_t bytes)
{
    (void)dev;
    assert_true(bytes <= sizeof layer.workspace);
    return layer.workspace;
}

/* A pinned layer and its tensors. */
typedef struct fixture {
    lk_cuda_pinned pinned;
    lk_cuda_problem problem;
    lk_cuda_io io;
    float x[MOST * IN], w[OUT * IN], y[MOST * OUT];
} fixture;

static fixture f;

static void begin(const algorithm *list)
{
    layer = (struct layer){.list = list};
    f.pinned = (lk_cuda_pinned){.type = &calls, .trial = &host_trial, .layer = &layer};
    f.problem = (lk_cuda_problem){.pass = LK_CUDA_PASS_FORWARD,
                                  .values = LK_DTYPE_F32,
                                  .h = 1,
                                  .w = 1,
                                  .c = IN,
                                  .x_pitch = IN,
                                  .p = 1,
                                  .q = 1,
                                  .k = OUT,
                                  .y_pitch = OUT,
                                  .along_h = {1, 1, 0, 1},
                                  .along_w = {1, 1, 0, 1},
                                  .groups = 1};
    fill(f.x, MOST * IN, 11);
    fill(f.w, OUT * IN, 12);
    f.io = (lk_cuda_io){.scratch = scratch, .x = f.x, .w = f.w, .y = f.y};
}

static void end(void)
{
    lk__cuda_pinned_clear(&f.pinned);
    assert_int_equal(layer.calls_open, 0);
    assert_int_equal(layer.blocks, 0);
}

static lk_status choose(int count)
{
    int weights[LK_CUDA_MOST_CANDIDATES];
    for (int i = 0; i < count; i++)
        weights[i] = lk__cuda_pinned_weight(i);
    return lk__cuda_pinned_choose(&f.pinned, weights, count, &f.problem, &f.io);
}

static bool is_pinned(const algorithm *list, int count)
{
    begin(list);
    assert_ok(choose(count));
    return f.pinned.chosen;
}

/* The algorithm whose bits the layer has. */
static const algorithm *basis(void)
{
    return &layer.list[f.pinned.basis];
}

/* Runs n samples, and checks that each has the bits of a sample alone. The calls of the run alone remain in layer. */
static void run_samples(int n)
{
    f.problem.n = n;
    assert_ok(lk__cuda_pinned_run(&f.pinned, &f.problem, &f.io));
    layer.runs = 0;
    memset(f.y, 0xff, sizeof f.y);
    assert_ok(lk__cuda_pinned_run(&f.pinned, &f.problem, &f.io)); /* without trials */
    for (int s = 0; s < n; s++)
        for (int o = 0; o < OUT; o++) {
            float want = product(f.x + s * IN, f.w + o * IN, basis()->split(1, 0));
            assert_memory_equal(&want, &f.y[s * OUT + o], sizeof want);
        }
}

static void assert_calls(const int *want, int count)
{
    assert_int_equal(layer.runs, count);
    for (int i = 0; i < count; i++)
        assert_int_equal(layer.run[i], want[i]);
}

static void assert_described(int n, const char *want)
{
    char text[LK_CUDA_PINNED_TEXT];
    (void)lk__cuda_pinned_describe(&f.pinned, &f.problem, n, text);
    assert_string_equal(text, want);
}

static void test_independent_algorithms_are_used_whole(void **state)
{
    static const algorithm splits = {.split = always};
    assert_true(is_pinned(&plain, 1));
    assert_int_equal(lk__cuda_pinned_samples(&f.problem), TRIED);
    run_samples(100);
    assert_calls((int[]){100}, 1);
    assert_described(100, "whole");
    end();
    assert_true(is_pinned(&splits, 1));
    run_samples(3);
    assert_calls((int[]){3}, 1);
    end();
}

/* The other order of sums changes bits; otherwise the tests below could not fail. */
static void test_planted_algorithms_differ(void **state)
{
    int different = 0;
    begin(&plain);
    for (int o = 0; o < OUT; o++)
        different += product(f.x, f.w + o * IN, true) != product(f.x, f.w + o * IN, false);
    assert_true(different > OUT / 2);
}

static void test_dependent_algorithms_are_refused(void **state)
{
    static const algorithm planted[] = {
        {.split = for_many},
        {.split = for_seven},
        {.split = for_alone},
        {.split = in_last_sample},
        {.split = never, .refused = TRIED},
        {.split = never, .refused = 1},
        {.split = never, .refused = 16},
        {.split = never, .failing = TRIED},
        {.split = never, .failing = 3},
        {.split = never, .unfit = true},
    };
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        assert_false(is_pinned(&planted[i], 1));
        end();
        const algorithm list[] = {planted[i], plain};
        assert_true(is_pinned(list, 2));
        assert_ptr_equal(basis(), &list[1]);
        run_samples(100);
        assert_calls((int[]){100}, 1);
        end();
    }
}

/* The choice does not see the samples of the call, even if all of them are zero. */
static void test_samples_do_not_count(void **state)
{
    static const algorithm list[] = {{.split = for_many}, {.split = for_seven}, {.split = never}};
    for (int n = 1; n <= MOST; n += 33) {
        begin(list);
        memset(f.x, 0, sizeof f.x);
        memset(f.w, 0, sizeof f.w);
        f.problem.n = n;
        assert_ok(choose(3));
        assert_true(f.pinned.chosen);
        assert_ptr_equal(basis()->split, never);
        end();
    }
}

/* An algorithm that passes the trials of the choice, but not those of 100 samples. */
static void test_numbers_that_fail_are_divided(void **state)
{
    static const algorithm planted[] = {
        {.split = for_hundred}, {.split = never, .refused = 100}, {.split = never, .failing = 100}};
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        assert_true(is_pinned(&planted[i], 1));
        run_samples(100);
        assert_calls((int[]){64, 36}, 2);
        assert_described(100, "in parts of at most 64 samples");
        run_samples(101);
        assert_calls((int[]){101}, 1);
        end();
    }
}

/* Above N, a trial has calls of N samples by the pinned algorithm in place of samples alone, and sees every sample. */
static void test_many_samples_have_few_calls(void **state)
{
    static const algorithm list[] = {{.split = never, .time = 2}, {.split = never, .time = 1}};
    static const algorithm planted[] = {{.split = in_middle}, {.split = at_end}};
    assert_true(is_pinned(&plain, 1));
    layer.runs = 0;
    f.problem.n = MOST;
    assert_ok(lk__cuda_pinned_run(&f.pinned, &f.problem, &f.io));
    assert_calls((int[]){MOST, TRIED, TRIED, TRIED, TRIED, MOST, MOST}, 7); /* tried, compared, timed, used */
    layer.runs = 0;
    f.problem.n = 2 * TRIED;
    assert_ok(lk__cuda_pinned_run(&f.pinned, &f.problem, &f.io));
    assert_calls((int[]){2 * TRIED, TRIED, TRIED, 2 * TRIED, 2 * TRIED}, 5);
    layer.runs = 0;
    f.problem.n = TRIED;
    assert_ok(lk__cuda_pinned_run(&f.pinned, &f.problem, &f.io));
    assert_int_equal(layer.runs, TRIED + 3);
    end();
    assert_true(is_pinned(list, 2));
    layer.runs = 0;
    run_samples(TRIED + 1);
    assert_ptr_equal(layer.last, &list[1]);
    end();
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        assert_true(is_pinned(&planted[i], 1));
        run_samples(MOST);
        assert_calls((int[]){TRIED, TRIED, TRIED, MOST - 3 * TRIED}, 4);
        end();
    }
}

static bool for_five(int n, int sample)
{
    (void)sample;
    return n == 5;
}

static void test_small_numbers_that_fail_run_alone(void **state)
{
    static const algorithm planted = {.split = for_five};
    assert_true(is_pinned(&planted, 1));
    run_samples(5);
    assert_calls((int[]){1, 1, 1, 1, 1}, 5);
    assert_described(5, "each sample alone");
    end();
}

/* Without memory for trials the choice fails; a number of samples is divided, with the same bits. */
static void test_memory_decides_no_bits(void **state)
{
    static const algorithm list[] = {{.split = for_many}, {.split = never}};
    begin(list);
    layer.no_memory = true;
    assert_int_equal(choose(2), LK_STATUS_MEMORY);
    assert_false(f.pinned.chosen);
    assert_int_equal(layer.calls_open, 0);
    assert_true(is_pinned(list, 2));
    layer.no_memory = true;
    run_samples(130);
    assert_calls((int[]){64, 64, 1, 1}, 4);
    end();
}

/* Of two kinds of bits, the one that the library prefers on the whole is taken, not that of its first algorithm. */
static void test_the_heaviest_kind_is_taken(void **state)
{
    static const algorithm list[] = {{.split = always}, {.split = never}, {.split = never}, {.split = never}};
    assert_true(is_pinned(list, 4));
    assert_ptr_equal(basis(), &list[1]);
    end();
    assert_true(is_pinned(list, 2));
    assert_ptr_equal(basis(), &list[0]);
    end();
}

/* Each number of samples is computed by the fastest algorithm that has the layer's bits; time decides no bits. */
static void test_time_decides_no_bits(void **state)
{
    static const algorithm list[] = {{.split = never, .time = 3},
                                     {.split = never, .time = 1, .refused = 5},
                                     {.split = for_hundred, .time = .5},
                                     {.split = always, .time = .1}};
    static const struct {
        int n, by;
    } want[] = {{TRIED, 2}, {3, 2}, {100, 1}, {5, 2}, {1, 0}, {30, 2}};
    assert_true(is_pinned(list, 4));
    assert_ptr_equal(basis(), &list[0]);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        run_samples(want[i].n);
        assert_calls(&want[i].n, 1);
        assert_ptr_equal(layer.last, &list[want[i].by]);
    }
    end();
}

/* A little faster is not enough: the library's order counts. */
static void test_small_differences_of_time_do_not_count(void **state)
{
    static const algorithm list[] = {{.split = never, .time = 1}, {.split = never, .time = .99}};
    assert_true(is_pinned(list, 2));
    run_samples(20);
    assert_ptr_equal(layer.last, &list[0]);
    end();
}

TEST_MAIN(NULL, NULL, TEST(test_the_heaviest_kind_is_taken), TEST(test_time_decides_no_bits),
          TEST(test_small_differences_of_time_do_not_count), TEST(test_independent_algorithms_are_used_whole),
          TEST(test_planted_algorithms_differ), TEST(test_dependent_algorithms_are_refused),
          TEST(test_samples_do_not_count), TEST(test_numbers_that_fail_are_divided),
          TEST(test_small_numbers_that_fail_run_alone), TEST(test_memory_decides_no_bits),
          TEST(test_many_samples_have_few_calls))
