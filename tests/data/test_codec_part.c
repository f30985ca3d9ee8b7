/* test_codec_part.c - the wanted part of a decoded JPEG image has the bits of a whole decode, for all samplings of
 * chroma and kinds of files; damage outside of the part is found. */
#include "data/fixture.h"

#include "base/mem.h"
#include "base/rng.h"
#include "data/codec/codec.h"

#ifdef LK_HAVE_JPEG
#include <jpeglib.h>
#endif

#ifdef LIBJPEG_TURBO_VERSION
typedef struct kind {
    const char *name;
    J_COLOR_SPACE space;
    int h, v; /* sampling of the first component; those of the others are 1 */
    bool progressive, apart;
    unsigned restart; /* MCUs between restart markers; 0: none */
} kind;

static const kind kinds[] = {
    {.name = "4:4:4", .space = JCS_YCbCr, .h = 1, .v = 1},
    {.name = "4:2:2", .space = JCS_YCbCr, .h = 2, .v = 1},
    {.name = "4:2:0", .space = JCS_YCbCr, .h = 2, .v = 2},
    {.name = "4:4:0", .space = JCS_YCbCr, .h = 1, .v = 2},
    {.name = "4:1:1", .space = JCS_YCbCr, .h = 4, .v = 1},
    {.name = "4:1:0", .space = JCS_YCbCr, .h = 4, .v = 2},
    {.name = "grey", .space = JCS_GRAYSCALE, .h = 1, .v = 1},
    {.name = "grey with sampling 2x2", .space = JCS_GRAYSCALE, .h = 2, .v = 2},
    {.name = "RGB", .space = JCS_RGB, .h = 1, .v = 1},
    {.name = "YCCK", .space = JCS_YCCK, .h = 2, .v = 2},
    {.name = "progressive 4:2:0", .space = JCS_YCbCr, .h = 2, .v = 2, .progressive = true},
    {.name = "progressive 4:2:2", .space = JCS_YCbCr, .h = 2, .v = 1, .progressive = true},
    {.name = "4:2:0 in one scan for each component", .space = JCS_YCbCr, .h = 2, .v = 2, .apart = true},
    {.name = "4:2:0 with restart markers", .space = JCS_YCbCr, .h = 2, .v = 2, .restart = 3},
    {.name = "4:2:2 with restart markers", .space = JCS_YCbCr, .h = 2, .v = 1, .restart = 5},
};
enum { KINDS = sizeof kinds / sizeof *kinds, COLOURS = 4 };

typedef struct jpeg_file {
    unsigned char *bytes;
    unsigned long count;
} jpeg_file;

static void set_kind(struct jpeg_compress_struct *jpeg, const kind *k)
{
    static const jpeg_scan_info scans[] = {{1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}};
    jpeg_set_defaults(jpeg);
    jpeg_set_colorspace(jpeg, k->space);
    jpeg_set_quality(jpeg, 90, TRUE);
    for (int i = 0; i < jpeg->num_components; i++) {
        bool fine = i == 0 || i == 3;
        jpeg->comp_info[i].h_samp_factor = fine ? k->h : 1;
        jpeg->comp_info[i].v_samp_factor = fine ? k->v : 1;
    }
    jpeg->restart_interval = k->restart;
    if (k->progressive)
        jpeg_simple_progression(jpeg);
    if (k->apart) {
        jpeg->scan_info = scans;
        jpeg->num_scans = 3;
    }
}

/* Noise: every pixel differs from its neighbours, so that a wrong context changes bits. */
static jpeg_file encode(const kind *k, size_t height, size_t width)
{
    jpeg_file file = {0};
    struct jpeg_error_mgr errors;
    struct jpeg_compress_struct jpeg = {.err = jpeg_std_error(&errors)};
    lk_rng rng = lk__rng(1, LK_RNG_PURPOSE_AUGMENT, 0, (uint32_t)height, (uint32_t)width);
    JSAMPLE *row = test_malloc(COLOURS * width);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &file.bytes, &file.count);
    jpeg.image_width = (JDIMENSION)width;
    jpeg.image_height = (JDIMENSION)height;
    jpeg.in_color_space = k->space == JCS_GRAYSCALE ? JCS_GRAYSCALE : k->space == JCS_YCCK ? JCS_CMYK : JCS_RGB;
    jpeg.input_components = k->space == JCS_GRAYSCALE ? 1 : k->space == JCS_YCCK ? COLOURS : 3;
    set_kind(&jpeg, k);
    jpeg_start_compress(&jpeg, TRUE);
    for (size_t y = 0; y < height; y++) {
        for (size_t x = 0; x < COLOURS * width; x++)
            row[x] = (JSAMPLE)lk__rng_u32(&rng, y * COLOURS * width + x);
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    test_free(row);
    return file;
}

/* The part of arg, or the first pixel of an image that is too small for it. */
static lk_image_region given(const void *arg, size_t height, size_t width)
{
    const lk_image_region *part = arg;
    bool fits = part->top + part->height <= height && part->left + part->width <= width;
    return fits ? *part : (lk_image_region){0, 0, 1, 1};
}

static lk_status decode(const jpeg_file *file, const lk_image_region *part, lk_image *out)
{
    const lk_image_want want = {given, part};
    return lk__image_decode(&(lk_image_file){"image", file->bytes, file->count}, part ? &want : NULL, out);
}

