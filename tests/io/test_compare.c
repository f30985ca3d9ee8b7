/* test_compare.c - every kind of difference between states and checkpoints, and its sentence. */
#include <lockstep/state.h>

#include "check.h"
#include "io/checkpoint/checkpoint.h"

typedef struct log {
    size_t count;
    char text[2048];
} log;

static void note(void *arg, const char *key, const char *what)
{
    log *l = arg;
    size_t at = strlen(l->text);
    snprintf(l->text + at, sizeof l->text - at, "%s%s: %s", at ? "\n" : "", key, what);
    l->count++;
}

/* A state with one tensor "t" of this content; content NULL: no tensor. */
static lk_state *state_of(lk_dtype dtype, int ndim, const size_t *dims, const void *content)
{
    lk_state *state = NULL;
    lk_state_entry *entry;
    assert_int_equal(lk_state_create(&state), LK_OK);
    if (content) {
        assert_int_equal(lk_state_add(state, "t", dtype, ndim, dims, &entry), LK_OK);
        memcpy(entry->data, content, entry->bytes);
    }
    return state;
}

/* Compares and frees both states; expected is the whole report. */
static void expect(lk_state *a, lk_state *b, const char *expected)
{
    log l = {0};
    size_t differing = lk_state_compare(a, b, note, &l);
    assert_string_equal(l.text, expected);
    assert_int_equal(differing, l.count);
    assert_int_equal(lk_state_compare(a, b, NULL, NULL), differing);
    lk_state_destroy(a);
    lk_state_destroy(b);
}

static void expect_data(lk_dtype dtype, size_t count, const void *a, const void *b, const char *expected)
{
    expect(state_of(dtype, 1, &count, a), state_of(dtype, 1, &count, b), expected);
}

static void test_same(void **ctx)
{
    const float data[3] = {1, -0.0f, 3};
    const uint32_t nan[2] = {0x7fc00001, 0xff800001};
    expect_data(LK_DTYPE_F32, 3, data, data, "");
    expect_data(LK_DTYPE_F32, 2, nan, nan, "");
    expect_data(LK_DTYPE_F32, 0, data, data, "");
    expect(state_of(LK_DTYPE_F32, 0, NULL, NULL), state_of(LK_DTYPE_F32, 0, NULL, NULL), "");
}

static void test_keys(void **ctx)
{
    const float data[6] = {0};
    const size_t dims[2] = {2, 3};
    expect(state_of(LK_DTYPE_F32, 2, dims, data), state_of(LK_DTYPE_F32, 0, NULL, NULL),
           "t: only in the first: f32 [2, 3]");
    expect(state_of(LK_DTYPE_F32, 0, NULL, NULL), state_of(LK_DTYPE_F32, 0, NULL, data),
           "t: only in the second: f32 []");
}

static void test_layout(void **ctx)
{
    const double data[6] = {0};
    const size_t a[2] = {2, 3}, b[2] = {3, 2};
    expect(state_of(LK_DTYPE_F32, 2, a, data), state_of(LK_DTYPE_F32, 2, b, data),
           "t: shape differs: f32 [2, 3] against f32 [3, 2]");
    expect(state_of(LK_DTYPE_F32, 2, a, data), state_of(LK_DTYPE_F32, 1, a, data),
           "t: shape differs: f32 [2, 3] against f32 [2]");
    expect(state_of(LK_DTYPE_F32, 2, a, data), state_of(LK_DTYPE_I32, 2, a, data),
           "t: type differs: f32 [2, 3] against i32 [2, 3]");
    expect(state_of(LK_DTYPE_F32, 2, a, data), state_of(LK_DTYPE_F64, 2, b, data),
           "t: type and shape differ: f32 [2, 3] against f64 [3, 2]");
}

static void test_floats(void **ctx)
{
    const float a[6] = {1, 2, 3, 4, 5, 6};
    float b[6] = {1, 2, 3, 4, 5, 6};
    const size_t dims[2] = {2, 3};
    b[4] = 5.25f;
    b[5] = 6.00000048f;
    expect(state_of(LK_DTYPE_F32, 2, dims, a), state_of(LK_DTYPE_F32, 2, dims, b),
           "t: 2 of 6 elements differ, largest absolute difference 0.25 at [1, 1]; first at [1, 1]: 5 against 5.25, "
           "524288 units in the last place apart (at most 524288)");
    b[4] = 5;
    expect(state_of(LK_DTYPE_F32, 2, dims, a), state_of(LK_DTYPE_F32, 2, dims, b),
           "t: 1 of 6 elements differ, largest absolute difference 4.76837e-07 at [1, 2]; first at [1, 2]: 6 against "
           "6.00000048, "
           "1 unit in the last place apart (at most 1)");
}

