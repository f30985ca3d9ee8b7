/* test_pth.c - files of torch.save, read and written. test_pth_hostile.c tests what is refused.
 *
 * With the arguments "write FILE" or "read FILE" the program is one half of an exchange with PyTorch that
 * interop_pth.py runs. */
#include <sys/stat.h>

#include <lockstep/state.h>

#include "check.h"
#include "pth_bytes.h"
#include "state_files.h"

static void assert_same(const lk_state *a, const lk_state *b)
{
    assert_int_equal(lk_state_compare(a, b, NULL, NULL), 0);
    assert_true(lk_state_hash(a) == lk_state_hash(b));
    assert_int_equal(lk_state_count(a), lk_state_count(b));
    for (size_t i = 0; i < lk_state_count(a); i++)
        assert_string_equal(lk_state_at(a, i)->name, lk_state_at(b, i)->name);
}

/* The order of the tensors stays. */
static void test_round_trip(void **ctx)
{
    lk_state *state = make_samples(SAMPLES);
    for (int i = 0; i < 2; i++) {
        const char *path = temp_path(i ? "all.pth" : "all.pt");
        assert_int_equal(lk_state_save(state, path), LK_OK);
        lk_state *back = load(path);
        assert_same(state, back);
        lk_state_destroy(back);
    }
    lk_state_destroy(state);
}

static void test_same_state_same_bytes(void **ctx)
{
    static unsigned char a[1 << 18], b[1 << 18];
    lk_state *state = make_samples(SAMPLES);
    assert_int_equal(lk_state_save(state, temp_path("a.pth")), LK_OK);
    lk_state *back = load(temp_path("a.pth"));
    assert_int_equal(lk_state_save(back, temp_path("b.pt")), LK_OK);
    size_t bytes = get_file(temp_path("a.pth"), a, sizeof a);
    assert_int_equal(get_file(temp_path("b.pt"), b, sizeof b), bytes);
    assert_memory_equal(a, b, bytes);
    lk_state_destroy(back);
    lk_state_destroy(state);
}

/* Counts at the limits of memo indices of one byte, of the parts of a dict, and of zip directories. */
static void test_many_tensors(void **ctx)
{
    static const size_t counts[] = {0, 1, 2, 999, 1000, 1001, 66000};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        lk_state *state = NULL;
        assert_int_equal(lk_state_create(&state), LK_OK);
        for (size_t i = 0; i < counts[c]; i++) {
            char name[32];
            lk_state_entry *entry;
            snprintf(name, sizeof name, "layer.%zu", i);
            assert_int_equal(lk_state_add(state, name, LK_DTYPE_U8, 1, &(size_t){i % 3}, &entry), LK_OK);
            fill(entry, i);
        }
        assert_int_equal(lk_state_save(state, temp_path("many.pth")), LK_OK);
        lk_state *back = load(temp_path("many.pth"));
        assert_same(state, back);
        lk_state_destroy(back);
        lk_state_destroy(state);
    }
}

/* Offset of a member's data, after its local header; 0: there is no such member. */
static size_t data_at(const unsigned char *bytes, size_t count, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i + 30 + length < count; i++) {
        const unsigned char *header = bytes + i;
        if (memcmp(header, "PK\3\4", 4) == 0 && lk__bytes_get_le(header + 26, 2) == length &&
            memcmp(header + 30, name, length) == 0)
            return i + 30 + length + (size_t)lk__bytes_get_le(header + 28, 2);
    }
    return 0;
}

static void test_archive_is_as_torch_has_it(void **ctx)
{
    static unsigned char bytes[1 << 18];
    lk_state *state = make_samples(SAMPLES);
    assert_int_equal(lk_state_save(state, temp_path("a.pth")), LK_OK);
    size_t count = get_file(temp_path("a.pth"), bytes, sizeof bytes);
    static const struct {
        const char *name, *content;
    } members[] = {{"archive/data.pkl", "\x80\2ccollections\nOrderedDict\nq"},
                   {"archive/byteorder", "little"},
                   {"archive/version", "3\n"},
                   {"archive/data/0", "\1\10\17"},
                   {"archive/data/1", "\16\25"},
                   {"archive/data/14", "\xb7\xbe"}};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        size_t at = data_at(bytes, count, members[i].name);
        assert_int_not_equal(at, 0);
        assert_int_equal(at % 64, 0);
        assert_memory_equal(bytes + at, members[i].content, strlen(members[i].content));
    }
    lk_state_destroy(state);
}

