/* test_cost.c - files that are made to take much time or memory are refused, or read, with allocations of
 * at most a small multiple of their size. All allocations count, also those of libzip and zlib. The
 * timeout of the case bounds the time. */
#include "heap.h"

#include <zlib.h>

#include <lockstep/state.h>

#include "check.h"
#include "pth_bytes.h"
#include "temp_folder.h"

/* A load may allocate COST_BASE + COST_TIMES times the file's size in all. A block that grows is counted
 * at each size. */
enum { COST_BASE = 3 << 20, COST_TIMES = 160 };

static char path[TEMP_FOLDER_BYTES + 16];

static int make_folder(void **ctx)
{
    temp_folder_create(temp_folder);
    snprintf(path, sizeof path, "%s/cost.pth", temp_folder);
    return 0;
}

/* A stream of opcodes of any length, freed by load_cheaply. */
typedef struct opcodes {
    uint8_t *bytes;
    size_t size, room;
} opcodes;

static void op(opcodes *o, const void *bytes, size_t size)
{
    if (o->size + size > o->room) {
        o->room = 2 * (o->size + size);
        o->bytes = realloc(o->bytes, o->room);
        assert_non_null(o->bytes);
    }
    memcpy(o->bytes + o->size, bytes, size);
    o->size += size;
}
#define OP(o, text) op(o, text, sizeof(text) - 1)

static void op_times(opcodes *o, const char *text, size_t size, size_t times)
{
    for (size_t i = 0; i < times; i++)
        op(o, text, size);
}

/* Memo 0: an empty dict. Memo 1: a name of that length. Memo 2: a tensor. */
static void op_name_and_tensor(opcodes *o, size_t name)
{
    uint8_t length[4];
    OP(o, "\x80\2}q\0X");
    lk__bytes_put_le(length, name, 4);
    op(o, length, sizeof length);
    op_times(o, "a", 1, name);
    OP(o, "q\1"
          "0" VECTOR "q\2"
          "0");
}

/* Stores the same pair in the dict many times. */
static opcodes repeated_pairs(size_t name, size_t pairs)
{
    enum { BATCH = 200000 };
    opcodes o = {0};
    op_name_and_tensor(&o, name);
    for (size_t left = pairs, now; left; left -= now) {
        now = left < BATCH ? left : BATCH;
        OP(&o, "(");
        op_times(&o, "h\1h\2", 4, now);
        OP(&o, "u");
    }
    OP(&o, ".");
    return o;
}

/* Loads the bytes as a file, with few allocations, and frees them. The load fails with `says` in the
 * detail, or succeeds where `says` is NULL. */
static void load_cheaply(opcodes *o, const char *says)
{
    lk_state *state = NULL;
    size_t most = COST_BASE + COST_TIMES * o->size;
    temp_write(path, o->bytes, o->size);
    heap_watch(0);
    lk_status status = lk_state_load(path, &state);
    heap_leave();
    lk_state_destroy(state);
    free(o->bytes);
    if (status == LK_STATUS_UNSUPPORTED)
        return;
    assert_int_equal(status, says ? LK_STATUS_FORMAT : LK_OK);
    if (says)
        assert_detail(says);
    if (heap.bytes > most)
        fail_msg("%zu bytes were allocated for %zu bytes of file, allowed are %zu", heap.bytes, o->size, most);
}

/* Loads an archive with the pickle deflated. */
static void load_deflated(opcodes *o, const char *says)
{
    static zip_build z;
    static uint8_t packed[1 << 15];
    z_stream stream = {0};
    assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, -15, 9, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = o->bytes;
    stream.avail_in = (uInt)o->size;
    stream.next_out = packed;
    stream.avail_out = sizeof packed;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    z = (zip_build){0};
    const zip_member pickle = {"a/data.pkl", 8, crc32(0, o->bytes, (uInt)o->size), sizeof packed - stream.avail_out,
                               o->size,      0};
    zip_header(&z.file, &pickle, false);
    build_put(&z.file, packed, pickle.stored);
    zip_enter(&z, &pickle);
    zip_add(&z, "a/data/0", "0123456789abcdef", 16, 16);
    zip_end(&z);
    deflateEnd(&stream);
    free(o->bytes);
    *o = (opcodes){0};
    op(o, z.file.bytes, z.file.size);
    load_cheaply(o, says);
}

/* Loads a file in the older container, which has no compression. */
static void load_legacy(opcodes *o, const char *says)
{
    opcodes file = {0};
    OP(&file, LEGACY_PREAMBLE);
    op(&file, o->bytes, o->size);
    OP(&file, KEYS "\4\0\0\0\0\0\0\0"
                   "0123456789abcdef");
    free(o->bytes);
    load_cheaply(&file, says);
}

