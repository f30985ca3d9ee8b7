/* layer_sums.h - the results of a layer with weights, one after the other in an array,
 * and what they should be: sums of products in double, with their bounds. */
#ifndef LK_TESTS_CUDA_LAYER_SUMS_H
#define LK_TESTS_CUDA_LAYER_SUMS_H

#include "cuda/cuda_fixture.h"

/* Where each result begins: y, y after ReLU, dx, dx masked by x, dw, db. */
typedef struct layer_layout {
    size_t y, y_relu, dx, dx_masked, dw, db, count;
} layer_layout;

static inline layer_layout layer_layout_of(size_t outs, size_t ins, size_t weights, size_t biases)
{
    return (layer_layout){.y = 0,
                          .y_relu = outs,
                          .dx = 2 * outs,
                          .dx_masked = 2 * outs + ins,
                          .dw = 2 * (outs + ins),
                          .db = 2 * (outs + ins) + weights,
                          .count = 2 * (outs + ins) + weights + biases};
}

typedef struct layer_sums {
    layer_layout l;
    double *sum, *squares; /* (count) of the products */
} layer_sums;

static inline layer_sums layer_sums_make(layer_layout l)
{
    return (layer_sums){.l = l, .sum = new_doubles(l.count), .squares = new_doubles(l.count)};
}

static inline void layer_sums_free(layer_sums *s)
{
    free(s->sum);
    free(s->squares);
}

static inline void add_product(layer_sums *s, size_t at, double product)
{
    s->sum[at] += product;
    s->squares[at] += product * product;
}

/* From y and dx to what is made of them; x in the order of dx. */
static inline void layer_sums_finish(layer_sums *s, const float *x)
{
    const layer_layout *l = &s->l;
    for (size_t i = 0; i < l->y_relu - l->y; i++) {
        s->sum[l->y_relu + i] = fmax(s->sum[l->y + i], 0);
        s->squares[l->y_relu + i] = s->squares[l->y + i];
    }
    for (size_t i = 0; i < l->dx_masked - l->dx; i++) {
        s->sum[l->dx_masked + i] = x[i] > 0 ? s->sum[l->dx + i] : 0;
        s->squares[l->dx_masked + i] = x[i] > 0 ? s->squares[l->dx + i] : 0;
    }
}

static inline void layer_sums_compare(const layer_sums *s, const char *layer, const float *got)
{
    const layer_layout *l = &s->l;
    const struct {
        const char *name;
        size_t begin, end;
    } parts[] = {
        {"forward", l->y, l->y_relu},        {"forward and ReLU", l->y_relu, l->dx},
        {"grad_input", l->dx, l->dx_masked}, {"grad_input, masked", l->dx_masked, l->dw},
        {"grad_weight", l->dw, l->db},       {"grad_weight, bias", l->db, l->count},
    };
    double *bound = new_doubles(l->count);
    for (size_t i = 0; i < l->count; i++)
        bound[i] = fx_bound(s->sum[i], s->squares[i]);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char what[192];
        snprintf(what, sizeof what, "%s of %s", parts[i].name, layer);
        size_t at = parts[i].begin;
        fx_near_each(what, got + at, s->sum + at, bound + at, parts[i].end - at);
    }
    free(bound);
}

#endif
