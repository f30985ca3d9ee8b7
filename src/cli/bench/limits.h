/* limits.h - what a CPU can do at most, measured: the limits that benchmarks compare with. */
#ifndef LK_CLI_BENCH_LIMITS_H
#define LK_CLI_BENCH_LIMITS_H

#include "tensor/cpu/cpu.h"

/* GF/s of `rounds` of fused multiply-adds on one core. */
double lk__bench_peak(const lk_cpu_build *build, size_t rounds);

/* GB/s, read and written, of copies from memory to memory by all threads of the device. MEMORY if there is none for
 * the copies. */
lk_status lk__bench_bandwidth(lk_device *dev, double *out) LK_CHECKED;

#endif
