/* hopper.cuh - instructions of compute capability 9.0: bulk copies of tensors, barriers that count their bytes, and
 * products of bf16 and tf32 tiles by a warpgroup; and what the host needs for bulk copies. For nvcc only, and for
 * sm_90a only. */
#ifndef LK_TENSOR_CUDA_KERNELS_HOPPER_CUH
#define LK_TENSOR_CUDA_KERNELS_HOPPER_CUH

#include <cuda.h>
#include <cuda_runtime.h>
#include <stdint.h>

typedef CUresult (*encode_tiled)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                 const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static inline cudaError_t driver_function(const char *name, void **out)
{
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    cudaError_t error = cudaGetDriverEntryPointByVersion(name, out, 12000, cudaEnableDefault, &found);
#else
    cudaError_t error = cudaGetDriverEntryPoint(name, out, cudaEnableDefault, &found);
#endif
    return error == cudaSuccess && found != cudaDriverEntryPointSuccess ? cudaErrorSymbolNotFound : error;
}

/* Images by their axes, of which the first one is channels: extents, elements from one index of each further axis to
 * the next, and a box. An element has `size` bytes. */
typedef struct image_axes {
    int extents[4];
    size_t strides[3];
    cuuint32_t box[4];
} image_axes;

static inline CUresult map_images(encode_tiled encode, CUtensorMapDataType type, int size, const void *images,
                                  const image_axes &axes, CUtensorMapSwizzle swizzle, CUtensorMap *out)
{
    cuuint64_t sizes[4], strides[3];
    const cuuint32_t steps[] = {1, 1, 1, 1};
    for (int i = 0; i < 4; i++)
        sizes[i] = (cuuint64_t)axes.extents[i];
    for (int i = 0; i < 3; i++)
        strides[i] = (cuuint64_t)size * axes.strides[i];
    return encode(out, type, 4, (void *)images, sizes, strides, axes.box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

/* Whether the current device has these instructions. */
static inline bool is_hopper(void)
{
    int device = 0, major = 0, minor = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
           cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess && major == 9 &&
           minor == 0;
}

/* The multiprocessors of the current device. */
static inline cudaError_t count_processors(int *out)
{
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    return error == cudaSuccess ? cudaDeviceGetAttribute(out, cudaDevAttrMultiProcessorCount, device) : error;
}

/* Barriers in shared memory. A phase is complete when all arrivals and all announced bytes have come. */
static __device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

/* Makes initialised barriers visible to bulk copies. */
static __device__ __forceinline__ void barriers_publish()
{
    asm volatile("fence.mbarrier_init.release.cluster;");
}

static __device__ __forceinline__ void barrier_arrive(uint32_t barrier)
{
    asm volatile("{.reg .b64 state; mbarrier.arrive.shared.b64 state, [%0];}" ::"r"(barrier) : "memory");
}

/* Arrives, and announces bytes of bulk copies. */
static __device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("{.reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;}" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

/* Blocks until the phase of this parity is complete. */
static __device__ __forceinline__ void barrier_wait(uint32_t barrier, int parity)
{
    asm volatile("{.reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
                 "@done bra.uni complete;\n"
                 "bra.uni again;\n"
                 "complete:}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* One arrival of a whole warp. */
static __device__ __forceinline__ void release(uint32_t barrier)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(barrier);
}

/* A position in a ring of slots. */
struct ring_position {
    int slot, phase;

    __device__ __forceinline__ void advance(int slots)
    {
        if (++slot == slots) {
            slot = 0;
            phase ^= 1;
        }
    }

    template <int SLOTS>
    __device__ __forceinline__ void advance()
    {
        advance(SLOTS);
    }
};

/* Copies contiguous bytes, a multiple of 16. */
static __device__ __forceinline__ void copy_bytes(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* Brings contiguous bytes to the second-level cache; address and number are multiples of 16. */
static __device__ __forceinline__ void prefetch_bytes(const void *from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

/* Copies a box of a matrix, from column c and row r on; elements outside of the matrix are zero. */
static __device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap *map, uint32_t barrier, int c, int r)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(c), "r"(r)
                 : "memory");
}

/* Copies a box of images from channel c on, and from element (x, y, z) of the other axes, in the order of the map;
 * pixels outside of the image are zero. */
static __device__ __forceinline__ void copy_image(uint32_t to, const CUtensorMap *map, uint32_t barrier, int c, int x,
                                                  int y, int z)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(c), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

/* Copies a column of pixels of images, from channel c on: those that windows read whose first is at (n, h, w), in the
 * order of the windows, at an offset (down, right) in each window. Pixels outside of the image are zero. */
static __device__ __forceinline__ void copy_pixels(uint32_t to, const CUtensorMap *map, uint32_t barrier, int c, int w,
                                                   int h, int n, uint16_t right, uint16_t down)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(c), "r"(w), "r"(h), "r"(n), "h"(right), "h"(down)
                 : "memory");
}

/* Makes a thread's own writes to shared memory visible to warpgroup products. */
static __device__ __forceinline__ void shared_publish()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Changes the registers of each thread of a warpgroup. */
template <int REGISTERS>
static __device__ __forceinline__ void registers_shrink()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS>
static __device__ __forceinline__ void registers_grow()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

/* A matrix of bf16 in shared memory as an operand whose rows are k: rows of 128 bytes (64 channels) in units of 16
 * bytes that are exchanged by the row's last three bits; ROWS rows to the next 64 channels. */
template <int ROWS>
static __device__ __forceinline__ uint64_t operand_at(uint32_t at)
{
    uint64_t next_channels = (uint64_t)(ROWS * 128 >> 4) << 16, next_rows = (uint64_t)(8 * 128 >> 4) << 32;
    return (uint64_t)((at & 0x3ffff) >> 4) | next_channels | next_rows | (uint64_t)1 << 62;
}

/* A matrix of bf16 in shared memory as an operand whose rows are k: lines of LINE bytes, 128 or 64, in units of 16
 * bytes that are exchanged by bits 7 to 9 of their address (7 and 8), as bulk copies do; NEXT bytes from a line to the
 * next channels. The matrix may begin at any line, see rows_at. To be combined with rows_step for the distance of the
 * eights of k. */
template <int LINE, int NEXT>
static __device__ __forceinline__ uint64_t lines_at(uint32_t at)
{
    uint64_t next_channels = (uint64_t)(NEXT >> 4) << 16, exchange = (uint64_t)(LINE == 128 ? 1 : 2) << 62;
    return (uint64_t)((at & 0x3ffff) >> 4) | next_channels | exchange;
}

/* A matrix of tf32 in shared memory as an operand whose lines are k: a line of 128 bytes has 32 rows of k of one
 * channel, in units of 16 bytes that are exchanged by the channel's last three bits. `at` is that of the first row. */
static __device__ __forceinline__ uint64_t operand_of_lines(uint32_t at)
{
    uint64_t next_channels = (uint64_t)(8 * 128 >> 4) << 32;
    return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)1 << 16 | next_channels | (uint64_t)1 << 62;
}

