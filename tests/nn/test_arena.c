/* test_arena.c - blocks with overlapping lifetimes never overlap in memory, and memory of ended blocks is
 * reused. */
#include "base/mem.h"
#include "base/rng.h"
#include "check.h"
#include "nn/arena.h"

static void test_random_blocks(void **arg)
{
    enum { COUNT = 60 };
    for (uint32_t round = 0; round < 50; round++) {
        lk_arena_block blocks[COUNT];
        lk_rng rng = lk__rng(1, LK_RNG_PURPOSE_INIT, 0, round, 0);
        for (uint32_t i = 0; i < COUNT; i++) {
            int first = (int)(lk__rng_u32(&rng, 3 * i) % 40);
            blocks[i] = (lk_arena_block){.bytes = lk__rng_u32(&rng, 3 * i + 1) % 5000,
                                         .first = first,
                                         .last = first + (int)(lk__rng_u32(&rng, 3 * i + 2) % 10)};
        }
        size_t total;
        assert_int_equal(lk__arena_pack(blocks, COUNT, &total), LK_OK);
        for (size_t i = 0; i < COUNT; i++) {
            assert_int_equal(blocks[i].offset % LK_ALIGN, 0);
            assert_true(blocks[i].offset + blocks[i].bytes <= total);
            for (size_t j = 0; j < i; j++) {
                if (blocks[i].first > blocks[j].last || blocks[j].first > blocks[i].last)
                    continue;
                assert_true(blocks[i].offset + blocks[i].bytes <= blocks[j].offset ||
                            blocks[j].offset + blocks[j].bytes <= blocks[i].offset);
            }
        }
    }
}

static void test_memory_is_reused(void **arg)
{
    lk_arena_block blocks[] = {{.bytes = 640, .first = 0, .last = 1},
                               {.bytes = 640, .first = 2, .last = 3},
                               {.bytes = 640, .first = 4, .last = 5}};
    size_t total;
    assert_int_equal(lk__arena_pack(blocks, 3, &total), LK_OK);
    assert_int_equal(total, 640);
}

TEST_MAIN(NULL, NULL, TEST(test_random_blocks), TEST(test_memory_is_reused))
