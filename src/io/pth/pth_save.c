/* pth_save.c - writes state dicts like torch.save: a zip archive of archive/data.pkl,
 * archive/byteorder, archive/data/N and archive/version, all uncompressed and aligned. The pickle
 * has the opcodes that Python writes for an OrderedDict of tensors.
 *
 * The archive is written in one pass; zlib computes its checksums. The same state gives the same
 * bytes: no times, no random ids. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "io/pth/pth.h"
#include "io/state_notes.h"

#define ROOT "archive/"

enum { ALIGNMENT = 64, NAME_BYTES = 40 };
enum { LOCAL_BYTES = 30, CENTRAL_BYTES = 46, END64_BYTES = 56, LOCATOR_BYTES = 20, END_BYTES = 22, ZIP64_BYTES = 28 };
/* 1980-01-01, the earliest date of a zip archive. */
enum { DOS_DATE = 1 << 5 | 1, NEEDS_ZIP64 = 45, STORED = 0, UTF8 = 1 << 11 };

#define LARGE UINT32_MAX

/* Bytes that are being written; the caller has checked the room. */
typedef struct bytes {
    uint8_t *data;
    size_t size;
} bytes;

static void put(bytes *b, const void *data, size_t size)
{
    if (size)
        memcpy(b->data + b->size, data, size);
    b->size += size;
}

static void put_number(bytes *b, uint64_t value, int size)
{
    lk__bytes_put_le(b->data + b->size, value, size);
    b->size += (size_t)size;
}

static void put_op(bytes *b, char op)
{
    put(b, &op, 1);
}

/* The pickle that is being written, with the memo slots of repeated values; 0: not written yet.
 * Slot 0 is the OrderedDict's, which is written first. */
typedef struct pickler {
    bytes out;
    uint32_t next;                        /* next free memo slot */
    uint32_t dict, rebuild, storage, cpu; /* slots of the texts and globals of every tensor */
    uint32_t types[LK_DTYPE_COUNT];
} pickler;

static uint32_t memoize(pickler *p)
{
    put_op(&p->out, p->next < 256 ? 'q' : 'r');
    put_number(&p->out, p->next, p->next < 256 ? 1 : 4);
    return p->next++;
}

static void put_memo(pickler *p, uint32_t slot)
{
    put_op(&p->out, slot < 256 ? 'h' : 'j');
    put_number(&p->out, slot, slot < 256 ? 1 : 4);
}

static void put_text(pickler *p, const char *text)
{
    size_t length = strlen(text);
    put_op(&p->out, 'X');
    put_number(&p->out, length, 4);
    put(&p->out, text, length);
    (void)memoize(p);
}

/* Writes a text or a global's two lines at the first call, its memo slot later. */
static void put_once(pickler *p, uint32_t *slot, const char *global, const char *text)
{
    if (*slot) {
        put_memo(p, *slot);
        return;
    }
    *slot = p->next;
    if (!global) {
        put_text(p, text);
        return;
    }
    put_op(&p->out, 'c');
    put(&p->out, global, strlen(global));
    put(&p->out, text, strlen(text));
    put_op(&p->out, '\n');
    (void)memoize(p);
}

/* Writes an integer in the fewest bytes, as Python does. */
static void put_integer(pickler *p, uint64_t value)
{
    if (value <= INT32_MAX) {
        int size = value < 256 ? 1 : value < 65536 ? 2 : 4;
        put_op(&p->out, size == 1 ? 'K' : size == 2 ? 'M' : 'J');
        put_number(&p->out, value, size);
        return;
    }
    int size = 4;
    while (size < 8 && value >> (8 * size - 1))
        size++;
    put_op(&p->out, '\x8a');
    put_number(&p->out, (uint64_t)size, 1);
    put_number(&p->out, value, size);
}

