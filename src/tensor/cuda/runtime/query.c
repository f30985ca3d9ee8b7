/* query.c - asks the driver for its GPUs, and the dynamic linker for libraries. */
#include "tensor/cuda/runtime/query.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "tensor/cuda/runtime/libraries.h"

/* The oldest GPUs that kernels are built for: compute_80. */
enum { LEAST_MAJOR = 8, REASON_BYTES = 256, VERSION_BYTES = 32, PATH_BYTES = 4096, SHOWN_GPUS = 4 };

/* Memory that libraries and their kernels take besides all allocations. */
static const size_t LEAST_FREE = (size_t)256 << 20;

/* CUDA's version numbers: 13020 is 13.2. */
static int major_of(int version)
{
    return version / 1000;
}

static int minor_of(int version)
{
    return version % 1000 / 10;
}

/* Explains why cudaGetDeviceCount found nothing. */
static void explain(cudaError_t error, int driver, char *why, size_t bytes)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (driver == 0)
        snprintf(why, bytes, "no NVIDIA driver answers (libcuda.so.1)");
    else if (error == cudaErrorInsufficientDriver)
        snprintf(why, bytes,
                 "the driver is for CUDA %d.%d, and this build needs one for CUDA %d.%d: install a newer driver",
                 major_of(driver), minor_of(driver), major_of(CUDART_VERSION), minor_of(CUDART_VERSION));
    else if (error != cudaSuccess && error != cudaErrorNoDevice)
        snprintf(why, bytes, "%s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
    else if (visible)
        snprintf(why, bytes, "the driver shows none, with CUDA_VISIBLE_DEVICES '%s'", visible);
    else
        snprintf(why, bytes, "the driver finds no device");
}

/* Appends to text; what does not fit is cut off. */
__attribute__((format(printf, 3, 4))) static void add(char *text, size_t bytes, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, bytes - used, format, args);
    va_end(args);
}

/* Number of GPUs that can be opened; if it is 0, why. */
static int count_gpus(int *driver, char *why, size_t bytes)
{
    int count = 0;
    *driver = 0;
    (void)cudaDriverGetVersion(driver);
    cudaError_t error = *driver ? cudaGetDeviceCount(&count) : cudaErrorInsufficientDriver;
    (void)cudaGetLastError();
    if (error == cudaSuccess && count > 0)
        return count;
    explain(error, *driver, why, bytes);
    return 0;
}

static lk_status fail_index(int index, int count)
{
    char shown[SHOWN_GPUS * (LK_CUDA_TITLE + 2)] = "", title[LK_CUDA_TITLE];
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    for (int i = 0; i < count && i < SHOWN_GPUS; i++)
        add(shown, sizeof shown, "%s%s", i ? ", " : "", lk__cuda_title(i, title));
    return lk__fail(LK_STATUS_UNSUPPORTED, "cuda:%d: the driver shows %d GPU%s: %s%s%s%s", index, count,
                    count == 1 ? "" : "s", shown, count > SHOWN_GPUS ? ", ..." : "",
                    visible ? ", with CUDA_VISIBLE_DEVICES " : "", visible ? visible : "");
}

lk_status lk__cuda_check(int index)
{
    char title[LK_CUDA_TITLE];
    char why[REASON_BYTES];
    int driver, major = 0, minor = 0;
    int count = count_gpus(&driver, why, sizeof why);
    if (count == 0)
        return lk__fail(LK_STATUS_UNSUPPORTED, "cuda:%d: no GPU: %s", index, why);
    if (index >= count)
        return fail_index(index, count);
    cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index);
    if (error == cudaSuccess && major >= LEAST_MAJOR)
        return LK_OK;
    (void)cudaGetLastError();
    lk__cuda_title(index, title);
    if (error != cudaSuccess)
        return lk__fail(LK_STATUS_UNSUPPORTED, "%s: the GPU does not answer: %s (%s)", title, cudaGetErrorString(error),
                        cudaGetErrorName(error));
    return lk__fail(LK_STATUS_UNSUPPORTED, "%s is too old: its compute capability is %d.%d, and %d.0 is needed", title,
                    major, minor, LEAST_MAJOR);
}

/* The first call that needs the GPU's context failed. A context takes memory and may be reserved for one
 * process. */
static lk_status fail_open(int index, cudaError_t error)
{
    char title[LK_CUDA_TITLE];
    (void)cudaGetLastError();
    return lk__fail(error == cudaErrorMemoryAllocation ? LK_STATUS_MEMORY : LK_STATUS_UNSUPPORTED,
                    "%s cannot be opened: %s (%s); 'nvidia-smi' shows who uses it", lk__cuda_title(index, title),
                    cudaGetErrorString(error), cudaGetErrorName(error));
}

static lk_status find_libraries(int index)
{
    char title[LK_CUDA_TITLE], why[PATH_BYTES];
    lk_status status = lk__cuda_libraries_find();
    if (status == LK_OK)
        return LK_OK;
    snprintf(why, sizeof why, "%s", lk_error_detail());
    return lk__fail(status, "%s: %s", lk__cuda_title(index, title), why);
}

lk_status lk__cuda_probe(int index, size_t need)
{
    size_t available = 0, total = 0, want = need + LEAST_FREE;
    char title[LK_CUDA_TITLE], wanted[LK_TEXT_AMOUNT], rest[LK_TEXT_AMOUNT], whole[LK_TEXT_AMOUNT];
    LK_TRY(lk__cuda_check(index));
    LK_TRY(find_libraries(index));
    cudaError_t error = cudaSetDevice(index);
    if (error == cudaSuccess)
        error = cudaMemGetInfo(&available, &total);
    if (error != cudaSuccess)
        return fail_open(index, error);
    /* If even an empty GPU is too small, the engine fails later, with advice. */
    if (available >= want || want > total)
        return LK_OK;
    return lk__fail(LK_STATUS_MEMORY, "%s is full: about %s are needed, %s of its %s are free",
                    lk__cuda_title(index, title), lk__text_amount(want, wanted), lk__text_amount(available, rest),
                    lk__text_amount(total, whole));
}

