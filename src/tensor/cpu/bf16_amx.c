/* bf16_amx.c - products of bf16 matrices with AMX's TDPBF16PS. Compiled once, with AMX; builds.c says where it runs.
 *
 * A tile register has 16 rows of 64 bytes. Four of them hold tiles of C, two rows by two columns, and each tile of A
 * and of B is used twice. */
#define _DEFAULT_SOURCE /* syscall */
#include "tensor/cpu/bf16.h"

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TILE_ROWS = 16, TILE_BYTES = 64 };

/* Linux's request for the state of tiles: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA). */
enum { REQUEST = 0x1023, TILE_DATA = 18 };

/* Bits of EDX of CPUID's leaf 7. */
enum { HAS_AMX_BF16 = 1 << 22, HAS_AMX_TILE = 1 << 24 };

bool lk__bf16_amx_allowed(void)
{
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || !(edx & HAS_AMX_BF16) || !(edx & HAS_AMX_TILE))
        return false;
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}

/* What LDTILECFG reads. */
typedef struct tile_config {
    uint8_t palette, start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;
_Static_assert(sizeof(tile_config) == 64, "the processor's format");

/* Constant: gcc knows of the first bytes only that LDTILECFG reads them, and would leave out stores to the others. */
static const tile_config config = {
    .palette = 1,
    .row_bytes = {TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES, TILE_BYTES},
    .rows = {TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS},
};

/* Tiles (row, col) of C and, if two_rows and two_cols, those after it. */
static inline __attribute__((always_inline)) void multiply_tiles(const lk_bf16_product *p, size_t row, size_t col,
                                                                 bool two_rows, bool two_cols)
{
    const uint16_t *a0 = p->a + row * p->a_row, *a1 = a0 + TILE_ROWS * p->a_row;
    const uint32_t *b0 = p->b + col / LK_BF16_SIDE * p->b_panel, *b1 = b0 + p->b_panel;
    float *c0 = p->c + row * p->c_row + col, *c1 = c0 + TILE_ROWS * p->c_row;
    size_t a_bytes = p->a_row * sizeof *a0, c_bytes = p->c_row * sizeof *c0;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (p->add) {
        _tile_loadd(0, c0, c_bytes);
        if (two_cols)
            _tile_loadd(1, c0 + LK_BF16_SIDE, c_bytes);
        if (two_rows)
            _tile_loadd(2, c1, c_bytes);
        if (two_rows && two_cols)
            _tile_loadd(3, c1 + LK_BF16_SIDE, c_bytes);
    }
    for (size_t block = 0; block < p->blocks; block++) {
        _tile_loadd(4, a0, a_bytes);
        _tile_loadd(6, b0, TILE_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        if (two_cols) {
            _tile_loadd(7, b1, TILE_BYTES);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (two_rows) {
            _tile_loadd(5, a1, a_bytes);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (two_rows && two_cols)
            _tile_dpbf16ps(3, 5, 7);
        a0 += LK_BF16_BLOCK;
        a1 += LK_BF16_BLOCK;
        b0 += LK_BF16_PAIRS * LK_BF16_SIDE;
        b1 += LK_BF16_PAIRS * LK_BF16_SIDE;
    }
    _tile_stored(0, c0, c_bytes);
    if (two_cols)
        _tile_stored(1, c0 + LK_BF16_SIDE, c_bytes);
    if (two_rows)
        _tile_stored(2, c1, c_bytes);
    if (two_rows && two_cols)
        _tile_stored(3, c1 + LK_BF16_SIDE, c_bytes);
}

/* The configuration belongs to the thread; releasing it makes switches between threads cheap again. */
void lk__bf16_multiply_amx(const lk_bf16_product *product)
{
    _tile_loadconfig(&config);
    for (size_t col = 0; col < product->cols; col += 2 * LK_BF16_SIDE) {
        bool two_cols = col + LK_BF16_SIDE < product->cols;
        for (size_t row = 0; row < product->rows; row += 2 * LK_BF16_SIDE) {
            bool two_rows = row + LK_BF16_SIDE < product->rows;
            if (two_rows && two_cols)
                multiply_tiles(product, row, col, true, true);
            else
                multiply_tiles(product, row, col, two_rows, two_cols);
        }
    }
    _tile_release();
}
