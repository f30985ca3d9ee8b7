/* pack.c - copies parameters between PyTorch's order and the device's, on the host.
 *
 * Weights of a convolution are (pitch of out, kh, kw, depth); depth is the pitch of in, or `in` itself
 * with groups. Weights of a linear layer are (pitch of out, pixels, pitch of channels). In both cases a row is
 * (channels, positions) in PyTorch's order and (positions, depth) in the packed order; positions are taps or
 * pixels. */
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
    row_order order = {.channels = weight->in, .positions = weight->taps};
    if (!weight->taps) {
        assert(weight->pixels && weight->in % weight->pixels == 0);
        order.channels = weight->in / weight->pixels;
        order.positions = weight->pixels;
    }
    bool grouped = weight->taps && weight->groups > 1;
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
