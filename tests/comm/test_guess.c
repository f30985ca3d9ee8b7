/* test_guess.c - predictions of frames: periods are learned, a surprise costs one prediction, and two ends that add the
 * same frames predict the same. */
#include "check.h"
#include "comm/transport/guess.h"

static lk_frame frame_of(uint32_t number, uint32_t part, uint64_t bytes)
{
    return (lk_frame){.call = {.number = number, .kind = LK_CALL_KIND_ALLREDUCE, .root = -1, .count = bytes / 4},
                      .part = part,
                      .bytes = bytes};
}

/* Adds a frame; returns whether it was predicted. */
static bool add(lk_frame_guess *guess, lk_frame frame)
{
    const lk_frame *next = lk__frame_guess(guess);
    bool right = next && lk__frame_same(next, &frame);
    lk__frame_guess_add(guess, &frame);
    return right;
}

static void nothing_is_predicted_at_first(void **state)
{
    lk_frame_guess guess = {0};
    assert_null(lk__frame_guess(&guess));
    assert_false(add(&guess, frame_of(0, 0, 256)));
}

/* Three calls of two phases each, again and again: after two rounds every frame is predicted. */
static void periods_are_learned(void **state)
{
    static const uint64_t sizes[] = {4096, 1 << 20, 52};
    lk_frame_guess guess = {0};
    for (uint32_t number = 0; number < 30; number++)
        for (uint32_t part = 0; part < 2; part++) {
            bool right = add(&guess, frame_of(number, part, sizes[number % 3]));
            assert_true(right || number < 6);
        }
}

/* Numbers that grow by more than one belong to messages or to calls of other ranks between. */
static void steps_are_learned(void **state)
{
    lk_frame_guess guess = {0};
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(add(&guess, frame_of(7 * i, 0, 64)), i >= 2);
    assert_false(add(&guess, frame_of(1000, 0, 64)));
    assert_false(add(&guess, frame_of(1007, 0, 64)));
    assert_true(add(&guess, frame_of(1014, 0, 64)));
}

static void every_field_counts(void **state)
{
    lk_frame base = frame_of(1, 2, 3), other[9];
    for (size_t i = 0; i < COUNT_OF(other); i++)
        other[i] = base;
    other[0].bytes++;
    other[1].part++;
    other[2].call.number++;
    other[3].call.group++;
    other[4].call.kind++;
    other[5].call.dtype++;
    other[6].call.op++;
    other[7].call.count++;
    other[8].call.detail++;
    assert_true(lk__frame_same(&base, &base));
    for (size_t i = 0; i < COUNT_OF(other); i++)
        assert_false(lk__frame_same(&base, &other[i]));
}

/* Frames in an order without rule: both ends agree after each of them. */
static void two_ends_agree(void **state)
{
    lk_frame_guess to = {0}, from = {0};
    uint32_t word = 1;
    for (int i = 0; i < 2000; i++) {
        word = word * 1664525u + 1013904223u;
        lk_frame frame = frame_of(word >> 28, (word >> 20) % 3, (word >> 10) % 40);
        assert_int_equal(add(&to, frame), add(&from, frame));
        const lk_frame *a = lk__frame_guess(&to), *b = lk__frame_guess(&from);
        assert_int_equal(a != NULL, b != NULL);
        assert_true(!a || lk__frame_same(a, b));
    }
}

TEST_MAIN(NULL, NULL, TEST(nothing_is_predicted_at_first), TEST(periods_are_learned), TEST(steps_are_learned),
          TEST(every_field_counts), TEST(two_ends_agree))
