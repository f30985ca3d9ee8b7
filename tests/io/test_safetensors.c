/* test_safetensors.c - .safetensors files written, read and refused.
 *
 * With the arguments "write FILE" or "read FILE" the program is one half of an exchange with the
 * safetensors package that interop_safetensors.py runs. */
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <lockstep/state.h>

#include "check.h"
#include "io/json.h"
#include "state_files.h"

static size_t count_files(const char *path)
{
    size_t count = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *item; (item = readdir(dir));)
        count += item->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void test_round_trip(void **ctx)
{
    lk_state *state = make_samples(SMALL_SAMPLES);
    const char *path = temp_path("all.safetensors");
    assert_int_equal(lk_state_save(state, path), LK_OK);
    lk_state *back = load(path);
    assert_int_equal(lk_state_count(back), SMALL_SAMPLES);
    assert_int_equal(lk_state_compare(state, back, NULL, NULL), 0);
    assert_true(lk_state_hash(state) == lk_state_hash(back));
    assert_int_equal(count_files(temp_folder), 1);
    /* Tensors with elements of 8 bytes are first; tensors with equal element sizes keep their order. */
    assert_string_equal(lk_state_at(back, 0)->name, "bn.num_batches_tracked");
    assert_string_equal(lk_state_at(back, 1)->name, "f64");
    assert_string_equal(lk_state_at(back, 2)->name, "conv1.weight");
    lk_state_destroy(back);
    lk_state_destroy(state);
}

/* Saving a state that was loaded gives the same file. */
static void test_second_save_is_the_same_file(void **ctx)
{
    static unsigned char a[8192], b[8192];
    lk_state *state = make_samples(SMALL_SAMPLES);
    assert_int_equal(lk_state_save(state, temp_path("a")), LK_OK);
    size_t bytes = get_file(temp_path("a"), a, sizeof a);
    uint64_t header;
    memcpy(&header, a, 8);
    assert_int_equal(header % 8, 0);
    lk_state *back = load(temp_path("a"));
    assert_int_equal(lk_state_save(back, temp_path("a")), LK_OK);
    assert_int_equal(get_file(temp_path("a"), b, sizeof b), bytes);
    assert_memory_equal(a, b, bytes);
    lk_state_destroy(back);
    lk_state_destroy(state);
}

static void test_empty_state(void **ctx)
{
    lk_state *state = NULL;
    assert_int_equal(lk_state_create(&state), LK_OK);
    assert_int_equal(lk_state_save(state, temp_path("none")), LK_OK);
    lk_state_destroy(state);
    state = load(temp_path("none"));
    assert_int_equal(lk_state_count(state), 0);
    lk_state_destroy(state);
}

static void test_every_truncation_is_refused(void **ctx)
{
    static unsigned char bytes[8192];
    lk_state *state = make_samples(SMALL_SAMPLES), *out = NULL;
    assert_int_equal(lk_state_save(state, temp_path("whole")), LK_OK);
    lk_state_destroy(state);
    size_t count = get_file(temp_path("whole"), bytes, sizeof bytes);
    for (size_t cut = 0; cut < count; cut++) {
        temp_write(temp_path("cut"), bytes, cut);
        assert_fails(lk_state_load(temp_path("cut"), &out), LK_STATUS_FORMAT, temp_path("cut"));
        assert_null(out);
    }
    temp_write(temp_path("cut"), bytes, count + 1);
    assert_fails(lk_state_load(temp_path("cut"), &out), LK_STATUS_FORMAT, "belongs to no tensor");
}

#define ENTRY(name, dtype, shape, begin, end) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"
#define EMPTY(name) ENTRY(name, "U8", "[0]", 0, 0)