static void put_tuple(pickler *p, const size_t *values, int count)
{
    static const char short_forms[] = {')', '\x85', '\x86', '\x87'};
    if (count > 3)
        put_op(&p->out, '(');
    for (int i = 0; i < count; i++)
        put_integer(p, values[i]);
    put_op(&p->out, count > 3 ? 't' : short_forms[count]);
    if (count)
        (void)memoize(p);
}

/* PyTorch's strides: an empty dimension counts as one element. If a stride overflows, its value
 * does not matter. */
static void row_major(const lk_state_entry *entry, size_t strides[LK_MAX_DIMS])
{
    size_t stride = 1;
    for (int i = entry->ndim - 1; i >= 0; i--) {
        strides[i] = stride;
        if (__builtin_mul_overflow(stride, lk__size_max(entry->dims[i], 1), &stride) || stride > INT64_MAX)
            stride = 1;
    }
}

/* Writes a call of _rebuild_tensor_v2(storage, 0, sizes, strides, False, OrderedDict()). */
static void put_tensor(pickler *p, const lk_state_entry *entry, size_t index)
{
    char key[24];
    size_t strides[LK_MAX_DIMS];
    const lk_pth_type *type = &lk__pth_types[entry->dtype];
    snprintf(key, sizeof key, "%zu", index);
    row_major(entry, strides);
    put_text(p, entry->name);
    put_once(p, &p->rebuild, "torch._utils\n", "_rebuild_tensor_v2");
    put(&p->out, "((", 2);
    put_once(p, &p->storage, NULL, "storage");
    put_once(p, &p->types[entry->dtype], "torch\n", type->storage);
    put_text(p, key);
    put_once(p, &p->cpu, NULL, "cpu");
    put_integer(p, entry->bytes / type->size);
    put_op(&p->out, 't');
    (void)memoize(p);
    put_op(&p->out, 'Q');
    put_integer(p, 0);
    put_tuple(p, entry->dims, entry->ndim);
    put_tuple(p, strides, entry->ndim);
    put_op(&p->out, '\x89');
    put_memo(p, p->dict);
    put(&p->out, ")R", 2);
    (void)memoize(p);
    put_op(&p->out, 't');
    (void)memoize(p);
    put_op(&p->out, 'R');
    (void)memoize(p);
}

/* Python writes the items of a dict in parts of this size. */
enum { DICT_PART = 1000 };

static void put_items(pickler *p, const lk_state *state)
{
    size_t count = lk_state_count(state);
    for (size_t start = 0; start < count; start += DICT_PART) {
        size_t end = lk__size_min(count, start + DICT_PART);
        bool several = end - start > 1;
        if (several)
            put_op(&p->out, '(');
        for (size_t i = start; i < end; i++)
            put_tensor(p, lk_state_at(state, i), i);
        put_op(&p->out, several ? 'u' : 's');
    }
}

/* The most bytes of one tensor in the pickle, without its name. */
enum { TENSOR_BYTES = 320 + 24 * LK_MAX_DIMS };

static lk_status check_name(const char *path, const char *name)
{
    size_t length = strlen(name), valid = lk__utf8_valid_bytes(name, length);
    if (valid < length)
        return lk__fail(LK_STATUS_USAGE, "cannot save %s: the name of a tensor is not UTF-8 at its byte %zu", path,
                        valid);
    if (length > LARGE)
        return lk__fail(LK_STATUS_USAGE, "cannot save %s: the name of a tensor has %zu bytes", path, length);
    return LK_OK;
}

static lk_status make_pickle(const lk_state *state, const char *path, bytes *out)
{
    size_t room = 64;
    for (size_t i = 0; i < lk_state_count(state); i++) {
        const char *name = lk_state_at(state, i)->name;
        LK_TRY(check_name(path, name));
        room += strlen(name) + TENSOR_BYTES;
    }
    pickler p = {.dict = 0};
    LK_TRY(LK_ALLOC(room, "a pickle", &p.out.data));
    put(&p.out, "\x80\x02", 2);
    static const char dict[] = "ccollections\nOrderedDict\n";
    put(&p.out, dict, sizeof dict - 1);
    (void)memoize(&p);
    put(&p.out, ")R", 2);
    (void)memoize(&p);
    put_items(&p, state);
    put_op(&p.out, '.');
    *out = p.out;
    return LK_OK;
}

