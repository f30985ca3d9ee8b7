/* test_embedding.c - rows of a table by ids, and the gradient of the table, which has the bits of its definition in
 * waves of any size, on the CPU and on GPUs. */
#include "tensor/kernel_test.h"

typedef struct table_case {
    lk_shape x;   /* ids */
    size_t width; /* of a row */
    lk_embedding_desc desc;
    int shards, wave; /* wave 0: all shards */
    const float *ids, *w, *dy;
} table_case;

static size_t tokens_of(const table_case *c)
{
    return lk__shape_count(c->x);
}

static lk_shape y_of(const table_case *c)
{
    return (lk_shape){.n = c->x.n, .h = 1, .w = lk__shape_sample(c->x), .c = c->width};
}

/* Results: y, and the gradient of the table. */
static void run_table(lk_device *d, const void *arg, float *out)
{
    const table_case *c = arg;
    size_t floats = c->desc.rows * c->width;
    lk_tensor x = fx_input(d, c->x, c->ids), dy = fx_input(d, y_of(c), c->dy), y = fx_tensor(d, y_of(c));
    float *w = fx_floats(d, c->w, floats), *slots = fx_no_floats(d, fx_slots(c->shards) * floats);
    void *scratch = fx_blank(d, d->kernels->embedding_scratch(d, &c->desc, c->x, y_of(c)));
    d->kernels->embedding_forward(d, &c->desc, &x, w, &y);
    for (int lo = 0, wave = c->wave ? c->wave : c->shards; lo < c->shards; lo += wave) {
        fx_wave v;
        size_t first = lk__shard_begin(c->x.n, c->shards, lo);
        fx_wave_init(&v, c->x.n, c->shards, lo, wave);
        lk_tensor part = lk__tensor_rows(&x, first, v.begin[v.shards.count]);
        lk_tensor grads = lk__tensor_rows(&dy, first, v.begin[v.shards.count]);
        d->kernels->embedding_grad_weight(d, &c->desc, &part, &grads, &v.shards, (lk_partials){slots, floats}, scratch);
    }
    fx_read(d, &y, out);
    fx_get_floats(d, slots, floats, out + tokens_of(c) * c->width);
}

static float leaf_of(const table_case *c, int shard, size_t row, size_t column)
{
    size_t sample = lk__shape_sample(c->x);
    float sum = 0;
    for (size_t i = lk__shard_begin(c->x.n, c->shards, shard) * sample;
         i < lk__shard_begin(c->x.n, c->shards, shard + 1) * sample; i++) {
        if (c->ids[i] == (float)row)
            sum += c->dy[i * c->width + column];
    }
    return sum;
}

static float sum_of(const table_case *c, int lo, int hi, size_t row, size_t column)
{
    if (hi - lo == 1)
        return leaf_of(c, lo, row, column);
    int middle = lk__tree_middle(lo, hi);
    return sum_of(c, lo, middle, row, column) + sum_of(c, middle, hi, row, column);
}

/* bad: ids that are no ids are among the others. */
static void check_table(lk_shape x, size_t rows, size_t width, int shards, bool bad)
{
    static const float wrong[] = {-1.0f, 0.5f, NAN, INFINITY, -0.25f};
    table_case c = {.x = x, .width = width, .desc = {.rows = rows}, .shards = shards};
    size_t tokens = tokens_of(&c), count = tokens * width + rows * width;
    float *ids = random_floats(tokens, 1), *w = random_floats(rows * width, 2);
    float *dy = random_floats(tokens * width, 3), *want = new_floats(count);
    for (size_t i = 0; i < tokens; i++) {
        ids[i] = floorf((ids[i] + 1.0f) / 2.0f * (float)rows);
        if (bad && i % 3 == 1)
            ids[i] = i % 2 ? wrong[i % COUNT_OF(wrong)] : (float)rows;
        bool good = ids[i] >= 0 && ids[i] < (float)rows && floorf(ids[i]) == ids[i];
        for (size_t k = 0; k < width; k++)
            want[i * width + k] = good ? w[(size_t)ids[i] * width + k] : NAN;
    }
    c.ids = ids;
    c.w = w;
    c.dy = dy;
    for (size_t i = 0; i < rows * width; i++)
        want[tokens * width + i] = sum_of(&c, 0, shards, i / width, i % width);
    float *got = fx_bits_in_waves("embedding", run_table, &c, count, &c.wave);
    fx_same("embedding", got, want, count);
    free(got);
    free(ids);
    free(w);
    free(dy);
    free(want);
}

