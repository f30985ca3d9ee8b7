/* test_damaged.c - every parser of files gets valid files with random damage. A load must succeed, and the
 * result must be readable, or fail with a status and a detail that names the file. Sanitizer builds check the
 * memory.
 *
 * LOCKSTEP_FUZZ_ROUNDS is the number of damaged files of each format, LOCKSTEP_FUZZ_SEED the first seed. A
 * failure names its round. */
#include <sys/stat.h>
#include <zlib.h>

#include <lockstep/data.h>
#include <lockstep/state.h>

#include "check.h"
#include "data/codec/codec.h"
#include "data/download/archive.h"
#include "data/sets/dataset.h"
#include "temp_folder.h"

enum { MAX_BYTES = 1 << 16, IMAGES = 12, SIDE = 5, CIFAR_RECORD = 3073, CIFAR100_RECORD = 3074, DEFAULT_ROUNDS = 1500 };

typedef struct bytes {
    size_t count;
    uint8_t at[MAX_BYTES];
} bytes;

static uint64_t random_state;
static unsigned long current_round; /* 0: the undamaged file */

static uint32_t draw(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % below);
}

static unsigned long setting(const char *name, unsigned long otherwise)
{
    const char *text = getenv(name);
    return text ? strtoul(text, NULL, 10) : otherwise;
}

