/* test_matmul.c - products of matrices against double; exchange of axes and reshaping, which are exact; on the CPU and
 * on GPUs. */
#include "tensor/cpu/sums.h"
#include "tensor/kernel_test.h"

typedef struct product_case {
    size_t n, h, rows, len, cols;
    lk_matmul_desc desc;
    const float *a, *b; // (n, h, rows, len), or (n, h, len, rows) if transposed; (n, h, len, cols), or transposed
} product_case;

static lk_shape shape_of(const product_case *p, size_t rows, size_t cols, bool transposed)
{
    return (lk_shape){.n = p->n, .h = p->h, .w = transposed ? cols : rows, .c = transposed ? rows : cols};
}

static void run_product(lk_device *d, const void *arg, float *out)
{
    const product_case *p = arg;
    lk_tensor a = fx_input(d, shape_of(p, p->rows, p->len, p->desc.transpose_a), p->a);
    lk_tensor b = fx_input(d, shape_of(p, p->len, p->cols, p->desc.transpose_b), p->b);
    lk_tensor y = fx_tensor(d, shape_of(p, p->rows, p->cols, false));
    d->kernels->matmul(d, &p->desc, &a, &b, &y);
    fx_read(d, &y, out);
}

/* Element (row, k) of matrix m of the first factor, and (k, col) of the second. */
static float left(const product_case *p, size_t m, size_t row, size_t k)
{
    return p->a[m * p->rows * p->len + (p->desc.transpose_a ? k * p->rows + row : row * p->len + k)];
}

static float right(const product_case *p, size_t m, size_t k, size_t col)
{
    return p->b[m * p->len * p->cols + (p->desc.transpose_b ? col * p->len + k : k * p->cols + col)];
}

/* On the CPU each element is a sum in the order of sums.h, with equal bits. On GPUs factors are exact in f32. */
static void check_product(product_case p)
{
    size_t count = p.n * p.h * p.rows * p.cols;
    float *a = random_values(p.n * p.h * p.rows * p.len, 1), *b = random_values(p.n * p.h * p.len * p.cols, 2);
    float *sums = new_floats(count);
    double *want = new_doubles(count);
    p.a = a;
    p.b = b;
    for (size_t i = 0; i < count; i++) {
        size_t m = i / p.cols / p.rows, row = i / p.cols % p.rows, col = i % p.cols;
        float block = 0;
        for (size_t k = 0; k < p.len; k++) {
            want[i] += (double)left(&p, m, row, k) * (double)right(&p, m, k, col);
            block = fmaf(left(&p, m, row, k), right(&p, m, k, col), block);
            if (k % LK_SUM_BLOCK == LK_SUM_BLOCK - 1 || k == p.len - 1) {
                sums[i] = k < LK_SUM_BLOCK ? block : sums[i] + block;
                block = 0;
            }
        }
    }
    float *got = fx_bits("matmul", run_product, &p, count);
    fx_near_values("matmul", got, want, FX_NEAR, count);
    if (fx_builds)
        fx_same("matmul in the kernels' order", got, sums, count);
    free(got);
    free(sums);
    free(want);
    free(a);
    free(b);
}

