/* test_folder.c - folders of images: classes, order, splits, batches, and errors for missing and damaged
 * files. */
#include "data/committed.h"

#include <lockstep/data.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/codec/codec.h"
#include "data/sets/dataset.h"

static folder create_animals(void)
{
    folder f = folder_create();
    copy(&f, "rgb.png", "train/cat/2.png");
    copy(&f, "grey.png", "train/cat/10.PNG");
    copy(&f, "rgba.png", "train/Bear/deep/1.png");
    copy(&f, "palette.png", "train/dog/x.png");
    copy(&f, "rgb.png", "val/cat/a.png");
    copy(&f, "rgb.png", "val/dog/b.png");
    put(&f, "train/cat/notes.txt", "no image", 8);
    put(&f, "train/readme", "no class", 8);
    return f;
}

static void need_png(void)
{
    if (!lk__codec_png.decode)
        skip();
}

static lk_dataset *open_split(const folder *f, lk_split split)
{
    lk_dataset *data;
    assert_ok(lk_dataset_open(f->path, NULL, split, &data));
    return data;
}

/* Classes and files are sorted by bytes: Bear, cat, dog; 10.PNG before 2.png. */
static void test_order(void **state)
{
    static const int32_t labels[] = {0, 1, 1, 2};
    static const size_t heights[] = {9, 16, 29, 29};
    need_png();
    folder f = create_animals();
    lk_dataset *data = open_split(&f, LK_SPLIT_TRAIN);
    const lk_dataset_info *info = lk_dataset_get_info(data);
    assert_int_equal(info->count, 4);
    assert_int_equal(info->classes, 3);
    assert_int_equal(info->channels, 3);
    assert_int_equal(info->height, 0);
    lk_image image = {0};
    for (size_t i = 0; i < 4; i++) {
        int32_t label;
        assert_ok(lk__dataset_load(data, i, NULL, &image, &label));
        assert_int_equal(label, labels[i]);
        assert_int_equal(data->ops->label(data, i), labels[i]);
        assert_int_equal(image.height, heights[i]);
    }
    lk__image_fini(&image);
    lk_dataset_destroy(data);
    folder_destroy(&f);
}

/* The test split has no class Bear; the other classes keep their numbers. */
static void test_splits(void **state)
{
    folder f = create_animals();
    lk_dataset *data = open_split(&f, LK_SPLIT_TEST);
    assert_int_equal(lk_dataset_get_info(data)->count, 2);
    assert_int_equal(lk_dataset_get_info(data)->classes, 3);
    assert_int_equal(data->ops->label(data, 0), 1);
    assert_int_equal(data->ops->label(data, 1), 2);
    lk_dataset_destroy(data);
    copy(&f, "rgb.png", "val/emu/a.png");
    assert_fails(lk_dataset_open(f.path, NULL, LK_SPLIT_TEST, &data), LK_STATUS_MISMATCH, "emu");
    folder_destroy(&f);
}

static void test_batches(void **state)
{
    need_png();
    folder f = create_animals();
    lk_dataset *data = open_split(&f, LK_SPLIT_TRAIN);
    lk_sample_shape shape;
    float first[4 * 3 * 8 * 8];
    assert_fails(lk_augmented_shape(data, "flip", &shape), LK_STATUS_USAGE, "size");
    assert_ok(lk_augmented_shape(data, "auto", &shape));
    assert_int_equal(shape.height, 224);
    assert_ok(lk_augmented_shape(data, "resized_crop=8,flip", &shape));
    assert_int_equal(shape.height * shape.width * shape.channels, 3 * 8 * 8);
    for (int workers = 0; workers < 3; workers++) {
        lk_loader_opts opts = {.batch = 4, .workers = workers, .seed = 3, .augment = "resized_crop=8,flip"};
        lk_loader *loader;
        const lk_batch *batch;
        assert_ok(lk_loader_create(data, &opts, &loader));
        assert_ok(lk_loader_start(loader, 1, 0));
        assert_ok(lk_loader_next(loader, &batch));
        assert_int_equal(batch->sample_floats, 3 * 8 * 8);
        if (workers == 0)
            memcpy(first, batch->x, sizeof first);
        assert_memory_equal(batch->x, first, sizeof first);
        lk_loader_destroy(loader);
    }
    lk_dataset_destroy(data);
    folder_destroy(&f);
}