/* 17 KB that inflate to 16 MB: one name that all keys share. */
static void test_small_archives(void **ctx)
{
    static const size_t cases[][2] = {{1 << 24, 20}, {1 << 24, 2000}, {4, 3900000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        opcodes o = repeated_pairs(cases[i][0], cases[i][1]);
        load_deflated(&o, "is compressed to so little");
    }
}

static void test_long_names(void **ctx)
{
    static const struct {
        size_t name, pairs;
        const char *says;
    } cases[] = {{1 << 20, 120000, "has a name of 1048576 bytes; names have 1024 at most"},
                 {LK_MAX_TENSOR_NAME + 1, 1, "has a name of 1025 bytes"},
                 {LK_MAX_TENSOR_NAME, 1, NULL},
                 {LK_MAX_TENSOR_NAME, 60, "twice"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        opcodes o = repeated_pairs(cases[i].name, cases[i].pairs);
        load_legacy(&o, cases[i].says);
    }
}

/* PyTorch writes numbers as the keys of storages. */
static void test_long_storage_keys(void **ctx)
{
    opcodes o = {0};
    OP(&o, "\x80\2}X\1\0\0\0a" REBUILD "((" TEXT("\7", "storage") "ctorch\nFloatStorage\nX\0\4\0\0");
    op_times(&o, "0", 1, 1024);
    OP(&o, TEXT("\3", "cpu") "K\4tQK\0K\4\x85K\1\x85\x89" ORDERED_DICT "tRs.");
    load_legacy(&o, "the key of a storage has 1024 bytes");
}

/* Many OrderedDicts, each made of the same list of pairs in the memo. */
static void test_copied_pairs(void **ctx)
{
    opcodes o = {0};
    OP(&o, "\x80\2](");
    op_times(&o, "NN\x86", 3, 3000);
    OP(&o, "eq\0"
           "0ccollections\nOrderedDict\nq\1"
           "0");
    op_times(&o, "h\1h\0\x85R0", 7, 5000);
    OP(&o, "}.");
    load_legacy(&o, "items");
}

static void test_far_memo_and_repeated_elements(void **ctx)
{
    opcodes o = {0}, repeated = {0};
    OP(&o, "\x80\2}r\0\0\x3f\0.");
    load_legacy(&o, "entry 4128768 of the memo");
    OP(&repeated, "\x80\2}X\1\0\0\0a" TENSOR(FLOATS, "K\0", "J\0\0\xff\0K\1\x86", "K\0K\1\x86") "s.");
    load_legacy(&repeated, "repeat what is stored");
}

/* One tensor under many different names, each as short as possible. */
static void test_many_names(void **ctx)
{
    opcodes o = {0};
    op_name_and_tensor(&o, 1);
    OP(&o, "(");
    for (unsigned i = 0; i < 30000; i++) {
        char name[] = {'U', 3, (char)('0' + i % 64), (char)('0' + i / 64 % 64), (char)('0' + i / 4096), 'h', 2};
        op(&o, name, sizeof name);
    }
    OP(&o, "u.");
    load_legacy(&o, "more tensors than a file of");
}

/* A .safetensors header of `first`, then `more` so many times, then `last`. */
static void load_header(const char *first, const char *more, size_t times, const char *last, const char *says)
{
    opcodes o = {0};
    OP(&o, "\0\0\0\0\0\0\0\0");
    op(&o, first, strlen(first));
    op_times(&o, more, strlen(more), times);
    op(&o, last, strlen(last));
    lk__bytes_put_le(o.bytes, o.size - 8, 8);
    load_cheaply(&o, says);
}

/* Duplicates and a header full of members are found in one pass. */
static void test_safetensors(void **ctx)
{
#define EMPTY "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}"
    load_header("{\"" EMPTY, ",\"a" EMPTY, 50000, "}", "tensor \"a\" twice");
    load_header("{\"", "a", LK_MAX_TENSOR_NAME + 1, EMPTY "}", "has a name of 1025 bytes");
}

/* A large state is accepted: the work grows linearly with the number of its tensors. */
static void test_large_state(void **ctx)
{
    enum { TENSORS = 100000 };
    static const char *const endings[] = {"pth", "safetensors"};
    lk_state *state = NULL, *back = NULL;
    assert_int_equal(lk_state_create(&state), LK_OK);
    for (unsigned i = 0; i < TENSORS; i++) {
        char name[64];
        lk_state_entry *entry;
        snprintf(name, sizeof name, "layers.%u.weight", i);
        assert_int_equal(lk_state_add(state, name, LK_DTYPE_F32, 0, NULL, &entry), LK_OK);
        memcpy(entry->data, &i, sizeof i);
    }
    for (int i = 0; i < 2; i++) {
        char large[TEMP_FOLDER_BYTES + 32];
        snprintf(large, sizeof large, "%s/large.%s", temp_folder, endings[i]);
        assert_int_equal(lk_state_save(state, large), LK_OK);
        lk_status status = lk_state_load(large, &back);
        if (status == LK_STATUS_UNSUPPORTED)
            continue;
        assert_int_equal(status, LK_OK);
        assert_int_equal(lk_state_count(back), TENSORS);
        assert_true(lk_state_hash(back) == lk_state_hash(state));
        lk_state_destroy(back);
    }
    lk_state_destroy(state);
}

TEST_MAIN(make_folder, temp_folder_tear_down, TEST(test_small_archives), TEST(test_long_names),
          TEST(test_long_storage_keys), TEST(test_copied_pairs), TEST(test_far_memo_and_repeated_elements),
          TEST(test_many_names), TEST(test_safetensors), TEST(test_large_state))
