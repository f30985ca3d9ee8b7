/* cpu.h - the CPU device as its kernels see it, and the builds of the kernels. */
#ifndef LK_TENSOR_CPU_CPU_H
#define LK_TENSOR_CPU_CPU_H

#include "base/pool.h"
#include "tensor/cpu/bf16.h"
#include "tensor/device.h"

/* One build of the kernel sources, for one instruction set. */
typedef struct lk_cpu_build {
    const char *name;
    size_t width; /* floats in a vector */
    const lk_kernels *kernels;
    /* Runs `rounds` of independent fused multiply-adds; returns the number of FLOPs. */
    double (*peak)(size_t rounds);
    lk_bf16_multiply *bf16;
} lk_cpu_build;

typedef struct lk_cpu_device {
    lk_device base;
    lk_pool *pool;
    const lk_cpu_build *build;
    lk_bf16_multiply *bf16; /* of the build; NULL: the precision is fp32 */
} lk_cpu_device;

static inline lk_pool *lk__cpu_pool(lk_device *dev)
{
    return ((lk_cpu_device *)dev)->pool;
}

/* Tasks of a run: `each` for a thread, so that faster threads can take those of slower ones; twice as many where there
 * are many threads; one for one thread. */
static inline size_t lk__cpu_tasks(size_t threads, size_t each)
{
    return threads == 1 ? 1 : (threads > 4 ? 2 : 1) * threads * each;
}

/* Builds that this machine can run, the fastest first, NULL after the last. */
const lk_cpu_build *lk__cpu_build_list(size_t index);
/* Selects the build called `name`. NULL: the one that the variable LOCKSTEP_ISA names, otherwise the fastest.
 * The detail of USAGE lists the builds. */
lk_status lk__cpu_build_select(const char *name, const lk_cpu_build **out) LK_CHECKED;

#endif
