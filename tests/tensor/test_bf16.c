/* test_bf16.c - products in bf16: every instruction set of this machine, AMX where it has it, gives the bits of a plain
 * reference in the order of bf16.h; layers on top of them, the values of products in double. */
#include "base/mem.h"
#include "tensor/kernel_test.h"

enum { MOST_ROWS = 64, MOST_COLS = 80, MOST_BLOCKS = 20 };

/* The reference's own rounding, in integers. */
static float rounded(float x)
{
    float value = bf16_to_float(float_to_bf16(x));
    return fabsf(value) < 0x1p-56f ? 0.0f : value;
}

/* c + (e + o) for each block of the sum of a[k] * b[k]. */
static float reference_sum(const float *a, const float *b, size_t blocks, float c)
{
    for (size_t block = 0; block < blocks; block++, a += LK_BF16_BLOCK, b += LK_BF16_BLOCK) {
        float even = 0, odd = 0;
        for (size_t k = 0; k < LK_BF16_BLOCK; k += 2) {
            even = fmaf(a[k], b[k], even);
            odd = fmaf(a[k + 1], b[k + 1], odd);
        }
        c = c + (even + odd);
    }
    return c;
}

/* Two matrices of rounded factors, and the same packed. */
typedef struct factors {
    size_t rows, cols, blocks;
    size_t last;  /* pairs of the last block that are not 0 */
    float *a, *b; // (rows, terms), (cols, terms)
    uint16_t *packed_a;
    uint32_t *packed_b;
} factors;

static size_t terms_of(const factors *f)
{
    return f->blocks * LK_BF16_BLOCK;
}

/* A distance of rows that is longer than a row. */
static size_t a_row(const factors *f)
{
    return terms_of(f) + 6;
}

/* The value of a factor by its random number. */
typedef float (*value_fn)(uint32_t word);

static void make_factors(factors *f, value_fn value, uint32_t stream)
{
    lk_rng rng = lk__rng(12, LK_RNG_PURPOSE_DIGITS, 0, 0, stream);
    size_t terms = terms_of(f), count = 0;
    f->a = new_floats(f->rows * terms);
    f->b = new_floats(f->cols * terms);
    f->packed_a = calloc(f->rows * a_row(f) + 1, sizeof *f->packed_a);
    f->packed_b = calloc(f->cols * terms / 2 + 1, sizeof *f->packed_b);
    assert_true(f->packed_a && f->packed_b);
    size_t whole = terms - (f->blocks ? LK_BF16_BLOCK - 2 * f->last : 0); /* the others stay 0 */
    for (size_t i = 0; i < f->rows * terms; i++) {
        if (i % terms >= whole)
            continue;
        f->a[i] = rounded(value(lk__rng_u32(&rng, count++)));
        f->packed_a[i / terms * a_row(f) + i % terms] = float_to_bf16(f->a[i]);
    }
    for (size_t i = 0; i < f->cols * terms; i++) {
        size_t col = i / terms, k = i % terms, panel = col / LK_BF16_SIDE * terms / 2 * LK_BF16_SIDE;
        if (k >= whole)
            continue;
        f->b[i] = rounded(value(lk__rng_u32(&rng, count++)));
        f->packed_b[panel + k / 2 * LK_BF16_SIDE + col % LK_BF16_SIDE] |= (uint32_t)float_to_bf16(f->b[i])
                                                                          << (k % 2 ? 16 : 0);
    }
}

static void free_factors(factors *f)
{
    free(f->a);
    free(f->b);
    free(f->packed_a);
    free(f->packed_b);
}

static bool same(float a, float b)
{
    return isnan(a) ? isnan(b) : memcmp(&a, &b, sizeof a) == 0;
}

/* Multiplies with one build, with and without sums to continue. */
static void check_build(const lk_cpu_build *build, const factors *f, bool add)
{
    size_t c_row = f->cols + 5;
    float *c = new_floats(f->rows * c_row);
    for (size_t i = 0; i < f->rows * c_row; i++)
        c[i] = (float)(i % 7) - 3.0f;
    lk_bf16_product product = {.rows = f->rows, .cols = f->cols, .blocks = f->blocks, .add = add};
    product.last = f->last;
    product.a = f->packed_a;
    product.a_row = a_row(f);
    product.b = f->packed_b;
    product.b_panel = terms_of(f) / 2 * LK_BF16_SIDE;
    product.c = c;
    product.c_row = c_row;
    build->bf16(&product);
    for (size_t i = 0; i < f->rows * c_row; i++) {
        size_t row = i / c_row, col = i % c_row;
        float before = (float)(i % 7) - 3.0f, want = before;
        if (col < f->cols)
            want = reference_sum(f->a + row * terms_of(f), f->b + col * terms_of(f), f->blocks, add ? before : 0.0f);
        if (!same(c[i], want))
            fail_msg("%s, %zux%zu, %zu blocks: element (%zu, %zu) is %a, not %a", build->name, f->rows, f->cols,
                     f->blocks, row, col, (double)c[i], (double)want);
    }
    free(c);
}