/* A header, the number of data bytes behind it, and the expected detail. */
static const struct hostile {
    const char *header;
    size_t data;
    const char *says;
} hostiles[] = {
    {"[]", 0, "does not start with { at byte 8"},
    {" {}", 0, "does not start with { at byte 8"},
    {"{]", 0, "not valid JSON"},
    {"{}}", 0, "a closing bracket too many at byte 10"},
    {"{} {}", 0, "goes on after its object at byte 11"},
    {"{\"a\"", 0, "not valid JSON"},
    {"{\"a", 0, "a string without an end"},
    {"{\"a\\", 0, "a string without an end"},
    {"{\"a\":1}", 0, "tensor \"a\" is not described by an object"},
    {"{\"a\":{}}", 0, "tensor \"a\" has no dtype"},
    {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,0]}}", 0, "tensor \"a\" has no shape"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0]}}", 0, "tensor \"a\" has no data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "has dtype twice"},
    {"{" ENTRY("flag", "BOOL", "[1]", 0, 1) "}", 1, "tensor \"flag\" has dtype \"BOOL\""},
    {"{" ENTRY("a", "f32", "[1]", 0, 4) "}", 4, "has dtype \"f32\""},
    {"{\"a\":{\"dtype\":7,\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "has dtype \"\""},
    {"{" ENTRY("a", "U8", "3", 0, 3) "}", 3, "malformed shape"},
    {"{" ENTRY("a", "U8", "[-1]", 0, 1) "}", 1, "malformed shape"},
    {"{" ENTRY("a", "U8", "[1.5]", 0, 1) "}", 1, "malformed shape"},
    {"{" ENTRY("a", "U8", "[null]", 0, 1) "}", 1, "malformed shape"},
    {"{" ENTRY("a", "U8", "[\"1\"]", 0, 1) "}", 1, "malformed shape"},
    {"{" ENTRY("a", "U8", "[1e400]", 0, 1) "}", 1, "malformed shape"},
    {"{" ENTRY("a", "U8", "[9007199254740992]", 0, 1) "}", 1, "malformed shape"},
    {"{" ENTRY("a", "U8", "{\"x\":1}", 0, 1) "}", 1, "malformed shape"},
    {"{" ENTRY("a", "U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) "}", 1,
     "an array that is too long at byte 51 (8 numbers at most)"},
    {"{" ENTRY("a", "U8", "[[[[[[[[1]]]]]]]]", 0, 1) "}", 1, "too many nested"},
    {"{" ENTRY("a", "F32", "[4294967296,4294967296,4]", 0, 16) "}", 16, "ask for more than 18446744073709551615"},
    {"{" ENTRY("a", "F32", "[4]", 0, 15) "}", 15, "15 bytes of data at byte 63, its shape and dtype F32 ask for 16"},
    {"{" ENTRY("a", "F32", "[5]", 0, 16) "}", 16, "ask for 20"},
    {"{" ENTRY("a", "F32", "[]", 0, 0) "}", 0, "ask for 4"},
    {"{" ENTRY("a", "F32", "[4]", 0, 16) "}", 15, "tensor \"a\" ends at byte 79, the file at byte 78"},
    {"{" ENTRY("a", "U8", "[4]", 4, 0) "}", 4, "malformed data_offsets"},
    {"{" ENTRY("a", "U8", "[4]", -4, 0) "}", 4, "malformed data_offsets"},
    {"{" ENTRY("a", "U8", "[4]", 0, 4.5) "}", 4, "malformed data_offsets"},
    {"{" ENTRY("a", "U8", "[4]", 0, 1e300) "}", 4, "malformed data_offsets"},
    {"{" ENTRY("a", "U8", "[4]", 0, 9007199254740991) "}", 4, "ends at byte 9007199254741067"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4,4]}}", 4, "malformed data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4]}}", 4, "malformed data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":{\"0\":0,\"1\":4}}}", 4, "malformed data_offsets"},
    {"{" ENTRY("a", "U8", "[4]", 0, 4) "," ENTRY("b", "U8", "[4]", 3, 7) "}", 7, "tensors may not overlap"},
    {"{" ENTRY("a", "U8", "[4]", 0, 4) "," ENTRY("b", "U8", "[4]", 0, 4) "}", 4, "tensors may not overlap"},
    {"{" ENTRY("a", "U8", "[4]", 0, 4) "," ENTRY("b", "U8", "[4]", 5, 9) "}", 9,
     "tensor \"b\" starts at byte 118, expected byte 117"},
    {"{" ENTRY("a", "U8", "[4]", 1, 5) "}", 5, "tensors may not leave holes"},
    {"{" ENTRY("a", "U8", "[4]", 0, 4) "}", 5, "the rest belongs to no tensor"},
    {"{}", 1, "the rest belongs to no tensor"},
    {"{" EMPTY("a") "," EMPTY("a") "}", 0, "tensor \"a\" twice"},
    {"{" EMPTY("a") "," EMPTY("\\u0061") "}", 0, "tensor \"a\" twice"},
    {"{" EMPTY("a\\u0000b") "}", 0, "a zero character in a string at byte 11"},
    {"{" EMPTY("a\nb") "}", 0, "a bare control character in a string at byte 11"},
    {"{" EMPTY("\xff") "}", 0, "not UTF-8 at byte 10"},
    {"{" EMPTY("\xc0\x80") "}", 0, "not UTF-8"},
    {"{" EMPTY("\xed\xa0\x80") "}", 0, "not UTF-8"},
    {"{" EMPTY("\xf4\x90\x80\x80") "}", 0, "not UTF-8"},
    {"{" EMPTY("\\ud800") "}", 0, "not valid JSON"},
    {"{" EMPTY("\\q") "}", 0, "not valid JSON"},
    {"{\x01\"a\":1}", 0, "may only be in a string at byte 9"},
    {"{\"a\x1b[31m\":1}", 0, "a bare control character"},
    {"{\"\\u001b[31m\":1}", 0, "tensor \"\\u001b[31m\" is not"},
    {"{\"__metadata__\":3}", 0, "must be an object of strings"},
    {"{\"__metadata__\":{\"a\":3}}", 0, "must be an object of strings"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "\"__metadata__\" twice"},
};

