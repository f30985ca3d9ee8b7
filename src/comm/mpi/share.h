/* share.h - work that all processes of a communicator take part in, done in the caller's thread, with a deadline. */
#ifndef LK_COMM_MPI_SHARE_H
#define LK_COMM_MPI_SHARE_H

#include "base/status.h"
#include "comm/mpi/mpi.h"

/* Tests the request in this thread until it is done. PEER if that takes longer than so many seconds: MPI then still has
 * the request and its memory. `what` as in lk_mpi_blocking (in_time.h). */
lk_status lk__mpi_await(const lk_mpi *mpi, lk_mpi_request *request, double seconds, const char *what) LK_CHECKED;
/* Gives the text of process 0 to all processes of the communicator. Blocks until process 0 has called it, or all have:
 * PEER after so many seconds. */
lk_status lk__mpi_share(const lk_mpi *mpi, lk_mpi_comm comm, char *text, size_t bytes, double seconds) LK_CHECKED;

#endif