/* Vectors of ids and sequences of one channel; rows that fill no vector, and more than a block of a GPU has; a table
 * that is larger than the batch; empty shards; no samples; more shards than one launch takes. */
static void test_tables(void **state)
{
    check_table((lk_shape){.n = 7, .c = 5, .h = 1, .w = 1}, 11, 6, 5, false);
    check_table((lk_shape){.n = 7, .c = 1, .h = 1, .w = 9}, 4, 21, 7, false);
    check_table((lk_shape){.n = 3, .c = 1, .h = 1, .w = 1}, 2, 1, 16, false);
    check_table((lk_shape){.n = 5, .c = 13, .h = 1, .w = 1}, 300, 8, 3, false);
    check_table((lk_shape){.n = 9, .c = 40, .h = 1, .w = 1}, 7, 130, 4, false);
    check_table((lk_shape){.n = 2, .c = 3, .h = 1, .w = 1}, 5, 300, 1, false);
    check_table((lk_shape){.n = 0, .c = 3, .h = 1, .w = 1}, 5, 4, 2, false);
    check_table((lk_shape){.n = 31, .c = 3, .h = 1, .w = 1}, 5, 3, 1100, false);
}

/* One shard of a wave, as a search for a non-finite gradient wants it: the others have no part in the result. */
static void run_shard(lk_device *d, const void *arg, float *out)
{
    const table_case *c = arg;
    fx_wave v;
    size_t floats = c->desc.rows * c->width;
    lk_tensor x = fx_input(d, c->x, c->ids), dy = fx_input(d, y_of(c), c->dy);
    float *slots = fx_no_floats(d, floats);
    void *scratch = fx_blank(d, d->kernels->embedding_scratch(d, &c->desc, c->x, y_of(c)));
    fx_wave_init(&v, c->x.n, c->shards, 0, c->shards);
    lk_shards one = {
        .count = 1, .begin = v.begin + c->wave, .most = v.shards.most, .all = c->shards, .merges = (const int[]){0}};
    d->kernels->embedding_grad_weight(d, &c->desc, &x, &dy, &one, (lk_partials){slots, floats}, scratch);
    fx_get_floats(d, slots, floats, out);
}

static void test_one_shard(void **state)
{
    enum { TOKENS = 9 * 5, ROWS = 4, WIDTH = 7, COUNT = ROWS * WIDTH };
    table_case c = {.x = {.n = 9, .c = 5, .h = 1, .w = 1}, .width = WIDTH, .desc = {.rows = ROWS}, .shards = 4};
    float *ids = random_floats(TOKENS, 1), *dy = random_floats(TOKENS * WIDTH, 3), want[COUNT];
    for (size_t i = 0; i < TOKENS; i++)
        ids[i] = floorf((ids[i] + 1.0f) / 2.0f * ROWS);
    c.ids = ids;
    c.dy = dy;
    for (c.wave = 0; c.wave < c.shards; c.wave++) {
        for (size_t i = 0; i < COUNT; i++)
            want[i] = leaf_of(&c, c.wave, i / WIDTH, i % WIDTH);
        fx_check("one shard of an embedding", run_shard, &c, want, COUNT);
    }
    free(ids);
    free(dy);
}

static void test_wrong_ids(void **state)
{
    check_table((lk_shape){.n = 7, .c = 5, .h = 1, .w = 1}, 11, 6, 5, true);
    check_table((lk_shape){.n = 4, .c = 1, .h = 1, .w = 12}, 3, 9, 4, true);
}

int main(int argc, char **argv)
{
    return fx_kernel_main(argc, argv, TESTS(TEST(test_tables), TEST(test_one_shard), TEST(test_wrong_ids)), FX_FP32);
}
