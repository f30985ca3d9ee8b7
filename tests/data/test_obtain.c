/* test_obtain.c - whole data sets: downloaded, unpacked, kept when they are right, repaired when they are
 * not; and the table of published files. */
#include "fixture.h"

#include <ctype.h>

#include "data/download/obtain.h"
#include "fetching.h"
#include "tar.h"

enum { ONE = 3000, TWO = 700 };

static folder here; /* has served/, and got/ after a download */
static http_server server;
static char target[512];
static tar made;
static uint8_t one[ONE], two[TWO];
static char notes[4096];
static bool stop;

/* Two data sets: two gzipped files, and one archive of two files. set_up fills in the checksums. */
static lk_checksum_pair content_sums[2], download_sums[3];
static lk_source_part plain_parts[] = {{NULL, "one", "o.ne", {ONE, NULL, NULL}},
                                       {NULL, "two", NULL, {TWO, NULL, NULL}}};
static lk_source_part packed_parts[] = {{"box/one", "one", NULL, {ONE, NULL, NULL}},
                                        {"box/two", "two", NULL, {TWO, NULL, NULL}}};
static lk_source_file plain_files[] = {{"one.gz", {0}, &plain_parts[0], 1}, {"two.gz", {0}, &plain_parts[1], 1}};
static lk_source_file packed_files[] = {{"box.tar.gz", {0}, packed_parts, 2}};
static const lk_source plain = {.name = "plain", .folder = "plain", .files = plain_files, .file_count = 2};
static const lk_source packed = {.name = "packed", .folder = "packed", .files = packed_files, .file_count = 1};

static void on_note(void *arg, const char *text)
{
    size_t used = strlen(notes);
    snprintf(notes + used, sizeof notes - used, "%s\n", text);
}

static bool on_progress(void *arg, const char *file, size_t have, size_t total)
{
    assert_true(have <= total);
    return !stop;
}

static void full_path(char *out, const char *name)
{
    snprintf(out, 512, "%s/%s", here.path, name);
}

static void sum_up(const char *name, bool content, lk_checksum_pair *sums)
{
    char path[512];
    full_path(path, name);
    assert_ok(lk__checksum_file(path, content, 1 << 20, sums));
}

static int set_up(void **state)
{
    char root[512];
    here = folder_create();
    for (size_t i = 0; i < ONE; i++)
        one[i] = (uint8_t)(i * 3 + i / 11);
    for (size_t i = 0; i < TWO; i++)
        two[i] = (uint8_t)(i * 5);
    put(&here, "served/one.gz", one, ONE);
    put(&here, "served/two.gz", two, TWO);
    made.used = 0;
    tar_add(&made, "box/one", one, ONE);
    tar_add(&made, "box/evil", one, ONE);
    tar_add(&made, "box/two", two, TWO);
    tar_end(&made);
    put(&here, "served/box.tar.gz", made.bytes, made.used);
    static const char *const names[] = {"served/one.gz", "served/two.gz", "served/box.tar.gz"};
    lk_source_file *const files[] = {&plain_files[0], &plain_files[1], &packed_files[0]};
    for (size_t i = 0; i < 3; i++) {
        sum_up(names[i], false, &download_sums[i]);
        files[i]->published =
            (lk_checksum_published){download_sums[i].bytes, download_sums[i].md5, download_sums[i].sha256};
    }
    for (size_t i = 0; i < 2; i++) {
        sum_up(names[i], true, &content_sums[i]);
        plain_parts[i].content.sha256 = packed_parts[i].content.sha256 = content_sums[i].sha256;
    }
    full_path(root, "served");
    assert_true(http_start(&server, root));
    full_path(target, "got/deep/er");
    *notes = '\0';
    stop = false;
    return 0;
}

static int tear_down(void **state)
{
    http_stop(&server);
    folder_destroy(&here);
    return 0;
}

static lk_status obtain(const lk_source *source, lk_obtain_result *done)
{
    lk_obtain_opts opts = {.folder = target,
                           .server = server.url,
                           .limits = {5, 10, .01, 0},
                           .watch = {.progress = on_progress, .note = on_note}};
    *notes = '\0';
    return lk__obtain(source, &opts, done);
}

static bool in_target(const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", target, name);
    return access(path, F_OK) == 0;
}

/* Counts of the verdicts, and the detail of the first failure. */
static struct {
    int right, wrong, remarks;
    char first[2048];
} seen;

