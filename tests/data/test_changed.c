/* test_changed.c - data files that change while they are in use: each change is an error that names the
 * file, and no bytes beyond its end are read. */
#include "data/committed.h"

#include <lockstep/data.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/codec/codec.h"
#include "data/sets/dataset.h"

enum { COUNT = 12, SIDE = 5, BYTES = 16 + COUNT * SIDE * SIDE };

/* Content of an IDX file of images. */
static void fill(uint8_t content[BYTES], uint8_t height, uint8_t width)
{
    static const uint8_t start[] = {0, 0, 8, 3, 0, 0, 0, COUNT, 0, 0, 0, 0, 0, 0, 0, 0};
    memcpy(content, start, sizeof start);
    content[11] = height;
    content[15] = width;
    for (size_t i = 16; i < BYTES; i++)
        content[i] = (uint8_t)(i * i);
}

static size_t size_of(const char *path)
{
    lk_file_outline outline;
    assert_ok(lk__file_outline(path, &outline));
    return outline.bytes;
}

static void expect_changed(lk_status status, const char *path, size_t before, size_t now)
{
    char sizes[128];
    assert_int_equal(status, LK_STATUS_FORMAT);
    snprintf(sizes, sizeof sizes, "changed while it was in use: it had %zu bytes and has %zu now", before, now);
    assert_detail(path);
    assert_detail(sizes);
    assert_detail("start again");
}

/* Reads a file whose size and header were read before. */
static lk_status fetch(const char *path, size_t size, const uint8_t *header, uint8_t *out)
{
    lk_fetch_opts opts = {.path = path, .size = size, .bytes = BYTES, .header_bytes = sizeof opts.header};
    lk_fetch *fetching;
    const uint8_t *content;
    memcpy(opts.header, header, sizeof opts.header);
    assert_ok(lk__fetch_create(&opts, &fetching));
    lk_status status = lk__fetch_wait(fetching, &content);
    if (status == LK_OK)
        memcpy(out, content, BYTES);
    else /* the second wait fails, too */
        assert_int_equal(lk__fetch_wait(fetching, &content), status);
    lk__fetch_destroy(fetching);
    return status;
}

static void expect_fetches(const char *name)
{
    uint8_t content[BYTES + 100] = {0}, got[BYTES], other[BYTES];
    char path[512];
    folder f = folder_create();
    snprintf(path, sizeof path, "%s/%s", f.path, name);
    fill(content, SIDE, SIDE);
    put(&f, name, content, BYTES);
    size_t size = size_of(path);
    assert_ok(fetch(path, size, content, got));
    assert_memory_equal(got, content, BYTES);
    /* The file is truncated, grows, is removed, or is another file. */
    for (size_t cut_at = 0; cut_at < size; cut_at += 1 + size / 16) {
        put(&f, name, content, BYTES);
        cut(&f, name, cut_at);
        expect_changed(fetch(path, size, content, got), path, size, cut_at);
    }
    put(&f, name, content, BYTES + 100);
    expect_changed(fetch(path, size, content, got), path, size, size_of(path));
    unlink(path);
    assert_fails(fetch(path, size, content, got), LK_STATUS_NOT_FOUND, path);
    memcpy(other, content, BYTES);
    other[7] = COUNT / 2;
    other[11] = 2 * SIDE;
    put(&f, name, other, BYTES);
    assert_fails(fetch(path, size_of(path), content, got), LK_STATUS_FORMAT, path);
    assert_detail("its first 16 bytes are not what they were");
    folder_destroy(&f);
}

static void test_fetch_plain(void **state)
{
    expect_fetches("train-images-idx3-ubyte");
}

static void test_fetch_gzip(void **state)
{
    expect_fetches("train-images-idx3-ubyte.gz");
}

/* The files of an open data set are in memory. */
static void test_open_stays(void **state)
{
    static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, COUNT, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1};
    uint8_t content[BYTES], pixels[SIDE * SIDE];
    folder f = folder_create();
    lk_dataset *data;
    int32_t label;
    fill(content, SIDE, SIDE);
    put(&f, "train-images-idx3-ubyte", content, BYTES);
    put(&f, "train-labels-idx1-ubyte", labels, sizeof labels);
    assert_ok(lk_dataset_open(f.path, NULL, LK_SPLIT_TRAIN, &data));
    assert_ok(lk_dataset_get(data, 0, pixels, &label));
    cut(&f, "train-images-idx3-ubyte", 20);
    cut(&f, "train-labels-idx1-ubyte", 3);
    assert_ok(lk_dataset_get(data, COUNT - 1, pixels, &label));
    assert_int_equal(label, 1);
    assert_memory_equal(pixels, content + BYTES - sizeof pixels, sizeof pixels);
    lk_dataset_destroy(data);
    assert_fails(lk_dataset_open(f.path, NULL, LK_SPLIT_TRAIN, &data), LK_STATUS_FORMAT,
                 "train-images-idx3-ubyte: is 20 bytes long, but its header at bytes 4 to 15 calls for");
    folder_destroy(&f);
}

