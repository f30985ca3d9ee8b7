/* codec.h - files of images, decoded to red, green and blue.
 *
 * What comes out depends on the file's bytes alone: the exact integer transform
 * of JPEG, no colour management. A file may come from anywhere. */
#ifndef LK_DATA_CODEC_CODEC_H
#define LK_DATA_CODEC_CODEC_H

#include "data/codec/image.h"

/* An image file in memory. */
typedef struct lk_image_file {
    const char *path; /* for messages */
    const uint8_t *bytes;
    size_t count;
} lk_image_file;

/* An image file that is open. */
typedef struct lk_image_source {
    const char *path; /* for messages */
    int fd;
    size_t count; /* bytes that it had when it was opened */
} lk_image_source;

typedef struct lk_codec {
    const char *name, *package; /* "JPEG"; what to install where this build lacks it */
    const char *endings;        /* of file names, as in " .jpg .jpeg " */
    bool (*probe)(const lk_image_file *file);
    /* Three channels. FORMAT for what is damaged or cut off, with what the library
     * says of it; the image is garbage then. NULL: this build lacks the library. */
    lk_status (*decode)(const lk_image_file *file, lk_image *out);
    /* Height and width by the file's header alone: needs no library. FORMAT where it
     * has none. */
    lk_status (*size)(const lk_image_source *source, size_t *height, size_t *width);
} lk_codec;

extern const lk_codec lk__codec_jpeg, lk__codec_png;

/* The codec of a file by its content, NULL where it is none's. */
const lk_codec *lk__codec_find(const lk_image_file *file);

/* Whether a file of this name is taken for an image. */
bool lk__image_named(const char *name);
/* Decodes by content, whatever the name. */
lk_status lk__image_decode(const lk_image_file *file, lk_image *out) LK_CHECKED;

/* Height and width of the image in a file, by content; reads a few bytes of it. */
lk_status lk__image_size(const char *path, size_t *height, size_t *width) LK_CHECKED;
/* Reads `count` bytes from byte `at` on; FORMAT where the file ends before. */
lk_status lk__image_read_at(const lk_image_source *source, size_t at, uint8_t *into, size_t count) LK_CHECKED;

/* Makes room for an image that a file's header speaks of, of three channels. FORMAT
 * where the file has fewer bytes than `least`, into which no such image can be
 * packed: memory and time are spent on what the file holds, not on what it says. */
lk_status lk__image_expect(const lk_image_file *file, size_t height, size_t width, size_t least,
                           lk_image *out) LK_CHECKED;
/* Splits a row of interleaved colours over the planes. */
void lk__image_set_row(lk_image *image, size_t y, const uint8_t *rgb);

#endif
