/* builds.c - the builds of the kernels that this machine can run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/cpu/cpu.h"

typedef struct row {
    const lk_cpu_build *build;
    bool (*supported)(void);
} row;

#if defined(__x86_64__)

extern const lk_cpu_build lk__build_avx512, lk__build_avx2, lk__build_scalar;

static bool has_fma(void)
{
    return __builtin_cpu_supports("fma");
}

static bool has_avx2(void)
{
    return has_fma() && __builtin_cpu_supports("avx2");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

#if defined(LK_HAVE_AMX)
extern const lk_cpu_build lk__build_amx;

static bool has_amx(void)
{
    return has_avx512() && lk__bf16_amx_allowed();
}
#endif

static const row rows[] = {
#if defined(LK_HAVE_AMX)
    {&lk__build_amx, has_amx},
#endif
    {&lk__build_avx512, has_avx512},
    {&lk__build_avx2, has_avx2},
    {&lk__build_scalar, has_fma},
};

#else

static bool always(void)
{
    return true;
}

#if defined(__aarch64__)
extern const lk_cpu_build lk__build_neon;
#endif
extern const lk_cpu_build lk__build_scalar;

static const row rows[] = {
#if defined(__aarch64__)
    {&lk__build_neon, always},
#endif
    {&lk__build_scalar, always},
};

#endif

const lk_cpu_build *lk__cpu_build_list(size_t index)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].supported() && index-- == 0)
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
                        "this processor has no fused multiply-add (FMA3), which the kernels need");
    return lk__fail(LK_STATUS_USAGE, "no kernels for instruction set '%s' here; LOCKSTEP_ISA can be: %s", name, known);
}
