/* checkpoint_mend.c - repairs checkpoints that a killed save has left under a temporary name.
 *
 * If the file system cannot exchange names, a save replaces a checkpoint by two renames. No lock is
 * needed, because these renames and the repair's rename never replace a checkpoint: of several
 * processes that repair, one succeeds, and a save whose old checkpoint is back starts its two
 * renames again. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/file.h"
#include "io/checkpoint/checkpoint_impl.h"

/* Prefix and suffix of the temporary name; lk__file_is_aside accepts it. */
static const char before[] = ".lk-was-", after[] = ".tmp";
enum { AROUND = sizeof before - 1 + sizeof after - 1 };

bool lk__checkpoint_was(const char *path, char out[LK_CHECKPOINT_PATH])
{
    int end = (int)lk__path_length(path), begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    if (end - begin + AROUND >= LK_CHECKPOINT_NAME)
        return false;
    return snprintf(out, LK_CHECKPOINT_PATH, "%.*s%s%.*s%s", begin, path, before, end - begin, path + begin, after) <
           LK_CHECKPOINT_PATH;
}

static bool is_there(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

/* Whether a complete checkpoint waits under `was`. A damaged one is no loss. An unreadable one may
 * be complete: its error is returned. */
static lk_status is_waiting(const char *was, const char *path, bool *waiting)
{
    *waiting = false;
    if (is_there(path) || !is_there(was))
        return LK_OK;
    lk_status status = lk_checkpoint_verify(was);
    if (status == LK_STATUS_FORMAT || status == LK_STATUS_NOT_FOUND)
        return LK_OK;
    *waiting = status == LK_OK;
    return status;
}

/* Another process may have renamed it, or have saved a new one. */
static lk_status put_back(const char *was, const char *path)
{
    if (!lk__fault_write() && rename(was, path) == 0)
        return LK_OK;
    if (errno == ENOENT || errno == EEXIST || errno == ENOTEMPTY)
        return LK_OK;
    return lk__fail(LK_STATUS_IO, "cannot rename %s, which a save left that was killed, back to %s: %s", was, path,
                    strerror(errno));
}

lk_status lk__checkpoint_put_back(const char *path)
{
    char was[LK_CHECKPOINT_PATH];
    bool waiting = false;
    if (!lk__checkpoint_was(path, was))
        return LK_OK;
    LK_TRY(is_waiting(was, path, &waiting));
    return waiting ? put_back(was, path) : LK_OK;
}

/* Whether name is such a temporary name; own becomes the name inside it. */
static bool read_own(const char *name, char own[LK_CHECKPOINT_NAME])
{
    size_t length = strlen(name);
    if (strncmp(name, before, sizeof before - 1) != 0 || !lk__path_ends_with(name, after) || length <= AROUND ||
        length >= LK_CHECKPOINT_NAME)
        return false;
    snprintf(own, LK_CHECKPOINT_NAME, "%.*s", (int)(length - AROUND), name + sizeof before - 1);
    return true;
}

lk_status lk__checkpoint_waiting(const char *dir, const char *name, char own[LK_CHECKPOINT_NAME])
{
    char was[LK_CHECKPOINT_PATH], path[LK_CHECKPOINT_PATH], found[LK_CHECKPOINT_NAME] = "";
    bool waiting = false;
    if (read_own(name, found)) {
        LK_TRY(lk__checkpoint_join(dir, name, was));
        LK_TRY(lk__checkpoint_join(dir, found, path));
        LK_TRY(is_waiting(was, path, &waiting));
    }
    snprintf(own, LK_CHECKPOINT_NAME, "%s", waiting ? found : "");
    return LK_OK;
}

static lk_status mend_name(void *arg, int folder, const char *name)
{
    const char *dir = arg;
    char own[LK_CHECKPOINT_NAME], path[LK_CHECKPOINT_PATH];
    (void)folder;
    if (!read_own(name, own))
        return LK_OK;
    LK_TRY(lk__checkpoint_join(dir, own, path));
    return lk__checkpoint_put_back(path);
}

lk_status lk__checkpoint_mend(const char *dir)
{
    lk_status status = lk__checkpoint_folder_each(dir, mend_name, (void *)(uintptr_t)dir);
    return status == LK_STATUS_NOT_FOUND ? LK_OK : status;
}
