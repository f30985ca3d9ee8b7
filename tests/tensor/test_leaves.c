/* test_leaves.c - how weight gradients of GPUs are divided among launches, groups and parts. The test evaluates the
 * plan with intervals of leaves in place of sums: every addition must be one of the tree. It needs no GPU. */
#include "tensor/cuda/kernels/leaves.h"

#include <limits.h>

#include "check.h"

enum { MOST_SHARDS = 300, FULL = 264 };

typedef struct wave {
    size_t begin[MOST_SHARDS + 1];
    int merges[MOST_SHARDS];
    int lo; /* its first shard */
    lk_shards shards;
} wave;

/* Shards [lo, hi) of a batch. */
static void cut_wave(wave *w, size_t batch, int shards, int lo, int hi)
{
    *w = (wave){.lo = lo};
    for (int s = lo; s <= hi; s++)
        w->begin[s - lo] = lk__shard_begin(batch, shards, s) - lk__shard_begin(batch, shards, lo);
    for (int s = lo; s < hi; s++)
        w->merges[s - lo] = lk__tree_merges(shards, s);
    w->shards = (lk_shards){.count = hi - lo,
                            .begin = w->begin,
                            .most = lk__shard_largest(batch, shards),
                            .all = shards,
                            .merges = w->merges,
                            .depth = lk__tree_depth(shards, lo - 1)};
}

/* A sum of leaves [lo, hi). */
typedef struct interval {
    int lo, hi;
} interval;

typedef struct stack {
    interval at[LK_TREE_MAX_DEPTH];
    int count;
} stack;

static void push(stack *s, interval sum, int merges)
{
    for (int i = 0; i < merges; i++) {
        assert_true(s->count > 0);
        interval left = s->at[--s->count];
        assert_int_equal(left.hi, sum.lo);
        sum.lo = left.lo;
        assert_int_equal(lk__tree_middle(sum.lo, sum.hi), left.hi);
    }
    assert_true(s->count < LK_TREE_MAX_DEPTH);
    s->at[s->count++] = sum;
}

/* The root of group g, with at most `levels` saved sums. Its merges follow from its number of leaves. */
static interval fold_group(const lk_cuda_leaves *leaves, int lo, int g, int levels)
{
    int first = leaves->group[g], count = leaves->group[g + 1] - first;
    stack s = {.count = 0};
    for (int i = first; i < first + count; i++) {
        assert_true(s.count <= levels);
        assert_int_equal(leaves->inner[i], lk__tree_merges(count, i - first));
        push(&s, (interval){lo + leaves->first + i, lo + leaves->first + i + 1}, leaves->inner[i]);
    }
    assert_int_equal(s.count, 1);
    return s.at[0];
}

/* The bits of a leaf follow from chunks and parts; a leaf alone has the same. */
static void check_leaf(const lk_cuda_cut *cut, const wave *w, const lk_cuda_leaves *leaves, int g)
{
    int leaf = leaves->first + leaves->group[g];
    lk_shards one = {
        .count = 1, .begin = w->begin + leaf, .most = w->shards.most, .all = w->shards.all, .merges = (const int[]){0}};
    lk_cuda_leaves alone;
    assert_int_equal(lk__cuda_leaves_take(cut, &one, 0, &alone), LK_OK);
    size_t rows = (w->begin[leaf + 1] - w->begin[leaf]) * cut->rows;
    assert_int_equal(alone.chunks, leaves->chunks);
    assert_int_equal(alone.parts, leaves->parts);
    if (leaves->group[g + 1] - leaves->group[g] == 1)
        assert_int_equal(alone.parts_of[0], leaves->parts_of[g]);
    if (leaves->parts > 1) {
        size_t part = (size_t)leaves->chunks * cut->chunk, parts = leaves->parts_of[g];
        assert_true(parts * part >= rows && (parts == 1 || (parts - 1) * part < rows));
        assert_int_equal(leaves->group[g + 1] - leaves->group[g], 1);
    } else {
        assert_int_equal(leaves->parts_of[g], 1);
    }
}

static void check_launch(const lk_cuda_cut *cut, const wave *w, const lk_cuda_leaves *leaves, stack *s)
{
    assert_in_range(leaves->count, 1, LK_CUDA_LEAVES);
    assert_in_range(leaves->groups * leaves->parts, 1, 65535);
    assert_int_equal(leaves->group[0], 0);
    assert_int_equal(leaves->group[leaves->groups], leaves->count);
    for (int i = 0; i <= leaves->count; i++)
        assert_int_equal(leaves->begin[i], w->begin[leaves->first + i] * cut->rows);
    for (int g = 0; g < leaves->groups; g++) {
        assert_in_range(leaves->group[g + 1] - leaves->group[g], 1, 1 << cut->levels);
        check_leaf(cut, w, leaves, g);
        push(s, fold_group(leaves, w->lo, g, cut->levels), leaves->outer[g]);
    }
}

