/* linear_few_weight.c - dw = dy^T x of linear layers with few samples, and db = ones^T dy, folded over shards.
 *
 * Writing dw limits such layers, so dw is written in its order, in long pieces, while the samples' part of x stays in
 * the first-level cache. */
#include "base/mem.h"
#include "tensor/cpu/decls.h"
#include "tensor/cpu/fold.h"
#include "tensor/cpu/linear.h"
#include "tensor/cpu/sums.h"
#include "tensor/cpu/tile.h"

enum {
    VECTORS = LK_MR > 6 ? 8 : 4, /* twice as many are in registers */
    TILE = VECTORS * V,
    HALF = VECTORS / 2,
    LINE = LK_ALIGN / sizeof(float), /* floats of a cache line */
    SAMPLES = 4096                   /* floats of x in the first-level cache */
};

/* The shards of a step that have samples. */
typedef struct few_shards {
    size_t begin[LK_LINEAR_FEW + 1];
    int merges[LK_LINEAR_FEW];
    lk_shards shards;
} few_shards;

typedef struct few_weight {
    size_t in, out, width; /* columns of a task */
    const float *x, *dy;   // (n, in), (n, out)
    size_t dy_step;        /* floats from sample to sample of dy; 0: they are the same */
    const lk_shards *shards;
    bool add_zero; /* `shards` has no empty shards: 0.0 is added to the sum in their place */
    lk_fold_range fold;
    lk_partials dw; // (out, in)
} few_weight;

/* Sums samples [s, end), one block, for row o of dw. */
LK_INLINE void sum_block(const few_weight *few, size_t s, size_t end, size_t o, size_t col, size_t n, v_f32 *sums,
                         int vectors)
{
    LK_UNROLL for (int v = 0; v < vectors; v++) sums[v] = v_zero();
    for (; s < end; s++) {
        const float *x = few->x + s * few->in + col;
        v_f32 factor = v_set1(few->dy[s * few->dy_step + o]);
        LK_UNROLL for (int v = 0; v < vectors; v++) sums[v] = v_fma(factor, v_load_some(x + v * V, n), sums[v]);
    }
}

/* Sums a leaf of row o of dw. */
LK_INLINE void sum_leaf(const few_weight *few, int leaf, size_t o, size_t col, size_t n, v_f32 *sums, int vectors)
{
    size_t s = few->shards->begin[leaf], end = few->shards->begin[leaf + 1];
    v_f32 block[VECTORS];
    sum_block(few, s, lk__size_min(s + LK_SUM_BLOCK, end), o, col, n, sums, vectors);
    for (s += LK_SUM_BLOCK; s < end; s += LK_SUM_BLOCK) {
        sum_block(few, s, lk__size_min(s + LK_SUM_BLOCK, end), o, col, n, block, vectors);
        LK_UNROLL for (int v = 0; v < vectors; v++) sums[v] = v_add(sums[v], block[v]);
    }
}

/* Vectors of row o of dw, from column col on; the first n lanes of each exist. The partial sum on the top of the stack
 * is in registers: `below` is where it is stored before the next one. At first `top` is no partial sum: it is stored,
 * too, but not read. The lines of the next row are prefetched. */
LK_INLINE void fold_tile(const few_weight *few, size_t o, size_t col, size_t n, int vectors)
{
    float stack[LK_TREE_MAX_DEPTH + 1][TILE], *below = stack[0];
    v_f32 top[VECTORS], leaf[VECTORS];
    size_t at = o * few->in + col;
    int low = few->fold.low, last = few->fold.end - 1;
    for (size_t j = 0; j < (size_t)vectors * V; j += LINE)
        __builtin_prefetch(lk__partials_slot(few->dw, low) + at + few->in + j, 1);
    LK_UNROLL for (int v = 0; v < vectors; v++) top[v] = v_zero();
    for (int entry = low; entry < few->shards->depth; entry++, below += TILE)
        LK_UNROLL for (int v = 0; v < vectors; v++)
        {
            v_store(below + v * V, top[v]);
            top[v] = v_load_some(lk__partials_slot(few->dw, entry) + at + v * V, n);
        }
    for (int i = 0; i < few->shards->count; i++) {
        sum_leaf(few, i, o, col, n, leaf, vectors);
        int merges = few->shards->merges[i];
        if (merges == 0) {
            LK_UNROLL for (int v = 0; v < vectors; v++) v_store(below + v * V, top[v]);
            LK_UNROLL for (int v = 0; v < vectors; v++) top[v] = leaf[v];
            below += TILE;
            continue;
        }
        LK_UNROLL for (int v = 0; v < vectors; v++) top[v] = v_add(top[v], leaf[v]);
        for (; merges > 1; merges--) {
            below -= TILE;
            LK_UNROLL for (int v = 0; v < vectors; v++) top[v] = v_add(v_load(below + v * V), top[v]);
        }
    }
    for (int entry = low; entry < last; entry++)
        LK_UNROLL for (int v = 0; v < vectors; v++)
            v_store_some(lk__partials_slot(few->dw, entry) + at + v * V, v_load(stack[entry - low + 1] + v * V), n);
    LK_UNROLL for (int v = 0; v < vectors; v++)
    {
        v_f32 sum = few->add_zero ? v_add(top[v], v_zero()) : top[v];
        v_store_some(lk__partials_slot(few->dw, last) + at + v * V, sum, n);
    }
}

