/* test_rings.c - results that a device posts to a ring in host memory, and data that it fetches from such a ring,
 * on the CPU and on GPUs. */
#include "tensor/kernel_test.h"

enum { SLOTS = 4, STRIDE = 8192, RING = SLOTS * STRIDE };

/* Memory that device and host can read and write. */
static char *open_ring(lk_device *d)
{
    void *ring;
    if (d->type->alloc_host)
        assert_ok(d->type->alloc_host(d, RING, "ring", &ring));
    else
        assert_non_null(ring = calloc(SLOTS, STRIDE));
    return ring;
}

static void close_ring(lk_device *d, char *ring)
{
    if (d->type->free_host)
        d->type->free_host(d, ring);
    else
        free(ring);
}

typedef struct post_case {
    size_t n;
    uint32_t turn;
    lk_flag flag;
    const float *loss;
    const int32_t *place;
    const float *error;  /* (n, 2), or NULL */
    const lk_norm *norm; /* or NULL */
} post_case;

/* Results: all bytes of the ring. */
static void run_post(lk_device *d, const void *arg, float *out)
{
    const post_case *p = arg;
    char *ring = open_ring(d);
    lk_post post = {.n = p->n, .ring = ring, .slots = SLOTS, .stride = STRIDE};
    post.loss = fx_floats(d, p->loss, p->n);
    post.label_rank = fx_put(d, p->place, p->n * sizeof *p->place);
    post.error = p->error ? fx_floats(d, p->error, 2 * p->n) : NULL;
    post.flag = fx_put(d, &p->flag, sizeof p->flag);
    post.turn = fx_put(d, &p->turn, sizeof p->turn);
    post.norm = p->norm ? fx_put(d, p->norm, sizeof *p->norm) : NULL;
    d->kernels->post(d, &post);
    assert_ok(d->type->sync(d));
    lk_results *results = (lk_results *)(void *)(ring + p->turn % SLOTS * STRIDE), copy;
    memset(&copy, 0, sizeof copy); /* clears the padding between fields */
    copy.flag.first = results->flag.first;
    copy.flag.bad = results->flag.bad;
    copy.square = results->square;
    copy.number = results->number;
    memcpy(results, &copy, sizeof copy);
    fx_spread(ring, RING, out);
    close_ring(d, ring);
}

static void check_post(const post_case *p)
{
    char *ring = calloc(SLOTS, STRIDE), *at = ring + p->turn % SLOTS * STRIDE;
    float *spread = new_floats(RING);
    lk_results results;
    assert_non_null(ring);
    memset(&results, 0, sizeof results);
    results.flag.first = p->flag.first;
    results.flag.bad = p->flag.bad;
    results.square = p->norm ? p->norm->square : 0;
    results.number = p->turn + 1;
    memcpy(at, &results, sizeof results);
    memcpy(at + sizeof results, p->loss, p->n * sizeof *p->loss);
    memcpy(at + sizeof results + p->n * sizeof *p->loss, p->place, p->n * sizeof *p->place);
    if (p->error)
        memcpy(at + sizeof results + 2 * p->n * sizeof *p->loss, p->error, 2 * p->n * sizeof *p->error);
    fx_spread(ring, RING, spread);
    float *got = fx_bits_brief("post", run_post, p, RING);
    fx_same("post", got, spread, RING);
    free(got);
    free(ring);
    free(spread);
}

static void test_post(void **state)
{
    static const size_t counts[] = {0, 1, 3, 64, 257, 1000};
    int32_t place[1000];
    for (int32_t k = 0; k < 1000; k++)
        place[k] = k % 10;
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        float *loss = random_floats(counts[i], 5);
        post_case p = {.n = counts[i], .turn = (uint32_t)i, .loss = loss, .place = place};
        p.flag = (lk_flag){.first = LK_FLAG_NONE};
        check_post(&p);
        p.norm = &(lk_norm){.square = 1.0 / 3 + (double)i, .factor = 0.5f};
        check_post(&p);
        p.flag = (lk_flag){.first = 7 + i, .bad = 1};
        check_post(&p);
        float *error = random_floats(2 * counts[i], 6);
        p.error = error;
        if (4 * counts[i] * sizeof *error + sizeof(lk_results) <= STRIDE)
            check_post(&p);
        free(error);
        free(loss);
    }
}

typedef struct fetch_case {
    size_t words;
    uint32_t turn;
} fetch_case;

/* Results: the slots of two turns, and the turn after them. */
static void run_fetch(lk_device *d, const void *arg, float *out)
{
    const fetch_case *f = arg;
    char *ring = open_ring(d);
    uint32_t words[RING / sizeof(uint32_t)], turn;
    for (size_t i = 0; i < COUNT_OF(words); i++)
        words[i] = (uint32_t)i + 1;
    memcpy(ring, words, sizeof words);
    lk_fetch_desc fetch = {.ring = ring, .slots = SLOTS, .stride = STRIDE, .bytes = f->words * sizeof *words};
    fetch.turn = fx_put(d, &f->turn, sizeof f->turn);
    void *dst = fx_blank(d, fetch.bytes);
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
    static const size_t counts[] = {0, 1, 3, 64, 257, STRIDE / sizeof(uint32_t)};
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        fetch_case f = {.words = counts[i], .turn = (uint32_t)(2 * i)};
        float *got = fx_bits_brief("fetch", run_fetch, &f, 2 * f.words + 1);
        for (size_t k = 0; k < 2 * f.words; k++) {
            size_t slot = (f.turn + k / f.words) % SLOTS, word = slot * STRIDE / sizeof(uint32_t) + k % f.words;
            assert_true(got[k] == (float)(word + 1));
        }
        assert_true(got[2 * f.words] == (float)(f.turn + 2));
        free(got);
    }
}

int main(int argc, char **argv)
{
    return fx_kernel_main(argc, argv, TESTS(TEST(test_post), TEST(test_fetch)), FX_FP32);
}
