/* table.c - the table row of this build. */
#include "tensor/cpu/decls.h"

#define LK_ISA_STRING2(isa) #isa
#define LK_ISA_STRING(isa) LK_ISA_STRING2(isa)

static const lk_kernels kernels = {
#define ENTRY(slot) .slot = LK_KERNEL(slot),
    LK_KERNEL_LIST(ENTRY)
#undef ENTRY
};

/* Enough independent chains to hide the latency of fma, but not more than there are registers: AVX2 and scalar
 * x86-64 have sixteen. */
#if defined(__x86_64__) && !defined(LK_VEC_AVX512)
enum { CHAINS = 12 };
#else
enum { CHAINS = 16 };
#endif

static double peak(size_t rounds)
{
    v_f32 chain[CHAINS];
    for (int i = 0; i < CHAINS; i++)
        chain[i] = v_set1((float)i);
    v_f32 factor = v_set1(0.5f);
    for (size_t round = 0; round < rounds; round++) {
#pragma GCC unroll 16
        for (int i = 0; i < CHAINS; i++)
            chain[i] = v_fma(factor, factor, chain[i]); /* on arm64 only the addend is replaced without a copy */
    }
    v_f32 sum = v_zero();
    for (int i = 0; i < CHAINS; i++)
        sum = v_add(sum, chain[i]);
    float lanes[V];
    v_store(lanes, sum);
    /* The sum is finite, so the test is always true. The compiler cannot know that, so it keeps the
     * computation. */
    return lanes[0] < 1e30f ? 2.0 * CHAINS * V * (double)rounds : 0;
}

extern const lk_cpu_build LK_KERNEL(build);
const lk_cpu_build LK_KERNEL(build) = {
    .name = LK_ISA_STRING(LK_ISA),
    .width = V,
    .kernels = &kernels,
    .peak = peak,
    .bf16 = LK_KERNEL(bf16_multiply),
};

#if defined(LK_VEC_AVX512) && defined(LK_HAVE_AMX)
/* The same kernels, with AMX for products in bf16. */
extern const lk_cpu_build lk__build_amx;
const lk_cpu_build lk__build_amx = {
    .name = "amx",
    .width = V,
    .kernels = &kernels,
    .peak = peak,
    .bf16 = lk__bf16_multiply_amx,
};
#endif
