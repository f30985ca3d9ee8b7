/* pth_bytes.h - builds files of torch.save from single bytes, well-formed or not. */
#ifndef LK_TESTS_IO_PTH_BYTES_H
#define LK_TESTS_IO_PTH_BYTES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include <lockstep/state.h>

#include "base/bytes.h"

/* The bytes of a literal, which may contain zeros. */
typedef struct piece {
    const char *bytes;
    size_t size;
} piece;
#define PIECE(text)            \
    {                          \
        text, sizeof(text) - 1 \
    }

/* Archives are UNSUPPORTED in a build without libzip. */
static inline bool has_libzip(void)
{
    lk_state *state = NULL;
    bool has = lk_state_load(LK_TESTS_DIR "/io/data/compressed.pth", &state) != LK_STATUS_UNSUPPORTED;
    lk_state_destroy(state);
    return has;
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

/* The older format has a preamble of three pickles, the object, the keys of the storages, and the
 * storages. */
#define LEGACY_MAGIC "\x80\2\x8a\x0al\xfc\x9c\x46\xf9\x20j\xa8P\x19."
#define LEGACY_START LEGACY_MAGIC "\x80\2M\xe9\3."
#define LEGACY_PREAMBLE LEGACY_START "\x80\2}X\x0d\0\0\0little_endian\x88s."

/* Parts of the object. The length of a text is one byte. */
#define TEXT(length, text) "X" length "\0\0\0" text
#define ORDERED_DICT "ccollections\nOrderedDict\n)R"
#define REBUILD "ctorch._utils\n_rebuild_tensor_v2\n"
#define STORAGE(type, key, count) \
    "(" TEXT("\7", "storage") "ctorch\n" type "\n" TEXT("\1", key) TEXT("\3", "cpu") count "tQ"
#define TENSOR(storage, offset, sizes, strides) REBUILD "(" storage offset sizes strides "\x89" ORDERED_DICT "tR"
/* Storage "0" has four floats; VECTOR is a tensor of all four. */
#define FLOATS STORAGE("FloatStorage", "0", "K\4")
#define VECTOR TENSOR(FLOATS, "K\0", "K\4\x85", "K\1\x85")
#define KEYS "\x80\2]" TEXT("\1", "0") "a."

/* A zip archive; zip_end appends the directory to the file. */
typedef struct zip_build {
    build file, directory;
    unsigned members;
} zip_build;

/* The fields of a member's headers. */
typedef struct zip_member {
    const char *name;
    uint64_t method, crc, stored, size; /* method 0: stored, 8: deflated */
    size_t at;                          /* offset of its header in the file */
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

/* Adds a member whose headers give the size `stated`. */
static inline void zip_add(zip_build *z, const char *name, const void *bytes, size_t size, size_t stated)
{
    const zip_member m = {name, 0, crc32(0, bytes, (uInt)size), stated, stated, z->file.size};
    zip_header(&z->file, &m, false);
    zip_header(&z->directory, &m, true);
    build_put(&z->file, bytes, size);
    z->members++;
}

/* Adds a member to the directory only. */
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
