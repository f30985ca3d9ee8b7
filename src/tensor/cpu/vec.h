/* vec.h - the vector operations of CPU kernels.
 *
 * Each kernel source is compiled once for each instruction set, named by LK_ISA (scalar, neon, avx2, avx512). A
 * vector has V lanes; lanes interact only in v_transpose. Every operation is exact or correctly rounded, so all
 * builds give the same bits as long as each output is computed in one lane.
 *
 * v_fma(a, b, c) is a * b + c with one rounding. Comparisons and v_select replace min and max, whose hardware
 * forms differ for -0.0 and NaN. v_le(a, b), a <= b, is false if either is NaN. v_tops(a, b) says whether a
 * replaces b as the largest value so far: a > b, or a is the first NaN. */
#ifndef LK_TENSOR_CPU_VEC_H
#define LK_TENSOR_CPU_VEC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LK_ISA_PASTE2(name, isa) lk__##name##_##isa
#define LK_ISA_PASTE(name, isa) LK_ISA_PASTE2(name, isa)
/* The name of an exported symbol in this build: LK_KERNEL(conv2d_forward). */
#define LK_KERNEL(name) LK_ISA_PASTE(name, LK_ISA)

/* For loops with a small constant count whose arrays must become registers. */
#if defined(__clang__)
#define LK_UNROLL _Pragma("unroll")
#else
#define LK_UNROLL _Pragma("GCC unroll 32")
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

/* The first n <= V lanes, the others 0; a whole vector needs no mask. */
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

/* x <= 0 ? 0 : x, lane by lane: -0.0 becomes 0, NaN stays NaN. */
static inline v_f32 v_relu(v_f32 x)
{
    return v_select(v_le(x, v_zero()), v_zero(), x);
}

/* The gradient dy of a ReLU whose result was y; dy passes if y is NaN. */
static inline v_f32 v_relu_grad(v_f32 y, v_f32 dy)
{
    return v_select(v_le(y, v_zero()), v_zero(), dy);
}

/* min(max(x, 0), 6); NaN stays NaN. */
static inline v_f32 v_relu6(v_f32 x)
{
    v_f32 six = v_set1(6.0f);
    return v_select(v_le(six, x), six, v_relu(x));
}

/* The gradient dy of a ReLU6 whose result was y; dy passes if y is NaN. */
static inline v_f32 v_relu6_grad(v_f32 y, v_f32 dy)
{
    return v_select(v_le(v_set1(6.0f), y), v_zero(), v_relu_grad(y, dy));
}

#endif
