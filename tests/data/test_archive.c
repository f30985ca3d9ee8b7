/* test_archive.c - .tar.gz files: wanted members are read; damaged and hostile archives are refused with
 * an offset. */
#include "fixture.h"

#include "data/download/archive.h"
#include "tar.h"

enum { ONE = 1500, TWO = 512 };

static folder here;
static tar made;
static uint8_t one[ONE], two[TWO];
static char path[512];

static const lk_archive_member members[] = {{"box/one.bin", ONE}, {"box/two.bin", TWO}};

/* Recorded by the sink. */
static struct {
    uint8_t data[2][ONE];
    size_t bytes[2], current;
    int begun[2], ended[2];
    int calls_until_failure; /* 0: never */
} got;

static lk_status maybe_fail(void)
{
    if (got.calls_until_failure > 0 && --got.calls_until_failure == 0)
        return LK_STATUS_NONFINITE; /* reading never fails with this status */
    return LK_OK;
}

static lk_status on_begin(void *arg, size_t member)
{
    assert_true(member < 2);
    got.current = member;
    got.begun[member]++;
    return maybe_fail();
}

static lk_status on_write(void *arg, const uint8_t *data, size_t bytes)
{
    size_t used = got.bytes[got.current];
    assert_true(bytes > 0 && bytes <= ONE - used);
    memcpy(got.data[got.current] + used, data, bytes);
    got.bytes[got.current] += bytes;
    return maybe_fail();
}

static lk_status on_end(void *arg, size_t member)
{
    assert_int_equal(member, got.current);
    assert_int_equal(got.bytes[member], members[member].bytes);
    got.ended[member]++;
    return maybe_fail();
}

static lk_status read_archive(void)
{
    lk_archive_sink sink = {.begin = on_begin, .write = on_write, .end = on_end};
    int calls = got.calls_until_failure;
    memset(&got, 0, sizeof got);
    got.calls_until_failure = calls;
    return lk__archive_read(path, members, 2, &sink);
}

static int set_up(void **state)
{
    here = folder_create();
    snprintf(path, sizeof path, "%s/box.tar.gz", here.path);
    for (size_t i = 0; i < ONE; i++)
        one[i] = (uint8_t)(i * 7 + i / 13);
    for (size_t i = 0; i < TWO; i++)
        two[i] = (uint8_t)(255 - i);
    made.used = 0;
    got.calls_until_failure = 0;
    return 0;
}

static int tear_down(void **state)
{
    folder_destroy(&here);
    return 0;
}

static void store(void)
{
    put(&here, "box.tar.gz", made.bytes, made.used);
}

static void make_right(void)
{
    tar_header(&made, "box/", '5', 0);
    tar_add(&made, "box/readme.txt", "words", 5);
    tar_add(&made, "box/two.bin", two, TWO);
    tar_add(&made, "box/one.bin", one, ONE);
    tar_end(&made);
}

static void assert_right(void)
{
    assert_ok(read_archive());
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(got.begun[i], 1);
        assert_int_equal(got.ended[i], 1);
    }
    assert_memory_equal(got.data[0], one, ONE);
    assert_memory_equal(got.data[1], two, TWO);
}

static void assert_refused(const char *why)
{
    assert_fails(read_archive(), LK_STATUS_FORMAT, "box.tar.gz: ");
    assert_detail("byte ");
    assert_detail(why);
}

/* Stores the archive under construction, which is refused, and starts a new one. */
static void assert_made_refused(const char *why)
{
    store();
    assert_refused(why);
    made.used = 0;
}

static void wanted_members_are_read(void **state)
{
    make_right();
    store();
    assert_right();
}

static void ways_to_write_tar_are_understood(void **state)
{
    /* A prefix field, GNU's magic with "./", and old headers without magic. */
    uint8_t *header = tar_add(&made, "one.bin", one, ONE);
    snprintf((char *)header + 345, 155, "box");
    tar_seal(header);
    tar_header(&made, "attributes", 'x', 20);
    memset(made.bytes + made.used, ' ', TAR_BLOCK);
    made.used += TAR_BLOCK;
    header = tar_add(&made, "./box/two.bin", two, TWO);
    memcpy(header + 257, "ustar  ", 8);
    tar_seal(header);
    size_t end = made.used;
    tar_end(&made);
    store();
    assert_right();
    memset(header + 257, 0, 8);
    header[156] = 0;
    tar_seal(header);
    store();
    assert_right();
    /* Some programs write no end blocks. */
    made.used = end;
    store();
    assert_right();
}

static void other_names_are_never_asked_for(void **state)
{
    tar_add(&made, "../box/one.bin", two, TWO);
    tar_add(&made, "/box/one.bin", two, TWO);
    tar_add(&made, "box/one.bin/../two.bin", two, TWO);
    tar_add(&made, "box/../../../../etc/passwd", two, TWO);
    uint8_t *link = tar_header(&made, "box", '2', 0);
    snprintf((char *)link + 157, 100, "/etc");
    tar_seal(link);
    make_right();
    store();
    assert_right();
}