static size_t make_file(unsigned char *out, const char *header, size_t data)
{
    uint64_t length = strlen(header);
    memcpy(out, &length, 8);
    memcpy(out + 8, header, length);
    memset(out + 8 + length, 0x55, data);
    return 8 + (size_t)length + data;
}

static void test_hostile_headers(void **ctx)
{
    static unsigned char bytes[4096];
    for (size_t i = 0; i < sizeof hostiles / sizeof *hostiles; i++) {
        const struct hostile *h = &hostiles[i];
        lk_state *out = NULL;
        temp_write(temp_path("bad"), bytes, make_file(bytes, h->header, h->data));
        lk_status status = lk_state_load(temp_path("bad"), &out);
        if (status != LK_STATUS_FORMAT || out || !strstr(lk_error_detail(), h->says) ||
            !strstr(lk_error_detail(), temp_path("bad")))
            fail_msg("%s: status %d, \"%s\" lacks \"%s\"", h->header, (int)status, lk_error_detail(), h->says);
    }
}

/* Unusual but legal. */
static void test_legal_headers(void **ctx)
{
    static unsigned char bytes[4096];
    static const struct {
        const char *header;
        size_t data, count;
        const char *first;
    } rows[] = {
        {"{}", 0, 0, NULL},
        {"{}  \n ", 0, 0, NULL},
        {"{ \"__metadata__\" : { \"a\" : \"b\" } }", 0, 0, NULL},
        {"{" ENTRY("b", "U8", "[2]", 1, 3) "," ENTRY("a", "U8", "[]", 0, 1) "}", 3, 2, "a"},
        {"{" ENTRY("b", "U8", "[2]", 0, 2) "," EMPTY("z") "," EMPTY("y") "}", 2, 3, "z"},
        {"{" ENTRY("z", "F32", "[9007199254740991,9007199254740991,0]", 0, 0) "}", 0, 1, "z"},
        {"{\"a\":{\"shape\":[1],\"new\":{\"x\":[1]},\"data_offsets\":[0,1],\"dtype\":\"U8\"}}", 1, 1, "a"},
        {"{" EMPTY("\\ud83d\\ude00\\n\\\\u0000") "}", 0, 1, "\xf0\x9f\x98\x80\n\\u0000"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        temp_write(temp_path("odd"), bytes, make_file(bytes, rows[i].header, rows[i].data));
        lk_state *state = load(temp_path("odd"));
        assert_int_equal(lk_state_count(state), rows[i].count);
        if (rows[i].first)
            assert_string_equal(lk_state_at(state, 0)->name, rows[i].first);
        lk_state_destroy(state);
    }
}

static void test_lying_header_length(void **ctx)
{
    static unsigned char bytes[64];
    static const struct {
        uint64_t length;
        const char *says;
    } rows[] = {
        {0, "does not start with {"},      {1, "not valid JSON"},        {3, "goes on after its object"},
        {100, "but only 3 follow"},        {100000000, "only 3 follow"}, {100000001, "at most 100000000 is legal"},
        {UINT64_MAX, "at most 100000000"}, {UINT64_MAX - 7, "at most"},  {(uint64_t)1 << 63, "at most 100000000"},
    };
    size_t count = make_file(bytes, "{}x", 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lk_state *out = NULL;
        memcpy(bytes, &rows[i].length, 8);
        temp_write(temp_path("lie"), bytes, count);
        assert_fails(lk_state_load(temp_path("lie"), &out), LK_STATUS_FORMAT, rows[i].says);
    }
}

static void test_other_files(void **ctx)
{
    lk_state *out = NULL;
    temp_write(temp_path("x.png"), "\x89PNG\r\n\x1a\nIHDR", 12);
    assert_fails(lk_state_load(temp_path("x.png"), &out), LK_STATUS_FORMAT, "x.png is an image, no model; name");
    temp_write(temp_path("x.pth"), "\xff\xd8\xff\xe0 JFIF, a photo", 16);
    assert_fails(lk_state_load(temp_path("x.pth"), &out), LK_STATUS_FORMAT, "x.pth is an image, no model; name");
    temp_write(temp_path("notes"), "what is to be done, a list", 26);
    assert_fails(lk_state_load(temp_path("notes"), &out), LK_STATUS_FORMAT,
                 "notes is no model file (.safetensors, .pth) and no checkpoint: ");
}

/* A small file with one changed byte is loaded or refused, without a crash. */
static void test_changed_bytes(void **ctx)
{
    static unsigned char bytes[4096];
    static const unsigned char values[] = {0, '"', '\\', '{', '}', '[', ']', ',', '9', '-', 'e', 0x80, 0xff};
    size_t count = make_file(bytes, "{" ENTRY("a", "F32", "[2]", 0, 8) "," ENTRY("b", "I64", "[]", 8, 16) "}", 16);
    size_t refused = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t v = 0; v < sizeof values; v++) {
            unsigned char old = bytes[i];
            bytes[i] = values[v];
            temp_write(temp_path("changed"), bytes, count);
            bytes[i] = old;
            lk_state *out = NULL;
            lk_status status = lk_state_load(temp_path("changed"), &out);
            assert_true(status == LK_OK || status == LK_STATUS_FORMAT);
            assert_true((status == LK_OK) == (out != NULL));
            refused += status != LK_OK;
            lk_state_destroy(out);
        }
    }
    assert_true(refused > 0);
}

