/* test_dataset.c - IDX and CIFAR files, correct and malformed, and the search for data sets. */
#include "fixture.h"

#include <lockstep/data.h>

#include "base/hash.h"
#include "data/sets/dataset.h"

enum { COUNT = 7, HEIGHT = 3, WIDTH = 5, AREA = HEIGHT * WIDTH, RECORD = 3073 };

static folder here;

static int set_up(void **state)
{
    here = folder_create();
    /* The search must find nothing outside the test's folder. */
    setenv("LOCKSTEP_DATA", "", 1);
    setenv("XDG_CACHE_HOME", here.path, 1);
    return chdir(here.path);
}

static int tear_down(void **state)
{
    folder_destroy(&here);
    return 0;
}

static void put_word(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (24 - 8 * i));
}

static uint8_t pixel(lk_split split, size_t sample, size_t i)
{
    return (uint8_t)(sample * 31 + i * 7 + (split == LK_SPLIT_TEST ? 100 : 0));
}

static uint8_t label_of(lk_split split, size_t sample)
{
    return (uint8_t)((sample * 3 + (split == LK_SPLIT_TEST ? 1 : 0)) % 10);
}

typedef struct idx {
    uint8_t images[16 + COUNT * AREA], labels[8 + COUNT];
} idx;

static idx make_idx(lk_split split)
{
    idx made;
    uint32_t words[] = {0x803, COUNT, HEIGHT, WIDTH};
    for (size_t i = 0; i < 4; i++)
        put_word(made.images + 4 * i, words[i]);
    put_word(made.labels, 0x801);
    put_word(made.labels + 4, COUNT);
    for (size_t s = 0; s < COUNT; s++) {
        made.labels[8 + s] = label_of(split, s);
        for (size_t i = 0; i < AREA; i++)
            made.images[16 + s * AREA + i] = pixel(split, s, i);
    }
    return made;
}

/* Writes the two files of a split below `under`; file names have this separator and ending. */
static void put_split(const char *under, lk_split split, char separator, const char *ending)
{
    idx made = make_idx(split);
    char name[128];
    const char *prefix = split == LK_SPLIT_TRAIN ? "train" : "t10k";
    snprintf(name, sizeof name, "%s%s-images%cidx3-ubyte%s", under, prefix, separator, ending);
    put(&here, name, made.images, sizeof made.images);
    snprintf(name, sizeof name, "%s%s-labels%cidx1-ubyte%s", under, prefix, separator, ending);
    put(&here, name, made.labels, sizeof made.labels);
}

static void check_split(const char *name, const char *dir, lk_split split)
{
    lk_dataset *data = NULL;
    assert_ok(lk_dataset_open(name, dir, split, &data));
    const lk_dataset_info *info = lk_dataset_get_info(data);
    assert_string_equal(info->name, name);
    assert_int_equal(info->count, COUNT);
    assert_int_equal(info->channels, 1);
    assert_int_equal(info->height, HEIGHT);
    assert_int_equal(info->width, WIDTH);
    assert_int_equal(info->classes, 10);
    for (size_t s = 0; s < COUNT; s++) {
        uint8_t pixels[AREA];
        int32_t label = -1;
        assert_ok(lk_dataset_get(data, s, pixels, &label));
        assert_int_equal(label, label_of(split, s));
        for (size_t i = 0; i < AREA; i++)
            assert_int_equal(pixels[i], pixel(split, s, i));
    }
    uint8_t pixels[AREA];
    int32_t label = -1;
    assert_int_equal(lk_dataset_get(data, COUNT, pixels, &label), LK_STATUS_USAGE);
    assert_int_equal(label, -1);
    lk_dataset_destroy(data);
}

