/* rendezvous_file.c - file://PATH in a folder that all ranks see, NFS included.
 *
 * The file is the job's secret: it has mode 0600, so the users who could read it could also read the user's
 * own secret in the home folder. That secret is therefore not needed here, and hosts whose homes differ can
 * use a file. A file that others can read is refused unless the user has given a token, too.
 *
 * Rank 0 listens at a free port and writes address, port and a random token to a temporary file, which
 * becomes PATH by link(2): PATH is complete at once and never replaces another file. There are no locks. The
 * file is removed as soon as all ranks have joined, so a job that is killed later leaves none. A job that is
 * killed before leaves its file, and the next rank 0 refuses it with a message that names it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "comm/rendezvous/rendezvous.h"
#include "net/host.h"
#include "net/socket.h"

enum { FILE_BYTES = 1024 };
static const double connect_seconds = 2;

/* The content of the file. */
typedef struct note {
    char nonce[LK_NONCE_TEXT];
    char token[LK_TOKEN_TEXT];
    char address[LK_MEETING_HOST];
    int port, size, pid;
    char host[LK_HOST_BYTES];
    char boot[LK_BOOT_ID];
    long long time; /* seconds since 1970 */
    bool open;      /* of a file that was read: other users may read it, too */
} note;

static int note_write(const note *it, char text[FILE_BYTES])
{
    return snprintf(
        text, FILE_BYTES,
        "lockstep-rendezvous 1\nnonce %s\ntoken %s\naddress %s\nport %d\nsize %d\nhost %s\npid %d\nboot %s\n"
        "time %lld\nend\n",
        it->nonce, it->token, it->address, it->port, it->size, it->host, it->pid, it->boot[0] ? it->boot : "-",
        it->time);
}

static bool note_parse(const char *text, note *out)
{
    int end = 0;
    int fields = sscanf(text,
                        "lockstep-rendezvous 1\nnonce %64s\ntoken %64s\naddress %255s\nport %d\nsize %d\nhost %63s\n"
                        "pid %d\nboot %39s\ntime %lld\nend%n",
                        out->nonce, out->token, out->address, &out->port, &out->size, out->host, &out->pid, out->boot,
                        &out->time, &end);
    if (fields == 9)
        lk__text_clean(out->host, LK_TEXT_KIND_NAME);
    return fields == 9 && end > 0 && text[end] == '\n' && out->port > 0 && out->port <= 65535;
}

/* NFS caches for some time that a name does not exist, but asks again after its folder was opened. */
static void refresh_folder(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    DIR *opened = opendir(slash ? folder : ".");
    if (opened)
        closedir(opened);
}

/* A file that another user could have written is not trusted. */
static bool is_ours(const struct stat *info)
{
    return S_ISREG(info->st_mode) && (info->st_mode & 022) == 0 && (info->st_uid == geteuid() || geteuid() == 0);
}

