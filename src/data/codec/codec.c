/* codec.c - the table of image codecs, and the code that they share. */
#include "data/codec/codec.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/file.h"
#include "base/mem.h"

static const lk_codec *const codecs[] = {&lk__codec_jpeg, &lk__codec_png};

enum { CODECS = sizeof codecs / sizeof *codecs, MAX_ENDING = 8, PROBED = 16 };

const lk_codec *lk__codec_find(const lk_image_file *file)
{
    for (size_t i = 0; i < CODECS; i++)
        if (codecs[i]->probe(file))
            return codecs[i];
    return NULL;
}

bool lk__image_named(const char *name)
{
    const char *dot = strrchr(name, '.');
    char word[MAX_ENDING + 3] = " ";
    if (!dot || strlen(dot) > MAX_ENDING)
        return false;
    size_t length = 1;
    for (const char *c = dot; *c; c++)
        word[length++] = (char)tolower((unsigned char)*c);
    word[length++] = ' ';
    for (size_t i = 0; i < CODECS; i++)
        if (strstr(codecs[i]->endings, word))
            return true;
    return false;
}

static lk_status choose_codec(const lk_image_file *file, const lk_codec **out)
{
    *out = lk__codec_find(file);
    if (!*out)
        return lk__fail(LK_STATUS_FORMAT, "%s: starts like neither a JPEG nor a PNG image", file->path);
    return LK_OK;
}

lk_status lk__image_read_at(const lk_image_source *source, size_t at, uint8_t *into, size_t count)
{
    if (at > source->count || count > source->count - at)
        return lk__fail(LK_STATUS_FORMAT, "%s: damaged at about byte %zu: the file ends before the image's size",
                        source->path, source->count);
    for (size_t done = 0; done < count;) {
        ssize_t got = lk__fd_read_at(source->fd, into + done, count - done, (off_t)(at + done));
        if (got <= 0)
            return lk__fail(LK_STATUS_IO, "cannot read %s: %s", source->path,
                            got < 0 ? strerror(errno) : "it has become shorter");
        done += (size_t)got;
    }
    return LK_OK;
}

static lk_status read_size(const lk_image_source *source, size_t *height, size_t *width)
{
    uint8_t head[PROBED];
    const lk_codec *codec;
    size_t h = 0, w = 0, count = lk__size_min(sizeof head, source->count);
    LK_TRY(lk__image_read_at(source, 0, head, count));
    LK_TRY(choose_codec(&(lk_image_file){source->path, head, count}, &codec));
    LK_TRY(codec->size(source, &h, &w));
    if (h == 0 || w == 0)
        return lk__fail(LK_STATUS_FORMAT, "%s: its header speaks of %zu by %zu pixels", source->path, w, h);
    *height = h;
    *width = w;
    return LK_OK;
}

lk_status lk__image_size(const char *path, size_t *height, size_t *width)
{
    lk_image_source source = {.path = path};
    LK_TRY(lk__file_open(path, &source.fd, &source.count));
    lk_status status = read_size(&source, height, width);
    close(source.fd);
    return status;
}

lk_status lk__image_decode(const lk_image_file *file, const lk_image_want *want, lk_image *out)
{
    const lk_codec *codec;
    LK_TRY(choose_codec(file, &codec));
    if (!codec->decode)
        return lk__fail(LK_STATUS_UNSUPPORTED, "%s: this build cannot read %s images; install %s and build it again",
                        file->path, codec->name, codec->package);
    return codec->decode(file, want, out);
}

lk_status lk__image_expect(const lk_image_file *file, size_t height, size_t width, size_t least, lk_image *out)
{
    if (height == 0 || width == 0 || width > LK_IMAGE_MAX_PIXELS / height)
        return lk__fail(LK_STATUS_FORMAT, "%s: its header speaks of %zu by %zu pixels (1 to %zu in all)", file->path,
                        width, height, LK_IMAGE_MAX_PIXELS);
    if (file->count < least)
        return lk__fail(LK_STATUS_FORMAT,
                        "%s: its header speaks of %zu by %zu pixels, which take %zu bytes at least; it has %zu",
                        file->path, width, height, least, file->count);
    return lk__image_resize(out, 3, height, width);
}

void lk__image_set_pixels(lk_image *image, size_t y, size_t left, size_t count, const uint8_t *rgb)
{
    size_t area = image->height * image->width;
    uint8_t *restrict red = image->pixels + y * image->width + left;
    uint8_t *restrict green = red + area, *restrict blue = green + area;
    for (size_t x = 0; x < count; x++) {
        red[x] = rgb[3 * x];
        green[x] = rgb[3 * x + 1];
        blue[x] = rgb[3 * x + 2];
    }
}
