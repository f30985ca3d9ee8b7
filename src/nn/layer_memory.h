/* layer_memory.h - where the layers of a plan keep their values and gradients: blocks of one arena.
 *
 * A block is in use from the first pass that writes it to the last pass that reads it. Blocks that are never in use at
 * the same time share memory. */
#ifndef LK_NN_LAYER_MEMORY_H
#define LK_NN_LAYER_MEMORY_H

#include "nn/arena.h"
#include "nn/fuse.h"
#include "nn/op.h"

/* The blocks of one layer: indexes of lk_layer_memory.blocks, or -1 for none. */
typedef struct lk_layer_blocks {
    int value, grad, saved;
    int signs;                /* of the value, written in the forward pass */
    int temp[LK_MAX_INPUTS];  /* dx of the inputs in `adds` */
    bool adds[LK_MAX_INPUTS]; /* dx is written to a temporary block, which is then added */
    bool add;                 /* the layer adds to dx[0] itself */
} lk_layer_blocks;

/* As in lk_plan_opts. Everything is borrowed. */
typedef struct lk_layer_memory_opts {
    const lk_graph *graph;
    lk_device *dev;
    const lk_fuse_choice *choices; /* (layers of the graph) */
    int first, last;
    size_t capacity;
    int shards;
    const bool *kept;
} lk_layer_memory_opts;

typedef struct lk_layer_memory {
    lk_layer_memory_opts opts;
    lk_layer_blocks *layers; /* (layers of the graph) */
    lk_arena_block *blocks;
    size_t block_count;
    size_t bytes; /* of the arena */
} lk_layer_memory;

/* MEMORY if the host has none for the tables. *memory is all zero before; lk__layer_memory_fini frees it even after a
 * failure. */
lk_status lk__layer_memory_init(lk_layer_memory *memory, const lk_layer_memory_opts *opts) LK_CHECKED;
void lk__layer_memory_fini(lk_layer_memory *memory);

/* The description, with n = 1, of the layer's value or gradient in this block of the arena. block -1: data is NULL. */
lk_tensor lk__layer_memory_tensor(const lk_layer_memory *memory, char *arena, int block, int layer);

#endif
