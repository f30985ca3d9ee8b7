/* state_source.c - reads from an open state file. */
#include "io/state_source.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/fd.h"
#include "base/file.h"
#include "base/mem.h"

lk_status lk__state_source_read(const lk_state_source *in, uint64_t at, void *out, size_t bytes)
{
    /* Some systems refuse reads of 2 GiB and more. */
    const size_t most = (size_t)1 << 30;
    for (size_t done = 0; done < bytes;) {
        ssize_t got = lk__fd_read_at(in->fd, (char *)out + done, lk__size_min(bytes - done, most), (off_t)(at + done));
        if (got < 0)
            return lk__fail(LK_STATUS_IO, "cannot read %s: %s", in->path, strerror(errno));
        if (got == 0)
            return lk__fail(LK_STATUS_IO,
                            "%s became shorter than %" PRIu64 " bytes while it was read; is it being written?",
                            in->path, in->size);
        done += (size_t)got;
    }
    return LK_OK;
}

lk_status lk__state_source_open(const char *path, lk_state_source *out)
{
    lk_state_source in = {.path = path};
    size_t bytes = 0;
    LK_TRY(lk__file_open(path, &in.fd, &bytes));
    in.size = bytes;
    *out = in;
    return LK_OK;
}

void lk__state_source_close(lk_state_source *in)
{
    lk__fd_close(&in->fd);
}