static void check_values(value_fn value)
{
    static const size_t sizes[][3] = {{16, 16, 1}, {32, 32, 1},  {16, 32, 2}, {32, 16, 3},
                                      {48, 80, 7}, {64, 48, 20}, {32, 32, 0}, {16, 16, 9}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        factors f = {.rows = sizes[i][0], .cols = sizes[i][1], .blocks = sizes[i][2]};
        f.last = i % 2 ? 1 + i : LK_BF16_PAIRS;
        const lk_cpu_build *build;
        make_factors(&f, value, (uint32_t)i);
        for (size_t b = 0; (build = lk__cpu_build_list(b)); b++) {
            check_build(build, &f, false);
            check_build(build, &f, true);
        }
        free_factors(&f);
    }
}

static float usual(uint32_t word)
{
    return lk__rng_unit(word) * 2.0f - 1.0f;
}

/* Every exponent, so that sums overflow, cancel, and have factors that count as 0. */
static float any_size(uint32_t word)
{
    return ldexpf(lk__rng_unit(word) * 2.0f - 1.0f, (int)(word % 250) - 140);
}

/* Factors whose products are about as small as products can be, and cancel to less. */
static float tiny(uint32_t word)
{
    float size = ldexpf(1.0f + (float)(word % 3) * 0x1p-7f, -56 - (int)(word >> 8 & 1));
    return word >> 9 & 1 ? size : -size;
}

/* Infinities, NaN and zeros of both signs among ordinary numbers. */
static float special(uint32_t word)
{
    static const float values[] = {INFINITY, -INFINITY, NAN, -0.0f, 0.0f};
    return word % 97 < COUNT_OF(values) ? values[word % 97] : usual(word);
}

static void test_order(void **state)
{
    check_values(usual);
}

static void test_sizes_of_factors(void **state)
{
    check_values(any_size);
    check_values(tiny);
}

static void test_special_values(void **state)
{
    check_values(special);
}

/* x (1, 1) times w (1, 1): the product of the rounded factors, in every build. */
static float product_of(lk_device *d, float x, float w)
{
    float *scratch = NULL, y = -1;
    lk_shape shape = {1, 1, 1, 1};
    lk_tensor in = {&x, LK_DTYPE_F32, shape, 0}, out = {&y, LK_DTYPE_F32, shape, 0};
    assert_int_equal(posix_memalign((void **)&scratch, LK_ALIGN, d->kernels->linear_scratch(d, shape, shape)), 0);
    d->kernels->linear_forward(d, &in, &w, NULL, false, NULL, &out, scratch);
    free(scratch);
    return y;
}

/* The kernels' rounding: ties to even, factors that count as 0, overflow, and NaN. */
static void test_rounding(void **state)
{
    static const float values[] = {1.0f,
                                   0x1.01p0f,
                                   0x1.03p0f,
                                   0x1.010002p0f,
                                   -0x1.ffp3f,
                                   3.0e38f,
                                   0x1.fffffep127f,
                                   0x1p-56f,
                                   0x1.ffp-57f,
                                   0x1.fefffep-57f,
                                   0x1.fcp-57f,
                                   -0x1p-57f,
                                   0x1p-149f,
                                   -0x1p-130f,
                                   INFINITY,
                                   -INFINITY,
                                   NAN,
                                   -NAN,
                                   0.0f,
                                   -0.0f};
    const lk_cpu_build *build;
    for (size_t b = 0; (build = lk__cpu_build_list(b)); b++) {
        lk_device *d;
        lk_device_opts opts = {.threads = 1, .isa = build->name, .precision = LK_PRECISION_BF16};
        assert_int_equal(lk__device_open("cpu", &opts, &d), LK_OK);
        for (size_t i = 0; i < COUNT_OF(values); i++) {
            assert_true(same(product_of(d, values[i], 2.0f), 0.0f + rounded(values[i]) * 2.0f));
            assert_true(same(product_of(d, 2.0f, values[i]), 0.0f + rounded(values[i]) * 2.0f));
        }
        lk__device_close(d);
    }
}

int main(void)
{
    const lk_cpu_build *build;
    printf("instruction sets:");
    for (size_t b = 0; (build = lk__cpu_build_list(b)); b++)
        printf(" %s", build->name);
    puts("");
    return RUN_TESTS(NULL, NULL, TEST(test_order), TEST(test_sizes_of_factors), TEST(test_special_values),
                     TEST(test_rounding));
}
