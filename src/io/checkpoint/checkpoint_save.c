/* checkpoint_save.c - writes a checkpoint atomically.
 *
 * The three files are written and synced in a folder with a temporary name. The folder is synced,
 * read back and verified. Then one rename gives it its final name, and a sync of the parent folder
 * makes the rename durable. A failure undoes everything as far as possible; what remains has a
 * temporary name, which lk__checkpoint_sweep removes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint_impl.h"
#include "io/safetensors.h"
#include "tensor/state.h"

/* More than the processes that repair at the same moment. */
enum { TRIES = 100 };

/* The checkpoint's path without trailing slashes, and the temporary path. */
typedef struct paths {
    char target[LK_CHECKPOINT_PATH], aside[LK_CHECKPOINT_PATH];
} paths;

static lk_status sum_tensors(const lk_state *state, lk_manifest_part *out)
{
    const lk_state_entry **sorted;
    size_t count = lk_state_count(state);
    lk_status status;
    LK_TRY(LK_ALLOC(count, "the order of a state dict", &sorted));
    LK_TRY_GOTO(LK_ALLOC(count, "the hashes of a checkpoint", &out->tensors), free_sorted);
    lk__safetensors_order(state, sorted);
    for (size_t i = 0; i < count; i++) {
        out->tensors[i].entry = *sorted[i];
        out->tensors[i].hash = lk__state_entry_hash(sorted[i]);
        out->data += sorted[i]->bytes;
    }
    out->count = count;
free_sorted:
    lk__mem_free(sorted);
    return status;
}

/* The hashes are of the data in memory, not of the data on the disk. */
static lk_status write_part(const char *aside, const char *name, const lk_state *state, lk_manifest_part *out)
{
    char path[LK_CHECKPOINT_PATH];
    lk_writer *writer;
    lk_status status;
    LK_TRY(sum_tensors(state, out));
    LK_TRY(lk__checkpoint_join(aside, name, path));
    LK_TRY(lk__writer_create(path, &writer));
    LK_TRY_GOTO(lk__safetensors_write(state, path, writer), abort_writer);
    out->bytes = lk__writer_bytes(writer);
    out->hash = lk__writer_hash(writer);
    return lk__writer_commit(writer);
abort_writer:
    lk__writer_abort(writer);
    return status;
}

static lk_status write_text(const char *aside, const char *text, size_t bytes)
{
    char path[LK_CHECKPOINT_PATH];
    lk_writer *writer;
    lk_status status;
    LK_TRY(lk__checkpoint_join(aside, lk__checkpoint_notes, path));
    LK_TRY(lk__writer_create(path, &writer));
    LK_TRY_GOTO(lk__writer_write(writer, text, bytes), abort_writer);
    return lk__writer_commit(writer);
abort_writer:
    lk__writer_abort(writer);
    return status;
}

static lk_status write_all(const lk_checkpoint *checkpoint, const char *aside)
{
    lk_manifest manifest = {0};
    char *text = NULL;
    size_t bytes = 0;
    lk_status status;
    for (int part = 0; part < LK_PARTS; part++)
        LK_TRY_GOTO(write_part(aside, lk__checkpoint_parts[part], checkpoint->states[part], &manifest.parts[part]),
                    fini_manifest);
    LK_TRY_GOTO(lk__manifest_make(checkpoint, manifest.parts, &text, &bytes), fini_manifest);
    LK_TRY_GOTO(write_text(aside, text, bytes), free_text);
    status = lk__folder_sync(aside);
free_text:
    lk__mem_free(text);
fini_manifest:
    lk__manifest_fini(&manifest);
    return status;
}

/* Asks the kernel to let the next reader read from the disk; only advice. */
static void drop_cache(const char *path)
{
    int fd = lk__fd_open(path, O_RDONLY, 0);
    if (fd < 0)
        return;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static lk_status read_back(const char *aside)
{
    const char *const names[] = {lk__checkpoint_model, lk__checkpoint_optimizer, lk__checkpoint_notes};
    char path[LK_CHECKPOINT_PATH];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        LK_TRY(lk__checkpoint_join(aside, names[i], path));
        drop_cache(path);
    }
    lk_status status = lk_checkpoint_verify(aside);
    if (status == LK_STATUS_FORMAT || status == LK_STATUS_NOT_FOUND)
        return lk__fail(LK_STATUS_IO, "what was written reads back otherwise (%s); suspect the disk or the memory",
                        lk_error_detail());
    return status;
}

static lk_status make_aside(paths *at)
{
    int made;
    do {
        lk__file_aside(at->target, at->aside, sizeof at->aside);
        made = lk__fault_write() ? -1 : mkdir(at->aside, 0777);
    } while (made != 0 && errno == EEXIST);
    if (made != 0)
        return lk__fail(errno == ENOENT || errno == ENOTDIR ? LK_STATUS_NOT_FOUND : LK_STATUS_IO,
                        "cannot create the folder %s: %s", at->aside, strerror(errno));
    return LK_OK;
}

static int move(const char *from, const char *to)
{
    return lk__fault_write() ? -1 : rename(from, to);
}

/* Exchanges two names atomically. Returns false with errno 0 if the file system cannot do this. */
static bool exchange(const char *a, const char *b)
{
    if (!lk__fault_write() && renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) == 0)
        return true;
    if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP || errno == EXDEV)
        errno = 0;
    return false;
}

