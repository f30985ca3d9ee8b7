/* in_time.h - calls of MPI that block until other processes have made them too, with a deadline, which MPI does not
 * have: the start, the end, and work that all processes take part in. */
#ifndef LK_COMM_MPI_IN_TIME_H
#define LK_COMM_MPI_IN_TIME_H

#include "base/status.h"
#include "comm/mpi/mpi.h"

typedef struct lk_mpi_blocking {
    const lk_mpi *mpi;
    int (*run)(const lk_mpi *mpi, void *arg); /* returns MPI's code */
    void *arg;                                /* stays valid if the call is late: `run` goes on then */
    double seconds;                           /* 0: no deadline, in this thread */
    const char *what;                         /* "started", in the message */
} lk_mpi_blocking;

/* Makes the call in a thread of its own. PEER if it has not returned within the seconds. That thread then stays inside
 * MPI, so the process ends without the exit handlers that were registered before, and with another status than 0.
 * *code (MPI's) is written if the call has returned. */
lk_status lk__mpi_in_time(const lk_mpi_blocking *call, int *code) LK_CHECKED;

/* Fails with PEER: MPI has not `what` within so many seconds. */
lk_status lk__mpi_fail_late(const lk_mpi *mpi, double seconds, const char *what) LK_CHECKED;

#endif
