/* state.c - the state dict: an array of named tensors in the order in which they were added, with an
 * open-addressing index over the names. io/state reads and writes files; io/compare.c
 * compares states. */
#include "tensor/state.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/utf8.h"

/* Hashes and files use tensor bytes as they are in memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "only little-endian machines are supported");

typedef struct note {
    char *name, *text;
} note;

/* index has a power of two of slots, at least twice the number of entries. A slot is an entry's position plus
 * one, or 0 if it is free. Entries are never removed. */
struct lk_state {
    lk_state_entry *entries; /* (capacity) */
    size_t count, capacity;
    size_t *index; /* (2 * capacity) */
    note notes[LK_MAX_STATE_NOTES];
    size_t note_count;
};

static const struct {
    const char *name;
    size_t size;
} dtypes[LK_DTYPE_COUNT] = {
    [LK_DTYPE_F32] = {"f32", 4}, [LK_DTYPE_F64] = {"f64", 8}, [LK_DTYPE_BF16] = {"bf16", 2},
    [LK_DTYPE_F16] = {"f16", 2}, [LK_DTYPE_I64] = {"i64", 8}, [LK_DTYPE_I32] = {"i32", 4},
    [LK_DTYPE_U8] = {"u8", 1},
};

size_t lk_dtype_size(lk_dtype dtype)
{
    return (unsigned)dtype < LK_DTYPE_COUNT ? dtypes[dtype].size : 0;
}

const char *lk_dtype_name(lk_dtype dtype)
{
    return (unsigned)dtype < LK_DTYPE_COUNT ? dtypes[dtype].name : "unknown";
}

lk_status lk_state_create(lk_state **out)
{
    LK_TRY(LK_GIVEN(out));
    return LK_ALLOC(1, "a state dict", out);
}

void lk_state_destroy(lk_state *state)
{
    if (!state)
        return;
    for (size_t i = 0; i < state->count; i++) {
        lk__mem_free(state->entries[i].name);
        lk__mem_free(state->entries[i].data);
    }
    for (size_t i = 0; i < state->note_count; i++) {
        lk__mem_free(state->notes[i].name);
        lk__mem_free(state->notes[i].text);
    }
    lk__mem_free(state->entries);
    lk__mem_free(state->index);
    lk__mem_free(state);
}

lk_status lk__state_hand_over(lk_status status, lk_state *state, lk_state **out)
{
    if (status == LK_OK)
        *out = state;
    else
        lk_state_destroy(state);
    return status;
}

/* The slot that holds name, or the free slot where name belongs. The index always has free slots, so the loop
 * ends. */
static size_t *find_slot(const lk_state_entry *entries, size_t *index, size_t slots, const char *name)
{
    size_t at = (size_t)lk__hash(name, strlen(name), 0) & (slots - 1);
    while (index[at] && strcmp(entries[index[at] - 1].name, name) != 0)
        at = (at + 1) & (slots - 1);
    return &index[at];
}

static lk_status grow(lk_state *state)
{
    size_t capacity = state->capacity ? 2 * state->capacity : 16;
    lk_state_entry *entries;
    size_t *index;
    lk_status status;
    LK_TRY(LK_ALLOC(capacity, "the entries of a state dict", &entries));
    LK_TRY_GOTO(LK_ALLOC(2 * capacity, "the index of a state dict", &index), free_entries);
    if (state->count)
        memcpy(entries, state->entries, state->count * sizeof *entries);
    for (size_t i = 0; i < state->count; i++)
        *find_slot(entries, index, 2 * capacity, entries[i].name) = i + 1;
    lk__mem_free(state->entries);
    lk__mem_free(state->index);
    state->entries = entries;
    state->index = index;
    state->capacity = capacity;
    return LK_OK;
free_entries:
    lk__mem_free(entries);
    return status;
}

bool lk__dtype_count_bytes(lk_dtype dtype, int ndim, const size_t *dims, size_t *bytes)
{
    bool empty = false, overflow = false;
    size_t count = lk_dtype_size(dtype);
    for (int i = 0; i < ndim; i++) {
        empty |= dims[i] == 0;
        overflow |= __builtin_mul_overflow(count, dims[i], &count);
    }
    if (overflow && !empty)
        return false;
    *bytes = empty ? 0 : count;
    return true;
}

/* Checks type and shape and computes bytes. */
static lk_status fill_layout(lk_state_entry *entry, const char *name, int ndim, const size_t *dims)
{
    if ((unsigned)entry->dtype >= LK_DTYPE_COUNT)
        return lk__fail(LK_STATUS_USAGE, "tensor \"%.200s\" has the unknown type %d", name, (int)entry->dtype);
    if (ndim < 0 || ndim > LK_MAX_DIMS)
        return lk__fail(LK_STATUS_USAGE, "tensor \"%.200s\" has %d dimensions, a state dict holds 0 to %d", name, ndim,
                        LK_MAX_DIMS);
    entry->ndim = ndim;
    for (int i = 0; i < ndim; i++)
        entry->dims[i] = dims[i];
    if (!lk__dtype_count_bytes(entry->dtype, ndim, entry->dims, &entry->bytes))
        return lk__fail(LK_STATUS_MEMORY, "tensor \"%.200s\" would be larger than memory can be addressed", name);
    return LK_OK;
}

