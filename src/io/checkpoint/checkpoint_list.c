/* checkpoint_list.c - the folder of a run's checkpoints: lists them, finds the best, marks suspect
 * ones, removes old ones. */
#define _DEFAULT_SOURCE /* realpath */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint_impl.h"

enum { NAME_BYTES = 32 };
static const char best_name[] = "best", suspect[] = "suspect-";

static void step_name(uint64_t step, char out[NAME_BYTES])
{
    snprintf(out, NAME_BYTES, "step-%09" PRIu64, step);
}

/* Accepts exactly the names that step_name makes. */
static bool read_name(const char *name, uint64_t *step)
{
    char again[NAME_BYTES];
    if (strncmp(name, "step-", 5) != 0 || strspn(name + 5, "0123456789") != strlen(name + 5) || strlen(name) > 25)
        return false;
    errno = 0;
    *step = strtoull(name + 5, NULL, 10);
    step_name(*step, again);
    return errno == 0 && strcmp(name, again) == 0;
}

lk_status lk__checkpoint_path(const char *dir, uint64_t step, char *out, size_t bytes)
{
    char name[NAME_BYTES];
    step_name(step, name);
    if (!lk__path_join(dir, name, out, bytes))
        return lk__fail(LK_STATUS_USAGE, "%s/%s: a path has %zu bytes at most", dir, name, bytes - 1);
    return LK_OK;
}

typedef struct step_list {
    uint64_t *steps;
    size_t count, capacity;
} step_list;

static lk_status add_step(void *arg, int folder, const char *name)
{
    step_list *list = arg;
    uint64_t step;
    (void)folder;
    if (!read_name(name, &step))
        return LK_OK;
    if (list->count == list->capacity)
        LK_TRY(LK_GROW(list->count, "the list of checkpoints", &list->capacity, &list->steps));
    list->steps[list->count++] = step;
    return LK_OK;
}

