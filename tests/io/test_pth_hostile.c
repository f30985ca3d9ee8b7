/* test_pth_hostile.c - damaged and malicious files of torch.save: loading fails with FORMAT, an offset and
 * a reason, and nothing in the file is executed. */
#include <sys/resource.h>

#include <lockstep/state.h>

#include "check.h"
#include "io/pth/pickle.h"
#include "pth_bytes.h"
#include "temp_folder.h"

static char path[TEMP_FOLDER_BYTES + 16];

static int make_folder(void **ctx)
{
    temp_folder_create(temp_folder);
    snprintf(path, sizeof path, "%s/bad.pth", temp_folder);
    /* An allocation of a size that a file only claims would exceed this limit. */
    struct rlimit limit = {(rlim_t)8 << 30, (rlim_t)8 << 30};
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    setrlimit(RLIMIT_AS, &limit);
#endif
    (void)limit;
    return 0;
}

static void refuse(const void *bytes, size_t size, const char *says)
{
    temp_write(path, bytes, size);
    lk_state *state = NULL;
    lk_status status = lk_state_load(path, &state);
    if (status != LK_STATUS_FORMAT)
        fail_msg("status %d instead of FORMAT; expected: %s", (int)status, says);
    assert_null(state);
    assert_detail(says);
    assert_detail(path);
    assert_null(strchr(lk_error_detail(), '\x1b'));
}

/* Refuses an object in the older container with four floats as storage "0". Both containers share most of
 * the checks of pickles. */
static void refuse_object(piece object, const char *says)
{
    static build b;
    b.size = 0;
    build_put(&b, LEGACY_PREAMBLE "\x80\2", sizeof LEGACY_PREAMBLE + 1);
    build_put(&b, object.bytes, object.size);
    build_put(&b, "." KEYS "\4\0\0\0\0\0\0\0", sizeof KEYS + 8);
    build_put(&b, "0123456789abcdef", 16);
    refuse(b.bytes, b.size, says);
}

#define DICT(tensor) "}" TEXT("\1", "a") tensor "s"
#define LONG8 "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"
#define HALF8 "\x8a\x08\0\0\0\0\0\0\0\x40"

