/* codec.h - decodes image files to red, green and blue.
 *
 * The result depends only on the file's bytes: JPEG uses the exact integer transform, and there is
 * no colour management. A file may come from anywhere. */
#ifndef LK_DATA_CODEC_CODEC_H
#define LK_DATA_CODEC_CODEC_H

#include "data/codec/image.h"

/* An image file in memory. */
typedef struct lk_image_file {
    const char *path; /* for messages */
    const uint8_t *bytes;
    size_t count;
} lk_image_file;

/* An open image file. */
typedef struct lk_image_source {
    const char *path; /* for messages */
    int fd;
    size_t count; /* bytes of the file when it was opened */
} lk_image_source;

typedef struct lk_codec {
    const char *name, *package; /* "JPEG"; the package to install if this build lacks it */
    const char *endings;        /* of file names: " .jpg .jpeg " */
    bool (*probe)(const lk_image_file *file);
    /* Decodes to three channels: all pixels, or at least those that are wanted. FORMAT, with the library's reason, for
     * damaged or truncated files, also where the damage is outside of the wanted part; the image is then undefined.
     * NULL: this build lacks the library. */
    lk_status (*decode)(const lk_image_file *file, const lk_image_want *want, lk_image *out);
    /* Reads height and width from the file's header, without a library. FORMAT if there is none. */
    lk_status (*size)(const lk_image_source *source, size_t *height, size_t *width);
} lk_codec;

extern const lk_codec lk__codec_jpeg, lk__codec_png;

/* The codec for a file's content; NULL if there is none. */
const lk_codec *lk__codec_find(const lk_image_file *file);

/* Whether a file with this name counts as an image. */
bool lk__image_named(const char *name);
/* Chooses the codec by the content, not by the name. The wanted pixels are those of the whole image, bit by bit; out
 * has the size of the whole image. want may be NULL. */
lk_status lk__image_decode(const lk_image_file *file, const lk_image_want *want, lk_image *out) LK_CHECKED;

/* Height and width of the image in a file, by its content; reads only a few bytes. */
lk_status lk__image_size(const char *path, size_t *height, size_t *width) LK_CHECKED;
/* Reads `count` bytes from byte `at` on; FORMAT if the file ends before. */
lk_status lk__image_read_at(const lk_image_source *source, size_t at, uint8_t *into, size_t count) LK_CHECKED;

/* Makes room for an image of three channels whose size is from the file's header. FORMAT if the
 * file has fewer than `least` bytes, the minimum for such an image: memory and time depend on the
 * file's real size, not on what its header claims. */
lk_status lk__image_expect(const lk_image_file *file, size_t height, size_t width, size_t least,
                           lk_image *out) LK_CHECKED;
/* Splits `count` pixels of interleaved colours into the planes: those of row y from column `left` on. */
void lk__image_set_pixels(lk_image *image, size_t y, size_t left, size_t count, const uint8_t *rgb);

#endif
