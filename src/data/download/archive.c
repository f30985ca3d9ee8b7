/* archive.c - reads a gzipped tar file once, from start to end.
 *
 * A tar file is a chain of headers of 512 bytes, each followed by its member's bytes, padded to a
 * multiple of 512. A header of zeros ends it. Long names and extended attributes are members of
 * special types and are skipped: the wanted members have short names. */
#include "data/download/archive.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/file.h"
#include "base/mem.h"

enum { BLOCK = 512, CHUNK = 1 << 18 };
/* The most bytes of unwanted members; known archives only have small texts. */
enum { MOST_OTHER = 64 << 20 };

/* Offsets in a header. */
enum { NAME = 0, NAME_BYTES = 100, SIZE = 124, SIZE_BYTES = 12, SUM = 148, SUM_BYTES = 8, TYPE = 156 };
enum { MAGIC = 257, PREFIX = 345, PREFIX_BYTES = 155, FULL_NAME = PREFIX_BYTES + NAME_BYTES + 2 };

typedef struct archive {
    const char *path;
    gzFile gzip;
    size_t offset; /* of the next byte, in the inflated archive */
    size_t other;  /* bytes of unwanted members so far */
    const lk_archive_member *members;
    size_t count;
    bool seen[LK_ARCHIVE_MAX_MEMBERS];
    const lk_archive_sink *sink;
    uint8_t *chunk; /* (CHUNK) */
} archive;

typedef struct header {
    char name[FULL_NAME];
    char type;
    uint64_t bytes;
} header;

/* Reads up to `bytes` bytes; fewer only at the end of the archive. */
static lk_status read_bytes(archive *a, uint8_t *into, size_t bytes, size_t *got)
{
    LK_TRY(lk__gzip_read(a->gzip, a->path, into, bytes, got));
    a->offset += *got;
    return LK_OK;
}

/* offset is in the inflated archive. */
static lk_status damaged(const archive *a, size_t offset, const char *what)
{
    return lk__fail(LK_STATUS_FORMAT, "%s: %s at byte %zu of the inflated archive; download the file again", a->path,
                    what, offset);
}

static bool all_zero(const uint8_t *block)
{
    for (size_t i = 0; i < BLOCK; i++)
        if (block[i] != 0)
            return false;
    return true;
}

/* Octal digits after optional spaces; a space, a zero or the end of the field ends them. */
static bool parse_octal(const uint8_t *field, size_t bytes, uint64_t *out)
{
    size_t i = 0, digits = 0;
    uint64_t value = 0;
    while (i < bytes && field[i] == ' ')
        i++;
    for (; i < bytes && field[i] >= '0' && field[i] <= '7'; i++, digits++)
        value = value * 8 + (uint64_t)(field[i] - '0');
    *out = value;
    return digits > 0 && (i == bytes || field[i] == ' ' || field[i] == 0);
}

/* The checksum is the sum of all bytes, with spaces in place of the checksum itself. */
static bool sum_is_right(const uint8_t *block)
{
    uint64_t stated = 0, sum = 0;
    if (!parse_octal(block + SUM, SUM_BYTES, &stated))
        return false;
    for (size_t i = 0; i < BLOCK; i++)
        sum += i >= SUM && i < SUM + SUM_BYTES ? ' ' : block[i];
    return sum == stated;
}

/* Only POSIX headers, with a zero after "ustar", have a prefix of the name. */
static void read_name(const uint8_t *block, char out[FULL_NAME])
{
    char name[NAME_BYTES + 1] = "", prefix[PREFIX_BYTES + 1] = "";
    memcpy(name, block + NAME, NAME_BYTES);
    if (memcmp(block + MAGIC, "ustar", 6) == 0)
        memcpy(prefix, block + PREFIX, PREFIX_BYTES);
    const char *plain = strncmp(name, "./", 2) == 0 && !*prefix ? name + 2 : name;
    snprintf(out, FULL_NAME, "%s%s%s", prefix, *prefix ? "/" : "", plain);
}

/* *end: there are no more members. */
static lk_status read_header(archive *a, header *out, bool *end)
{
    uint8_t block[BLOCK];
    size_t got = 0, offset = a->offset;
    LK_TRY(read_bytes(a, block, BLOCK, &got));
    *end = got == 0 || (got == BLOCK && all_zero(block));
    if (*end)
        return LK_OK;
    if (got < BLOCK)
        return damaged(a, offset + got, "ends inside a header");
    if (!sum_is_right(block))
        return damaged(a, offset, "a header with a wrong checksum");
    if (!parse_octal(block + SIZE, SIZE_BYTES, &out->bytes))
        return damaged(a, offset + SIZE, "a size that is no octal number");
    out->type = (char)block[TYPE];
    read_name(block, out->name);
    return LK_OK;
}

/* Passes the current member's bytes to the sink, or drops them without a sink; then skips the
 * padding. */
