/* vec_avx2.h - vec.h with 8 lanes (AVX2 and FMA3). */
#ifndef LK_TENSOR_CPU_VEC_AVX2_H
#define LK_TENSOR_CPU_VEC_AVX2_H

#include <immintrin.h>

enum { V = 8 };

typedef __m256 v_f32;
typedef __m256i v_u32;
typedef __m256 v_mask; /* all bits of a lane set or clear */

/* One operation on each line, as a table. */
/* clang-format off */
static inline v_f32 v_zero(void) { return _mm256_setzero_ps(); }
static inline v_f32 v_set1(float x) { return _mm256_set1_ps(x); }
static inline v_f32 v_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void v_store(float *p, v_f32 x) { _mm256_storeu_ps(p, x); }

static inline __m256i v_first(size_t n)
{
    __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lanes);
}
static inline v_f32 v_load_n(const float *p, size_t n) { return _mm256_maskload_ps(p, v_first(n)); }
static inline void v_store_n(float *p, v_f32 x, size_t n) { _mm256_maskstore_ps(p, v_first(n), x); }

static inline v_f32 v_add(v_f32 a, v_f32 b) { return _mm256_add_ps(a, b); }
static inline v_f32 v_sub(v_f32 a, v_f32 b) { return _mm256_sub_ps(a, b); }
static inline v_f32 v_mul(v_f32 a, v_f32 b) { return _mm256_mul_ps(a, b); }
static inline v_f32 v_div(v_f32 a, v_f32 b) { return _mm256_div_ps(a, b); }
static inline v_f32 v_sqrt(v_f32 a) { return _mm256_sqrt_ps(a); }
static inline v_f32 v_fma(v_f32 a, v_f32 b, v_f32 c) { return _mm256_fmadd_ps(a, b, c); }

static inline v_mask v_le(v_f32 a, v_f32 b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
static inline v_mask v_tops(v_f32 a, v_f32 b) { return _mm256_andnot_ps(v_le(a, b), _mm256_cmp_ps(b, b, _CMP_ORD_Q)); }
static inline v_f32 v_select(v_mask m, v_f32 yes, v_f32 no) { return _mm256_blendv_ps(no, yes, m); }

static inline v_u32 vu_set1(uint32_t x) { return _mm256_set1_epi32((int)x); }
static inline v_u32 vu_load(const uint32_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
static inline void vu_store(uint32_t *p, v_u32 x) { _mm256_storeu_si256((__m256i *)p, x); }
static inline v_u32 vu_add(v_u32 a, v_u32 b) { return _mm256_add_epi32(a, b); }
static inline v_u32 vu_xor(v_u32 a, v_u32 b) { return _mm256_xor_si256(a, b); }
static inline v_u32 vu_mullo(v_u32 a, v_u32 b) { return _mm256_mullo_epi32(a, b); }
static inline v_u32 vu_mulhi(v_u32 a, v_u32 b)
{
    __m256i even = _mm256_srli_epi64(_mm256_mul_epu32(a, b), 32);
    __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32));
    return _mm256_blend_epi32(even, odd, 0xaa);
}
static inline v_mask vu_lt(v_u32 a, v_u32 b)
{
    __m256i bias = _mm256_set1_epi32((int)0x80000000u);
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_xor_si256(b, bias), _mm256_xor_si256(a, bias)));
}

static inline v_u32 v_bits(v_f32 x) { return _mm256_castps_si256(x); }
static inline v_f32 v_from_bits(v_u32 x) { return _mm256_castsi256_ps(x); }
static inline v_u32 vu_and(v_u32 a, v_u32 b) { return _mm256_and_si256(a, b); }
static inline v_u32 vu_or(v_u32 a, v_u32 b) { return _mm256_or_si256(a, b); }
static inline v_u32 vu_shl16(v_u32 x) { return _mm256_slli_epi32(x, 16); }
static inline v_u32 vu_shr16(v_u32 x) { return _mm256_srli_epi32(x, 16); }
static inline v_u32 vu_load16(const uint16_t *p) { return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)); }
static inline void vu_store16(uint16_t *p, v_u32 x)
{
    __m128i low = _mm256_castsi256_si128(x), high = _mm256_extracti128_si256(x, 1);
    __m128i mask = _mm_set1_epi32(0xffff);
    _mm_storeu_si128((__m128i *)p, _mm_packus_epi32(_mm_and_si128(low, mask), _mm_and_si128(high, mask)));
}
static inline v_u32 vu_load8(const uint8_t *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)); }
static inline void vu_store8(uint8_t *p, v_u32 x)
{
    __m256i bytes = _mm256_and_si256(x, _mm256_set1_epi32(0xff));
    __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packus_epi16(words, words));
}

enum { V_REP = 1 };
typedef __m256 v_rep;
static inline v_rep v_rep_load(const float *p) { return _mm256_broadcast_ss(p); }
#define v_fma_rep(rep, lane, b, c) _mm256_fmadd_ps((rep), (b), (c))
#define V_REP_EACH(X) X(0)

/* The first 3/4 of the lanes of each vector, one after the other. */
static inline void v_store_joined(float *p, v_f32 a, v_f32 b, v_f32 c, v_f32 d)
{
    __m256i low = _mm256_setr_epi32(2, 3, 4, 5, 0, 0, 0, 1), high = _mm256_setr_epi32(4, 5, 0, 1, 2, 3, 4, 5);
    __m256 b_low = _mm256_permutevar8x32_ps(b, low), c_low = _mm256_permute2f128_ps(c, c, 0);
    __m256 c_high = _mm256_permutevar8x32_ps(c, high), d_high = _mm256_permutevar8x32_ps(d, high);
    _mm256_storeu_ps(p, _mm256_blend_ps(a, b_low, 0xc0));
    _mm256_storeu_ps(p + 8, _mm256_blend_ps(b_low, c_low, 0xf0));
    _mm256_storeu_ps(p + 16, _mm256_blend_ps(c_high, d_high, 0xfc));
}

static inline void v_transpose(const float *src, size_t src_stride, float *dst, size_t dst_stride)
{
    __m256 r[8], t[8];
    for (int i = 0; i < 8; i++)
        r[i] = _mm256_loadu_ps(src + (size_t)i * src_stride);
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(dst + (size_t)i * dst_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(dst + (size_t)(i + 4) * dst_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

#endif
