/* slots_arrays.c - what works on flat arrays: optimisers, norms, the search for
 * what is not finite, merging vectors of every type, and taking samples from bytes.
 * All as the CPU does it. */
#include <float.h>

#include "cuda/cuda_fixture.h"

static const size_t sizes[] = {0, 1, 3, 16, 21, 64, 1000, 4096, 4097, 50001, 262147};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Exactly the CPU's, and NaNs where it has them. */
static void check_same(const char *what, fx_run run, const void *arg, size_t count)
{
    float *got = fx_twice(what, run, arg, count), *want = fx_once(cpu, run, arg, count);
    fx_same(what, got, want, count);
    free(got);
    free(want);
}

enum { ARRAYS = 3 };
typedef enum rule { SGD, ADAM, ADADELTA } rule;

typedef struct step_case {
    rule rule;
    size_t count, skip; /* elements before the first: arrays need not be aligned to more than an element */
    lk_sgd sgd;
    lk_adam adam;
    lk_adadelta adadelta;
    int flag;                  /* -1: none */
    const float *grad, *start; /* start: param and two states */
} step_case;

static void run_step(lk_device *d, const void *arg, float *out)
{
    const step_case *s = arg;
    const lk_kernels *k = d->kernels;
    lk_flag flag = {.first = s->flag > 0 ? 3 : LK_NOWHERE, .bad = s->flag > 0};
    lk_flag *bad = s->flag >= 0 ? fx_put(d, &flag, sizeof flag) : NULL;
    size_t whole = s->count + s->skip, n = s->count;
    float *grad = (float *)fx_put(d, s->grad, whole * sizeof *grad) + s->skip, *array[ARRAYS];
    for (size_t i = 0; i < ARRAYS; i++)
        array[i] = (float *)fx_put(d, s->start + i * whole, whole * sizeof(float)) + s->skip;
    if (s->rule == SGD)
        k->sgd_step(d, fx_put(d, &s->sgd, sizeof s->sgd), bad, n, grad, array[0],
                    s->sgd.momentum != 0 ? array[1] : NULL);
    else if (s->rule == ADAM)
        k->adam_step(d, fx_put(d, &s->adam, sizeof s->adam), bad, n, grad, array[0], array[1], array[2]);
    else
        k->adadelta_step(d, fx_put(d, &s->adadelta, sizeof s->adadelta), bad, n, grad, array[0], array[1], array[2]);
    for (size_t i = 0; i < ARRAYS; i++)
        fx_get_floats(d, array[i] - s->skip, whole, out + i * whole);
}

static void check_rules(step_case s)
{
    size_t count = ARRAYS * (s.count + s.skip);
    s.rule = SGD;
    for (unsigned i = 0; i < 8; i++) {
        s.sgd = (lk_sgd){.lr = 0.1f,
                         .momentum = i & 1 ? 0.9f : 0.0f,
                         .dampening = i & 2 ? 0.25f : 0.0f,
                         .weight_decay = 0.01f,
                         .nesterov = i & 4,
                         .first = i == 5};
        check_same("sgd", run_step, &s, count);
    }
    s.rule = ADAM;
    s.adam = (lk_adam){0.999f, 0.1f, 0.001f, 0.01f, 0.0316f, 1e-8f, .weight_decay = 0.01f, .shrink = 1.0f};
    check_same("adam", run_step, &s, count);
    s.adam.weight_decay = 0.0f;
    s.adam.shrink = 0.75f;
    check_same("adamw", run_step, &s, count);
    s.rule = ADADELTA;
    s.adadelta = (lk_adadelta){1.0f, 0.9f, 0.1f, 1e-6f, 0.01f};
    check_same("adadelta", run_step, &s, count);
}

static void check_steps(size_t count, size_t skip)
{
    size_t whole = count + skip;
    float *grad = random_floats(whole, 1), *start = random_floats(ARRAYS * whole, 2);
    for (size_t i = whole; i < ARRAYS * whole; i++)
        start[i] = fabsf(start[i]);
    step_case s = {.count = count, .skip = skip, .grad = grad, .start = start};
    for (s.flag = -1; s.flag <= 1; s.flag++)
        check_rules(s);
    free(grad);
    free(start);
}

static void test_steps(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++)
        check_steps(sizes[i], 0);
}

typedef struct array_case {
    size_t count, skip;
    const float *x;
    lk_flag flag;
    uint64_t base;
    float limit;
} array_case;

