/* file.c - opens files and writes them atomically. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/mem.h"

enum { MAX_PATH = 4096, MAX_LINKS = 40, CHUNK = 1 << 18 };

bool lk__file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

static lk_status check_regular(int fd, const char *path, size_t *bytes)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return lk__fail(LK_STATUS_IO, "cannot examine %s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return lk__fail(LK_STATUS_FORMAT, "%s is not a regular file", path);
    *bytes = (size_t)info.st_size;
    return LK_OK;
}

/* O_NONBLOCK: opening a pipe would wait for its other end. */
lk_status lk__file_open(const char *path, int *fd, size_t *bytes)
{
    int opened = lk__fd_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (opened < 0)
        return lk__fail(lk__status_of(errno), "cannot open %s: %s", path, strerror(errno));
    lk_status status = check_regular(opened, path, bytes);
    if (status == LK_OK)
        *fd = opened;
    else
        close(opened);
    return status;
}

void lk__file_aside(const char *path, char *out, size_t room)
{
    static atomic_uint counter;
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash + 1 - path) : 0;
    snprintf(out, room, "%.*s.lk-%ld-%u.tmp", folder, path, (long)getpid(), atomic_fetch_add(&counter, 1));
}

bool lk__file_is_aside(const char *name)
{
    return strncmp(name, ".lk-", 4) == 0 && lk__path_ends_with(name, ".tmp");
}

/* Returns 0 or an errno. */
static int sync_folder(const char *folder)
{
    int fd = lk__fd_open(folder, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return errno;
    int error = lk__fault_write() || !lk__fd_sync(fd) ? errno : 0;
    close(fd);
    return error;
}

lk_status lk__folder_make(const char *path)
{
    char part[MAX_PATH];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof part)
        return lk__fail(LK_STATUS_USAGE, "the folder's name has %zu bytes; 1 to %d are possible", length, MAX_PATH - 1);
    for (size_t i = 1; i <= length; i++) {
        if (i < length && path[i] != '/')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return lk__fail(LK_STATUS_IO, "cannot create the folder %s: %s", part, strerror(errno));
    }
    if (lk__path_is_folder(path))
        return LK_OK;
    return lk__fail(LK_STATUS_IO, "cannot create the folder %s: %s", path,
                    errno ? strerror(errno) : "a file has this name");
}

lk_status lk__folder_sync(const char *folder)
{
    /* Errors that mean that this folder cannot be synced, not that syncing failed. */
    static const int unable[] = {0, EACCES, EPERM, EROFS, EINVAL, EBADF, ENOSYS, EOPNOTSUPP};
    int error = sync_folder(folder);
    for (size_t i = 0; i < sizeof unable / sizeof *unable; i++)
        if (error == unable[i])
            return LK_OK;
    return lk__fail(LK_STATUS_IO, "cannot sync the folder %s: %s", folder, strerror(error));
}

lk_status lk__folder_sync_around(const char *path)
{
    char folder[MAX_PATH];
    const char *slash = strrchr(path, '/');
    if (!slash)
        return lk__folder_sync(".");
    size_t length = slash == path ? 1 : (size_t)(slash - path);
    if (length >= sizeof folder)
        return LK_OK;
    snprintf(folder, sizeof folder, "%.*s", (int)length, path);
    return lk__folder_sync(folder);
}

/* in_place: temporary equals path. Small pieces are collected until there are CHUNK bytes. */
struct lk_writer {
    int fd;        /* -1: closed */
    uint8_t *held; /* (CHUNK) */
    size_t holds;
    char *path, *temporary;
    bool in_place;
    lk_hasher *hasher;
    uint64_t bytes;
};

static void writer_free(lk_writer *w)
{
    lk__hasher_destroy(w->hasher);
    lk__mem_free(w->held);
    lk__mem_free(w->temporary);
    lk__mem_free(w->path);
    lk__mem_free(w);
}

static int create_file(const char *path)
{
    return lk__fault_write() ? -1 : lk__fd_open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
}

static lk_status open_file(lk_writer *w, size_t room)
{
    do {
        if (w->in_place)
            snprintf(w->temporary, room, "%s", w->path);
        else
            lk__file_aside(w->path, w->temporary, room);
        w->fd = create_file(w->temporary);
    } while (w->fd < 0 && errno == EEXIST && !w->in_place);
    if (w->fd >= 0)
        return LK_OK;
    return lk__fail(lk__status_of(errno), "cannot create %s%s: %s", w->in_place ? "" : "a file beside ", w->path,
                    strerror(errno));
}

/* Writes the target of the link at path into next, relative to the same folder as path. */
static lk_status follow(const char *path, char next[MAX_PATH])
{
    char target[MAX_PATH];
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0)
        return lk__fail(LK_STATUS_IO, "cannot read the link %s: %s", path, strerror(errno));
    target[length] = '\0';
    const char *slash = strrchr(path, '/');
    int folder = slash && target[0] != '/' ? (int)(slash + 1 - path) : 0;
    if (snprintf(next, MAX_PATH, "%.*s%s", folder, path, target) >= MAX_PATH)
        return lk__fail(LK_STATUS_USAGE, "the links of %s lead to a path of more than %d bytes: use a shorter one",
                        path, MAX_PATH - 1);
    return LK_OK;
}

/* Follows links: the rename at the end would replace a link, not its target. */
static lk_status resolve(const char *path, char out[MAX_PATH])
{
    char next[MAX_PATH];
    struct stat info;
    if (snprintf(out, MAX_PATH, "%s", path) >= MAX_PATH)
        return lk__fail(LK_STATUS_USAGE, "cannot write %s: a path has %d bytes at most", path, MAX_PATH - 1);
    for (int links = 0; lstat(out, &info) == 0 && S_ISLNK(info.st_mode); links++) {
        if (links == MAX_LINKS)
            return lk__fail(LK_STATUS_USAGE, "cannot write %s: its links lead in a circle", path);
        LK_TRY(follow(out, next));
        memcpy(out, next, sizeof next);
    }
    return LK_OK;
}

