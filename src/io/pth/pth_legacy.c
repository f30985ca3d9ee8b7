/* pth_legacy.c - reads the format of torch.save up to PyTorch 1.5, which later versions still write
 * on request: five pickles (magic number, version, machine, object, keys of the storages), then the
 * storages in the order of the keys, each as its number of elements and their bytes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "io/pth/pth.h"

/* 0x1950a86a20f9469cfc6c as a pickle contains it. */
static const uint8_t magic[] = {0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};

enum { VERSION = 1001, COUNT_BYTES = 8 };

typedef struct stream {
    const lk_state_source *file;
    uint8_t *head; /* (head_bytes) the start of the file; the pickles must end in it */
    size_t head_bytes;
    uint64_t at;
    const lk_pickle *object;
    lk_pth_storage *storages; /* (count) sorted by key, with positions; NULL: not read yet */
    size_t count;
} stream;

static lk_status next_pickle(stream *s, lk_pickle **out)
{
    const lk_pickle_stream in = {
        .path = s->file->path, .bytes = s->head + s->at, .size = s->head_bytes - (size_t)s->at, .base = (size_t)s->at};
    LK_TRY(lk__pickle_read(&in, lk__pth_globals, out));
    s->at += (*out)->used;
    return LK_OK;
}

static lk_status check_version(const lk_pickle *pickle)
{
    const lk_pickle_value *root = lk__pickle_root(pickle);
    return root->kind == LK_PICKLE_KIND_INT && root->as.integer == VERSION
               ? LK_OK
               : lk__pickle_fail(&pickle->stream, root->at, "another version of the format than %d", VERSION);
}

static lk_status check_machine(const lk_pickle *pickle)
{
    const lk_pickle_value *root = lk__pickle_root(pickle), *little = NULL;
    if (root->kind == LK_PICKLE_KIND_DICT)
        little = lk__pickle_find(pickle, root, "little_endian");
    return little && little->kind == LK_PICKLE_KIND_BOOL && little->as.integer
               ? LK_OK
               : lk__pickle_fail(&pickle->stream, root->at, "only files of little-endian machines can be read");
}

static lk_status check_nothing(const lk_pickle *pickle)
{
    (void)pickle;
    return LK_OK;
}

/* Reads the pickles before the object. */
static lk_status read_preamble(stream *s)
{
    static lk_status (*const checks[])(const lk_pickle *) = {check_nothing, check_version, check_machine};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        lk_pickle *pickle = NULL;
        LK_TRY(next_pickle(s, &pickle));
        lk_status status = checks[i](pickle);
        lk__pickle_destroy(pickle);
        LK_TRY(status);
    }
    return LK_OK;
}

static int by_key(const void *a, const void *b)
{
    return lk__pth_storage_compare(a, b);
}

/* Collects all storages of the object, also those outside of the state: the sizes of all of them
 * are needed to find the next one. */
static lk_status collect_storages(stream *s)
{
    const lk_pickle *object = s->object;
    size_t count = 0, kept = 0;
    for (size_t i = 0; i < object->count; i++)
        count += object->values[i].kind == LK_PICKLE_KIND_PERSISTENT;
    LK_TRY(LK_ALLOC(count, "the storages of a PyTorch file", &s->storages));
    for (size_t i = 0; i < object->count; i++)
        if (object->values[i].kind == LK_PICKLE_KIND_PERSISTENT)
            LK_TRY(lk__pth_storage(object, &object->values[i], &s->storages[s->count++]));
    if (count)
        qsort(s->storages, count, sizeof *s->storages, by_key);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || by_key(&s->storages[kept - 1], &s->storages[i]) != 0)
            s->storages[kept++] = s->storages[i];
    s->count = kept;
    return LK_OK;
}

static lk_pth_storage *find_storage(const stream *s, const lk_pth_storage *key)
{
    return s->count ? bsearch(key, s->storages, s->count, sizeof *s->storages, by_key) : NULL;
}