/* Images of equal size need no transform that fixes the size: their headers are read. */
static void test_one_size(void **state)
{
    folder f = folder_create();
    lk_sample_shape shape;
    copy(&f, "rgb.png", "train/cat/1.png");
    copy(&f, "rgb.png", "train/cat/2.png");
    copy(&f, "rgb.png", "train/dog/3.png");
    lk_dataset *data = open_split(&f, LK_SPLIT_TRAIN);
    assert_ok(lk_augmented_shape(data, "flip", &shape));
    assert_int_equal(shape.channels, 3);
    assert_int_equal(shape.height, 29);
    assert_int_equal(shape.width, 37);
    assert_ok(lk_augmented_shape(data, "resize=58", &shape));
    assert_int_equal(shape.width, 74);
    lk_dataset_destroy(data);
    copy(&f, "grey.png", "train/dog/4.png");
    data = open_split(&f, LK_SPLIT_TRAIN);
    assert_fails(lk_augmented_shape(data, "flip", &shape), LK_STATUS_USAGE, "train/cat/1.png has 37 by 29 pixels");
    assert_detail("train/dog/4.png 11 by 16");
    assert_detail("resized_crop=N");
    lk_dataset_destroy(data);
    put(&f, "train/cat/2.png", "no image", 8);
    data = open_split(&f, LK_SPLIT_TRAIN);
    assert_fails(lk_augmented_shape(data, "none", &shape), LK_STATUS_FORMAT, "train/cat/2.png");
    assert_ok(lk_augmented_shape(data, "resize=9/9", &shape));
    lk_dataset_destroy(data);
    folder_destroy(&f);
}

/* A file whose size changes after the headers were read makes its batch fail. */
static void test_size_changes(void **state)
{
    need_png();
    folder f = folder_create();
    lk_loader *loader;
    const lk_batch *batch;
    copy(&f, "rgb.png", "train/cat/1.png");
    copy(&f, "rgb.png", "train/cat/2.png");
    lk_dataset *data = open_split(&f, LK_SPLIT_TRAIN);
    assert_ok(lk_loader_create(data, &(lk_loader_opts){.batch = 2, .augment = "none"}, &loader));
    copy(&f, "grey.png", "train/cat/2.png");
    assert_ok(lk_loader_start(loader, 0, 0));
    assert_fails(lk_loader_next(loader, &batch), LK_STATUS_FORMAT, "train/cat/2.png");
    assert_detail("16");
    lk_loader_destroy(loader);
    lk_dataset_destroy(data);
    folder_destroy(&f);
}

static void test_missing(void **state)
{
    folder f = create_animals();
    lk_dataset *data;
    char path[512];
    snprintf(path, sizeof path, "%s/val", f.path);
    temp_folder_remove(path);
    assert_fails(lk_dataset_open(f.path, NULL, LK_SPLIT_TEST, &data), LK_STATUS_NOT_FOUND, "val/CLASS");
    snprintf(path, sizeof path, "%s/train/empty", f.path);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_fails(lk_dataset_open(f.path, NULL, LK_SPLIT_TRAIN, &data), LK_STATUS_FORMAT, "train/empty");
    folder_destroy(&f);
}

/* A batch with a damaged file fails, and the error names the file. */
static void test_damaged(void **state)
{
    need_png();
    folder f = create_animals();
    cut(&f, "train/dog/x.png", 200);
    lk_dataset *data = open_split(&f, LK_SPLIT_TRAIN);
    lk_image image = {0};
    int32_t label = -7;
    assert_int_equal(lk__dataset_load(data, 3, NULL, &image, &label), LK_STATUS_FORMAT);
    assert_int_equal(label, -7);
    lk__image_fini(&image);
    lk_loader_opts opts = {.batch = 4, .workers = 1, .augment = "resize=8/8"};
    lk_loader *loader;
    const lk_batch *batch;
    assert_ok(lk_loader_create(data, &opts, &loader));
    assert_ok(lk_loader_start(loader, 0, 0));
    assert_fails(lk_loader_next(loader, &batch), LK_STATUS_FORMAT, "train/dog/x.png");
    lk_loader_destroy(loader);
    lk_dataset_destroy(data);
    folder_destroy(&f);
}

