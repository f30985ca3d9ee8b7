/* query.h - the GPUs and the NVIDIA libraries of a machine. */
#ifndef LK_TENSOR_CUDA_RUNTIME_QUERY_H
#define LK_TENSOR_CUDA_RUNTIME_QUERY_H

#include <stddef.h>

#include "base/status.h"
#include "tensor/device.h"

/* Number of GPUs that CUDA would find, without starting CUDA: device nodes that this process may open and that
 * $CUDA_VISIBLE_DEVICES makes visible. */
int lk__cuda_count(void);
/* lk__cuda_count for a machine whose files are below root; "" is this machine. visible is the value of
 * $CUDA_VISIBLE_DEVICES, NULL if it is not set. */
int lk__cuda_count_below(const char *root, const char *visible);

/* Opens a library of NVIDIA by its name, otherwise in the folders of toolkits, which the dynamic linker may not
 * search. Returns NULL if it is not found; `why` then says why the name alone was not enough. */
void *lk__cuda_open_library(const char *file, char *why, size_t bytes);

/* The functions below start CUDA. */

/* UNSUPPORTED, with what was found, unless this GPU exists and it and its driver are new enough. */
lk_status lk__cuda_check(int index) LK_CHECKED;
/* The slot `probe`: checks also that the libraries are there, that the GPU can be opened, and that it has
 * enough free memory. */
lk_status lk__cuda_probe(int index, size_t need) LK_CHECKED;
/* Describes a GPU for messages, "cuda:0 (NVIDIA H200)"; returns text. */
enum { LK_CUDA_TITLE = 288 };
const char *lk__cuda_title(int index, char text[LK_CUDA_TITLE]);
/* Describes the memory of this thread's GPU for messages, "120 MB of 150 GB are free"; returns text. */
enum { LK_CUDA_FREE = 96 };
const char *lk__cuda_free_text(char text[LK_CUDA_FREE]);
/* The slot `facts`: the GPU, the CUDA runtime, cuDNN and cuBLASLt. */
size_t lk__cuda_facts(int index, lk_device_fact out[LK_DEVICE_FACTS]);
/* Lines for `lockstep info`; "no GPU: <why>" if there is none. */
void lk__cuda_describe(char *text, size_t bytes);

#endif
