/* conv2d.c - scratch memory of the convolution. */
#include "tensor/cpu/conv2d.h"
#include "tensor/cpu/bf16_layer.h"

#include "tensor/cpu/decls.h"

size_t LK_KERNEL(conv2d_scratch)(lk_device *dev, const lk_conv2d_desc *conv, lk_shape x, lk_shape y)
{
    size_t threads = (size_t)lk__pool_threads(lk__cpu_pool(dev));
    if (lk__depthwise_fits(conv, x, y)) {
        size_t most = lk__size_max(lk__depthwise_floats(conv, x), lk__depthwise_weight_floats(conv, x, y, threads));
        return most * sizeof(float);
    }
    bool bf16 = lk__bf16_of(dev) != NULL;
    size_t floats = lk__conv_weight_floats(conv, x, y, threads, bf16);
    if (bf16)
        return lk__size_max(floats, lk__bf16_conv_floats(conv, x, y, threads)) * sizeof(float);
    floats = lk__size_max(floats, lk__conv_forward_floats(conv, x, y, threads));
    return lk__size_max(floats, lk__conv_input_floats(conv, x, y, threads)) * sizeof(float);
}