static __device__ __forceinline__ void wgmma_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Blocks until at most COUNT committed groups of products are incomplete. */
template <int COUNT>
static __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(COUNT) : "memory");
}

/* d (64, N) = (add ? d : 0) + a^T b with 16 rows of k. The sums of a thread: column 8 * (i / 4) + 2 * (lane % 4) + i %
 * 2 of row 16 * warp + lane / 4 + 8 * (i / 2 % 2). */
template <int N>
__device__ __forceinline__ void wgmma_add(float (&d)[N / 2], uint64_t a, uint64_t b, bool add);

/* d (64, N) = (add ? d : 0) + a b with 8 rows of k, b being an operand whose lines are k. a is in registers: row 16 *
 * warp + lane / 4 + 8 * (i % 2) of d, row lane % 4 + 4 * (i / 2) of k. The sums are placed as those of wgmma_add. */
template <int N>
__device__ __forceinline__ void wgmma_add_tf32(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool add);

#define SUMS_4(i) "+f"(d[(i)]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define SUMS_16(i) SUMS_4(i), SUMS_4((i) + 4), SUMS_4((i) + 8), SUMS_4((i) + 12)

template <>
__device__ __forceinline__ void wgmma_add_tf32<64>(float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool add)
{
    asm volatile("{.reg .pred add; setp.ne.b32 add, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, add, 1, 1;}"
                 : SUMS_16(0), SUMS_16(16)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add));
}

