/* outer_tile.c - tiles of weight gradients; see outer_tile.h. */
#include "tensor/cpu/outer_tile.h"

typedef void (*tile_fn)(const lk_outer_tile *tile);

/* Pixels between the prefetch of a pixel in place and its load. */
enum { AHEAD = 16 };

/* Adds a pixel and copies x to b. The loads come first: the compiler cannot know that the copy does not overlap them.
 */
LK_INLINE void add_copied(const float *a, const float *x, size_t x_x, float *b, v_f32 (*acc)[2], int mr, int nv)
{
    v_f32 b0 = v_load(x), b1 = nv > 1 ? v_load(x + V) : b0;
    for (int i = 0; i < nv; i++)
        __builtin_prefetch(x + AHEAD * x_x + i * V, 0, 2);
    lk__tile_multiply(a, x, acc, mr, nv);
    v_store(b, b0);
    if (nv > 1)
        v_store(b + V, b1);
}

/* Adds all pixels of a run and copies x to B. */
LK_INLINE void add_run_copied(const lk_outer_tile *tile, const lk_outer_run *run, v_f32 (*acc)[2], int mr, int nv)
{
    const float *a = tile->a + run->a * LK_MR;
    float *to = tile->copy + run->a * tile->width;
    size_t x_x = tile->x_x;
    for (size_t y = 0; y < run->rows; y++) {
        const float *x = run->x + y * tile->x_y + tile->channel;
        for (size_t i = 0; i < run->count; i++, a += LK_MR, x += x_x, to += tile->width)
            add_copied(a, x, x_x, to, acc, mr, nv);
    }
}

/* The part of [at, at + count) that lies in the span, counted from `at`. */
static inline lk_outer_span clip(size_t at, size_t count, lk_outer_span span)
{
    size_t begin = span.begin > at ? span.begin - at : 0;
    size_t end = span.end > at ? span.end - at : 0;
    return (lk_outer_span){begin, end < count ? end : count};
}

LK_INLINE void add_run(const lk_outer_tile *tile, const lk_outer_run *run, v_f32 (*acc)[2], int mr, int nv)
{
    lk_outer_span rows = clip(run->at_y, run->rows, tile->y), columns = clip(run->at_x, run->count, tile->x);
    if (columns.begin >= columns.end)
        return;
    size_t b_x = tile->b_x, count = columns.end - columns.begin;
    for (size_t y = rows.begin; y < rows.end; y++) {
        const float *a = tile->a + (run->a + y * run->count + columns.begin) * LK_MR;
        const float *b = run->b + (tile->tap_y + y * tile->b_y) * run->row + tile->tap_x + columns.begin * b_x;
        for (const float *b_end = b + count * b_x; b != b_end; a += LK_MR, b += b_x)
            lk__tile_multiply(a, b, acc, mr, nv);
    }
}

LK_INLINE void add_zero(v_f32 (*acc)[2], int mr, int nv)
{
    LK_UNROLL for (int i = 0; i < mr; i++)
    {
        acc[i][0] = v_add(acc[i][0], v_zero());
        if (nv > 1)
            acc[i][1] = v_add(acc[i][1], v_zero());
    }
}

/* Partial sums that begin and end in this call never leave the first-level cache: they are in tile->stack. */
LK_INLINE void sum_tile(const lk_outer_tile *tile, bool copies, int mr, int nv)
{
    v_f32 acc[LK_MR][2];
    const lk_outer_run *end = tile->runs + tile->run_count;
    float *top = tile->top, *kept = tile->stack; /* kept: behind the sums in the stack */
    bool open = false;                           /* the leaf's blocks so far are at kept; otherwise at top */
    lk__tile_zero(acc, mr, nv);
    for (const lk_outer_run *run = tile->runs; run != end; run++) {
        if (copies)
            add_run_copied(tile, run, acc, mr, nv);
        else
            add_run(tile, run, acc, mr, nv);
        if (run->end == LK_OUTER_END_NONE)
            continue;
        if (!run->fresh)
            lk__tile_add(open ? kept : top, acc, mr, nv);
        if (run->zero)
            add_zero(acc, mr, nv);
        for (int merge = run->merges; merge > 0; merge--) {
            bool below = kept == tile->stack; /* the sums of this call are merged already */
            top -= below ? tile->entry : 0;
            kept -= below ? 0 : LK_OUTER_UNIT;
            lk__tile_add(below ? top : kept, acc, mr, nv);
        }
        if (run + 1 == end) /* the last sum goes to its place at once */
            break;
        lk__tile_store(kept, acc, mr, nv);
        lk__tile_zero(acc, mr, nv);
        open = run->end == LK_OUTER_END_BLOCK;
        kept += open ? 0 : LK_OUTER_UNIT;
    }
    lk__tile_store(top + (size_t)(kept - tile->stack) / LK_OUTER_UNIT * tile->entry, acc, mr, nv);
    for (const float *sum = tile->stack; sum != kept; sum += LK_OUTER_UNIT, top += tile->entry) {
        lk__tile_load(sum, acc, mr, nv);
        lk__tile_store(top, acc, mr, nv);
    }
}

#define TILE(mr, nv)                                       \
    static void sum_##mr##x##nv(const lk_outer_tile *tile) \
    {                                                      \
        sum_tile(tile, false, mr, nv);                     \
    }
LK_TILE_SIZES(TILE, 1)
LK_TILE_SIZES(TILE, 2)
#undef TILE

static void copy_1(const lk_outer_tile *tile)
{
    sum_tile(tile, true, LK_MR, 1);
}

static void copy_2(const lk_outer_tile *tile)
{
    sum_tile(tile, true, LK_MR, 2);
}

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
    bool two = tile->width > V;
    if (tile->copy) {
        (two ? copy_2 : copy_1)(tile);
        return;
    }
    if (tile->rows == LK_MR) {
        table[0].fn[two](tile);
        return;
    }
    lk_outer_tile part = *tile;
    for (size_t size = 0; part.rows > 0;) {
        size_t rows = table[size].rows;
        if (rows > part.rows) {
            size++;
            continue;
        }
        table[size].fn[two](&part);
        part.top += rows * LK_NR;
        part.a += rows;
        part.rows -= rows;
    }
}
