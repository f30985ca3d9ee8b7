/* vec_scalar.h - vec.h with one lane, in plain C.
 *
 * On x86-64 it is compiled with FMA3, so that fma is one instruction. */
#ifndef LK_TENSOR_CPU_VEC_SCALAR_H
#define LK_TENSOR_CPU_VEC_SCALAR_H

#include <math.h>
#include <stdbool.h>

#include "base/math.h"

enum { V = 1 };

typedef float v_f32;
typedef uint32_t v_u32;
typedef bool v_mask;

/* One operation on each line, as a table. */
/* clang-format off */
static inline v_f32 v_zero(void) { return 0; }
static inline v_f32 v_set1(float x) { return x; }
static inline v_f32 v_load(const float *p) { return *p; }
static inline void v_store(float *p, v_f32 x) { *p = x; }
static inline v_f32 v_load_n(const float *p, size_t n) { return n ? *p : 0; }
static inline void v_store_n(float *p, v_f32 x, size_t n)
{
    if (n)
        *p = x;
}

static inline v_f32 v_add(v_f32 a, v_f32 b) { return a + b; }
static inline v_f32 v_sub(v_f32 a, v_f32 b) { return a - b; }
static inline v_f32 v_mul(v_f32 a, v_f32 b) { return a * b; }
static inline v_f32 v_div(v_f32 a, v_f32 b) { return a / b; }
static inline v_f32 v_sqrt(v_f32 a) { return sqrtf(a); }
static inline v_f32 v_fma(v_f32 a, v_f32 b, v_f32 c) { return fmaf(a, b, c); }

static inline v_mask v_le(v_f32 a, v_f32 b) { return a <= b; }
static inline v_mask v_tops(v_f32 a, v_f32 b) { return !(a <= b) && b == b; }
static inline v_f32 v_select(v_mask m, v_f32 yes, v_f32 no) { return m ? yes : no; }

static inline v_u32 vu_set1(uint32_t x) { return x; }
static inline v_u32 vu_load(const uint32_t *p) { return *p; }
static inline void vu_store(uint32_t *p, v_u32 x) { *p = x; }
static inline v_u32 vu_add(v_u32 a, v_u32 b) { return a + b; }
static inline v_u32 vu_xor(v_u32 a, v_u32 b) { return a ^ b; }
static inline v_u32 vu_mullo(v_u32 a, v_u32 b) { return a * b; }
static inline v_u32 vu_mulhi(v_u32 a, v_u32 b) { return (uint32_t)(((uint64_t)a * b) >> 32); }
static inline v_mask vu_lt(v_u32 a, v_u32 b) { return a < b; }

static inline v_u32 v_bits(v_f32 x) { return lk__math_float_to_bits(x); }
static inline v_f32 v_from_bits(v_u32 x) { return lk__math_bits_to_float(x); }
static inline v_u32 vu_and(v_u32 a, v_u32 b) { return a & b; }
static inline v_u32 vu_or(v_u32 a, v_u32 b) { return a | b; }
static inline v_u32 vu_shl16(v_u32 x) { return x << 16; }
static inline v_u32 vu_shr16(v_u32 x) { return x >> 16; }
static inline v_u32 vu_load16(const uint16_t *p)
{
    uint16_t x;
    memcpy(&x, p, sizeof x);
    return x;
}
static inline void vu_store16(uint16_t *p, v_u32 x) { *p = (uint16_t)x; }
static inline v_u32 vu_load8(const uint8_t *p) { return *p; }
static inline void vu_store8(uint8_t *p, v_u32 x) { *p = (uint8_t)x; }

enum { V_REP = 1 };
typedef float v_rep;
static inline v_rep v_rep_load(const float *p) { return *p; }
#define v_fma_rep(rep, lane, b, c) fmaf((rep), (b), (c))
#define V_REP_EACH(X) X(0)

/* Only for the compiler: it is used where LK_MR is 3/4 of V. */
static inline void v_store_joined(float *p, v_f32 a, v_f32 b, v_f32 c, v_f32 d)
{
    v_store(p, a);
    v_store(p + 1, b);
    v_store(p + 2, c);
    v_store(p + 3, d);
}

static inline void v_transpose(const float *src, size_t src_stride, float *dst, size_t dst_stride)
{
    (void)src_stride, (void)dst_stride;
    *dst = *src;
}

#endif
