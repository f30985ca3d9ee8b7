/* test_download.c - downloads from a server of the test: whole, resumed, cut, refused, wrong, stalled,
 * stopped. */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>

#include "data/download/download.h"
#include "fetching.h"
#include "processes.h"

enum { BYTES = 300000 };

static folder here; /* has served/, mirror/ and got/ */
static http_server server, mirror;
static uint8_t content[BYTES];
static lk_checksum_pair sums;
static char path[512], part[520];

/* Recorded by the callbacks. */
static size_t last_have, stop_at;
static int notes;

static bool on_progress(void *arg, const char *file, size_t have, size_t total)
{
    assert_string_equal(file, "file.gz");
    assert_true(have <= total);
    assert_int_equal(total, BYTES);
    last_have = have;
    return stop_at == 0 || have < stop_at;
}

static void on_note(void *arg, const char *text)
{
    assert_true(*text);
    notes++;
}

static int set_up(void **state)
{
    static const char *const folders[] = {"served", "mirror", "got"};
    http_server *const servers[] = {&server, &mirror, NULL};
    here = folder_create();
    for (size_t i = 0; i < BYTES; i++)
        content[i] = (uint8_t)(i * i / 97 + i);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", here.path, folders[i]);
        assert_int_equal(mkdir(path, 0777), 0);
        assert_true(!servers[i] || http_start(servers[i], path));
        snprintf(path, sizeof path, "%s/%s/file.gz", here.path, folders[i]);
        if (servers[i])
            temp_write(path, content, BYTES);
    }
    snprintf(part, sizeof part, "%s/served/file.gz", here.path);
    assert_ok(lk__checksum_file(part, false, SIZE_MAX, &sums));
    snprintf(part, sizeof part, "%s.part", path);
    last_have = stop_at = 0;
    notes = 0;
    return 0;
}

static int tear_down(void **state)
{
    http_stop(&server);
    http_stop(&mirror);
    folder_destroy(&here);
    return 0;
}

static bool exists(const char *name)
{
    return access(name, F_OK) == 0;
}

static size_t size_of(const char *name)
{
    struct stat info;
    assert_int_equal(stat(name, &info), 0);
    return (size_t)info.st_size;
}

static void put_part(const uint8_t *data, size_t bytes)
{
    temp_write(part, data, bytes);
}

/* Replaces the server's file. */
static void serve(const uint8_t *data, size_t bytes)
{
    char name[512];
    snprintf(name, sizeof name, "%s/served/file.gz", here.path);
    temp_write(name, data, bytes);
}

/* servers 1: from the server only, 2: the mirror is the second choice. */
static lk_status download_with(int servers, lk_download_limits limits)
{
    char urls[2][128];
    snprintf(urls[0], sizeof urls[0], "%sfolder/file.gz", server.url);
    snprintf(urls[1], sizeof urls[1], "%sfile.gz", mirror.url);
    lk_download download = {.urls = {urls[0], servers > 1 ? urls[1] : NULL},
                            .path = path,
                            .published = {.bytes = BYTES, .md5 = sums.md5, .sha256 = sums.sha256},
                            .limits = limits,
                            .watch = {.progress = on_progress, .note = on_note}};
    return lk__download(&download);
}

static lk_status download(int servers)
{
    return download_with(servers, (lk_download_limits){5, 10, .01, 3});
}

static void assert_downloaded(int servers)
{
    assert_ok(download(servers));
    uint8_t *back = malloc(BYTES + 1);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(back, 1, BYTES + 1, file), BYTES);
    fclose(file);
    assert_memory_equal(back, content, BYTES);
    free(back);
    assert_false(exists(part));
}

static void assert_nothing(void)
{
    assert_false(exists(path));
    assert_false(exists(part));
}