static void idx_round_trip(void **state)
{
    static const char separators[] = {'-', '.'};
    static const char *const endings[] = {"", ".gz"};
    char under[32], dir[300];
    for (int i = 0; i < 4; i++) {
        snprintf(under, sizeof under, "case%d/", i);
        put_split(under, LK_SPLIT_TRAIN, separators[i % 2], endings[i / 2]);
        put_split(under, LK_SPLIT_TEST, separators[i % 2], endings[i / 2]);
        snprintf(dir, sizeof dir, "%s/case%d", here.path, i);
        for (lk_split split = LK_SPLIT_TRAIN; split <= LK_SPLIT_TEST; split++) {
            check_split("mnist", dir, split);
            check_split("fashion-mnist", dir, split);
            check_split(dir, NULL, split);
        }
    }
}

static void refuse(const char *name, lk_split split, lk_status status, const char *part, const char *part2)
{
    lk_dataset *data = NULL;
    assert_int_equal(lk_dataset_open(name, here.path, split, &data), status);
    assert_null(data);
    assert_detail(part);
    assert_detail(part2);
}

#define IMAGES "train-images-idx3-ubyte"
#define LABELS "train-labels-idx1-ubyte"

/* Replaces the training files, truncated to these numbers of bytes; 0: whole. */
static void put_damaged(const idx *made, size_t images_bytes, size_t labels_bytes)
{
    put(&here, IMAGES, made->images, images_bytes ? images_bytes : sizeof made->images);
    put(&here, LABELS, made->labels, labels_bytes ? labels_bytes : sizeof made->labels);
}

static void idx_bad_images(void **state)
{
    idx made = make_idx(LK_SPLIT_TRAIN);
    put_damaged(&made, 10, 0);
    refuse("mnist", LK_SPLIT_TRAIN, LK_STATUS_FORMAT, IMAGES, "ends at byte 10");
    put_damaged(&made, sizeof made.images - 1, 0);
    refuse("mnist", LK_SPLIT_TRAIN, LK_STATUS_FORMAT, IMAGES, "is 120 bytes long");
    put_word(made.images, 0x801);
    put_damaged(&made, 0, 0);
    refuse("mnist", LK_SPLIT_TRAIN, LK_STATUS_FORMAT, IMAGES, "byte 0 begins 0x00000801");
    static const struct {
        uint32_t count, height, width;
        const char *part;
    } lies[] = {
        {0, HEIGHT, WIDTH, "no images"},
        {COUNT, 0, WIDTH, "0 by 5"},
        {COUNT, HEIGHT, 0x80000000u, "3 by 2147483648"},
        {COUNT + 1, HEIGHT, WIDTH, "calls for 136"},
        {COUNT - 1, HEIGHT, WIDTH, "calls for 106"},
        {0xffffffffu, 4096, 4096, "calls for"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        put_word(made.images, 0x803);
        put_word(made.images + 4, lies[i].count);
        put_word(made.images + 8, lies[i].height);
        put_word(made.images + 12, lies[i].width);
        put_damaged(&made, 0, 0);
        refuse("mnist", LK_SPLIT_TRAIN, LK_STATUS_FORMAT, IMAGES, lies[i].part);
    }
}

static void idx_bad_labels(void **state)
{
    idx made = make_idx(LK_SPLIT_TRAIN);
    put_damaged(&made, 0, 5);
    refuse("mnist", LK_SPLIT_TRAIN, LK_STATUS_FORMAT, LABELS, "ends at byte 5");
    put_damaged(&made, 0, sizeof made.labels - 1);
    refuse("mnist", LK_SPLIT_TRAIN, LK_STATUS_FORMAT, LABELS, "says 7 labels, but 6 bytes");
    made.labels[8 + 4] = 10;
    put_damaged(&made, 0, 0);
    refuse("mnist", LK_SPLIT_TRAIN, LK_STATUS_FORMAT, LABELS, "label 10 of sample 4 (byte 12)");
    put_word(made.labels, 0x803);
    put_damaged(&made, 0, 0);
    refuse("mnist", LK_SPLIT_TRAIN, LK_STATUS_FORMAT, LABELS, "0x00000801");
    made = make_idx(LK_SPLIT_TRAIN);
    put_word(made.labels + 4, COUNT - 1);
    put_damaged(&made, 0, sizeof made.labels - 1);
    refuse("mnist", LK_SPLIT_TRAIN, LK_STATUS_MISMATCH, LABELS " holds 6 labels", IMAGES " holds 7 images");
}

/* The size of gzipped content is known only after inflating all of it. */
static void idx_bad_gzip(void **state)
{
    idx made = make_idx(LK_SPLIT_TRAIN);
    put(&here, LABELS, made.labels, sizeof made.labels);
    put(&here, IMAGES ".gz", made.images, sizeof made.images - 1);
    refuse("mnist", LK_SPLIT_TRAIN, LK_STATUS_FORMAT, IMAGES ".gz", "ends at byte 120");
    put_word(made.images + 4, COUNT - 1);
    put(&here, IMAGES ".gz", made.images, sizeof made.images);
    refuse("mnist", LK_SPLIT_TRAIN, LK_STATUS_FORMAT, IMAGES ".gz",
           "more than the 106 bytes that are expected; it is damaged");
    put_word(made.images + 4, 0xffffffffu);
    put(&here, IMAGES ".gz", made.images, sizeof made.images);
    refuse("mnist", LK_SPLIT_TRAIN, LK_STATUS_FORMAT, IMAGES ".gz", "gzipped bytes can hold");
    put_word(made.images + 4, COUNT);
    put(&here, IMAGES ".gz", made.images, sizeof made.images);
    cut(&here, IMAGES ".gz", 70);
    refuse("mnist", LK_SPLIT_TRAIN, LK_STATUS_FORMAT, IMAGES ".gz", "ends too early");
    cut(&here, IMAGES ".gz", 12);
    refuse("mnist", LK_SPLIT_TRAIN, LK_STATUS_FORMAT, IMAGES ".gz", "header");
}

static void flip_checksum(const char *name)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", here.path, name);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, -8, SEEK_END), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, -8, SEEK_END), 0);
    assert_int_equal(fputc(byte ^ 1, file), byte ^ 1);
    assert_int_equal(fclose(file), 0);
}

