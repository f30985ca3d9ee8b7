/* secret.c - reads private files; finds and makes the user's secret. */
#define _GNU_SOURCE /* renameat2 */
#include "net/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/file.h"

static const char give_token[] =
    "set LOCKSTEP_TOKEN to the same text on every host, or LOCKSTEP_TOKEN_FILE to a file of mode 600 that has it";

lk_status lk__secret_start(void)
{
    if (sodium_init() < 0)
        return lk__fail(LK_STATUS_UNSUPPORTED, "libsodium cannot start: the system gives it no random numbers");
    return LK_OK;
}

lk_status lk__secret_draw(char text[LK_SECRET_TEXT])
{
    LK_TRY(lk__secret_start());
    uint8_t bytes[(LK_SECRET_TEXT - 1) / 2];
    randombytes_buf(bytes, sizeof bytes);
    sodium_bin2hex(text, LK_SECRET_TEXT, bytes, sizeof bytes);
    sodium_memzero(bytes, sizeof bytes);
    return LK_OK;
}

static lk_status check_private(int fd, const lk_secret_file *file)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return lk__fail(LK_STATUS_IO, "cannot look at %s %s: %s", file->what, file->path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return lk__fail(LK_STATUS_USAGE, "%s %s is not a regular file; remove it, or move it elsewhere", file->what,
                        file->path);
    if (info.st_uid != geteuid())
        return lk__fail(
            LK_STATUS_USAGE,
            "%s %s belongs to user %ld, not to you (%ld); run as that user, or use a file of your own (sudo "
            "-H takes the home folder of the other user)",
            file->what, file->path, (long)info.st_uid, (long)geteuid());
    if ((info.st_mode & 077) != 0)
        return lk__fail(LK_STATUS_USAGE,
                        "%s %s may be used by others (mode %03o); run: chmod 600 %s, and if others could have read "
                        "it, %s",
                        file->what, file->path, (unsigned)(info.st_mode & 0777), file->path, file->remedy);
    return LK_OK;
}

static lk_status read_text(int fd, const lk_secret_file *file, char text[LK_SECRET_BYTES + 1])
{
    ssize_t got;
    size_t size = 0;
    do {
        got = read(fd, text + size, LK_SECRET_BYTES + 1 - size);
        size += got > 0 ? (size_t)got : 0;
    } while ((got > 0 && size <= LK_SECRET_BYTES) || (got < 0 && errno == EINTR));
    if (got < 0)
        return lk__fail(LK_STATUS_IO, "cannot read %s %s: %s", file->what, file->path, strerror(errno));
    if (size > LK_SECRET_BYTES)
        return lk__fail(LK_STATUS_FORMAT, "%s %s is longer than %d bytes; %s", file->what, file->path, LK_SECRET_BYTES,
                        file->remedy);
    while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == '\r'))
        size--;
    text[size] = '\0';
    if (size == 0)
        return lk__fail(LK_STATUS_FORMAT, "%s %s is empty; %s", file->what, file->path, file->remedy);
    if (strlen(text) != size)
        return lk__fail(LK_STATUS_FORMAT, "%s %s holds a zero byte at %zu; %s", file->what, file->path, strlen(text),
                        file->remedy);
    return LK_OK;
}

lk_status lk__secret_read(const lk_secret_file *file, char text[LK_SECRET_BYTES + 1])
{
    /* Non-blocking, so that a named pipe is refused and does not block. */
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return lk__fail(errno == ENOENT ? LK_STATUS_NOT_FOUND : LK_STATUS_IO, "cannot open %s %s: %s", file->what,
                        file->path, strerror(errno));
    lk_status status = check_private(fd, file);
    if (status == LK_OK)
        status = read_text(fd, file, text);
    if (status != LK_OK)
        sodium_memzero(text, LK_SECRET_BYTES + 1);
    close(fd);
    return status;
}

/* Writes the user's home folder; "" if there is none. */
static void find_home(char home[PATH_MAX])
{
    const char *variable = getenv("HOME");
    char room[4096];
    struct passwd entry, *found = NULL;
    if (!variable || !variable[0])
        variable = getpwuid_r(geteuid(), &entry, room, sizeof room, &found) == 0 && found ? found->pw_dir : NULL;
    /* A relative folder is another one in each process. */
    bool usable = variable && variable[0] == '/' && strlen(variable) < PATH_MAX;
    snprintf(home, PATH_MAX, "%s", usable ? variable : "");
}