static float *put_array(lk_device *d, const array_case *a)
{
    return (float *)fx_put(d, a->x, (a->skip + a->count) * sizeof *a->x) + a->skip;
}

static size_t blocks_of(size_t count)
{
    return (count + LK_NORM_BLOCK - 1) / LK_NORM_BLOCK;
}

/* The bits of the doubles, then x scaled. */
static void run_norm(lk_device *d, const void *arg, float *out)
{
    const array_case *a = arg;
    size_t blocks = blocks_of(a->count);
    float *x = put_array(d, a);
    double *sums = fx_blank(d, blocks * sizeof *sums);
    d->kernels->sum_squares(d, a->count, x, sums);
    d->kernels->scale(d, a->count, 0.3f, x);
    fx_get(d, sums, blocks * sizeof *sums, out);
    fx_get_floats(d, x - a->skip, a->skip + a->count, out + 2 * blocks);
}

static void run_flag_above(lk_device *d, const void *arg, float *out)
{
    const array_case *a = arg;
    lk_flag *flag = fx_put(d, &a->flag, sizeof a->flag), found = {0};
    d->kernels->flag_above(d, a->count, a->limit, put_array(d, a), a->base, flag);
    fx_get(d, flag, sizeof *flag, &found);
    memcpy(out, &found.first, sizeof found.first);
    out[2] = (float)found.bad;
}

static void check_norm(size_t count, size_t skip)
{
    float *x = random_floats(count + skip, 3);
    array_case a = {.count = count, .skip = skip, .x = x};
    check_same("sum_squares and scale", run_norm, &a, 2 * blocks_of(count) + count + skip);
    free(x);
}

static void test_norm(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++)
        check_norm(sizes[i], 0);
}

/* Nothing; then something at one place, at two, and at one before what is known. */
static void check_search(size_t count, size_t skip, float bad)
{
    float *x = random_floats(count + skip, 4);
    array_case a = {.count = count, .skip = skip, .x = x, .flag = {.first = LK_NOWHERE}, .base = 77, .limit = FLT_MAX};
    check_same("flag_above, nothing", run_flag_above, &a, 3);
    for (size_t i = 0; i < 4 && count; i++) {
        size_t at = count * i / 4;
        x[skip + count - 1 - at] = bad;
        a.base = i * 1000003;
        check_same("flag_above", run_flag_above, &a, 3);
        a.flag = (lk_flag){.first = 500, .bad = 1};
        check_same("flag_above, known before", run_flag_above, &a, 3);
        a.flag = (lk_flag){.first = LK_NOWHERE};
    }
    a.limit = 0.75f;
    check_same("flag_above a limit", run_flag_above, &a, 3);
    free(x);
}

static void test_search(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++) {
        check_search(sizes[i], 0, INFINITY);
        check_search(sizes[i], 0, -NAN);
    }
}

static const lk_dtype dtypes[] = {LK_DTYPE_F32, LK_DTYPE_F64, LK_DTYPE_BF16, LK_DTYPE_I64, LK_DTYPE_I32, LK_DTYPE_U8};
enum { DTYPES = sizeof dtypes / sizeof *dtypes, MOST = 1031 };

static const double specials[] = {0.0,   -0.0,  1.0, -1.0,  INFINITY, -INFINITY, 3e38,
                                  -3e38, 1e-40, 0.1, 257.0, 65280.0,  NAN};
enum { SPECIALS = sizeof specials / sizeof *specials };

/* Every pair of special values comes up, then random bits. */
static void fill(lk_dtype dtype, uint32_t stream, void *out)
{
    lk_rng rng = lk__rng(5, LK_RNG_DIGITS, 0, 0, stream);
    for (size_t i = 0; i < MOST; i++) {
        uint64_t bits = (uint64_t)lk__rng_u32(&rng, 2 * i) << 32 | lk__rng_u32(&rng, 2 * i + 1);
        double special = specials[(stream ? i / SPECIALS : i) % SPECIALS];
        double value = i < SPECIALS * SPECIALS ? special : ldexp((double)(int32_t)bits, (int)(bits >> 32) % 40 - 31);
        if (dtype == LK_DTYPE_F32)
            ((float *)out)[i] = (float)value;
        else if (dtype == LK_DTYPE_F64)
            ((double *)out)[i] = value;
        else if (dtype == LK_DTYPE_BF16)
            ((uint16_t *)out)[i] = float_to_bf16((float)value);
        else
            memcpy((uint8_t *)out + i * lk_dtype_size(dtype), &bits, lk_dtype_size(dtype));
    }
}

