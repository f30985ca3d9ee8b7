/* obtain.c - downloads a data set's files and unpacks its archives. Correct files stay. */
#include "data/download/obtain.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "data/download/archive.h"
#include "data/download/transfer.h"

enum { URL_BYTES = 1024 };

static lk_status make_folder(const char *folder)
{
    lk_status status = lk__folder_make(folder);
    return status == LK_OK ? LK_OK : lk__fail(status, "%s; give another with `data_dir`", lk_error_detail());
}

static lk_status join_path(const char *folder, const char *name, char path[LK_MAX_PATH])
{
    if (snprintf(path, LK_MAX_PATH, "%s/%s", folder, name) >= LK_MAX_PATH)
        return lk__fail(LK_STATUS_USAGE, "%s: a path has %d bytes at most", folder, LK_MAX_PATH - 1);
    return LK_OK;
}

/* The result of verifying files. */
typedef struct tally {
    size_t right, wrong;
    char path[LK_MAX_PATH], why[LK_MAX_PATH]; /* of the first wrong file */
} tally;

static void count_verdict(void *arg, const lk_obtain_verdict *verdict)
{
    tally *t = arg;
    t->right += verdict->status == LK_OK;
    if (verdict->status == LK_OK || verdict->status == LK_STATUS_NOT_FOUND || t->wrong++ > 0)
        return;
    snprintf(t->path, sizeof t->path, "%s", verdict->path);
    snprintf(t->why, sizeof t->why, "%s", lk_error_detail());
}

static bool is_archive(const lk_source_file *file)
{
    return file->parts[0].member != NULL;
}

/* Whether all parts of the file are in the folder and correct. Wrong ones are replaced, except a
 * plain file: it would be read instead of the gzipped one that is about to be fetched. */
static lk_status look(const lk_source *source, const lk_source_file *file, const lk_obtain_opts *opts, bool *there)
{
    lk_source one = *source;
    one.files = file;
    one.file_count = 1;
    tally t = {0};
    LK_TRY(lk__source_verify(&one, opts->folder, count_verdict, &t, there));
    if (t.wrong == 0)
        return LK_OK;
    char target[LK_MAX_PATH];
    LK_TRY(join_path(opts->folder, file->name, target));
    if (!is_archive(file) && strcmp(t.path, target) != 0)
        return lk__fail(LK_STATUS_MISMATCH, "%s; it would be read in place of %s: move it away", t.why, file->name);
    lk__download_watch_note(&opts->watch, "%s; it is downloaded again", t.why);
    return LK_OK;
}

/* The URLs of one file, one for each server. */
typedef struct url_list {
    char text[LK_DOWNLOAD_MAX_URLS][URL_BYTES];
    const char *at[LK_DOWNLOAD_MAX_URLS];
} url_list;

static lk_status add_url(url_list *list, size_t index, const char *server, const char *name)
{
    size_t length = strlen(server);
    const char *slash = length > 0 && server[length - 1] == '/' ? "" : "/";
    if (snprintf(list->text[index], URL_BYTES, "%s%s%s", server, slash, name) >= URL_BYTES)
        return lk__fail(LK_STATUS_USAGE, "%s: a URL has %d bytes at most", server, URL_BYTES - 1);
    list->at[index] = list->text[index];
    return LK_OK;
}

static lk_status list_urls(const lk_source *source, const lk_obtain_opts *opts, const char *name, url_list *list)
{
    *list = (url_list){.at = {NULL}};
    if (opts->server != NULL)
        return add_url(list, 0, opts->server, name);
    for (size_t i = 0; i < LK_SOURCE_MAX_SERVERS && source->servers[i] != NULL; i++)
        LK_TRY(add_url(list, i, source->servers[i], name));
    return LK_OK;
}

/* Without libcurl the user can download with a browser: files found in the folder are checked and
 * unpacked as well. */
static lk_status can_download(const lk_source *source, const lk_obtain_opts *opts)
{
    char names[512] = "";
    lk_status status = lk__transfer_available();
    if (status == LK_OK)
        return LK_OK;
    for (size_t i = 0; i < source->file_count; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "", source->files[i].name);
    }
    return lk__fail(status, "%s; or fetch %s by hand from %s into %s and run the same command again, which checks them",
                    lk_error_detail(), names, opts->server ? opts->server : source->servers[0], opts->folder);
}

