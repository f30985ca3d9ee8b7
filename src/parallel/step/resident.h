/* resident.h - cached data sets: all samples in device memory.
 *
 * Images are kept as bytes; a kernel gathers, crops, flips and normalises the images of a batch, given their ids and
 * the epoch. Samples that cannot be transformed are kept as the floats of a batch; the kernel only gathers them. The
 * result has the bits of the loader's batches. */
#ifndef LK_PARALLEL_STEP_RESIDENT_H
#define LK_PARALLEL_STEP_RESIDENT_H

#include "parallel/step/engine_impl.h"

/* See lk_engine_cache_dataset. */
lk_status lk__resident_add(lk_engine *engine, lk_loader *loader, bool *cached) LK_CHECKED;
void lk__residents_destroy(lk_engine *engine);

/* The cached data set that is the batch's source. USAGE if this engine does not have it, or an id is out of
 * range. */
lk_status lk__resident_find(const lk_engine *engine, const lk_batch *batch, const lk_resident **out) LK_CHECKED;

/* Enqueues the gathering of samples ids[0..n), in the current epoch, to x; n is x->shape.n. ids is device
 * memory. */
void lk__resident_gather(lk_engine *engine, const lk_resident *resident, const uint32_t *ids, lk_tensor *x);

#endif