static void test_signs(void **ctx)
{
    const float zero[1] = {0}, minus[1] = {-0.0f};
    const uint32_t tiny[1] = {1}, minus_tiny[1] = {0x80000001};
    expect_data(LK_DTYPE_F32, 1, zero, minus,
                "t: 1 of 1 elements differ, largest absolute difference 0 at [0]; first at [0]: 0 against -0, "
                "0 units in the last place apart (at most 0)");
    expect_data(
        LK_DTYPE_F32, 1, tiny, minus_tiny,
        "t: 1 of 1 elements differ, largest absolute difference 2.8026e-45 at [0]; first at [0]: 1.40129846e-45 "
        "against -1.40129846e-45, 2 units in the last place apart (at most 2)");
}

static void test_nans(void **ctx)
{
    const uint32_t a[2] = {0x7fc00000, 0x3f800000}, payload[2] = {0x7fc00001, 0x3f800000};
    const uint32_t both[2] = {0x3f800000, 0x3f800002};
    expect_data(LK_DTYPE_F32, 2, a, payload,
                "t: 1 of 2 elements differ (1 with a NaN); first at [0]: nan (0x7fc00000) against nan (0x7fc00001)");
    expect_data(
        LK_DTYPE_F32, 2, a, both,
        "t: 2 of 2 elements differ (1 with a NaN), largest absolute difference 2.38419e-07 at [1]; first at [0]: "
        "nan (0x7fc00000) against 1; at most 2 units in the last place elsewhere");
}

static void test_other_floats(void **ctx)
{
    const double f64[2][1] = {{1.0}, {1.0 + 0x1p-52}};
    const uint16_t f16[2][4] = {{0x3c00, 0x0001, 0x7c00, 0xc000}, {0x3c01, 0x8001, 0x7c00, 0xc000}};
    const uint16_t big[2][1] = {{0x7bff}, {0x7c00}};
    const uint16_t bf16[2][1] = {{0x3f80}, {0x3f82}};
    expect_data(LK_DTYPE_F64, 1, f64[0], f64[1],
                "t: 1 of 1 elements differ, largest absolute difference 2.22045e-16 at [0]; first at [0]: 1 against "
                "1.0000000000000002, 1 unit in the last place apart (at most 1)");
    expect_data(
        LK_DTYPE_F16, 4, f16[0], f16[1],
        "t: 2 of 4 elements differ, largest absolute difference 0.000976562 at [0]; first at [0]: 1 against 1.001, "
        "1 unit in the last place apart (at most 2)");
    expect_data(LK_DTYPE_F16, 1, big[0], big[1],
                "t: 1 of 1 elements differ, largest absolute difference inf at [0]; first at [0]: 65504 against inf, "
                "1 unit in the last place apart (at most 1)");
    expect_data(
        LK_DTYPE_BF16, 1, bf16[0], bf16[1],
        "t: 1 of 1 elements differ, largest absolute difference 0.015625 at [0]; first at [0]: 1 against 1.016, "
        "2 units in the last place apart (at most 2)");
}

static void test_integers(void **ctx)
{
    const int64_t low[1] = {INT64_MIN}, high[1] = {INT64_MAX};
    const int32_t i32[2][2] = {{-5, 7}, {-5, -3}};
    const uint8_t u8[2][3] = {{1, 2, 255}, {1, 3, 0}};
    expect_data(LK_DTYPE_I64, 1, low, high,
                "t: 1 of 1 elements differ, largest absolute difference 18446744073709551615 at [0]; first at [0]: "
                "-9223372036854775808 against 9223372036854775807");
    expect_data(LK_DTYPE_I32, 2, i32[0], i32[1],
                "t: 1 of 2 elements differ, largest absolute difference 10 at [1]; first at [1]: 7 against -3");
    expect_data(LK_DTYPE_U8, 3, u8[0], u8[1],
                "t: 2 of 3 elements differ, largest absolute difference 255 at [2]; first at [1]: 2 against 3");
}

/* Keys are matched by name, not by position, and reported in the order of the first state. */
static void test_several_keys(void **ctx)
{
    static const char *const names[2][4] = {{"w", "same", "gone", "n"}, {"n", "same", "w", "new"}};
    lk_state *states[2];
    for (int s = 0; s < 2; s++) {
        states[s] = state_of(LK_DTYPE_U8, 0, NULL, NULL);
        for (int i = 0; i < 4; i++) {
            lk_state_entry *entry;
            assert_int_equal(lk_state_add(states[s], names[s][i], LK_DTYPE_U8, 0, NULL, &entry), LK_OK);
            *(uint8_t *)entry->data = (uint8_t)(strcmp(names[s][i], "same") == 0 ? 9 : s);
        }
    }
    expect(states[0], states[1],
           "w: 1 of 1 elements differ, largest absolute difference 1 at []; first at []: 0 against 1\n"
           "gone: only in the first: u8 []\n"
           "n: 1 of 1 elements differ, largest absolute difference 1 at []; first at []: 0 against 1\n"
           "new: only in the second: u8 []");
}

