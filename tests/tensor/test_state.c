/* test_state.c - states as containers of tensors, and their hash. */
#include <lockstep/state.h>

#include "check.h"

static lk_state_entry *add(lk_state *state, const char *name, lk_dtype dtype, int ndim, const size_t *dims)
{
    lk_state_entry *entry = NULL;
    assert_int_equal(lk_state_add(state, name, dtype, ndim, dims, &entry), LK_OK);
    for (size_t i = 0; i < entry->bytes; i++)
        assert_int_equal(((unsigned char *)entry->data)[i], 0);
    for (size_t i = 0; i < entry->bytes; i++)
        ((unsigned char *)entry->data)[i] = (unsigned char)(i * 7 + strlen(name));
    return entry;
}

static lk_state *create(void)
{
    lk_state *state = NULL;
    assert_int_equal(lk_state_create(&state), LK_OK);
    return state;
}

static void test_dtypes(void **ctx)
{
    static const struct {
        lk_dtype dtype;
        const char *name;
        size_t size;
    } rows[] = {{LK_DTYPE_F32, "f32", 4}, {LK_DTYPE_F64, "f64", 8}, {LK_DTYPE_BF16, "bf16", 2},
                {LK_DTYPE_F16, "f16", 2}, {LK_DTYPE_I64, "i64", 8}, {LK_DTYPE_I32, "i32", 4},
                {LK_DTYPE_U8, "u8", 1}};
    assert_int_equal(sizeof rows / sizeof *rows, LK_DTYPE_COUNT);
    for (size_t i = 0; i < LK_DTYPE_COUNT; i++) {
        assert_string_equal(lk_dtype_name(rows[i].dtype), rows[i].name);
        assert_int_equal(lk_dtype_size(rows[i].dtype), rows[i].size);
    }
}

/* The prefix is removed from all names, or from none. */
static void test_strip(void **ctx)
{
    lk_state *state = create();
    assert_false(lk_state_strip(state, "module."));
    for (int i = 0; i < 40; i++) {
        char name[32];
        snprintf(name, sizeof name, "module.%d", i);
        add(state, name, LK_DTYPE_U8, 1, (size_t[]){(size_t)i});
    }
    add(state, "module.module.a", LK_DTYPE_U8, 0, NULL);
    assert_true(lk_state_strip(state, "module."));
    assert_int_equal(lk_state_count(state), 41);
    assert_null(lk_state_find(state, "module.7"));
    for (int i = 0; i < 40; i++) {
        char name[32];
        snprintf(name, sizeof name, "%d", i);
        assert_string_equal(lk_state_at(state, (size_t)i)->name, name);
        assert_ptr_equal(lk_state_find(state, name), lk_state_at(state, (size_t)i));
        assert_int_equal(lk_state_find(state, name)->bytes, i);
    }
    assert_non_null(lk_state_find(state, "module.a"));
    assert_false(lk_state_strip(state, "module."));
    assert_non_null(lk_state_find(state, "module.a"));
    lk_state_destroy(state);
}

/* Names have a largest length, also in files. */
static void test_long_names(void **ctx)
{
    static char name[LK_MAX_TENSOR_NAME + 2];
    lk_state *state = create();
    lk_state_entry *entry;
    memset(name, 'a', LK_MAX_TENSOR_NAME + 1);
    assert_int_equal(lk_state_add(state, name, LK_DTYPE_U8, 0, NULL, &entry), LK_STATUS_USAGE);
    assert_non_null(strstr(lk_error_detail(), "a name of 1025 bytes; names have 1024 at most"));
    name[LK_MAX_TENSOR_NAME] = '\0';
    add(state, name, LK_DTYPE_U8, 0, NULL);
    assert_fails(lk_state_add(state, "b", LK_DTYPE_U8, 1, NULL, &entry), LK_STATUS_USAGE, "dims is NULL");
    lk_state_destroy(state);
}

static void test_layout(void **ctx)
{
    lk_state *state = create();
    assert_int_equal(lk_state_count(state), 0);
    assert_null(lk_state_find(state, "a"));
    assert_null(lk_state_at(state, 0));
    assert_int_equal(add(state, "a", LK_DTYPE_F32, 2, (size_t[]){3, 5})->bytes, 60);
    assert_int_equal(add(state, "scalar", LK_DTYPE_I64, 0, NULL)->bytes, 8);
    assert_int_equal(add(state, "empty", LK_DTYPE_F64, 3, (size_t[]){SIZE_MAX, SIZE_MAX, 0})->bytes, 0);
    assert_int_equal(add(state, "", LK_DTYPE_U8, 8, (size_t[]){1, 1, 2, 1, 1, 3, 1, 1})->bytes, 6);
    const lk_state_entry *a = lk_state_find(state, "a");
    assert_ptr_equal(a, lk_state_at(state, 0));
    assert_int_equal(a->ndim, 2);
    assert_int_equal(a->dims[1], 5);
    assert_string_equal(lk_state_at(state, 1)->name, "scalar");
    assert_ptr_equal(lk_state_find(state, ""), lk_state_at(state, 3));
    assert_non_null(lk_state_find(state, "empty")->data);
    assert_null(lk_state_at(state, 4));
    lk_state_destroy(state);
    lk_state_destroy(NULL);
}