/* The archive that is being written; its directory is collected in memory. */
typedef struct zip {
    lk_writer *writer;
    uint64_t at;
    bytes directory;
    size_t members;
} zip;

static lk_status write_bytes(zip *z, const void *data, size_t size)
{
    z->at += size;
    return lk__writer_write(z->writer, data, size);
}

static uint32_t checksum(const void *data, size_t size)
{
    return (uint32_t)crc32_z(0, data, size);
}

/* Writes the fields that both headers of a member have. Larger sizes and offsets are in a field
 * after the name. */
static void put_facts(bytes *b, uint32_t crc, uint64_t size)
{
    uint32_t shown = size < LARGE ? (uint32_t)size : LARGE;
    put_number(b, UTF8, 2);
    put_number(b, STORED, 2);
    put_number(b, 0, 2);
    put_number(b, DOS_DATE, 2);
    put_number(b, crc, 4);
    put_number(b, shown, 4);
    put_number(b, shown, 4);
}

/* Writes the numbers that need 64 bits; returns the bytes written, 0 if none does. */
static size_t put_zip64(bytes *b, uint64_t size, uint64_t offset)
{
    size_t start = b->size;
    int count = (size >= LARGE ? 2 : 0) + (offset >= LARGE ? 1 : 0);
    if (!count)
        return 0;
    put_number(b, 1, 2);
    put_number(b, (uint64_t)count * 8, 2);
    if (size >= LARGE) {
        put_number(b, size, 8);
        put_number(b, size, 8);
    }
    if (offset >= LARGE)
        put_number(b, offset, 8);
    return b->size - start;
}

/* torch aligns data with a field "FB" of the right length before them. */
static void put_padding(bytes *b, uint64_t at)
{
    enum { FIELD = 4 };
    size_t pad = ALIGNMENT - (size_t)((at + b->size + FIELD) % ALIGNMENT);
    put(b, "FB", 2);
    put_number(b, pad, 2);
    memset(b->data + b->size, 'Z', pad);
    b->size += pad;
}

static lk_status write_local(zip *z, const char *name, uint32_t crc, uint64_t size)
{
    uint8_t room[LOCAL_BYTES + NAME_BYTES + ZIP64_BYTES + 2 * ALIGNMENT];
    bytes b = {.data = room};
    put(&b, "PK\3\4", 4);
    put_number(&b, NEEDS_ZIP64, 2);
    put_facts(&b, crc, size);
    put_number(&b, strlen(name), 2);
    size_t extra_at = b.size;
    put_number(&b, 0, 2);
    put(&b, name, strlen(name));
    size_t fields_at = b.size;
    (void)put_zip64(&b, size, 0);
    put_padding(&b, z->at);
    lk__bytes_put_le(room + extra_at, b.size - fields_at, 2);
    return write_bytes(z, room, b.size);
}

static void put_central(zip *z, const char *name, uint32_t crc, uint64_t size, uint64_t offset)
{
    bytes *b = &z->directory;
    put(b, "PK\1\2", 4);
    put_number(b, NEEDS_ZIP64, 2);
    put_number(b, NEEDS_ZIP64, 2);
    put_facts(b, crc, size);
    put_number(b, strlen(name), 2);
    size_t extra_at = b->size;
    put_number(b, 0, 2);
    put_number(b, 0, 2); /* comment */
    put_number(b, 0, 2); /* disk */
    put_number(b, 0, 2); /* attributes */
    put_number(b, 0, 4);
    put_number(b, offset < LARGE ? offset : LARGE, 4);
    put(b, name, strlen(name));
    lk__bytes_put_le(b->data + extra_at, put_zip64(b, size, offset), 2);
    z->members++;
}

