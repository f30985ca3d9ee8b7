/* test_codec.c - decoded images have the bytes that Pillow decodes; truncated and altered files, and files
 * that are no images, are refused. */
#include "data/fixture.h"

#include <lockstep/state.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/codec/codec.h"

#define IMAGES LK_TESTS_DIR "/data/images"

typedef struct content {
    char path[512];
    uint8_t *bytes;
    size_t count;
} content;

static content read_image(const char *name)
{
    content c;
    snprintf(c.path, sizeof c.path, IMAGES "/%s", name);
    assert_ok(lk__file_read(c.path, 0, &c.bytes, &c.count));
    return c;
}

static lk_status decode(const content *c, lk_image *image)
{
    return lk__image_decode(&(lk_image_file){c->path, c->bytes, c->count}, NULL, image);
}

static bool can_read(const content *c)
{
    const lk_image_file file = {c->path, c->bytes, c->count};
    const lk_codec *codec = lk__codec_find(&file);
    return codec && codec->decode;
}

static void test_pixels(void **state)
{
    lk_state *golden;
    lk_image image = {0};
    assert_ok(lk_state_load(IMAGES "/pixels.safetensors", &golden));
    assert_true(lk_state_count(golden) >= 12);
    for (size_t i = 0; i < lk_state_count(golden); i++) {
        const lk_state_entry *truth = lk_state_at(golden, i);
        content c = read_image(truth->name);
        if (can_read(&c)) {
            assert_ok(decode(&c, &image));
            size_t height, width;
            assert_ok(lk__image_size(c.path, &height, &width));
            assert_int_equal(height, truth->dims[1]);
            assert_int_equal(width, truth->dims[2]);
            assert_int_equal(image.channels, 3);
            assert_int_equal(image.height, truth->dims[1]);
            assert_int_equal(image.width, truth->dims[2]);
            for (size_t k = 0; k < truth->bytes; k++)
                if (image.pixels[k] != ((const uint8_t *)truth->data)[k])
                    fail_msg("%s: byte %zu is %d, Pillow has %d", truth->name, k, image.pixels[k],
                             ((const uint8_t *)truth->data)[k]);
        } else {
            assert_fails(decode(&c, &image), LK_STATUS_UNSUPPORTED, "install");
        }
        lk__mem_free(c.bytes);
    }
    lk__image_fini(&image);
    lk_state_destroy(golden);
}

/* A truncated image is refused, wherever it ends, and the file is named. A JPEG without its end mark may
 * be accepted: all its rows are there. */
static void test_cut_off(void **state)
{
    static const struct {
        const char *name;
        size_t may_miss;
    } cases[] = {{"rgb.jpg", 2}, {"progressive.jpg", 2}, {"rgb.png", 0}, {"palette.png", 0}};
    lk_image image = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        content c = read_image(cases[i].name);
        size_t whole = c.count;
        for (c.count = 0; can_read(&(content){.bytes = c.bytes, .count = whole}) && c.count + cases[i].may_miss < whole;
             c.count++) {
            if (decode(&c, &image) != LK_STATUS_FORMAT)
                fail_msg("%s: cut to %zu of %zu bytes, it was read", cases[i].name, c.count, whole);
            assert_detail(cases[i].name);
        }
        lk__mem_free(c.bytes);
    }
    lk__image_fini(&image);
}

/* A truncated header gives an error or the right size. A marker with a wrong length, and too many markers,
 * are errors. */
static void test_sizes_of_damaged_files(void **state)
{
    enum { SEGMENTS = 5000, MOST = 400 };
    static const char *const names[] = {"rgb.jpg", "rgb.png"};
    static uint8_t endless[2 + 4 * SEGMENTS] = {0xff, 0xd8};
    folder f = folder_create();
    char path[512];
    size_t height, width;
    snprintf(path, sizeof path, "%s/image", f.path);
    for (size_t i = 0; i < 2; i++) {
        content c = read_image(names[i]);
        for (size_t cut = 0; cut < lk__size_min(c.count, MOST); cut++) {
            put(&f, "image", c.bytes, cut);
            if (lk__image_size(path, &height, &width) == LK_OK)
                assert_true(height == 29 && width == 37);
            else
                assert_detail(path);
        }
        lk__mem_free(c.bytes);
    }
    for (size_t i = 0; i < SEGMENTS; i++)
        memcpy(endless + 2 + 4 * i, (uint8_t[]){0xff, 0xe0, 0, 2}, 4);
    put(&f, "image", endless, sizeof endless);
    assert_fails(lk__image_size(path, &height, &width), LK_STATUS_FORMAT, "segments");
    endless[5] = 0; /* a length that is smaller than the length field */
    put(&f, "image", endless, sizeof endless);
    assert_fails(lk__image_size(path, &height, &width), LK_STATUS_FORMAT, "byte 2");
    folder_destroy(&f);
}

