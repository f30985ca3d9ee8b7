/* decls.h - prototypes of this build's kernels, derived from lk_kernels. */
#ifndef LK_TENSOR_CPU_DECLS_H
#define LK_TENSOR_CPU_DECLS_H

#include "tensor/cpu/cpu.h"
#include "tensor/cpu/vec.h"

#define LK_DECLARE(slot) __typeof__(*((const lk_kernels *)0)->slot) LK_KERNEL(slot);
LK_KERNEL_LIST(LK_DECLARE)
#undef LK_DECLARE

lk_bf16_multiply LK_KERNEL(bf16_multiply);

#endif