static const struct {
    piece object;
    const char *says;
} objects[] = {
    /* Calls of code. */
    {PIECE("cos\nsystem\n" TEXT("\4", "true") "\x85R"), "refers to os.system"},
    {PIECE("cposix\nsystem\n" TEXT("\4", "true") "\x85R"), "byte 47: it refers to posix.system"},
    {PIECE("cbuiltins\neval\n" TEXT("\1", "1") "\x85R"), "refers to builtins.eval"},
    {PIECE("\x8c\2os\x8c\6system\x93" TEXT("\4", "true") "\x85R"), "refers to os.system"},
    {PIECE("}" TEXT("\1", "a") VECTOR "scos\nsystem\n0"), "refers to os.system"},
    {PIECE("ctorch.nn.modules.linear\nLinear\n)\x81"), "torch.save(model.state_dict(), PATH)"},
    {PIECE("c\x1b[31m\nx\xff\n)R"), "refers to ?[31m.x?"},
    {PIECE("ctorch\nFloatStorage\n)R"), "a call of torch.FloatStorage"},
    {PIECE("N)R"), "a call of something that is not a global"},
    {PIECE("ccollections\nOrderedDict\nNR"), "a call of something that is not a global with a tuple"},
    {PIECE("(i__main__\nX\n"), "opcode 0x69"},
    {PIECE("(cos\nsystem\no"), "refers to os.system"},
    {PIECE("\x82\1"), "opcode 0x82"},
    /* No dict, or a dict without tensors. */
    {PIECE("N"), "it holds no dict"},
    {PIECE("]"), "it holds no dict"},
    {PIECE(VECTOR), "it holds no dict"},
    {PIECE("}(" TEXT("\5", "epoch") "K\1" TEXT("\4", "mode") "N"
                                                             "K\1Nu"),
     "its keys are: \"epoch\", \"mode\", one that is no text"},
    {PIECE("}" TEXT("\5", "model") "}s"), "its keys are: \"model\""},
    /* Malformed pickles. */
    {PIECE("\xff"), "opcode 0xff"},
    {PIECE("0"), "wants more values than there are"},
    {PIECE("s"), "wants more values than there are"},
    {PIECE("}(0s"), "wants more values than there are"},
    {PIECE("}(NNs"), "items without a container"},
    {PIECE("u"), "wants a mark"},
    {PIECE("(u"), "items without a container"},
    {PIECE("](NNu"), "not a container of theirs"},
    {PIECE("}(Ne"), "not a container of theirs"},
    {PIECE("}(Nu"), "a key without a value"},
    {PIECE("(Nd"), "a key without a value"},
    {PIECE("NN"), "ends with 2 values"},
    {PIECE("}("), "ends with 1 values"},
    {PIECE("h\0"), "the memo has no entry 0"},
    {PIECE("}r\xff\xff\xff\xff"), "entry 4294967295 of the memo"},
    {PIECE("}j\xff\xff\xff\xff"), "the memo has no entry 4294967295"},
    {PIECE("\x80\7"), "protocol 7"},
    {PIECE("\x80\1"), "protocol 1"},
    {PIECE("\x95\xff\xff\0\0\0\0\0\0"), "a frame goes beyond its end"},
    {PIECE("X\xff\xff\xff\x7f"), "wants 2147483647 bytes"},
    {PIECE("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"), "wants 18446744073709551615 bytes"},
    {PIECE("\x8b\xff\xff\xff\xff"), "wants 4294967295 bytes"},
    {PIECE("cabc"), "a name has no end"},
    {PIECE("\x93"), "wants more values"},
    {PIECE("NN\x93"), "the name of a global is not a text"},
    {PIECE("N}b"), "attributes for something that has none"},
    {PIECE("ccollections\nOrderedDict\n]Na\x85R"), "not a pair"},
    {PIECE("ccollections\nOrderedDict\n]]Naa\x85R"), "not a pair"},
    /* Names. */
    {PIECE("}" TEXT("\1", "\xff") VECTOR "s"), "not UTF-8"},
    {PIECE("}" TEXT("\3", "a\0b") VECTOR "s"), "a zero character"},
    {PIECE("}(" TEXT("\1", "a") VECTOR TEXT("\1", "a") VECTOR "u"), "tensor \"a\" twice"},
    /* Storages. */
    {PIECE(DICT(TENSOR("N", "K\0", "K\4\x85", "K\1\x85"))), "tensor \"a\" is malformed"},
    {PIECE(DICT(TENSOR("NQ", "K\0", "K\4\x85", "K\1\x85"))), "a malformed storage"},
    {PIECE(DICT(TENSOR("(" TEXT("\7", "storage") "NNNNtQ", "K\0", "K\4\x85", "K\1\x85"))), "a malformed storage"},
    {PIECE(DICT(TENSOR(STORAGE("FloatStorage", "0", "J\xff\xff\xff\xff"), "K\0", "K\4\x85", "K\1\x85"))),
     "a malformed storage"},
    {PIECE(DICT(TENSOR(STORAGE("FloatStorage", "0", HALF8), "K\0", "K\4\x85", "K\1\x85"))), "a malformed storage"},
    {PIECE(DICT(TENSOR(STORAGE("FloatStorage", "0", "K\5"), "K\0", "K\5\x85", "K\1\x85"))),
     "a storage of 20 bytes belongs at byte"},
    {PIECE(DICT(TENSOR(STORAGE("ByteStorage", "0", "K\5"), "K\0", "K\5\x85", "K\1\x85"))),
     "a storage of 4 elements, expected 5"},
    {PIECE(DICT(TENSOR(STORAGE("FloatStorage", "1", "K\4"), "K\0", "K\4\x85", "K\1\x85"))),
     "the key of a storage that does not exist"},
    {PIECE("}(" TEXT("\1", "a") VECTOR TEXT("\1", "b")
               TENSOR(STORAGE("FloatStorage", "9", "K\4"), "K\0", "K\4\x85", "K\1\x85") "u"),
     "a storage of 16 bytes that a tensor uses is not in the file"},
    {PIECE("}(" TEXT("\1", "a") VECTOR TEXT("\1", "b")
               TENSOR(STORAGE("FloatStorage", "0", "K\3"), "K\0", "K\3\x85", "K\1\x85") "u"),
     "12"},
    {PIECE(DICT(TENSOR(STORAGE("BoolStorage", "0", "K\4"), "K\0", "K\4\x85", "K\1\x85"))), "elements of type bool"},
    /* Sizes and strides. */
    {PIECE(DICT(TENSOR(FLOATS, "K\1", "K\4\x85", "K\1\x85"))), "reaches beyond the 4 elements"},
    {PIECE(DICT(TENSOR(FLOATS, "K\0", "K\3\x85", "K\2\x85"))), "reaches beyond"},
    {PIECE(DICT(TENSOR(FLOATS, "K\4", ")", ")"))), "reaches beyond"},
    {PIECE(DICT(TENSOR(FLOATS, LONG8, "K\2\x85", LONG8 "\x85"))), "reaches beyond"},
    {PIECE(DICT(TENSOR(FLOATS, "K\0", "K\3\x85", LONG8 "\x85"))), "reaches beyond"},
    {PIECE(DICT(TENSOR(FLOATS, "K\0", LONG8 LONG8 "\x86", "K\0K\0\x86"))), "reaches beyond"},
    {PIECE(DICT(TENSOR(FLOATS, "K\0", HALF8 "\x85", "K\0\x85"))), "reaches beyond"},
    {PIECE(DICT(TENSOR(FLOATS, "J\xff\xff\xff\xff", "K\4\x85", "K\1\x85"))), "tensor \"a\" is malformed"},
    {PIECE(DICT(TENSOR(FLOATS, "K\3", "K\4\x85", "J\xff\xff\xff\xff\x85"))), "a size or stride that is no integer"},
    {PIECE(DICT(TENSOR(FLOATS, "K\0", "N\x85", "K\1\x85"))), "a size or stride that is no integer"},
    {PIECE(DICT(TENSOR(FLOATS, "K\0", "K\4", "K\1"))), "its sizes and strides are tuples"},
    {PIECE(DICT(TENSOR(FLOATS, "K\0", "K\4\x85", ")"))), "more or fewer strides"},
    {PIECE(DICT(TENSOR(FLOATS, "K\0", "(K\1K\1K\1K\1K\1K\1K\1K\1K\1t", "(K\1K\1K\1K\1K\1K\1K\1K\1K\1t"))),
     "more dimensions than 8"},
    {PIECE(DICT(TENSOR(FLOATS, "K\0", "J\0\0\0\x7fK\1\x86", "K\0K\1\x86"))), "repeat what is stored"},
    /* Nested calls, and a tensor that contains itself. */
    {PIECE(DICT("ctorch._utils\n_rebuild_parameter\nN\x85R")), "tensor \"a\" is malformed"},
    {PIECE(DICT("ctorch._utils\n_rebuild_parameter\n)R")), "tensor \"a\" is malformed"},
    {PIECE(DICT("ctorch._tensor\n_rebuild_from_type_v2\nN\x85R")), "tensor \"a\" is malformed"},
    {PIECE(DICT("ctorch._tensor\n_rebuild_from_type_v2\nctorch._tensor\n_rebuild_from_type_v2\n2N\x87R")),
     "tensor \"a\" is malformed"},
    {PIECE("ctorch._utils\n_rebuild_parameter\n]q\0\x85"
           "0"
           "0" DICT("ctorch._utils\n_rebuild_parameter\nq\1h\0\x85R")),
     "tensor \"a\" is malformed"},
};

