/* pth_load.c - loads the data of a PyTorch file's tensors. Each storage is read once; tensors with
 * holes, transposed or repeated elements become contiguous. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "io/pth/pth.h"

static int by_storage(const void *a, const void *b)
{
    const lk_pth_tensor *x = *(lk_pth_tensor *const *)a, *y = *(lk_pth_tensor *const *)b;
    int order = lk__pth_storage_compare(&x->storage, &y->storage);
    return order ? order : x->order < y->order ? -1 : 1;
}

/* How many of the sorted tensors, from the first on, share its storage. */
static size_t sharing(lk_pth_tensor *const *sorted, size_t count)
{
    size_t shared = 1;
    while (shared < count && lk__pth_storage_compare(&sorted[0]->storage, &sorted[shared]->storage) == 0)
        shared++;
    return shared;
}

/* Finds all storages and checks the sizes, before memory is allocated for tensors. */
static lk_status locate_all(const lk_pth_reader *in, lk_pth_tensor *const *sorted, size_t count)
{
    uint64_t stored = 0, wanted = 0;
    bool overflow = false;
    for (size_t i = 0, shared; i < count; i += shared) {
        lk_pth_storage *storage = &sorted[i]->storage;
        shared = sharing(sorted + i, count - i);
        LK_TRY(in->locate(in->self, storage));
        overflow |= __builtin_add_overflow(stored, storage->bytes, &stored);
        for (size_t k = i; k < i + shared; k++) {
            if (sorted[k]->storage.bytes != storage->bytes)
                return lk__pickle_fail(&in->pickle->stream, sorted[k]->at,
                                       "two tensors give their common storage %" PRIu64 " and %" PRIu64 " bytes",
                                       storage->bytes, sorted[k]->storage.bytes);
            overflow |= __builtin_add_overflow(wanted, (uint64_t)sorted[k]->bytes, &wanted);
        }
    }
    if (overflow || wanted > lk__pth_most(in->file_bytes))
        return lk__fail(LK_STATUS_FORMAT,
                        "%s: its tensors repeat what is stored so often that %" PRIu64 " bytes become %" PRIu64
                        ", more than 16 times the file and 1 MiB; save them contiguous",
                        in->pickle->stream.path, stored, wanted);
    return LK_OK;
}

static bool is_contiguous(const lk_pth_tensor *t)
{
    size_t stride = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        if (t->dims[i] != 1 && t->strides[i] != stride)
            return false;
        stride *= t->dims[i];
    }
    return true;
}

/* Copies the tensor's elements in row-major order; at counts the outer dimensions. */
static void gather(const lk_pth_tensor *t, const uint8_t *storage, uint8_t *out)
{
    size_t size = lk_dtype_size(t->dtype), at[LK_MAX_DIMS] = {0};
    const uint8_t *from = storage + (t->storage.first + t->offset) * size;
    if (is_contiguous(t)) {
        memcpy(out, from, t->bytes);
        return;
    }
    int inner = t->ndim - 1;
    for (size_t done = 0; done < t->bytes;) {
        for (size_t i = 0; i < t->dims[inner]; i++, done += size)
            memcpy(out + done, from + i * t->strides[inner] * size, size);
        int d = inner - 1;
        for (; d >= 0 && ++at[d] == t->dims[d]; d--) {
            from -= (at[d] - 1) * t->strides[d] * size;
            at[d] = 0;
        }
        if (d >= 0)
            from += t->strides[d] * size;
    }
}

static lk_status add_entries(const lk_pth_tensor *tensors, size_t count, lk_state *state)
{
    char name[LK_MAX_TENSOR_NAME + 1];
    for (size_t i = 0; i < count; i++) {
        const lk_pth_tensor *t = &tensors[i];
        lk_state_entry *entry;
        memcpy(name, t->name, t->name_bytes);
        name[t->name_bytes] = '\0';
        LK_TRY(lk_state_add(state, name, t->dtype, t->ndim, t->dims, &entry));
    }
    return LK_OK;
}

/* Reads one storage into the tensors that share it. A tensor that is its whole storage is read
 * without a copy. */
static lk_status fill_shared(const lk_pth_reader *in, lk_pth_tensor *const *sorted, size_t shared, lk_state *state)
{
    const lk_pth_tensor *first = sorted[0];
    const lk_pth_storage *storage = &first->storage;
    if (storage->bytes == 0)
        return LK_OK;
    if (shared == 1 && first->bytes == storage->bytes && is_contiguous(first))
        return in->read(in->self, storage, lk_state_at(state, first->order)->data);
    uint8_t *block;
    LK_TRY(LK_ALLOC((size_t)storage->bytes, "a storage of a PyTorch file", &block));
    lk_status status = in->read(in->self, storage, block);
    for (size_t i = 0; i < shared && status == LK_OK; i++)
        if (sorted[i]->bytes)
            gather(sorted[i], block, lk_state_at(state, sorted[i]->order)->data);
    lk__mem_free(block);
    return status;
}

static lk_status load_tensors(const lk_pth_reader *in, const lk_pth_tensor *tensors, lk_pth_tensor *const *sorted,
                              size_t count, lk_state *state)
{
    LK_TRY(add_entries(tensors, count, state));
    for (size_t i = 0, shared; i < count; i += shared) {
        shared = sharing(sorted + i, count - i);
        LK_TRY(fill_shared(in, sorted + i, shared, state));
    }
    return LK_OK;
}

lk_status lk__pth_load(const lk_pth_reader *reader, lk_state **out)
{
    lk_pth_tensor *tensors = NULL, **sorted = NULL;
    size_t count = 0;
    lk_state *state = NULL;
    lk_status status;
    LK_TRY(lk__pth_tensors(reader, &tensors, &count));
    LK_TRY_GOTO(LK_ALLOC(count, "the order of storages", &sorted), free_tensors);
    for (size_t i = 0; i < count; i++)
        sorted[i] = &tensors[i];
    if (count)
        qsort(sorted, count, sizeof *sorted, by_storage);
    LK_TRY_GOTO(locate_all(reader, sorted, count), free_sorted);
    LK_TRY_GOTO(lk_state_create(&state), free_sorted);
    LK_TRY_GOTO(load_tensors(reader, tensors, sorted, count, state), destroy_state);
    *out = state;
    state = NULL;
destroy_state:
    lk_state_destroy(state);
free_sorted:
    lk__mem_free(sorted);
free_tensors:
    lk__mem_free(tensors);
    return status;
}
