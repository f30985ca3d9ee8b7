/* download.c - resumes, retries, tries servers in turn, and checks the result. */
#include "data/download/download.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/mem.h"
#include "data/download/transfer.h"

enum { PATH_BYTES = 4096, NOTE_BYTES = 1024, MOST_TRIES = 64 };
/* An attempt that brings at least 1/100 of the file does not count as a failure. */
enum { PART_OF_PROGRESS = 100 };

bool lk__download_watch_progress(const lk_download_watch *watch, const char *file, size_t have, size_t total)
{
    return watch->progress == NULL || watch->progress(watch->arg, file, have, total);
}

void lk__download_watch_note(const lk_download_watch *watch, const char *format, ...)
{
    char text[NOTE_BYTES];
    va_list args;
    if (watch->note == NULL)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    watch->note(watch->arg, text);
}

/* A download under way. The first `have` bytes of the part are correct as far as known. */
typedef struct job {
    const lk_download *what;
    const char *name; /* of the file, without its folder */
    const char *url;  /* the last one requested */
    char part[PATH_BYTES];
    int fd;
    size_t have;
    bool pieced;                     /* the last request continued an existing part */
    bool wrong;                      /* this server has another file */
    bool dead[LK_DOWNLOAD_MAX_URLS]; /* servers that are not asked again */
    lk_status status;                /* why the last attempt failed */
    char why[NOTE_BYTES];
} job;

static lk_status local_failure(const job *j, const char *doing)
{
    int error = errno;
    bool full = error == ENOSPC || error == EDQUOT || error == EFBIG, closed = error == EACCES || error == EROFS;
    return lk__fail(LK_STATUS_IO, "cannot %s %s: %s%s", doing, j->part, strerror(error),
                    full     ? "; make room and run the same command again: it goes on from there"
                    : closed ? "; give another folder with `data_dir`"
                             : "");
}

/* Locks the part, because two downloads of one file would overwrite each other; works without locks
 * if the file system has none. Reads the size under the lock: before it another download may write.
 * *current: the part still has its name; another download may have renamed or removed it. */