/* A wrong checksum at the end of a large file is found after the data set was opened: every get reports
 * it. */
static void idx_bad_checksum(void **state)
{
    enum { SIDE = 100 };
    idx made = make_idx(LK_SPLIT_TRAIN);
    static uint8_t images[16 + COUNT * SIDE * SIDE], pixels[SIDE * SIDE];
    memcpy(images, made.images, 8);
    put_word(images + 8, SIDE);
    put_word(images + 12, SIDE);
    for (size_t i = 16; i < sizeof images; i++)
        images[i] = (uint8_t)((i * i) >> 3);
    put(&here, LABELS, made.labels, sizeof made.labels);
    put(&here, IMAGES ".gz", images, sizeof images);
    flip_checksum(IMAGES ".gz");
    lk_dataset *data = NULL;
    assert_ok(lk_dataset_open("mnist", here.path, LK_SPLIT_TRAIN, &data));
    for (int i = 0; i < 2; i++) {
        int32_t label;
        assert_fails(lk_dataset_get(data, 0, pixels, &label), LK_STATUS_FORMAT, IMAGES ".gz");
        assert_detail("data check");
    }
    lk_dataset_destroy(data);
    put(&here, IMAGES ".gz", made.images, sizeof made.images);
    flip_checksum(IMAGES ".gz");
    refuse("mnist", LK_SPLIT_TRAIN, LK_STATUS_FORMAT, IMAGES ".gz", "data check");
}

/* A user's folder may have more classes; both splits have the same number. */
static void idx_classes(void **state)
{
    idx made = make_idx(LK_SPLIT_TRAIN);
    made.labels[8 + 2] = 26;
    put_damaged(&made, 0, 0);
    put_split("", LK_SPLIT_TEST, '-', "");
    for (lk_split split = LK_SPLIT_TRAIN; split <= LK_SPLIT_TEST; split++) {
        lk_dataset *data = NULL;
        assert_ok(lk_dataset_open(here.path, NULL, split, &data));
        assert_int_equal(lk_dataset_get_info(data)->classes, 27);
        assert_string_equal(lk_dataset_get_info(data)->path, here.path);
        lk_dataset_destroy(data);
    }
}

