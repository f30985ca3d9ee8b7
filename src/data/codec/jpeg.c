/* jpeg.c - JPEG images by libjpeg-turbo. Other versions of libjpeg are not used, because their
 * pixels differ.
 *
 * The slow integer transform and fancy upsampling are exact: the same bytes on every machine. Print
 * images with four colours become RGB as in Pillow. */
#include "data/codec/codec.h"

#ifdef LK_HAVE_JPEG
#include <stdio.h>

#include <jpeglib.h>
#endif

static bool probe(const lk_image_file *file)
{
    return file->count >= 3 && file->bytes[0] == 0xff && file->bytes[1] == 0xd8 && file->bytes[2] == 0xff;
}

/* The most segments before the one with the size. Real files have about ten, or many more with a
 * large colour profile or preview. */
enum { MAX_SEGMENTS = 4096 };

/* Markers 0xc0 to 0xcf start a frame, except those of tables and a reserved one. */
static bool begins_frame(uint8_t marker)
{
    return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

/* Goes through the segments, each a marker and its length, to the frame: length, bits, height,
 * width. Fill bytes 0xff may come before a marker. */
static lk_status size(const lk_image_source *source, size_t *height, size_t *width)
{
    size_t at = 2;
    for (int i = 0; i < MAX_SEGMENTS; i++) {
        uint8_t head[4], sides[4];
        LK_TRY(lk__image_read_at(source, at, head, sizeof head));
        if (head[0] == 0xff && head[1] == 0xff) {
            at++;
            continue;
        }
        size_t length = (size_t)head[2] << 8 | head[3];
        if (head[0] != 0xff || length < 2 || head[1] == 0xd9 || head[1] == 0xda)
            return lk__fail(LK_STATUS_FORMAT, "%s: damaged at about byte %zu: no image's size", source->path, at);
        if (begins_frame(head[1])) {
            LK_TRY(lk__image_read_at(source, at + 5, sides, sizeof sides));
            *height = (size_t)sides[0] << 8 | sides[1];
            *width = (size_t)sides[2] << 8 | sides[3];
            return LK_OK;
        }
        at += 2 + length;
    }
    return lk__fail(LK_STATUS_FORMAT, "%s: more than %d segments before the image's size", source->path, MAX_SEGMENTS);
}

#ifdef LIBJPEG_TURBO_VERSION

#include <assert.h>
#include <setjmp.h>

#include <jerror.h>

#include "base/mem.h"

/* The most passes over an image, and over the largest image; real files have about ten. */
enum { MAX_SCANS = 200, MAX_LARGE_SCANS = 24, ROWS = 8 };

/* The most pixels in one byte: a block of 8 by 8 takes at least one bit. (Arithmetic coding could
 * need less for an image of one colour; such files do not exist.) */
enum { MAX_RATIO = 8 * 64 };

typedef struct decoder {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf give_up;
    const lk_image_file *file;
    lk_status status;
} decoder;

_Noreturn static void on_error(j_common_ptr common)
{
    decoder *d = common->client_data;
    char why[JMSG_LENGTH_MAX];
    common->err->format_message(common, why);
    if (common->err->msg_code == JERR_OUT_OF_MEMORY) {
        d->status = lk__fail_memory(d->file->count, d->file->path);
        longjmp(d->give_up, 1);
    }
    size_t left = d->jpeg.src ? d->jpeg.src->bytes_in_buffer : d->file->count;
    d->status = lk__fail(LK_STATUS_FORMAT, "%s: damaged at about byte %zu: %s", d->file->path,
                         d->file->count - (left < d->file->count ? left : d->file->count), why);
    longjmp(d->give_up, 1);
}

/* These warnings mean lost pixels, which the library would invent: they are errors. Other warnings,
 * as for bytes after the last row, are ignored. */
static void on_message(j_common_ptr common, int level)
{
    static const int damage[] = {JWRN_JPEG_EOF, JWRN_HIT_MARKER, JWRN_HUFF_BAD_CODE, JWRN_ARITH_BAD_CODE,
                                 JWRN_MUST_RESYNC};
    for (size_t i = 0; level < 0 && i < sizeof damage / sizeof *damage; i++)
        if (common->err->msg_code == damage[i])
            on_error(common);
}

static void on_progress(j_common_ptr common)
{
    decoder *d = common->client_data;
    size_t pixels = (size_t)d->jpeg.image_height * d->jpeg.image_width;
    size_t most = lk__size_min(MAX_SCANS, MAX_LARGE_SCANS * LK_IMAGE_MAX_PIXELS / pixels);
    if ((size_t)d->jpeg.input_scan_number <= most)
        return;
    d->status = lk__fail(LK_STATUS_FORMAT, "%s: asks for more than %zu passes over one image", d->file->path, most);
    longjmp(d->give_up, 1);
}

static uint8_t times(unsigned a, unsigned b)
{
    unsigned product = a * b + 128;
    return (uint8_t)(((product >> 8) + product) >> 8);
}

/* Converts a row of four colours to three, in the same memory. All files count as inverted, as
 * Adobe stores them, whatever the file says. */
static void from_cmyk(uint8_t *row, size_t width)
{
    for (size_t x = 0; x < width; x++) {
        unsigned white = row[4 * x + 3];
        for (size_t c = 0; c < 3; c++)
            row[3 * x + c] = (uint8_t)(white - times(255u - row[4 * x + c], white));
    }
}

/* Leaves out columns of later rows, and returns the first column that is left in them. Fancy upsampling computes a
 * column from the chroma sample beside its own, too, and the outermost columns as at the edge of an image: so the
 * columns next to the part are kept as well. Upsampling has another way for a very narrow image. */
static size_t crop_columns(struct jpeg_decompress_struct *jpeg, const lk_image_region *part)
{
    enum { MARGIN = 2, LEAST = 32 };
    size_t all = jpeg->output_width, begin = part->left > MARGIN ? part->left - MARGIN : 0;
    size_t end = lk__size_min(all, lk__size_max(part->left + part->width + MARGIN, begin + LEAST));
    begin = lk__size_min(begin, end > LEAST ? end - LEAST : 0);
    JDIMENSION first = (JDIMENSION)begin, width = (JDIMENSION)(end - begin);
    jpeg_crop_scanline(jpeg, &first, &width);
    return first;
}

/* Reads the part's rows. Of the rows before and after the part only the entropy decoding is done, so that damage is
 * found; the library would not look at rows that are skipped up to the last one. */
static void read_rows(decoder *d, const lk_image_region *part, lk_image *out)
{
    struct jpeg_decompress_struct *jpeg = &d->jpeg;
    bool cmyk = jpeg->out_color_space == JCS_CMYK;
    size_t first = crop_columns(jpeg, part), end = part->top + part->height;
    JSAMPARRAY rows = jpeg->mem->alloc_sarray((j_common_ptr)jpeg, JPOOL_IMAGE,
                                              jpeg->output_width * (JDIMENSION)jpeg->output_components, ROWS);
    if (part->top > 0)
        (void)jpeg_skip_scanlines(jpeg, (JDIMENSION)part->top);
    while (jpeg->output_scanline < end) {
        size_t y = jpeg->output_scanline;
        JDIMENSION got = jpeg_read_scanlines(jpeg, rows, (JDIMENSION)lk__size_min(ROWS, end - y));
        for (size_t i = 0; i < got; i++) {
            if (cmyk)
                from_cmyk(rows[i], jpeg->output_width);
            lk__image_set_pixels(out, y + i, part->left, part->width, rows[i] + 3 * (part->left - first));
        }
    }
    if (end + 1 < jpeg->output_height)
        (void)jpeg_skip_scanlines(jpeg, (JDIMENSION)(jpeg->output_height - 1 - end));
    if (end < jpeg->output_height)
        (void)jpeg_read_scanlines(jpeg, rows, 1);
}

/* Older libraries computed some of the pixels at the edge of a part differently. */
static lk_image_region part_of(const lk_image_want *want, size_t height, size_t width)
{
    bool whole = want == NULL || LIBJPEG_TURBO_VERSION_NUMBER < 2001000;
    return whole ? (lk_image_region){.height = height, .width = width} : want->part(want->arg, height, width);
}

static lk_status read_image(decoder *d, const lk_image_want *want, lk_image *out)
{
    struct jpeg_decompress_struct *jpeg = &d->jpeg;
    if (setjmp(d->give_up))
        return d->status;
    jpeg_create_decompress(jpeg);
    jpeg->progress = &d->progress;
    jpeg_mem_src(jpeg, d->file->bytes, (unsigned long)d->file->count);
    (void)jpeg_read_header(jpeg, TRUE);
    size_t height = jpeg->image_height, width = jpeg->image_width;
    LK_TRY(lk__image_expect(d->file, height, width, height * width / MAX_RATIO, out));
    bool cmyk = jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK;
    jpeg->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    jpeg->dct_method = JDCT_ISLOW;
    jpeg->do_fancy_upsampling = TRUE;
    jpeg->do_block_smoothing = FALSE;
    lk_image_region part = part_of(want, height, width);
    assert(part.height > 0 && part.top + part.height <= height && part.width > 0 && part.left + part.width <= width);
    (void)jpeg_start_decompress(jpeg);
    read_rows(d, &part, out);
    (void)jpeg_finish_decompress(jpeg);
    return LK_OK;
}

static lk_status decode(const lk_image_file *file, const lk_image_want *want, lk_image *out)
{
    decoder d = {.file = file, .progress = {.progress_monitor = on_progress}};
    d.jpeg.err = jpeg_std_error(&d.errors);
    d.errors.error_exit = on_error;
    d.errors.emit_message = on_message;
    d.jpeg.client_data = &d;
    lk_status status = read_image(&d, want, out);
    jpeg_destroy_decompress(&d.jpeg);
    return status;
}
#define DECODE decode
#else
#define DECODE NULL
#endif

const lk_codec lk__codec_jpeg = {.name = "JPEG",
                                 .package = "libjpeg-turbo (Debian: libjpeg-dev)",
                                 .endings = " .jpg .jpeg ",
                                 .probe = probe,
                                 .decode = DECODE,
                                 .size = size};
