/* query.h - what GPUs and libraries of NVIDIA's a machine has. */
#ifndef LK_TENSOR_CUDA_RUNTIME_QUERY_H
#define LK_TENSOR_CUDA_RUNTIME_QUERY_H

#include <stddef.h>

#include "base/status.h"

/* GPUs that CUDA would find, without starting it: device nodes that this process
 * may open, as far as $CUDA_VISIBLE_DEVICES lets them be seen. */
int lk__cuda_count(void);
/* The same of a machine whose files are below root, "" for this one; visible is the
 * variable's value, NULL where it is not set. */
int lk__cuda_count_below(const char *root, const char *visible);

/* Opens a library of NVIDIA's by its name, or else in the folders of toolkits, where
 * the dynamic linker may not look. NULL where it is nowhere, and why its name alone
 * was not enough. */
void *lk__cuda_open_library(const char *file, char *why, size_t bytes);

/* The rest starts CUDA. */

/* Whether there is such a GPU, its driver and it new enough; otherwise UNSUPPORTED,
 * with what was found. */
lk_status lk__cuda_check(int index) LK_CHECKED;
/* The slot: besides, whether the libraries are there, the GPU can be opened, and its
 * memory is not taken by others. */
lk_status lk__cuda_probe(int index, size_t need) LK_CHECKED;
/* A GPU for messages, "cuda:0 (NVIDIA H200)"; returns text. */
enum { LK_CUDA_TITLE = 288 };
const char *lk__cuda_title(int index, char text[LK_CUDA_TITLE]);
/* The memory of this thread's GPU for messages, "120.5 of 150000.0 MB are free";
 * returns text. */
enum { LK_CUDA_FREE = 96 };
const char *lk__cuda_free_text(char text[LK_CUDA_FREE]);
/* Lines for `lockstep info`; "no GPU: <why>" where there is none. */
void lk__cuda_describe(char *text, size_t bytes);

#endif
