/* waves.h - dividing a rank's shards into waves, and the merges of its partial sums in the tree. Pure
 * arithmetic. */
#ifndef LK_PARALLEL_STEP_WAVES_H
#define LK_PARALLEL_STEP_WAVES_H

#include "nn/op.h"

typedef struct lk_waves_opts {
    int shards;        /* of the run */
    const int *bounds; /* (replicas + 1): replica r has shards [bounds[r], bounds[r+1]) */
    int replicas, replica;
    size_t batch;       /* the largest batch of a step, in samples of all ranks */
    size_t micro_batch; /* wanted largest number of samples in a wave; 0: all */
} lk_waves_opts;

typedef struct lk_waves {
    int shards, first, last; /* shards of the run; this rank has [first,last) */
    size_t capacity;         /* the largest number of samples in a wave */
    bool single;             /* every step is one wave */
    int own_roots;           /* partial sums at the end of the rank's range */
    int most_roots;          /* partial sums on the stack at once, at most */
    int all_roots;           /* the sum of own_roots of all replicas */
    int total_slots;         /* partial sums on the stack at once, at most, while all_roots are folded */
    int *merges;             /* (last - first) merges after each shard */
    int *root_shard;         /* (all_roots + 1) first shard of each partial sum, and the end */
    int *root_merges;        /* (all_roots) merges after each partial sum */

    /* The current step. */
    size_t batch;       /* samples of all ranks */
    int count;          /* waves */
    int *wave_shard;    /* (count + 1) first shard of each wave, and the end */
    size_t *begin;      /* lk_shards.begin of each wave; see lk__waves_at */
    size_t *rows;       /* (count, LK_TREE_MAX_DEPTH) lk_shards.rows of each wave */
    size_t *root_begin; /* (all_roots + 1) first sample of each partial sum in the batch, and the end */
} lk_waves;

lk_status lk__waves_create(const lk_waves_opts *opts, lk_waves **out) LK_CHECKED;
void lk__waves_destroy(lk_waves *waves);

/* The number of slots that gradients need. Within a wave, kernels keep partial sums in memory of their own. */
int lk__waves_slots(const lk_waves *waves);

/* Divides a step of `batch` samples into waves. */
void lk__waves_cut(lk_waves *waves, size_t batch);
/* The index of a wave's first sample among the rank's samples. */
size_t lk__waves_begin(const lk_waves *waves, int index);
/* The shards, roots and size of a wave; its other fields are zero. Points into waves until the next cut. */
lk_op_wave lk__waves_at(const lk_waves *waves, int index);
/* The index of the wave that has shard s. */
int lk__waves_find(const lk_waves *waves, int s);
/* This wave with only shard s as a leaf of the gradients. */
lk_op_wave lk__waves_leaf(const lk_waves *waves, int index, int s);

/* The index of shard s's first sample in the batch of all ranks. */
size_t lk__waves_sample(const lk_waves *waves, int s);
/* The index of shard s's first sample among the rank's samples; s is one of its shards, or `last`. */
size_t lk__waves_own(const lk_waves *waves, int s);

#endif
