/* samples.c - forward passes and input gradients of convolutions: each sample has the same bits in a batch and alone,
 * whatever engine and tiles the device chooses for the batch. */
#include "tensor/layer.h"

enum { MOST_ALONE = 4 }; /* samples of a batch that are computed alone */

/* The results of a layer without weight gradients: y after ReLU, then dx masked by x. */
static void run_passes(lk_device *d, const void *arg, float *out)
{
    const layer *l = arg;
    lk_device_weight weight = layer_weight(d, l);
    lk_shape ys = layer_y(l);
    lk_tensor x = layer_put(d, l, l->values), dy = fx_input(d, ys, l->dy), y = fx_tensor(d, ys), dx = layer_blank(d, l);
    void *w = fx_weights(d, &weight, l->w), *b = fx_parameter(d, l->b, l->out), *scratch = layer_scratch(d, l);
    layer_forward(d, l, &x, w, b, true, NULL, &y, scratch);
    layer_grad_input(d, l, &dy, w, &x, NULL, &dx, scratch);
    fx_read(d, &y, out);
    layer_get(d, l, &dx, out + lk__shape_count(ys));
}

/* Compares `count` samples from `first` on with those of the whole batch. */
static void check_part(const layer *all, size_t first, size_t count, const float *want)
{
    layer part = *all;
    size_t x = lk__shape_sample(all->x), y = lk__shape_sample(layer_y(all)), batch = all->x.n;
    char what[256];
    part.x.n = count;
    part.values += first * x;
    part.dy += first * y;
    layer_name(&part, "a part of a batch", what);
    float *got = fx_once(dev, run_passes, &part, count * (x + y));
    fx_same(what, got, want + first * y, count * y);
    fx_same(what, got + count * y, want + batch * y + first * x, count * x);
    free(got);
}

static void check_samples(layer l)
{
    l.conv.groups = l.conv.groups ? l.conv.groups : 1;
    size_t ins = lk__shape_count(l.x), outs = lk__shape_count(layer_y(&l)), n = l.x.n;
    float *x = random_values(ins, 1), *dy = random_values(outs, 2), *w = random_values(layer_weights(&l), 3);
    float *b = random_values(l.out, 4);
    l.values = x, l.dy = dy, l.w = w, l.b = b;
    float *want = fx_once(dev, run_passes, &l, ins + outs);
    for (size_t i = 0; i < n && i < MOST_ALONE; i++)
        check_part(&l, i % 2 ? n - 1 - i / 2 : i / 2, 1, want);
    check_part(&l, n / 3, n - n / 3, want);
    free(want);
    free(x);
    free(dy);
    free(w);
    free(b);
}

/* {n, c, h, w}, out, CONV(kernel, stride, pad, groups). Large batches fill the GPU with large tiles, single samples
 * have small ones. */
static const layer squares[] = {
    {{64, 32, 26, 26}, 64, CONV(3, 1, 0, 1)},  {{300, 16, 12, 11}, 24, CONV(3, 1, 1, 1)},
    {{33, 21, 15, 13}, 40, CONV(5, 2, 2, 1)},  {{48, 101, 8, 8}, 106, CONV(3, 1, 1, 1)},
    {{70, 64, 14, 14}, 128, CONV(1, 1, 0, 1)}, {{70, 72, 15, 15}, 136, CONV(1, 2, 0, 1)},
    {{70, 900, 9, 9}, 48, CONV(1, 1, 0, 1)},   {{40, 3, 40, 38}, 64, CONV(7, 2, 3, 1)},
    {{40, 26, 20, 21}, 3, CONV(7, 1, 3, 1)},   {{16, 256, 7, 7}, 200, CONV(3, 1, 1, 1)},
    {{2, 8, 5, 5}, 9, CONV(2, 3, 1, 1)},       {{40, 72, 16, 18}, 104, CONV(3, 1, 1, 1)},
};

/* Windows that differ along the axes: {kernel, stride, pad, dilation}. */
static const layer windows[] = {
    {{50, 24, 17, 19}, 33, {{3, 1, 2, 2}, {3, 1, 2, 2}, 1}}, {{50, 24, 17, 19}, 33, {{1, 1, 0, 1}, {7, 1, 3, 1}, 1}},
    {{50, 16, 16, 19}, 64, {{3, 2, 1, 1}, {5, 1, 2, 1}, 1}}, {{50, 16, 17, 19}, 40, {{4, 4, 3, 6}, {5, 6, 2, 4}, 1}},
    {{50, 9, 17, 19}, 16, {{2, 3, 1, 3}, {3, 4, 4, 2}, 1}},  {{50, 2, 15, 40}, 3, {{4, 3, 0, 2}, {7, 2, 5, 5}, 1}},
};

static void test_squares(void **state)
{
    for (size_t i = 0; i < COUNT_OF(squares); i++)
        check_samples(squares[i]);
}

static void test_windows(void **state)
{
    for (size_t i = 0; i < COUNT_OF(windows); i++)
        check_samples(windows[i]);
}

int main(void)
{
    return fx_main(TESTS(TEST(test_squares), TEST(test_windows)), FX_FP32 | FX_TF32 | FX_BF16);
}