static void test_steady(void **state)
{
    static const char text[] = "whatever is in it";
    folder f = folder_create();
    char path[512];
    uint8_t *got;
    size_t bytes;
    snprintf(path, sizeof path, "%s/data", f.path);
    put(&f, "data", text, sizeof text);
    assert_ok(lk__dataset_read_steady(path, sizeof text, 0, &got, &bytes));
    assert_int_equal(bytes, sizeof text);
    assert_memory_equal(got, text, sizeof text);
    lk__mem_free(got);
    expect_changed(lk__dataset_read_steady(path, sizeof text - 1, 0, &got, &bytes), path, sizeof text - 1, sizeof text);
    expect_changed(lk__dataset_read_steady(path, 5, 5, &got, &bytes), path, 5, sizeof text);
    expect_changed(lk__dataset_read_steady(path, 500, 0, &got, &bytes), path, 500, sizeof text);
    /* A file that did not change gets the usual error. */
    assert_fails(lk__dataset_read_steady(path, sizeof text, 3, &got, &bytes), LK_STATUS_FORMAT,
                 "holds more than the 3 bytes");
    folder_destroy(&f);
}

/* Runs two epochs of a folder, with `change` between them. Returns the status of the second. */
static lk_status second_epoch(const folder *f, int workers, void (*change)(const folder *f))
{
    lk_dataset *data;
    lk_loader *loader;
    const lk_batch *batch;
    lk_status status = LK_OK;
    lk_loader_opts opts = {
        .batch = 2, .shuffle = true, .seed = 3, .workers = workers, .augment = "resize=12,center_crop=12"};
    copy(f, "rgb.png", "train/cat/a.png");
    copy(f, "grey.png", "train/cat/b.png");
    copy(f, "palette.png", "train/dog/c.png");
    assert_ok(lk_dataset_open(f->path, NULL, LK_SPLIT_TRAIN, &data));
    assert_ok(lk_loader_create(data, &opts, &loader));
    for (size_t epoch = 0; epoch < 2 && status == LK_OK; epoch++) {
        if (epoch == 1)
            change(f);
        assert_ok(lk_loader_start(loader, epoch, 0));
        do
            status = lk_loader_next(loader, &batch);
        while (status == LK_OK && batch);
        assert_true(epoch == 1 || status == LK_OK);
    }
    lk_loader_destroy(loader);
    lk_dataset_destroy(data);
    return status;
}

static void keep(const folder *f)
{
    copy(f, "grey.png", "train/cat/b.png");
}

static void shorten(const folder *f)
{
    cut(f, "train/cat/b.png", 60);
}

static void empty(const folder *f)
{
    cut(f, "train/cat/b.png", 0);
}

static void replace(const folder *f)
{
    copy(f, "rgb.png", "train/cat/b.png");
}

static void delete (const folder *f)
{
    char path[512];
    snprintf(path, sizeof path, "%s/train/cat/b.png", f->path);
    assert_int_equal(unlink(path), 0);
}

static void test_folder(void **state)
{
    static const struct {
        void (*change)(const folder *f);
        lk_status status;
        const char *words;
    } rows[] = {
        {keep, LK_OK, NULL},
        {shorten, LK_STATUS_FORMAT, "bytes and has 60 now"},
        {empty, LK_STATUS_FORMAT, "bytes and has 0 now"},
        {replace, LK_STATUS_FORMAT, "changed while it was in use: it had "},
        {delete, LK_STATUS_IO, "No such file or directory; it was there when the folder was listed"},
    };
    if (!lk__codec_png.decode)
        skip();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int workers = 0; workers <= 2; workers += 2) {
            folder f = folder_create();
            assert_int_equal(second_epoch(&f, workers, rows[i].change), rows[i].status);
            if (rows[i].words) {
                assert_detail("train/cat/b.png");
                assert_detail(rows[i].words);
            }
            folder_destroy(&f);
        }
    }
}

TEST_MAIN(NULL, NULL, TEST(test_fetch_plain), TEST(test_fetch_gzip), TEST(test_open_stays), TEST(test_steady),
          TEST(test_folder))
