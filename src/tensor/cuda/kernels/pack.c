/* pack.c - parameters between PyTorch's order and the device's, on the host.
 *
 * A convolution's weights are (pitch of out, kernel, kernel, depth), depth being the
 * pitch of in, or `in` itself with groups; a linear layer's (pitch of out, pixels,
 * pitch of channels). Either way a row of the plain order is (channels, positions) and
 * one of the packed order (positions, depth), where positions are taps or pixels. */
#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "tensor/cuda/runtime/cuda.h"

enum { CHANNELS_A_VECTOR = 8, LEAST_PADDED = 4 };

typedef struct row_order {
    size_t channels, positions;
    size_t depth; /* of a position in the packed order */
} row_order;

size_t lk__cuda_pitch(size_t channels)
{
    return channels < LEAST_PADDED ? channels : lk__size_round_up(channels, CHANNELS_A_VECTOR);
}

static row_order order_of(const lk_device_weight *weight)
{
    row_order order = {.channels = weight->in, .positions = weight->kernel * weight->kernel};
    if (!weight->kernel) {
        assert(weight->pixels && weight->in % weight->pixels == 0);
        order.channels = weight->in / weight->pixels;
        order.positions = weight->pixels;
    }
    bool grouped = weight->kernel && weight->groups > 1;
    order.depth = grouped ? order.channels : lk__cuda_pitch(order.channels);
    return order;
}

size_t lk__cuda_weight_count(const lk_device_weight *weight)
{
    row_order order = order_of(weight);
    return lk__cuda_pitch(weight->out) * order.positions * order.depth;
}

void lk__cuda_pack(const lk_device_weight *weight, const float *plain, float *packed)
{
    row_order order = order_of(weight);
    memset(packed, 0, lk__cuda_weight_count(weight) * sizeof *packed);
    for (size_t row = 0; row < weight->out; row++) {
        for (size_t c = 0; c < order.channels; c++)
            for (size_t i = 0; i < order.positions; i++)
                packed[i * order.depth + c] = plain[c * order.positions + i];
        plain += order.channels * order.positions;
        packed += order.depth * order.positions;
    }
}

void lk__cuda_unpack(const lk_device_weight *weight, const float *packed, float *plain)
{
    row_order order = order_of(weight);
    for (size_t row = 0; row < weight->out; row++) {
        for (size_t c = 0; c < order.channels; c++)
            for (size_t i = 0; i < order.positions; i++)
                plain[c * order.positions + i] = packed[i * order.depth + c];
        plain += order.channels * order.positions;
        packed += order.depth * order.positions;
    }
}