/* NOT_FOUND: there is no file. FORMAT: it is not a trusted rendezvous file, or not complete. */
static lk_status note_read(const char *path, note *out)
{
    char text[FILE_BYTES] = "";
    refresh_folder(path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return lk__fail(errno == ENOENT ? LK_STATUS_NOT_FOUND : LK_STATUS_IO, "cannot open %s: %s", path,
                        strerror(errno));
    struct stat info = {0};
    bool ours = fstat(fd, &info) == 0 && is_ours(&info);
    ssize_t got = ours ? read(fd, text, sizeof text - 1) : 0;
    close(fd);
    if (!ours)
        return lk__fail(LK_STATUS_FORMAT, "%s is no file, belongs to another user, or others may write to it", path);
    note read = {0};
    if (got <= 0 || !note_parse(text, &read))
        return lk__fail(LK_STATUS_FORMAT, "%s is not a rendezvous file of this version, or not complete", path);
    read.open = (info.st_mode & 044) != 0;
    *out = read;
    return LK_OK;
}

static const char *age_text(const note *it, char text[32])
{
    long long seconds = (long long)time(NULL) - it->time;
    if (seconds < 0)
        seconds = 0;
    if (seconds < 120)
        snprintf(text, 32, "%lld s ago", seconds);
    else if (seconds < 7200)
        snprintf(text, 32, "%lld min ago", seconds / 60);
    else
        snprintf(text, 32, "%lld h ago", seconds / 3600);
    return text;
}

/* Whether the process that wrote the file is known to be dead. A boot id that is unknown here ("") or in the file ("-")
 * says nothing. */
static bool is_stale(const note *it)
{
    char host[LK_HOST_BYTES], boot[LK_BOOT_ID];
    lk__host_name(host);
    lk__host_boot_id(boot);
    if (strcmp(host, it->host) != 0)
        return false;
    bool rebooted = boot[0] && strcmp(it->boot, "-") != 0 && strcmp(boot, it->boot) != 0;
    return rebooted || (it->pid > 0 && kill((pid_t)it->pid, 0) != 0 && errno == ESRCH);
}

static lk_status fail_exists(const char *path)
{
    note old;
    char age[32];
    if (note_read(path, &old) != LK_OK)
        return lk__fail(LK_STATUS_USAGE,
                        "%s exists already and is not a rendezvous file that can be read (%s): name another path", path,
                        lk_error_detail());
    if (is_stale(&old))
        return lk__fail(LK_STATUS_USAGE,
                        "%s is stale: it was written %s by pid %d on host %s, which is dead; remove it and start again",
                        path, age_text(&old, age), old.pid, old.host);
    return lk__fail(LK_STATUS_USAGE,
                    "%s exists already: it was written %s by pid %d on host %s; if that job has ended, remove the file "
                    "and start again, else name another path",
                    path, age_text(&old, age), old.pid, old.host);
}

static lk_status fail_write(const char *path, int error)
{
    return lk__fail(LK_STATUS_IO,
                    "cannot write %s: %s; it needs a folder that exists, that all can see and that this host can "
                    "write to",
                    path, strerror(error));
}

/* Writes a new file; it is on the disk when the function returns. */
static lk_status write_new(const char *path, const char *text, size_t bytes)
{
    int fd = lk__fd_open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0)
        return errno == EEXIST ? fail_exists(path) : fail_write(path, errno);
    int error = 0;
    if (!lk__fd_write(fd, text, bytes) || !lk__fd_sync(fd))
        error = errno;
    if (!lk__fd_finish(&fd) && !error)
        error = errno;
    if (!error)
        return LK_OK;
    unlink(path);
    return fail_write(path, error);
}

/* link(2) over NFS may report a failure although it succeeded: the link count shows it. */
static bool link_worked(const char *path, const char *temporary)
{
    struct stat info;
    if (link(temporary, path) == 0)
        return true;
    int error = errno;
    bool worked = stat(temporary, &info) == 0 && info.st_nlink == 2;
    errno = error;
    return worked;
}

static lk_status publish(const char *path, const note *it)
{
    char text[FILE_BYTES], temporary[PATH_MAX];
    size_t bytes = (size_t)note_write(it, text);
    if (snprintf(temporary, sizeof temporary, "%s.%.16s", path, it->nonce) >= (int)sizeof temporary)
        return lk__fail(LK_STATUS_USAGE, "the path %s is too long", path);
    LK_TRY(write_new(temporary, text, bytes));
    bool worked = link_worked(path, temporary);
    int error = errno;
    unlink(temporary);
    if (worked)
        return LK_OK;
    if (error == EEXIST)
        return fail_exists(path);
    /* On file systems without links, readers wait for the last line instead. */
    return error == EPERM || error == EOPNOTSUPP || error == ENOSYS ? write_new(path, text, bytes)
                                                                    : fail_write(path, error);
}

/* The token combines the file's secret and the user's token, if there is one. */
static lk_status combine(lk_meeting *meeting, const char *token)
{
    char text[LK_TOKEN_TEXT + 2 * LK_TOKEN_BYTES + 2];
    int length = snprintf(text, sizeof text, "%s", token);
    for (size_t i = 0; meeting->given && i < LK_TOKEN_BYTES; i++)
        length += snprintf(text + length, sizeof text - (size_t)length, "%02x", meeting->user.key[i]);
    return lk__token_from_text(text, &meeting->token);
}