static void on_verdict(void *arg, const lk_obtain_verdict *verdict)
{
    assert_contains(verdict->path, "/got/deep/er/");
    seen.remarks += *verdict->remark != '\0';
    if (verdict->status == LK_OK)
        seen.right++;
    else if (seen.wrong++ == 0)
        snprintf(seen.first, sizeof seen.first, "%s", lk_error_detail());
}

static void assert_verified(const lk_source *source, int right, int wrong)
{
    bool all = false;
    memset(&seen, 0, sizeof seen);
    assert_ok(lk__source_verify(source, target, on_verdict, NULL, &all));
    assert_int_equal(seen.right, right);
    assert_int_equal(seen.wrong, wrong);
    assert_int_equal(all, wrong == 0);
}

static void files_are_fetched_once(void **state)
{
    lk_obtain_result done = {0};
    assert_ok(obtain(&plain, &done));
    assert_int_equal(done.fetched, 2);
    assert_int_equal(done.unpacked, 0);
    assert_int_equal(done.bytes, download_sums[0].bytes + download_sums[1].bytes);
    assert_true(in_target("one.gz") && in_target("two.gz"));
    assert_verified(&plain, 2, 0);
    assert_int_equal(seen.remarks, 0);
    http_set(&server, (http_faults){0});
    assert_ok(obtain(&plain, &done));
    assert_int_equal(done.fetched, 0);
    assert_int_equal(http_requests(&server), 0);
}

static void archive_is_unpacked_and_removed(void **state)
{
    lk_obtain_result done = {0};
    assert_ok(obtain(&packed, &done));
    assert_int_equal(done.fetched, 1);
    assert_int_equal(done.unpacked, 2);
    assert_true(in_target("one") && in_target("two"));
    assert_false(in_target("box.tar.gz") || in_target("box.tar.gz.part") || in_target("evil"));
    assert_contains(notes, "the archive is removed");
    assert_verified(&packed, 2, 0);
    http_set(&server, (http_faults){0});
    assert_ok(obtain(&packed, &done));
    assert_int_equal(done.fetched + done.unpacked, 0);
    assert_int_equal(http_requests(&server), 0);
}

static void archive_that_is_there_needs_no_server(void **state)
{
    lk_obtain_result done = {0};
    put(&here, "got/deep/er/box.tar.gz", made.bytes, made.used);
    http_set(&server, (http_faults){.refusals = -1, .status = 404});
    assert_ok(obtain(&packed, &done));
    assert_int_equal(done.fetched, 0);
    assert_int_equal(done.unpacked, 2);
    assert_verified(&packed, 2, 0);
}

static void damaged_files_are_repaired(void **state)
{
    lk_obtain_result done = {0};
    assert_ok(obtain(&packed, &done));
    put(&here, "got/deep/er/two", one, TWO);
    assert_verified(&packed, 1, 1);
    assert_contains(seen.first, "two: wrong SHA-256 sum: expected ");
    assert_ok(obtain(&packed, &done));
    assert_int_equal(done.unpacked, 2);
    assert_contains(notes, "it is downloaded again");
    assert_verified(&packed, 2, 0);
    cut(&here, "got/deep/er/one", ONE - 1);
    assert_verified(&packed, 1, 1);
    assert_contains(seen.first, "one: ends at byte 2999, and 3000 bytes are expected");
}

static void only_what_is_missing_is_fetched(void **state)
{
    lk_obtain_result done = {0};
    assert_ok(obtain(&plain, &done));
    cut(&here, "got/deep/er/two.gz", 50);
    assert_verified(&plain, 1, 1);
    assert_ok(obtain(&plain, &done));
    assert_int_equal(done.fetched, 1);
    assert_verified(&plain, 2, 0);
}

static void other_forms_of_a_file_are_right(void **state)
{
    char path[512];
    /* One file is plain under its other name, the other is compressed at another level. */
    put(&here, "got/deep/er/o.ne", one, ONE);
    full_path(path, "got/deep/er/two.gz");
    gzFile file = gzopen(path, "wb1h");
    assert_int_equal(gzwrite(file, two, TWO), TWO);
    assert_int_equal(gzclose(file), Z_OK);
    assert_verified(&plain, 2, 0);
    assert_int_equal(seen.remarks, 1);
    lk_obtain_result done = {0};
    assert_ok(obtain(&plain, &done));
    assert_int_equal(http_requests(&server), 0);
}

static void plain_file_with_other_content_is_reported(void **state)
{
    lk_obtain_result done = {0};
    put(&here, "got/deep/er/one", two, TWO);
    assert_fails(obtain(&plain, &done), LK_STATUS_MISMATCH, "er/one: ends at byte 700");
    assert_detail("in place of one.gz: move it away");
    assert_int_equal(http_requests(&server), 0);
}