static void test_ending_chooses(void **ctx)
{
    static const struct {
        const char *name, *start;
    } cases[] = {{"m.pth", "PK\3\4"}, {"m.pt", "PK\3\4"}, {"m.safetensors", NULL},
                 {"m", NULL},         {"pth", NULL},      {".m", NULL}};
    lk_state *state = make_samples(SAMPLES);
    static unsigned char bytes[1 << 18];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(lk_state_save(state, temp_path(cases[i].name)), LK_OK);
        assert_true(get_file(temp_path(cases[i].name), bytes, sizeof bytes) > 64);
        if (cases[i].start)
            assert_memory_equal(bytes, cases[i].start, 4);
        else
            assert_int_equal(bytes[8], '{');
    }
    /* A file is read by its content, whatever its name is. */
    size_t count = get_file(temp_path("m"), bytes, sizeof bytes);
    temp_write(temp_path("other.pth"), bytes, count);
    lk_state *back = load(temp_path("other.pth"));
    assert_int_equal(lk_state_compare(state, back, NULL, NULL), 0);
    lk_state_destroy(back);
    lk_state_destroy(state);
}

/* Saving with an ending that no format has fails; dots in names of folders do not count. */
static void test_unknown_endings(void **ctx)
{
    static const char *const names[] = {"m.onnx", "m.pth.bak", "m.", "m.0", "m.PTH"};
    lk_state *state = make_samples(SAMPLES);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_fails(lk_state_save(state, temp_path(names[i])), LK_STATUS_USAGE, names[i]);
        assert_detail(".safetensors (safetensors), .pth (PyTorch), .pt (PyTorch)");
        assert_null(fopen(temp_path(names[i]), "rb"));
    }
    assert_int_equal(mkdir(temp_path("v1.2"), 0777), 0);
    assert_int_equal(lk_state_save(state, temp_path("v1.2/m")), LK_OK);
    assert_int_equal(unlink(temp_path("v1.2/m")), 0);
    assert_int_equal(rmdir(temp_path("v1.2")), 0);
    lk_state_destroy(state);
}

static void test_name_must_be_text(void **ctx)
{
    lk_state *state = NULL;
    lk_state_entry *entry;
    assert_int_equal(lk_state_create(&state), LK_OK);
    assert_int_equal(lk_state_add(state, "ab\xff", LK_DTYPE_U8, 0, NULL, &entry), LK_OK);
    assert_fails(lk_state_save(state, temp_path("bad.pth")), LK_STATUS_USAGE, "not UTF-8 at its byte 2");
    assert_null(fopen(temp_path("bad.pth"), "rb"));
    lk_state_destroy(state);
}

/* The tensors that make_pth.py has saved in data/. Values are integers that every type can hold. */
static const struct {
    const char *name;
    lk_dtype dtype;
    int ndim;
    size_t dims[4];
    double values[12];
} stored[] = {
    {"module.conv.weight", LK_DTYPE_F32, 4, {2, 1, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7}},
    {"module.tied.weight", LK_DTYPE_F32, 4, {2, 1, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7}},
    {"module.base", LK_DTYPE_F32, 1, {6}, {0, 1, 2, 3, 4, 5}},
    {"module.slice", LK_DTYPE_F32, 1, {2}, {2, 3}},
    {"module.transposed", LK_DTYPE_F32, 2, {3, 2}, {0, 3, 1, 4, 2, 5}},
    {"module.columns", LK_DTYPE_F64, 2, {3, 2}, {1, 3, 5, 7, 9, 11}},
    {"module.expanded", LK_DTYPE_I32, 2, {2, 3}, {7, 7, 7, 7, 7, 7}},
    {"module.channels_last", LK_DTYPE_F16, 4, {1, 2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7}},
    {"module.bf16", LK_DTYPE_BF16, 1, {3}, {1, 2, 3}},
    {"module.u8", LK_DTYPE_U8, 1, {3}, {255, 0, 1}},
    {"module.bn.num_batches_tracked", LK_DTYPE_I64, 0, {0}, {12345}},
    {"module.empty", LK_DTYPE_F32, 2, {0, 3}, {0}},
};
enum { STORED = sizeof stored / sizeof *stored };