/* Tails of vectors, tiles and blocks in each direction. */
static void test_products(void **state)
{
    static const product_case cases[] = {
        {1, 1, 1, 1, 1, {0}, NULL, NULL},    {2, 3, 4, 5, 6, {0}, NULL, NULL},    {1, 2, 7, 300, 17, {0}, NULL, NULL},
        {3, 1, 65, 9, 33, {0}, NULL, NULL},  {2, 2, 16, 16, 16, {0}, NULL, NULL}, {1, 1, 3, 513, 15, {0}, NULL, NULL},
        {2, 1, 131, 64, 1, {0}, NULL, NULL}, {0, 2, 4, 5, 6, {0}, NULL, NULL},    {5, 4, 1, 31, 40, {0}, NULL, NULL},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        for (int transposed = 0; transposed < 4; transposed++) {
            product_case p = cases[i];
            p.desc = (lk_matmul_desc){.transpose_a = transposed & 1, .transpose_b = transposed & 2};
            check_product(p);
        }
}

/* A NaN spoils its row or column of the product, and nothing else: not the pads either. */
static void test_nan(void **state)
{
    enum { ROWS = 5, LEN = 7, COLS = 3 };
    float *a = random_values(ROWS * LEN, 1), *b = random_values(LEN * COLS, 2);
    a[2 * LEN + 4] = NAN;
    b[4 * COLS + 1] = NAN;
    product_case p = {.n = 1, .h = 1, .rows = ROWS, .len = LEN, .cols = COLS, .a = a, .b = b};
    float *got = fx_bits("matmul", run_product, &p, ROWS * COLS);
    for (size_t i = 0; i < ROWS * COLS; i++)
        assert_true(isnan(got[i]) == (i / COLS == 2 || i % COLS == 1));
    free(got);
    free(a);
    free(b);
}

typedef struct move_case {
    lk_shape from, to;
    int a, b; /* axes; 0: reshape */
    const float *x;
} move_case;

static void run_move(lk_device *d, const void *arg, float *out)
{
    const move_case *c = arg;
    lk_tensor x = fx_input(d, c->from, c->x), y = fx_tensor(d, c->to);
    if (c->a)
        d->kernels->swap_axes(d, c->a, c->b, &x, &y);
    else
        d->kernels->reshape(d, &x, &y);
    fx_read(d, &y, out);
}

static void test_swap_axes(void **state)
{
    static const lk_shape shapes[] = {{1, 1, 1, 1}, {2, 3, 4, 5},   {3, 21, 1, 7}, {2, 64, 9, 3},
                                      {0, 5, 4, 3}, {2, 33, 17, 1}, {1, 2, 40, 3}, {9, 16, 16, 16}};
    for (size_t k = 0; k < COUNT_OF(shapes); k++)
        for (int axes = 0; axes < 3; axes++) {
            lk_shape s = shapes[k];
            size_t count = lk__shape_count(s), dims[] = {s.n, s.h, s.w, s.c}, at[4];
            float *x = random_values(count, 3), *want = new_floats(count);
            move_case c = {.from = s, .a = axes == 2 ? 2 : 1, .b = axes == 0 ? 2 : 3, .x = x};
            size_t to[] = {s.n, s.h, s.w, s.c}, first = to[c.a];
            to[c.a] = to[c.b];
            to[c.b] = first;
            c.to = (lk_shape){.n = to[0], .h = to[1], .w = to[2], .c = to[3]};
            for (size_t i = 0; i < count; i++) {
                size_t rest = i;
                for (int d = 3; d >= 0; d--, rest /= dims[d + 1])
                    at[d] = rest % dims[d];
                first = at[c.a];
                at[c.a] = at[c.b];
                at[c.b] = first;
                want[((at[0] * to[1] + at[1]) * to[2] + at[2]) * to[3] + at[3]] = x[i];
            }
            fx_check("swap_axes", run_move, &c, want, count);
            free(want);
            free(x);
        }
}

static void test_reshape(void **state)
{
    static const struct {
        lk_shape from, to;
    } cases[] = {
        {{2, 12, 3, 5}, {2, 4, 5, 9}},  {{3, 1, 1, 21}, {3, 21, 1, 1}}, {{2, 64, 1, 6}, {2, 16, 6, 4}},
        {{2, 3, 8, 8}, {2, 192, 1, 1}}, {{0, 12, 3, 5}, {0, 4, 5, 9}},  {{4, 21, 5, 3}, {4, 21, 1, 15}},
        {{1, 10, 1, 3}, {1, 30, 1, 1}},
    };
    for (size_t k = 0; k < COUNT_OF(cases); k++) {
        size_t count = lk__shape_count(cases[k].from);
        float *x = random_values(count, 4);
        fx_check("reshape", run_move, &(move_case){.from = cases[k].from, .to = cases[k].to, .x = x}, x, count);
        free(x);
    }
}

int main(int argc, char **argv)
{
    return fx_kernel_main(argc, argv,
                          TESTS(TEST(test_products), TEST(test_nan), TEST(test_swap_axes), TEST(test_reshape)),
                          FX_FP32 | FX_BF16);
}
