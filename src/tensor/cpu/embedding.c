/* embedding.c - a table of vectors, one for each id.
 *
 * The gradient has no dense leaves: the tokens (ids of the wave) are sorted by id, and a task folds the leaves of its
 * rows over the tree in its own memory. A row's leaf of a shard is one chain over the shard's tokens with this id. */
#include <math.h>
#include <string.h>

#include "tensor/cpu/chunks.h"
#include "tensor/cpu/decls.h"
#include "tensor/cpu/fold.h"

enum { BLOCK = 64 }; /* columns that are folded at once */

/* The row of an id; `rows` if there is none. */
static size_t row_of(float id, size_t rows)
{
    return id >= 0.0f && id < (float)rows && floorf(id) == id ? (size_t)id : rows;
}

typedef struct lookup {
    size_t rows, tokens, width;
    const float *x; // (tokens)
    const float *w; // (rows, width)
    float *y;       // (tokens, width)
} lookup;

static void lookup_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const lookup *l = arg;
    lk_chunk_range range = lk__chunk(l->tokens, lk__chunk_rows(l->width), index);
    for (size_t token = range.begin; token < range.end; token++) {
        size_t row = row_of(l->x[token], l->rows);
        float *y = l->y + token * l->width;
        for (size_t i = 0; row == l->rows && i < l->width; i++)
            y[i] = NAN;
        if (row < l->rows)
            memcpy(y, l->w + row * l->width, l->width * sizeof *y);
    }
}

void LK_KERNEL(embedding_forward)(lk_device *dev, const lk_embedding_desc *desc, const lk_tensor *x, const float *w,
                                  lk_tensor *y)
{
    lookup l = {.rows = desc->rows,
                .tokens = lk__shape_count(x->shape),
                .width = y->shape.c,
                .x = lk__tensor_f32(x),
                .w = w,
                .y = lk__tensor_f32(y)};
    lk__chunk_run_rows(dev, l.tokens, l.width, lookup_task, &l);
}

/* Scratch: (rows + 2) starts, (tokens) places. */
size_t LK_KERNEL(embedding_scratch)(lk_device *dev, const lk_embedding_desc *desc, lk_shape x, lk_shape y)
{
    (void)dev;
    (void)y;
    return (desc->rows + 2 + lk__shape_count(x)) * sizeof(size_t);
}

typedef struct grads {
    size_t rows, width, sample; /* tokens of a sample */
    const size_t *start;        // (rows + 1) the first place of each row
    const size_t *token;        // the tokens of each row, in ascending order
    const float *dy;            // (tokens, width)
    const lk_shards *shards;
    lk_fold_range fold;
    lk_partials dw;
} grads;

/* Sorts tokens by their row: counts each row's, one place ahead, sums the counts, and fills the places in order. */
static void sort_tokens(const float *x, size_t tokens, size_t rows, size_t *start, size_t *token)
{
    memset(start, 0, (rows + 2) * sizeof *start);
    for (size_t i = 0; i < tokens; i++) {
        size_t row = row_of(x[i], rows);
        if (row < rows)
            start[row + 2]++;
    }
    for (size_t row = 2; row < rows + 2; row++)
        start[row] += start[row - 1];
    for (size_t i = 0; i < tokens; i++) {
        size_t row = row_of(x[i], rows);
        if (row < rows)
            token[start[row + 1]++] = i;
    }
}

static void add(size_t n, const float *from, float *to)
{
    for (size_t i = 0; i < n; i++)
        to[i] += from[i];
}

/* Folds columns [column, column + n) of a row. */
static void fold_row(const grads *g, size_t row, size_t column, size_t n)
{
    float stack[LK_TREE_MAX_DEPTH][BLOCK];
    size_t next = g->start[row], end = g->start[row + 1], at = row * g->width + column, bytes = n * sizeof(float);
    int depth = g->shards->depth;
    for (int slot = g->fold.low; slot < depth; slot++)
        memcpy(stack[slot], lk__partials_slot(g->dw, slot) + at, bytes);
    for (int shard = 0; shard < g->shards->count; shard++, depth++) {
        size_t first = g->shards->begin[shard] * g->sample, last = g->shards->begin[shard + 1] * g->sample;
        memset(stack[depth], 0, bytes);
        while (next < end && g->token[next] < first)
            next++;
        for (; next < end && g->token[next] < last; next++)
            add(n, g->dy + g->token[next] * g->width + column, stack[depth]);
        for (int i = 0; i < g->shards->merges[shard]; i++, depth--)
            add(n, stack[depth], stack[depth - 1]);
    }
    for (int slot = g->fold.low; slot < g->fold.end; slot++)
        memcpy(lk__partials_slot(g->dw, slot) + at, stack[slot], bytes);
}

/* A row without tokens: all its sums are zero, if there were none before. */
static void clear_row(const grads *g, size_t row)
{
    for (int slot = 0; slot < g->fold.end; slot++)
        memset(lk__partials_slot(g->dw, slot) + row * g->width, 0, g->width * sizeof(float));
}

static void grads_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const grads *g = arg;
    lk_chunk_range range = lk__chunk(g->rows, lk__chunk_rows(g->width), index);
    for (size_t row = range.begin; row < range.end; row++) {
        if (g->start[row] == g->start[row + 1] && g->shards->depth == 0) {
            clear_row(g, row);
            continue;
        }
        for (size_t column = 0; column < g->width; column += BLOCK)
            fold_row(g, row, column, lk__size_min(BLOCK, g->width - column));
    }
}

void LK_KERNEL(embedding_grad_weight)(lk_device *dev, const lk_embedding_desc *desc, const lk_tensor *x,
                                      const lk_tensor *dy, const lk_shards *shards, lk_partials dw, void *scratch)
{
    size_t *start = scratch, *token = start + desc->rows + 2;
    grads g = {.rows = desc->rows,
               .width = dy->shape.c,
               .sample = lk__shape_sample(x->shape),
               .start = start,
               .token = token,
               .dy = lk__tensor_f32(dy),
               .shards = shards,
               .fold = lk__fold_range_of(shards),
               .dw = dw};
    sort_tokens(lk__tensor_f32(x), lk__shape_count(x->shape), desc->rows, start, token);
    lk__chunk_run_rows(dev, g.rows, g.width, grads_task, &g);
}
