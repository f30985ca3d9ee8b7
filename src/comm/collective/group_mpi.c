/* group_mpi.c - a group over a communicator of the program. */
#include "base/forks.h"
#include "base/mem.h"
#include "comm/collective/argument.h"
#include "comm/collective/group_impl.h"
#include "comm/rendezvous/rendezvous.h"

/* What the communicator gives must not be given again, with another meaning. */
static lk_status check_opts(const lk_group_opts *opts)
{
    const char *name = opts->init_method                   ? "init_method"
                       : opts->rank || opts->world_size    ? "rank` and `world_size"
                       : opts->threads > 1 || opts->thread ? "threads` and `thread"
                       : opts->token                       ? "token"
                                                           : NULL;
    if (!name)
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE,
                    "lk_group_from_mpi: `%s` must be left out of lk_group_opts: ranks, address and key come from the "
                    "communicator",
                    name);
}

lk_status lk_group_from_mpi(const void *comm, const lk_group_opts *opts, lk_group **out)
{
    static const lk_group_opts defaults;
    lk_mpi_world *world = NULL;
    double timeout = 0;
    LK_TRY(lk__argument_set(comm, "comm", "lk_group_from_mpi"));
    LK_TRY(lk__argument_set(out, "out", "lk_group_from_mpi"));
    opts = opts ? opts : &defaults;
    LK_TRY(LK_CLEAR(opts, "lk_group_opts"));
    LK_TRY(check_opts(opts));
    LK_TRY(lk__meeting_timeout(opts->timeout, &timeout));
    LK_TRY(lk__mpi_adopt(comm, timeout, &world));
    return lk__group_join(opts, world, out);
}