static void missing_files_are_reported(void **state)
{
    assert_verified(&plain, 0, 2);
    assert_contains(seen.first, "er/one is missing");
}

static void interrupted_unpacking_can_resume(void **state)
{
    lk_obtain_result done = {0};
    put(&here, "got/deep/er/box.tar.gz", made.bytes, made.used);
    stop = true;
    assert_fails(obtain(&packed, &done), LK_STATUS_IO, "interrupted while unpacking box.tar.gz");
    assert_true(in_target("box.tar.gz"));
    assert_false(in_target("one") || in_target("two"));
    stop = false;
    assert_ok(obtain(&packed, &done));
    assert_verified(&packed, 2, 0);
}

static void folder_that_cannot_be_created_is_reported(void **state)
{
    lk_obtain_result done = {0};
    put(&here, "got", "x", 1);
    assert_fails(obtain(&plain, &done), LK_STATUS_IO, "cannot create the folder");
    full_path(target, "got");
    assert_fails(obtain(&plain, &done), LK_STATUS_IO, "got: a file has this name");
    assert_int_equal(http_requests(&server), 0);
}

static void folders_are_where_training_looks(void **state)
{
    char path[LK_MAX_PATH];
    const lk_source *mnist = lk__source_find("mnist");
    assert_ok(lk__source_folder(mnist, "d", path));
    assert_string_equal(path, "d/mnist");
    setenv("XDG_CACHE_HOME", "/c", 1);
    setenv("HOME", "/h", 1);
    assert_ok(lk__source_folder(mnist, NULL, path));
    assert_string_equal(path, "/c/lockstep/mnist");
    setenv("XDG_CACHE_HOME", "", 1);
    assert_ok(lk__source_folder(mnist, NULL, path));
    assert_string_equal(path, "/h/.cache/lockstep/mnist");
    unsetenv("HOME");
    assert_fails(lk__source_folder(mnist, NULL, path), LK_STATUS_USAGE, "`data_dir`");
}

static void assert_hexadecimal(const char *sum, size_t digits)
{
    assert_int_equal(strlen(sum), digits);
    for (const char *c = sum; *c; c++)
        assert_true(isdigit((unsigned char)*c) || (*c >= 'a' && *c <= 'f'));
}

static void check_source(const lk_source *source)
{
    assert_true(source->file_count > 0);
    assert_non_null(source->servers[0]);
    for (size_t i = 0; i < LK_SOURCE_MAX_SERVERS && source->servers[i]; i++)
        assert_int_equal(source->servers[i][strlen(source->servers[i]) - 1], '/');
    for (size_t i = 0; i < source->file_count; i++) {
        const lk_source_file *file = &source->files[i];
        assert_hexadecimal(file->published.md5, 32);
        assert_hexadecimal(file->published.sha256, 64);
        assert_true(file->published.bytes > 0 && file->part_count > 0 && file->part_count <= 16);
        for (size_t p = 0; p < file->part_count; p++) {
            assert_hexadecimal(file->parts[p].content.sha256, 64);
            assert_null(strchr(file->parts[p].file, '/'));
            /* A gzipped file must be found under the name of its download. */
            if (file->parts[p].member == NULL)
                assert_memory_equal(file->name, file->parts[p].file, strlen(file->parts[p].file));
        }
    }
}

static void table_is_sound(void **state)
{
    const lk_dataset_row *row;
    int sources = 0;
    for (size_t i = 0; (row = lk_dataset_list(i)) != NULL; i++) {
        const lk_source *source = lk__source_find(row->name);
        if (source != NULL)
            check_source(source);
        else
            assert_true(*lk__source_hint(row->name));
        sources += source != NULL;
    }
    assert_true(sources >= 3);
    assert_null(lk__source_find("digits"));
    assert_null(lk__source_find("no such"));
}

int main(void)
{
    return run_fetching_tests(TESTS(CASE(files_are_fetched_once), CASE(archive_is_unpacked_and_removed),
                                    CASE(archive_that_is_there_needs_no_server), CASE(damaged_files_are_repaired),
                                    CASE(only_what_is_missing_is_fetched), CASE(other_forms_of_a_file_are_right),
                                    CASE(plain_file_with_other_content_is_reported), CASE(missing_files_are_reported),
                                    CASE(interrupted_unpacking_can_resume),
                                    CASE(folder_that_cannot_be_created_is_reported),
                                    CASE(folders_are_where_training_looks), TEST(table_is_sound)));
}