static int by_step(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

lk_status lk__checkpoint_list(const char *dir, uint64_t **steps, size_t *count)
{
    step_list list = {0};
    lk_status status = lk__checkpoint_folder_each(dir, add_step, &list);
    if (status != LK_OK && status != LK_STATUS_NOT_FOUND) {
        lk__mem_free(list.steps);
        return status;
    }
    if (list.count)
        qsort(list.steps, list.count, sizeof *list.steps, by_step);
    *steps = list.steps;
    *count = list.count;
    return LK_OK;
}

lk_status lk__checkpoint_remove(const char *dir, uint64_t step)
{
    char path[LK_CHECKPOINT_PATH - 64], aside[LK_CHECKPOINT_PATH];
    LK_TRY(lk__checkpoint_path(dir, step, path, sizeof path));
    int moved;
    do {
        lk__file_aside(path, aside, sizeof aside);
        moved = lk__fault_write() ? -1 : rename(path, aside);
    } while (moved != 0 && (errno == EEXIST || errno == ENOTEMPTY));
    if (moved != 0)
        return lk__fail(errno == ENOENT ? LK_STATUS_NOT_FOUND : LK_STATUS_IO, "cannot remove the checkpoint %s: %s",
                        path, strerror(errno));
    return lk__checkpoint_folder_remove(aside);
}

/* Replaces an older suspect checkpoint of the same step. */
static lk_status set_aside(const char *dir, uint64_t step, char aside[LK_CHECKPOINT_PATH])
{
    char path[LK_CHECKPOINT_PATH], name[NAME_BYTES], own[NAME_BYTES + sizeof suspect];
    step_name(step, name);
    snprintf(own, sizeof own, "%s%s", suspect, name);
    LK_TRY(lk__checkpoint_join(dir, name, path));
    LK_TRY(lk__checkpoint_join(dir, own, aside));
    LK_TRY(lk__checkpoint_folder_remove(aside));
    if (lk__fault_write() || rename(path, aside) != 0)
        return lk__fail(LK_STATUS_IO, "cannot rename %s to %s: %s", path, own, strerror(errno));
    return LK_OK;
}

static lk_status drop_best(const char *dir, uint64_t last)
{
    char link[LK_CHECKPOINT_PATH];
    uint64_t step;
    if (!lk__checkpoint_best(dir, &step) || step <= last)
        return LK_OK;
    LK_TRY(lk__checkpoint_join(dir, best_name, link));
    if (lk__fault_write() || (unlink(link) != 0 && errno != ENOENT))
        return lk__fail(LK_STATUS_IO, "cannot remove the link %s: %s", link, strerror(errno));
    return LK_OK;
}

lk_status lk__checkpoint_distrust(const char *dir, uint64_t last, size_t *count, char example[LK_CHECKPOINT_PATH])
{
    uint64_t *steps = NULL;
    size_t all = 0, done = 0;
    char aside[LK_CHECKPOINT_PATH], first[LK_CHECKPOINT_PATH];
    LK_TRY(drop_best(dir, last));
    LK_TRY(lk__checkpoint_list(dir, &steps, &all));
    lk_status status = LK_OK;
    for (size_t i = 0; i < all && status == LK_OK; i++) {
        if (steps[i] <= last)
            continue;
        status = set_aside(dir, steps[i], done == 0 ? first : aside);
        done += status == LK_OK;
    }
    lk__mem_free(steps);
    if (done && status == LK_OK)
        status = lk__folder_sync(dir);
    LK_TRY(status);
    *count = done;
    if (done)
        memcpy(example, first, sizeof first);
    return LK_OK;
}

bool lk__checkpoint_is_suspect(const char *path)
{
    char *real = realpath(path, NULL);
    const char *whole = real ? real : path, *slash = strrchr(whole, '/'), *name = slash ? slash + 1 : whole;
    uint64_t step;
    bool is = strncmp(name, suspect, sizeof suspect - 1) == 0 && read_name(name + sizeof suspect - 1, &step);
    free(real);
    return is;
}

static lk_status sweep_name(void *arg, int folder, const char *name)
{
    const char *dir = arg;
    char path[LK_CHECKPOINT_PATH];
    struct stat info;
    if (!lk__file_is_aside(name) || fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
        return LK_OK;
    if (!S_ISDIR(info.st_mode))
        return lk__checkpoint_folder_remove_file(arg, folder, name);
    LK_TRY(lk__checkpoint_join(dir, name, path));
    return lk__checkpoint_folder_remove(path);
}

lk_status lk__checkpoint_sweep(const char *dir)
{
    LK_TRY(lk__checkpoint_mend(dir));
    lk_status status = lk__checkpoint_folder_each(dir, sweep_name, (void *)(uintptr_t)dir);
    return status == LK_STATUS_NOT_FOUND ? LK_OK : status;
}

lk_status lk__checkpoint_set_best(const char *dir, uint64_t step)
{
    char name[NAME_BYTES], path[LK_CHECKPOINT_PATH], aside[LK_CHECKPOINT_PATH + 64];
    int made;
    step_name(step, name);
    LK_TRY(lk__checkpoint_join(dir, best_name, path));
    do {
        lk__file_aside(path, aside, sizeof aside);
        made = lk__fault_write() ? -1 : symlink(name, aside);
    } while (made != 0 && errno == EEXIST);
    if (made != 0)
        return lk__fail(LK_STATUS_IO, "cannot create the link %s: %s", path, strerror(errno));
    if (lk__fault_write() || rename(aside, path) != 0) {
        int error = errno;
        unlink(aside);
        return lk__fail(LK_STATUS_IO, "cannot replace the link %s: %s", path, strerror(error));
    }
    return lk__folder_sync(dir);
}

bool lk__checkpoint_best(const char *dir, uint64_t *step)
{
    char link[LK_CHECKPOINT_PATH], target[NAME_BYTES];
    uint64_t found;
    if (!lk__path_join(dir, best_name, link, sizeof link))
        return false;
    ssize_t length = readlink(link, target, sizeof target - 1);
    if (length < 0 || !lk__path_is_folder(link))
        return false;
    target[length] = '\0';
    if (!read_name(target, &found))
        return false;
    *step = found;
    return true;
}