static void failing_sink_ends_it(void **state)
{
    make_right();
    store();
    for (int calls = 1; calls <= 6; calls++) {
        got.calls_until_failure = calls;
        assert_int_equal(read_archive(), LK_STATUS_NONFINITE);
    }
}

static void every_truncation_is_refused(void **state)
{
    make_right();
    store();
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    for (off_t bytes = info.st_size - 1; bytes >= 0; bytes -= bytes > 40 ? 17 : 1) {
        assert_int_equal(truncate(path, bytes), 0);
        assert_refused("");
    }
    /* The inflated archive is truncated inside members. */
    size_t whole = made.used;
    for (made.used = whole - 3 * TAR_BLOCK; made.used > 0; made.used -= 256) {
        store();
        assert_refused("");
    }
}

static void every_header_byte_counts(void **state)
{
    make_right();
    for (size_t i = 0; i < TAR_BLOCK; i++) {
        if (i == 155) /* the last byte of the checksum field, which is not part of the number */
            continue;
        made.bytes[i] ^= 0x41;
        store();
        made.bytes[i] ^= 0x41;
        assert_refused("a header with a wrong checksum at byte 0 ");
    }
    size_t second = TAR_BLOCK;
    made.bytes[second] ^= 1;
    store();
    assert_refused("at byte 512 of the inflated archive");
}

static void damaged_gzip_is_refused(void **state)
{
    make_right();
    store();
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    /* The checksum of the inflated data, at the end. */
    assert_int_equal(fseek(file, (long)info.st_size - 8, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, (long)info.st_size - 8, SEEK_SET), 0);
    fputc(byte ^ 1, file);
    assert_int_equal(fclose(file), 0);
    assert_refused("damaged gzip data near byte ");
}

static void plain_file_is_no_archive(void **state)
{
    make_right();
    put(&here, "plain", made.bytes, made.used);
    snprintf(path, sizeof path, "%s/plain", here.path);
    assert_fails(read_archive(), LK_STATUS_FORMAT, "plain: byte 0 does not begin gzip data");
    snprintf(path, sizeof path, "%s", here.path);
    assert_int_equal(read_archive(), LK_STATUS_FORMAT);
    snprintf(path, sizeof path, "%s/none", here.path);
    assert_int_equal(read_archive(), LK_STATUS_NOT_FOUND);
}

static void wrong_members_are_refused(void **state)
{
    tar_add(&made, "box/one.bin", one, ONE - 1);
    tar_end(&made);
    assert_made_refused("box/one.bin (byte 0 of the inflated archive) has 1499 bytes, not 1500");
    tar_add(&made, "box/one.bin", one, ONE);
    tar_add(&made, "box/one.bin", one, ONE);
    tar_end(&made);
    assert_made_refused("box/one.bin is there a second time (byte 2048 ");
    tar_header(&made, "box/one.bin", '2', 0);
    tar_end(&made);
    assert_made_refused("box/one.bin (byte 0 of the inflated archive) is no regular file");
    tar_add(&made, "box/one.bin", one, ONE);
    tar_end(&made);
    assert_made_refused("box/two.bin is missing");
    assert_int_equal(got.ended[0], 1);
}

static void wrong_sizes_are_refused(void **state)
{
    tar_header(&made, "huge", '0', (size_t)1 << 32);
    make_right();
    assert_made_refused("more than such an archive can hold at byte 124 ");
    uint8_t *header = tar_header(&made, "large", '0', 0);
    header[124] = 0x80; /* a binary number */
    tar_seal(header);
    make_right();
    assert_made_refused("a size that is no octal number at byte 124 ");
    header = tar_header(&made, "minus", '0', 0);
    snprintf((char *)header + 124, 12, "-0000000001");
    tar_seal(header);
    make_right();
    assert_made_refused("a size that is no octal number");
    tar_header(&made, "longer", '0', 100000);
    make_right();
    assert_made_refused("ends inside a member");
}

static void endless_filling_is_refused(void **state)
{
    static uint8_t zeros[1 << 20];
    make_right();
    gzFile file = gzopen(path, "wb1");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, made.bytes, (unsigned)made.used), (int)made.used);
    for (int i = 0; i < 66; i++)
        assert_int_equal(gzwrite(file, zeros, sizeof zeros), (int)sizeof zeros);
    assert_int_equal(gzclose(file), Z_OK);
    assert_refused("more than such an archive can hold");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
TEST_MAIN(NULL, NULL, CASE(wanted_members_are_read), CASE(ways_to_write_tar_are_understood),
          CASE(other_names_are_never_asked_for), CASE(failing_sink_ends_it), CASE(every_truncation_is_refused),
          CASE(every_header_byte_counts), CASE(damaged_gzip_is_refused), CASE(plain_file_is_no_archive),
          CASE(wrong_members_are_refused), CASE(wrong_sizes_are_refused), CASE(endless_filling_is_refused))
