/* grad_check.c - tests/nn/test_gradcheck.c (gradients against finite differences of the loss) with engines on the
 * device under test. */
#define OWN_OPS_CUDA
#include "tensor/kernel_test.h"

#include <lockstep/lockstep.h>

static lk_status create_there(const lk_graph *graph, const lk_engine_opts *opts, lk_engine **out)
{
    lk_engine_opts there = *opts;
    there.device = fx_name();
    return lk_engine_create(graph, &there, out);
}

int gradcheck_main(void);

#define lk_engine_create create_there
#define main gradcheck_main
#include "nn/test_gradcheck.c"
#undef main

int main(void)
{
    if (fx_present())
        return gradcheck_main();
    puts("skipped: no GPU");
    return FX_SKIPPED;
}
