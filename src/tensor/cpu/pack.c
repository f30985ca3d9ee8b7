/* pack.c - copies of matrices in the panel order that lk__gemm reads. */
#include "tensor/cpu/pack.h"

#include "tensor/cpu/decls.h"

/* The panel row of element e. */
static size_t panel_row(size_t e, size_t len, size_t taps)
{
    return taps == 1 ? e : e % taps * (len / taps) + e / taps;
}

/* V columns of fewer than V elements each, one after the other in memory. */
static void pack_short(const float *src, size_t len, size_t width, float *panel)
{
    float rows[V * V + V], block[V * V];
    if (len == 1) {
        v_store(panel, v_load(src));
        return;
    }
    memcpy(rows, src, V * len * sizeof *rows);
    memset(rows + V * len, 0, V * sizeof *rows); /* the last of them are read beyond their end */
    v_transpose(rows, len, block, V);
    for (size_t e = 0; e < len; e++)
        v_store(panel + e * width, v_load(block + e * V));
}

/* V columns of the panel, of which the first `cols` exist. */
static void pack_vector(const float *src, size_t stride, size_t cols, size_t len, size_t taps, size_t width,
                        float *panel)
{
    float block[V * V];
    size_t e = 0;
    if (cols == V && taps == 1 && stride == len && len < V) {
        pack_short(src, len, width, panel);
        return;
    }
    for (; cols == V && taps == 1 && e + V <= len; e += V)
        v_transpose(src + e, stride, panel + e * width, width);
    for (; cols == V && e + V <= len; e += V) {
        v_transpose(src + e, stride, block, V);
        for (size_t i = 0; i < V; i++)
            v_store(panel + panel_row(e + i, len, taps) * width, v_load(block + i * V));
    }
    for (; e < len; e++) {
        float *row = panel + panel_row(e, len, taps) * width;
        for (size_t j = 0; j < V; j++)
            row[j] = j < cols ? src[j * stride + e] : 0.0f;
    }
}

void lk__pack_transposed(const float *src, size_t stride, size_t cols, size_t len, size_t taps, size_t width,
                         float *panel)
{
    for (size_t j = 0; j < width; j += V) {
        size_t rest = cols > j ? lk__size_min(cols - j, V) : 0;
        pack_vector(src + j * stride, stride, rest, len, taps, width, panel + j);
    }
}

void lk__pack_rows(const float *src, size_t stride, size_t cols, size_t len, float *panels)
{
    size_t whole = cols / LK_NR * LK_NR, rest = cols - whole, width = rest > V ? LK_NR : V;
    for (size_t k = 0; k < len; k++, src += stride) {
        for (size_t col = 0; col < whole; col += LK_NR) {
            float *row = panels + col * len + k * LK_NR;
            v_store(row, v_load(src + col));
            v_store(row + V, v_load(src + col + V));
        }
        if (rest) {
            float *row = panels + whole * len + k * width;
            memcpy(row, src + whole, rest * sizeof *src);
            memset(row + rest, 0, (width - rest) * sizeof *row);
        }
    }
}