/* The labels of the other split are read up to the count of their header. */
static void idx_other_labels(void **state)
{
    idx made = make_idx(LK_SPLIT_TRAIN);
    put_damaged(&made, 0, 0);
    enum { LONG = 1 << 20 };
    uint8_t *labels = calloc(LONG, 1);
    assert_non_null(labels);
    memcpy(labels, made.labels, 8);
    put(&here, "t10k-labels-idx1-ubyte.gz", labels, LONG);
    refuse(here.path, LK_SPLIT_TRAIN, LK_STATUS_FORMAT, "t10k-labels-idx1-ubyte.gz", "more than the 16 bytes");
    put(&here, "t10k-labels-idx1-ubyte.gz", labels, 5);
    refuse(here.path, LK_SPLIT_TRAIN, LK_STATUS_FORMAT, "t10k-labels-idx1-ubyte.gz", "ends at byte 5");
    free(labels);
}

static void make_cifar(const char *name, size_t records, uint8_t first)
{
    uint8_t *bytes = malloc(records * RECORD);
    assert_non_null(bytes);
    for (size_t r = 0; r < records; r++) {
        bytes[r * RECORD] = (uint8_t)((first + r) % 10);
        for (size_t i = 0; i + 1 < RECORD; i++)
            bytes[r * RECORD + 1 + i] = (uint8_t)(first + r + i * 13);
    }
    put(&here, name, bytes, records * RECORD);
    free(bytes);
}

/* Five training files of 1 to 5 records, with consecutive numbers, and a test file. */
static void put_cifar(const char *under, const char *ending)
{
    char name[64];
    uint8_t first = 0;
    for (uint8_t i = 1; i <= 5; i++) {
        snprintf(name, sizeof name, "%sdata_batch_%d.bin%s", under, i, ending);
        make_cifar(name, i, first);
        first = (uint8_t)(first + i);
    }
    snprintf(name, sizeof name, "%stest_batch.bin%s", under, ending);
    make_cifar(name, 2, 0);
}

static void check_cifar(const char *name, const char *dir, lk_split split, size_t count)
{
    lk_dataset *data = NULL;
    assert_ok(lk_dataset_open(name, dir, split, &data));
    const lk_dataset_info *info = lk_dataset_get_info(data);
    assert_int_equal(info->count, count);
    assert_int_equal(info->channels, 3);
    assert_int_equal(info->height, 32);
    assert_int_equal(info->width, 32);
    assert_int_equal(info->classes, 10);
    for (size_t s = 0; s < count; s++) {
        uint8_t pixels[RECORD - 1];
        int32_t label = -1;
        assert_ok(lk_dataset_get(data, s, pixels, &label));
        assert_int_equal(label, s % 10);
        for (size_t i = 0; i < sizeof pixels; i++)
            assert_int_equal(pixels[i], (uint8_t)(s + i * 13));
    }
    lk_dataset_destroy(data);
}

static void cifar_round_trip(void **state)
{
    put_cifar("cifar10/", "");
    put_cifar("data/cifar-10-batches-bin/", ".gz");
    check_cifar("cifar10", here.path, LK_SPLIT_TRAIN, 15);
    check_cifar("cifar10", NULL, LK_SPLIT_TRAIN, 15);
    check_cifar("cifar10", NULL, LK_SPLIT_TEST, 2);
    check_cifar("./cifar10", NULL, LK_SPLIT_TRAIN, 15);
    check_cifar("cifar10/", NULL, LK_SPLIT_TEST, 2);
}

static uint64_t hash_files(const char *dir)
{
    lk_dataset *data = NULL;
    uint64_t hash = 0;
    assert_ok(lk_dataset_open(dir, NULL, LK_SPLIT_TRAIN, &data));
    assert_ok(lk__dataset_hash_files(data, &hash));
    lk_dataset_destroy(data);
    return hash;
}

/* Replaces the last byte of a file. */
static void change_end(const char *name)
{
    FILE *file = fopen(name, "r+b");
    assert_non_null(file);
    fseek(file, -1, SEEK_END);
    int last = fgetc(file);
    fseek(file, -1, SEEK_END);
    fputc(last ^ 1, file);
    assert_int_equal(fclose(file), 0);
}

