/* test_batchnorm_addition.c - the addition that completes the gradient of a batch normalisation where it is summed: the
 * bits of two slots by one, on the CPU and on GPUs. */
#include "tensor/kernel_test.h"

/* An addition that completes dy, and the sums of its gradient, by one slot or by two. */
typedef struct rest_case {
    lk_shape shape;
    int shards;
    int wave; /* shards of a wave; 0: all */
    bool per_shard, at_once;
    bool made;      /* the mask is the result of a normalisation that adds it, by its signs if the device has them */
    bool plain;     /* no mask, */
    bool relu, six; /* but perhaps a ReLU or ReLU6 */
    const float *x, *dy, *part, *mask; // (n, h, w, c)
    const float *rows;                 // (2, shards * c), then gamma and beta
} rest_case;

/* Results: dy, the sums of each shard, those of all, and the gradients of gamma and beta. */
static size_t rest_count(const rest_case *r)
{
    return lk__shape_count(r->shape) + ((size_t)r->shards + 2) * 2 * r->shape.c;
}

/* Replaces the mask by y, the result of a normalisation, or by its signs. */
static void make_mask(lk_device *d, lk_batchnorm_desc desc, const lk_tensor *x, const fx_wave *v, const lk_moments *m,
                      lk_tensor *y, lk_batchnorm_addition *add)
{
    desc.other = &add->mask;
    desc.relu = true;
    d->kernels->batchnorm_forward(d, &desc, x, &v->shards, m, y);
    add->mask = desc.signs ? (lk_tensor){0} : *y;
    add->signs = desc.signs;
}

static void run_rest(lk_device *d, const void *arg, float *out)
{
    const rest_case *r = arg;
    size_t c = r->shape.c, row = (size_t)r->shards * c, slots = fx_slots(r->shards);
    lk_tensor all_x = fx_input(d, r->shape, r->x), all_dy = fx_input(d, r->shape, r->dy);
    lk_tensor part = fx_input(d, r->shape, r->part), mask = fx_input(d, r->shape, r->mask);
    lk_tensor all_y = fx_tensor(d, r->shape);
    bool signs = r->made && r->at_once && d->type->signs && lk__tensor_pitch(&all_y) % 8 == 0;
    float *rows = fx_floats(d, r->rows, 2 * row + 2 * c), *leaves = fx_no_floats(d, 2 * row);
    float *sums = fx_no_floats(d, slots * 2 * c), *grads = fx_no_floats(d, slots * 2 * c);
    lk_batchnorm_desc desc = {.gamma = rows + 2 * row, .beta = rows + 2 * row + c, .relu = r->relu, .six = r->six};
    if (signs)
        desc.signs = fx_blank(d, fx_bytes(&all_y) / 16);
    for (int lo = 0, wave = r->wave ? r->wave : r->shards; lo < r->shards; lo += wave) {
        fx_wave v;
        fx_wave_init(&v, r->shape.n, r->shards, lo, wave);
        lk_tensor x = lk__tensor_rows(&all_x, v.first, v.n), dy = lk__tensor_rows(&all_dy, v.first, v.n);
        lk_tensor y = lk__tensor_rows(&all_y, v.first, v.n);
        lk_batchnorm_addition add = {lk__tensor_rows(&part, v.first, v.n), lk__tensor_rows(&mask, v.first, v.n), NULL};
        size_t group = r->per_shard ? (size_t)lo * c : 0;
        lk_moments m = {r->per_shard ? v.shards.count : 1, rows + group, rows + row + group};
        bool last = lo + v.shards.count == r->shards;
        lk_batchnorm_sums to = {.sums = leaves + (size_t)lo * 2 * c, .partials = {sums, 2 * c}};
        to.dgamma = last ? (lk_partials){grads, 2 * c} : (lk_partials){0};
        to.dbeta = last ? (lk_partials){grads + c, 2 * c} : (lk_partials){0};
        if (r->made)
            make_mask(d, desc, &x, &v, &m, &y, &add);
        if (r->plain)
            add.mask = (lk_tensor){0};
        if (r->at_once)
            d->kernels->batchnorm_add_sums(d, &desc, &add, &x, &v.shards, &m, &dy, &to);
        else if (r->plain)
            d->kernels->add(d, &dy, &add.part, false, &dy);
        else
            d->kernels->add_masked(d, &dy, &add.part, &add.mask, &dy);
        if (!r->at_once)
            d->kernels->batchnorm_sums(d, &desc, &x, &dy, &v.shards, &m, &to);
    }
    fx_read(d, &all_dy, out);
    out += lk__shape_count(r->shape);
    fx_get_floats(d, leaves, 2 * row, out);
    fx_get_floats(d, sums, 2 * c, out + 2 * row);
    fx_get_floats(d, grads, 2 * c, out + 2 * row + 2 * c);
}

static void check_rest(rest_case r)
{
    size_t values = lk__shape_count(r.shape), count = rest_count(&r);
    if (fx_too_large(values))
        return;
    float *x = random_values(values, 1), *dy = random_values(values, 2), *part = random_values(values, 3);
    float *mask = random_values(values, 4), *rows = random_floats(((size_t)r.shards + 1) * 2 * r.shape.c, 5);
    for (size_t i = 0; i < values; i++)
        mask[i] = i % 7 == 0 ? 0.0f : i % 11 == 0 ? -0.0f : mask[i];
    mask[values / 2] = dy[values - 1] = NAN; /* a NaN passes; another one may be masked */
    mask[values - 1] = -1;
    r.x = x;
    r.dy = dy;
    r.part = part;
    r.mask = mask;
    r.rows = rows;
    for (int mode = 0; mode < 10; mode++) {
        r.per_shard = mode % 2;
        r.made = mode / 2 == 1;
        r.plain = mode >= 4;
        r.relu = mode >= 6;
        r.six = mode >= 8;
        r.at_once = true;
        float *got = fx_bits_in_waves("addition and sums", run_rest, &r, count, &r.wave);
        r.at_once = false;
        float *want = fx_bits_brief("addition, sums", run_rest, &r, count);
        fx_same("addition and sums", got, want, count);
        assert_true(r.made || fx_equal(got[values / 2], fx_round(dy[values / 2] + part[values / 2])));
        assert_true(r.made || (r.plain ? isnan(got[values - 1]) : got[values - 1] == 0));
        free(got);
        free(want);
    }
    free(x);
    free(dy);
    free(part);
    free(mask);
    free(rows);
}

static void test_addition_to_gradient(void **state)
{
    static const size_t channels[] = {1, 3, 8, 21, 64, 106, 300};
    for (size_t i = 0; i < COUNT_OF(channels); i++) {
        check_rest((rest_case){.shape = {13, channels[i], 5, 6}, .shards = 5});
        check_rest((rest_case){.shape = {6, channels[i], 7, 3}, .shards = 16}); /* empty shards */
    }
    check_rest((rest_case){.shape = {75, 11, 3, 2}, .shards = 70}); /* more shards than a launch on a GPU has */
    check_rest((rest_case){.shape = {17, 128, 32, 32}, .shards = 2});
    check_rest((rest_case){.shape = {5, 2048, 7, 7}, .shards = 3});
}

int main(int argc, char **argv)
{
    return fx_kernel_main(argc, argv, TESTS(TEST(test_addition_to_gradient)), FX_FP32 | FX_BF16);
}
