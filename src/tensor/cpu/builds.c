/* builds.c - the builds of the kernels that this machine can run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/cpu/cpu.h"

/* What a processor can run; each level includes those of its family (arm64, x86-64) before it. */
typedef enum level { NOTHING, SCALAR, NEON, AVX2, AVX512, AMX } level;

typedef struct row {
    const lk_cpu_build *build;
    level needs;
} row;

extern const lk_cpu_build lk__build_amx, lk__build_avx512, lk__build_avx2, lk__build_neon, lk__build_scalar;

/* The builds that are compiled, the fastest first. */
static const row rows[] = {
#if defined(LK_HAVE_AMX)
    {&lk__build_amx, AMX},
#endif
#if defined(LK_HAVE_AVX512)
    {&lk__build_avx512, AVX512},
#endif
#if defined(LK_HAVE_AVX2)
    {&lk__build_avx2, AVX2},
#endif
#if defined(LK_HAVE_NEON)
    {&lk__build_neon, NEON},
#endif
#if defined(LK_HAVE_SCALAR)
    {&lk__build_scalar, SCALAR},
#endif
};

static level processor(void)
{
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("fma"))
        return NOTHING;
    if (!__builtin_cpu_supports("avx2"))
        return SCALAR;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return AVX2;
#if defined(LK_HAVE_AMX)
    if (lk__bf16_amx_allowed())
        return AMX;
#endif
    return AVX512;
#elif defined(__aarch64__)
    return NEON;
#else
    return SCALAR;
#endif
}

const lk_cpu_build *lk__cpu_build_list(size_t index)
{
    level has = processor();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].needs <= has && index-- == 0)
            return rows[i].build;
    }
    return NULL;
}

lk_status lk__cpu_build_select(const char *name, const lk_cpu_build **out)
{
    if (!name)
        name = getenv("LOCKSTEP_ISA");
    char known[128] = "";
    const lk_cpu_build *build;
    for (size_t i = 0; (build = lk__cpu_build_list(i)); i++) {
        if (!name || !*name || strcmp(name, build->name) == 0) {
            *out = build;
            return LK_OK;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", build->name);
    }
    if (!*known)
        return lk__fail(LK_STATUS_UNSUPPORTED,
                        "this processor can run no kernels of this program; all need fused multiply-add (FMA3)");
    return lk__fail(LK_STATUS_USAGE, "no kernels for instruction set '%s' here; LOCKSTEP_ISA can be: %s", name, known);
}