static void weight_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const few_weight *few = arg;
    size_t begin = index * few->width, end = lk__size_min(begin + few->width, few->in);
    for (size_t o = 0; o < few->out; o++) {
        size_t col = begin;
        for (; col + TILE <= end; col += TILE)
            fold_tile(few, o, col, V, VECTORS);
        for (; col + HALF * V <= end; col += HALF * V)
            fold_tile(few, o, col, V, HALF);
        for (; col < end; col += V)
            fold_tile(few, o, col, lk__size_min(V, end - col), 1);
    }
}

/* Leaves out empty shards. Their sums are 0.0, which changes nothing but the sign of a zero. */
static void skip_empty(const lk_shards *all, few_shards *few)
{
    bool filled[LK_TREE_MAX_DEPTH + 1];
    int top = 0, count = 0;
    for (int leaf = 0; leaf < all->count; leaf++, top++) {
        filled[top] = all->begin[leaf] < all->begin[leaf + 1];
        if (filled[top]) {
            few->begin[count] = all->begin[leaf];
            few->merges[count++] = 0;
        }
        for (int merge = all->merges[leaf]; merge > 0; merge--, top--) {
            if (filled[top] && filled[top - 1])
                few->merges[count - 1]++;
            filled[top - 1] |= filled[top];
        }
    }
    few->begin[count] = all->begin[all->count];
    few->shards = (lk_shards){.count = count, .begin = few->begin, .merges = few->merges};
}

bool lk__linear_few_grad_weight(lk_device *dev, const lk_tensor *x, const lk_tensor *dy, const lk_shards *shards,
                                lk_partials dw)
{
    if (x->shape.n == 0 || x->shape.n > LK_LINEAR_FEW || x->shape.c < TILE)
        return false;
    few_shards filled;
    few_weight few = {.in = x->shape.c,
                      .out = dy->shape.c,
                      .x = lk__tensor_f32(x),
                      .dy = lk__tensor_f32(dy),
                      .dy_step = dy->shape.c,
                      .shards = shards,
                      .fold = lk__fold_range_of(shards),
                      .dw = dw};
    if (shards->depth == 0 && few.fold.end == 1) {
        skip_empty(shards, &filled);
        few.add_zero = filled.shards.count < shards->count;
        few.shards = &filled.shards;
    }
    lk_pool *pool = lk__cpu_pool(dev);
    size_t share = lk__size_divide_up(few.in, (size_t)lk__pool_threads(pool));
    few.width = lk__size_min(lk__size_round_up(share, LINE), SAMPLES / x->shape.n / TILE * TILE);
    lk__pool_run(pool, lk__size_divide_up(few.in, few.width), weight_task, &few);
    return true;
}

void lk__linear_grad_bias(lk_device *dev, const lk_tensor *dy, const lk_shards *shards, lk_partials db)
{
    static const float one = 1.0f;
    few_weight sum = {.in = dy->shape.c,
                      .out = 1,
                      .width = 4 * TILE,
                      .x = lk__tensor_f32(dy),
                      .dy = &one,
                      .shards = shards,
                      .fold = lk__fold_range_of(shards),
                      .dw = db};
    lk__pool_run(lk__cpu_pool(dev), lk__size_divide_up(sum.in, sum.width), weight_task, &sum);
}