static void sums_are_those_of_the_standards(void **state)
{
    lk_checksum *sum = NULL;
    lk_checksum_pair found;
    assert_ok(lk__checksum_create(&sum));
    assert_ok(lk__checksum_add(sum, "a", 1));
    assert_ok(lk__checksum_add(sum, "bc", 2));
    assert_ok(lk__checksum_finish(sum, &found));
    lk__checksum_destroy(sum);
    assert_int_equal(found.bytes, 3);
    assert_string_equal(found.md5, "900150983cd24fb0d6963f7d28e17f72");
    assert_string_equal(found.sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void sums_of_content_look_through_gzip(void **state)
{
    char name[512];
    lk_checksum_pair found;
    put(&here, "same.gz", content, BYTES);
    snprintf(name, sizeof name, "%s/same.gz", here.path);
    assert_ok(lk__checksum_file(name, true, BYTES, &found));
    assert_string_equal(found.md5, sums.md5);
    assert_int_equal(found.bytes, BYTES);
    assert_ok(lk__checksum_file(name, false, SIZE_MAX, &found));
    assert_string_not_equal(found.md5, sums.md5);
    /* At most one byte more than the limit is read. */
    assert_ok(lk__checksum_file(name, true, 100, &found));
    assert_int_equal(found.bytes, 101);
    /* A wrong checksum at the end of the gzip data. */
    int fd = open(name, O_RDWR);
    assert_int_equal(pwrite(fd, "wrong", 4, (off_t)size_of(name) - 8), 4);
    close(fd);
    assert_fails(lk__checksum_file(name, true, BYTES, &found), LK_STATUS_FORMAT,
                 "same.gz: damaged gzip data near byte ");
    assert_detail(" (incorrect data check)");
    cut(&here, "same.gz", 1000);
    assert_fails(lk__checksum_file(name, true, BYTES, &found), LK_STATUS_FORMAT, "same.gz: damaged gzip data");
}

static void whole_file_arrives(void **state)
{
    assert_downloaded(1);
    assert_int_equal(http_requests(&server), 1);
    assert_int_equal(http_last_range(&server), 0);
    assert_true(last_have > 0);
}

static void part_is_resumed(void **state)
{
    put_part(content, 123456);
    assert_downloaded(1);
    assert_int_equal(http_requests(&server), 1);
    assert_int_equal(http_last_range(&server), 123456);
}

static void whole_part_needs_no_server(void **state)
{
    put_part(content, BYTES);
    assert_downloaded(1);
    assert_int_equal(http_requests(&server), 0);
}

static void server_without_ranges_sends_all(void **state)
{
    put_part(content + 7, 1000); /* the file is wrong if this part is kept */
    http_set(&server, (http_faults){.no_ranges = true});
    assert_downloaded(1);
    assert_int_equal(http_requests(&server), 1);
    assert_int_equal(notes, 2);
}

static void other_range_is_not_taken(void **state)
{
    put_part(content, 1000);
    http_set(&server, (http_faults){.shifted_ranges = true});
    assert_downloaded(1);
    assert_int_equal(http_requests(&server), 2);
    assert_int_equal(http_last_range(&server), 0);
}

static void part_of_another_file_is_discarded(void **state)
{
    uint8_t other[5000] = {1, 2, 3};
    put_part(other, sizeof other);
    assert_downloaded(1);
    assert_int_equal(http_requests(&server), 2);
    /* A wrong part that is whole, and a part that is too long. */
    assert_int_equal(unlink(path), 0);
    uint8_t *flipped = malloc(BYTES + 1);
    memcpy(flipped, content, BYTES);
    flipped[BYTES - 1] ^= 1;
    flipped[BYTES] = 0;
    put_part(flipped, BYTES);
    assert_downloaded(1);
    assert_int_equal(unlink(path), 0);
    put_part(flipped, BYTES + 1);
    assert_downloaded(1);
    free(flipped);
}

static void cut_connections_are_resumed(void **state)
{
    http_set(&server, (http_faults){.cuts = -1, .cut_after = 40000});
    assert_downloaded(1);
    assert_int_equal(http_requests(&server), (BYTES + 39999) / 40000);
    assert_int_equal(http_last_range(&server), BYTES / 40000 * 40000);
}

static void cut_without_a_length_is_seen(void **state)
{
    http_set(&server, (http_faults){.cuts = 1, .cut_after = 40000, .no_length = true});
    assert_downloaded(1);
    assert_int_equal(http_requests(&server), 2);
}

static void tiny_pieces_count_as_failures(void **state)
{
    http_set(&server, (http_faults){.cuts = -1, .cut_after = 100});
    assert_fails(download(1), LK_STATUS_IO, "400 of 300000 bytes are in ");
    assert_detail("run the same command again");
    assert_int_equal(http_requests(&server), 4);
    assert_false(exists(path));
    assert_int_equal(size_of(part), 400);
    http_set(&server, (http_faults){0});
    assert_downloaded(1);
    assert_int_equal(http_last_range(&server), 400);
}

static void missing_file_is_reported(void **state)
{
    http_set(&server, (http_faults){.refusals = -1, .status = 404});
    assert_fails(download(1), LK_STATUS_IO, "folder/file.gz: the server answers 404");
    assert_int_equal(http_requests(&server), 1);
    assert_nothing();
}

static void mirror_is_used(void **state)
{
    http_set(&server, (http_faults){.refusals = -1, .status = 404});
    assert_downloaded(2);
    assert_int_equal(http_requests(&mirror), 1);
    /* The mirror resumes the download that the server began. */
    assert_int_equal(unlink(path), 0);
    http_set(&server, (http_faults){.cuts = -1, .cut_after = 1000});
    http_set(&mirror, (http_faults){0});
    assert_downloaded(2);
    assert_int_equal(http_last_range(&mirror), 1000);
}

static void busy_server_is_retried(void **state)
{
    http_set(&server, (http_faults){.refusals = 3, .status = 503});
    assert_downloaded(1);
    assert_int_equal(http_requests(&server), 4);
    assert_int_equal(unlink(path), 0);
    http_set(&server, (http_faults){.refusals = -1, .status = 500});
    assert_fails(download(1), LK_STATUS_IO, "answers 500");
    assert_int_equal(http_requests(&server), 4);
    assert_nothing();
}

static void redirects_are_followed(void **state)
{
    http_faults faults = {0};
    snprintf(faults.redirect, sizeof faults.redirect, "%selsewhere/", mirror.url);
    http_set(&server, faults);
    put_part(content, 5000);
    assert_downloaded(1);
    assert_int_equal(http_last_range(&mirror), 5000);
    /* Redirections in a circle and to a file of this host are not followed. */
    assert_int_equal(unlink(path), 0);
    snprintf(faults.redirect, sizeof faults.redirect, "%s", server.url);
    http_set(&server, faults);
    assert_int_equal(download(1), LK_STATUS_IO);
    assert_int_equal(http_requests(&server), 6);
    snprintf(faults.redirect, sizeof faults.redirect, "file:///etc/");
    http_set(&server, faults);
    assert_int_equal(download(1), LK_STATUS_IO);
    assert_nothing();
}

static void wrong_bytes_are_removed(void **state)
{
    uint8_t *wrong = malloc(BYTES);
    memcpy(wrong, content, BYTES);
    wrong[1000] ^= 4;
    serve(wrong, BYTES);
    free(wrong);
    assert_fails(download(1), LK_STATUS_MISMATCH, "got/file.gz: wrong MD5 sum: expected ");
    assert_detail(sums.md5);
    assert_detail("found ");
    assert_nothing();
    assert_int_equal(http_requests(&server), 1);
    assert_downloaded(2);
}

static void wrong_sizes_are_refused(void **state)
{
    uint8_t *longer = calloc(1, BYTES + 10);
    serve(longer, BYTES + 10);
    assert_fails(download(1), LK_STATUS_MISMATCH, "has 300010 bytes there, and 300000 are expected");
    http_set(&server, (http_faults){.no_length = true});
    assert_fails(download(1), LK_STATUS_MISMATCH, "more than 300000");
    serve(longer, BYTES - 10);
    http_set(&server, (http_faults){0});
    assert_fails(download(1), LK_STATUS_MISMATCH, "has 299990 bytes");
    free(longer);
    assert_nothing();
    /* A server with a wrong size does not make the part useless. */
    put_part(content, 777);
    assert_int_equal(download(1), LK_STATUS_MISMATCH);
    assert_int_equal(size_of(part), 777);
    assert_downloaded(2);
}

static void stalled_server_is_abandoned(void **state)
{
    http_set(&server, (http_faults){.stalls = -1, .stall_after = 2000});
    assert_fails(download_with(1, (lk_download_limits){5, 2, .01, 0}), LK_STATUS_IO, "nothing has come for 2 seconds");
    assert_detail("2000 of 300000 bytes are in ");
    assert_detail("run the same command again");
    assert_int_equal(size_of(part), 2000);
    assert_false(exists(path));
    http_set(&server, (http_faults){0});
    assert_downloaded(1);
    assert_int_equal(http_last_range(&server), 2000);
}

static void stopped_download_can_resume(void **state)
{
    http_set(&server, (http_faults){.stalls = 1, .stall_after = 9000});
    stop_at = 9000;
    assert_int_equal(download(1), LK_STATUS_IO);
    assert_detail("interrupted; 9000 of 300000 bytes are in ");
    assert_int_equal(size_of(part), 9000);
    stop_at = 0;
    assert_downloaded(1);
    assert_int_equal(http_last_range(&server), 9000);
}

static void stopped_while_waiting_to_retry(void **state)
{
    put_part(content, 100);
    http_set(&server, (http_faults){.refusals = -1, .status = 503});
    stop_at = 1;
    assert_fails(download_with(1, (lk_download_limits){5, 10, 1000, 3}), LK_STATUS_IO, "interrupted");
    assert_int_equal(size_of(part), 100);
}

static void no_server_is_reported(void **state)
{
    http_server gone;
    assert_true(http_start(&gone, here.path));
    http_stop(&gone);
    snprintf(server.url, sizeof server.url, "%s", gone.url);
    assert_fails(download(1), LK_STATUS_IO, gone.url);
    assert_detail("nothing of it was kept");
    assert_nothing();
}

static void two_downloads_do_not_mix(void **state)
{
    put_part(content, 10);
    int fd = open(part, O_RDWR);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    assert_fails(download(1), LK_STATUS_IO, "another process");
    assert_int_equal(size_of(part), 10);
    close(fd);
    assert_downloaded(1);
}

/* Other downloads that fail at once: each locks a part and removes it, by the rules of a download, until
 * the process is killed. */
static void fail_repeatedly(int number, void *arg)
{
    for (;;) {
        struct stat own, named;
        int fd = open(part, O_RDWR | O_CREAT, 0666);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &own) == 0 && stat(part, &named) == 0 &&
            own.st_ino == named.st_ino)
            unlink(part);
        close(fd);
    }
}

