/* save.c - the path of the final model, checked before training starts; and the check for non-finite weights. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "io/json.h"
#include "io/state/state_file.h"
#include "train/parts.h"

static bool all_finite(const lk_state_entry *entry)
{
    const float *values = entry->data;
    bool finite = true;
    for (size_t i = 0; i < entry->bytes / sizeof *values; i++)
        finite &= isfinite(values[i]) != 0;
    return finite;
}

lk_status lk__train_check_finite(const lk_state *state, const char *what)
{
    for (size_t i = 0; i < lk_state_count(state); i++) {
        const lk_state_entry *entry = lk_state_at(state, i);
        if (entry->dtype != LK_DTYPE_F32 || all_finite(entry))
            continue;
        /* A key from a file may have any bytes: it is cut and escaped. */
        char cut[80], quoted[6 * sizeof cut + 3];
        snprintf(cut, sizeof cut, "%s", entry->name);
        quoted[lk__json_quote(cut, quoted)] = '\0';
        return lk__fail(LK_STATUS_NONFINITE, "%s: key %s holds values that are not finite", what, quoted);
    }
    return LK_OK;
}

static const char RANK_MARK[] = "{rank}";

bool lk__train_saves(const lk_train_opts *opts, int rank)
{
    return opts->save_model && (rank == 0 || strstr(opts->save_model, RANK_MARK));
}

lk_status lk__train_save_path(const char *path, int rank, char *out, size_t bytes)
{
    enum { MARK = sizeof RANK_MARK - 1 };
    size_t used = 0;
    while (*path && used < bytes) {
        bool marked = strncmp(path, RANK_MARK, MARK) == 0;
        int wrote =
            marked ? snprintf(out + used, bytes - used, "%d", rank) : snprintf(out + used, bytes - used, "%c", *path);
        used += (size_t)wrote;
        path += marked ? MARK : 1;
    }
    if (used >= bytes)
        return lk__fail(LK_STATUS_USAGE, "`save_model`: the path is longer than %zu bytes", bytes - 1);
    return LK_OK;
}

/* The folder of path must exist. It is not created, because the path may be mistyped. */
static lk_status check_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path)
        return LK_OK;
    char folder[4096];
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    if (lk__path_is_folder(folder))
        return LK_OK;
    if (errno)
        return lk__fail(LK_STATUS_USAGE, "`save_model` '%s': folder '%s': %s; create it first", path, folder,
                        strerror(errno));
    return lk__fail(LK_STATUS_USAGE, "`save_model` '%s': '%s' is not a folder; name a file in a folder", path, folder);
}

lk_status lk__train_save_check(const char *path)
{
    if (lk__path_ends_with(path, "/") || lk__path_is_folder(path))
        return lk__fail(LK_STATUS_USAGE, "`save_model` '%s' is a folder; add a file name", path);
    LK_TRY(check_folder(path));
    if (lk__state_file_check_ending(path, false) != LK_OK)
        return lk__fail(LK_STATUS_USAGE, "`save_model` %s", lk_error_detail());
    /* Permissions are not sufficient (read-only mounts, quotas), so this opens a file for writing. */
    lk_writer *probe;
    lk_status status = lk__writer_open(path, &probe);
    if (status != LK_OK)
        return lk__fail(status, "`save_model` '%s' cannot be written: %s", path, lk_error_detail());
    lk__writer_abort(probe);
    return LK_OK;
}
