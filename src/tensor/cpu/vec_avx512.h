/* vec_avx512.h - vec.h with 16 lanes (AVX-512 F, BW, DQ, VL). */
#ifndef LK_TENSOR_CPU_VEC_AVX512_H
#define LK_TENSOR_CPU_VEC_AVX512_H

#include <immintrin.h>

enum { V = 16 };

typedef __m512 v_f32;
typedef __m512i v_u32;
typedef __mmask16 v_mask;

/* One operation on each line, as a table. */
/* clang-format off */
static inline v_f32 v_zero(void) { return _mm512_setzero_ps(); }
static inline v_f32 v_set1(float x) { return _mm512_set1_ps(x); }
static inline v_f32 v_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v_store(float *p, v_f32 x) { _mm512_storeu_ps(p, x); }

static inline v_mask v_first(size_t n) { return (v_mask)((1u << n) - 1u); }
/* The first n lanes (n <= V); the others are zero. */
static inline v_f32 v_load_n(const float *p, size_t n) { return _mm512_maskz_loadu_ps(v_first(n), p); }
static inline void v_store_n(float *p, v_f32 x, size_t n) { _mm512_mask_storeu_ps(p, v_first(n), x); }

static inline v_f32 v_add(v_f32 a, v_f32 b) { return _mm512_add_ps(a, b); }
static inline v_f32 v_sub(v_f32 a, v_f32 b) { return _mm512_sub_ps(a, b); }
static inline v_f32 v_mul(v_f32 a, v_f32 b) { return _mm512_mul_ps(a, b); }
static inline v_f32 v_div(v_f32 a, v_f32 b) { return _mm512_div_ps(a, b); }
static inline v_f32 v_sqrt(v_f32 a) { return _mm512_sqrt_ps(a); }
static inline v_f32 v_fma(v_f32 a, v_f32 b, v_f32 c) { return _mm512_fmadd_ps(a, b, c); }

static inline v_mask v_le(v_f32 a, v_f32 b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
static inline v_mask v_tops(v_f32 a, v_f32 b)
{
    return _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(b, b, _CMP_ORD_Q), a, b, _CMP_NLE_UQ);
}
static inline v_f32 v_select(v_mask m, v_f32 yes, v_f32 no) { return _mm512_mask_blend_ps(m, no, yes); }

static inline v_u32 vu_set1(uint32_t x) { return _mm512_set1_epi32((int)x); }
static inline v_u32 vu_load(const uint32_t *p) { return _mm512_loadu_si512(p); }
static inline void vu_store(uint32_t *p, v_u32 x) { _mm512_storeu_si512(p, x); }
static inline v_u32 vu_add(v_u32 a, v_u32 b) { return _mm512_add_epi32(a, b); }
static inline v_u32 vu_xor(v_u32 a, v_u32 b) { return _mm512_xor_si512(a, b); }
static inline v_u32 vu_mullo(v_u32 a, v_u32 b) { return _mm512_mullo_epi32(a, b); }
static inline v_u32 vu_mulhi(v_u32 a, v_u32 b)
{
    __m512i even = _mm512_srli_epi64(_mm512_mul_epu32(a, b), 32);
    __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(b, 32));
    return _mm512_mask_blend_epi32(0xaaaa, even, odd);
}
/* Lanes where a < b, unsigned. */
static inline v_mask vu_lt(v_u32 a, v_u32 b) { return _mm512_cmplt_epu32_mask(a, b); }

static inline v_u32 v_bits(v_f32 x) { return _mm512_castps_si512(x); }
static inline v_f32 v_from_bits(v_u32 x) { return _mm512_castsi512_ps(x); }
static inline v_u32 vu_and(v_u32 a, v_u32 b) { return _mm512_and_si512(a, b); }
static inline v_u32 vu_or(v_u32 a, v_u32 b) { return _mm512_or_si512(a, b); }
static inline v_u32 vu_shl16(v_u32 x) { return _mm512_slli_epi32(x, 16); }
static inline v_u32 vu_shr16(v_u32 x) { return _mm512_srli_epi32(x, 16); }
/* V numbers of 16 bits; store: the lower halves. */
static inline v_u32 vu_load16(const uint16_t *p) { return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)); }
static inline void vu_store16(uint16_t *p, v_u32 x) { _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(x)); }
/* The same of V bytes. */
static inline v_u32 vu_load8(const uint8_t *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)); }
static inline void vu_store8(uint8_t *p, v_u32 x) { _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(x)); }

/* v_rep: V_REP consecutive scalars loaded at p; v_fma_rep multiplies a whole vector by scalar number `lane`. */
enum { V_REP = 1 };
typedef __m512 v_rep;
static inline v_rep v_rep_load(const float *p) { return _mm512_set1_ps(*p); }
#define v_fma_rep(rep, lane, b, c) _mm512_fmadd_ps((rep), (b), (c))
/* X(lane) for each lane of a v_rep. */
#define V_REP_EACH(X) X(0)

/* The first 3/4 of the lanes of each vector, one after the other. */
static inline void v_store_joined(float *p, v_f32 a, v_f32 b, v_f32 c, v_f32 d)
{
    __m512i ab = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19);
    __m512i bc = _mm512_setr_epi32(4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 23);
    __m512i cd = _mm512_setr_epi32(8, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27);
    _mm512_storeu_ps(p, _mm512_permutex2var_ps(a, ab, b));
    _mm512_storeu_ps(p + 16, _mm512_permutex2var_ps(b, bc, c));
    _mm512_storeu_ps(p + 32, _mm512_permutex2var_ps(c, cd, d));
}

/* dst[j*dst_stride + i] = src[i*src_stride + j] for i, j < V. */
static inline void v_transpose(const float *src, size_t src_stride, float *dst, size_t dst_stride)
{
    __m512 r[16], t[16];
    for (int i = 0; i < 16; i++)
        r[i] = _mm512_loadu_ps(src + (size_t)i * src_stride);
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
    }
    for (int i = 0; i < 16; i++)
        _mm512_storeu_ps(dst + (size_t)i * dst_stride, r[i]);
}

#endif
