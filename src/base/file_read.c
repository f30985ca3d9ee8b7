/* file_read.c - reads whole files, plain or gzipped.
 *
 * Content is read into its final block: the block is sized by the file's size or by gzip's trailer,
 * and grows only if that size was wrong. */
#include "base/file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#ifdef LK_HAVE_LIBDEFLATE
#include <libdeflate.h>
#endif

#include "base/bytes.h"
#include "base/fd.h"
#include "base/mem.h"

/* Deflate cannot expand by more than this factor. */
enum { MAX_RATIO = 1032, GZIP_MIN = 18, CHUNK = 1 << 18 };

/* zlib puts the file's name before the reason; the name of a descriptor is useless. */
static const char *reason(const char *why)
{
    const char *colon = strncmp(why, "<fd:", 4) == 0 ? strstr(why, ">: ") : NULL;
    return colon ? colon + 3 : why;
}

lk_status lk__gzip_read(gzFile gzip, const char *path, void *into, size_t room, size_t *got)
{
    int n = gzread(gzip, into, (unsigned)lk__size_min(room, (size_t)1 << 30)), error = Z_OK;
    const char *why = gzerror(gzip, &error);
    if (n < 0 && error == Z_MEM_ERROR)
        return lk__fail_memory(room, path);
    if (n < 0 && error == Z_ERRNO)
        return lk__fail(LK_STATUS_IO, "cannot read %s: %s", path, reason(why));
    if (n < 0 || error == Z_BUF_ERROR)
        return lk__fail(LK_STATUS_FORMAT, "%s: damaged gzip data near byte %lld (%s); download the file again", path,
                        (long long)gzoffset(gzip), error == Z_BUF_ERROR ? "it ends too early" : reason(why));
    *got = (size_t)n;
    return LK_OK;
}

/* Content that is being read; data has room for capacity bytes. */
typedef struct content {
    const char *path;
    uint8_t *data;
    size_t size, capacity, max;
    bool gzip;
    bool fixed; /* data is the caller's, with room for one byte more than max */
} content;

static lk_status reserve(content *c, size_t capacity)
{
    uint8_t *data;
    if (c->fixed)
        return LK_OK;
    LK_TRY(LK_ALLOC(capacity, c->path, &data));
    if (c->size > 0)
        memcpy(data, c->data, c->size);
    lk__mem_free(c->data);
    c->data = data;
    c->capacity = capacity;
    return LK_OK;
}

/* Called when the block is full: makes room for at least one byte. The block may have one byte more
 * than max, to find out whether the file is longer. */
static lk_status grow(content *c)
{
    if (c->size > c->max)
        return lk__fail(LK_STATUS_FORMAT, "%s: holds more than the %zu bytes that are expected%s", c->path, c->max,
                        c->gzip ? "; it is damaged or not what it claims to be: download the file again" : "");
    size_t limit = c->max == SIZE_MAX ? SIZE_MAX : c->max + 1;
    size_t doubled = c->capacity > limit / 2 ? limit : lk__size_max(2 * c->capacity, CHUNK);
    return reserve(c, lk__size_min(doubled, limit));
}

/* Reads up to room bytes; *got is 0 at the end of the file. */
static lk_status read_some(int fd, const char *path, uint8_t *into, size_t room, size_t *got)
{
    ssize_t n;
    do
        n = read(fd, into, lk__size_min(room, (size_t)1 << 30));
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return lk__fail(LK_STATUS_IO, "cannot read %s: %s", path, strerror(errno));
    *got = (size_t)n;
    return LK_OK;
}

static lk_status read_plain(int fd, content *c)
{
    for (;;) {
        if (c->size == c->capacity)
            LK_TRY(grow(c));
        size_t got = 0;
        LK_TRY(read_some(fd, c->path, c->data + c->size, c->capacity - c->size, &got));
        if (got == 0)
            break;
        c->size += got;
    }
    if (c->size > c->max)
        return grow(c);
    return LK_OK;
}

/* A gzip file that is being inflated; input is a window of CHUNK bytes of it. */
typedef struct gunzip {
    int fd;
    z_stream z;
    size_t offset; /* in the file, of the byte after input */
    uint8_t *input;
} gunzip;

static lk_status refill(gunzip *g, const char *path)
{
    if (g->z.avail_in > 0)
        return LK_OK;
    size_t got = 0;
    LK_TRY(read_some(g->fd, path, g->input, CHUNK, &got));
    g->offset += got;
    g->z.next_in = g->input;
    g->z.avail_in = (uInt)got;
    return LK_OK;
}

static lk_status damaged(const gunzip *g, const char *path, const char *why)
{
    return lk__fail(LK_STATUS_FORMAT, "%s: damaged gzip data at byte %zu (%s); download the file again", path,
                    g->offset - g->z.avail_in, why);
}

/* Inflates one member; input holds at least its first byte. */
static lk_status inflate_member(gunzip *g, content *c)
{
    if (inflateReset(&g->z) != Z_OK)
        return lk__fail(LK_STATUS_MEMORY, "%s: zlib cannot be reset", c->path);
    for (;;) {
        if (c->size == c->capacity)
            LK_TRY(grow(c));
        LK_TRY(refill(g, c->path));
        if (g->z.avail_in == 0)
            return damaged(g, c->path, "it ends too early");
        size_t room = lk__size_min(c->capacity - c->size, (size_t)1 << 30);
        g->z.next_out = c->data + c->size;
        g->z.avail_out = (uInt)room;
        int result = inflate(&g->z, Z_NO_FLUSH);
        c->size += room - g->z.avail_out;
        if (result == Z_STREAM_END)
            return LK_OK;
        if (result == Z_MEM_ERROR)
            return lk__fail_memory(CHUNK, c->path);
        if (result != Z_OK && result != Z_BUF_ERROR)
            return damaged(g, c->path, g->z.msg ? g->z.msg : "it cannot be inflated");
    }
}

