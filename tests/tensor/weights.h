/* weights.h - weights of layers in the order of the device, and partial sums of their gradients as the engine
 * has them. */
#ifndef LK_TESTS_TENSOR_WEIGHTS_H
#define LK_TESTS_TENSOR_WEIGHTS_H

#include "tensor/kernel_test.h"

/* Parameters begin at multiples of this number of elements; the gaps are zero. */
enum { FX_GAP = 16 };

static inline size_t fx_round_up(size_t count, size_t unit)
{
    return (count + unit - 1) / unit * unit;
}

static inline size_t fx_weight_count(const lk_device *d, const lk_device_weight *w)
{
    size_t plain = w->out * w->in * (w->taps ? w->taps : 1);
    return d->type->weight_count ? d->type->weight_count(w) : plain;
}

static inline void fx_pack(const lk_device *d, const lk_device_weight *w, const float *plain, float *packed)
{
    if (d->type->pack)
        d->type->pack(w, plain, packed);
    else
        memcpy(packed, plain, fx_weight_count(d, w) * sizeof *plain);
}

static inline void fx_unpack(const lk_device *d, const lk_device_weight *w, const float *packed, float *plain)
{
    if (d->type->unpack)
        d->type->unpack(w, packed, plain);
    else
        memcpy(plain, packed, fx_weight_count(d, w) * sizeof *plain);
}

/* An array of the value type with the gap behind it. */
static inline void *fx_parameter(lk_device *d, const float *values, size_t count)
{
    size_t size = lk_dtype_size(d->values), whole = fx_round_up(count, FX_GAP);
    void *image = calloc(whole, size);
    assert_non_null(image);
    for (size_t i = 0; i < count; i++)
        fx_store(d->values, values[i], i, image);
    void *block = fx_put(d, image, whole * size);
    free(image);
    return block;
}

static inline void *fx_weights(lk_device *d, const lk_device_weight *w, const float *plain)
{
    size_t count = fx_weight_count(d, w);
    float *packed = new_floats(count);
    fx_pack(d, w, plain, packed);
    void *block = fx_parameter(d, packed, count);
    free(packed);
    return block;
}

/* Partial sums of a layer's gradients: a weight and a bias in each slot. Values are not written yet; pads and
 * gaps are zero. */
typedef struct fx_grads {
    lk_device_weight weight;
    size_t weights, biases, bias_at, stride;
    float *slots; /* device */
} fx_grads;

static inline float *fx_nans(size_t count)
{
    float *p = new_floats(count);
    for (size_t i = 0; i < count; i++)
        p[i] = NAN;
    return p;
}

static inline fx_grads fx_grads_make(lk_device *d, lk_device_weight weight, size_t plain_count, size_t slots)
{
    fx_grads g = {.weight = weight, .weights = fx_weight_count(d, &weight), .biases = weight.out};
    g.bias_at = fx_round_up(g.weights, FX_GAP);
    g.stride = g.bias_at + fx_round_up(g.biases, FX_GAP);
    float *nans = fx_nans(plain_count), *image = new_floats(slots * g.stride);
    for (size_t s = 0; s < slots; s++) {
        fx_pack(d, &weight, nans, image + s * g.stride);
        memcpy(image + s * g.stride + g.bias_at, nans, g.biases * sizeof *nans);
    }
    g.slots = fx_floats(d, image, slots * g.stride);
    free(nans);
    free(image);
    return g;
}

static inline lk_partials fx_weight_sums(const fx_grads *g)
{
    return (lk_partials){g->slots, g->stride};
}

static inline lk_partials fx_bias_sums(const fx_grads *g)
{
    return (lk_partials){g->slots + g->bias_at, g->stride};
}

/* Reads slot 0: the weight's gradient in PyTorch's order, then, if bias is set, the bias's gradient. */
static inline void fx_grads_read(lk_device *d, const fx_grads *g, size_t plain_count, bool bias, float *out)
{
    float *image = new_floats(g->stride), *again = new_floats(g->weights);
    fx_get_floats(d, g->slots, g->stride, image);
    fx_unpack(d, &g->weight, image, out);
    fx_pack(d, &g->weight, out, again);
    for (size_t i = 0; i < g->weights; i++) {
        if (!(image[i] == again[i]) && !(isnan(image[i]) && isnan(again[i])))
            fail_msg("pad %zu of a gradient of weights is %g, not 0", i, (double)image[i]);
    }
    for (size_t i = g->weights; i < g->stride; i++) {
        bool gap = i < g->bias_at || i >= g->bias_at + g->biases;
        if (gap && !(image[i] == 0))
            fail_msg("element %zu of the gap behind a gradient is %g, not 0", i, (double)image[i]);
    }
    if (bias)
        memcpy(out + plain_count, image + g->bias_at, g->biases * sizeof *out);
    free(image);
    free(again);
}

#endif
