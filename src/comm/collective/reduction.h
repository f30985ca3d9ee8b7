/* reduction.h - combines two vectors, by a kernel of the device or by a function of the program. */
#ifndef LK_COMM_COLLECTIVE_REDUCTION_H
#define LK_COMM_COLLECTIVE_REDUCTION_H

#include <stdbool.h>

#include <lockstep/group.h>

#include "tensor/device.h"

/* Whether there is a reduction of this number, built in or registered. */
bool lk__reduction_known(lk_reduction op);
/* A hash of the name of a registered reduction; 0 for those that are built in. */
uint64_t lk__reduction_identity(lk_reduction op);

typedef struct lk_reduction_run {
    lk_device *device; /* has the vectors in its memory; a function of the program needs host memory */
    lk_dtype dtype;
    lk_reduction op;
    size_t count;
    const void *left, *right;
    void *out; /* may be left or right */
} lk_reduction_run;
void lk__reduction_run(const lk_reduction_run *run);

#endif
