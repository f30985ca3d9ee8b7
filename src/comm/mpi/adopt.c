/* adopt.c - duplicates a communicator of the program. */
#include "comm/mpi/adopt.h"

#include "base/mem.h"
#include "comm/mpi/load.h"
#include "comm/mpi/session.h"
#include "comm/mpi/share.h"

static const char *const level_names[] = {"SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE"};

static lk_status check_phase(const lk_mpi *mpi)
{
    lk_mpi_phase phase = mpi->phase();
    if (phase == LK_MPI_PHASE_RUNNING)
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE,
                    "lk_group_from_mpi: the program has %s; call it between MPI_Init_thread and "
                    "MPI_Finalize",
                    phase == LK_MPI_PHASE_BEFORE ? "not initialised MPI" : "already finalised MPI");
}

static lk_status inspect(const lk_mpi *mpi, const void *comm, lk_mpi_place *place)
{
    lk_mpi_handle handle = LK_MPI_HANDLE_NULL;
    LK_TRY(lk__mpi_check(mpi, mpi->inspect(comm, &handle, place), "read the communicator"));
    if (handle == LK_MPI_HANDLE_INTRA)
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE, "lk_group_from_mpi: the communicator is %s",
                    handle == LK_MPI_HANDLE_NULL
                        ? "MPI_COMM_NULL: only processes that are in a communicator can call it"
                        : "an inter-communicator: give one of a single group of processes");
}

/* The call itself uses MPI in the caller's thread only. */
static lk_status check_thread(const lk_mpi_place *place)
{
    if (place->level >= LK_MPI_LEVEL_SERIALIZED || place->main_thread)
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE,
                    "lk_group_from_mpi: MPI grants MPI_THREAD_%s, so only the thread that initialised MPI may call it; "
                    "initialise MPI with MPI_Init_thread and MPI_THREAD_MULTIPLE to use other threads",
                    level_names[place->level]);
}

static lk_status duplicate(lk_mpi_world *world, const void *comm, double seconds)
{
    const lk_mpi *mpi = world->mpi;
    lk_mpi_request request = 0;
    lk__mpi_lock();
    int code = mpi->adopt(comm, &world->comm, &request);
    lk__mpi_unlock();
    LK_TRY(lk__mpi_check(mpi, code, "duplicate the communicator"));
    LK_TRY(lk__mpi_await(mpi, &request, seconds, "duplicated the communicator of lk_group_from_mpi"));
    lk__mpi_lock();
    code = mpi->adopted(world->comm);
    lk__mpi_unlock();
    return lk__mpi_check(mpi, code, "prepare the communicator");
}

lk_status lk__mpi_adopt(const void *comm, double seconds, lk_mpi_world **out)
{
    lk_mpi_world *world = NULL;
    const lk_mpi *mpi = NULL;
    lk_mpi_place place;
    LK_TRY(lk__mpi_load_running(&mpi));
    LK_TRY(check_phase(mpi));
    LK_TRY(inspect(mpi, comm, &place));
    LK_TRY(check_thread(&place));
    LK_TRY(LK_ALLOC(1, "a communicator", &world));
    *world = (lk_mpi_world){.mpi = mpi, .place = place, .next_tag = 1};
    lk_status status = duplicate(world, comm, seconds);
    if (status != LK_OK) {
        lk__mem_free(world);
        return status;
    }
    *out = world;
    return LK_OK;
}

void lk__mpi_world_close(lk_mpi_world *world, bool failed)
{
    if (!world)
        return;
    lk__mpi_lock();
    if (!failed)
        world->mpi->release(world->comm);
    lk__mpi_unlock();
    lk__mem_free(world);
}

lk_status lk__mpi_world_level(const lk_mpi_world *world, bool progress)
{
    lk_mpi_level need = progress ? LK_MPI_LEVEL_MULTIPLE : LK_MPI_LEVEL_SERIALIZED;
    if (world->place.level >= need)
        return LK_OK;
    return lk__fail(LK_STATUS_UNSUPPORTED,
                    "the program's MPI (%s) grants MPI_THREAD_%s; messages between ranks by MPI need MPI_THREAD_%s%s: "
                    "ask MPI_Init_thread for it, or use `backend` auto or tcp",
                    world->place.library, level_names[world->place.level], level_names[need],
                    progress ? " with `progress_thread`" : "");
}

bool lk__mpi_world_runs(const lk_mpi_world *world)
{
    return world->mpi->phase() == LK_MPI_PHASE_RUNNING;
}