/* An image of 1 by 16,000 pixels is refused before memory for the resized image is allocated. */
static void test_thin(void **state)
{
    need_png();
    folder f = create_animals();
    copy(&f, "thin.png", "train/dog/thin.png");
    lk_dataset *data = open_split(&f, LK_SPLIT_TRAIN);
    lk_loader_opts opts = {.batch = 5, .augment = "resize=8192,center_crop=8"};
    lk_loader *loader;
    const lk_batch *batch;
    assert_ok(lk_loader_create(data, &opts, &loader));
    assert_ok(lk_loader_start(loader, 0, 0));
    assert_fails(lk_loader_next(loader, &batch), LK_STATUS_FORMAT, "train/dog/thin.png");
    assert_detail("too thin");
    lk_loader_destroy(loader);
    lk_dataset_destroy(data);
    folder_destroy(&f);
}

static uint64_t fingerprint(const folder *f)
{
    lk_dataset *data = open_split(f, LK_SPLIT_TRAIN);
    uint64_t hash = lk__dataset_fingerprint(data);
    lk_dataset_destroy(data);
    return hash;
}

static uint64_t sample(const folder *f, size_t files, size_t read)
{
    lk_dataset *data = open_split(f, LK_SPLIT_TRAIN);
    lk_dataset_contents contents;
    assert_ok(lk__dataset_sample_contents(data, &contents));
    assert_int_equal(contents.files, files);
    assert_int_equal(contents.read, read);
    lk_dataset_destroy(data);
    return contents.hash;
}

/* Ranks compare fingerprints: a fingerprint depends on the names of files, not on the path of the folder
 * and not on contents. Contents have a hash of their own. */
static void test_fingerprint(void **state)
{
    need_png();
    folder f = create_animals(), other = create_animals();
    char from[512], to[512];
    uint64_t hash = fingerprint(&f), contents = sample(&f, 4, 4);
    assert_true(hash == fingerprint(&other) && contents == sample(&other, 4, 4));
    snprintf(from, sizeof from, "%s/train/dog/x.png", other.path);
    snprintf(to, sizeof to, "%s/train/dog/y.png", other.path);
    assert_int_equal(rename(from, to), 0);
    assert_true(hash != fingerprint(&other));
    assert_int_equal(rename(to, from), 0);
    copy(&other, "interlaced.png", "train/Bear/deep/1.png");
    assert_true(hash == fingerprint(&other) && contents != sample(&other, 4, 4));
    folder_destroy(&other);
    folder_destroy(&f);
}

/* The hash of contents reads all of up to 64 files, and 64 evenly spread ones of more. Of a large file it
 * reads both ends and the size. */
static void test_sample(void **state)
{
    enum { MANY = 130, LARGE = 3 << 20 };
    folder f = folder_create();
    char name[64];
    static uint8_t large[LARGE + 1];
    for (int i = 0; i < 64; i++) {
        snprintf(name, sizeof name, "train/cat/%03d.png", i);
        put(&f, name, "same", 4);
    }
    uint64_t hash = sample(&f, 64, 64);
    put(&f, "train/cat/037.png", "else", 4);
    assert_true(sample(&f, 64, 64) != hash);
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "train/cat/%03d.png", i);
        put(&f, name, "same", 4);
    }
    hash = sample(&f, MANY, 64);
    put(&f, "train/cat/001.png", "else", 4);
    assert_true(sample(&f, MANY, 64) == hash);
    put(&f, "train/cat/002.png", "else", 4);
    assert_true(sample(&f, MANY, 64) != hash);
    put(&f, "train/cat/002.png", large, LARGE);
    hash = sample(&f, MANY, 64);
    for (size_t at = 0; at < LARGE; at += LARGE - 1) {
        large[at] = 1;
        put(&f, "train/cat/002.png", large, LARGE);
        assert_true(sample(&f, MANY, 64) != hash);
        large[at] = 0;
    }
    put(&f, "train/cat/002.png", large, LARGE + 1);
    assert_true(sample(&f, MANY, 64) != hash);
    folder_destroy(&f);
}

TEST_MAIN(NULL, NULL, TEST(test_order), TEST(test_splits), TEST(test_batches), TEST(test_one_size),
          TEST(test_size_changes), TEST(test_missing), TEST(test_damaged), TEST(test_thin), TEST(test_fingerprint),
          TEST(test_sample))