static void test_objects(void **ctx)
{
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++)
        refuse_object(objects[i].object, objects[i].says);
}

/* Marks, values on the stack and values in all have bounds of their own. */
static void test_deep_and_many(void **ctx)
{
    enum { DEEP = 1 << 23 };
    static const struct {
        const char *op;
        size_t ops;
        const char *says;
    } cases[] = {
        {"(", LK_PICKLE_MAX_MARKS + 1, "nested containers"},
        {"]", LK_PICKLE_MAX_STACK + 1, "values at once"},
        {"(t0", LK_PICKLE_MAX_VALUES + 1, "values"},
        {"N2", LK_PICKLE_MAX_STACK, "values at once"},
    };
    uint8_t *bytes = malloc(3 * DEEP);
    assert_non_null(bytes);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        size_t at = sizeof LEGACY_PREAMBLE - 1, length = strlen(cases[c].op);
        memcpy(bytes, LEGACY_PREAMBLE, at);
        for (size_t i = 0; i < cases[c].ops; i++, at += length)
            memcpy(bytes + at, cases[c].op, length);
        assert_true(at < 3 * DEEP);
        refuse(bytes, at, cases[c].says);
    }
    /* 100000 nested lists are harmless: no code walks them recursively. */
    size_t at = sizeof LEGACY_PREAMBLE - 1;
    memcpy(bytes, LEGACY_PREAMBLE, at);
    memset(bytes + at, ']', 100000);
    memset(bytes + at + 100000, 'a', 99999);
    memcpy(bytes + at + 199999, "." KEYS, sizeof KEYS);
    refuse(bytes, at + 199999 + sizeof KEYS, "it holds no dict");
    free(bytes);
}