static void test_refused(void **ctx)
{
    lk_state *state = create();
    lk_state_entry *entry = NULL;
    size_t dims[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    add(state, "a", LK_DTYPE_F32, 1, dims);
    assert_int_equal(lk_state_add(state, "a", LK_DTYPE_F32, 1, dims, &entry), LK_STATUS_MISMATCH);
    assert_non_null(strstr(lk_error_detail(), "\"a\""));
    assert_int_equal(lk_state_add(state, "b", LK_DTYPE_F32, 9, dims, &entry), LK_STATUS_USAGE);
    assert_int_equal(lk_state_add(state, "b", LK_DTYPE_F32, -1, dims, &entry), LK_STATUS_USAGE);
    assert_int_equal(lk_state_add(state, "b", LK_DTYPE_COUNT, 1, dims, &entry), LK_STATUS_USAGE);
    assert_int_equal(lk_state_add(state, "b", LK_DTYPE_F32, 2, (size_t[]){SIZE_MAX / 4, 2}, &entry), LK_STATUS_MEMORY);
    assert_int_equal(lk_state_add(state, "b", LK_DTYPE_U8, 1, (size_t[]){SIZE_MAX}, &entry), LK_STATUS_MEMORY);
    assert_null(entry);
    assert_int_equal(lk_state_count(state), 1);
    assert_null(lk_state_find(state, "b"));
    lk_state_destroy(state);
}

static void test_many_names(void **ctx)
{
    enum { MANY = 5000 };
    lk_state *state = create();
    char name[32];
    for (size_t i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "layer%zu.weight", i);
        add(state, name, LK_DTYPE_U8, 1, (size_t[]){i % 3});
    }
    assert_int_equal(lk_state_count(state), MANY);
    for (size_t i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "layer%zu.weight", i);
        assert_ptr_equal(lk_state_find(state, name), lk_state_at(state, i));
        assert_string_equal(lk_state_at(state, i)->name, name);
        assert_int_equal(lk_state_at(state, i)->bytes, i % 3);
        snprintf(name, sizeof name, "layer%zu.bias", i);
        assert_null(lk_state_find(state, name));
    }
    lk_state_destroy(state);
}

typedef struct spec {
    const char *name;
    lk_dtype dtype;
    int ndim;
    size_t dims[2];
} spec;

static uint64_t hash_of(const spec *specs, size_t count)
{
    lk_state *state = create();
    for (size_t i = 0; i < count; i++)
        add(state, specs[i].name, specs[i].dtype, specs[i].ndim, specs[i].dims);
    uint64_t hash = lk_state_hash(state);
    lk_state_destroy(state);
    return hash;
}

static void test_hash_sees_everything_but_order(void **ctx)
{
    const spec ab[] = {{"a", LK_DTYPE_F32, 2, {2, 3}}, {"b", LK_DTYPE_F32, 2, {2, 3}}};
    const spec ba[] = {ab[1], ab[0]};
    const spec others[][2] = {
        {{"c", LK_DTYPE_F32, 2, {2, 3}}, ab[1]}, {{"a", LK_DTYPE_I32, 2, {2, 3}}, ab[1]},
        {{"a", LK_DTYPE_F32, 2, {3, 2}}, ab[1]}, {{"a", LK_DTYPE_F32, 1, {6}}, ab[1]},
        {{"a", LK_DTYPE_F32, 2, {2, 0}}, ab[1]},
    };
    uint64_t hash = hash_of(ab, 2);
    assert_true(hash == hash_of(ab, 2));
    assert_true(hash == hash_of(ba, 2));
    assert_true(hash != hash_of(ab, 1));
    assert_true(hash_of(ab, 1) != hash_of(ab + 1, 1));
    assert_true(hash_of(ab, 0) != hash_of(ab, 1));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_true(hash != hash_of(others[i], 2));
}

static void test_hash_sees_every_byte(void **ctx)
{
    lk_state *state = create();
    lk_state_entry *a = add(state, "a", LK_DTYPE_U8, 1, (size_t[]){300});
    uint64_t hash = lk_state_hash(state);
    unsigned char *bytes = a->data;
    for (size_t i = 0; i < a->bytes; i++) {
        bytes[i] ^= 0x80;
        assert_true(lk_state_hash(state) != hash);
        bytes[i] ^= 0x80;
    }
    assert_true(lk_state_hash(state) == hash);
    lk_state_destroy(state);
}

static void test_hash_sees_swapped_data(void **ctx)
{
    lk_state *state = create();
    add(state, "a", LK_DTYPE_U8, 1, (size_t[]){4});
    add(state, "b", LK_DTYPE_U8, 1, (size_t[]){4});
    unsigned char *a = lk_state_at(state, 0)->data, *b = lk_state_at(state, 1)->data;
    memcpy(a, "abcd", 4);
    memcpy(b, "wxyz", 4);
    uint64_t hash = lk_state_hash(state);
    memcpy(a, "wxyz", 4);
    memcpy(b, "abcd", 4);
    assert_true(lk_state_hash(state) != hash);
    lk_state_destroy(state);
}

/* The hash has a fixed value, so hashes of different machines can be compared. */
static void test_hash_is_the_same_everywhere(void **ctx)
{
    const spec specs[] = {{"conv1.weight", LK_DTYPE_F32, 2, {32, 9}}, {"bn.num_batches_tracked", LK_DTYPE_I64, 0, {0}}};
    assert_true(hash_of(specs, 2) == UINT64_C(0x272323f4e47f6f26));
}

TEST_MAIN(NULL, NULL, TEST(test_dtypes), TEST(test_layout), TEST(test_strip), TEST(test_long_names), TEST(test_refused),
          TEST(test_many_names), TEST(test_hash_sees_everything_but_order), TEST(test_hash_sees_every_byte),
          TEST(test_hash_sees_swapped_data), TEST(test_hash_is_the_same_everywhere))