static lk_status inflate_all(gunzip *g, content *c)
{
    do {
        LK_TRY(inflate_member(g, c));
        if (c->size > c->max)
            return grow(c);
        LK_TRY(refill(g, c->path));
        if (g->z.avail_in > 0 && g->z.next_in[0] != 0x1f)
            return damaged(g, c->path, "something follows its end");
    } while (g->z.avail_in > 0);
    return LK_OK;
}

static lk_status inflate_stream(int fd, content *c)
{
    gunzip g = {.fd = fd};
    lk_status status;
    LK_TRY(LK_ALLOC(CHUNK, "gzip input", &g.input));
    if (inflateInit2(&g.z, 15 + 16) != Z_OK) {
        status = lk__fail(LK_STATUS_MEMORY, "no memory to inflate %s", c->path);
        goto free_input;
    }
    LK_TRY_GOTO(refill(&g, c->path), end_inflate);
    status = inflate_all(&g, c);
end_inflate:
    inflateEnd(&g.z);
free_input:
    lk__mem_free(g.input);
    return status;
}

/* libdeflate is three times as fast as zlib, and inflates whole members in memory only. *done: the file is one member,
 * and all of its content is read. In all other cases inflate_stream reads the file and finds what is wrong with it. */
#ifdef LK_HAVE_LIBDEFLATE
static lk_status inflate_at_once(int fd, size_t bytes, content *c, bool *done)
{
    uint8_t *input;
    size_t used = 0, got = 0;
    LK_TRY(LK_ALLOC(bytes, "gzip input", &input));
    struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();
    *done = d && lk__fd_read_at(fd, input, bytes, 0) == (ssize_t)bytes &&
            libdeflate_gzip_decompress_ex(d, input, bytes, c->data, c->capacity, &used, &got) == LIBDEFLATE_SUCCESS &&
            used == bytes && got <= c->max;
    c->size = *done ? got : 0;
    libdeflate_free_decompressor(d);
    lk__mem_free(input);
    return LK_OK;
}
#else
static lk_status inflate_at_once(int fd, size_t bytes, content *c, bool *done)
{
    (void)fd;
    (void)bytes;
    (void)c;
    *done = false;
    return LK_OK;
}
#endif

static lk_status read_gzip(int fd, size_t bytes, content *c)
{
    bool done = false;
    LK_TRY(inflate_at_once(fd, bytes, c, &done));
    return done ? LK_OK : inflate_stream(fd, c);
}

static lk_file_outline outline_of(int fd, size_t bytes)
{
    lk_file_outline out = {.bytes = bytes, .most = bytes};
    uint8_t magic[2] = {0}, tail[4];
    if (lk__fd_read_at(fd, magic, 2, 0) != 2 || magic[0] != 0x1f || magic[1] != 0x8b)
        return out;
    out.gzip = true;
    out.most = bytes > SIZE_MAX / MAX_RATIO ? SIZE_MAX : bytes * MAX_RATIO;
    if (bytes >= GZIP_MIN && lk__fd_read_at(fd, tail, 4, (off_t)bytes - 4) == 4)
        out.tail = (uint32_t)lk__bytes_get_le(tail, 4);
    return out;
}

static lk_status read_content(int fd, size_t bytes, content *c)
{
    const lk_file_outline file = outline_of(fd, bytes);
    size_t expected = file.gzip ? lk__size_min(file.tail, file.most) : file.bytes;
    if (c->max != SIZE_MAX)
        expected = lk__size_min(expected, c->max);
    /* The spare byte lets the last read find the end of the file, so the memory need not grow for it. */
    LK_TRY(reserve(c, expected == SIZE_MAX ? expected : expected + 1));
    c->gzip = file.gzip;
    return file.gzip ? read_gzip(fd, bytes, c) : read_plain(fd, c);
}

/* A folder at path counts as no file. */
static lk_status open_content(const char *path, int *fd, size_t *bytes)
{
    lk_status status = lk__file_open(path, fd, bytes);
    if (status == LK_STATUS_FORMAT && lk__path_is_folder(path))
        return lk__fail(LK_STATUS_NOT_FOUND, "cannot read %s: %s", path, strerror(EISDIR));
    return status;
}

lk_status lk__file_outline(const char *path, lk_file_outline *out)
{
    int fd = -1;
    size_t bytes = 0;
    LK_TRY(open_content(path, &fd, &bytes));
    *out = outline_of(fd, bytes);
    close(fd);
    return LK_OK;
}

lk_status lk__file_read(const char *path, size_t max_bytes, uint8_t **out, size_t *bytes)
{
    content c = {.path = path, .max = max_bytes ? max_bytes : SIZE_MAX};
    int fd = -1;
    size_t size = 0;
    LK_TRY(open_content(path, &fd, &size));
    lk_status status = read_content(fd, size, &c);
    close(fd);
    if (status != LK_OK) {
        lk__mem_free(c.data);
        return status;
    }
    *out = c.data;
    *bytes = c.size;
    return LK_OK;
}

lk_status lk__file_read_into(const char *path, size_t max_bytes, uint8_t *block, size_t *bytes)
{
    content c = {.path = path, .data = block, .capacity = max_bytes + 1, .max = max_bytes, .fixed = true};
    int fd = -1;
    size_t size = 0;
    LK_TRY(open_content(path, &fd, &size));
    lk_status status = read_content(fd, size, &c);
    close(fd);
    if (status == LK_OK)
        *bytes = c.size;
    return status;
}
