/* test_short_memory.c - a lack of memory is not reported as a damaged file. Every allocation during the
 * reading of a checkpoint, a state, options, an image or a data set fails once, also in other
 * libraries: the status is LK_STATUS_MEMORY, or the reading succeeds. */
#include "heap.h"

#include <sys/stat.h>
#include <zlib.h>

#include <lockstep/checkpoint.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/codec/codec.h"
#include "data/download/archive.h"
#include "io/yaml.h"
#include "train/parts.h"

#include "../data/tar.h"
#include "check.h"
#include "temp_folder.h"

enum { MOST = 100000 };

/* Reads the file and frees the result. */
typedef lk_status (*trial)(const char *path);

/* Lets each allocation fail once; returns the number of allocations. */
static size_t fail_each(trial read, const char *path)
{
    for (size_t n = 1; n < MOST; n++) {
        heap_watch(n);
        lk_status status = read(path);
        heap_leave();
        if (status != LK_OK && (!heap.failed || status != LK_STATUS_MEMORY))
            fail_msg("%s: allocation %zu%s: status %d: %s", path, n, heap.failed ? " failed" : "", (int)status,
                     lk_error_detail());
        if (!heap.failed)
            return n - 1;
    }
    fail_msg("%s: too many allocations", path);
    return 0;
}

static lk_status read_state(const char *path)
{
    lk_state *state = NULL;
    lk_status status = lk_state_load(path, &state);
    lk_state_destroy(state);
    return status;
}

static lk_status read_checkpoint(const char *path)
{
    lk_checkpoint *checkpoint = NULL;
    lk_status status = lk_checkpoint_load(path, &checkpoint);
    lk_checkpoint_destroy(checkpoint);
    return status;
}

static lk_status read_yaml(const char *path)
{
    lk_yaml *yaml = NULL;
    lk_status status = lk__yaml_read(path, &yaml);
    lk__yaml_destroy(yaml);
    return status;
}

/* Both checkpoints are complete: the newer one must be found. */
static lk_status find_newest(const char *path)
{
    lk_resume resume = {0};
    lk_status status = lk__resume_find(NULL, path, &resume);
    if (status == LK_OK)
        assert_contains(resume.path, "step-000000002");
    lk__resume_fini(&resume);
    return status;
}

static lk_status read_image(const char *path)
{
    uint8_t *bytes = NULL;
    size_t count = 0;
    lk_image image = {0};
    LK_TRY(lk__file_read(path, 0, &bytes, &count));
    const lk_image_file file = {path, bytes, count};
    lk_status status = lk__image_decode(&file, NULL, &image);
    lk__image_fini(&image);
    lk__mem_free(bytes);
    return status;
}

static lk_status read_content(const char *path)
{
    uint8_t *bytes = NULL;
    size_t count = 0;
    lk_status status = lk__file_read(path, 0, &bytes, &count);
    lk__mem_free(bytes);
    return status;
}

static lk_status note_member(void *arg, size_t member)
{
    return LK_OK;
}

static lk_status drop(void *arg, const uint8_t *data, size_t bytes)
{
    return LK_OK;
}

static lk_status read_archive(const char *path)
{
    static const lk_archive_member members[] = {{"set/a.bin", 700}};
    const lk_archive_sink sink = {.begin = note_member, .write = drop, .end = note_member};
    return lk__archive_read(path, members, 1, &sink);
}

static lk_status open_data(const char *path)
{
    lk_dataset *data = NULL;
    lk_status status = lk_dataset_open(path, NULL, LK_SPLIT_TRAIN, &data);
    lk_dataset_destroy(data);
    return status;
}

static void fill(lk_state *state, size_t tensors)
{
    for (size_t i = 0; i < tensors; i++) {
        char name[64];
        lk_state_entry *entry;
        snprintf(name, sizeof name, "layer%zu.weight", i);
        assert_int_equal(lk_state_add(state, name, LK_DTYPE_F32, 2, (size_t[]){3, 2}, &entry), LK_OK);
    }
}

