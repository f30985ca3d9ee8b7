/* test_call.c - calls: equality, text and encoding; bytes that no call has are refused. */
#include "check.h"
#include "comm/call.h"
#include "net/host.h"

static const lk_call sample = {
    .group = 0x01020304,
    .number = 0xfffefdfc,
    .kind = LK_CALL_KIND_REDUCE,
    .dtype = LK_DTYPE_BF16,
    .op = LK_REDUCTION_MAX,
    .root = 7,
    .count = 0x0102030405060708u,
    .detail = 0xf1f2f3f4f5f6f7f8u,
};

static void test_round_trip(void **state)
{
    for (int kind = 0; kind < LK_CALL_KIND_COUNT; kind++) {
        bool sums =
            kind == LK_CALL_KIND_ALLREDUCE || kind == LK_CALL_KIND_REDUCE || kind == LK_CALL_KIND_REDUCE_SCATTER;
        bool rooted = kind == LK_CALL_KIND_REDUCE || kind == LK_CALL_KIND_BROADCAST || kind == LK_CALL_KIND_GATHER ||
                      kind == LK_CALL_KIND_SCATTER;
        lk_call call = sample, back = {0};
        call.kind = (uint8_t)kind;
        call.op = sums ? LK_REDUCTION_MAX : 0;
        call.root = rooted ? 1023 : -1;
        uint8_t bytes[LK_CALL_BYTES];
        lk__call_encode(&call, bytes);
        assert_true(lk__call_decode(bytes, &back));
        assert_true(lk__call_same(&call, &back));
    }
}

static void test_bytes_are_fixed(void **state)
{
    static const uint8_t expected[LK_CALL_BYTES] = {
        4,    3,    2,    1,    0xfc, 0xfd, 0xfe, 0xff, LK_CALL_KIND_REDUCE,
        2,    3,    0,    7,    0,    0,    0,    8,    7,
        6,    5,    4,    3,    2,    1,    0xf8, 0xf7, 0xf6,
        0xf5, 0xf4, 0xf3, 0xf2, 0xf1,
    };
    uint8_t bytes[LK_CALL_BYTES];
    lk__call_encode(&sample, bytes);
    assert_memory_equal(bytes, expected, sizeof expected);
}

static void test_every_field_counts(void **state)
{
    lk_call others[8];
    char text[LK_CALL_TEXT], other[LK_CALL_TEXT];
    for (int i = 0; i < 8; i++)
        others[i] = sample;
    others[0].group++;
    others[1].number--;
    others[2].kind = LK_CALL_KIND_ALLREDUCE;
    others[3].dtype = LK_DTYPE_F32;
    others[4].op = LK_REDUCTION_MIN;
    others[5].root = 8;
    others[6].count--;
    others[7].detail ^= 1;
    for (int i = 0; i < 8; i++) {
        assert_false(lk__call_same(&sample, &others[i]));
        assert_string_not_equal(lk__call_text(&sample, text), lk__call_text(&others[i], other));
    }
    assert_true(lk__call_same(&sample, &sample));
}

static void assert_refused(const lk_call *call)
{
    uint8_t bytes[LK_CALL_BYTES];
    lk_call out = {.number = 99};
    lk__call_encode(call, bytes);
    assert_false(lk__call_decode(bytes, &out));
    assert_int_equal(out.number, 99);
}

#define REFUSED(...)           \
    do {                       \
        lk_call call = sample; \
        __VA_ARGS__;           \
        assert_refused(&call); \
    } while (0)

static void test_impossible_fields(void **state)
{
    REFUSED(call.kind = LK_CALL_KIND_COUNT);
    REFUSED(call.kind = 255);
    REFUSED(call.dtype = LK_DTYPE_COUNT);
    REFUSED(call.op = LK_REDUCTION_LIMIT);
    REFUSED(call.root = -1);
    REFUSED(call.root = -2);
    REFUSED(call.root = INT32_MIN);
    REFUSED(call.root = LK_MAX_RANKS);
    REFUSED(call.kind = LK_CALL_KIND_ALLREDUCE);
    REFUSED(call.kind = LK_CALL_KIND_BROADCAST);
    REFUSED(call.kind = LK_CALL_KIND_BARRIER; call.op = 0);
    REFUSED(call.count = UINT64_MAX);
    REFUSED(call.count = PTRDIFF_MAX; call.dtype = LK_DTYPE_F64);
    uint8_t bytes[LK_CALL_BYTES];
    lk_call out;
    lk__call_encode(&sample, bytes);
    bytes[11] = 1;
    assert_false(lk__call_decode(bytes, &out));
}

static void test_text(void **state)
{
    char text[LK_CALL_TEXT];
    lk_call call = {.number = 41, .dtype = LK_DTYPE_F32, .count = 1024, .root = -1};
    assert_string_equal(lk__call_text(&call, text), "allreduce #41 (1024 f32, sum)");
    call = (lk_call){.number = 2, .kind = LK_CALL_KIND_BROADCAST, .dtype = LK_DTYPE_I64, .count = 5, .root = 3};
    assert_string_equal(lk__call_text(&call, text), "broadcast #2 (5 i64, root 3)");
    call = (lk_call){.group = 4, .number = 1, .kind = LK_CALL_KIND_BARRIER, .root = -1};
    assert_string_equal(lk__call_text(&call, text), "barrier #1 in group 4");
    call = (lk_call){.kind = LK_CALL_KIND_ALLGATHER, .dtype = LK_DTYPE_U8, .root = -1, .detail = 0x1a2b3c4d};
    assert_string_equal(lk__call_text(&call, text), "allgather #0 (u8, split 1a2b3c4d)");
    call.kind = 200;
    assert_string_equal(lk__call_text(&call, text), "unknown call #0");
}

static void test_longest_text_fits(void **state)
{
    char text[LK_CALL_TEXT];
    lk_call call = {
        .group = UINT32_MAX, .number = UINT32_MAX, .kind = LK_CALL_KIND_REDUCE_SCATTER, .dtype = LK_DTYPE_BF16};
    call.op = LK_REDUCTION_MEAN;
    call.root = -1;
    call.count = call.detail = UINT64_MAX;
    lk__call_text(&call, text);
    assert_contains(text, "in group 4294967295");
    call.root = INT32_MAX;
    assert_true(strlen(lk__call_text(&call, text)) < LK_CALL_TEXT);
}

TEST_MAIN(NULL, NULL, TEST(test_round_trip), TEST(test_bytes_are_fixed), TEST(test_every_field_counts),
          TEST(test_impossible_fields), TEST(test_text), TEST(test_longest_text_fits))