template <>
__device__ __forceinline__ void wgmma_add_tf32<96>(float (&d)[48], const uint32_t (&a)[4], uint64_t b, bool add)
{
    asm volatile("{.reg .pred add; setp.ne.b32 add, %53, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n96k8.f32.tf32.tf32 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
                 "{%48, %49, %50, %51}, %52, add, 1, 1;}"
                 : SUMS_16(0), SUMS_16(16), SUMS_16(32)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add));
}

template <>
__device__ __forceinline__ void wgmma_add_tf32<128>(float (&d)[64], const uint32_t (&a)[4], uint64_t b, bool add)
{
    asm volatile("{.reg .pred add; setp.ne.b32 add, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, %68, add, 1, 1;}"
                 : SUMS_16(0), SUMS_16(16), SUMS_16(32), SUMS_16(48)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add));
}

template <>
__device__ __forceinline__ void wgmma_add_tf32<192>(float (&d)[96], const uint32_t (&a)[4], uint64_t b, bool add)
{
    asm volatile("{.reg .pred add; setp.ne.b32 add, %101, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n192k8.f32.tf32.tf32 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
                 "{%96, %97, %98, %99}, %100, add, 1, 1;}"
                 : SUMS_16(0), SUMS_16(16), SUMS_16(32), SUMS_16(48), SUMS_16(64), SUMS_16(80)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add));
}

#undef SUMS_16
#undef SUMS_4

/* A matrix in shared memory as an operand whose columns are k: rows of 128 bytes in units of 16 bytes, which are
 * exchanged by bits 7 to 9 of their address, as bulk copies do. The matrix may begin at any row: the hardware exchanges
 * units by the same bits of the address that it computes, if the base offset (bits 49 to 51) is 0. To be combined with
 * rows_step. */
static __device__ __forceinline__ uint64_t rows_at(uint32_t at)
{
    return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)1 << 16 | (uint64_t)1 << 62;
}

/* Bytes from eight rows, which are neighbours, to the next eight: any multiple of 128. */
static __device__ __forceinline__ uint64_t rows_step(uint32_t bytes)
{
    return (uint64_t)(bytes >> 4) << 32;
}

/* The same matrix, from byte `bytes` on: further k, or further rows. */
static __device__ __forceinline__ uint64_t rows_moved(uint64_t rows, uint32_t bytes)
{
    return rows + (bytes >> 4);
}

/* d (64, N) = (add ? d : 0) + a b^T with 32 bytes of k in each row: 16 of bf16, or 8 of tf32. Sums as in wgmma_add. */
template <bool BF16, int N>
__device__ __forceinline__ void wgmma_rows(float (&d)[N / 2], uint64_t a, uint64_t b, bool add);

