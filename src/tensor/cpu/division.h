/* division.h - how the work of a weight gradient is divided among tasks.
 *
 * The shards of a wave are in one subtree of the sum tree or in several (conv2d_subtrees.h), and the outputs are cut
 * into blocks. Each task computes one block for the shards of one subtree. */
#ifndef LK_TENSOR_CPU_DIVISION_H
#define LK_TENSOR_CPU_DIVISION_H

#include "base/mem.h"
#include "tensor/cpu/cpu.h"
#include "tensor/cpu/fold.h"

/* Shards, and where their sums go: to the partial sums of the wave, or to slot 0 of a row of their own. */
typedef struct lk_subtree {
    lk_shards shards;
    lk_partials dw, db; /* db.slot0 may be NULL */
    lk_fold_range fold; /* of the shards */
} lk_subtree;

static inline lk_subtree lk__subtree(const lk_shards *shards, lk_partials dw, lk_partials db)
{
    return (lk_subtree){*shards, dw, db, lk__fold_range_of(shards)};
}

typedef struct lk_division {
    size_t threads;          /* each has scratch memory */
    size_t subtrees;         /* wanted; 1 if the wave is not cut */
    size_t blocks;           /* of outputs that give slower threads' work to faster ones, for each subtree */
    size_t least;            /* blocks that give each thread a task */
    size_t depth;            /* partial sums of a subtree, at most */
    const lk_subtree *trees; // (count); NULL where only the size of scratch memory is wanted
    size_t count;            /* uneven waves have more subtrees than are wanted */
} lk_division;

/* A whole subtree has a partial sum for each of its levels. */
enum { LK_SUBTREE_DEPTH = 13 };
_Static_assert(LK_MAX_SHARDS == 1 << (LK_SUBTREE_DEPTH - 1), "the levels of the largest tree");

static inline lk_division lk__division(size_t threads, size_t subtrees)
{
    return (lk_division){
        .threads = threads,
        .subtrees = subtrees,
        .blocks = lk__size_divide_up(lk__cpu_tasks(threads, 1), subtrees),
        .least = lk__size_divide_up(threads, subtrees),
        .depth = subtrees > 1 ? LK_SUBTREE_DEPTH : LK_TREE_MAX_DEPTH,
    };
}

/* The wave is not cut. */
static inline lk_division lk__division_whole(size_t threads, const lk_subtree *wave)
{
    lk_division division = lk__division(threads, 1);
    division.trees = wave;
    division.count = 1;
    return division;
}

/* Returns the subtree of task *index, if each subtree has this many blocks, and makes *index the number of the block.
 */
static inline const lk_subtree *lk__division_tree(const lk_division *division, size_t blocks, size_t *index)
{
    const lk_subtree *tree = &division->trees[*index / blocks];
    *index %= blocks;
    return tree;
}

#endif
