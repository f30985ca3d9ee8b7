/* test_hash.c - the hash of checkpoints and frames: values that files have, and data that come in pieces. */
#include "base/hash.h"
#include "check.h"

/* Another value would make every checkpoint unreadable. */
static void test_values(void **state)
{
    assert_true(lk__hash("", 0, 0) == 0x2d06800538d394c2u);
    assert_true(lk__hash("lockstep", 8, 0) == 0x2f270043200950ecu);
    assert_true(lk__hash("lockstep", 8, 1) != lk__hash("lockstep", 8, 0));
}

static void test_pieces(void **state)
{
    enum { BYTES = 5000 };
    unsigned char data[BYTES];
    lk_hasher *hasher;
    for (size_t i = 0; i < BYTES; i++)
        data[i] = (unsigned char)(i * i);
    assert_ok(lk__hasher_create(&hasher));
    for (uint64_t seed = 0; seed < 3; seed++)
        for (size_t piece = 1; piece <= BYTES; piece *= 7) {
            lk__hasher_reset(hasher, seed);
            for (size_t at = 0; at < BYTES; at += piece)
                lk__hasher_add(hasher, data + at, BYTES - at < piece ? BYTES - at : piece);
            assert_true(lk__hasher_value(hasher) == lk__hash(data, BYTES, seed));
        }
    lk__hasher_destroy(hasher);
    lk__hasher_destroy(NULL);
}

TEST_MAIN(NULL, NULL, TEST(test_values), TEST(test_pieces))
