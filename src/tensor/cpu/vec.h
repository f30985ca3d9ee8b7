/* vec.h - the vector operations that CPU kernels are written in.
 *
 * Each kernel source is compiled once per instruction set, with LK_ISA naming
 * it (scalar, neon, avx2, avx512). A vector has V lanes; lanes never interact
 * except in v_transpose. Every operation is correctly rounded or exact, so all
 * builds give the same bits as long as each output has one lane of its own.
 *
 * v_fma(a, b, c) is a * b + c with one rounding. Comparisons and v_select stand
 * in for min and max, whose hardware forms disagree on -0.0 and NaN. v_le(a, b),
 * a <= b, is false where either is a NaN. v_tops(a, b) tells whether a takes the
 * place of b, the largest value so far: a > b, or a is the first NaN. */
#ifndef LK_TENSOR_CPU_VEC_H
#define LK_TENSOR_CPU_VEC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LK_ISA_PASTE2(name, isa) lk__##name##_##isa
#define LK_ISA_PASTE(name, isa) LK_ISA_PASTE2(name, isa)
/* The name of an exported symbol in this build: LK_KERNEL(conv2d_forward). */
#define LK_KERNEL(name) LK_ISA_PASTE(name, LK_ISA)

/* Before a loop with a small constant count whose arrays must become registers. */
#if defined(__clang__)
#define LK_UNROLL _Pragma("unroll")
#else
#define LK_UNROLL _Pragma("GCC unroll 16")
#endif
#define LK_INLINE static inline __attribute__((always_inline))

#if defined(LK_VEC_AVX512)
#include "tensor/cpu/vec_avx512.h"
#elif defined(LK_VEC_AVX2)
#include "tensor/cpu/vec_avx2.h"
#elif defined(LK_VEC_NEON)
#include "tensor/cpu/vec_neon.h"
#else
#include "tensor/cpu/vec_scalar.h"
#endif

/* The first n <= V lanes, the others 0; whole vectors do without a mask. */
LK_INLINE v_f32 v_load_some(const float *p, size_t n)
{
    return n == V ? v_load(p) : v_load_n(p, n);
}

LK_INLINE void v_store_some(float *p, v_f32 x, size_t n)
{
    if (n == V)
        v_store(p, x);
    else
        v_store_n(p, x, n);
}

/* x <= 0 ? 0 : x, lane by lane: -0.0 becomes 0, and a NaN stays. */
static inline v_f32 v_relu(v_f32 x)
{
    return v_select(v_le(x, v_zero()), v_zero(), x);
}

/* The gradient dy of a ReLU whose result was y: a NaN in y lets it pass. */
static inline v_f32 v_relu_grad(v_f32 y, v_f32 dy)
{
    return v_select(v_le(y, v_zero()), v_zero(), dy);
}

#endif
