/* save.c - files that are replaced as a whole. */
#include "base/file.h"
#include "cli/plot/draw.h"

lk_status lk__plot_save(const char *path, const void *data, size_t bytes)
{
    lk_writer *writer;
    LK_TRY(lk__writer_open(path, &writer));
    lk_status status = lk__writer_write(writer, data, bytes);
    if (status == LK_OK)
        return lk__writer_commit(writer);
    lk__writer_abort(writer);
    return status;
}
