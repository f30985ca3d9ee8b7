/* test_events.c - event files: CRC-32C against published vectors, framing, histograms, cutting. */
#include <dirent.h>
#include <float.h>
#include <math.h>

#include "base/file.h"
#include "base/libraries.h"
#include "base/mem.h"
#include "check.h"
#include "record/crc32c.h"
#include "record/events.h"
#include "record/histogram.h"
#include "temp_folder.h"

/* RFC 3720, appendix B.4, and the check value of the CRC catalogues. */
static void test_crc(void **state)
{
    uint8_t bytes[32];
    assert_int_equal(lk__record_crc32c("", 0), 0);
    assert_int_equal(lk__record_crc32c("123456789", 9), 0xe3069283);
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(lk__record_crc32c(bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(lk__record_crc32c(bytes, 32), 0x62a8ab43);
    for (uint8_t i = 0; i < 32; i++)
        bytes[i] = i;
    assert_int_equal(lk__record_crc32c(bytes, 32), 0x46dd794e);
    for (uint8_t i = 0; i < 32; i++)
        bytes[i] = (uint8_t)(31 - i);
    assert_int_equal(lk__record_crc32c(bytes, 32), 0x113fdb5c);
}

/* A record as TensorFlow writes it: the file version at wall time 0. */
static void test_frame(void **state)
{
    uint8_t record[LK_RECORD_FRAME + 24];
    static const char body[] = "\x09\0\0\0\0\0\0\0\0\x1a\x0d"
                               "brain.Event:2";
    size_t bytes = 0;
    memcpy(record + LK_RECORD_FRAME_HEAD, body, 24);
    lk__record_events_frame(record, 24);
    assert_memory_equal(record, "\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22", 12);
    assert_int_equal(lk__record_events_next(record, sizeof record, &bytes), sizeof record);
    assert_int_equal(bytes, 24);
    for (size_t i = 0; i < sizeof record; i++) {
        record[i] ^= 1;
        assert_int_equal(lk__record_events_next(record, sizeof record, &bytes), 0);
        record[i] ^= 1;
        assert_int_equal(lk__record_events_next(record, i, &bytes), 0);
    }
}

static double bucket_sum(const lk_record_histogram *h)
{
    double sum = 0;
    for (size_t i = 0; i < h->count; i++)
        sum += h->bucket[i];
    return sum;
}

/* Every value is in the bucket whose limits are around it. */
static void test_histogram(void **state)
{
    static const float values[] = {0,     -0.0f, 1,        1.1f,    1.24f,    1.25f, -3,        -1e-30f, 2e-42f,
                                   1e38f, NAN,   INFINITY, FLT_MAX, -FLT_MAX, 5,     -INFINITY, 7};
    static lk_record_histogram h;
    lk__record_histogram(values, COUNT_OF(values), &h);
    assert_true(h.num == (double)COUNT_OF(values) - 3 && bucket_sum(&h) == h.num);
    assert_true(h.min == (double)-FLT_MAX && h.max == (double)FLT_MAX);
    for (size_t i = 1; i < h.count; i++)
        assert_true(h.limit[i - 1] < h.limit[i] || (h.limit[i - 1] == 0 && h.limit[i] == 0));
    for (size_t v = 0; v < COUNT_OF(values); v++) {
        bool found = !isfinite(values[v]);
        for (size_t i = 1; i < h.count; i++)
            found |= h.bucket[i] > 0 && (double)values[v] >= h.limit[i - 1] && (double)values[v] <= h.limit[i];
        assert_true(found);
    }
    lk__record_histogram(values + 2, 3, &h); /* 1, 1.1 and 1.24 are in [1,1.25) */
    assert_int_equal(h.count, 2);
    assert_true(h.limit[0] == 1 && h.bucket[0] == 0 && h.limit[1] == 1.25 && h.bucket[1] == 3);
    assert_true(h.sum == 1 + (double)1.1f + (double)1.24f);
    lk__record_histogram(values + 10, 2, &h);
    assert_true(h.num == 0 && h.count == 0);
    lk__record_histogram(values, 0, &h);
    assert_true(h.num == 0);
}

static bool has_protobuf(void)
{
    const lk_library *library;
    for (size_t i = 0; (library = lk__library_list(i)) != NULL; i++) {
        if (strcmp(library->name, "protobuf-c") == 0)
            return library->present;
    }
    return false;
}

/* The bytes of the only event file in temp_folder. */
static uint8_t *read_events(size_t *bytes)
{
    char name[256] = "";
    uint8_t *data;
    DIR *dir = opendir(temp_folder);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (strstr(entry->d_name, lk__record_events_mark))
            snprintf(name, sizeof name, "%s", entry->d_name);
    }
    closedir(dir);
    assert_int_equal(strncmp(name, "events.out.tfevents.", 20), 0);
    assert_ok(lk__file_read(temp_path(name), 0, &data, bytes));
    return data;
}

static size_t count_records(const uint8_t *data, size_t bytes)
{
    size_t count = 0, used = 0, length, body;
    for (; (length = lk__record_events_next(data + used, bytes - used, &body)) > 0; used += length)
        count++;
    assert_int_equal(used, bytes);
    return count;
}

static void test_file(void **state)
{
    lk_record_events *events = NULL;
    lk_state *weights;
    lk_state_entry *entry;
    size_t bytes;
    if (!has_protobuf())
        skip();
    assert_ok(lk_state_create(&weights));
    assert_ok(lk_state_add(weights, "fc.weight", LK_DTYPE_F32, 1, (size_t[]){3}, &entry));
    assert_ok(lk_state_add(weights, "count", LK_DTYPE_I64, 0, NULL, &entry));
    assert_ok(lk__record_events_open(temp_folder, &events));
    for (int step = 1; step <= 4; step++) {
        lk_record_row row = {0};
        lk__record_row_set(&row, LK_RECORD_COLUMN_STEP, step);
        lk__record_row_set(&row, LK_RECORD_COLUMN_LOSS, 0.5 * step);
        assert_ok(lk__record_events_row(events, LK_RECORD_KIND_TRAIN, &row));
    }
    assert_ok(lk__record_events_state(events, 4, "weights", weights));
    lk__record_events_close(events);
    lk_state_destroy(weights);
    uint8_t *data = read_events(&bytes);
    assert_int_equal(count_records(data, bytes), 6);
    size_t kept = lk__record_events_keep((char *)data, bytes - 1, 4); /* the last record is torn */
    assert_int_equal(count_records(data, kept), 5);
    kept = lk__record_events_keep((char *)data, kept, 2);
    assert_int_equal(count_records(data, kept), 3);
    kept = lk__record_events_keep((char *)data, kept, 0);
    assert_int_equal(count_records(data, kept), 1);
    lk__mem_free(data);
}

TEST_MAIN(temp_folder_set_up, temp_folder_tear_down, TEST(test_crc), TEST(test_frame), TEST(test_histogram),
          TEST(test_file))