/* The message has the size of a truncated file, whatever the decoder has read. */
static void test_cut_png(void **state)
{
    char text[64];
    if (!lk__codec_png.decode)
        skip();
    content c = read_image("rgb.png");
    size_t whole = c.count;
    lk_image image = {0};
    for (size_t cut = whole / 4; cut < whole; cut += whole / 4) {
        c.count = cut;
        assert_int_equal(decode(&c, &image), LK_STATUS_FORMAT);
        snprintf(text, sizeof text, "rgb.png: cut off: it ends at byte %zu", cut);
        assert_detail(text);
    }
    lk__image_fini(&image);
    lk__mem_free(c.bytes);
}

static size_t scan_begin(const content *c)
{
    size_t at = 2;
    while (at + 4 < c->count && c->bytes[at + 1] != 0xda)
        at += 2 + (size_t)c->bytes[at + 2] * 256 + c->bytes[at + 3];
    assert_in_range(at + 4, 0, c->count);
    return at + 2 + (size_t)c->bytes[at + 2] * 256 + c->bytes[at + 3];
}

static void refuse_jpeg(const content *c, const char *what)
{
    lk_image image = {0};
    if (decode(c, &image) != LK_STATUS_FORMAT)
        fail_msg("%s: %s, it was read", c->path, what);
    assert_detail(c->path);
    assert_detail("damaged at about byte");
    lk__image_fini(&image);
}

/* A scan that ends early in front of a proper end mark, or has zeros in the middle, is refused: libjpeg
 * would continue with invented pixels. */
static void test_holes(void **state)
{
    enum { HOLE = 60 };
    static const struct {
        const char *name;
        size_t hole; /* where it begins in the scan */
    } cases[] = {{"rgb.jpg", 320}, {"fine.jpg", 384}, {"wide.jpg", 288}, {"cmyk.jpg", 96}, {"progressive.jpg", 96}};
    if (!lk__codec_jpeg.decode)
        skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        content c = read_image(cases[i].name);
        size_t whole = c.count, begin = scan_begin(&c), cut = begin + (whole - begin) * 2 / 3;
        uint8_t kept[] = {c.bytes[cut], c.bytes[cut + 1]};
        memcpy(c.bytes + cut, (uint8_t[]){0xff, 0xd9}, 2);
        c.count = cut + 2;
        refuse_jpeg(&c, "cut at 2/3 with an end mark");
        memcpy(c.bytes + cut, kept, 2);
        c.count = whole;
        memset(c.bytes + begin + cases[i].hole, 0, HOLE);
        refuse_jpeg(&c, "with a hole in the scan");
        lk__mem_free(c.bytes);
    }
}

/* Extra bytes before the end mark, which some cameras write, change no pixel. */
static void test_harmless(void **state)
{
    enum { MORE = 32 };
    if (!lk__codec_jpeg.decode)
        skip();
    content c = read_image("rgb.jpg");
    lk_image image = {0}, padded = {0};
    uint8_t *bytes;
    assert_ok(decode(&c, &image));
    assert_ok(LK_ALLOC(c.count + MORE, "a copy", &bytes));
    memcpy(bytes, c.bytes, c.count - 2);
    memset(bytes + c.count - 2, 0x11, MORE);
    memcpy(bytes + c.count - 2 + MORE, c.bytes + c.count - 2, 2);
    assert_ok(decode(&(content){.path = "padded.jpg", .bytes = bytes, .count = c.count + MORE}, &padded));
    assert_int_equal(padded.height, image.height);
    assert_int_equal(padded.width, image.width);
    assert_memory_equal(padded.pixels, image.pixels, 3 * image.height * image.width);
    lk__image_fini(&padded);
    lk__image_fini(&image);
    lk__mem_free(bytes);
    lk__mem_free(c.bytes);
}

/* A changed byte gives an image or an error, never a crash. */
static void test_altered(void **state)
{
    static const char *const names[] = {"rgb.jpg", "progressive.jpg", "cmyk.jpg", "rgb.png", "palette.png", "bits.png"};
    lk_image image = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        content c = read_image(names[i]);
        for (size_t at = 0; at < c.count; at++) {
            c.bytes[at] ^= 0x55;
            lk_status status = decode(&c, &image);
            assert_true(status == LK_OK || status == LK_STATUS_FORMAT || status == LK_STATUS_MEMORY ||
                        status == LK_STATUS_UNSUPPORTED);
            c.bytes[at] ^= 0x55;
        }
        lk__mem_free(c.bytes);
    }
    lk__image_fini(&image);
}

static void test_no_image(void **state)
{
    lk_image image = {0};
    const content c = {.path = "notes.jpg", .bytes = (uint8_t[]){"some text"}, .count = 9};
    assert_fails(decode(&c, &image), LK_STATUS_FORMAT, "notes.jpg");
    assert_true(lk__image_named("a.JPEG") && lk__image_named("a.b.png") && lk__image_named(".jpg"));
    assert_false(lk__image_named("a.txt") || lk__image_named("jpg") || lk__image_named("a.jpg.gz"));
    lk__image_fini(&image);
}

TEST_MAIN(NULL, NULL, TEST(test_pixels), TEST(test_cut_off), TEST(test_sizes_of_damaged_files), TEST(test_cut_png),
          TEST(test_holes), TEST(test_harmless), TEST(test_altered), TEST(test_no_image))