static uint64_t float_bits(double value, lk_dtype dtype)
{
    static const uint16_t halves[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700};
    float single = (float)value;
    uint32_t low;
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    memcpy(&low, &single, sizeof low);
    return dtype == LK_DTYPE_F64    ? bits
           : dtype == LK_DTYPE_F32  ? low
           : dtype == LK_DTYPE_BF16 ? low >> 16
                                    : halves[(int)value];
}

static uint64_t bits_of(double value, lk_dtype dtype)
{
    bool integer = dtype == LK_DTYPE_I64 || dtype == LK_DTYPE_I32 || dtype == LK_DTYPE_U8;
    return integer ? (uint64_t)value : float_bits(value, dtype);
}

static void check_stored(const lk_state *state, size_t t)
{
    const lk_state_entry *entry = lk_state_at(state, t);
    assert_non_null(entry);
    assert_string_equal(entry->name, stored[t].name);
    assert_int_equal(entry->dtype, stored[t].dtype);
    assert_int_equal(entry->ndim, stored[t].ndim);
    size_t size = lk_dtype_size(entry->dtype), elements = 1;
    for (int d = 0; d < entry->ndim; d++) {
        assert_int_equal(entry->dims[d], stored[t].dims[d]);
        elements *= entry->dims[d];
    }
    assert_int_equal(entry->bytes, elements * size);
    for (size_t i = 0; i < elements; i++) {
        uint64_t wanted = bits_of(stored[t].values[i], entry->dtype);
        assert_memory_equal((const char *)entry->data + i * size, &wanted, size);
    }
}

/* The files have shared, sliced, transposed and repeated storages inside a training checkpoint. */
static void test_files_of_torch(void **ctx)
{
    static const char *const names[] = {"torch_1.13.pth", "torch_1.13_legacy.pth", "torch_2.15.pth",
                                        "torch_2.15_legacy.pth"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/io/data/%s", LK_TESTS_DIR, names[i]);
        lk_state *state = load(path);
        assert_int_equal(lk_state_count(state), STORED);
        for (size_t t = 0; t < STORED; t++)
            check_stored(state, t);
        lk_state_destroy(state);
    }
}

/* Loads an object in the older container; storage "0" has the floats 1, 2, 3, 4. */
static lk_status load_object(const char *object, size_t size, lk_state **out)
{
    static const float floats[] = {1, 2, 3, 4};
    static build b;
    b.size = 0;
    build_put(&b, LEGACY_PREAMBLE, sizeof LEGACY_PREAMBLE - 1);
    build_put(&b, "\x80\2", 2);
    build_put(&b, object, size);
    build_put(&b, ".", 1);
    build_put(&b, KEYS, sizeof KEYS - 1);
    build_number(&b, 4, 8);
    build_put(&b, floats, sizeof floats);
    temp_write(temp_path("object.pth"), b.bytes, b.size);
    return lk_state_load(temp_path("object.pth"), out);
}

