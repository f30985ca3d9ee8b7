/* outer_tile.c - tiles of weight gradients; see outer_tile.h. */
#include "tensor/cpu/outer_tile.h"

typedef void (*tile_fn)(const lk_outer_tile *tile);

LK_INLINE void add_pixels(const float *a, const float *b, size_t b_x, size_t count, v_f32 (*acc)[2], int mr, int nv)
{
    for (const float *b_end = b + count * b_x; b != b_end; a += LK_MR, b += b_x)
        lk__tile_multiply(a, b, acc, mr, nv);
}

/* Partial sums that begin and end in this call never leave the first-level cache: they are in tile->stack. */
LK_INLINE void sum_tile(const lk_outer_tile *tile, int mr, int nv)
{
    v_f32 acc[LK_MR][2];
    float *top = tile->top, *kept = tile->stack; /* kept: behind the sums in the stack */
    bool open = false;                           /* the leaf's blocks so far are at kept; otherwise at top */
    lk__tile_zero(acc, mr, nv);
    for (const lk_outer_run *run = tile->runs; run != tile->runs + tile->run_count; run++) {
        const float *a = tile->a + run->a * LK_MR, *b = run->b + tile->tap_y * run->row + tile->tap_x;
        for (size_t y = run->rows; y > 0; y--, a += run->count * LK_MR, b += tile->b_y * run->row)
            add_pixels(a, b, tile->b_x, run->count, acc, mr, nv);
        if (run->end == LK_OUTER_END_NONE)
            continue;
        if (!run->fresh)
            lk__tile_add(open ? kept : top, acc, mr, nv);
        for (int merge = run->merges; merge > 0; merge--) {
            bool below = kept == tile->stack; /* the sums of this call are merged already */
            top -= below ? tile->entry : 0;
            kept -= below ? 0 : LK_OUTER_UNIT;
            lk__tile_add(below ? top : kept, acc, mr, nv);
        }
        lk__tile_store(kept, acc, mr, nv);
        lk__tile_zero(acc, mr, nv);
        open = run->end == LK_OUTER_END_BLOCK;
        kept += open ? 0 : LK_OUTER_UNIT;
    }
    kept += open ? LK_OUTER_UNIT : 0;
    for (const float *sum = tile->stack; sum != kept; sum += LK_OUTER_UNIT, top += tile->entry) {
        lk__tile_load(sum, acc, mr, nv);
        lk__tile_store(top, acc, mr, nv);
    }
}

#define TILE(mr, nv)                                       \
    static void sum_##mr##x##nv(const lk_outer_tile *tile) \
    {                                                      \
        sum_tile(tile, mr, nv);                            \
    }
LK_TILE_SIZES(TILE, 1)
LK_TILE_SIZES(TILE, 2)
#undef TILE

static const struct {
    size_t rows;
    tile_fn fn[2]; /* by vectors */
} table[] = {
#define ENTRY(mr, nv) {mr, {sum_##mr##x1, sum_##mr##x2}},
    LK_TILE_SIZES(ENTRY, )
#undef ENTRY
};

void lk__outer_tile_sum(const lk_outer_tile *tile)
{
    lk_outer_tile part = *tile;
    for (size_t size = 0; part.rows > 0;) {
        size_t rows = table[size].rows;
        if (rows > part.rows) {
            size++;
            continue;
        }
        table[size].fn[tile->width > V](&part);
        part.top += rows * LK_NR;
        part.a += rows;
        part.rows -= rows;
    }
}