/* Refuses a file whose content others know, unless the user's token is a part of the key. */
static lk_status check_secrecy(const lk_meeting *meeting, const note *it)
{
    if (!it->open || meeting->given)
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE,
                    "other users can read %s, whose content is the key of the job: use a file system that keeps "
                    "files private (mode 600), or set LOCKSTEP_TOKEN to the same text on every host",
                    meeting->path);
}

static lk_status listen_and_publish(lk_meeting *meeting)
{
    note mine = {.size = meeting->size, .pid = (int)getpid(), .time = (long long)time(NULL)};
    struct stat info;
    if (lstat(meeting->path, &info) == 0)
        return fail_exists(meeting->path);
    LK_TRY(lk__token_make(mine.nonce));
    LK_TRY(lk__token_make(mine.token));
    LK_TRY(combine(meeting, mine.token));
    lk__host_name(mine.host);
    lk__host_boot_id(mine.boot);
    if (meeting->kind.host)
        snprintf(mine.address, sizeof mine.address, "%s", meeting->kind.host);
    else
        lk__host_address(mine.address);
    LK_TRY(lk__net_listen(mine.address, meeting->kind.port, &meeting->fd, &mine.port));
    LK_TRY(publish(meeting->path, &mine));
    memcpy(meeting->host, mine.address, sizeof meeting->host);
    meeting->port = mine.port;
    snprintf(meeting->nonce, sizeof meeting->nonce, "%s", mine.nonce);
    LK_TRY(note_read(meeting->path, &mine));
    return check_secrecy(meeting, &mine);
}

/* Removes the file only if this job wrote it. */
static void remove_file(lk_meeting *meeting)
{
    note there;
    if (meeting->nonce[0] && note_read(meeting->path, &there) == LK_OK && strcmp(there.nonce, meeting->nonce) == 0)
        unlink(meeting->path);
    meeting->nonce[0] = '\0';
}

static lk_status connect_once(lk_meeting *meeting)
{
    note there;
    char age[32];
    lk_status status = note_read(meeting->path, &there);
    if (status == LK_STATUS_NOT_FOUND)
        (void)lk__fail(LK_STATUS_PEER, "%s 0 of %d has not joined: there is no %s", meeting->kind.noun, meeting->size,
                       meeting->path);
    if (status != LK_OK)
        return LK_OK;
    LK_TRY(check_secrecy(meeting, &there));
    LK_TRY(combine(meeting, there.token));
    LK_TRY(lk__meeting_connect_at(meeting, there.address, there.port, connect_seconds));
    if (meeting->fd < 0)
        (void)lk__fail(LK_STATUS_PEER,
                       "%s 0 of %d has not joined: %s is of an earlier job (written %s by pid %d on host %s) and "
                       "should be removed, or its host cannot be reached (%s)",
                       meeting->kind.noun, meeting->size, meeting->path, age_text(&there, age), there.pid, there.host,
                       lk_error_detail());
    return LK_OK;
}

static lk_status find(lk_meeting *meeting, const lk_group_opts *opts, const char *rest)
{
    if (!rest[0])
        return lk__fail(LK_STATUS_USAGE, "file:// names no file: give one that all %ss see, as in file:///home/me/job",
                        meeting->kind.noun);
    if (strlen(rest) >= sizeof meeting->path)
        return lk__fail(LK_STATUS_USAGE, "the path of file:// is longer than %zu characters", sizeof meeting->path - 1);
    snprintf(meeting->path, sizeof meeting->path, "%s", rest);
    LK_TRY(lk__meeting_rank(meeting, opts, opts->rank, opts->world_size));
    return lk__token_find(opts->token, &meeting->user, &meeting->given);
}

const lk_rendezvous_method lk__rendezvous_file = {
    .scheme = "file://",
    .summary = "file://PATH",
    .find = find,
    .listen = listen_and_publish,
    .connect = connect_once,
    .over = remove_file,
};