/* An object, the names of the tensors found in it, and the floats of the first. */
static const struct {
    piece object;
    const char *names[3];
    float values[4];
} objects[] = {
    {PIECE("}" TEXT("\1", "a") VECTOR "s"), {"a"}, {1, 2, 3, 4}},
    {PIECE(ORDERED_DICT "(" TEXT("\1", "a") VECTOR TEXT("\1", "b") VECTOR "u"), {"a", "b"}, {1, 2, 3, 4}},
    /* Values that are no tensors, and tensors whose key is no text, are left out. */
    {PIECE("}(" TEXT("\1", "a") VECTOR TEXT("\1", "n") "K\1" TEXT("\1", "m") "N"
                                                                             "K\1" VECTOR "u"),
     {"a"},
     {1, 2, 3, 4}},
    /* Python 2: an OrderedDict made of a list of pairs; texts are byte strings. */
    {PIECE("ccollections\nOrderedDict\n]](U\1a" VECTOR "ea\x85R"), {"a"}, {1, 2, 3, 4}},
    /* Up to PyTorch 0.3: tensors by _rebuild_tensor, parameters as a class with attributes. */
    {PIECE("}" TEXT("\1", "a") "ctorch.nn.parameter\nParameter\nctorch._utils\n_rebuild_tensor\n(" FLOATS
                               "K\1K\2\x85K\2\x85tR\x85R(\x88\x89" ORDERED_DICT "tbs"),
     {"a"},
     {2, 4}},
    /* A storage that is a view of a part of another one. */
    {PIECE("}" TEXT("\1", "a") TENSOR("(" TEXT("\7", "storage") "ctorch\nFloatStorage\n" TEXT("\1", "0")
                                          TEXT("\3", "cpu") "K\4(" TEXT("\1", "v") "K\1K\2ttQ",
                                      "K\1", "K\1\x85", "K\1\x85") "s"),
     {"a"},
     {3}},
    /* Parameters, and tensors of a subclass. */
    {PIECE("}" TEXT("\1", "a") "ctorch._utils\n_rebuild_parameter\n(" VECTOR "\x88" ORDERED_DICT "tRs"),
     {"a"},
     {1, 2, 3, 4}},
    {PIECE("}" TEXT("\1", "a") "ctorch._tensor\n_rebuild_from_type_v2\n(" REBUILD "ctorch\nTensor\n(" FLOATS
                               "K\0K\2K\2\x86K\1K\2\x86\x89" ORDERED_DICT "t}tRs"),
     {"a"},
     {1, 3, 2, 4}},
    /* The state is under a known key of checkpoints, by order of preference; other tensors are ignored. */
    {PIECE("}(" TEXT("\3", "net") "}" TEXT("\1", "d") VECTOR "s" TEXT("\5", "model") "}" TEXT("\1", "c") VECTOR "su"),
     {"c"},
     {1, 2, 3, 4}},
    {PIECE("}(" TEXT("\5", "model") "}" TEXT("\1", "c") VECTOR "s" TEXT("\x10", "model_state_dict") "}" TEXT("\1", "b")
               VECTOR "su"),
     {"b"},
     {1, 2, 3, 4}},
    {PIECE("}(" TEXT("\1", "x") VECTOR TEXT("\x0a", "state_dict") "}" TEXT("\1", "a") VECTOR "su"),
     {"a"},
     {1, 2, 3, 4}},
    /* A key "model" whose value is no dict. */
    {PIECE("}(" TEXT("\1", "x") VECTOR TEXT("\5", "model") TEXT("\4", "cnn1") "u"), {"x"}, {1, 2, 3, 4}},
    /* The prefix of DistributedDataParallel is kept. */
    {PIECE("}(" TEXT("\x08", "module.a") VECTOR TEXT("\x08", "module.b") VECTOR "u"),
     {"module.a", "module.b"},
     {1, 2, 3, 4}},
    {PIECE("}(" TEXT("\x08", "module.a") VECTOR TEXT("\1", "b") VECTOR "u"), {"module.a", "b"}, {1, 2, 3, 4}},
    /* A dict that contains itself, and the memo of protocol 4. */
    {PIECE("}\x94(" TEXT("\4", "self") "h\0" TEXT("\1", "a") VECTOR "u"), {"a"}, {1, 2, 3, 4}},
    {PIECE("}(\x8c\1a\x8c\5torch\x94"
           "0" VECTOR "u"),
     {"a"},
     {1, 2, 3, 4}},
    {PIECE("}"), {NULL}, {0}},
};

static void test_objects(void **ctx)
{
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        lk_state *state = NULL;
        if (load_object(objects[i].object.bytes, objects[i].object.size, &state) != LK_OK)
            fail_msg("object %zu: %s", i, lk_error_detail());
        size_t count = 0;
        for (; objects[i].names[count]; count++) {
            assert_non_null(lk_state_at(state, count));
            assert_string_equal(lk_state_at(state, count)->name, objects[i].names[count]);
        }
        assert_int_equal(lk_state_count(state), count);
        if (count)
            assert_memory_equal(lk_state_at(state, 0)->data, objects[i].values, lk_state_at(state, 0)->bytes);
        lk_state_destroy(state);
    }
}