#define PLACES_1 "%0, %1, %2, %3, %4, %5, %6, %7"
#define PLACES_2 PLACES_1 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define PLACES_3 PLACES_2 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define PLACES_4 PLACES_3 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define PLACES_5 PLACES_4 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define PLACES_6 PLACES_5 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define PLACES_7 PLACES_6 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define PLACES_8 PLACES_7 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define PLACES_9 PLACES_8 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define PLACES_10 PLACES_9 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define PLACES_11 PLACES_10 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define PLACES_12 PLACES_11 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define PLACES_13 PLACES_12 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define PLACES_14 PLACES_13 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define PLACES_15 PLACES_14 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define PLACES_16 PLACES_15 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define SUMS_FROM(i)                                                                                            \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])
#define SUMS_1 SUMS_FROM(0)
#define SUMS_2 SUMS_1, SUMS_FROM(8)
#define SUMS_3 SUMS_2, SUMS_FROM(16)
#define SUMS_4 SUMS_3, SUMS_FROM(24)
#define SUMS_5 SUMS_4, SUMS_FROM(32)
#define SUMS_6 SUMS_5, SUMS_FROM(40)
#define SUMS_7 SUMS_6, SUMS_FROM(48)
#define SUMS_8 SUMS_7, SUMS_FROM(56)
#define SUMS_9 SUMS_8, SUMS_FROM(64)
#define SUMS_10 SUMS_9, SUMS_FROM(72)
#define SUMS_11 SUMS_10, SUMS_FROM(80)
#define SUMS_12 SUMS_11, SUMS_FROM(88)
#define SUMS_13 SUMS_12, SUMS_FROM(96)
#define SUMS_14 SUMS_13, SUMS_FROM(104)
#define SUMS_15 SUMS_14, SUMS_FROM(112)
#define SUMS_16 SUMS_15, SUMS_FROM(120)
/* parts: n / 16; the places of a, b and add are those behind n / 2 sums. */
#define WGMMA_ROWS(n, parts, a_at, b_at, add_at)                                                                       \
    template <>                                                                                                        \
    __device__ __forceinline__ void wgmma_rows<true, n>(float(&d)[n / 2], uint64_t a, uint64_t b, bool add)            \
    {                                                                                                                  \
        asm volatile("{.reg .pred add; setp.ne.b32 add, " add_at ", 0;\n"                                              \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" PLACES_##parts "}, " a_at ", " b_at  \
                                                                                                 ", add, 1, 1, 0, 0;}" \
                     : SUMS_##parts                                                                                    \
                     : "l"(a), "l"(b), "r"((int)add));                                                                 \
    }                                                                                                                  \
    template <>                                                                                                        \
    __device__ __forceinline__ void wgmma_rows<false, n>(float(&d)[n / 2], uint64_t a, uint64_t b, bool add)           \
    {                                                                                                                  \
        asm volatile("{.reg .pred add; setp.ne.b32 add, " add_at ", 0;\n"                                              \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k8.f32.tf32.tf32 {" PLACES_##parts "}, " a_at ", " b_at   \
                                                                                                ", add, 1, 1;}"        \
                     : SUMS_##parts                                                                                    \
                     : "l"(a), "l"(b), "r"((int)add));                                                                 \
    }

/* As WGMMA_ROWS. */
#define WGMMA_ADD(n, parts, a_at, b_at, add_at)                                                                        \
    template <>                                                                                                        \
    __device__ __forceinline__ void wgmma_add<n>(float(&d)[n / 2], uint64_t a, uint64_t b, bool add)                   \
    {                                                                                                                  \
        asm volatile("{.reg .pred add; setp.ne.b32 add, " add_at ", 0;\n"                                              \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" PLACES_##parts "}, " a_at ", " b_at  \
                                                                                                 ", add, 1, 1, 1, 1;}" \
                     : SUMS_##parts                                                                                    \
                     : "l"(a), "l"(b), "r"((int)add));                                                                 \
    }

WGMMA_ADD(96, 6, "%48", "%49", "%50")
WGMMA_ADD(128, 8, "%64", "%65", "%66")
WGMMA_ADD(192, 12, "%96", "%97", "%98")
WGMMA_ADD(256, 16, "%128", "%129", "%130")

WGMMA_ROWS(112, 7, "%56", "%57", "%58")
WGMMA_ROWS(128, 8, "%64", "%65", "%66")
WGMMA_ROWS(144, 9, "%72", "%73", "%74")
WGMMA_ROWS(160, 10, "%80", "%81", "%82")
WGMMA_ROWS(192, 12, "%96", "%97", "%98")
WGMMA_ROWS(224, 14, "%112", "%113", "%114")
WGMMA_ROWS(240, 15, "%120", "%121", "%122")
WGMMA_ROWS(256, 16, "%128", "%129", "%130")

#undef WGMMA_ADD
#undef WGMMA_ROWS
#undef SUMS_1
#undef SUMS_2
#undef SUMS_3
#undef SUMS_4
#undef SUMS_5
#undef SUMS_6
#undef SUMS_7
#undef SUMS_8
#undef SUMS_FROM
#undef SUMS_9
#undef SUMS_10
#undef SUMS_11
#undef SUMS_12
#undef SUMS_13
#undef SUMS_14
#undef SUMS_15
#undef SUMS_16
#undef PLACES_1
#undef PLACES_2
#undef PLACES_3
#undef PLACES_4
#undef PLACES_5
#undef PLACES_6
#undef PLACES_7
#undef PLACES_8
#undef PLACES_9
#undef PLACES_10
#undef PLACES_11
#undef PLACES_12
#undef PLACES_13
#undef PLACES_14
#undef PLACES_15
#undef PLACES_16

#endif
