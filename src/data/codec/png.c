/* png.c - PNG images by libpng. Palettes and grey become RGB and transparency is dropped, as in
 * Pillow's convert("RGB"). Of 16 bits the upper 8 are kept, also in grey images, which Pillow clips
 * to 255. Gamma is ignored. */
#include "data/codec/codec.h"

#include <string.h>

static const uint8_t magic[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

static bool probe(const lk_image_file *file)
{
    return file->count >= sizeof magic && memcmp(file->bytes, magic, sizeof magic) == 0;
}

static size_t big_endian(const uint8_t *bytes)
{
    return (size_t)bytes[0] << 24 | (size_t)bytes[1] << 16 | (size_t)bytes[2] << 8 | bytes[3];
}

/* The first chunk is IHDR, which begins with width and height. */
static lk_status size(const lk_image_source *source, size_t *height, size_t *width)
{
    enum { CHUNK_AT = 12 };
    uint8_t chunk[12]; /* name, width, height */
    LK_TRY(lk__image_read_at(source, CHUNK_AT, chunk, sizeof chunk));
    if (memcmp(chunk, "IHDR", 4) != 0)
        return lk__fail(LK_STATUS_FORMAT, "%s: damaged at about byte %d: no image's size", source->path, CHUNK_AT);
    *width = big_endian(chunk + 4);
    *height = big_endian(chunk + 8);
    return LK_OK;
}

#ifdef LK_HAVE_PNG

#include <png.h>
#include <stdlib.h>

#include "base/mem.h"

enum { MAX_SIDE = 1 << 20, MAX_CHUNK = 8 << 20 };

/* Deflate cannot expand by more than this factor. */
enum { MAX_RATIO = 1032 };

typedef struct decoder {
    const lk_image_file *file;
    size_t at; /* bytes read */
    lk_status status;
    size_t lacked; /* bytes that were requested but missing; 0: none */
    uint8_t *rgb;  /* (H, W, 3) for an interlaced image; else one row */
} decoder;

_Noreturn static void on_error(png_structp png, png_const_charp why)
{
    decoder *d = png_get_error_ptr(png);
    if (d->lacked)
        d->status = lk__fail_memory(d->lacked, d->file->path);
    else
        d->status = lk__fail(LK_STATUS_FORMAT, "%s: damaged at about byte %zu: %s", d->file->path, d->at, why);
    png_longjmp(png, 1);
}

/* Notes a lack of memory: libpng skips some chunks without memory, and its errors do not
 * distinguish a lack of memory from damage. */
static png_voidp take_memory(png_structp png, png_alloc_size_t bytes)
{
    decoder *d = png_get_mem_ptr(png);
    void *block = malloc(bytes);
    if (!block)
        d->lacked = bytes;
    return block;
}

static void give_memory(png_structp png, png_voidp block)
{
    (void)png;
    free(block);
}

static void on_warning(png_structp png, png_const_charp what)
{
    (void)png, (void)what;
}

static void read_bytes(png_structp png, png_bytep out, size_t count)
{
    decoder *d = png_get_io_ptr(png);
    if (count > d->file->count - d->at) {
        d->status = lk__fail(LK_STATUS_FORMAT, "%s: cut off: it ends at byte %zu, within the image", d->file->path,
                             d->file->count);
        png_longjmp(png, 1);
    }
    memcpy(out, d->file->bytes + d->at, count);
    d->at += count;
}

static void ask_for_rgb(png_structp png)
{
    png_set_expand(png);
    png_set_strip_16(png);
    png_set_strip_alpha(png);
    png_set_gray_to_rgb(png);
}

/* Interlaced images need passes over all rows. */
static lk_status read_rows(decoder *d, png_structp png, lk_image *out)
{
    size_t row = 3 * out->width;
    int passes = png_set_interlace_handling(png);
    LK_TRY(LK_ALLOC(passes > 1 ? row * out->height : row, "an image", &d->rgb));
    for (int pass = 1; pass < passes; pass++)
        for (size_t y = 0; y < out->height; y++)
            png_read_row(png, d->rgb + y * row, NULL);
    for (size_t y = 0; y < out->height; y++) {
        uint8_t *at = d->rgb + (passes > 1 ? y * row : 0);
        png_read_row(png, at, NULL);
        lk__image_set_pixels(out, y, 0, out->width, at);
    }
    return LK_OK;
}

static lk_status expect(const decoder *d, png_structp png, png_infop info, lk_image *out)
{
    size_t height = png_get_image_height(png, info), width = png_get_image_width(png, info);
    size_t bits = (size_t)png_get_bit_depth(png, info) * png_get_channels(png, info);
    return lk__image_expect(d->file, height, width, height * width * bits / 8 / MAX_RATIO, out);
}

static lk_status read_image(decoder *d, png_structp png, png_infop info, lk_image *out)
{
    if (setjmp(png_jmpbuf(png)))
        return d->status;
    png_set_user_limits(png, MAX_SIDE, MAX_SIDE);
    png_set_chunk_malloc_max(png, MAX_CHUNK);
    /* Texts and profiles may inflate to gigabytes: they are skipped. */
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_set_read_fn(png, d, read_bytes);
    png_read_info(png, info);
    LK_TRY(expect(d, png, info, out));
    ask_for_rgb(png);
    LK_TRY(read_rows(d, png, out));
    png_read_end(png, NULL);
    return LK_OK;
}

/* Decodes all pixels, whatever is wanted. */
static lk_status decode(const lk_image_file *file, const lk_image_want *want, lk_image *out)
{
    (void)want;
    decoder d = {.file = file};
    png_structp png =
        png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &d, on_error, on_warning, &d, take_memory, give_memory);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    lk_status status = info ? read_image(&d, png, info, out)
                            : lk__fail(LK_STATUS_MEMORY, "%s: no memory for a PNG decoder", file->path);
    if (status == LK_OK && d.lacked)
        status = lk__fail_memory(d.lacked, file->path);
    png_destroy_read_struct(&png, &info, NULL);
    lk__mem_free(d.rgb);
    return status;
}
#define DECODE decode
#else
#define DECODE NULL
#endif

const lk_codec lk__codec_png = {.name = "PNG",
                                .package = "libpng (Debian: libpng-dev)",
                                .endings = " .png ",
                                .probe = probe,
                                .decode = DECODE,
                                .size = size};