/* Types without a storage class are stored as bytes and a dtype. */
static void test_untyped_storage(void **ctx)
{
    static const char object[] = "\x80\2}" TEXT("\1", "a") "ctorch._utils\n_rebuild_tensor_v3\n((" TEXT(
        "\7", "storage") "ctorch.storage\nUntypedStorage\n" TEXT("\1", "0")
        TEXT("\3", "cpu") "K\x10tQ"
                          "K\1K\3\x85K\1\x85\x89" ORDERED_DICT "ctorch\nfloat32\n}tRs.";
    static const float floats[] = {1, 2, 3, 4};
    static zip_build z;
    zip_add(&z, "x/data.pkl", object, sizeof object - 1, sizeof object - 1);
    zip_add(&z, "x/data/0", floats, sizeof floats, sizeof floats);
    zip_end(&z);
    temp_write(temp_path("untyped.pth"), z.file.bytes, z.file.size);
    lk_state *state = load(temp_path("untyped.pth"));
    assert_int_equal(lk_state_count(state), 1);
    assert_int_equal(lk_state_at(state, 0)->bytes, 12);
    assert_memory_equal(lk_state_at(state, 0)->data, floats + 1, 12);
    lk_state_destroy(state);
}

/* A zip program has compressed the members. */
static void test_compressed_member(void **ctx)
{
    lk_state *state = load(LK_TESTS_DIR "/io/data/compressed.pth");
    assert_int_equal(lk_state_count(state), 1);
    const lk_state_entry *entry = lk_state_find(state, "zeros");
    assert_non_null(entry);
    assert_int_equal(entry->bytes, 4000);
    for (size_t i = 0; i < 1000; i++)
        assert_true(((const float *)entry->data)[i] == (i == 999 ? 1.0f : 0.0f));
    lk_state_destroy(state);
}

/* A build without libzip writes .pth and reads the older format. For the newer one it reports that
 * libzip is missing. */
static void test_without_libzip(void **ctx)
{
    lk_state *state = make_samples(SAMPLES), *back = NULL;
    assert_int_equal(lk_state_save(state, temp_path("all.pth")), LK_OK);
    assert_int_equal(lk_state_load(temp_path("all.pth"), &back), LK_STATUS_UNSUPPORTED);
    assert_null(back);
    assert_detail("libzip");
    assert_detail(temp_path("all.pth"));
    lk_state_destroy(state);
}

static int exchange(const char *what, const char *path)
{
    lk_state *state = make_samples(SAMPLES), *back = NULL;
    bool write = strcmp(what, "write") == 0;
    lk_status status = write ? lk_state_save(state, path) : lk_state_load(path, &back);
    if (status != LK_OK)
        fprintf(stderr, "%s\n", lk_error_detail());
    if (back)
        (void)lk_state_strip(back, "module.");
    bool same = !back || lk_state_compare(state, back, NULL, NULL) == 0;
    lk_state_destroy(back);
    lk_state_destroy(state);
    return status != LK_OK || !same;
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return exchange(argv[1], argv[2]);
    return has_libzip()
               ? RUN_TESTS(temp_folder_set_up, temp_folder_tear_down, TEST(test_round_trip),
                           TEST(test_same_state_same_bytes), TEST(test_many_tensors),
                           TEST(test_archive_is_as_torch_has_it), TEST(test_ending_chooses),
                           TEST(test_name_must_be_text), TEST(test_unknown_endings), TEST(test_files_of_torch),
                           TEST(test_objects), TEST(test_untyped_storage), TEST(test_compressed_member))
               : RUN_TESTS(temp_folder_set_up, temp_folder_tear_down, TEST(test_without_libzip),
                           TEST(test_archive_is_as_torch_has_it), TEST(test_name_must_be_text), TEST(test_objects));
}
