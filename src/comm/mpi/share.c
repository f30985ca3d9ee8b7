/* share.c - tests requests until they are done; shares a text. */
#include "comm/mpi/share.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/mpi/in_time.h"
#include "comm/mpi/session.h"

/* Seconds of the next pause: short at first, because the other processes are often here already. */
static double next_pause(double waited)
{
    return waited < 1e-3 ? 0 : waited < 1 ? waited / 10 : 0.1;
}

lk_status lk__mpi_await(const lk_mpi *mpi, lk_mpi_request *request, double seconds, const char *what)
{
    double begin = lk__clock(), waited = 0;
    lk_mpi_done done;
    int count = 0;
    while (*request != 0) {
        lk__mpi_lock();
        int code = mpi->test(request, 1, &done, &count);
        lk__mpi_unlock();
        if (code != 0)
            return lk__mpi_check(mpi, code, "make a call that all processes make");
        if (*request == 0)
            break;
        if (waited > seconds)
            return lk__mpi_fail_late(mpi, seconds, what);
        struct timespec pause = {.tv_nsec = (long)(next_pause(waited) * 1e9)};
        nanosleep(&pause, NULL);
        waited = lk__clock() - begin;
    }
    return LK_OK;
}

/* A late share leaves its memory to MPI. */
lk_status lk__mpi_share(const lk_mpi *mpi, lk_mpi_comm comm, char *text, size_t bytes, double seconds)
{
    char *shared = NULL;
    lk_mpi_request request = 0;
    LK_TRY(LK_ALLOC(bytes, "a text to share", &shared));
    memcpy(shared, text, bytes);
    lk__mpi_lock();
    int code = mpi->share(comm, shared, bytes, &request);
    lk__mpi_unlock();
    lk_status status = lk__mpi_check(mpi, code, "share a text");
    if (status == LK_OK)
        status = lk__mpi_await(mpi, &request, seconds, "shared a text");
    if (status == LK_OK)
        memcpy(text, shared, bytes);
    else if (comm == 0)
        lk__mpi_mark_failed();
    if (request == 0)
        lk__mem_free(shared);
    return status;
}