static void check_part(const kind *k, const jpeg_file *file, const lk_image_region *part, const lk_image *whole)
{
    static lk_image image;
    if (image.pixels)
        memset(image.pixels, 0xa5, image.room);
    assert_ok(decode(file, part, &image));
    assert_int_equal(image.height, whole->height);
    assert_int_equal(image.width, whole->width);
    for (size_t c = 0; c < 3; c++)
        for (size_t y = part->top; y < part->top + part->height; y++) {
            size_t at = (c * whole->height + y) * whole->width + part->left;
            if (memcmp(image.pixels + at, whole->pixels + at, part->width) != 0)
                fail_msg("%s, %zux%zu: row %zu of the part %zux%zu at column %zu, row %zu differs", k->name,
                         whole->width, whole->height, y, part->width, part->height, part->left, part->top);
        }
}

static size_t draw(const lk_rng *rng, uint64_t element, size_t below)
{
    return lk__rng_below(lk__rng_u32(rng, element), (uint32_t)below);
}

/* Parts at random places: of any size, and very small ones. */
static void check_image(const kind *k, size_t height, size_t width, size_t parts)
{
    lk_image whole = {0};
    jpeg_file file = encode(k, height, width);
    lk_rng rng = lk__rng(2, LK_RNG_PURPOSE_AUGMENT, 0, (uint32_t)height, (uint32_t)width);
    assert_ok(decode(&file, NULL, &whole));
    for (size_t i = 0; i < parts; i++) {
        size_t most = i % 2 ? 4 : height + width;
        lk_image_region part = {.height = 1 + draw(&rng, 4 * i, lk__size_min(most, height)),
                                .width = 1 + draw(&rng, 4 * i + 1, lk__size_min(most, width))};
        part.top = draw(&rng, 4 * i + 2, height - part.height + 1);
        part.left = draw(&rng, 4 * i + 3, width - part.width + 1);
        check_part(k, &file, &part, &whole);
    }
    lk__image_fini(&whole);
    free(file.bytes);
}

static void test_parts(void **state)
{
    static const size_t sizes[][2] = {{1, 1},   {1, 40},  {40, 1},   {7, 9},    {16, 16},   {17, 33},
                                      {31, 65}, {48, 48}, {70, 100}, {129, 67}, {200, 150}, {64, 257}};
    for (size_t k = 0; k < KINDS; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            check_image(&kinds[k], sizes[i][0], sizes[i][1], 24);
}

/* Each first row and each first column, near to the edges of blocks and far from them. */
static void test_every_place(void **state)
{
    enum { SIDE = 67 };
    lk_image whole = {0};
    for (size_t k = 0; k < KINDS; k++) {
        jpeg_file file = encode(&kinds[k], SIDE, SIDE);
        assert_ok(decode(&file, NULL, &whole));
        for (size_t at = 0; at < SIDE; at++) {
            check_part(&kinds[k], &file, &(lk_image_region){at, SIDE - 1 - at, 1, 1}, &whole);
            check_part(&kinds[k], &file, &(lk_image_region){at, at, SIDE - at, SIDE - at}, &whole);
            check_part(&kinds[k], &file, &(lk_image_region){0, 0, at + 1, at + 1}, &whole);
        }
        free(file.bytes);
    }
    lk__image_fini(&whole);
}

/* A file that is cut off is refused, whichever part is wanted. */
static void test_damage_outside(void **state)
{
    static const lk_image_region parts[] = {{0, 0, 4, 4}, {30, 10, 8, 20}, {99, 99, 1, 1}};
    lk_image image = {0};
    for (size_t k = 0; k < KINDS; k++) {
        jpeg_file file = encode(&kinds[k], 100, 100);
        unsigned long whole = file.count;
        for (size_t i = 0; i < 3; i++)
            for (unsigned long missing = 3; missing < whole / 2; missing += 601) {
                file.count = whole - missing;
                assert_fails(decode(&file, &parts[i], &image), LK_STATUS_FORMAT, "image: damaged");
            }
        free(file.bytes);
    }
    lk__image_fini(&image);
}

/* An altered file is refused or accepted, whichever part is wanted, with the same pixels. */
static void test_altered(void **state)
{
    const lk_image_region part = {20, 10, 13, 17};
    lk_image whole = {0}, image = {0};
    size_t accepted = 0;
    for (size_t k = 0; k < KINDS; k++) {
        jpeg_file file = encode(&kinds[k], 50, 40);
        for (unsigned long at = 2; at < file.count; at += 7) {
            file.bytes[at] ^= 0x11;
            lk_status expected = decode(&file, NULL, &whole);
            assert_int_equal(decode(&file, &part, &image), expected);
            if (expected == LK_OK && whole.height == 50 && whole.width == 40) {
                check_part(&kinds[k], &file, &part, &whole);
                accepted++;
            }
            file.bytes[at] ^= 0x11;
        }
        free(file.bytes);
    }
    assert_true(accepted > 100);
    lk__image_fini(&whole);
    lk__image_fini(&image);
}

TEST_MAIN(NULL, NULL, TEST(test_parts), TEST(test_every_place), TEST(test_damage_outside), TEST(test_altered))
#else
int main(void)
{
    return 77;
}
#endif
