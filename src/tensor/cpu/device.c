/* device.c - the CPU as a device: host memory and a thread pool. Work is complete when a call returns. */
#include <stdio.h>
#include <string.h>

#include "base/cores.h"
#include "base/mem.h"
#include "tensor/cpu/cpu.h"

static void cpu_close(lk_device *dev)
{
    lk_cpu_device *cpu = (lk_cpu_device *)dev;
    lk__pool_destroy(cpu->pool);
    lk__mem_free(cpu);
}

/* Whether this machine has a device of another kind. */
static bool has_gpu(void)
{
    const lk_device_type *type;
    bool found = false;
    for (size_t i = 0; (type = lk__device_list(i)) != NULL && !found; i++)
        found = type != &lk__device_cpu && type->count && type->count() > 0;
    return found;
}

static lk_status cpu_open(const lk_device_opts *opts, lk_device **out)
{
    lk_cpu_device *cpu;
    const lk_cpu_build *build;
    if (!(lk__device_cpu.precisions & 1u << opts->precision))
        return lk__fail(LK_STATUS_UNSUPPORTED, "`precision` %s: the CPU computes in fp32 or bf16: choose one of them%s",
                        lk__device_precision_names[opts->precision],
                        has_gpu() ? ", or compute on a GPU, `device` cuda:0" : "; no GPU can be used here");
    LK_TRY(lk__cpu_build_select(opts->isa, &build));
    LK_TRY(LK_ALLOC(1, "device", &cpu));
    cpu->base = (lk_device){.type = &lk__device_cpu, .kernels = build->kernels};
    cpu->build = build;
    cpu->bf16 = opts->precision == LK_PRECISION_BF16 ? build->bf16 : NULL;
    lk_status status = lk__pool_create(opts->threads, opts->crowded, &cpu->pool);
    if (status != LK_OK) {
        lk__mem_free(cpu);
        return status;
    }
    *out = &cpu->base;
    return LK_OK;
}

static lk_status cpu_alloc(lk_device *dev, size_t bytes, const char *what, void **out)
{
    (void)dev;
    return lk__mem_alloc(1, bytes, what, out);
}

static void cpu_free(lk_device *dev, void *block)
{
    (void)dev;
    lk__mem_free(block);
}

static lk_status cpu_move(lk_device *dev, const void *src, size_t bytes, void *dst)
{
    (void)dev;
    memcpy(dst, src, bytes);
    return LK_OK;
}

static lk_status cpu_sync(lk_device *dev)
{
    (void)dev;
    return LK_OK;
}

static void cpu_describe(char *text, size_t bytes)
{
    const lk_cpu_build *build;
    int cores = lk__cores();
    snprintf(text, bytes, "%d core%s, kernels:", cores, cores == 1 ? "" : "s");
    for (size_t i = 0; (build = lk__cpu_build_list(i)); i++) {
        size_t used = strlen(text);
        snprintf(text + used, bytes - used, " %s", build->name);
    }
}

const lk_device_type lk__device_cpu = {
    .name = "cpu",
    .host_memory = true,
    .precision = LK_PRECISION_FP32,
    .precisions = 1u << LK_PRECISION_FP32 | 1u << LK_PRECISION_BF16,
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .upload = cpu_move,
    .download = cpu_move,
    .sync = cpu_sync,
    .describe = cpu_describe,
};
