/* channel_mpi.c - MPI as the job channel: MPI_Ibcast from rank 0, for jobs whose transport is MPI anyway, and for the
 * launchers of nodes that an MPI launcher has started.
 *
 * MPI starts by the launcher's own channel (PMI, PMIx), which can be used once. So MPI comes before PMI in the
 * table, and both decide by the same rule. */
#include "base/clock.h"
#include "comm/mpi/load.h"
#include "comm/mpi/session.h"
#include "comm/mpi/share.h"
#include "comm/rendezvous/channel.h"

static const double least_seconds = 0.1; /* of a call of MPI that blocks, also after the deadline */

/* Rank and size are compared with MPI's own after the start. */
static bool mpi_is_there(const lk_job_channel_task *task)
{
    return task->size > 1 && lk__mpi_is_due(task->backend) && lk__mpi_module_is_chosen();
}

static double seconds_left(const lk_deadline *deadline)
{
    double left = deadline->end - lk__clock();
    return left > least_seconds ? left : least_seconds;
}

static lk_status mpi_share(const lk_job_channel_task *task, lk_deadline *deadline, char text[LK_JOB_CHANNEL_TEXT])
{
    const lk_mpi *mpi = NULL;
    lk_mpi_place place;
    LK_TRY(lk__mpi_start(seconds_left(deadline), &mpi, &place));
    if (place.size != task->size || place.rank != task->rank)
        return lk__fail(LK_STATUS_USAGE,
                        "this process is rank %d of %d, but MPI (%s) says process %d of %d: do mpirun and the plug-in "
                        "belong to the same MPI? LOCKSTEP_MPI=openmpi or mpich chooses the plug-in",
                        task->rank, task->size, place.library, place.rank, place.size);
    LK_TRY(lk__mpi_share(mpi, 0, text, LK_JOB_CHANNEL_TEXT, seconds_left(deadline)));
    text[LK_JOB_CHANNEL_TEXT - 1] = 0;
    return LK_OK;
}

const lk_job_channel lk__job_channel_mpi = {
    .name = "MPI",
    .is_there = mpi_is_there,
    .share = mpi_share,
};
