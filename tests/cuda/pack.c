/* pack.c - parameters in the order of the CUDA device: the index of each element, zero pads, and back. Needs no
 * GPU. */
#include <math.h>

#include "check.h"
#include "tensor/cuda/runtime/cuda.h"

static const lk_device_weight weights[] = {
    {.out = 32, .in = 1, .taps = 9, .groups = 1},
    {.out = 16, .in = 3, .taps = 9, .groups = 1},
    {.out = 21, .in = 16, .taps = 9, .groups = 1},
    {.out = 26, .in = 21, .taps = 1, .groups = 1},
    {.out = 3, .in = 4, .taps = 25, .groups = 1},
    {.out = 21, .in = 1, .taps = 9, .groups = 21},
    {.out = 18, .in = 4, .taps = 9, .groups = 3},
    {.out = 24, .in = 8, .taps = 4, .groups = 2},
    {.out = 21, .in = 5, .taps = 15, .groups = 1},
    {.out = 10, .in = 784, .pixels = 1},
    {.out = 37, .in = 13, .pixels = 1},
    {.out = 1, .in = 3, .pixels = 1},
    {.out = 12, .in = 5 * 9, .pixels = 9},
    {.out = 2, .in = 3 * 16, .pixels = 16},
};
enum { WEIGHTS = sizeof weights / sizeof *weights };

static size_t plain_count(const lk_device_weight *weight)
{
    return weight->out * weight->in * (weight->taps ? weight->taps : 1);
}

static float *new_floats(size_t count)
{
    float *block = calloc(count, sizeof *block);
    assert_non_null(block);
    return block;
}

/* 1, 2, 3, ...: all elements differ, and none is 0. */
static float *numbered(size_t count)
{
    float *block = new_floats(count);
    for (size_t i = 0; i < count; i++)
        block[i] = (float)(i + 1);
    return block;
}

static float *packed_numbers(const lk_device_weight *weight)
{
    size_t count = lk__cuda_weight_count(weight);
    float *plain = numbered(plain_count(weight)), *packed = new_floats(count);
    for (size_t i = 0; i < count; i++)
        packed[i] = NAN;
    lk__cuda_pack(weight, plain, packed);
    free(plain);
    return packed;
}

static void test_pitch(void **state)
{
    static const size_t want[][2] = {{1, 1}, {2, 2}, {3, 3}, {4, 8}, {7, 8}, {8, 8}, {9, 16}, {16, 16}, {101, 104}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_int_equal(lk__cuda_pitch(want[i][0]), want[i][1]);
}

static void test_counts(void **state)
{
    static const size_t want[WEIGHTS] = {32 * 9,  16 * 9 * 3, 24 * 9 * 16, 32 * 24,     3 * 25 * 8,
                                         24 * 9,  24 * 9 * 4, 24 * 4 * 8,  24 * 15 * 8, 16 * 784,
                                         40 * 16, 3,          16 * 9 * 8,  2 * 16 * 3};
    for (size_t i = 0; i < WEIGHTS; i++)
        assert_int_equal(lk__cuda_weight_count(&weights[i]), want[i]);
}

/* As cuda.h describes: (pitch of out, taps, pitch of in); with groups (pitch of out, taps, in). */
static void test_order_of_convolutions(void **state)
{
    for (size_t n = 0; n < WEIGHTS; n++) {
        const lk_device_weight *w = &weights[n];
        size_t taps = w->taps, depth = w->groups > 1 ? w->in : lk__cuda_pitch(w->in);
        if (!taps)
            continue;
        float *packed = packed_numbers(w);
        for (size_t o = 0; o < lk__cuda_pitch(w->out); o++)
            for (size_t tap = 0; tap < taps; tap++)
                for (size_t i = 0; i < depth; i++) {
                    bool pad = o >= w->out || i >= w->in;
                    size_t number = (o * w->in + i) * taps + tap + 1;
                    assert_true(packed[(o * taps + tap) * depth + i] == (pad ? 0 : (float)number));
                }
        free(packed);
    }
}

/* (pitch of out, pixels, pitch of in / pixels); a feature is channel * pixels + pixel. */
static void test_order_of_linear_layers(void **state)
{
    for (size_t n = 0; n < WEIGHTS; n++) {
        const lk_device_weight *w = &weights[n];
        if (w->taps)
            continue;
        size_t channels = w->in / w->pixels, depth = lk__cuda_pitch(channels);
        float *packed = packed_numbers(w);
        for (size_t o = 0; o < lk__cuda_pitch(w->out); o++)
            for (size_t pixel = 0; pixel < w->pixels; pixel++)
                for (size_t c = 0; c < depth; c++) {
                    bool pad = o >= w->out || c >= channels;
                    size_t number = o * w->in + c * w->pixels + pixel + 1;
                    assert_true(packed[(o * w->pixels + pixel) * depth + c] == (pad ? 0 : (float)number));
                }
        free(packed);
    }
}

static void test_back_and_forth(void **state)
{
    for (size_t n = 0; n < WEIGHTS; n++) {
        const lk_device_weight *w = &weights[n];
        size_t count = plain_count(w);
        float *plain = numbered(count), *packed = packed_numbers(w), *back = new_floats(count);
        lk__cuda_unpack(w, packed, back);
        assert_memory_equal(back, plain, count * sizeof *back);
        free(plain);
        free(packed);
        free(back);
    }
}

TEST_MAIN(NULL, NULL, TEST(test_pitch), TEST(test_counts), TEST(test_order_of_convolutions),
          TEST(test_order_of_linear_layers), TEST(test_back_and_forth))
