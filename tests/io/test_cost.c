/* test_cost.c - what a small file can cost: files that are made to take long or to
 * take much memory are refused, or read, within a small multiple of their size. All
 * allocations are counted, those of libzip and zlib as well; time is the case's
 * timeout. */
#include "heap.h"

#include <zlib.h>

#include <lockstep/state.h>

#include "check.h"
#include "pth_bytes.h"
#include "temp_folder.h"

/* What loading a file may allocate in all: blocks that grow are counted each time. */
enum { COST_BASE = 3 << 20, COST_TIMES = 160 };

static char path[TEMP_FOLDER_BYTES + 16];

static int make_folder(void **ctx)
{
    temp_folder_create(temp_folder);
    snprintf(path, sizeof path, "%s/cost.pth", temp_folder);
    return 0;
}

/* A stream of opcodes of any length. */
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

/* An empty dict at place 0, a name of that length at place 1, a tensor at place 2. */
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

/* The dict gets the same pair again and again. */
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

static void write_bytes(const void *bytes, size_t size)
{
    remove(path);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* An archive with the pickle deflated. */
static void write_deflated(opcodes *o)
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
    write_bytes(z.file.bytes, z.file.size);
}

/* The older container, which has no compression. */
static void write_legacy(const opcodes *o)
{
    opcodes file = {0};
    OP(&file, LEGACY_PREAMBLE);
    op(&file, o->bytes, o->size);
    OP(&file, KEYS "\4\0\0\0\0\0\0\0"
                   "0123456789abcdef");
    write_bytes(file.bytes, file.size);
    free(file.bytes);
}

static size_t size_of_file(void)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    fclose(file);
    return (size_t)size;
}

/* NULL: it loads. */
static void load_cheaply(const char *says)
{
    lk_state *state = NULL;
    size_t most = COST_BASE + COST_TIMES * size_of_file();
    heap_watch(0);
    lk_status status = lk_state_load(path, &state);
    heap_leave();
    lk_state_destroy(state);
    if (status == LK_STATUS_UNSUPPORTED)
        return;
    assert_int_equal(status, says ? LK_STATUS_FORMAT : LK_OK);
    if (says && !strstr(lk_error_detail(), says))
        fail_msg("it says: %s\nexpected: %s", lk_error_detail(), says);
    if (heap.bytes > most)
        fail_msg("%zu bytes were allocated for %zu bytes of file, allowed are %zu", heap.bytes, size_of_file(), most);
}

/* 17 KB that inflate to 16 MB: a name that is shared by all keys, few or many. */
static void test_small_archives(void **ctx)
{
    static const size_t cases[][2] = {{1 << 24, 20}, {1 << 24, 2000}, {4, 3900000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        opcodes o = repeated_pairs(cases[i][0], cases[i][1]);
        write_deflated(&o);
        load_cheaply("is compressed to so little");
        free(o.bytes);
    }
}

static void test_long_names(void **ctx)
{
    opcodes o = repeated_pairs(1 << 20, 120000);
    write_legacy(&o);
    load_cheaply("has a name of 1048576 bytes; names have 1024 at most");
    free(o.bytes);
    o = repeated_pairs(LK_MAX_TENSOR_NAME + 1, 1);
    write_legacy(&o);
    load_cheaply("has a name of 1025 bytes");
    free(o.bytes);
    o = repeated_pairs(LK_MAX_TENSOR_NAME, 1);
    write_legacy(&o);
    load_cheaply(NULL);
    free(o.bytes);
    o = repeated_pairs(LK_MAX_TENSOR_NAME, 60);
    write_legacy(&o);
    load_cheaply("twice");
    free(o.bytes);
}

/* A key of a storage is a number in all files of PyTorch's. */
static void test_long_storage_keys(void **ctx)
{
    opcodes o = {0};
    OP(&o, "\x80\2}X\1\0\0\0a" REBUILD "((" TEXT("\7", "storage") "ctorch\nFloatStorage\nX\0\4\0\0");
    op_times(&o, "0", 1, 1024);
    OP(&o, TEXT("\3", "cpu") "K\4tQK\0K\4\x85K\1\x85\x89" ORDERED_DICT "tRs.");
    write_legacy(&o);
    load_cheaply("the key of a storage has 1024 bytes");
    free(o.bytes);
}

/* An OrderedDict is made of a list of pairs, which the memo gives again and again. */
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
    write_legacy(&o);
    load_cheaply("items");
    free(o.bytes);
}

static void test_far_places_in_the_memo(void **ctx)
{
    opcodes o = {0};
    OP(&o, "\x80\2}r\0\0\x3f\0.");
    write_legacy(&o);
    load_cheaply("place 4128768 in the memo");
    free(o.bytes);
}

static void test_repeated_elements(void **ctx)
{
    opcodes o = {0};
    OP(&o, "\x80\2}X\1\0\0\0a" TENSOR(FLOATS, "K\0", "J\0\0\xff\0K\1\x86", "K\0K\1\x86") "s.");
    write_legacy(&o);
    load_cheaply("repeat what is stored");
    free(o.bytes);
}

/* Different names of one tensor, as short as can be. */
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
    write_legacy(&o);
    load_cheaply("more tensors than a file of");
    free(o.bytes);
}

/* Duplicates and a header full of members are found in one pass. */
static void test_safetensors(void **ctx)
{
    static const char one[] = ",\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
    opcodes o = {0};
    OP(&o, "\0\0\0\0\0\0\0\0{\"\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}");
    op_times(&o, one, sizeof one - 1, 50000);
    OP(&o, "}");
    lk__bytes_put_le(o.bytes, o.size - 8, 8);
    write_bytes(o.bytes, o.size);
    load_cheaply("tensor \"a\" twice");
    free(o.bytes);
    o = (opcodes){0};
    OP(&o, "\0\0\0\0\0\0\0\0{\"");
    op_times(&o, "a", 1, LK_MAX_TENSOR_NAME + 1);
    OP(&o, "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}");
    lk__bytes_put_le(o.bytes, o.size - 8, 8);
    write_bytes(o.bytes, o.size);
    load_cheaply("has a name of 1025 bytes");
    free(o.bytes);
}

/* A large state is no hostile one: work grows with the number of its tensors. */
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
          TEST(test_long_storage_keys), TEST(test_copied_pairs), TEST(test_far_places_in_the_memo),
          TEST(test_repeated_elements), TEST(test_many_names), TEST(test_safetensors), TEST(test_large_state))