/* Runs a wave; returns the number of launches. */
static int check_wave(const lk_cuda_cut *cut, const wave *w, stack *s)
{
    int launches = 0;
    lk_cuda_leaves leaves;
    assert_int_equal(s->count, w->shards.depth);
    for (int first = 0; first < w->shards.count; first += leaves.count, launches++) {
        int depth = s->count;
        assert_int_equal(lk__cuda_leaves_take(cut, &w->shards, first, &leaves), LK_OK);
        assert_int_equal(leaves.first, first);
        check_launch(cut, w, &leaves, s);
        assert_int_equal(lk__cuda_leaves_depth(&leaves, depth), s->count);
        bool sum = leaves.groups == 1 && leaves.count == w->shards.count && leaves.parts == 1 && s->count > depth;
        assert_int_equal(lk__cuda_leaves_is_sum(&leaves, &w->shards), sum);
    }
    return launches;
}

static const lk_cuda_cut cuts[] = {
    {.rows = 1, .chunk = 16, .least = 16, .tiles = 288, .full = 264, .levels = 5, .small = 128, .weights = 1000},
    {.rows = 1, .chunk = 16, .least = 16, .tiles = 1, .full = 264, .levels = 5, .small = 128, .weights = 1000},
    {.rows = 1, .chunk = 16, .least = 1, .tiles = 3, .full = 1, .levels = 4, .small = 256, .weights = 100, .bias = 8},
    {.rows = 9, .chunk = 64, .least = 16, .tiles = 500, .full = 264, .levels = 2, .small = 128, .weights = 1000},
    {.rows = 1000, .chunk = 64, .least = 16, .tiles = 500, .full = 264, .levels = 1, .small = 128, .weights = 1000},
    {.rows = 1000,
     .chunk = 64,
     .least = 16,
     .tiles = 3,
     .full = 528,
     .levels = 2,
     .small = 128,
     .weights = 1000,
     .bias = 8},
    {.rows = 7, .chunk = 3, .least = 1, .tiles = 1, .full = 264, .levels = 0, .weights = 10, .bias = 3},
    {.rows = 1000, .chunk = 32, .least = 16, .extra = 8, .tiles = 5, .full = 264, .levels = 1, .weights = 1000},
    {.rows = 1, .chunk = 1, .least = 1, .extra = 1, .tiles = 1, .full = 264, .levels = 2, .small = 128, .weights = 9},
    {.rows = 1,
     .chunk = 64,
     .least = 16,
     .tiles = 9000,
     .full = 264,
     .levels = 2,
     .small = 128,
     .weights = (size_t)100 << 20},
};

static void check_waves(const lk_cuda_cut *cut, size_t batch, int shards, int size)
{
    wave w;
    stack s = {.count = 0};
    for (int lo = 0; lo < shards; lo += size) {
        cut_wave(&w, batch, shards, lo, lo + size < shards ? lo + size : shards);
        check_wave(cut, &w, &s);
    }
    assert_int_equal(s.count, 1);
    assert_int_equal(s.at[0].lo, 0);
    assert_int_equal(s.at[0].hi, shards);
}

static void test_trees(void **state)
{
    static const int sizes[] = {1, 2, 3, 5, 16, 100, 127, 200, MOST_SHARDS};
    static const int counts[] = {1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 32, 33, 100, 128, 129, 255, 300};
    for (size_t c = 0; c < COUNT_OF(cuts); c++)
        for (size_t i = 0; i < COUNT_OF(counts); i++)
            for (size_t j = 0; j < COUNT_OF(sizes); j++)
                for (size_t batch = 0; batch <= 1200; batch += 300)
                    check_waves(&cuts[c], batch + 1, counts[i], sizes[j]);
}

/* Waves that begin inside of subtrees, as those of later ranks do. */
static void test_later_waves(void **state)
{
    for (int lo = 0; lo < 40; lo++) {
        for (size_t c = 0; c < COUNT_OF(cuts); c++) {
            wave w;
            stack s = {.count = 0};
            cut_wave(&w, 500, 200, 0, lo);
            check_wave(&cuts[c], &w, &s);
            cut_wave(&w, 500, 200, lo, 200);
            check_wave(&cuts[c], &w, &s);
            assert_int_equal(s.count, 1);
        }
    }
}

/* Launches of a wave of this cut. */
static int launches_of(const lk_cuda_cut *cut, size_t batch, int shards)
{
    wave w;
    stack s = {.count = 0};
    cut_wave(&w, batch, shards, 0, shards);
    return check_wave(cut, &w, &s);
}