/* The driver's own version, which is not CUDA's; "" if the system does not show it. */
static void read_driver(char version[VERSION_BYTES])
{
    FILE *file = fopen("/sys/module/nvidia/version", "r");
    if (!file || !fgets(version, VERSION_BYTES, file))
        version[0] = '\0';
    version[strcspn(version, "\n")] = '\0';
    if (file)
        fclose(file);
}

static void add_versions(int driver, char *text, size_t bytes)
{
    char version[VERSION_BYTES];
    int runtime = 0;
    (void)cudaRuntimeGetVersion(&runtime);
    read_driver(version);
    add(text, bytes, "driver %s%sfor CUDA %d.%d, runtime %d.%d", version, *version ? " " : "", major_of(driver),
        minor_of(driver), major_of(runtime), minor_of(runtime));
}

static void add_gpu(int index, char *text, size_t bytes)
{
    char rest[LK_TEXT_AMOUNT], whole[LK_TEXT_AMOUNT];
    struct cudaDeviceProp gpu;
    size_t available = 0, total = 0;
    cudaError_t error = cudaGetDeviceProperties(&gpu, index);
    if (error == cudaSuccess && gpu.major < LEAST_MAJOR) {
        add(text, bytes, "\ncuda:%d: %s, compute capability %d.%d: too old, %d.0 is needed", index, gpu.name, gpu.major,
            gpu.minor, LEAST_MAJOR);
        return;
    }
    if (error == cudaSuccess)
        error = cudaSetDevice(index);
    if (error == cudaSuccess)
        error = cudaMemGetInfo(&available, &total);
    (void)cudaGetLastError();
    if (error == cudaSuccess)
        add(text, bytes, "\ncuda:%d: %s, compute capability %d.%d, %s of %s free", index, gpu.name, gpu.major,
            gpu.minor, lk__text_amount(available, rest), lk__text_amount(total, whole));
    else
        add(text, bytes, "\ncuda:%d: does not answer: %s", index, cudaGetErrorString(error));
}

#define TEXT(x) #x
#define MAJOR(x) TEXT(x)

/* Libraries that are loaded when they are needed. Their functions return the version or write it to a pointer;
 * 91300 is 9.13.0 in all of them. */
static const struct library {
    const char *name, *file, *function;
    bool takes_pointer;
    bool computes; /* results depend on its version */
} libraries[] = {
    {"cuDNN", "libcudnn.so." MAJOR(CUDNN_MAJOR), "cudnnGetVersion", false, true},
    {"cuBLASLt", "libcublasLt.so." MAJOR(CUBLAS_VER_MAJOR), "cublasLtGetVersion", false, true},
#ifdef LK_HAVE_NCCL
    {"NCCL", "libnccl.so.2", "ncclGetVersion", true, false},
#endif
};

static int version_of(const struct library *library, void *symbol)
{
    size_t (*give)(void);
    int (*fill)(int *version);
    int version = 0;
    if (!library->takes_pointer) {
        memcpy(&give, &symbol, sizeof give);
        return (int)give();
    }
    memcpy(&fill, &symbol, sizeof fill);
    return fill(&version) == 0 ? version : 0;
}

/* Adds "9.13.0", or "not found (libcudnn.so.9)". */
static void add_library(const struct library *library, char *text, size_t bytes)
{
    char why[PATH_BYTES];
    void *handle = lk__cuda_open_library(library->file, why, sizeof why);
    void *symbol = handle ? dlsym(handle, library->function) : NULL;
    int version = symbol ? version_of(library, symbol) : 0;
    if (version)
        add(text, bytes, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    else
        add(text, bytes, "not found (%s)", library->file);
}

size_t lk__cuda_facts(int index, lk_device_fact out[LK_DEVICE_FACTS])
{
    struct cudaDeviceProp gpu;
    int runtime = 0;
    size_t count = 0;
    bool known = cudaGetDeviceProperties(&gpu, index) == cudaSuccess;
    (void)cudaRuntimeGetVersion(&runtime);
    (void)cudaGetLastError();
    out[count] = (lk_device_fact){.name = "GPU"};
    add(out[count++].value, LK_DEVICE_FACT_VALUE, "%s", known ? gpu.name : "unknown");
    out[count] = (lk_device_fact){.name = "CUDA"};
    add(out[count++].value, LK_DEVICE_FACT_VALUE, "%d.%d", major_of(runtime), minor_of(runtime));
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        if (!libraries[i].computes)
            continue;
        out[count] = (lk_device_fact){.name = libraries[i].name};
        add_library(&libraries[i], out[count++].value, LK_DEVICE_FACT_VALUE);
    }
    return count;
}

void lk__cuda_describe(char *text, size_t bytes)
{
    char why[REASON_BYTES];
    int driver, count = count_gpus(&driver, why, sizeof why);
    text[0] = '\0';
    if (count == 0) {
        add(text, bytes, "no GPU: %s", why);
        return;
    }
    add_versions(driver, text, bytes);
    for (int i = 0; i < count; i++)
        add_gpu(i, text, bytes);
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        add(text, bytes, "\n%s: ", libraries[i].name);
        add_library(&libraries[i], text, bytes);
    }
}