/* Renaming over a device or a folder would replace it or fail late, and renaming to a name that is
 * too long would fail late. */
static lk_status check_target(const char *path)
{
    struct stat info;
    int result = stat(path, &info);
    if (result != 0 && errno == ENAMETOOLONG)
        return lk__fail(LK_STATUS_USAGE, "cannot write %s: %s", path, strerror(errno));
    if (result == 0 && !S_ISREG(info.st_mode))
        return lk__fail(LK_STATUS_USAGE, "cannot write %s: it is not a regular file; give another path", path);
    return LK_OK;
}

static lk_status open_writer(const char *path, bool in_place, lk_writer **out)
{
    lk_writer *w;
    lk_status status;
    size_t room = strlen(path) + 64;
    LK_TRY(LK_ALLOC(1, "a file writer", &w));
    w->in_place = in_place;
    LK_TRY_GOTO(lk__mem_copy_text(path, "a file name", &w->path), free_writer);
    LK_TRY_GOTO(LK_ALLOC(room, "a file name", &w->temporary), free_writer);
    LK_TRY_GOTO(LK_ALLOC(CHUNK, "a piece of a file", &w->held), free_writer);
    LK_TRY_GOTO(lk__hasher_create(&w->hasher), free_writer);
    LK_TRY_GOTO(open_file(w, room), free_writer);
    *out = w;
    return LK_OK;
free_writer:
    writer_free(w);
    return status;
}

lk_status lk__writer_open(const char *name, lk_writer **out)
{
    char path[MAX_PATH];
    LK_TRY(resolve(name, path));
    LK_TRY(check_target(path));
    return open_writer(path, false, out);
}

lk_status lk__writer_create(const char *path, lk_writer **out)
{
    return open_writer(path, true, out);
}

static lk_status write_failed(const lk_writer *w, const char *doing)
{
    int error = errno;
    if (w->in_place)
        return lk__fail(LK_STATUS_IO, "cannot %s %s: %s", doing, w->path, strerror(error));
    return lk__fail(LK_STATUS_IO, "cannot %s %s: %s; %s %s", doing, w->temporary, strerror(error), w->path,
                    access(w->path, F_OK) == 0 ? "is left as it was" : "is not written");
}

static bool put_held(lk_writer *w)
{
    size_t bytes = w->holds;
    w->holds = 0;
    return lk__fd_write(w->fd, w->held, bytes);
}

static lk_status put(lk_writer *w, const void *data, size_t bytes)
{
    if (bytes > CHUNK - w->holds && !put_held(w))
        return write_failed(w, "write");
    if (bytes > CHUNK)
        return lk__fd_write(w->fd, data, bytes) ? LK_OK : write_failed(w, "write");
    if (bytes > 0)
        memcpy(w->held + w->holds, data, bytes);
    w->holds += bytes;
    return LK_OK;
}

/* Imitates a bad disk or bad memory: the caller's bytes and their hash are right, one bit of the
 * file is wrong. */
static lk_status put_flipped(lk_writer *w, const uint8_t *data, size_t bytes, size_t bit)
{
    size_t at = bit / 8;
    uint8_t flipped = (uint8_t)(data[at] ^ 1u << bit % 8);
    LK_TRY(put(w, data, at));
    LK_TRY(put(w, &flipped, 1));
    return put(w, data + at + 1, bytes - at - 1);
}

lk_status lk__writer_write(lk_writer *writer, const void *data, size_t bytes)
{
    size_t bit;
    lk__hasher_add(writer->hasher, data, bytes);
    writer->bytes += bytes;
    if (bytes > 0 && lk__fault_write())
        return write_failed(writer, "write");
    if (lk__fault_flip("save", 8 * bytes, &bit))
        return put_flipped(writer, data, bytes, bit);
    return put(writer, data, bytes);
}

uint64_t lk__writer_bytes(const lk_writer *writer)
{
    return writer->bytes;
}

uint64_t lk__writer_hash(const lk_writer *writer)
{
    return lk__hasher_value(writer->hasher);
}

/* If the close fails, data may be lost: the file is not renamed. */
static lk_status finish_file(lk_writer *w)
{
    if (lk__fault_write() || !put_held(w) || !lk__fd_sync(w->fd))
        return write_failed(w, "write");
    if (!lk__fd_finish(&w->fd))
        return write_failed(w, "close");
    if (!w->in_place && (lk__fault_write() || rename(w->temporary, w->path) != 0))
        return write_failed(w, "rename");
    return LK_OK;
}

lk_status lk__writer_commit(lk_writer *writer)
{
    lk_status status = finish_file(writer);
    if (status != LK_OK) {
        lk__writer_abort(writer);
        return status;
    }
    if (!writer->in_place)
        status = lk__folder_sync_around(writer->path);
    writer_free(writer);
    return status;
}

void lk__writer_abort(lk_writer *writer)
{
    if (writer == NULL)
        return;
    lk__fd_close(&writer->fd);
    unlink(writer->temporary);
    writer_free(writer);
}

lk_status lk__file_replace(const char *path, const void *data, size_t bytes)
{
    lk_writer *writer;
    LK_TRY(lk__writer_open(path, &writer));
    lk_status status = lk__writer_write(writer, data, bytes);
    if (status == LK_OK)
        return lk__writer_commit(writer);
    lk__writer_abort(writer);
    return status;
}