/* Packed files have the hash of plain ones; each byte of pixels and labels counts. */
static void hashes_of_files(void **state)
{
    put_split("plain/", LK_SPLIT_TRAIN, '-', "");
    put_split("packed/", LK_SPLIT_TRAIN, '.', ".gz");
    put_cifar("colour/", "");
    put_cifar("packed-colour/", ".gz");
    uint64_t grey = hash_files("plain"), colour = hash_files("colour");
    assert_true(grey != 0 && colour != 0 && grey != colour);
    assert_true(hash_files("packed") == grey && hash_files("packed-colour") == colour);
    change_end("plain/" IMAGES);
    uint64_t other = hash_files("plain");
    assert_true(other != grey);
    change_end("plain/" LABELS);
    assert_true(hash_files("plain") != other && hash_files("plain") != grey);
    change_end("colour/data_batch_5.bin");
    assert_true(hash_files("colour") != colour);
}

/* A record has two label bytes: the coarse class, which is ignored, and the fine class. */
static void cifar100_round_trip(void **state)
{
    enum { WIDE = RECORD + 1, COUNT_100 = 3 };
    static uint8_t bytes[COUNT_100 * WIDE];
    for (size_t s = 0; s < COUNT_100; s++) {
        bytes[s * WIDE] = 250;
        bytes[s * WIDE + 1] = (uint8_t)(49 * s);
        for (size_t i = 2; i < WIDE; i++)
            bytes[s * WIDE + i] = (uint8_t)(s + i);
    }
    put(&here, "cifar100/train.bin", bytes, sizeof bytes);
    put(&here, "data/cifar-100-binary/test.bin.gz", bytes, sizeof bytes);
    lk_dataset *data = NULL;
    assert_ok(lk_dataset_open("cifar100", here.path, LK_SPLIT_TRAIN, &data));
    assert_int_equal(lk_dataset_get_info(data)->classes, 100);
    assert_int_equal(lk_dataset_get_info(data)->count, COUNT_100);
    for (size_t s = 0; s < COUNT_100; s++) {
        uint8_t pixels[RECORD - 1];
        int32_t label = -1;
        assert_ok(lk_dataset_get(data, s, pixels, &label));
        assert_int_equal(label, 49 * s);
        assert_memory_equal(pixels, bytes + s * WIDE + 2, sizeof pixels);
    }
    lk_dataset_destroy(data);
    assert_ok(lk_dataset_open("cifar100", NULL, LK_SPLIT_TEST, &data));
    lk_dataset_destroy(data);
    bytes[WIDE + 1] = 100;
    put(&here, "cifar100/train.bin", bytes, sizeof bytes);
    refuse("cifar100", LK_SPLIT_TRAIN, LK_STATUS_FORMAT, "train.bin", "label 100 of record 1 (byte 3075)");
}

static void cifar_malformed(void **state)
{
    put_cifar("", "");
    cut(&here, "data_batch_3.bin", 3 * RECORD - 1);
    refuse("cifar10", LK_SPLIT_TRAIN, LK_STATUS_FORMAT, "data_batch_3.bin", "ends at byte 9218");
    cut(&here, "data_batch_3.bin", 0);
    refuse("cifar10", LK_SPLIT_TRAIN, LK_STATUS_FORMAT, "data_batch_3.bin", "byte 0");
    uint8_t record[2 * RECORD] = {0};
    record[RECORD] = 10;
    put(&here, "test_batch.bin", record, sizeof record);
    refuse("cifar10", LK_SPLIT_TEST, LK_STATUS_FORMAT, "test_batch.bin", "label 10 of record 1 (byte 3073)");
    char path[300];
    snprintf(path, sizeof path, "%s/data_batch_5.bin", here.path);
    assert_int_equal(unlink(path), 0);
    refuse("cifar10", LK_SPLIT_TRAIN, LK_STATUS_NOT_FOUND, here.path, "data_batch_5.bin");
}