/* The checkpoint has the notes of a run's position. */
static void save_checkpoint(uint64_t step)
{
    lk_state *states[2];
    lk_checkpoint *checkpoint;
    char name[64];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(lk_state_create(&states[i]), LK_OK);
        fill(states[i], 4);
    }
    assert_int_equal(lk_checkpoint_create(states[0], states[1], &checkpoint), LK_OK);
    const lk_position position = {.step = (size_t)step};
    assert_int_equal(lk__position_note(&position, checkpoint), LK_OK);
    snprintf(name, sizeof name, "run/step-%09u", (unsigned)step);
    assert_int_equal(lk_checkpoint_save(checkpoint, temp_path(name)), LK_OK);
    lk_checkpoint_destroy(checkpoint);
}

static void write_file(const char *path, const void *bytes, size_t count, bool gzip)
{
    gzFile file = gzopen(path, gzip ? "wb" : "wbT");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, bytes, (unsigned)count), (int)count);
    assert_int_equal(gzclose(file), Z_OK);
}

static int make_folder(void **ctx)
{
    temp_folder_create(temp_folder);
    assert_int_equal(mkdir(temp_path("run"), 0777), 0);
    save_checkpoint(1);
    save_checkpoint(2);
    return 0;
}

static void test_checkpoints(void **ctx)
{
    const char *path = temp_path("run/step-000000002");
    assert_true(fail_each(lk_checkpoint_verify, path) > 100);
    assert_true(fail_each(read_checkpoint, path) > 100);
    assert_true(fail_each(read_state, path) > 50);
}

static void test_resume(void **ctx)
{
    const char *path = temp_path("run");
    assert_true(fail_each(find_newest, path) > 100);
}

static void test_states(void **ctx)
{
    static const char *const names[] = {"torch_2.15.pth", "torch_2.15_legacy.pth", "compressed.pth"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/io/data/%s", LK_TESTS_DIR, names[i]);
        if (read_state(path) != LK_STATUS_UNSUPPORTED)
            assert_true(fail_each(read_state, path) > 10);
    }
}

static void test_options(void **ctx)
{
    static const char text[] =
        "model: cnn\nlr: .1\nlist: [1, 'two', \"three\\n\"]\nmap:\n  a: |\n    text\n  b: {c: d}\n";
    const char *path = temp_path("options.yaml");
    write_file(path, text, sizeof text - 1, false);
    if (read_yaml(path) != LK_STATUS_UNSUPPORTED)
        assert_true(fail_each(read_yaml, path) > 10);
}

static void test_images(void **ctx)
{
    static const char *const names[] = {"palette.png", "interlaced.png", "rgba.png",        "bits.png",
                                        "rgb.jpg",     "cmyk.jpg",       "progressive.jpg", "grey.jpg"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/data/images/%s", LK_TESTS_DIR, names[i]);
        if (read_image(path) != LK_STATUS_UNSUPPORTED)
            assert_true(fail_each(read_image, path) > 3);
    }
}

static void test_gzip(void **ctx)
{
    static tar t;
    static const uint8_t bytes[700];
    const char *path = temp_path("set.tar.gz");
    tar_add(&t, "set/a.bin", bytes, sizeof bytes);
    tar_end(&t);
    write_file(path, t.bytes, t.used, true);
    assert_true(fail_each(read_archive, path) > 3);
    assert_true(fail_each(read_content, path) > 2);
}

/* Two images of 3 by 3 pixels. */
static void test_data(void **ctx)
{
    static const uint8_t images[16 + 18] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 3};
    static const uint8_t labels[8 + 2] = {0, 0, 8, 1, 0, 0, 0, 2, 0, 1};
    const char *path = temp_path("data");
    assert_int_equal(mkdir(path, 0777), 0);
    write_file(temp_path("data/train-images-idx3-ubyte.gz"), images, sizeof images, true);
    write_file(temp_path("data/train-labels-idx1-ubyte.gz"), labels, sizeof labels, true);
    assert_true(fail_each(open_data, path) > 5);
}

int main(void)
{
    if (!HEAP_REPLACED) {
        puts("skipped: allocations cannot be made to fail in this build");
        return 77;
    }
    return RUN_TESTS(make_folder, temp_folder_tear_down, TEST(test_checkpoints), TEST(test_resume), TEST(test_states),
                     TEST(test_options), TEST(test_images), TEST(test_gzip), TEST(test_data));
}
