/* adopt.h - a communicator of the program, duplicated, as the world of a group. MPI stays the program's: nothing here
 * starts or ends it. */
#ifndef LK_COMM_MPI_ADOPT_H
#define LK_COMM_MPI_ADOPT_H

#include "base/status.h"
#include "comm/mpi/mpi.h"

typedef struct lk_mpi_world {
    const lk_mpi *mpi;
    lk_mpi_comm comm;   /* the duplicate */
    lk_mpi_place place; /* in it */
    int next_tag;       /* of the groups that use it */
} lk_mpi_world;

/* comm: the address of the program's MPI_Comm. Collective among its processes; calls MPI only in the caller's thread,
 * and blocks for at most so many seconds, then PEER. USAGE if MPI is not running, for MPI_COMM_NULL, for a communicator
 * between two groups, and for a thread that the thread level does not allow. NOT_FOUND or UNSUPPORTED without a plug-in
 * for the program's MPI. */
lk_status lk__mpi_adopt(const void *comm, double seconds, lk_mpi_world **out) LK_CHECKED;
/* failed: a process of the communicator may be gone, so the duplicate is not freed. Ignores NULL. */
void lk__mpi_world_close(lk_mpi_world *world, bool failed);

/* UNSUPPORTED if the thread level is too low for messages between ranks by MPI; progress: a thread of the library
 * makes calls beside the program's. */
lk_status lk__mpi_world_level(const lk_mpi_world *world, bool progress) LK_CHECKED;
/* Whether MPI still runs. */
bool lk__mpi_world_runs(const lk_mpi_world *world);

#endif
