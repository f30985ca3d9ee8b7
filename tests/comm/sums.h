/* sums.h - sums of shards whose last bits depend on the order of the additions.
 *
 * The reference is the definition of the tree, element by element. The result must not depend on
 * the division of the shards among ranks or on the transport. */
#ifndef LK_TESTS_COMM_SUMS_H
#define LK_TESTS_COMM_SUMS_H

#include "comm/harness.h"
#include "comm/tree.h"

enum { MAX_TEST_SHARDS = 64, MAX_CUTS = 5 };

/* One set of shards and its division among the ranks. */
typedef struct shards {
    lk_group *group;
    int rank, size;
    lk_dtype dtype;
    lk_reduction op;
    int count;       /* shards */
    size_t elements; /* of each */
    const int *bounds;
} shards;

/* Element i of shard s: magnitudes of 2^-10 to 2^10, both signs. */
static inline double leaf(const shards *s, int shard, size_t i)
{
    uint64_t bits = team_hash((uint64_t)shard + 1, i);
    double value = (double)(int64_t)((bits & 0xffffff) | 1);
    int exponent = (int)(bits >> 32 & 31);
    value = value / (double)(UINT64_C(1) << exponent) * (bits >> 40 & 1 ? 1 : -1);
    if (s->dtype == LK_DTYPE_F32)
        return (double)(float)value;
    if (s->dtype == LK_DTYPE_BF16)
        return (double)team_float(team_bf16((float)value));
    if (s->dtype == LK_DTYPE_F64)
        return value + (double)(bits >> 41) / 9007199254740992.0;
    return (double)(bits & 63); /* whole numbers are not rounded */
}

static inline double merged(const shards *s, double a, double b)
{
    if (s->op == LK_REDUCTION_MIN)
        return b < a ? b : a;
    if (s->op == LK_REDUCTION_MAX)
        return b > a ? b : a;
    if (s->dtype == LK_DTYPE_F32)
        return (double)((float)a + (float)b);
    if (s->dtype == LK_DTYPE_BF16)
        return (double)team_float(team_bf16((float)a + (float)b));
    return a + b;
}

/* The sum of the shards [lo,hi), a node of the tree. */
static inline double tree_sum(const shards *s, int lo, int hi, size_t i)
{
    int middle = tree_middle(lo, hi);
    if (hi - lo == 1)
        return leaf(s, lo, i);
    return merged(s, tree_sum(s, lo, middle, i), tree_sum(s, middle, hi, i));
}

static inline double mean_of(const shards *s, double sum)
{
    if (s->op != LK_REDUCTION_MEAN)
        return sum;
    if (s->dtype == LK_DTYPE_F64)
        return sum / s->count;
    if (s->dtype == LK_DTYPE_F32 || s->dtype == LK_DTYPE_BF16)
        return (double)((float)sum / (float)s->count);
    return (double)((int64_t)sum / s->count);
}

/* Returns the reference (free it); checks that adding from left to right, or from right to left,
 * gives other bits. */
static inline void *reference(const shards *s)
{
    void *want = malloc(8 * (s->elements + 1));
    size_t left = 0, right = 0;
    CHECK(want);
    for (size_t i = 0; i < s->elements; i++) {
        double sum = tree_sum(s, 0, s->count, i), forth = leaf(s, 0, i), back = leaf(s, s->count - 1, i);
        for (int k = 1; k < s->count; k++) {
            forth = merged(s, forth, leaf(s, k, i));
            back = merged(s, back, leaf(s, s->count - 1 - k, i));
        }
        left += forth != sum;
        right += back != sum;
        team_put(s->dtype, want, i, mean_of(s, sum));
    }
    bool adds = s->op == LK_REDUCTION_SUM || s->op == LK_REDUCTION_MEAN;
    bool rounds = s->dtype == LK_DTYPE_F32 || s->dtype == LK_DTYPE_F64 || s->dtype == LK_DTYPE_BF16;
    if (adds && rounds && s->elements > 100)
        CHECK(left > s->elements / 200 && right > s->elements / 200);
    return want;
}

/* Appends the largest nodes inside [first,last) that are below the node [lo,hi). */
static inline int find_roots(int lo, int hi, int first, int last, int (*roots)[2], int found)
{
    if (lo >= last || hi <= first)
        return found;
    if (first <= lo && hi <= last) {
        roots[found][0] = lo;
        roots[found][1] = hi;
        return found + 1;
    }
    found = find_roots(lo, tree_middle(lo, hi), first, last, roots, found);
    return find_roots(tree_middle(lo, hi), hi, first, last, roots, found);
}

typedef struct partials {
    int count;
    void *block;
    void *at[LK_MAX_ROOTS];
} partials;