static lk_status write_member(zip *z, const char *name, const void *data, size_t size)
{
    uint64_t offset = z->at;
    uint32_t crc = checksum(data, size);
    LK_TRY(write_local(z, name, crc, size));
    put_central(z, name, crc, size, offset);
    return write_bytes(z, data, size);
}

/* Writes the directory and the three records at the end of the file that lead to it. */
static lk_status write_end(zip *z)
{
    uint8_t room[END64_BYTES + LOCATOR_BYTES + END_BYTES];
    bytes b = {.data = room};
    uint64_t offset = z->at, size = z->directory.size;
    LK_TRY(write_bytes(z, z->directory.data, z->directory.size));
    put(&b, "PK\6\6", 4);
    put_number(&b, END64_BYTES - 12, 8);
    put_number(&b, NEEDS_ZIP64, 2);
    put_number(&b, NEEDS_ZIP64, 2);
    put_number(&b, 0, 8); /* disks */
    put_number(&b, z->members, 8);
    put_number(&b, z->members, 8);
    put_number(&b, size, 8);
    put_number(&b, offset, 8);
    put(&b, "PK\6\7", 4);
    put_number(&b, 0, 4);
    put_number(&b, z->at, 8);
    put_number(&b, 1, 4);
    put(&b, "PK\5\6", 4);
    put_number(&b, 0, 4);
    put_number(&b, lk__size_min(z->members, UINT16_MAX), 2);
    put_number(&b, lk__size_min(z->members, UINT16_MAX), 2);
    put_number(&b, size < LARGE ? size : LARGE, 4);
    put_number(&b, offset < LARGE ? offset : LARGE, 4);
    put_number(&b, 0, 2);
    return write_bytes(z, room, b.size);
}

static lk_status write_notes(zip *z, const lk_state *state)
{
    char *text;
    if (!lk_state_note_name(state, 0))
        return LK_OK;
    LK_TRY(LK_ALLOC(lk__state_notes_room(state, "") + 2, "the notes of a state", &text));
    size_t size = lk__state_notes_put(state, "", text);
    text[0] = '{'; /* in place of the first comma */
    text[size++] = '}';
    lk_status status = write_member(z, ROOT LK_PTH_NOTES, text, size);
    lk__mem_free(text);
    return status;
}

static lk_status write_archive(zip *z, const lk_state *state, const bytes *pickle)
{
    static const char order[] = "little", version[] = "3\n";
    LK_TRY(write_member(z, ROOT "data.pkl", pickle->data, pickle->size));
    LK_TRY(write_member(z, ROOT "byteorder", order, sizeof order - 1));
    for (size_t i = 0; i < lk_state_count(state); i++) {
        const lk_state_entry *entry = lk_state_at(state, i);
        char name[NAME_BYTES];
        snprintf(name, sizeof name, ROOT "data/%zu", i);
        LK_TRY(write_member(z, name, entry->data, entry->bytes));
    }
    LK_TRY(write_member(z, ROOT "version", version, sizeof version - 1));
    LK_TRY(write_notes(z, state));
    return write_end(z);
}

lk_status lk__pth_save(const lk_state *state, const char *path)
{
    enum { OTHER_MEMBERS = 4 };
    bytes pickle = {0};
    zip z = {0};
    lk_status status;
    LK_TRY(make_pickle(state, path, &pickle));
    size_t room = (lk_state_count(state) + OTHER_MEMBERS) * (CENTRAL_BYTES + NAME_BYTES + ZIP64_BYTES);
    LK_TRY_GOTO(LK_ALLOC(room, "the directory of an archive", &z.directory.data), free_pickle);
    LK_TRY_GOTO(lk__writer_open(path, &z.writer), free_directory);
    LK_TRY_GOTO(write_archive(&z, state, &pickle), abort_writer);
    status = lk__writer_commit(z.writer);
    z.writer = NULL;
abort_writer:
    lk__writer_abort(z.writer);
free_directory:
    lk__mem_free(z.directory.data);
free_pickle:
    lk__mem_free(pickle.data);
    return status;
}
