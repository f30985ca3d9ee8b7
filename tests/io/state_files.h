/* state_files.h - shared by the tests of state files: reading files, and a state with every type, number
 * of dimensions and kind of name. */
#ifndef LK_TESTS_IO_STATE_FILES_H
#define LK_TESTS_IO_STATE_FILES_H

#include <lockstep/state.h>

#include "check.h"
#include "temp_folder.h"

static inline size_t get_file(const char *path, unsigned char *bytes, size_t room)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t count = fread(bytes, 1, room, file);
    fclose(file);
    assert_true(count < room);
    return count;
}

static inline lk_state *load(const char *path)
{
    lk_state *state = NULL;
    if (lk_state_load(path, &state) != LK_OK)
        fail_msg("%s", lk_error_detail());
    return state;
}

/* interop_pth.py has the same list, interop_safetensors.py has its first SMALL_SAMPLES rows. Byte k of
 * tensor t is 7 k + 13 t + 1. */
static const struct {
    const char *name;
    lk_dtype dtype;
    int ndim;
    size_t dims[LK_MAX_DIMS];
} samples[] = {
    {"u8.odd", LK_DTYPE_U8, 1, {3}},
    {"conv1.weight", LK_DTYPE_F32, 4, {4, 1, 3, 3}},
    {"conv1.bias", LK_DTYPE_F32, 1, {4}},
    {"f16", LK_DTYPE_F16, 2, {3, 5}},
    {"bn.num_batches_tracked", LK_DTYPE_I64, 0, {0}},
    {"bf16", LK_DTYPE_BF16, 1, {7}},
    {"scalar", LK_DTYPE_F32, 0, {0}},
    {"empty", LK_DTYPE_F32, 2, {0, 5}},
    {"f64", LK_DTYPE_F64, 3, {1, 2, 3}},
    {"i32", LK_DTYPE_I32, 8, {1, 2, 1, 1, 2, 1, 1, 1}},
    {"quote\" back\\ slash/ tab\t \x01\x7f end", LK_DTYPE_U8, 0, {0}},
    {"h\xc3\xa9llo \xe6\x97\xa5 \xf0\x9f\x98\x80", LK_DTYPE_U8, 1, {2}},
    {"", LK_DTYPE_U8, 1, {1}},
    {"large", LK_DTYPE_U8, 2, {3, 70000}},
    {"middle", LK_DTYPE_I32, 1, {300}},
};
enum { SAMPLES = sizeof samples / sizeof *samples, SMALL_SAMPLES = SAMPLES - 2 };

static inline void fill(lk_state_entry *entry, size_t t)
{
    for (size_t k = 0; k < entry->bytes; k++)
        ((unsigned char *)entry->data)[k] = (unsigned char)(7 * k + 13 * t + 1);
}

/* A state of the first `count` samples. */
static inline lk_state *make_samples(size_t count)
{
    lk_state *state = NULL;
    assert_int_equal(lk_state_create(&state), LK_OK);
    for (size_t t = 0; t < count; t++) {
        lk_state_entry *entry;
        assert_int_equal(
            lk_state_add(state, samples[t].name, samples[t].dtype, samples[t].ndim, samples[t].dims, &entry), LK_OK);
        fill(entry, t);
    }
    return state;
}

#endif
