/* test_hostile_images.c - small files that would take much memory, by sizes in headers or by comments that
 * inflate, or much time, by many passes over the pixels. They are refused with an error that names the file;
 * the smallest valid files of large images are accepted. */
#include <sys/resource.h>
#include <zlib.h>

#include "check.h"
#include "data/codec/codec.h"

enum { MAX_BYTES = 1 << 16, TEXT = 7 << 20 };

typedef struct bytes {
    size_t count;
    uint8_t at[MAX_BYTES];
} bytes;

static void need(const lk_codec *codec)
{
    if (!codec->decode)
        skip();
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

static void put_word(bytes *out, uint32_t word)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        out->at[out->count++] = (uint8_t)(word >> shift);
}

static void add_chunk(bytes *png, const char *type, const void *content, size_t count)
{
    put_word(png, (uint32_t)count);
    uint8_t *start = png->at + png->count;
    memcpy(start, type, 4);
    if (count > 0)
        memcpy(start + 4, content, count);
    png->count += 4 + count;
    put_word(png, (uint32_t)crc32(0, start, (uInt)count + 4));
}

/* A black image of side x side pixels of one bit. The file has `rows` rows and `texts` comments, each
 * compressed from TEXT bytes. */
static void make_png(bytes *png, uint32_t side, size_t rows, int texts)
{
    static uint8_t packed[MAX_BYTES / 2];
    bytes header = {0};
    uLongf count = sizeof packed - 3;
    uint8_t *raw = malloc(TEXT);
    assert_non_null(raw);
    assert_in_range(rows * (1 + side / 8), 1, TEXT);
    memcpy(png->at, "\x89PNG\r\n\x1a\n", 8);
    png->count = 8;
    put_word(&header, side);
    put_word(&header, side);
    memcpy(header.at + header.count, (uint8_t[]){1, 0, 0, 0, 0}, 5);
    add_chunk(png, "IHDR", header.at, 13);
    memcpy(packed, "T\0", 3);
    memset(raw, 'a', TEXT);
    assert_int_equal(compress2(packed + 3, &count, raw, TEXT, 9), Z_OK);
    for (int i = 0; i < texts; i++)
        add_chunk(png, "zTXt", packed, 3 + count);
    count = sizeof packed;
    memset(raw, 0, TEXT);
    assert_int_equal(compress2(packed, &count, raw, rows * (1 + side / 8), 9), Z_OK);
    add_chunk(png, "IDAT", packed, count);
    add_chunk(png, "IEND", NULL, 0);
    free(raw);
}

static lk_status decode(const char *name, const bytes *content, lk_image *image)
{
    return lk__image_decode(&(lk_image_file){name, content->at, content->count}, NULL, image);
}

/* The peak memory of the process, in bytes. */
static size_t peak(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return (size_t)usage.ru_maxrss << 10;
}

/* Comments that inflate to a thousand times their bytes are never inflated. */
static void test_png_texts(void **unused)
{
    static bytes png;
    lk_image image = {0};
    need(&lk__codec_png);
    make_png(&png, 16, 16, 8);
    size_t before = peak();
    assert_int_equal(decode("texts.png", &png, &image), LK_OK);
    assert_in_range(peak() - before, 0, 3 * TEXT);
    lk__image_fini(&image);
}

/* The smallest possible PNG of a large image is read. A header with more pixels than the file can hold
 * makes the library allocate nothing. */
static void test_vast_png(void **unused)
{
    static bytes png;
    lk_image image = {0};
    need(&lk__codec_png);
    make_png(&png, 4096, 4096, 0);
    assert_in_range(png.count, 1, 4096);
    assert_int_equal(decode("black.png", &png, &image), LK_OK);
    assert_int_equal(image.width, 4096);
    for (size_t i = 0; i < 3 * image.height * image.width; i++)
        assert_int_equal(image.pixels[i], 0);
    lk__image_fini(&image);
    make_png(&png, 11000, 64, 0);
    assert_fails(decode("vast.png", &png, &image), LK_STATUS_FORMAT, "vast.png");
    assert_detail("11000 by 11000");
    assert_null(image.pixels);
}

static void test_vast_jpeg(void **unused)
{
    static bytes jpeg;
    lk_image image = {0};
    need(&lk__codec_jpeg);
    read_committed("grey.jpg", &jpeg);
    size_t at = 2;
    while (jpeg.at[at] == 0xff && jpeg.at[at + 1] != 0xc0)
        at += 2 + (size_t)jpeg.at[at + 2] * 256 + jpeg.at[at + 3];
    assert_int_equal(jpeg.at[at], 0xff);
    memcpy(jpeg.at + at + 5, (uint8_t[]){11000 >> 8, 11000 & 255, 12000 >> 8, 12000 & 255}, 4);
    assert_fails(decode("vast.jpg", &jpeg, &image), LK_STATUS_FORMAT, "vast.jpg");
    assert_detail("12000 by 11000");
    assert_null(image.pixels);
}

/* The last pass of a progressive image, repeated many times. */
static void test_jpeg_passes(void **unused)
{
    enum { TIMES = 200 };
    static bytes jpeg;
    lk_image image = {0};
    need(&lk__codec_jpeg);
    read_committed("progressive.jpg", &jpeg);
    size_t end = jpeg.count - 2, begin = end;
    while (begin > 0 && (jpeg.at[begin] != 0xff || jpeg.at[begin + 1] != 0xda))
        begin--;
    size_t pass = end - begin;
    assert_true(begin > 0 && end + TIMES * pass + 2 <= MAX_BYTES);
    for (size_t i = 1; i <= TIMES; i++)
        memcpy(jpeg.at + begin + i * pass, jpeg.at + begin, pass);
    jpeg.count = end + TIMES * pass;
    jpeg.at[jpeg.count++] = 0xff;
    jpeg.at[jpeg.count++] = 0xd9;
    assert_fails(decode("passes.jpg", &jpeg, &image), LK_STATUS_FORMAT, "passes.jpg: asks for more than 200 passes");
    lk__image_fini(&image);
}

TEST_MAIN(NULL, NULL, TEST(test_png_texts), TEST(test_vast_png), TEST(test_vast_jpeg), TEST(test_jpeg_passes))
