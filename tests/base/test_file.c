/* test_file.c - reading plain and gzipped files, and replacing files atomically. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "check.h"
#include "temp_folder.h"

static char folder[TEMP_FOLDER_BYTES], path[TEMP_FOLDER_BYTES + 8];

static int set_up(void **state)
{
    temp_folder_create(folder);
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

static int tear_down(void **state)
{
    unlink(path);
    return rmdir(folder);
}

/* mode as for gzopen: "wbT" plain, "wb" gzip, "ab" another gzip member. */
static void put(const char *mode, const uint8_t *data, size_t bytes)
{
    gzFile file = gzopen(path, mode);
    assert_non_null(file);
    if (bytes > 0)
        assert_int_equal(gzwrite(file, data, (unsigned)bytes), (int)bytes);
    assert_int_equal(gzclose(file), Z_OK);
}

static size_t file_size(void)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return (size_t)info.st_size;
}

static void put_byte(long at, int value)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    assert_int_equal(fputc(value, file), value);
    assert_int_equal(fclose(file), 0);
}

static uint8_t *pattern(size_t bytes)
{
    uint8_t *data = malloc(bytes + 1);
    assert_non_null(data);
    uint32_t x = 1;
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)((x = x * 1664525 + 1013904223) >> 30);
    return data;
}

static void assert_content(size_t max, const uint8_t *data, size_t bytes)
{
    uint8_t *got = NULL;
    size_t got_bytes = 0;
    if (lk__file_read(path, max, &got, &got_bytes) != LK_OK)
        fail_msg("%s", lk_error_detail());
    assert_int_equal(got_bytes, bytes);
    assert_memory_equal(got, data, bytes);
    assert_int_equal((uintptr_t)got % LK_ALIGN, 0);
    lk__mem_free(got);
}

static void refuse(size_t max, lk_status status, const char *part)
{
    uint8_t *got = NULL;
    size_t bytes = 12345;
    assert_int_equal(lk__file_read(path, max, &got, &bytes), status);
    assert_detail(path);
    assert_detail(part);
    assert_null(got);
    assert_int_equal(bytes, 12345);
}

static void reads(void **state)
{
    static const size_t sizes[] = {0, 1, 63, 64, 262143, 262144, 262145, 1000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint8_t *data = pattern(sizes[i]);
        const char *modes[] = {"wbT", "wb"};
        for (size_t m = 0; m < 2; m++) {
            put(modes[m], data, sizes[i]);
            assert_content(0, data, sizes[i]);
            if (sizes[i] > 0)
                assert_content(sizes[i], data, sizes[i]);
            assert_content(sizes[i] + 1, data, sizes[i]);
            if (sizes[i] > 1)
                refuse(sizes[i] - 1, LK_STATUS_FORMAT, "more than");
        }
        free(data);
    }
}

static void members(void **state)
{
    /* The trailer has the size of the last member only, so the buffer has to grow. */
    uint8_t *data = pattern(700000);
    put("wb", data, 300000);
    put("ab", data + 300000, 399990);
    put("ab", data + 699990, 10);
    assert_content(0, data, 700000);
    assert_content(700000, data, 700000);
    refuse(699999, LK_STATUS_FORMAT, "more than");
    free(data);
}

static void damage(void **state)
{
    uint8_t *data = pattern(100000);
    put("wb", data, 100000);
    size_t size = file_size();
    assert_int_equal(truncate(path, (off_t)size - 1), 0);
    refuse(0, LK_STATUS_FORMAT, "ends too early");
    assert_int_equal(truncate(path, (off_t)size / 2), 0);
    refuse(0, LK_STATUS_FORMAT, "ends too early");
    assert_int_equal(truncate(path, 3), 0);
    refuse(0, LK_STATUS_FORMAT, "byte 3");
    put("wb", data, 100000);
    put_byte(-5, 0xaa); /* in the checksum */
    refuse(0, LK_STATUS_FORMAT, "data check");
    put("wb", data, 100000);
    put_byte(-1, 0xff); /* a wrong length of almost 4 GiB must not be allocated */
    refuse(0, LK_STATUS_FORMAT, "length check");
    put("wb", data, 100000);
    put_byte((long)size, 'x');
    refuse(0, LK_STATUS_FORMAT, "something follows");
    free(data);
}

static void missing(void **state)
{
    assert_false(lk__file_exists(path));
    assert_false(lk__file_exists(folder));
    refuse(0, LK_STATUS_NOT_FOUND, "No such file");
    uint8_t *got = NULL;
    size_t bytes;
    assert_fails(lk__file_read(folder, 0, &got, &bytes), LK_STATUS_NOT_FOUND, "directory");
    put("wbT", (const uint8_t *)"x", 1);
    assert_true(lk__file_exists(path));
}

static size_t entries(void)
{
    size_t count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count - 2; /* "." and ".." */
}

