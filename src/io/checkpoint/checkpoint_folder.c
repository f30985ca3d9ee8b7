/* checkpoint_folder.c - visits, checks and removes the files in a checkpoint's folder. */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "io/checkpoint/checkpoint_impl.h"

lk_status lk__checkpoint_folder_each(const char *dir, lk_checkpoint_folder_fn each, void *arg)
{
    DIR *names = opendir(dir);
    lk_status status = LK_OK;
    if (!names)
        return lk__fail(lk__status_of(errno), "cannot read the folder %s: %s", dir, strerror(errno));
    while (status == LK_OK) {
        errno = 0;
        const struct dirent *entry = readdir(names);
        if (!entry && errno != 0)
            status = lk__fail(LK_STATUS_IO, "cannot read the folder %s: %s", dir, strerror(errno));
        if (!entry)
            break;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = each(arg, dirfd(names), entry->d_name);
    }
    closedir(names);
    return status;
}

static lk_status check_remain(void *arg, int folder, const char *name)
{
    (void)arg;
    (void)folder;
    bool known = lk__file_is_aside(name) || strcmp(name, lk__checkpoint_notes) == 0;
    for (int part = 0; part < LK_PARTS; part++)
        known |= strcmp(name, lk__checkpoint_parts[part]) == 0;
    if (!known)
        return lk__fail(LK_STATUS_USAGE, "it is there already, and with %s in it no checkpoint; give another folder",
                        lk__json_quote_short(name).text);
    return LK_OK;
}

lk_status lk__checkpoint_check_remains(const char *folder)
{
    return lk__checkpoint_folder_each(folder, check_remain, NULL);
}

lk_status lk__checkpoint_folder_remove_file(void *arg, int folder, const char *name)
{
    const char *path = arg;
    if (lk__fault_write() || (unlinkat(folder, name, 0) != 0 && errno != ENOENT))
        return lk__fail(LK_STATUS_IO, "cannot remove %s/%s: %s", path, name, strerror(errno));
    return LK_OK;
}

lk_status lk__checkpoint_folder_remove(const char *folder)
{
    lk_status status = lk__checkpoint_folder_each(folder, lk__checkpoint_folder_remove_file, (void *)(uintptr_t)folder);
    if (status == LK_STATUS_NOT_FOUND)
        return LK_OK;
    LK_TRY(status);
    if (lk__fault_write() || (rmdir(folder) != 0 && errno != ENOENT))
        return lk__fail(LK_STATUS_IO, "cannot remove the folder %s: %s", folder, strerror(errno));
    return LK_OK;
}