static const char *const kind_names[LK_DIFFERENCE_KIND_COUNT] = {"parameter", "buffer", "optimiser", "position",
                                                                 "option"};

static void note_kind(void *arg, lk_difference_kind kind, const char *key, const char *what)
{
    log *l = arg;
    size_t at = strlen(l->text);
    snprintf(l->text + at, sizeof l->text - at, "%s%s %s: %.*s", at ? "\n" : "", kind_names[kind], key,
             (int)strcspn(what, ";"), what);
    l->count++;
}

static lk_state *state_with(const char *const *names, uint8_t value)
{
    lk_state *state = state_of(LK_DTYPE_U8, 0, NULL, NULL);
    for (size_t i = 0; names[i]; i++) {
        lk_state_entry *entry;
        assert_int_equal(lk_state_add(state, names[i], LK_DTYPE_U8, 0, NULL, &entry), LK_OK);
        *(uint8_t *)entry->data = value;
    }
    return state;
}

static lk_checkpoint *checkpoint_with(uint8_t value, const char *step, const char *loss, const char *epochs)
{
    static const char *const model[] = {"bn.weight",           "bn.running_mean",     "bn.running_var",
                                        "num_batches_tracked", "running_mean.weight", NULL};
    static const char *const optimizer[] = {"steps", "exp_avg.bn.weight", NULL};
    lk_checkpoint *checkpoint = NULL;
    assert_int_equal(lk_checkpoint_create(state_with(model, value), state_with(optimizer, value), &checkpoint), LK_OK);
    assert_int_equal(lk_checkpoint_set_note(checkpoint, "step", step), LK_OK);
    assert_int_equal(lk_checkpoint_set_note(checkpoint, "--epochs", epochs), LK_OK);
    if (loss)
        assert_int_equal(lk_checkpoint_set_note(checkpoint, "loss", loss), LK_OK);
    return checkpoint;
}

static void expect_checkpoints(lk_checkpoint *a, lk_checkpoint *b, const char *expected)
{
    log l = {0};
    size_t counts[LK_DIFFERENCE_KIND_COUNT] = {0}, quietly[LK_DIFFERENCE_KIND_COUNT] = {0}, sum = 0;
    lk__checkpoint_compare(a, b, note_kind, &l, counts);
    lk__checkpoint_compare(a, b, NULL, NULL, quietly);
    assert_string_equal(l.text, expected);
    assert_memory_equal(counts, quietly, sizeof counts);
    for (int i = 0; i < LK_DIFFERENCE_KIND_COUNT; i++)
        sum += counts[i];
    assert_int_equal(sum, l.count);
    lk_checkpoint_destroy(a);
    lk_checkpoint_destroy(b);
}

static void test_checkpoints(void **ctx)
{
    expect_checkpoints(checkpoint_with(1, "5", "0x1p+1", "2"), checkpoint_with(1, "5", "0x1p+1", "2"), "");
    expect_checkpoints(checkpoint_with(1, "5", NULL, "2"), checkpoint_with(1, "5", NULL, "3"),
                       "option --epochs: 2 against 3");
    expect_checkpoints(checkpoint_with(1, "5", "-0x1.8p+1", "2"), checkpoint_with(1, "6", NULL, "2"),
                       "position step: 5 against 6\nposition loss: only in the first: -3");
    expect_checkpoints(checkpoint_with(1, "5", NULL, "2"), checkpoint_with(1, "5", "x", "2"),
                       "position loss: only in the second: x");
    expect_checkpoints(checkpoint_with(1, "5", NULL, "2"), checkpoint_with(2, "5", NULL, "2"),
                       "parameter bn.weight: 1 of 1 elements differ, largest absolute difference 1 at []\n"
                       "buffer bn.running_mean: 1 of 1 elements differ, largest absolute difference 1 at []\n"
                       "buffer bn.running_var: 1 of 1 elements differ, largest absolute difference 1 at []\n"
                       "buffer num_batches_tracked: 1 of 1 elements differ, largest absolute difference 1 at []\n"
                       "parameter running_mean.weight: 1 of 1 elements differ, largest absolute difference 1 at []\n"
                       "optimiser steps: 1 of 1 elements differ, largest absolute difference 1 at []\n"
                       "optimiser exp_avg.bn.weight: 1 of 1 elements differ, largest absolute difference 1 at []");
}

TEST_MAIN(NULL, NULL, TEST(test_same), TEST(test_keys), TEST(test_layout), TEST(test_floats), TEST(test_signs),
          TEST(test_nans), TEST(test_other_floats), TEST(test_integers), TEST(test_several_keys),
          TEST(test_checkpoints))