static lk_status read_body(archive *a, uint64_t bytes, const lk_archive_sink *sink)
{
    uint64_t left = (bytes + BLOCK - 1) / BLOCK * BLOCK;
    while (left > 0) {
        size_t got = 0, want = left < CHUNK ? (size_t)left : CHUNK;
        LK_TRY(read_bytes(a, a->chunk, want, &got));
        if (got < want)
            return damaged(a, a->offset, "ends inside a member");
        size_t useful = bytes < got ? (size_t)bytes : got;
        if (sink != NULL && useful > 0)
            LK_TRY(sink->write(sink->arg, a->chunk, useful));
        bytes -= useful;
        left -= got;
    }
    return LK_OK;
}

static lk_status read_wanted(archive *a, const header *h, size_t member)
{
    const lk_archive_member *wanted = &a->members[member];
    size_t offset = a->offset - BLOCK;
    if (h->type != '0' && h->type != 0)
        return lk__fail(LK_STATUS_FORMAT, "%s: %s (byte %zu of the inflated archive) is no regular file", a->path,
                        wanted->name, offset);
    if (a->seen[member])
        return lk__fail(LK_STATUS_FORMAT, "%s: %s is there a second time (byte %zu of the inflated archive)", a->path,
                        wanted->name, offset);
    if (h->bytes != wanted->bytes)
        return lk__fail(LK_STATUS_FORMAT, "%s: %s (byte %zu of the inflated archive) has %llu bytes, not %zu", a->path,
                        wanted->name, offset, (unsigned long long)h->bytes, wanted->bytes);
    a->seen[member] = true;
    LK_TRY(a->sink->begin(a->sink->arg, member));
    LK_TRY(read_body(a, h->bytes, a->sink));
    return a->sink->end(a->sink->arg, member);
}

static lk_status read_other(archive *a, const header *h)
{
    /* Links, folders and devices have no bytes, whatever the header says. */
    bool bare = h->type >= '1' && h->type <= '6';
    uint64_t bytes = bare ? 0 : h->bytes;
    if (bytes > MOST_OTHER - a->other)
        return damaged(a, a->offset - BLOCK + SIZE, "more than such an archive can hold");
    a->other += (size_t)bytes;
    return read_body(a, bytes, NULL);
}

static lk_status read_member(archive *a, const header *h)
{
    for (size_t i = 0; i < a->count; i++)
        if (strcmp(h->name, a->members[i].name) == 0)
            return read_wanted(a, h, i);
    return read_other(a, h);
}

/* Reads the padding after the end, so that zlib checks the whole file. */
static lk_status read_filling(archive *a)
{
    size_t got = 0, total = 0;
    do {
        LK_TRY(read_bytes(a, a->chunk, CHUNK, &got));
        total += got;
        if (total > MOST_OTHER)
            return damaged(a, a->offset, "more than such an archive can hold");
    } while (got > 0);
    return LK_OK;
}

static lk_status read_all(archive *a)
{
    header h;
    bool end = false;
    LK_TRY(read_header(a, &h, &end));
    while (!end) {
        LK_TRY(read_member(a, &h));
        LK_TRY(read_header(a, &h, &end));
    }
    LK_TRY(read_filling(a));
    for (size_t i = 0; i < a->count; i++)
        if (!a->seen[i])
            return lk__fail(LK_STATUS_FORMAT, "%s: %s is missing; the archive ends at byte %zu of what it inflates to",
                            a->path, a->members[i].name, a->offset);
    return LK_OK;
}

static lk_status open_gzip(const char *path, gzFile *out)
{
    int fd = -1;
    size_t bytes = 0;
    LK_TRY(lk__file_open(path, &fd, &bytes));
    gzFile gzip = gzdopen(fd, "rb");
    if (gzip == NULL) {
        close(fd);
        return lk__fail_memory(CHUNK, "inflating an archive");
    }
    int direct = gzdirect(gzip), error = Z_OK;
    (void)gzerror(gzip, &error);
    if (error == Z_MEM_ERROR) {
        gzclose(gzip);
        return lk__fail_memory(CHUNK, "inflating an archive");
    }
    if (direct) {
        gzclose(gzip);
        return lk__fail(LK_STATUS_FORMAT, "%s: byte 0 does not begin gzip data; this is no .tar.gz", path);
    }
    *out = gzip;
    return LK_OK;
}

lk_status lk__archive_read(const char *path, const lk_archive_member *members, size_t count,
                           const lk_archive_sink *sink)
{
    archive a = {.path = path, .members = members, .count = count, .sink = sink};
    lk_status status;
    if (count > LK_ARCHIVE_MAX_MEMBERS)
        return lk__fail(LK_STATUS_USAGE, "%zu members of one archive, at most %d can be wanted", count,
                        LK_ARCHIVE_MAX_MEMBERS);
    LK_TRY(open_gzip(path, &a.gzip));
    LK_TRY_GOTO(LK_ALLOC(CHUNK, "a part of an archive", &a.chunk), close_gzip);
    status = read_all(&a);
    lk__mem_free(a.chunk);
close_gzip:
    gzclose(a.gzip);
    return status;
}