/* Another download may remove a part between this download's open and its lock. */
static void lost_part_is_not_written_into(void **state)
{
    pid_t peer = process_start(fail_repeatedly, 0, NULL);
    lk_status status = LK_OK;
    for (int i = 0; i < 300 && status == LK_OK; i++) {
        status = download(1);
        if (status == LK_STATUS_IO && strstr(lk_error_detail(), "another process"))
            status = LK_OK;
    }
    assert_int_equal(kill(peer, SIGKILL), 0);
    assert_int_equal(process_wait(peer), 128 + SIGKILL);
    assert_ok(status);
    assert_downloaded(1);
}

static void full_disk_leaves_no_file(void **state)
{
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 100000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    lk_status status = download(1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_fails(status, LK_STATUS_IO, "cannot write ");
    assert_detail("make room");
    assert_false(exists(path));
    assert_downloaded(1);
    assert_int_equal(http_last_range(&server), 100000);
}

static void missing_folder_is_reported(void **state)
{
    snprintf(path, sizeof path, "%s/served/file.gz/below", here.path);
    assert_fails(download(1), LK_STATUS_IO, "below.part");
    assert_int_equal(http_requests(&server), 0);
}

int main(void)
{
    return run_fetching_tests(TESTS(
        CASE(sums_are_those_of_the_standards), CASE(sums_of_content_look_through_gzip), CASE(whole_file_arrives),
        CASE(part_is_resumed), CASE(whole_part_needs_no_server), CASE(server_without_ranges_sends_all),
        CASE(other_range_is_not_taken), CASE(part_of_another_file_is_discarded), CASE(cut_connections_are_resumed),
        CASE(cut_without_a_length_is_seen), CASE(tiny_pieces_count_as_failures), CASE(missing_file_is_reported),
        CASE(mirror_is_used), CASE(busy_server_is_retried), CASE(redirects_are_followed), CASE(wrong_bytes_are_removed),
        CASE(wrong_sizes_are_refused), CASE(stalled_server_is_abandoned), CASE(stopped_download_can_resume),
        CASE(stopped_while_waiting_to_retry), CASE(no_server_is_reported), CASE(two_downloads_do_not_mix),
        CASE(lost_part_is_not_written_into), CASE(full_disk_leaves_no_file), CASE(missing_folder_is_reported)));
}