typedef struct merge_case {
    lk_dtype dtype;
    lk_reduction op;
    size_t count, skip;
    int place; /* of out: 0 apart, 1 over a, 2 over b */
    int divisor;
    const void *a, *b;
} merge_case;

/* Bytes as floats, so that all bits are compared; NaNs, whose bits are nobody's, as one. */
static void read_elements(lk_device *d, lk_dtype dtype, const void *src, size_t count, float *out)
{
    uint8_t *host = malloc(count * 8 + 1);
    assert_non_null(host);
    fx_get(d, src, count * lk_dtype_size(dtype), host);
    for (size_t i = 0; i < count; i++) {
        double x64 = 0;
        if (dtype == LK_DTYPE_F64)
            memcpy(&x64, host + 8 * i, sizeof x64);
        bool nan = isnan(x64) || (dtype == LK_DTYPE_F32 && isnan(((float *)(void *)host)[i])) ||
                   (dtype == LK_DTYPE_BF16 && isnan(bf16_to_float(((uint16_t *)(void *)host)[i])));
        for (size_t k = 0; k < lk_dtype_size(dtype); k++)
            out[i * lk_dtype_size(dtype) + k] = nan ? -1.0f : (float)host[i * lk_dtype_size(dtype) + k];
    }
    free(host);
}

static size_t merge_results(const merge_case *m)
{
    return (m->count + m->skip) * lk_dtype_size(m->dtype);
}

static void run_reduce(lk_device *d, const void *arg, float *out)
{
    const merge_case *m = arg;
    size_t bytes = merge_results(m), skip = m->skip * lk_dtype_size(m->dtype);
    char *a = fx_put(d, m->a, bytes), *b = fx_put(d, m->b, bytes), *to = fx_blank(d, bytes);
    to = m->place == 1 ? a : m->place == 2 ? b : to;
    d->kernels->reduce(d, m->dtype, m->op, m->count, a + skip, b + skip, to + skip);
    read_elements(d, m->dtype, to, m->count + m->skip, out);
}

static void run_divide(lk_device *d, const void *arg, float *out)
{
    const merge_case *m = arg;
    char *x = fx_put(d, m->a, merge_results(m));
    d->kernels->divide(d, m->dtype, m->count, m->divisor, x + m->skip * lk_dtype_size(m->dtype));
    read_elements(d, m->dtype, x, m->count + m->skip, out);
}

static void run_copy_bytes(lk_device *d, const void *arg, float *out)
{
    const merge_case *m = arg;
    char *x = fx_put(d, m->a, m->count + m->skip), *to = fx_put(d, m->b, m->count + m->skip);
    d->kernels->copy_bytes(d, m->count, x + m->skip, to + m->skip);
    read_elements(d, LK_DTYPE_U8, to, m->count + m->skip, out);
}

static void check_merges(lk_dtype dtype, size_t count, size_t skip)
{
    static uint64_t a[MOST], b[MOST];
    static const int divisors[] = {1, 3, 8, 1000};
    fill(dtype, 0, a);
    fill(dtype, 1, b);
    merge_case m = {.dtype = dtype, .count = count, .skip = skip, .a = a, .b = b};
    for (int op = 0; op < LK_REDUCTION_COUNT; op++) {
        m.op = (lk_reduction)op;
        m.place = (op + (int)count) % 3;
        check_same(lk_dtype_name(dtype), run_reduce, &m, merge_results(&m));
    }
    m.divisor = divisors[count % 4];
    check_same("divide", run_divide, &m, merge_results(&m));
}

static void test_merges(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 2, 3, 7, 8, 15, 17, 33, 64, 65, 255, 514, MOST};
    for (size_t i = 0; i < DTYPES; i++) {
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
            check_merges(dtypes[i], lengths[k], 0);
    }
}

static void check_copy(size_t count, size_t skip)
{
    static uint64_t a[MOST], b[MOST];
    fill(LK_DTYPE_I64, 2, a);
    fill(LK_DTYPE_I64, 3, b);
    merge_case m = {.count = count, .skip = skip, .a = a, .b = b};
    check_same("copy_bytes", run_copy_bytes, &m, count + skip);
}

static void test_copy_bytes(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 7, 16, 100, 4096, 8001};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        check_copy(lengths[i], 0);
}

