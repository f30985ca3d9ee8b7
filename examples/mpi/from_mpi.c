/* from_mpi.c - a group of the ranks of an MPI program, beside the program's own use of MPI.
 *
 * mpirun -n 3 build/examples/from_mpi_openmpi (from_mpi_mpich, if MPICH is installed)
 * Even and odd ranks form a communicator each; the sums of both groups go on at the same time. */
#include <mpi.h>
#include <stdio.h>

#include <lockstep/lockstep.h>

/* Sums 1 over the ranks of a communicator, by Lockstep and by MPI. */
static lk_status count(MPI_Comm comm, int *by_lockstep, int *by_mpi)
{
    lk_group *group;
    int32_t one = 1;
    LK_TRY(lk_group_from_mpi(&comm, NULL, &group));
    lk_status status =
        lk_allreduce(group, (lk_buffer){.at = &one, .count = 1, .dtype = LK_DTYPE_I32}, LK_REDUCTION_SUM, NULL);
    MPI_Allreduce(&(int){1}, by_mpi, 1, MPI_INT, MPI_SUM, comm);
    *by_lockstep = one;
    lk_group_destroy(group); /* before MPI_Finalize */
    return status;
}

int main(int argc, char **argv)
{
    int level, rank, by_lockstep = 0, by_mpi = 0;
    MPI_Comm half;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    if (count(half, &by_lockstep, &by_mpi) != LK_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, lk_error_detail());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    printf("rank %d is in a group of %d, which MPI counts as %d\n", rank, by_lockstep, by_mpi);
    MPI_Comm_free(&half);
    MPI_Finalize();
    return 0;
}
