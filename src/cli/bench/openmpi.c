/* openmpi.c - Open MPI, loaded at run time: a peer for comparison, not a dependency. The names and MPI_IN_PLACE
 * belong to the ABI of Open MPI 4 and 5 (libmpi.so.40). */
#include "cli/bench/openmpi.h"

#include <dlfcn.h>
#include <stdint.h>

#include "base/libraries.h"

static struct {
    int (*init)(int *argc, char ***argv);
    int (*rank)(void *comm, int *rank);
    int (*allreduce)(const void *in, void *out, int count, void *type, void *op, void *comm);
    int (*finalize)(void);
    void *world, *real, *sum;
} mpi;

static bool find_all(void *library)
{
    return lk__library_symbol(library, "MPI_Init", &mpi.init) &&
           lk__library_symbol(library, "MPI_Comm_rank", &mpi.rank) &&
           lk__library_symbol(library, "MPI_Allreduce", &mpi.allreduce) &&
           lk__library_symbol(library, "MPI_Finalize", &mpi.finalize) &&
           lk__library_symbol(library, "ompi_mpi_comm_world", &mpi.world) &&
           lk__library_symbol(library, "ompi_mpi_float", &mpi.real) &&
           lk__library_symbol(library, "ompi_mpi_op_sum", &mpi.sum);
}

lk_status lk__openmpi_start(int *rank)
{
    void *library = dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);
    if (!library || !find_all(library))
        return lk__fail(LK_STATUS_UNSUPPORTED, "Open MPI's library libmpi.so.40 was not found");
    if (mpi.init(NULL, NULL) != 0 || mpi.rank(mpi.world, rank) != 0)
        return lk__fail(LK_STATUS_UNSUPPORTED, "Open MPI did not start");
    return LK_OK;
}

void lk__openmpi_allreduce(float *data, size_t count)
{
    void *in_place = (void *)(uintptr_t)1;
    (void)mpi.allreduce(in_place, data, (int)count, mpi.real, mpi.sum, mpi.world);
}

void lk__openmpi_stop(void)
{
    (void)mpi.finalize();
}
