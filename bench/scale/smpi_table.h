/* smpi_table.h - SimGrid's SMPI as the table of MPI functions that Lockstep's transport uses, and what a
 * simulated rank needs besides it: to sleep, and to wait for any message. */
#ifndef LK_BENCH_SCALE_SMPI_TABLE_H
#define LK_BENCH_SCALE_SMPI_TABLE_H

#include <stddef.h>

#include "comm/mpi/mpi.h"

const lk_mpi *scale_table(void);
/* Lets simulated time pass. */
void scale_sleep(double seconds);
/* Whether the table's test looks at all messages (at first: yes) or only at those that it has not seen before:
 * scale_wait finds the others. */
void scale_test_all(bool all);
/* Blocks until one of the messages under way has ended. Fails the run if there is none: nothing would ever
 * move again. */
void scale_wait(void);
/* The same bytes of physical memory for all ranks; their contents mean nothing. SMPI does not copy messages
 * from and to this memory. */
void *scale_shared_alloc(size_t bytes);
void scale_shared_free(void *block);

#endif
