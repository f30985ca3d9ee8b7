/* pth_bytes.h - files of torch.save put together by hand, well-formed or not. */
#ifndef LK_TESTS_IO_PTH_BYTES_H
#define LK_TESTS_IO_PTH_BYTES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "base/bytes.h"

/* Bytes of a literal, zeros among them. */
typedef struct piece {
    const char *bytes;
    size_t size;
} piece;
#define PIECE(text)            \
    {                          \
        text, sizeof(text) - 1 \
    }

/* A file under construction. */
typedef struct build {
    uint8_t bytes[1 << 16];
    size_t size;
} build;

static inline void build_put(build *b, const void *bytes, size_t size)
{
    memcpy(b->bytes + b->size, bytes, size);
    b->size += size;
}

static inline void build_number(build *b, uint64_t value, int size)
{
    lk__bytes_put_le(b->bytes + b->size, value, size);
    b->size += (size_t)size;
}

/* The older format: a preamble of three pickles, then the object, the keys of
 * storages and the storages. */
#define LEGACY_MAGIC "\x80\2\x8a\x0al\xfc\x9c\x46\xf9\x20j\xa8P\x19."
#define LEGACY_START LEGACY_MAGIC "\x80\2M\xe9\3."
#define LEGACY_PREAMBLE LEGACY_START "\x80\2}X\x0d\0\0\0little_endian\x88s."

/* What the object is made of. A text of up to 255 bytes, given as its length. */
#define TEXT(length, text) "X" length "\0\0\0" text
#define ORDERED_DICT "ccollections\nOrderedDict\n)R"
#define REBUILD "ctorch._utils\n_rebuild_tensor_v2\n"
#define STORAGE(type, key, count) \
    "(" TEXT("\7", "storage") "ctorch\n" type "\n" TEXT("\1", key) TEXT("\3", "cpu") count "tQ"
#define TENSOR(storage, offset, sizes, strides) REBUILD "(" storage offset sizes strides "\x89" ORDERED_DICT "tR"
/* Four floats, all of them in storage "0". */
#define FLOATS STORAGE("FloatStorage", "0", "K\4")
#define VECTOR TENSOR(FLOATS, "K\0", "K\4\x85", "K\1\x85")
#define KEYS "\x80\2]" TEXT("\1", "0") "a."

/* A zip archive; the directory follows the last member. */
typedef struct zip_build {
    build file, directory;
    unsigned members;
} zip_build;

/* What headers say of a member. */
typedef struct zip_member {
    const char *name;
    uint64_t method, crc, stored, size; /* method 0: as it is, 8: deflated */
    size_t at;                          /* of its header in the file */
} zip_member;

static inline void zip_header(build *b, const zip_member *m, bool central)
{
    build_put(b, central ? "PK\1\2\24\0" : "PK\3\4", central ? 6 : 4);
    build_number(b, 20, 2);
    build_number(b, 0, 2);
    build_number(b, m->method, 2);
    build_number(b, 0x00210000, 4);
    build_number(b, m->crc, 4);
    build_number(b, m->stored, 4);
    build_number(b, m->size, 4);
    build_number(b, strlen(m->name), 2);
    build_number(b, 0, 2);
    if (central) {
        build_number(b, 0, 8);
        build_number(b, 0, 2);
        build_number(b, m->at, 4);
    }
    build_put(b, m->name, strlen(m->name));
}

/* stated is the size that the headers give. */
static inline void zip_add(zip_build *z, const char *name, const void *bytes, size_t size, size_t stated)
{
    const zip_member m = {name, 0, crc32(0, bytes, (uInt)size), stated, stated, z->file.size};
    zip_header(&z->file, &m, false);
    zip_header(&z->directory, &m, true);
    build_put(&z->file, bytes, size);
    z->members++;
}

/* Another member of the directory, with nothing of its own in the file. */
static inline void zip_enter(zip_build *z, const zip_member *member)
{
    zip_header(&z->directory, member, true);
    z->members++;
}

static inline void zip_end(zip_build *z)
{
    size_t at = z->file.size;
    build_put(&z->file, z->directory.bytes, z->directory.size);
    build_put(&z->file, "PK\5\6\0\0\0\0", 8);
    build_number(&z->file, z->members, 2);
    build_number(&z->file, z->members, 2);
    build_number(&z->file, z->directory.size, 4);
    build_number(&z->file, at, 4);
    build_number(&z->file, 0, 2);
}

#endif