lk_status lk__secret_find(lk_secret_path *out)
{
    const char *config = getenv("XDG_CONFIG_HOME");
    char home[PATH_MAX];
    bool fits;
    find_home(home);
    if (config && config[0] == '/')
        fits = lk__path_join(config, "lockstep/secret", out->full, sizeof out->full);
    else if (home[0])
        fits = lk__path_join(home, ".config/lockstep/secret", out->full, sizeof out->full);
    else
        return lk__fail(LK_STATUS_USAGE,
                        "a job without a token needs a secret in your home folder, and there is none: HOME is not set "
                        "to a full path, and neither is XDG_CONFIG_HOME; %s",
                        give_token);
    if (!fits)
        return lk__fail(LK_STATUS_USAGE, "the path of your secret is longer than %d characters; %s", PATH_MAX - 1,
                        give_token);
    size_t length = lk__path_length(home);
    bool below = length > 1 && strncmp(out->full, home, length) == 0 && out->full[length] == '/';
    snprintf(out->remote, sizeof out->remote, "%s", below ? out->full + length + 1 : out->full);
    snprintf(out->local, sizeof out->local, "%s%.*s", below ? "~/" : "", PATH_MAX - 3, out->remote);
    return LK_OK;
}

static lk_status fail_making(const char *path, int error)
{
    return lk__fail(LK_STATUS_IO, "cannot make your secret %s, which a job without a token needs: %s; %s", path,
                    strerror(error), give_token);
}

/* Returns 0 if the folder exists afterwards, or an errno. */
static int make_folder(const char *path)
{
    return mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : errno;
}

/* Makes the two folders above path, where they do not exist. Returns 0 or an errno. */
static int make_folders(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    char *last = strrchr(folder, '/');
    *last = '\0';
    char *first = strrchr(folder, '/');
    *first = '\0';
    int error = make_folder(folder);
    *first = '/';
    return error ? error : make_folder(folder);
}

/* Gives the complete file its name unless another process was faster. Returns 0, EEXIST or another errno. */
static int put_in_place(const char *temporary, const char *path)
{
    int error = link(temporary, path) == 0 ? 0 : errno;
    /* File systems without hard links. */
    if (error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EMLINK)
        error = renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_NOREPLACE) == 0 ? 0 : errno;
    (void)!unlink(temporary);
    return error;
}

/* Returns 0 or an errno. */
static int write_new(const char *path, const char *text, size_t bytes)
{
    int fd = lk__fd_open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0)
        return errno;
    int error = lk__fd_write(fd, text, bytes) && lk__fd_sync(fd) ? 0 : errno;
    if (!lk__fd_finish(&fd) && !error)
        error = errno;
    if (error)
        (void)!unlink(path);
    return error;
}

static lk_status make_own(const char *path, int *error)
{
    char text[LK_SECRET_TEXT + 1], draw[LK_SECRET_TEXT], temporary[PATH_MAX];
    LK_TRY(lk__secret_draw(draw));
    if (snprintf(temporary, sizeof temporary, "%s.%.16s", path, draw) >= (int)sizeof temporary)
        return fail_making(path, ENAMETOOLONG);
    LK_TRY(lk__secret_draw(draw));
    snprintf(text, sizeof text, "%s\n", draw);
    *error = make_folders(path);
    if (*error == 0)
        *error = write_new(temporary, text, strlen(text));
    if (*error == 0)
        *error = put_in_place(temporary, path);
    sodium_memzero(text, sizeof text);
    sodium_memzero(draw, sizeof draw);
    return LK_OK;
}

static lk_status read_own(const char *path, char text[LK_SECRET_TEXT])
{
    const lk_secret_file file = {path, "your secret", "remove it, and the next job makes a new one"};
    char line[LK_SECRET_BYTES + 1];
    LK_TRY(lk__secret_read(&file, line));
    bool whole = strlen(line) == LK_SECRET_TEXT - 1 && strspn(line, "0123456789abcdef") == LK_SECRET_TEXT - 1;
    if (whole)
        memcpy(text, line, LK_SECRET_TEXT);
    sodium_memzero(line, sizeof line);
    if (!whole)
        return lk__fail(LK_STATUS_FORMAT, "%s %s is damaged: it should hold %d hexadecimal digits; %s", file.what, path,
                        LK_SECRET_TEXT - 1, file.remedy);
    return LK_OK;
}

lk_status lk__secret_own(char text[LK_SECRET_TEXT])
{
    lk_secret_path path;
    int error = 0;
    LK_TRY(lk__secret_find(&path));
    lk_status status = read_own(path.full, text);
    if (status == LK_STATUS_IO)
        return lk__fail(status, "%s; %s", lk_error_detail(), give_token);
    if (status != LK_STATUS_NOT_FOUND)
        return status;
    LK_TRY(make_own(path.full, &error));
    /* Another process may have made the file first; over NFS a link(2) that reports a failure may have worked, too. */
    status = read_own(path.full, text);
    return status == LK_STATUS_NOT_FOUND ? fail_making(path.full, error) : status;
}
