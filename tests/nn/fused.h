/* fused.h - the choices of nn/fuse.c for a small graph, on devices with and without abilities that some choices need.
 */
#ifndef LK_TESTS_FUSED_H
#define LK_TESTS_FUSED_H

#include "check.h"
#include "nn/fuse.h"

enum { MOST = 16 };

typedef struct fixture {
    lk_graph *graph;
    lk_fuse_choice choices[MOST];
    bool kept[MOST];
    bool signs; /* a device with signs and pads */
    bool pools; /* a device that can pool 2x2 windows after a normalisation */
} fixture;

static inline size_t pitch(size_t channels)
{
    return (channels + 7) / 8 * 8;
}

static inline bool pools(const lk_pool2d_desc *windows)
{
    return windows->h.kernel == 2 && windows->w.kernel == 2;
}

/* Chooses for layers [first,last); last 0: up to the end. */
static inline void fuse(fixture *fx, int first, int last)
{
    memset(fx->choices, 0, sizeof fx->choices);
    assert_true(fx->graph->status == LK_OK && fx->graph->count <= MOST);
    lk_device_type other = lk__device_cpu;
    other.signs = fx->signs;
    other.pitch = fx->signs ? pitch : NULL;
    other.pools = fx->pools ? pools : NULL;
    lk_fuse_opts opts = {
        .graph = fx->graph, .type = &other, .first = first, .last = last ? last : fx->graph->count, .kept = fx->kept};
    lk__fuse(&opts, fx->choices);
}

static inline int set_up(void **state)
{
    fixture *fx = calloc(1, sizeof *fx);
    assert_non_null(fx);
    assert_int_equal(lk_graph_create(&fx->graph), LK_OK);
    *state = fx;
    return 0;
}

static inline int tear_down(void **state)
{
    fixture *fx = *state;
    lk_graph_destroy(fx->graph);
    free(fx);
    return 0;
}

static inline lk_node finish(lk_graph *g, lk_node x)
{
    return lk_cross_entropy(g, lk_linear(g, lk_flatten(g, lk_global_avgpool(g, x)), "fc", 3));
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

#endif
