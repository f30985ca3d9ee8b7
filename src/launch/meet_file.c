/* meet_file.c - the file that tells nodes where node 0 listens.
 *
 * It must work on NFS, so it comes into being by link(2), whole and at once, and
 * nothing relies on locks. */
#include "launch/meet.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/spec.h"

#define HEADER "lockstep nodes 1"

enum { FILE_BYTES = 1024, PATH_BYTES = 4096 };

static lk_status write_all(int fd, const char *path, const char *text, size_t bytes)
{
    ssize_t n = write(fd, text, bytes);
    if (n != (ssize_t)bytes || fsync(fd) != 0)
        return lk__fail(LK_STATUS_IO, "cannot write %s: %s", path, n < 0 ? strerror(errno) : "disk full?");
    return LK_OK;
}

/* The reply to link may get lost on the way from an NFS server: the number of
 * names tells whether it was done. */
static lk_status link_whole(int fd, const char *temporary, const char *path)
{
    struct stat info;
    if (link(temporary, path) == 0 || (fstat(fd, &info) == 0 && info.st_nlink == 2))
        return LK_OK;
    if (errno != EEXIST)
        return lk__fail(LK_STATUS_IO, "cannot create %s: %s", path, strerror(errno));
    return lk__fail(LK_STATUS_USAGE,
                    "%s exists: another job meets there, or an earlier one left it; remove it or give another path",
                    path);
}

lk_status lk__meet_file_write(const lk_place *place, const char *token_text)
{
    char temporary[PATH_BYTES], text[FILE_BYTES];
    if (snprintf(temporary, sizeof temporary, "%s.%ld.tmp", place->file, (long)getpid()) >= PATH_BYTES)
        return lk__fail(LK_STATUS_USAGE, "--init-method: a path has %d bytes at most", PATH_BYTES - 32);
    int used = snprintf(text, sizeof text, HEADER "\n%s\n%d\n%s\n", place->host, place->port, token_text);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return lk__fail(errno == ENOENT || errno == ENOTDIR ? LK_STATUS_NOT_FOUND : LK_STATUS_IO,
                        "cannot create %s: %s", temporary, strerror(errno));
    lk_status status;
    LK_TRY_GOTO(write_all(fd, temporary, text, (size_t)used), remove_temporary);
    status = link_whole(fd, temporary, place->file);
remove_temporary:
    close(fd);
    unlink(temporary);
    return status;
}

/* The text up to the next newline, which becomes its end; *at moves on. NULL
 * when there is no newline. */
static char *next_line(char **at)
{
    char *line = *at, *end = strchr(line, '\n');
    if (!end)
        return NULL;
    *end = '\0';
    *at = end + 1;
    return line;
}

static lk_status parse(char *text, lk_place *place)
{
    char *at = text, *header = next_line(&at);
    char *host = header ? next_line(&at) : NULL, *number = host ? next_line(&at) : NULL;
    char *token = number ? next_line(&at) : NULL;
    long long port;
    if (!token || strcmp(header, HEADER) != 0 || !*host || strlen(host) >= sizeof place->host ||
        !lk__parse_int(number, 1, 65535, &port))
        return lk__fail(LK_STATUS_FORMAT, "%s is not a file that nodes of a job meet by; give another path",
                        place->file);
    if (!place->own_token)
        LK_TRY(lk__token_from_text(token, &place->token));
    snprintf(place->host, sizeof place->host, "%s", host);
    place->port = (int)port;
    return LK_OK;
}

lk_status lk__meet_file_read(lk_place *place, bool *found)
{
    *found = false;
    if (access(place->file, F_OK) != 0 && errno == ENOENT)
        return LK_OK;
    uint8_t *data;
    size_t bytes;
    lk_status status = lk__file_read(place->file, FILE_BYTES - 1, &data, &bytes);
    if (status == LK_STATUS_NOT_FOUND)
        return LK_OK;
    LK_TRY(status);
    char text[FILE_BYTES] = "";
    memcpy(text, data, bytes);
    lk__free(data);
    LK_TRY(parse(text, place));
    *found = true;
    return LK_OK;
}