static void test_deep_nesting(void **ctx)
{
    enum { DEEP = 1 << 20 };
    unsigned char *bytes = malloc(8 + DEEP);
    assert_non_null(bytes);
    uint64_t length = DEEP;
    memcpy(bytes, &length, 8);
    memset(bytes + 8, '[', DEEP);
    memcpy(bytes + 8, "{\"a\":", 5);
    temp_write(temp_path("deep"), bytes, 8 + DEEP);
    free(bytes);
    lk_state *out = NULL;
    assert_fails(lk_state_load(temp_path("deep"), &out), LK_STATUS_FORMAT, "too many nested");
}

static void test_not_a_file(void **ctx)
{
    lk_state *out = NULL;
    assert_fails(lk_state_load(temp_path("absent"), &out), LK_STATUS_NOT_FOUND, temp_path("absent"));
    assert_int_equal(lk_state_load(temp_folder, &out), LK_STATUS_FORMAT);
    assert_null(out);
}

static void test_names_that_cannot_be_saved(void **ctx)
{
    static const char *const names[] = {"__metadata__", "bad \xff", "cut \xe6\x97"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        lk_state *state = NULL;
        lk_state_entry *entry;
        assert_int_equal(lk_state_create(&state), LK_OK);
        assert_int_equal(lk_state_add(state, names[i], LK_DTYPE_U8, 0, NULL, &entry), LK_OK);
        assert_int_equal(lk_state_save(state, temp_path("bad")), LK_STATUS_USAGE);
        assert_int_equal(access(temp_path("bad"), F_OK), -1);
        lk_state_destroy(state);
    }
}

/* A save that fails leaves the old file as it was. */
static void expect_old_file(const char *path, lk_status status, lk_status expected)
{
    unsigned char bytes[16];
    assert_int_equal(status, expected);
    assert_int_equal(get_file(path, bytes, sizeof bytes), 3);
    assert_memory_equal(bytes, "old", 3);
}