static void writes(void **state)
{
    uint8_t *data = pattern(100000);
    put("wbT", (const uint8_t *)"old", 3);
    lk_writer *writer = NULL;
    assert_int_equal(lk__writer_open(path, &writer), LK_OK);
    assert_int_equal(lk__writer_write(writer, data, 10), LK_OK);
    assert_int_equal(lk__writer_write(writer, data + 10, 99990), LK_OK);
    assert_int_equal(lk__writer_write(writer, data, 0), LK_OK);
    assert_content(0, (const uint8_t *)"old", 3);
    assert_int_equal(lk__writer_commit(writer), LK_OK);
    assert_content(0, data, 100000);
    assert_int_equal(entries(), 1);
    free(data);
}

static void aborts(void **state)
{
    put("wbT", (const uint8_t *)"old", 3);
    lk_writer *one = NULL, *two = NULL;
    assert_int_equal(lk__writer_open(path, &one), LK_OK);
    assert_int_equal(lk__writer_open(path, &two), LK_OK);
    assert_int_equal(lk__writer_write(one, "new", 3), LK_OK);
    assert_int_equal(entries(), 3);
    lk__writer_abort(one);
    lk__writer_abort(two);
    lk__writer_abort(NULL);
    assert_int_equal(entries(), 1);
    assert_content(0, (const uint8_t *)"old", 3);
}

static void bad_targets(void **state)
{
    lk_writer *writer = NULL;
    assert_fails(lk__writer_open(folder, &writer), LK_STATUS_USAGE, "not a regular file");
    assert_int_equal(lk__writer_open("/dev/null", &writer), LK_STATUS_USAGE);
    char below[TEMP_FOLDER_BYTES + 32];
    snprintf(below, sizeof below, "%s/none/file", folder);
    assert_fails(lk__writer_open(below, &writer), LK_STATUS_NOT_FOUND, below);
    assert_null(writer);
    assert_int_equal(entries(), 0);
}

/* A commit that fails removes the temporary file. */
static void failed_commit(void **state)
{
    char sub[TEMP_FOLDER_BYTES + 32], file[TEMP_FOLDER_BYTES + 64];
    snprintf(sub, sizeof sub, "%s/sub", folder);
    snprintf(file, sizeof file, "%s/file", sub);
    assert_int_equal(mkdir(sub, 0777), 0);
    lk_writer *writer = NULL;
    assert_int_equal(lk__writer_open(file, &writer), LK_OK);
    assert_int_equal(lk__writer_write(writer, "new", 3), LK_OK);
    /* The final name is taken by a folder with content: rename must fail. */
    char taken[TEMP_FOLDER_BYTES + 96];
    snprintf(taken, sizeof taken, "%s/x", file);
    assert_int_equal(mkdir(file, 0777), 0);
    assert_int_equal(mkdir(taken, 0777), 0);
    assert_fails(lk__writer_commit(writer), LK_STATUS_IO, "left as it was");
    assert_int_equal(rmdir(taken), 0);
    assert_int_equal(rmdir(file), 0);
    assert_int_equal(rmdir(sub), 0);
}

/* Reading byte 0 of a process's memory fails like a read from a failing disk. */
static void failed_read(void **state)
{
    static const char name[] = "/proc/self/mem";
    int fd = open(name, O_RDONLY);
    if (fd < 0)
        skip();
    gzFile file = gzdopen(fd, "rb");
    assert_non_null(file);
    char byte;
    size_t got;
    assert_fails(lk__gzip_read(file, name, &byte, 1, &got), LK_STATUS_IO, "cannot read /proc/self/mem: ");
    gzclose(file);
}

static void folders_are_recognised(void **state)
{
    assert_true(lk__path_is_folder(folder));
    assert_false(lk__path_is_folder(path));
    assert_int_equal(errno, ENOENT);
    put("wbT", (const uint8_t *)"x", 1);
    assert_false(lk__path_is_folder(path));
    assert_int_equal(errno, 0);
    unlink(path);
    assert_int_equal(symlink(folder, path), 0);
    assert_true(lk__path_is_folder(path));
}

/* A file in the place of the folder, or of one of its parents. */
static void folders_are_created(void **state)
{
    char below[sizeof path + 8];
    snprintf(below, sizeof below, "%s/a/b", folder);
    assert_ok(lk__folder_make(below));
    assert_ok(lk__folder_make(below));
    rmdir(below);
    below[strlen(below) - 2] = '\0';
    rmdir(below);
    put("wbT", (const uint8_t *)"x", 1);
    assert_fails(lk__folder_make(path), LK_STATUS_IO, "a file has this name");
    snprintf(below, sizeof below, "%s/b", path);
    assert_fails(lk__folder_make(below), LK_STATUS_IO, "Not a directory");
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
TEST_MAIN(NULL, NULL, CASE(reads), CASE(members), CASE(damage), CASE(missing), CASE(writes), CASE(aborts),
          CASE(bad_targets), CASE(failed_commit), CASE(failed_read), CASE(folders_are_recognised),
          CASE(folders_are_created))