typedef struct post_case {
    size_t n;
    uint32_t step;
    lk_flag flag;
    const float *loss;
    const int32_t *place;
} post_case;

enum { POST_SLOTS = 4, POST_STRIDE = 8192 };

/* Memory that the device writes and the host reads. */
static char *open_ring(lk_device *d)
{
    void *ring;
    if (d->type->alloc_host)
        require(d->type->alloc_host(d, POST_SLOTS * POST_STRIDE, "ring", &ring));
    else
        assert_non_null(ring = calloc(POST_SLOTS, POST_STRIDE));
    return ring;
}

static void close_ring(lk_device *d, char *ring)
{
    if (d->type->free_host)
        d->type->free_host(d, ring);
    else
        free(ring);
}

/* Number, flag, losses and places, all as bits, and how many bytes elsewhere are not 0. */
static void run_post(lk_device *d, const void *arg, float *out)
{
    const post_case *p = arg;
    char *ring = open_ring(d), *at = ring + p->step % POST_SLOTS * POST_STRIDE;
    lk_post post = {.n = p->n, .ring = ring, .slots = POST_SLOTS, .stride = POST_STRIDE};
    post.loss = fx_floats(d, p->loss, p->n);
    post.place = fx_put(d, p->place, p->n * sizeof *p->place);
    post.flag = fx_put(d, &p->flag, sizeof p->flag);
    post.step = fx_put(d, &p->step, sizeof p->step);
    d->kernels->post(d, &post);
    require(d->type->sync(d));
    lk_results results;
    memcpy(&results, at, sizeof results);
    memcpy(out, &results.flag.first, sizeof results.flag.first);
    out[2] = (float)results.flag.bad;
    out[3] = (float)results.number;
    memcpy(out + 4, at + sizeof results, 2 * p->n * sizeof *out);
    memset(at, 0, sizeof results + 2 * p->n * sizeof *out);
    for (size_t i = 0; i < POST_SLOTS * POST_STRIDE; i++)
        out[4 + 2 * p->n] += (float)(ring[i] != 0);
    close_ring(d, ring);
}

static void test_post(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 1, 3, 64, 257, 1000};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        size_t n = counts[i];
        float *loss = random_floats(n, 5);
        int32_t *place = calloc(n + 1, sizeof *place);
        assert_non_null(place);
        for (size_t k = 0; k < n; k++)
            place[k] = (int32_t)(k % 10);
        post_case p = {.n = n, .step = (uint32_t)i, .flag = {.first = LK_NOWHERE}, .loss = loss, .place = place};
        check_same("post", run_post, &p, 5 + 2 * n);
        p.flag = (lk_flag){.first = 7 + i, .bad = 1};
        check_same("post of a flag", run_post, &p, 5 + 2 * n);
        free(loss);
        free(place);
    }
}

typedef struct fetch_case {
    size_t words;
    uint32_t turn;
} fetch_case;

/* The slot of two turns after each other, and the turn then. */
static void run_fetch(lk_device *d, const void *arg, float *out)
{
    const fetch_case *f = arg;
    char *ring = open_ring(d);
    uint32_t words[POST_SLOTS * POST_STRIDE / sizeof(uint32_t)], turn;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        words[i] = (uint32_t)i + 1;
    memcpy(ring, words, sizeof words);
    lk_fetch_desc fetch = {.ring = ring, .slots = POST_SLOTS, .stride = POST_STRIDE, .bytes = f->words * sizeof *words};
    fetch.turn = fx_put(d, &f->turn, sizeof f->turn);
    void *dst = fx_blank(d, fetch.bytes + sizeof *words);
    for (size_t k = 0; k < 2; k++) {
        d->kernels->fetch(d, &fetch, dst);
        fx_get(d, dst, fetch.bytes, words);
        for (size_t i = 0; i < f->words; i++)
            out[k * f->words + i] = (float)words[i];
    }
    fx_get(d, fetch.turn, sizeof turn, &turn);
    out[2 * f->words] = (float)turn;
    close_ring(d, ring);
}

static void test_fetch(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 1, 3, 64, 257, POST_STRIDE / sizeof(uint32_t)};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        fetch_case f = {.words = counts[i], .turn = (uint32_t)(2 * i)};
        check_same("fetch", run_fetch, &f, 2 * f.words + 1);
    }
}

enum { RECORDS = 40, LEVELS = 256 };