static void test_full_disk(void **ctx)
{
    lk_state *state = make_samples(SMALL_SAMPLES);
    lk_state_entry *big;
    assert_int_equal(lk_state_add(state, "big", LK_DTYPE_U8, 1, (size_t[]){1 << 20}, &big), LK_OK);
    temp_write(temp_path("model"), "old", 3);
    struct rlimit old, tight;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    tight = old;
    tight.rlim_cur = 1 << 16;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    lk_status status = lk_state_save(state, temp_path("model"));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    expect_old_file(temp_path("model"), status, LK_STATUS_IO);
    assert_int_equal(count_files(temp_folder), 1);
    assert_int_equal(lk_state_save(state, temp_path("model")), LK_OK);
    lk_state *back = load(temp_path("model"));
    assert_int_equal(lk_state_compare(state, back, NULL, NULL), 0);
    lk_state_destroy(back);
    lk_state_destroy(state);
}

/* Root may write anywhere, so the test changes the user for the call. It is skipped where that is
 * impossible. */
static void test_read_only_folder(void **ctx)
{
    uid_t user = geteuid();
    temp_write(temp_path("model"), "old", 3);
    lk_state *state = make_samples(SMALL_SAMPLES);
    assert_int_equal(chmod(temp_folder, 0555), 0);
    bool lowly = user != 0 || seteuid(65534) == 0;
    lk_status status = lowly ? lk_state_save(state, temp_path("model")) : LK_OK;
    assert_int_equal(seteuid(user), 0);
    assert_int_equal(chmod(temp_folder, 0700), 0);
    lk_state_destroy(state);
    if (!lowly)
        skip();
    expect_old_file(temp_path("model"), status, LK_STATUS_IO);
    assert_int_equal(count_files(temp_folder), 1);
}

static void test_missing_folder(void **ctx)
{
    lk_state *state = make_samples(SMALL_SAMPLES);
    temp_write(temp_path("model"), "old", 3);
    assert_fails(lk_state_save(state, temp_path("no/model")), LK_STATUS_NOT_FOUND, temp_path("no/model"));
    lk_status status = lk_state_save(state, temp_path("model/below"));
    assert_true(status != LK_OK);
    expect_old_file(temp_path("model"), status, status);
    lk_state_destroy(state);
}

static void test_quote(void **ctx)
{
    const struct {
        const char *text, *quoted;
    } rows[] = {
        {"", "\"\""},
        {"conv1.weight", "\"conv1.weight\""},
        {"\"\\", "\"\\\"\\\\\""},
        {"\x1b[2J\n", "\"\\u001b[2J\\u000a\""},
        {"\x7f\xc2\x9b\xc2\xa0", "\"\\u007f\\u009b\xc2\xa0\""},
        {"h\xc3\xa9", "\"h\xc3\xa9\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char out[64] = "";
        assert_int_equal(lk__json_quote(rows[i].text, out), strlen(rows[i].quoted));
        assert_string_equal(out, rows[i].quoted);
    }
}

static void print_difference(void *arg, const char *key, const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", (const char *)arg, key, what);
}

static int exchange(const char *what, char *path)
{
    lk_state *state = make_samples(SMALL_SAMPLES), *other = NULL;
    bool write = strcmp(what, "write") == 0;
    lk_status status = write ? lk_state_save(state, path) : lk_state_load(path, &other);
    if (status != LK_OK)
        fprintf(stderr, "%s\n", lk_error_detail());
    bool same = !other || lk_state_compare(state, other, print_difference, path) == 0;
    lk_state_destroy(state);
    lk_state_destroy(other);
    return status != LK_OK || !same;
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_set_up, temp_folder_tear_down)

int main(int argc, char **argv)
{
    if (argc == 3)
        return exchange(argv[1], argv[2]);
    return RUN_TESTS(NULL, NULL, IN_FOLDER(test_round_trip), IN_FOLDER(test_second_save_is_the_same_file),
                     IN_FOLDER(test_empty_state), IN_FOLDER(test_every_truncation_is_refused),
                     IN_FOLDER(test_hostile_headers), IN_FOLDER(test_legal_headers),
                     IN_FOLDER(test_lying_header_length), IN_FOLDER(test_other_files), IN_FOLDER(test_changed_bytes),
                     IN_FOLDER(test_deep_nesting), IN_FOLDER(test_not_a_file),
                     IN_FOLDER(test_names_that_cannot_be_saved), IN_FOLDER(test_full_disk),
                     IN_FOLDER(test_read_only_folder), IN_FOLDER(test_missing_folder), TEST(test_quote));
}