/* Up to LK_CUDA_LEAVES shards have one launch, unless the rows of scratch memory would be too many. */
static void test_launches(void **state)
{
    for (size_t c = 0; c + 1 < COUNT_OF(cuts); c++) {
        assert_int_equal(launches_of(&cuts[c], 1024, 1), 1);
        assert_int_equal(launches_of(&cuts[c], 1024, 16), 1);
        assert_int_equal(launches_of(&cuts[c], 1024, 128), 1);
        assert_int_equal(launches_of(&cuts[c], 1024, 256), 2);
    }
    assert_int_equal(launches_of(&cuts[COUNT_OF(cuts) - 1], 1024, 16), 4);
    /* A grid has at most 65535 rows of blocks. */
    lk_cuda_cut many = {.rows = 100000, .chunk = 1, .least = 1, .tiles = 1, .full = 64000, .weights = 8};
    assert_int_equal(launches_of(&many, 128, 128), 2);
}

/* The first linear layer of the cnn: 16 shards of 4 samples are one group, whose root is the sum. */
static void test_one_group(void **state)
{
    wave w;
    lk_cuda_leaves leaves;
    cut_wave(&w, 64, 16, 0, 16);
    assert_int_equal(lk__cuda_leaves_take(&cuts[0], &w.shards, 0, &leaves), LK_OK);
    assert_int_equal(leaves.groups, 1);
    assert_true(lk__cuda_leaves_is_sum(&leaves, &w.shards));
    cut_wave(&w, 64, 16, 8, 16);
    assert_int_equal(lk__cuda_leaves_take(&cuts[0], &w.shards, 0, &leaves), LK_OK);
    assert_int_equal(leaves.groups, 1);
    assert_int_equal(leaves.outer[0], 1);
    assert_false(lk__cuda_leaves_is_sum(&leaves, &w.shards));
}

/* All leaves of a step together fill the GPU twice, if they have many rows, and have no more parts than that. */
static void test_parts(void **state)
{
    for (int shards = 1; shards <= 16; shards *= 2)
        for (size_t tiles = 1; tiles < 600; tiles += 7) {
            lk_cuda_cut cut = {.rows = 3136, .chunk = 64, .least = 16, .tiles = tiles, .full = FULL, .weights = 100};
            wave w;
            lk_cuda_leaves leaves;
            cut_wave(&w, 256, shards, 0, shards);
            assert_int_equal(lk__cuda_leaves_take(&cut, &w.shards, 0, &leaves), LK_OK);
            size_t blocks = (size_t)leaves.parts * tiles * (size_t)shards;
            assert_true(leaves.parts == 1 || blocks <= 2 * FULL + tiles * (size_t)shards);
            assert_true(blocks >= FULL || leaves.chunks == 16 || leaves.parts == 1);
        }
}

/* With `extra`, parts fill rounds of blocks: 16 leaves of 128 chunks in 5 tiles are 80 blocks, of which 132 run at
 * once. Two parts would leave most of the second round idle, three fill it. */
static void test_rounds(void **state)
{
    lk_cuda_cut cut = {.rows = 256, .chunk = 32, .least = 16, .extra = 8, .tiles = 5, .full = FULL, .weights = 100};
    wave w;
    lk_cuda_leaves leaves;
    cut_wave(&w, 256, 16, 0, 16);
    assert_int_equal(lk__cuda_leaves_take(&cut, &w.shards, 0, &leaves), LK_OK);
    assert_int_equal(leaves.parts, 3);
    assert_int_equal(leaves.chunks, 43);
    assert_int_equal(lk__cuda_leaves_time(&cut, 16, 16), 2 * 2 * (43 + 8) + (43 + 8));
    cut.least = 65;
    assert_int_equal(lk__cuda_leaves_take(&cut, &w.shards, 0, &leaves), LK_OK);
    assert_int_equal(leaves.parts, 1);
}

static void test_too_many_rows(void **state)
{
    wave w;
    lk_cuda_leaves leaves;
    lk_cuda_cut cut = {.rows = (size_t)1 << 20, .chunk = 64, .least = 16, .tiles = 1, .full = 264, .weights = 100};
    cut_wave(&w, 5000, 1, 0, 1);
    assert_int_equal(lk__cuda_leaves_take(&cut, &w.shards, 0, &leaves), LK_STATUS_UNSUPPORTED);
    assert_non_null(strstr(lk_error_detail(), "5000 samples"));
}

TEST_MAIN(NULL, NULL, TEST(test_trees), TEST(test_later_waves), TEST(test_launches), TEST(test_one_group),
          TEST(test_parts), TEST(test_rounds), TEST(test_too_many_rows))