/* The search order is $LOCKSTEP_DATA, ./data, the user's cache. */
static void search_order(void **state)
{
    static const char *const folders[] = {"variable", "data", "lockstep"};
    char variable[300], found[400];
    snprintf(variable, sizeof variable, "%s/variable", here.path);
    setenv("LOCKSTEP_DATA", variable, 1);
    for (size_t i = 3; i-- > 0;) {
        char under[64];
        snprintf(under, sizeof under, "%s/MNIST/raw/", folders[i]);
        put_split(under, LK_SPLIT_TRAIN, '-', ".gz");
        lk_dataset *data = NULL;
        assert_ok(lk_dataset_open("mnist", i % 2 ? "" : NULL, LK_SPLIT_TRAIN, &data));
        snprintf(found, sizeof found, "%s/MNIST/raw", folders[i]);
        const char *path = lk_dataset_get_info(data)->path;
        assert_true(strlen(path) >= strlen(found));
        assert_string_equal(path + strlen(path) - strlen(found), found);
        lk_dataset_destroy(data);
    }
}

/* A given folder is the only one that is searched. */
static void given_folder(void **state)
{
    lk_dataset *data = NULL;
    char dir[300], variable[300];
    snprintf(variable, sizeof variable, "%s/variable", here.path);
    setenv("LOCKSTEP_DATA", variable, 1);
    put_split("variable/MNIST/raw/", LK_SPLIT_TRAIN, '-', ".gz");
    snprintf(dir, sizeof dir, "%s/given", here.path);
    assert_int_equal(lk_dataset_open("mnist", dir, LK_SPLIT_TRAIN, &data), LK_STATUS_NOT_FOUND);
    assert_null(data);
    assert_detail("data set 'mnist' was not found; looked in ");
    assert_detail("/given, which is not there");
    assert_detail("lockstep data get mnist --data-dir ");
    assert_null(strstr(lk_error_detail(), "/usr/share/datasets"));
    put_split("given/MNIST/raw/", LK_SPLIT_TEST, '-', "");
    assert_fails(lk_dataset_open("mnist", dir, LK_SPLIT_TRAIN, &data), LK_STATUS_NOT_FOUND,
                 "given/MNIST/raw lacks train-images-idx3-ubyte");
    put_split("given/MNIST/raw/", LK_SPLIT_TRAIN, '-', "");
    assert_ok(lk_dataset_open("mnist", dir, LK_SPLIT_TRAIN, &data));
    assert_contains(lk_dataset_get_info(data)->path, "/given/MNIST/raw");
    lk_dataset_destroy(data);
}

static void not_found(void **state)
{
    lk_dataset *data = NULL;
    assert_int_equal(lk_dataset_open("mnist", NULL, LK_SPLIT_TRAIN, &data), LK_STATUS_NOT_FOUND);
    static const char *const parts[] = {
        "./data", "/lockstep",  "/usr/share/datasets", "MNIST/raw",   "lockstep data get mnist",
        "digits", "`data_dir`", "LOCKSTEP_DATA",       "train-images"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_detail(parts[i]);
    refuse("mnist", LK_SPLIT_TRAIN, LK_STATUS_NOT_FOUND, here.path, "leave `data_dir` out");
    assert_fails(lk_dataset_open("imagenet", NULL, LK_SPLIT_TRAIN, &data), LK_STATUS_NOT_FOUND, "train/CLASS");
    assert_detail("with `data_dir` or LOCKSTEP_DATA (it cannot be fetched), or use the built-in 'digits'");
    refuse("minst", LK_SPLIT_TRAIN, LK_STATUS_NOT_FOUND, "'minst'", "did you mean 'mnist'");
    refuse("cifar", LK_SPLIT_TRAIN, LK_STATUS_NOT_FOUND, "'cifar'", "did you mean 'cifar10' or 'cifar100'? (");
    refuse("/no/such/folder", LK_SPLIT_TRAIN, LK_STATUS_NOT_FOUND, "'/no/such/folder'", "fashion-mnist");
    refuse(here.path, LK_SPLIT_TEST, LK_STATUS_NOT_FOUND, "no test split", "test_batch.bin");
    refuse("", LK_SPLIT_TRAIN, LK_STATUS_USAGE, "empty", "");
    refuse("digits", (lk_split)2, LK_STATUS_USAGE, "`split` 2", "");
}

/* Both MNIST data sets use the same file names; a folder named after one is not used for the other. */
static void not_the_other(void **state)
{
    put_split("fashion-mnist/", LK_SPLIT_TRAIN, '-', "");
    char dir[300];
    snprintf(dir, sizeof dir, "%s/fashion-mnist/", here.path);
    check_split("fashion-mnist", dir, LK_SPLIT_TRAIN);
    check_split("fashion-mnist", here.path, LK_SPLIT_TRAIN);
    lk_dataset *data = NULL;
    assert_int_equal(lk_dataset_open("mnist", dir, LK_SPLIT_TRAIN, &data), LK_STATUS_NOT_FOUND);
}

static void table(void **state)
{
    static const char *const names[] = {"mnist", "fashion-mnist", "cifar10", "cifar100", "imagenet", "digits"};
    size_t count = sizeof names / sizeof *names;
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(lk_dataset_list(i)->name, names[i]);
        assert_true(strlen(lk_dataset_list(i)->summary) > 0);
    }
    assert_null(lk_dataset_list(count));
    lk_dataset_destroy(NULL);
}