static lk_status lock_part(job *j, struct stat *info, bool *current)
{
    struct stat named;
    j->fd = open(j->part, O_RDWR | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0666);
    if (j->fd < 0)
        return local_failure(j, "create");
    if (flock(j->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return lk__fail(LK_STATUS_IO, "%s: another process is downloading into it; wait for that one", j->part);
    if (fstat(j->fd, info) != 0 || !S_ISREG(info->st_mode))
        return lk__fail(LK_STATUS_IO, "%s is not a regular file; move it away", j->part);
    *current = stat(j->part, &named) == 0 && named.st_dev == info->st_dev && named.st_ino == info->st_ino;
    return LK_OK;
}

static lk_status empty_part(job *j)
{
    j->have = 0;
    j->pieced = false;
    if (ftruncate(j->fd, 0) != 0)
        return local_failure(j, "empty");
    return LK_OK;
}

static lk_status open_part(job *j)
{
    struct stat info;
    bool current = false;
    /* Some file systems give a file a new inode number each time: they do without the check. */
    for (int tries = 0; !current && tries < MOST_TRIES; tries++) {
        lk__fd_close(&j->fd);
        LK_TRY(lock_part(j, &info, &current));
    }
    size_t bytes = (size_t)info.st_size;
    if (bytes > j->what->published.bytes)
        return empty_part(j);
    j->have = bytes;
    if (bytes > 0)
        lk__download_watch_note(&j->what->watch, "%s: %zu of %zu bytes are there from before", j->name, bytes,
                                j->what->published.bytes);
    return LK_OK;
}

static lk_status wrong_server(job *j, const char *what, size_t bytes)
{
    j->wrong = true;
    return lk__fail(LK_STATUS_MISMATCH, "%s: has %s%zu bytes there, and %zu are expected", j->url, what, bytes,
                    j->what->published.bytes);
}

static lk_status on_begin(void *arg, size_t first, size_t total)
{
    job *j = arg;
    if (total > 0 && total != j->what->published.bytes)
        return wrong_server(j, "", total);
    if (first == j->have)
        return LK_OK;
    lk__download_watch_note(&j->what->watch,
                            "%s: this server cannot resume at byte %zu; the whole file is downloaded again", j->name,
                            j->have);
    return empty_part(j);
}

static lk_status on_data(void *arg, const void *bytes, size_t count)
{
    job *j = arg;
    if (count > j->what->published.bytes - j->have) {
        LK_TRY(empty_part(j));
        return wrong_server(j, "more than ", j->what->published.bytes);
    }
    for (const char *at = bytes; count > 0;) {
        ssize_t n = pwrite(j->fd, at, count, (off_t)j->have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return local_failure(j, "write");
        at += n;
        count -= (size_t)n;
        j->have += (size_t)n;
    }
    return LK_OK;
}

static bool on_proceed(void *arg)
{
    job *j = arg;
    return lk__download_watch_progress(&j->what->watch, j->name, j->have, j->what->published.bytes);
}

static lk_status stopped(const job *j)
{
    return lk__fail(LK_STATUS_IO, "interrupted; %zu of %zu bytes are in %s: run the same command again to go on",
                    j->have, j->what->published.bytes, j->part);
}

/* Stores why an attempt failed; the job continues. */
static lk_status remember(job *j, lk_status status, const char *why)
{
    j->status = status;
    snprintf(j->why, sizeof j->why, "%s", why);
    return LK_OK;
}

/* Asks one server once for the missing bytes. Fails only if no server could help. */
static lk_status request(job *j, size_t server)
{
    const lk_download *what = j->what;
    lk_transfer transfer = {.url = what->urls[server],
                            .from = j->have,
                            .connect_timeout = what->limits.connect_timeout,
                            .stall_timeout = what->limits.stall_timeout,
                            .arg = j,
                            .begin = on_begin,
                            .data = on_data,
                            .proceed = on_proceed};
    lk_transfer_result result;
    j->wrong = false;
    j->url = transfer.url;
    LK_TRY(lk__transfer_run(&transfer, &result));
    if (result.end == LK_TRANSFER_END_DONE)
        return LK_OK;
    if (result.end == LK_TRANSFER_END_STOPPED)
        return stopped(j);
    if (result.end == LK_TRANSFER_END_FAILED && !j->wrong)
        return result.status;
    j->dead[server] = j->wrong || result.end == LK_TRANSFER_END_REFUSED;
    if (result.end == LK_TRANSFER_END_NO_RANGE)
        LK_TRY(empty_part(j));
    return remember(j, j->wrong ? result.status : LK_STATUS_IO, j->wrong ? lk_error_detail() : result.why);
}

static lk_status ended_early(job *j)
{
    char why[NOTE_BYTES];
    snprintf(why, sizeof why, "%s: the connection ended at byte %zu of %zu", j->url, j->have, j->what->published.bytes);
    return remember(j, LK_STATUS_IO, why);
}

/* Checks the sums of the complete part; a wrong one is emptied. */
static lk_status check(job *j, bool *right)
{
    lk_checksum_pair sums;
    LK_TRY(lk__checksum_file(j->part, false, SIZE_MAX, &sums));
    lk_status status = lk__checksum_check(j->what->path, &sums, &j->what->published);
    *right = status == LK_OK;
    if (*right)
        return LK_OK;
    LK_TRY(remember(j, status, lk_error_detail()));
    return empty_part(j);
}

/* Asks one server until it fails. A continued part with wrong sums is fetched once more from its
 * start: its first bytes may be from another file. */
static lk_status try_server(job *j, size_t server, bool *done)
{
    size_t bytes = j->what->published.bytes;
    for (;;) {
        j->status = LK_OK;
        j->pieced = j->have > 0;
        if (j->have < bytes)
            LK_TRY(request(j, server));
        if (j->status == LK_OK && j->have < bytes)
            return ended_early(j);
        if (j->status != LK_OK)
            return LK_OK;
        bool pieced = j->pieced;
        LK_TRY(check(j, done));
        j->dead[server] = !*done && !pieced;
        if (*done || j->dead[server])
            return LK_OK;
        lk__download_watch_note(&j->what->watch, "%s; what was there from before is thrown away", j->why);
    }
}

static bool any_server(const job *j)
{
    for (size_t i = 0; i < LK_DOWNLOAD_MAX_URLS && j->what->urls[i] != NULL; i++)
        if (!j->dead[i])
            return true;
    return false;
}

static lk_status try_servers(job *j, bool *done)
{
    for (size_t i = 0; i < LK_DOWNLOAD_MAX_URLS && j->what->urls[i] != NULL; i++) {
        if (j->dead[i])
            continue;
        LK_TRY(try_server(j, i, done));
        if (*done)
            return LK_OK;
        bool another = i + 1 < LK_DOWNLOAD_MAX_URLS && j->what->urls[i + 1] != NULL;
        if (another && !j->dead[i + 1])
            lk__download_watch_note(&j->what->watch, "%s; trying %s", j->why, j->what->urls[i + 1]);
    }
    return LK_OK;
}

/* Sleeps, and asks often whether to continue. */
static lk_status pause_for(const job *j, double seconds)
{
    double end = lk__clock() + seconds, left;
    while ((left = end - lk__clock()) > 0) {
        lk__clock_sleep(left < .1 ? left : .1);
        if (!lk__download_watch_progress(&j->what->watch, j->name, j->have, j->what->published.bytes))
            return stopped(j);
    }
    return LK_OK;
}

static lk_status give_up(const job *j)
{
    if (j->have == 0)
        return lk__fail(j->status, "%s; nothing of it was kept. `url` can name another server", j->why);
    return lk__fail(j->status, "%s; %zu of %zu bytes are in %s: run the same command again to go on", j->why, j->have,
                    j->what->published.bytes, j->part);
}

static lk_status gather(job *j)
{
    const lk_download_limits *limits = &j->what->limits;
    double wait = limits->backoff;
    int failures = 0;
    for (;;) {
        bool done = false;
        size_t before = j->have;
        LK_TRY(try_servers(j, &done));
        if (done)
            return LK_OK;
        if (j->have > before && j->have - before >= j->what->published.bytes / PART_OF_PROGRESS) {
            failures = 0;
            wait = limits->backoff;
        }
        if (!any_server(j) || failures == limits->retries)
            return give_up(j);
        failures++;
        lk__download_watch_note(&j->what->watch, "%s; trying again in %g s (%d of %d)", j->why, wait, failures,
                                limits->retries);
        LK_TRY(pause_for(j, wait));
        wait *= 2;
    }
}

static lk_status publish(job *j)
{
    if (!lk__fd_sync(j->fd))
        return local_failure(j, "write");
    if (rename(j->part, j->what->path) != 0)
        return local_failure(j, "rename");
    (void)!lk__folder_sync_around(j->what->path);
    return LK_OK;
}

lk_status lk__download(const lk_download *download)
{
    const char *slash = strrchr(download->path, '/');
    job j = {.what = download, .name = slash ? slash + 1 : download->path, .fd = -1};
    lk_status status;
    LK_TRY(lk__checksum_available());
    LK_TRY(lk__transfer_available());
    if (snprintf(j.part, sizeof j.part, "%s.part", download->path) >= PATH_BYTES)
        return lk__fail(LK_STATUS_USAGE, "%s: a path has %d bytes at most", download->path, PATH_BYTES - 6);
    LK_TRY_GOTO(open_part(&j), close_part);
    LK_TRY_GOTO(gather(&j), remove_part);
    status = publish(&j);
    goto close_part;
remove_part:
    if (j.have == 0)
        unlink(j.part);
close_part:
    lk__fd_close(&j.fd);
    return status;
}