lk_status lk_state_add(lk_state *state, const char *name, lk_dtype dtype, int ndim, const size_t *dims,
                       lk_state_entry **out)
{
    LK_TRY(LK_GIVEN(state));
    LK_TRY(LK_GIVEN(name));
    LK_TRY(lk__fail_unless(dims || ndim == 0, "dims", "lk_state_add"));
    LK_TRY(LK_GIVEN(out));
    lk_state_entry entry = {.dtype = dtype};
    LK_TRY(fill_layout(&entry, name, ndim, dims));
    size_t length = strlen(name) + 1;
    if (length > LK_MAX_TENSOR_NAME + 1)
        return lk__fail(LK_STATUS_USAGE, "tensor \"%.200s...\" has a name of %zu bytes; names have %d at most", name,
                        length - 1, LK_MAX_TENSOR_NAME);
    if (lk_state_find(state, name))
        return lk__fail(LK_STATUS_MISMATCH, "the state dict already has a tensor \"%.200s\"; names must differ", name);
    if (state->count == state->capacity)
        LK_TRY(grow(state));
    LK_TRY(lk__mem_alloc(length, 1, "the name of a tensor", (void **)&entry.name));
    lk_status status;
    LK_TRY_GOTO(lk__mem_alloc(entry.bytes, 1, "a tensor of a state dict", &entry.data), free_name);
    memcpy(entry.name, name, length);
    state->entries[state->count] = entry;
    *find_slot(state->entries, state->index, 2 * state->capacity, name) = state->count + 1;
    *out = &state->entries[state->count++];
    return LK_OK;
free_name:
    lk__mem_free(entry.name);
    return status;
}

size_t lk_state_count(const lk_state *state)
{
    return state ? state->count : 0;
}

const lk_state_entry *lk_state_at(const lk_state *state, size_t index)
{
    return state && index < state->count ? &state->entries[index] : NULL;
}

const lk_state_entry *lk_state_find(const lk_state *state, const char *name)
{
    if (!state || !state->count || !name)
        return NULL;
    size_t position = *find_slot(state->entries, state->index, 2 * state->capacity, name);
    return position ? &state->entries[position - 1] : NULL;
}

bool lk_state_strip(lk_state *state, const char *prefix)
{
    if (!state || !prefix)
        return false;
    size_t length = strlen(prefix), slots = 2 * state->capacity;
    for (size_t i = 0; i < state->count; i++)
        if (strncmp(state->entries[i].name, prefix, length) != 0)
            return false;
    if (!state->count)
        return false;
    memset(state->index, 0, slots * sizeof *state->index);
    for (size_t i = 0; i < state->count; i++) {
        char *name = state->entries[i].name;
        memmove(name, name + length, strlen(name + length) + 1);
        *find_slot(state->entries, state->index, slots, name) = i + 1;
    }
    return true;
}

uint64_t lk__state_entry_seed(const lk_state_entry *entry)
{
    uint64_t layout[1 + LK_MAX_DIMS] = {(uint64_t)entry->ndim};
    for (int i = 0; i < entry->ndim; i++)
        layout[1 + i] = entry->dims[i];
    const char *dtype = lk_dtype_name(entry->dtype);
    uint64_t seed = lk__hash(entry->name, strlen(entry->name) + 1, 0);
    seed = lk__hash(dtype, strlen(dtype) + 1, seed);
    return lk__hash(layout, (1 + (size_t)entry->ndim) * sizeof *layout, seed);
}

uint64_t lk__state_entry_hash(const lk_state_entry *entry)
{
    return lk__hash(entry->data, entry->bytes, lk__state_entry_seed(entry));
}

/* Adds the entries' hashes, so their order does not matter: a file may hold them in another order. Each hash
 * includes the name, so exchanging the data of two entries changes the sum. */
uint64_t lk_state_hash(const lk_state *state)
{
    if (!state)
        return 0;
    uint64_t parts[2] = {state->count, 0};
    for (size_t i = 0; i < state->count; i++)
        parts[1] += lk__state_entry_hash(&state->entries[i]);
    return lk__hash(parts, sizeof parts, 0);
}

static size_t find_note(const lk_state *state, const char *name)
{
    size_t at = 0;
    while (at < state->note_count && strcmp(state->notes[at].name, name) != 0)
        at++;
    return at;
}

static lk_status add_note(lk_state *state, const char *name, char *text)
{
    if (state->note_count == LK_MAX_STATE_NOTES)
        return lk__fail(LK_STATUS_USAGE, "a state has %d notes at most", LK_MAX_STATE_NOTES);
    LK_TRY(lk__mem_copy_text(name, "a note of a state", &state->notes[state->note_count].name));
    state->notes[state->note_count++].text = text;
    return LK_OK;
}

lk_status lk_state_set_note(lk_state *state, const char *name, const char *text)
{
    LK_TRY(LK_GIVEN(state));
    LK_TRY(LK_GIVEN(name));
    LK_TRY(LK_GIVEN(text));
    char *copy;
    if (!*name || !lk__utf8_is_valid(name) || !lk__utf8_is_valid(text))
        return lk__fail(LK_STATUS_USAGE, "a note of a state must have a name, and name and text must be UTF-8");
    LK_TRY(lk__mem_copy_text(text, "a note of a state", &copy));
    size_t at = find_note(state, name);
    lk_status status = LK_OK;
    if (at == state->note_count)
        status = add_note(state, name, copy);
    else {
        lk__mem_free(state->notes[at].text);
        state->notes[at].text = copy;
    }
    if (status != LK_OK)
        lk__mem_free(copy);
    return status;
}

const char *lk_state_note(const lk_state *state, const char *name)
{
    if (!state || !name)
        return NULL;
    size_t at = find_note(state, name);
    return at < state->note_count ? state->notes[at].text : NULL;
}

const char *lk_state_note_name(const lk_state *state, size_t index)
{
    return state && index < state->note_count ? state->notes[index].name : NULL;
}