static size_t get_fixture(const char *name, uint8_t *bytes, size_t room)
{
    char from[512];
    snprintf(from, sizeof from, "%s/io/data/%s", LK_TESTS_DIR, name);
    FILE *file = fopen(from, "rb");
    assert_non_null(file);
    size_t count = fread(bytes, 1, room, file);
    fclose(file);
    return count;
}

static void test_every_truncation_is_refused(void **ctx)
{
    static const char *const names[] = {"torch_1.13.pth", "torch_2.15.pth", "torch_1.13_legacy.pth"};
    static uint8_t bytes[1 << 16];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t count = get_fixture(names[i], bytes, sizeof bytes);
        for (size_t cut = 0; cut < count; cut += cut < count - 64 ? 7 : 1)
            refuse(bytes, cut, "");
    }
}

/* A file with one changed byte is refused or loaded, without a crash. */
static void test_every_changed_byte_is_survived(void **ctx)
{
    static const char *const names[] = {"torch_2.15.pth", "torch_2.15_legacy.pth"};
    static uint8_t bytes[1 << 16];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t count = get_fixture(names[i], bytes, sizeof bytes);
        for (size_t at = 0; at < count; at++) {
            bytes[at] ^= (uint8_t)(1 << at % 8);
            temp_write(path, bytes, count);
            bytes[at] ^= (uint8_t)(1 << at % 8);
            lk_state *state = NULL;
            lk_status status = lk_state_load(path, &state);
            assert_true(status == LK_OK || status == LK_STATUS_FORMAT);
            assert_true((status == LK_OK) == (state != NULL));
            lk_state_destroy(state);
        }
    }
}

/* Archives with wrong, missing or other members. */
#define PICKLE "\x80\2}" TEXT("\1", "a") VECTOR "s."

static void refuse_zip(zip_build *z, const char *says)
{
    zip_end(z);
    refuse(z->file.bytes, z->file.size, says);
    memset(z, 0, sizeof *z);
}

static void add(zip_build *z, const char *name, const char *bytes, size_t size)
{
    zip_add(z, name, bytes, size, size);
}

static void test_archives(void **ctx)
{
    static zip_build z;
    static const char floats[] = "0123456789abcdef";
    static const struct {
        struct {
            const char *name;
            piece content;
            size_t stated; /* 0: the true size */
        } members[2];
        const char *says;
    } cases[] = {
        {{{"readme", PIECE("x"), 0}}, "its first member is \"readme\""},
        {{{"a/b", PIECE("x"), 0}}, "member \"a/data.pkl\" is missing"},
        {{{"a/data.pkl", PIECE(PICKLE), 0}}, "member \"a/data/0\" is missing"},
        {{{"a/data.pkl", PIECE(PICKLE), 0}, {"a/data/0", {floats, 12}, 0}},
         "member \"a/data/0\" has 12 bytes, the tensors in data.pkl ask for 16"},
        {{{"a/data.pkl", PIECE(PICKLE), 0}, {"a/data/0", {floats, 12}, 16}}, "member \"a/data/0\""},
        {{{"a/data.pkl", PIECE(PICKLE), 0}, {"a/data/0", {floats, 16}, 0x7fffffff}}, "bad.pth"},
        {{{"a/data.pkl", PIECE(PICKLE), 0}, {"a/byteorder", PIECE("big"), 0}}, "only files of little-endian machines"},
        {{{"a/data.pkl", PIECE(PICKLE), 0}, {"a/constants.pkl", PIECE("x"), 0}}, "TorchScript"},
        {{{"a/data.pkl", PIECE("cos\nsystem\n."), 0}}, "member \"a/data.pkl\", byte 0: it refers to os.system"},
        {{{"\x1b[2J/data.pkl", PIECE("N."), 0}}, "[2J/data.pkl\", byte 0: it holds no dict"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t m = 0; m < 2 && cases[i].members[m].name; m++) {
            piece content = cases[i].members[m].content;
            size_t stated = cases[i].members[m].stated;
            zip_add(&z, cases[i].members[m].name, content.bytes, content.size, stated ? stated : content.size);
        }
        refuse_zip(&z, cases[i].says);
    }
    /* A flipped bit of the data. */
    add(&z, "a/data.pkl", PICKLE, sizeof PICKLE - 1);
    add(&z, "a/data/0", floats, 16);
    z.file.bytes[z.file.size - 1] ^= 1;
    refuse_zip(&z, "member \"a/data/0\"");
}

