/* test_masks.c - kernels that take the gradient of a ReLU before them give the
 * bits of the two steps one after the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tensor/device.h"

static lk_device *dev;

static lk_tensor make(lk_shape shape, uint32_t stream)
{
    lk_rng rng = lk__rng(5, LK_RNG_INIT, 0, 0, stream);
    size_t count = lk__shape_count(shape);
    float *data = malloc(count * sizeof *data);
    for (size_t i = 0; i < count; i++)
        data[i] = 2 * lk__rng_unit(lk__rng_u32(&rng, i)) - 1;
    return (lk_tensor){.data = data, .dtype = LK_DTYPE_F32, .shape = shape};
}

/* A ReLU's result: half of it zero. */
static lk_tensor make_relu(lk_shape shape, uint32_t stream)
{
    lk_tensor x = make(shape, stream);
    dev->kernels->relu_forward(dev, &x, &x);
    return x;
}

static void expect_same(const lk_tensor *x, lk_tensor *plain, const lk_tensor *masked)
{
    size_t count = lk__shape_count(plain->shape), zeros = 0;
    dev->kernels->relu_grad_input(dev, x, plain, plain);
    assert_memory_equal(plain->data, masked->data, count * sizeof(float));
    for (size_t i = 0; i < count; i++)
        zeros += lk__tensor_f32(masked)[i] == 0;
    assert_in_range(zeros, count / 4, count - 1);
}

static void test_conv2d(void **arg)
{
    (void)arg;
    for (size_t stride = 1; stride <= 2; stride++) {
        lk_conv2d_desc conv = {.kernel = 3, .stride = stride, .pad = 1, .groups = 1};
        lk_shape shape = {.n = 3, .c = 21, .h = 8, .w = 8}, out = {3, 10, 8 / stride, 8 / stride};
        lk_tensor x = make_relu(shape, 1), dy = make(out, 2), w = make((lk_shape){10, 21, 3, 3}, 3);
        lk_tensor plain = make(shape, 4), masked = make(shape, 5);
        void *scratch = malloc(dev->kernels->conv2d_scratch(dev, &conv, shape, out));
        dev->kernels->conv2d_grad_input(dev, &conv, &dy, lk__tensor_f32(&w), NULL, &plain, scratch);
        dev->kernels->conv2d_grad_input(dev, &conv, &dy, lk__tensor_f32(&w), &x, &masked, scratch);
        expect_same(&x, &plain, &masked);
        free(scratch);
        free(x.data), free(dy.data), free(w.data), free(plain.data), free(masked.data);
    }
}

static void test_linear(void **arg)
{
    (void)arg;
    lk_shape shape = {.n = 13, .c = 37, .h = 1, .w = 1}, out = {13, 1030, 1, 1};
    lk_tensor x = make_relu(shape, 1), dy = make(out, 2), w = make((lk_shape){1030, 37, 1, 1}, 3);
    lk_tensor plain = make(shape, 4), masked = make(shape, 5);
    void *scratch = malloc(dev->kernels->linear_scratch(dev, shape, out));
    dev->kernels->linear_grad_input(dev, &dy, lk__tensor_f32(&w), NULL, &plain, scratch);
    dev->kernels->linear_grad_input(dev, &dy, lk__tensor_f32(&w), &x, &masked, scratch);
    expect_same(&x, &plain, &masked);
    free(scratch);
    free(x.data), free(dy.data), free(w.data), free(plain.data), free(masked.data);
}

static void test_maxpool(void **arg)
{
    (void)arg;
    for (size_t stride = 1; stride <= 2; stride++) {
        lk_pool2d_desc pool = {.kernel = 2, .stride = stride};
        size_t side = (6 - 2) / stride + 1;
        lk_shape shape = {.n = 2, .c = 19, .h = 6, .w = 6}, out = {2, 19, side, side};
        lk_tensor x = make_relu(shape, 1), y = make(out, 2), dy = make(out, 3);
        lk_tensor plain = make(shape, 4), masked = make(shape, 5);
        uint8_t *index = malloc(lk__shape_count(out));
        dev->kernels->maxpool_forward(dev, &pool, NULL, &x, false, &y, index);
        dev->kernels->maxpool_grad_input(dev, &pool, NULL, &dy, index, &plain);
        dev->kernels->maxpool_forward(dev, &pool, NULL, &x, true, &y, index);
        dev->kernels->maxpool_grad_input(dev, &pool, NULL, &dy, index, &masked);
        expect_same(&x, &plain, &masked);
        free(index);
        free(x.data), free(y.data), free(dy.data), free(plain.data), free(masked.data);
    }
}

int main(void)
{
    if (lk__device_open("cpu", &(lk_device_opts){.threads = 2}, &dev) != LK_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv2d),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_maxpool),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lk__device_close(dev);
    return failed;
}