static lk_status fetch(const lk_source *source, const lk_source_file *file, const lk_obtain_opts *opts,
                       const char *path)
{
    url_list urls;
    LK_TRY(list_urls(source, opts, file->name, &urls));
    LK_TRY(can_download(source, opts));
    lk_download download = {.path = path, .published = file->published, .limits = opts->limits, .watch = opts->watch};
    memcpy(download.urls, urls.at, sizeof download.urls);
    char size[LK_TEXT_AMOUNT];
    lk__download_watch_note(&opts->watch, "fetching %s (%s)", urls.at[0], lk__text_amount(file->published.bytes, size));
    return lk__download(&download);
}

/* An archive that is being unpacked; writer is the current member's. */
typedef struct unpacking {
    const lk_source_file *file;
    const lk_obtain_opts *opts;
    const lk_source_part *part;
    lk_writer *writer;
    size_t done;
} unpacking;

static lk_status begin_member(void *arg, size_t member)
{
    unpacking *u = arg;
    char path[LK_MAX_PATH];
    u->part = &u->file->parts[member];
    u->done = 0;
    LK_TRY(join_path(u->opts->folder, u->part->file, path));
    return lk__writer_open(path, &u->writer);
}

static lk_status write_member(void *arg, const uint8_t *data, size_t bytes)
{
    unpacking *u = arg;
    LK_TRY(lk__writer_write(u->writer, data, bytes));
    u->done += bytes;
    if (!lk__download_watch_progress(&u->opts->watch, u->part->file, u->done, u->part->content.bytes))
        return lk__fail(LK_STATUS_IO, "interrupted while unpacking %s, which is kept: run the same command again",
                        u->file->name);
    return LK_OK;
}

static lk_status end_member(void *arg, size_t member)
{
    (void)member;
    unpacking *u = arg;
    lk_writer *writer = u->writer;
    u->writer = NULL;
    return lk__writer_commit(writer);
}

static lk_status unpack(const lk_source_file *file, const lk_obtain_opts *opts, const char *path)
{
    unpacking u = {.file = file, .opts = opts};
    lk_archive_member members[LK_ARCHIVE_MAX_MEMBERS];
    lk_archive_sink sink = {.arg = &u, .begin = begin_member, .write = write_member, .end = end_member};
    for (size_t i = 0; i < file->part_count && i < LK_ARCHIVE_MAX_MEMBERS; i++)
        members[i] = (lk_archive_member){file->parts[i].member, file->parts[i].content.bytes};
    lk__download_watch_note(&opts->watch, "unpacking %s", path);
    lk_status status = lk__archive_read(path, members, file->part_count, &sink);
    lk__writer_abort(u.writer);
    return status;
}

/* Whether the archive is there already, complete and correct. */
static bool archive_is_right(const lk_source_file *file, const char *path)
{
    lk_checksum_pair sums;
    return lk__file_exists(path) && lk__checksum_file(path, false, SIZE_MAX, &sums) == LK_OK &&
           lk__checksum_check(path, &sums, &file->published) == LK_OK;
}

static lk_status obtain_file(const lk_source *source, const lk_source_file *file, const lk_obtain_opts *opts,
                             lk_obtain_result *done)
{
    bool there = false;
    char path[LK_MAX_PATH];
    LK_TRY(look(source, file, opts, &there));
    if (there)
        return LK_OK;
    LK_TRY(join_path(opts->folder, file->name, path));
    if (!is_archive(file) || !archive_is_right(file, path)) {
        LK_TRY(fetch(source, file, opts, path));
        done->fetched++;
        done->bytes += file->published.bytes;
    }
    if (!is_archive(file))
        return LK_OK;
    LK_TRY(unpack(file, opts, path));
    done->unpacked += file->part_count;
    if (unlink(path) == 0)
        lk__download_watch_note(&opts->watch, "%zu files unpacked; the archive is removed", file->part_count);
    return LK_OK;
}

lk_status lk__obtain(const lk_source *source, const lk_obtain_opts *opts, lk_obtain_result *out)
{
    lk_obtain_result done = {0};
    LK_TRY(lk__checksum_available());
    LK_TRY(make_folder(opts->folder));
    for (size_t i = 0; i < source->file_count; i++)
        LK_TRY(obtain_file(source, &source->files[i], opts, &done));
    *out = done;
    return LK_OK;
}