static lk_status read_position(stream *s, const lk_pickle *keys, const lk_pickle_value *key)
{
    lk_pth_storage wanted = {0}, *storage = NULL;
    if (key->kind == LK_PICKLE_KIND_TEXT) {
        wanted.key = key->as.text.bytes;
        wanted.key_bytes = key->as.text.length;
        storage = find_storage(s, &wanted);
    }
    if (!storage || storage->position)
        return lk__pickle_fail(&keys->stream, key->at, "the key of a storage that does not exist, or was named before");
    uint64_t left = s->file->size - s->at, count;
    if (left < COUNT_BYTES || storage->bytes > left - COUNT_BYTES)
        return lk__fail(LK_STATUS_FORMAT,
                        "%s is cut short: a storage of %" PRIu64 " bytes belongs at byte %" PRIu64 ", %" PRIu64
                        " follow",
                        s->file->path, storage->bytes, s->at, left);
    uint8_t bytes[COUNT_BYTES];
    LK_TRY(lk__state_source_read(s->file, s->at, bytes, sizeof bytes));
    count = lk__bytes_get_le(bytes, COUNT_BYTES);
    if (count != storage->bytes / storage->type->size)
        return lk__fail(LK_STATUS_FORMAT, "%s: byte %" PRIu64 ": a storage of %" PRIu64 " elements, expected %" PRIu64,
                        s->file->path, s->at, count, storage->bytes / storage->type->size);
    storage->position = s->at + COUNT_BYTES;
    s->at += COUNT_BYTES + storage->bytes;
    return LK_OK;
}

static lk_status read_positions(stream *s)
{
    lk_pickle *keys = NULL;
    LK_TRY(next_pickle(s, &keys));
    const lk_pickle_value *root = lk__pickle_root(keys);
    lk_status status = LK_OK;
    if (root->kind != LK_PICKLE_KIND_LIST)
        status = lk__pickle_fail(&keys->stream, root->at, "the keys of the storages are no list");
    uint32_t cell = status == LK_OK ? root->as.items.first : 0;
    for (const lk_pickle_value *key; status == LK_OK && (key = lk__pickle_next(keys, &cell));)
        status = read_position(s, keys, key);
    lk__pickle_destroy(keys);
    return status;
}

/* Reads the list of storages when the first storage is needed. A file without tensors does not need the list:
 * the error for such a file should be that it has no tensors. */
static lk_status locate_storage(void *self, lk_pth_storage *storage)
{
    stream *s = self;
    if (!s->storages) {
        LK_TRY(collect_storages(s));
        LK_TRY(read_positions(s));
    }
    const lk_pth_storage *found = find_storage(s, storage);
    if (!found || !found->position || found->bytes != storage->bytes)
        return lk__fail(LK_STATUS_FORMAT, "%s: a storage of %" PRIu64 " bytes that a tensor uses is not in the file",
                        s->file->path, storage->bytes);
    storage->position = found->position;
    return LK_OK;
}

static lk_status read_storage(void *self, const lk_pth_storage *storage, void *out)
{
    const stream *s = self;
    return lk__state_source_read(s->file, storage->position, out, (size_t)storage->bytes);
}

static lk_status load_stream(stream *s, lk_state **out)
{
    lk_pickle *object = NULL;
    LK_TRY(read_preamble(s));
    LK_TRY(next_pickle(s, &object));
    s->object = object;
    const lk_pth_reader reader = {
        .pickle = object, .file_bytes = s->file->size, .self = s, .locate = locate_storage, .read = read_storage};
    lk_status status = lk__pth_load(&reader, out);
    lk__mem_free(s->storages);
    lk__pickle_destroy(object);
    return status;
}

static lk_status load_legacy(const lk_state_source *file, lk_state **out)
{
    stream s = {.file = file};
    s.head_bytes = file->size < LK_PICKLE_MAX_BYTES ? (size_t)file->size : LK_PICKLE_MAX_BYTES;
    LK_TRY(LK_ALLOC(s.head_bytes, "a pickle", &s.head));
    lk_status status = lk__state_source_read(file, 0, s.head, s.head_bytes);
    if (status == LK_OK)
        status = load_stream(&s, out);
    lk__mem_free(s.head);
    return status;
}

/* The bytes before the magic number depend on the pickle protocol. */
static bool probe_legacy(const uint8_t *start, size_t bytes)
{
    enum { MOST = 16 };
    if (bytes < sizeof magic || start[0] != 0x80)
        return false;
    for (size_t i = 0; i < MOST && i + sizeof magic <= bytes; i++)
        if (memcmp(start + i, magic, sizeof magic) == 0)
            return true;
    return false;
}

const lk_state_format lk__state_format_pth_legacy = {
    .name = "PyTorch before 1.6", .probe = probe_legacy, .load = load_legacy};