/* Nine tensors of 4096 bytes, each with a storage of its own. The digit # is the name of both. */
enum { STORAGE_BYTES = 1 << 12, STORAGES = 9 };

static void put_tensors(zip_build *z)
{
    static const char tensor[] =
        TEXT("\1", "#") TENSOR(STORAGE("ByteStorage", "#", "M\0\x10"), "K\0", "M\0\x10\x85", "K\1\x85");
    static build pickle;
    pickle.size = 0;
    build_put(&pickle, "\x80\2}(", 4);
    for (uint8_t i = 0; i < STORAGES; i++) {
        uint8_t *at = pickle.bytes + pickle.size;
        build_put(&pickle, tensor, sizeof tensor - 1);
        for (; at < pickle.bytes + pickle.size; at++)
            if (*at == '#')
                *at = (uint8_t)('0' + i);
    }
    build_put(&pickle, "u.", 2);
    add(z, "a/data.pkl", (const char *)pickle.bytes, pickle.size);
}

/* A small file cannot make the library allocate much memory: neither by a directory that lists the same
 * bytes many times, nor by members that inflate to a large size. */
static void test_memory_is_bounded(void **ctx)
{
    static zip_build z;
    static const char storage[STORAGE_BYTES];
    for (int shared = 0; shared < 2; shared++) {
        put_tensors(&z);
        size_t at = z.file.size;
        for (int i = 0; i < STORAGES; i++) {
            char name[] = "a/data/0";
            name[sizeof name - 2] = (char)('0' + i);
            const zip_member again = {name,          0, crc32(0, (const Bytef *)storage, STORAGE_BYTES), STORAGE_BYTES,
                                      STORAGE_BYTES, at};
            if (shared && i > 0)
                zip_enter(&z, &again);
            else
                add(&z, name, storage, STORAGE_BYTES);
        }
        if (shared) {
            refuse_zip(&z, "member \"a/data/1\" has a size that the file cannot hold beside its other members");
            continue;
        }
        zip_end(&z);
        temp_write(path, z.file.bytes, z.file.size);
        memset(&z, 0, sizeof z);
        lk_state *state = NULL;
        assert_int_equal(lk_state_load(path, &state), LK_OK);
        assert_int_equal(lk_state_count(state), STORAGES);
        lk_state_destroy(state);
    }
    put_tensors(&z);
    zip_enter(&z, &(zip_member){"a/data/0", 8, 0, 16, (1 << 20) + (1 << 16), 0});
    refuse_zip(&z, "member \"a/data/0\" is compressed to so little");
}

#define REFUSE(text, says) refuse(text, sizeof(text) - 1, says)

static void test_other_files(void **ctx)
{
    REFUSE("", "not a file of torch.save");
    REFUSE("PK\3\4", "its directory");
    REFUSE("<html>not found</html>", "not a file of torch.save");
    REFUSE(LEGACY_START, "cut short");
    REFUSE(LEGACY_START "\x80\2}X\x0d\0\0\0little_endian\x89s.", "little-endian");
    REFUSE(LEGACY_MAGIC "K\1.", "another version");
    REFUSE(LEGACY_PREAMBLE DICT(VECTOR) ".N.", "no list");
}

int main(void)
{
    return has_libzip() ? RUN_TESTS(make_folder, temp_folder_tear_down, TEST(test_objects), TEST(test_deep_and_many),
                                    TEST(test_every_truncation_is_refused), TEST(test_every_changed_byte_is_survived),
                                    TEST(test_archives), TEST(test_memory_is_bounded), TEST(test_other_files))
                        : RUN_TESTS(make_folder, temp_folder_tear_down, TEST(test_objects), TEST(test_deep_and_many));
}
