/* vec_neon.h - vec.h with 4 lanes (arm64). */
#ifndef LK_TENSOR_CPU_VEC_NEON_H
#define LK_TENSOR_CPU_VEC_NEON_H

#include <arm_neon.h>

enum { V = 4 };

typedef float32x4_t v_f32;
typedef uint32x4_t v_u32;
typedef uint32x4_t v_mask; /* all bits of a lane set or clear */

/* One operation on each line, as a table. */
/* clang-format off */
static inline v_f32 v_zero(void) { return vdupq_n_f32(0); }
static inline v_f32 v_set1(float x) { return vdupq_n_f32(x); }
static inline v_f32 v_load(const float *p) { return vld1q_f32(p); }
static inline void v_store(float *p, v_f32 x) { vst1q_f32(p, x); }

static inline v_f32 v_load_n(const float *p, size_t n)
{
    float lanes[4] = {0, 0, 0, 0};
    memcpy(lanes, p, n * sizeof *p);
    return vld1q_f32(lanes);
}
static inline void v_store_n(float *p, v_f32 x, size_t n)
{
    float lanes[4];
    vst1q_f32(lanes, x);
    memcpy(p, lanes, n * sizeof *p);
}

static inline v_f32 v_add(v_f32 a, v_f32 b) { return vaddq_f32(a, b); }
static inline v_f32 v_sub(v_f32 a, v_f32 b) { return vsubq_f32(a, b); }
static inline v_f32 v_mul(v_f32 a, v_f32 b) { return vmulq_f32(a, b); }
static inline v_f32 v_div(v_f32 a, v_f32 b) { return vdivq_f32(a, b); }
static inline v_f32 v_sqrt(v_f32 a) { return vsqrtq_f32(a); }
static inline v_f32 v_fma(v_f32 a, v_f32 b, v_f32 c) { return vfmaq_f32(c, a, b); }

static inline v_mask v_le(v_f32 a, v_f32 b) { return vcleq_f32(a, b); }
static inline v_mask v_tops(v_f32 a, v_f32 b) { return vbicq_u32(vceqq_f32(b, b), vcleq_f32(a, b)); }
static inline v_f32 v_select(v_mask m, v_f32 yes, v_f32 no) { return vbslq_f32(m, yes, no); }

static inline v_u32 vu_set1(uint32_t x) { return vdupq_n_u32(x); }
static inline v_u32 vu_load(const uint32_t *p) { return vld1q_u32(p); }
static inline void vu_store(uint32_t *p, v_u32 x) { vst1q_u32(p, x); }
static inline v_u32 vu_add(v_u32 a, v_u32 b) { return vaddq_u32(a, b); }
static inline v_u32 vu_xor(v_u32 a, v_u32 b) { return veorq_u32(a, b); }
static inline v_u32 vu_mullo(v_u32 a, v_u32 b) { return vmulq_u32(a, b); }
static inline v_u32 vu_mulhi(v_u32 a, v_u32 b)
{
    uint64x2_t low = vmull_u32(vget_low_u32(a), vget_low_u32(b));
    uint64x2_t high = vmull_high_u32(a, b);
    return vuzp2q_u32(vreinterpretq_u32_u64(low), vreinterpretq_u32_u64(high));
}
static inline v_mask vu_lt(v_u32 a, v_u32 b) { return vcltq_u32(a, b); }

static inline v_u32 v_bits(v_f32 x) { return vreinterpretq_u32_f32(x); }
static inline v_f32 v_from_bits(v_u32 x) { return vreinterpretq_f32_u32(x); }
static inline v_u32 vu_and(v_u32 a, v_u32 b) { return vandq_u32(a, b); }
static inline v_u32 vu_or(v_u32 a, v_u32 b) { return vorrq_u32(a, b); }
static inline v_u32 vu_shl16(v_u32 x) { return vshlq_n_u32(x, 16); }
static inline v_u32 vu_shr16(v_u32 x) { return vshrq_n_u32(x, 16); }
static inline v_u32 vu_load16(const uint16_t *p) { return vmovl_u16(vld1_u16(p)); }
static inline void vu_store16(uint16_t *p, v_u32 x) { vst1_u16(p, vmovn_u32(x)); }
static inline v_u32 vu_load8(const uint8_t *p)
{
    uint32_t bytes;
    memcpy(&bytes, p, sizeof bytes);
    return vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(bytes))));
}
static inline void vu_store8(uint8_t *p, v_u32 x)
{
    uint16x4_t words = vmovn_u32(x);
    uint32_t bytes = vget_lane_u32(vreinterpret_u32_u8(vmovn_u16(vcombine_u16(words, words))), 0);
    memcpy(p, &bytes, sizeof bytes);
}

/* One load reads four scalars, and fmla multiplies by one lane of a vector. */
enum { V_REP = 4 };
typedef float32x4_t v_rep;
static inline v_rep v_rep_load(const float *p) { return vld1q_f32(p); }
#define v_fma_rep(rep, lane, b, c) vfmaq_laneq_f32((c), (b), (rep), (lane))
#define V_REP_EACH(X) X(0) X(1) X(2) X(3)

/* The first 3/4 of the lanes of each vector, one after the other; up to V / 4 floats behind them are written too. */
static inline void v_store_joined(float *p, v_f32 a, v_f32 b, v_f32 c, v_f32 d)
{
    v_store(p, a);
    v_store(p + V / 4 * 3, b);
    v_store(p + V / 2 * 3, c);
    v_store(p + V / 4 * 9, d);
}

static inline void v_transpose(const float *src, size_t src_stride, float *dst, size_t dst_stride)
{
    float32x4_t r0 = vld1q_f32(src), r1 = vld1q_f32(src + src_stride);
    float32x4_t r2 = vld1q_f32(src + 2 * src_stride), r3 = vld1q_f32(src + 3 * src_stride);
    float64x2_t t0 = vreinterpretq_f64_f32(vtrn1q_f32(r0, r1)), t1 = vreinterpretq_f64_f32(vtrn2q_f32(r0, r1));
    float64x2_t t2 = vreinterpretq_f64_f32(vtrn1q_f32(r2, r3)), t3 = vreinterpretq_f64_f32(vtrn2q_f32(r2, r3));
    vst1q_f32(dst, vreinterpretq_f32_f64(vtrn1q_f64(t0, t2)));
    vst1q_f32(dst + dst_stride, vreinterpretq_f32_f64(vtrn1q_f64(t1, t3)));
    vst1q_f32(dst + 2 * dst_stride, vreinterpretq_f32_f64(vtrn2q_f64(t0, t2)));
    vst1q_f32(dst + 3 * dst_stride, vreinterpretq_f32_f64(vtrn2q_f64(t1, t3)));
}

#endif
