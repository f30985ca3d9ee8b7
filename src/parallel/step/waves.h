/* waves.h - how a rank's shards of a step become waves, and how its partial sums
 * fit into the tree. Pure arithmetic on the host. */
#ifndef LK_PARALLEL_STEP_WAVES_H
#define LK_PARALLEL_STEP_WAVES_H

#include "nn/op.h"

typedef struct lk_waves_opts {
    int shards;        /* of the run */
    const int *bounds; /* (replicas + 1): replica r has shards [bounds[r], bounds[r+1]) */
    int replicas, replica;
    size_t batch;       /* the largest that a step may have */
    size_t micro_batch; /* samples that a wave should have at most; 0: all */
} lk_waves_opts;

typedef struct lk_waves {
    int shards, first, last; /* of the run, and this rank's range */
    size_t capacity;         /* samples in a wave at most */
    bool single;             /* a step is one wave */
    int own_roots;           /* partial sums that the rank's range leaves */
    int most_roots;          /* alive at once after any of its shards */
    int all_roots;           /* left by all ranks */
    int total_slots;         /* alive at once while those are folded */
    int *merges;             /* (last - first) after each shard */
    int *root_shard;         /* (all_roots + 1) first shard of each, and the end */
    int *root_merges;        /* (all_roots) */

    /* The step at hand. */
    size_t batch;       /* samples of all ranks */
    int count;          /* waves */
    int *wave_shard;    /* (count + 1) first shard of each, and the end */
    size_t *begin;      /* of each wave its lk_shards.begin; see lk__waves_at */
    size_t *rows;       /* (count, LK_TREE_MAX_DEPTH) */
    size_t *root_begin; /* (all_roots + 1) */
} lk_waves;

lk_status lk__waves_create(const lk_waves_opts *opts, lk_waves **out) LK_CHECKED;
void lk__waves_destroy(lk_waves *waves);

/* Slots that gradients need. Inside a wave kernels keep partial sums to themselves,
 * but for devices that work shard by shard: there each leaf is in a slot. */
int lk__waves_slots(const lk_waves *waves, bool by_shard);

/* Cuts a step of `batch` samples. */
void lk__waves_cut(lk_waves *waves, size_t batch);
/* First sample of a wave in the rank's own samples. */
size_t lk__waves_begin(const lk_waves *waves, int index);
/* The shards, roots and size of a wave; the rest of it is zero. Points into
 * waves until the next cut. */
lk_op_wave lk__waves_at(const lk_waves *waves, int index);
/* The wave that shard s is in, and that wave in search of what this shard alone
 * makes of the gradients. */
int lk__waves_find(const lk_waves *waves, int s);
lk_op_wave lk__waves_leaf(const lk_waves *waves, int index, int s);

/* First sample of shard s of the step, in the global batch. */
size_t lk__waves_sample(const lk_waves *waves, int s);
/* The same in the rank's own samples; s is one of its shards, or its end. */
size_t lk__waves_own(const lk_waves *waves, int s);

#endif
