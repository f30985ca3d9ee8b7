/* in_time.h - starts MPI with a deadline, which MPI itself does not have. */
#ifndef LK_COMM_MPI_IN_TIME_H
#define LK_COMM_MPI_IN_TIME_H

#include "base/status.h"
#include "comm/mpi/mpi.h"

/* Calls mpi->start for SERIALIZED. seconds > 0: in a thread of its own, and if the call has not returned by then, PEER.
 * That thread stays inside MPI, so the process then ends without the exit handlers that were registered before. seconds
 * 0: no deadline, in this thread. *place and *code (MPI's) are written if the call has returned. To be called once in a
 * process. */
lk_status lk__mpi_start_in_time(const lk_mpi *mpi, double seconds, lk_mpi_place *place, int *code) LK_CHECKED;

#endif