typedef struct gather_case {
    lk_shape shape;
    uint32_t epoch;
    const uint8_t *pixels; /* (RECORDS, c, h, w) */
    const float *table;    /* (c, LEVELS) */
    const uint32_t *ids;   /* (n) */
    lk_gather_desc how;    /* all but what is in device memory */
} gather_case;

static void run_gather(lk_device *d, const void *arg, float *out)
{
    const gather_case *g = arg;
    lk_gather_desc desc = g->how;
    lk_tensor x = fx_tensor(d, g->shape);
    desc.pixels = fx_put(d, g->pixels, RECORDS * desc.record);
    desc.table = fx_floats(d, g->table, g->shape.c * LEVELS);
    desc.epoch = fx_put(d, &g->epoch, sizeof g->epoch);
    d->kernels->gather(d, &desc, fx_put(d, g->ids, g->shape.n * sizeof *g->ids), &x);
    fx_read(d, &x, out);
}

/* No transform, crop, flip and both in both orders; a window of a crop by 1000 is as
 * good as always outside of the image. */
static void check_transforms(gather_case g)
{
    static const lk_gather_desc ways[] = {
        {0},
        {.crop = 2},
        {.crop = 1000},
        {.flip = 0.5},
        {.flip = 1},
        {.crop = 3, .flip = 0.5, .crop_layer = 0, .flip_layer = 1},
        {.crop = 3, .flip = 0.7, .crop_layer = 1, .flip_layer = 0},
        {.crop = 1000, .flip = 0.5, .crop_layer = 1, .flip_layer = 0},
    };
    char what[128];
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        g.how = ways[i];
        g.how.record = g.shape.c * g.shape.h * g.shape.w;
        g.how.seed = UINT64_C(0x123456789) + i;
        g.epoch = (uint32_t)i;
        snprintf(what, sizeof what, "gather of %zu times %zux%zux%zu, crop=%u (%u), flip=%g (%u)", g.shape.n, g.shape.c,
                 g.shape.h, g.shape.w, g.how.crop, g.how.crop_layer, g.how.flip, g.how.flip_layer);
        fx_check_same(what, run_gather, &g, g.shape.n * g.how.record);
    }
}

/* Samples in no order, some of them twice. */
static void test_gather(void **state)
{
    (void)state;
    static const lk_shape shapes[] = {{0, 3, 5, 4}, {1, 1, 1, 1},    {33, 1, 28, 28},
                                      {9, 3, 5, 4}, {64, 3, 32, 32}, {5, 17, 15, 13}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        lk_shape shape = shapes[k];
        size_t bytes = RECORDS * shape.c * shape.h * shape.w;
        float *table = random_floats(shape.c * LEVELS, 6);
        uint8_t *pixels = malloc(bytes);
        uint32_t ids[64];
        lk_rng rng = lk__rng(5, LK_RNG_DIGITS, 0, 0, 7);
        assert_non_null(pixels);
        for (size_t i = 0; i < bytes; i++)
            pixels[i] = (uint8_t)lk__rng_u32(&rng, i);
        for (size_t i = 0; i < shape.n; i++)
            ids[i] = (uint32_t)(RECORDS - 1 - i * 7 % RECORDS);
        check_transforms((gather_case){.shape = shape, .pixels = pixels, .table = table, .ids = ids});
        free(table);
        free(pixels);
    }
}

/* Ranges that begin anywhere: the last test, for a fault of the device stays. */
static void test_unaligned(void **state)
{
    (void)state;
    for (size_t skip = 1; skip <= 3; skip++) {
        check_steps(1001, skip);
        check_norm(5001, skip);
        check_search(5001, skip, NAN);
        check_copy(1001, skip);
        for (size_t i = 0; i < DTYPES; i++)
            check_merges(dtypes[i], 1001, skip);
    }
}

/* All but gather know nothing of the value type. */
int main(void)
{
    const struct CMUnitTest samples[] = {cmocka_unit_test(test_gather)};
    const struct CMUnitTest arrays[] = {
        cmocka_unit_test(test_steps),  cmocka_unit_test(test_norm),       cmocka_unit_test(test_search),
        cmocka_unit_test(test_merges), cmocka_unit_test(test_copy_bytes), cmocka_unit_test(test_post),
        cmocka_unit_test(test_fetch),  cmocka_unit_test(test_unaligned),
    };
    int status = fx_main(samples, 1, FX_FP32 | FX_BF16);
    return status != 0 ? status : fx_main(arrays, sizeof arrays / sizeof *arrays, FX_FP32);
}