static void write_file(const char *name, const bytes *content)
{
    FILE *file = fopen(temp_path(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(content->at, 1, content->count, file), content->count);
    assert_int_equal(fclose(file), 0);
}

static void read_file(const char *name, bytes *content)
{
    FILE *file = fopen(temp_path(name), "rb");
    assert_non_null(file);
    content->count = fread(content->at, 1, MAX_BYTES, file);
    fclose(file);
    assert_in_range(content->count, 1, MAX_BYTES / 2);
}

/* Half of the damage is in the first bytes, where headers are. */
static size_t place(const bytes *content)
{
    uint32_t end = (uint32_t)content->count;
    return draw(end > 80 && draw(2) ? 80 : end);
}

static void damage_number(bytes *content, size_t at)
{
    static const uint64_t numbers[] = {0, 1, 0x7f, 0xff, 0x7fffffff, 0xffffffff, 0x100000000, INT64_MAX, UINT64_MAX};
    uint64_t number = numbers[draw(sizeof numbers / sizeof *numbers)];
    size_t width = draw(2) ? 4 : 8;
    int big_endian = (int)draw(2);
    for (size_t i = 0; i < width && at + i < content->count; i++)
        content->at[at + i] = (uint8_t)(number >> (8 * (big_endian ? width - 1 - i : i)));
}

static void damage_once(bytes *content)
{
    size_t at = place(content);
    switch (draw(6)) {
    case 0:
        content->at[at] ^= (uint8_t)(1u << draw(8));
        break;
    case 1:
        content->at[at] = (uint8_t) "{}[]\",:0-\\\xff"[draw(12)];
        break;
    case 2:
        content->count = at + 1;
        break;
    case 3:
        for (uint32_t more = 1 + draw(64); more > 0 && content->count < MAX_BYTES; more--)
            content->at[content->count++] = (uint8_t)draw(256);
        break;
    case 4:
        damage_number(content, at);
        break;
    default:
        memmove(content->at + at, content->at + place(content), draw((uint32_t)(content->count - at)) / 2);
        break;
    }
}

/* A failure must be a damaged file, which the detail names. */
static void check_refusal(lk_status status, const char *name)
{
    int blames_file = status == LK_STATUS_FORMAT || status == LK_STATUS_MISMATCH || status == LK_STATUS_UNSUPPORTED ||
                      status == LK_STATUS_IO;
    if (current_round == 0 || !blames_file || !strstr(lk_error_detail(), name))
        fail_msg("round %lu of %s: %s: '%s'", current_round, name, lk_status_string(status), lk_error_detail());
}

/* As check_refusal, and the detail has an offset. */
static void check_offset(lk_status status, const char *name)
{
    static const char *const places[] = {"byte", "header", "starts", "labels"};
    size_t found = 0;
    check_refusal(status, name);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        found += strstr(lk_error_detail(), places[i]) != NULL;
    if (found == 0)
        fail_msg("round %lu of %s: no offset is given: '%s'", current_round, name, lk_error_detail());
}

static void try_state(const char *name)
{
    lk_state *state = NULL;
    lk_status status = lk_state_load(temp_path(name), &state);
    if (status != LK_OK) {
        assert_null(state);
        check_refusal(status, name);
        return;
    }
    (void)lk_state_hash(state);
    lk_state_destroy(state);
}

static void try_dataset(const char *name)
{
    lk_dataset *data = NULL;
    lk_status status = lk_dataset_open(temp_folder, NULL, LK_SPLIT_TRAIN, &data);
    if (status != LK_OK) {
        assert_null(data);
        check_offset(status, name);
        return;
    }
    const lk_dataset_info *info = lk_dataset_get_info(data);
    uint8_t *pixels = malloc(info->channels * info->height * info->width);
    assert_non_null(pixels);
    for (size_t i = 0; i < info->count && status == LK_OK; i++) {
        int32_t label = -1;
        status = lk_dataset_get(data, i, pixels, &label);
        if (status == LK_OK)
            assert_in_range(label, 0, 255);
    }
    if (status != LK_OK)
        check_offset(status, name);
    free(pixels);
    lk_dataset_destroy(data);
}

/* The first image of a folder of images. */
static void try_image(const char *name)
{
    lk_dataset *data = NULL;
    lk_image image = {0};
    int32_t label = -1;
    assert_int_equal(lk_dataset_open(temp_folder, NULL, LK_SPLIT_TRAIN, &data), LK_OK);
    lk_status status = lk__dataset_load(data, 0, NULL, &image, &label);
    if (status != LK_OK)
        check_offset(status, name);
    lk__image_fini(&image);
    lk_dataset_destroy(data);
}

static const lk_archive_member members[] = {{"set/one.bin", 300}, {"set/two.bin", 700}};

enum { MEMBERS = sizeof members / sizeof *members };

static lk_status on_member(void *arg, size_t member)
{
    size_t *left = arg;
    assert_in_range(member, 0, MEMBERS - 1);
    assert_int_equal(*left, 0);
    *left = members[member].bytes;
    return LK_OK;
}

static lk_status on_bytes(void *arg, const uint8_t *data, size_t count)
{
    size_t *left = arg;
    uint8_t copy[1024];
    assert_true(count <= *left && count <= sizeof copy);
    memcpy(copy, data, count);
    *left -= count;
    return LK_OK;
}

static lk_status on_end(void *arg, size_t member)
{
    const size_t *left = arg;
    assert_in_range(member, 0, MEMBERS - 1);
    assert_int_equal(*left, 0);
    return LK_OK;
}

static void try_archive(const char *name)
{
    size_t left = 0;
    const lk_archive_sink sink = {.arg = &left, .begin = on_member, .write = on_bytes, .end = on_end};
    lk_status status = lk__archive_read(temp_path(name), members, MEMBERS, &sink);
    if (status != LK_OK)
        check_offset(status, name);
}

/* Damages the file in many ways, and restores it. */
static void fuzz(const char *name, void (*attempt)(const char *name))
{
    static bytes whole, damaged;
    read_file(name, &whole);
    current_round = 0;
    attempt(name);
    unsigned long seed = setting("LOCKSTEP_FUZZ_SEED", 1), rounds = setting("LOCKSTEP_FUZZ_ROUNDS", DEFAULT_ROUNDS);
    for (unsigned long round = seed; round < seed + rounds; round++) {
        random_state = round;
        damaged = whole;
        for (uint32_t times = 1 + draw(3); times > 0; times--)
            damage_once(&damaged);
        write_file(name, &damaged);
        current_round = round;
        attempt(name);
    }
    write_file(name, &whole);
}

static void remove_file(const char *name)
{
    unlink(temp_path(name));
}

static void test_safetensors(void **unused)
{
    lk_state *state;
    lk_state_entry *entry;
    assert_int_equal(lk_state_create(&state), LK_OK);
    assert_int_equal(lk_state_add(state, "conv.weight", LK_DTYPE_F32, 4, (size_t[]){2, 3, 3, 3}, &entry), LK_OK);
    assert_int_equal(lk_state_add(state, "conv.bias", LK_DTYPE_BF16, 1, (size_t[]){2}, &entry), LK_OK);
    assert_int_equal(lk_state_add(state, "count", LK_DTYPE_I64, 0, (size_t[]){1}, &entry), LK_OK);
    assert_int_equal(lk_state_save(state, temp_path("model.safetensors")), LK_OK);
    lk_state_destroy(state);
    fuzz("model.safetensors", try_state);
    remove_file("model.safetensors");
}

static void fill_idx(bytes *images, bytes *labels)
{
    const uint8_t image_header[] = {0, 0, 8, 3, 0, 0, 0, IMAGES, 0, 0, 0, SIDE, 0, 0, 0, SIDE};
    const uint8_t label_header[] = {0, 0, 8, 1, 0, 0, 0, IMAGES};
    images->count = sizeof image_header + IMAGES * SIDE * SIDE;
    labels->count = sizeof label_header + IMAGES;
    for (size_t i = 0; i < images->count; i++)
        images->at[i] = i < sizeof image_header ? image_header[i] : (uint8_t)i;
    for (size_t i = 0; i < labels->count; i++)
        labels->at[i] = i < sizeof label_header ? label_header[i] : (uint8_t)(i % 10);
}

static void write_gzip(const char *name, const bytes *content)
{
    gzFile file = gzopen(temp_path(name), "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, content->at, (unsigned)content->count), (int)content->count);
    assert_int_equal(gzclose(file), Z_OK);
}

static void fuzz_idx(const char *images, const char *labels, void (*write)(const char *name, const bytes *content))
{
    static bytes image_bytes, label_bytes;
    fill_idx(&image_bytes, &label_bytes);
    write(images, &image_bytes);
    write(labels, &label_bytes);
    fuzz(images, try_dataset);
    fuzz(labels, try_dataset);
    remove_file(images);
    remove_file(labels);
}

static void test_idx(void **unused)
{
    fuzz_idx("train-images-idx3-ubyte", "train-labels-idx1-ubyte", write_file);
}

static void test_idx_gzip(void **unused)
{
    fuzz_idx("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", write_gzip);
}

static void test_cifar(void **unused)
{
    static const char *const names[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                                        "data_batch_5.bin"};
    static bytes batch;
    batch.count = 2 * CIFAR_RECORD;
    for (size_t i = 0; i < batch.count; i++)
        batch.at[i] = i % CIFAR_RECORD == 0 ? 7 : (uint8_t)i;
    for (size_t i = 0; i < 5; i++)
        write_file(names[i], &batch);
    fuzz(names[3], try_dataset);
    for (size_t i = 0; i < 5; i++)
        remove_file(names[i]);
}

static void fuzz_cifar100(const char *name, void (*write)(const char *name, const bytes *content))
{
    static bytes file;
    file.count = 3 * CIFAR100_RECORD;
    for (size_t i = 0; i < file.count; i++)
        file.at[i] = (uint8_t)(i % CIFAR100_RECORD < 2 ? 17 : i);
    write(name, &file);
    fuzz(name, try_dataset);
    remove_file(name);
}

static void test_cifar100(void **unused)
{
    fuzz_cifar100("train.bin", write_file);
    fuzz_cifar100("train.bin.gz", write_gzip);
}

/* Adds a header with its checksum and the padded bytes of the member. */
static void add_member(bytes *tar, const lk_archive_member *member)
{
    uint8_t *header = tar->at + tar->count;
    char sum[8];
    unsigned total = 0;
    memset(header, 0, 512 + 1024);
    snprintf((char *)header, 100, "%s", member->name);
    snprintf((char *)header + 124, 12, "%011zo", member->bytes);
    memcpy(header + 148, "        0", 9);
    memcpy(header + 257, "ustar", 6);
    for (size_t i = 0; i < 512; i++)
        total += header[i];
    snprintf(sum, sizeof sum, "%06o", total);
    memcpy(header + 148, sum, sizeof sum - 1);
    memset(header + 512, 'x', member->bytes);
    tar->count += 512 + (member->bytes + 511) / 512 * 512;
}

static void test_archive(void **unused)
{
    static bytes tar;
    tar.count = 0;
    for (size_t i = 0; i < MEMBERS; i++)
        add_member(&tar, &members[i]);
    memset(tar.at + tar.count, 0, 1024);
    tar.count += 1024;
    write_gzip("set.tar.gz", &tar);
    fuzz("set.tar.gz", try_archive);
    remove_file("set.tar.gz");
}

static void make_class(void)
{
    assert_int_equal(mkdir(temp_path("train"), 0777), 0);
    assert_int_equal(mkdir(temp_path("train/cat"), 0777), 0);
}

static void remove_class(void)
{
    assert_int_equal(rmdir(temp_path("train/cat")), 0);
    assert_int_equal(rmdir(temp_path("train")), 0);
}

/* One of the committed images. */
static void read_committed(const char *name, bytes *out)
{
    char path[512];
    snprintf(path, sizeof path, LK_TESTS_DIR "/data/images/%s", name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    out->count = fread(out->at, 1, MAX_BYTES, file);
    fclose(file);
}

static void test_images(void **unused)
{
    static const struct {
        const lk_codec *codec;
        const char *name;
    } cases[] = {{&lk__codec_jpeg, "rgb.jpg"},
                 {&lk__codec_jpeg, "progressive.jpg"},
                 {&lk__codec_jpeg, "cmyk.jpg"},
                 {&lk__codec_png, "rgba.png"},
                 {&lk__codec_png, "palette.png"}};
    static bytes content;
    make_class();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[64];
        if (!cases[i].codec->decode)
            continue;
        snprintf(name, sizeof name, "train/cat/%s", cases[i].name);
        read_committed(cases[i].name, &content);
        write_file(name, &content);
        fuzz(name, try_image);
        remove_file(name);
    }
    remove_class();
}

/* Every case removes its files. */
static int expect_empty(void **unused)
{
    return rmdir(temp_folder);
}

TEST_MAIN(temp_folder_set_up, expect_empty, TEST(test_safetensors), TEST(test_idx), TEST(test_idx_gzip),
          TEST(test_cifar), TEST(test_cifar100), TEST(test_archive), TEST(test_images))
