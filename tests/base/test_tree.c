/* test_tree.c - the sum tree as a stack against its recursive definition. An entry of the stack is the
 * interval of leaves that it sums; two entries may merge only where the definition splits their union. */
#include "base/tree.h"
#include "check.h"

enum { MAX_SHARDS = 200 };

typedef struct interval {
    int lo, hi;
} interval;

/* Where the definition splits [lo,hi). */
static int middle(int lo, int hi)
{
    int power = 1;
    while (power * 2 < hi - lo)
        power *= 2;
    return lo + power;
}

static void check_merge(interval *left, interval right)
{
    assert_int_equal(left->hi, right.lo);
    assert_int_equal(middle(left->lo, right.hi), right.lo);
    left->hi = right.hi;
}

static void check_stack(int shards, int s, const interval *stack, int depth)
{
    int begin[LK_TREE_MAX_DEPTH];
    assert_int_equal(lk__tree_depth(shards, s), depth);
    assert_int_equal(lk__tree_stack(shards, s, begin), depth);
    for (int i = 0; i < depth; i++)
        assert_int_equal(begin[i], stack[i].lo);
    assert_int_equal(stack[depth - 1].hi, s + 1);
}

static void check_shards(int shards)
{
    interval stack[LK_TREE_MAX_DEPTH + 1];
    int depth = 0;
    assert_int_equal(lk__tree_depth(shards, -1), 0);
    for (int s = 0; s < shards; s++) {
        assert_true(depth < LK_TREE_MAX_DEPTH);
        stack[depth++] = (interval){s, s + 1};
        for (int i = lk__tree_merges(shards, s); i > 0; i--) {
            assert_true(depth >= 2);
            check_merge(&stack[depth - 2], stack[depth - 1]);
            depth--;
        }
        check_stack(shards, s, stack, depth);
    }
    assert_int_equal(depth, 1);
    assert_int_equal(stack[0].lo, 0);
    assert_int_equal(stack[0].hi, shards);
}

static void test_all_shard_counts(void **state)
{
    for (int shards = 1; shards <= MAX_SHARDS; shards++)
        check_shards(shards);
    check_shards(LK_MAX_SHARDS - 1);
    check_shards(LK_MAX_SHARDS);
}

/* Entries merge as early as possible: the depth stays logarithmic. */
static void test_depth_is_small(void **state)
{
    for (int shards = 1; shards <= MAX_SHARDS; shards++) {
        int log2 = 0;
        while (1 << log2 < shards)
            log2++;
        for (int s = 0; s < shards; s++)
            assert_true(lk__tree_depth(shards, s) <= log2 + 1);
    }
}

/* The definition of roots: nodes inside [first,last) whose parent is not inside. */
static int collect(int lo, int hi, int first, int last, int *begin, int count)
{
    if (hi <= first || last <= lo)
        return count;
    if (first <= lo && hi <= last) {
        begin[count] = lo;
        return count + 1;
    }
    count = collect(lo, middle(lo, hi), first, last, begin, count);
    return collect(middle(lo, hi), hi, first, last, begin, count);
}

static void check_roots(int shards, int first, int last)
{
    int got[LK_TREE_MAX_DEPTH], want[LK_MAX_SHARDS];
    int count = collect(0, shards, first, last, want, 0);
    assert_true(count <= LK_TREE_MAX_DEPTH);
    assert_int_equal(lk__tree_roots(shards, first, last, NULL), count);
    assert_int_equal(lk__tree_roots(shards, first, last, got), count);
    for (int i = 0; i < count; i++)
        assert_int_equal(got[i], want[i]);
}

static void test_roots_of_ranges(void **state)
{
    for (int shards = 1; shards <= 70; shards++) {
        for (int first = 0; first <= shards; first++) {
            for (int last = first; last <= shards; last++)
                check_roots(shards, first, last);
        }
    }
    /* Ranges with odd ends have the largest number of roots. */
    for (int shards = LK_MAX_SHARDS - 65; shards <= LK_MAX_SHARDS; shards++) {
        for (int last = shards; last > shards - 70; last--)
            check_roots(shards, 1, last);
    }
}

/* The end of the largest node of [lo,hi) that begins at `first`, ends at or before `end` and has at most `most`
 * leaves. */
static int largest(int lo, int hi, int first, int end, int most)
{
    while (lo != first || hi > end || hi - lo > most) {
        int split = middle(lo, hi);
        if (first < split)
            hi = split;
        else
            lo = split;
    }
    return hi;
}

static void test_subtree_ends(void **state)
{
    for (int shards = 1; shards <= 40; shards++) {
        int merges[40];
        for (int s = 0; s < shards; s++)
            merges[s] = lk__tree_merges(shards, s);
        for (int first = 0; first < shards; first++)
            for (int end = first + 1; end <= shards; end++)
                for (int most = 1; most <= shards; most++)
                    assert_int_equal(lk__tree_subtree_end(merges, first, end, most),
                                     largest(0, shards, first, end, most));
    }
}

static void test_middle(void **state)
{
    for (int lo = 0; lo < 40; lo++) {
        for (int hi = lo + 2; hi < 300; hi++)
            assert_int_equal(lk__tree_middle(lo, hi), middle(lo, hi));
    }
}

static void test_shard_begin(void **state)
{
    for (size_t batch = 0; batch < 70; batch++) {
        for (int shards = 1; shards < 40; shards++) {
            assert_int_equal(lk__shard_begin(batch, shards, 0), 0);
            assert_int_equal(lk__shard_begin(batch, shards, shards), batch);
            for (int s = 0; s < shards; s++) {
                size_t size = lk__shard_begin(batch, shards, s + 1) - lk__shard_begin(batch, shards, s);
                size_t least = batch / (size_t)shards;
                assert_true(size == least || size == least + 1);
            }
        }
    }
}

/* lk__shard_most is the largest number of samples that any `width` neighbouring shards can have, lk__shard_largest that
 * of a shard in this batch. */
static void test_shards_most(void **state)
{
    for (int shards = 1; shards <= 9; shards++) {
        for (int width = 1; width <= shards; width++) {
            size_t most = 0, bound = lk__shard_most(40, shards, width);
            for (size_t batch = 0; batch <= 40; batch++) {
                for (int s = 0; s + width <= shards; s++) {
                    size_t size = lk__shard_begin(batch, shards, s + width) - lk__shard_begin(batch, shards, s);
                    most = size > most ? size : most;
                }
            }
            assert_int_equal(most, bound);
        }
        for (size_t batch = 0; batch <= 40; batch++) {
            size_t largest = 1;
            for (int s = 0; s < shards; s++) {
                size_t size = lk__shard_begin(batch, shards, s + 1) - lk__shard_begin(batch, shards, s);
                largest = size > largest ? size : largest;
            }
            assert_int_equal(lk__shard_largest(batch, shards), largest);
        }
    }
}

TEST_MAIN(NULL, NULL, TEST(test_all_shard_counts), TEST(test_depth_is_small), TEST(test_roots_of_ranges),
          TEST(test_subtree_ends), TEST(test_middle), TEST(test_shard_begin), TEST(test_shards_most))
