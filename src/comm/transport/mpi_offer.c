/* mpi_offer.c - what the ranks of a group tell each other before they use MPI. Pure: no message is sent. */
#include "comm/transport/mpi_offer.h"

#include "comm/mpi/load.h"

static bool same_process(const lk_boot *boot, int a, int b)
{
    return boot->members[a].host_key == boot->members[b].host_key && boot->members[a].pid == boot->members[b].pid;
}

/* Two processes with one MPI rank are in two MPI jobs: a plug-in of one MPI under the launcher of another
 * starts every process alone. A group with id 0 is the whole job. */
lk_status lk__mpi_offer_check(const lk_boot *boot, const lk_mpi_place *place, const lk_mpi_offer *all)
{
    const lk_mpi_module *module = NULL;
    const char *because = "a linked MPI";
    int processes = 0;
    if (lk__mpi_module_choose(&module, &because) != LK_OK)
        because = "a linked MPI";
    for (int r = 0; r < boot->size; r++) {
        int first = 0;
        while (first < r && all[first].rank != all[r].rank)
            first++;
        processes += first == r;
        if (first < r && !same_process(boot, first, r))
            return lk__fail(LK_STATUS_USAGE,
                            "ranks %d and %d are both process %d of an MPI job of %d: this plug-in (%s, chosen by the "
                            "variable %s) is of another MPI than the launcher that started the job. Set LOCKSTEP_MPI "
                            "to the launcher's MPI (openmpi or mpich), or start the job with that MPI's own mpirun",
                            first, r, all[r].rank, all[r].size, place->library, because);
    }
    if (boot->group == 0 && processes != place->size)
        return lk__fail(LK_STATUS_USAGE,
                        "the MPI job (%s) has %d processes, but %d of them are in this job: all processes of mpirun "
                        "must join, with ranks and world size as mpirun gives them",
                        place->library, place->size, processes);
    return LK_OK;
}

bool lk__mpi_offer_crowded(const lk_boot *boot, const lk_mpi_offer *all)
{
    uint64_t cpus[LK_CPU_WORDS] = {0};
    int here = 0;
    for (int r = 0; r < boot->size; r++) {
        if (boot->members[r].host_key != boot->members[boot->rank].host_key)
            continue;
        for (int i = 0; i < LK_CPU_WORDS; i++)
            cpus[i] |= all[r].cpus[i];
        here++;
    }
    return lk__bell_cpus_crowded(cpus, here);
}

int lk__mpi_offer_index(const lk_mpi_offer *all, int rank)
{
    int index = 0;
    for (int r = 0; r < rank; r++)
        index += all[r].rank == all[rank].rank;
    return index;
}

int lk__mpi_offer_most(const lk_mpi_offer *all, int size)
{
    int most = 1;
    for (int r = 0; r < size; r++) {
        int here = lk__mpi_offer_index(all, r) + 1;
        most = here > most ? here : most;
    }
    return most;
}
