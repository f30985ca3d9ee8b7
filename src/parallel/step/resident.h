/* resident.h - data sets that are on the device, as bytes.
 *
 * The samples of a batch are then gathered, cropped, flipped and normalised there,
 * by their ids and the epoch: the bits of the loader's batches, without its work and
 * without their way to the device. */
#ifndef LK_PARALLEL_STEP_RESIDENT_H
#define LK_PARALLEL_STEP_RESIDENT_H

#include "parallel/step/engine_impl.h"

/* As lk_engine_cache_dataset. */
lk_status lk__resident_add(lk_engine *engine, lk_loader *loader, bool *placed) LK_CHECKED;
void lk__residents_destroy(lk_engine *engine);

/* The data set that is the batch's source. USAGE where it is not this engine's, or
 * lacks a sample. */
lk_status lk__resident_find(const lk_engine *engine, const lk_batch *batch, const lk_resident **out) LK_CHECKED;

/* Samples ids[0..n) of the engine's epoch to x, of shape.n samples; ids is device
 * memory. */
void lk__resident_gather(lk_engine *engine, const lk_resident *resident, const uint32_t *ids, lk_tensor *x);

#endif