static inline partials make_partials(const shards *s, bool shared)
{
    int first = s->bounds[s->rank], last = s->bounds[s->rank + 1];
    int roots[MAX_TEST_SHARDS][2], begin[LK_MAX_ROOTS];
    partials p = {.count = find_roots(0, s->count, first, last, roots, 0)};
    CHECK(p.count <= LK_MAX_ROOTS);
    CHECK(lk_shard_roots(s->count, first, last, begin) == p.count);
    size_t bytes = 8 * (s->elements + 1);
    if (shared)
        CHECK_OK(lk_group_alloc(s->group, bytes * (size_t)p.count, &p.block));
    else
        CHECK((p.block = malloc(bytes * (size_t)p.count + 1)) != NULL);
    for (int k = 0; k < p.count; k++) {
        CHECK(begin[k] == roots[k][0]);
        p.at[k] = (char *)p.block + bytes * (size_t)k;
        for (size_t i = 0; i < s->elements; i++)
            team_put(s->dtype, p.at[k], i, tree_sum(s, roots[k][0], roots[k][1], i));
    }
    return p;
}

static inline void free_partials(const shards *s, partials *p, bool shared)
{
    if (shared)
        lk_group_free(s->group, p->block);
    else
        free(p->block);
}

static inline void same_bits(const shards *s, const void *got, const void *want, size_t first, size_t count)
{
    size_t element = lk_dtype_size(s->dtype);
    const unsigned char *a = got, *b = (const unsigned char *)want + first * element;
    for (size_t i = 0; i < count; i++) {
        if (memcmp(a + i * element, b + i * element, element) == 0)
            continue;
        fprintf(stderr, "%d shards of %zu %s, rank %d of %d on %s: element %zu is %.17g, not %.17g\n", s->count,
                s->elements, lk_dtype_name(s->dtype), s->rank, s->size, lk_group_transport(s->group), first + i,
                team_get(s->dtype, a, i), team_get(s->dtype, b, i));
        _exit(1);
    }
}

static inline void try_sums(const shards *s, const void *want, bool shared)
{
    partials p = make_partials(s, shared);
    lk_shard_sums sums = {s->bounds, (const void *const *)p.at};
    void *out = calloc(s->elements + 1, 8);
    size_t counts[TEAM_MAX], first = 0;
    int root = s->count % s->size;
    CHECK(out);
    CHECK_OK(lk_allreduce_shards(s->group, &sums, (lk_buffer){out, s->elements, s->dtype}, s->op, NULL));
    same_bits(s, out, want, 0, s->elements);

    memset(out, 0, 8 * s->elements);
    CHECK_OK(lk_reduce_shards(s->group, &sums, (lk_buffer){out, s->elements, s->dtype}, s->op, root, NULL));
    if (s->rank == root)
        same_bits(s, out, want, 0, s->elements);

    for (int r = 0; r < s->size; r++)
        counts[r] = s->elements * (size_t)(r + 1) / (size_t)s->size - s->elements * (size_t)r / (size_t)s->size;
    size_t moved = counts[0] / 2; /* uneven: the last rank gets half of the first rank's part */
    counts[0] -= moved;
    counts[s->size - 1] += moved;
    for (int r = 0; r < s->rank; r++)
        first += counts[r];
    lk_buffer part = {out, counts[s->rank], s->dtype};
    CHECK_OK(lk_reduce_scatter_shards(s->group, &sums, counts, part, s->op, NULL));
    same_bits(s, out, want, first, counts[s->rank]);

    /* The result may overwrite a partial sum. */
    void *over = p.count > 0 ? p.at[p.count - 1] : out;
    CHECK_OK(lk_allreduce_shards(s->group, &sums, (lk_buffer){over, s->elements, s->dtype}, s->op, NULL));
    same_bits(s, over, want, 0, s->elements);
    free(out);
    free_partials(s, &p, shared);
}

/* Divides the shards: 0 evenly; 1 one shard a rank, the rest to the last; 2 all to the last rank;
 * 3 some ranks without shards; 4 random. Returns whether this division exists for the size. */
static inline bool cut_shards(int count, int size, int which, int *bounds)
{
    bounds[0] = 0;
    bounds[size] = count;
    for (int r = 1; r < size; r++) {
        if (which == 0)
            bounds[r] = count * r / size;
        else if (which == 1)
            bounds[r] = r < count ? r : count;
        else if (which == 2)
            bounds[r] = 0;
        else if (which == 3)
            bounds[r] = count * ((r + 1) / 2) / (size / 2 + 1);
        else
            bounds[r] = bounds[r - 1] + (int)(team_hash((uint64_t)r, (uint64_t)count) % (uint64_t)(count / size + 2));
        if (bounds[r] > count)
            bounds[r] = count;
    }
    return size > 1 || which == 0;
}

typedef struct sum_case {
    int count;
    size_t elements;
    lk_dtype dtype;
    lk_reduction op;
} sum_case;

static inline bool try_all_sums(lk_group *group, const team_spec *team, const void *arg)
{
    for (const sum_case *c = arg; c->count > 0; c++) {
        int bounds[TEAM_MAX + 1];
        shards s = {.group = group,
                    .rank = lk_group_rank(group),
                    .size = lk_group_size(group),
                    .dtype = c->dtype,
                    .op = c->op,
                    .count = c->count,
                    .elements = c->elements,
                    .bounds = bounds};
        void *want = reference(&s);
        for (int which = 0; which < MAX_CUTS; which++)
            if (cut_shards(c->count, s.size, which, bounds))
                try_sums(&s, want, which % 2 == 1);
        free(want);
    }
    return false;
}

#endif