/* Replaces without an exchange: the old checkpoint is renamed to `third` first. */
static bool move_in_two_steps(paths *at, const char third[LK_CHECKPOINT_PATH])
{
    if (move(at->target, third) != 0)
        return false;
    if (move(at->aside, at->target) != 0) {
        int error = errno;
        (void)rename(third, at->target);
        errno = error;
        return false;
    }
    memcpy(at->aside, third, sizeof at->aside);
    return true;
}

/* The third name contains the old one, so that nothing is lost if this process is killed between
 * the renames. A process that repairs at this moment renames the old checkpoint back; then the two
 * renames are tried again. This needs no lock, and hosts could not share one. */
static bool replace_in_two_steps(paths *at)
{
    char was[LK_CHECKPOINT_PATH];
    if (!lk__checkpoint_was(at->target, was))
        lk__file_aside(at->target, was, sizeof was);
    /* The last removal may have failed. */
    (void)!lk__checkpoint_folder_remove(was);
    bool done = false;
    for (int i = 0; i < TRIES && !done; i++) {
        done = move_in_two_steps(at, was);
        if (!done && errno != ENOTEMPTY && errno != EEXIST)
            break;
    }
    return done;
}

/* Renames the new checkpoint to its path. If it replaced one, `aside` is then the old one's name. */
static lk_status publish(paths *at, bool replace)
{
    bool done = replace ? exchange(at->aside, at->target) || (errno == 0 && replace_in_two_steps(at))
                        : move(at->aside, at->target) == 0;
    if (!done)
        return lk__fail(LK_STATUS_IO, "cannot rename %s: %s", at->aside, strerror(errno));
    return LK_OK;
}

/* Undoes publish(), which may not be durable. */
static void unpublish(paths *at, bool replace)
{
    char third[LK_CHECKPOINT_PATH];
    lk__file_aside(at->target, third, sizeof third);
    if (!replace)
        (void)rename(at->target, at->aside);
    else if (renameat2(AT_FDCWD, at->aside, AT_FDCWD, at->target, RENAME_EXCHANGE) != 0)
        (void)move_in_two_steps(at, third);
}

/* Whether target exists. USAGE unless it is a checkpoint or the remains of one: anything else must
 * not be removed. */
static lk_status check_target(const char *target, bool *exists)
{
    struct stat info;
    *exists = lstat(target, &info) == 0;
    if (*exists && !S_ISDIR(info.st_mode))
        return lk__fail(LK_STATUS_USAGE, "it is there already, and is not a folder");
    if (!*exists || lk__checkpoint_is(target))
        return LK_OK;
    return lk__checkpoint_check_remains(target);
}

static lk_status fill_paths(const char *folder, paths *out)
{
    size_t length = lk__path_length(folder);
    /* The temporary name replaces the last name and may be longer. */
    if (length == 0 || length + 64 >= sizeof out->target)
        return lk__fail(LK_STATUS_USAGE, "its path has %zu bytes; 1 to %d can be", length, LK_CHECKPOINT_PATH - 65);
    memcpy(out->target, folder, length);
    out->target[length] = '\0';
    return LK_OK;
}

/* Removes what was written and keeps the error detail. */
static lk_status undo(lk_status status, const char *aside)
{
    char why[2048];
    snprintf(why, sizeof why, "%s", lk_error_detail());
    (void)!lk__checkpoint_folder_remove(aside);
    return lk__fail(status, "%s", why);
}

static lk_status save(const lk_checkpoint *checkpoint, const char *folder)
{
    paths at = {.aside = ""};
    bool replace = false;
    lk_status status;
    if (!checkpoint->states[LK_PART_MODEL] || !checkpoint->states[LK_PART_OPTIMIZER])
        return lk__fail(LK_STATUS_USAGE, "it has notes, but no states");
    LK_TRY(fill_paths(folder, &at));
    LK_TRY(lk__checkpoint_put_back(at.target));
    LK_TRY(check_target(at.target, &replace));
    LK_TRY(make_aside(&at));
    LK_TRY_GOTO(write_all(checkpoint, at.aside), remove_aside);
    LK_TRY_GOTO(read_back(at.aside), remove_aside);
    LK_TRY_GOTO(publish(&at, replace), remove_aside);
    LK_TRY_GOTO(lk__folder_sync_around(at.target), unpublish);
    /* What remains of the old checkpoint is harmless: lk__checkpoint_sweep removes it. */
    if (replace)
        (void)!lk__checkpoint_folder_remove(at.aside);
    return LK_OK;
unpublish:
    unpublish(&at, replace);
remove_aside:
    return undo(status, at.aside);
}

lk_status lk_checkpoint_save(const lk_checkpoint *checkpoint, const char *folder)
{
    LK_TRY(LK_GIVEN(checkpoint));
    LK_TRY(LK_GIVEN(folder));
    lk__fault_point("save");
    const char *before = lk__fault_enter("save");
    lk_status status = save(checkpoint, folder);
    lk__fault_leave(before);
    if (status != LK_OK)
        return lk__fail(status, "cannot save the checkpoint %s: %s", folder, lk_error_detail());
    return LK_OK;
}