static char real_data[512];

/* The published test split: its first labels and the sum of all its bytes. */
static void real_mnist(void **state)
{
    if (*real_data == '\0')
        skip();
    setenv("LOCKSTEP_DATA", real_data, 1);
    lk_dataset *data = NULL;
    lk_status status = lk_dataset_open("mnist", NULL, LK_SPLIT_TEST, &data);
    if (status == LK_STATUS_NOT_FOUND)
        skip();
    assert_ok(status);
    assert_int_equal(lk_dataset_get_info(data)->count, 10000);
    static const int32_t first[] = {7, 2, 1, 0, 4, 1, 4, 9, 5, 9};
    uint64_t sum = 0;
    for (size_t i = 0; i < 10000; i++) {
        uint8_t pixels[784];
        int32_t label;
        assert_ok(lk_dataset_get(data, i, pixels, &label));
        if (i < 10)
            assert_int_equal(label, first[i]);
        for (size_t k = 0; k < 784; k++)
            sum += pixels[k];
    }
    assert_int_equal(sum, 264923200);
    lk_dataset_destroy(data);
}

/* The fingerprint is a hash of evenly spread labels and of the normalisation. It reads no pixels, which may
 * still be inflating. */
static void fingerprint(void **state)
{
    enum { HASHED = 256 };
    lk_dataset *data = NULL;
    assert_ok(lk_dataset_open("digits", NULL, LK_SPLIT_TEST, &data));
    uint64_t hash =
        lk__hash(data->info.std, sizeof *data->info.std, lk__hash(data->info.mean, sizeof *data->info.mean, 0));
    for (size_t i = 0; i < HASHED; i++) {
        int32_t label = data->ops->label(data, i * data->info.count / HASHED);
        hash = lk__hash(&label, sizeof label, hash);
    }
    assert_true(lk__dataset_fingerprint(data) == hash);
    lk_dataset_destroy(data);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const char *variable = getenv("LOCKSTEP_DATA");
    snprintf(real_data, sizeof real_data, "%s", variable ? variable : "");
    return RUN_TESTS(NULL, NULL, CASE(idx_round_trip), CASE(idx_bad_images), CASE(idx_bad_labels), CASE(idx_bad_gzip),
                     CASE(idx_bad_checksum), CASE(idx_classes), CASE(idx_other_labels), CASE(cifar_round_trip),
                     CASE(hashes_of_files), CASE(cifar_malformed), CASE(cifar100_round_trip), CASE(search_order),
                     CASE(given_folder), CASE(not_found), CASE(not_the_other), CASE(table), CASE(fingerprint),
                     CASE(real_mnist));
}
