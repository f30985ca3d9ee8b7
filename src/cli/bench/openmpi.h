/* openmpi.h - Open MPI as a peer in benchmarks, loaded at run time if it is installed. Nothing else in the
 * program uses it. */
#ifndef LK_CLI_BENCH_OPENMPI_H
#define LK_CLI_BENCH_OPENMPI_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Joins the ranks that mpirun started. UNSUPPORTED if the library is missing or of an unknown kind. */
lk_status lk__openmpi_start(int *rank) LK_CHECKED;
/* Sums floats in place. */
void lk__openmpi_allreduce(float *data, size_t count);
void lk__openmpi_stop(void);

#endif
