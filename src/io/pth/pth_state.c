/* pth_state.c - interprets a pickle of torch.save: finds the dict that is the state, and its
 * tensors. Nothing is executed; a tensor is a recorded call of a PyTorch function that makes
 * tensors. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "io/pth/pth.h"
#include "tensor/state.h"

#define NO_DTYPE LK_DTYPE_COUNT

const lk_pth_type lk__pth_types[] = {
    [LK_DTYPE_F32] = {"FloatStorage", "float32", LK_DTYPE_F32, 4},
    [LK_DTYPE_F64] = {"DoubleStorage", "float64", LK_DTYPE_F64, 8},
    [LK_DTYPE_BF16] = {"BFloat16Storage", "bfloat16", LK_DTYPE_BF16, 2},
    [LK_DTYPE_F16] = {"HalfStorage", "float16", LK_DTYPE_F16, 2},
    [LK_DTYPE_I64] = {"LongStorage", "int64", LK_DTYPE_I64, 8},
    [LK_DTYPE_I32] = {"IntStorage", "int32", LK_DTYPE_I32, 4},
    [LK_DTYPE_U8] = {"ByteStorage", "uint8", LK_DTYPE_U8, 1},
    {"BoolStorage", "bool", NO_DTYPE, 1},
    {"CharStorage", "int8", NO_DTYPE, 1},
    {"ShortStorage", "int16", NO_DTYPE, 2},
    {"ComplexFloatStorage", "complex64", NO_DTYPE, 8},
    {"ComplexDoubleStorage", "complex128", NO_DTYPE, 16},
    {"UntypedStorage", "bytes", NO_DTYPE, 1},
};

enum { TYPES = sizeof lk__pth_types / sizeof *lk__pth_types, UNTYPED = TYPES - 1 };

/* The meaning of a global; from TYPE on, plus an index of lk__pth_types. */
enum role { OTHER, TENSOR, TENSOR_OF_DTYPE, PARAMETER, OF_CLASS, TYPE };

/* The globals of a storage and of its dtype have the same meaning. */
#define TYPE_ROWS(storage, dtype, index)                     \
    {"torch", storage, LK_PICKLE_USE_NAMED, TYPE + (index)}, \
    {                                                        \
        "torch", dtype, LK_PICKLE_USE_NAMED, TYPE + (index)  \
    }

const lk_pickle_global lk__pth_globals[] = {
    {"collections", "OrderedDict", LK_PICKLE_USE_MAKES_DICT, OTHER},
    {"collections", "Counter", LK_PICKLE_USE_MAKES_DICT, OTHER},
    {"torch._utils", "_rebuild_tensor", LK_PICKLE_USE_CALLED, TENSOR},
    {"torch._utils", "_rebuild_tensor_v2", LK_PICKLE_USE_CALLED, TENSOR},
    {"torch._utils", "_rebuild_tensor_v3", LK_PICKLE_USE_CALLED, TENSOR_OF_DTYPE},
    {"torch._utils", "_rebuild_parameter", LK_PICKLE_USE_CALLED, PARAMETER},
    {"torch._utils", "_rebuild_parameter_with_state", LK_PICKLE_USE_CALLED, PARAMETER},
    {"torch.nn.parameter", "Parameter", LK_PICKLE_USE_CALLED, PARAMETER},
    {"torch._tensor", "_rebuild_from_type_v2", LK_PICKLE_USE_CALLED, OF_CLASS},
    {"torch.nn.parameter", "Buffer", LK_PICKLE_USE_NAMED, OTHER},
    {"torch", "Tensor", LK_PICKLE_USE_NAMED, OTHER},
    TYPE_ROWS("FloatStorage", "float32", LK_DTYPE_F32),
    TYPE_ROWS("DoubleStorage", "float64", LK_DTYPE_F64),
    TYPE_ROWS("BFloat16Storage", "bfloat16", LK_DTYPE_BF16),
    TYPE_ROWS("HalfStorage", "float16", LK_DTYPE_F16),
    TYPE_ROWS("LongStorage", "int64", LK_DTYPE_I64),
    TYPE_ROWS("IntStorage", "int32", LK_DTYPE_I32),
    TYPE_ROWS("ByteStorage", "uint8", LK_DTYPE_U8),
    TYPE_ROWS("BoolStorage", "bool", LK_DTYPE_COUNT),
    TYPE_ROWS("CharStorage", "int8", LK_DTYPE_COUNT + 1),
    TYPE_ROWS("ShortStorage", "int16", LK_DTYPE_COUNT + 2),
    TYPE_ROWS("ComplexFloatStorage", "complex64", LK_DTYPE_COUNT + 3),
    TYPE_ROWS("ComplexDoubleStorage", "complex128", LK_DTYPE_COUNT + 4),
    {"torch.storage", "UntypedStorage", LK_PICKLE_USE_NAMED, TYPE + UNTYPED},
    {"torch", "UntypedStorage", LK_PICKLE_USE_NAMED, TYPE + UNTYPED},
    {"torch.storage", "_UntypedStorage", LK_PICKLE_USE_NAMED, TYPE + UNTYPED},
    {"torch", "uint16", LK_PICKLE_USE_NAMED, OTHER},
    {"torch", "uint32", LK_PICKLE_USE_NAMED, OTHER},
    {"torch", "uint64", LK_PICKLE_USE_NAMED, OTHER},
    {"torch", "complex32", LK_PICKLE_USE_NAMED, OTHER},
    {"torch", "float8_e4m3fn", LK_PICKLE_USE_NAMED, OTHER},
    {"torch", "float8_e5m2", LK_PICKLE_USE_NAMED, OTHER},
    {"torch", "Size", LK_PICKLE_USE_CALLED, OTHER},
    {"torch", "device", LK_PICKLE_USE_CALLED, OTHER},
    {"__builtin__", "set", LK_PICKLE_USE_CALLED, OTHER},
    {"builtins", "set", LK_PICKLE_USE_CALLED, OTHER},
    {"__builtin__", "frozenset", LK_PICKLE_USE_CALLED, OTHER},
    {"__builtin__", "complex", LK_PICKLE_USE_CALLED, OTHER},
    {"builtins", "complex", LK_PICKLE_USE_CALLED, OTHER},
    {"__builtin__", "bytearray", LK_PICKLE_USE_CALLED, OTHER},
    {"builtins", "bytearray", LK_PICKLE_USE_CALLED, OTHER},
    {"_codecs", "encode", LK_PICKLE_USE_CALLED, OTHER},
    {NULL, NULL, LK_PICKLE_USE_NAMED, OTHER},
};

static int role_of(const lk_pickle_value *value)
{
    return value && (value->kind == LK_PICKLE_KIND_GLOBAL || value->kind == LK_PICKLE_KIND_CALL)
               ? value->as.call.global->role
               : OTHER;
}

static bool is_tensor(const lk_pickle_value *value)
{
    int role = role_of(value);
    return value->kind == LK_PICKLE_KIND_CALL && role != OTHER && role < TYPE;
}

static const lk_pth_type *type_of(const lk_pickle_value *value)
{
    int role = role_of(value);
    return value && value->kind == LK_PICKLE_KIND_GLOBAL && role >= TYPE ? &lk__pth_types[role - TYPE] : NULL;
}

static bool get_count(const lk_pickle_value *value, uint64_t *out)
{
    if (!value || value->kind != LK_PICKLE_KIND_INT || value->as.integer < 0)
        return false;
    *out = (uint64_t)value->as.integer;
    return true;
}

int lk__pth_storage_compare(const lk_pth_storage *a, const lk_pth_storage *b)
{
    int order = memcmp(a->key, b->key, lk__size_min(a->key_bytes, b->key_bytes));
    return order ? order : (a->key_bytes > b->key_bytes) - (a->key_bytes < b->key_bytes);
}

/* Up to PyTorch 0.3 a storage could be a part of another one: (key, first, count). */
static bool get_view(const lk_pickle *pickle, const lk_pickle_value *view, lk_pth_storage *storage)
{
    uint64_t first, count, end;
    if (!view || view->kind == LK_PICKLE_KIND_NONE)
        return true;
    if (!get_count(lk__pickle_item(pickle, view, 1), &first) || !get_count(lk__pickle_item(pickle, view, 2), &count) ||
        __builtin_add_overflow(first, count, &end) || end > storage->count)
        return false;
    storage->first = first;
    storage->count = count;
    return true;
}

lk_status lk__pth_storage(const lk_pickle *pickle, const lk_pickle_value *value, lk_pth_storage *out)
{
    const lk_pickle_value *id = lk__pickle_value(pickle, value->as.id);
    const lk_pickle_value *kind = lk__pickle_item(pickle, id, 0), *key = lk__pickle_item(pickle, id, 2);
    lk_pth_storage storage = {.type = type_of(lk__pickle_item(pickle, id, 1))};
    if (!kind || !lk__pickle_is_text(kind, "storage") || !storage.type || !key || key->kind != LK_PICKLE_KIND_TEXT ||
        !get_count(lk__pickle_item(pickle, id, 4), &storage.count) ||
        __builtin_mul_overflow(storage.count, storage.type->size, &storage.bytes) || storage.bytes > INT64_MAX ||
        !get_view(pickle, lk__pickle_item(pickle, id, 5), &storage))
        return lk__pickle_fail(&pickle->stream, value->at,
                               "a malformed storage; expected ('storage', type, key, device, elements)");
    if (key->as.text.length > LK_PTH_MAX_KEY)
        return lk__pickle_fail(&pickle->stream, key->at, "the key of a storage has %u bytes; keys have %d at most",
                               key->as.text.length, LK_PTH_MAX_KEY);
    storage.key = key->as.text.bytes;
    storage.key_bytes = key->as.text.length;
    *out = storage;
    return LK_OK;
}

/* The tensor that is being read, and its name for messages. */
typedef struct decoder {
    const lk_pickle *pickle;
    lk_pth_tensor tensor;
    lk_json_quoted name;
} decoder;

static lk_status wrong(const decoder *d, const char *what)
{
    return lk__pickle_fail(&d->pickle->stream, d->tensor.at, "tensor %s %s", d->name.text, what);
}

/* A hash table of the names so far: a slot is a tensor's index plus one, or 0. More than half of
 * the slots are free. The first repeated name is an error, so no bytes of the pickle are compared
 * as a name twice. */
typedef struct name_set {
    uint32_t *slots;
    size_t mask;
} name_set;

static lk_status add_name(const name_set *set, const decoder *d, const lk_pth_tensor *tensors)
{
    const lk_pth_tensor *t = &d->tensor;
    size_t at = (size_t)lk__hash(t->name, t->name_bytes, 0) & set->mask;
    for (; set->slots[at]; at = (at + 1) & set->mask) {
        const lk_pth_tensor *other = &tensors[set->slots[at] - 1];
        if (other->name_bytes == t->name_bytes && memcmp(other->name, t->name, t->name_bytes) == 0)
            return lk__pickle_fail(&d->pickle->stream, t->at, "the state has tensor %s twice", d->name.text);
    }
    set->slots[at] = (uint32_t)t->order + 1;
    return LK_OK;
}

static lk_status get_name(decoder *d, const lk_pickle_value *key)
{
    char cut[120];
    const char *text = key->as.text.bytes;
    size_t bytes = key->as.text.length;
    d->tensor.at = key->at;
    snprintf(cut, sizeof cut, "%.*s", (int)lk__size_min(bytes, sizeof cut), text);
    d->name = lk__json_quote_short(cut);
    if (bytes > LK_MAX_TENSOR_NAME) {
        snprintf(cut, sizeof cut, "has a name of %zu bytes; names have %d at most", bytes, LK_MAX_TENSOR_NAME);
        return wrong(d, cut);
    }
    size_t valid = lk__utf8_valid_bytes(text, bytes);
    if (memchr(text, '\0', valid))
        return wrong(d, "has a zero character in its name");
    if (valid < bytes)
        return wrong(d, "has a name that is not UTF-8");
    d->tensor.name = text;
    d->tensor.name_bytes = bytes;
    return LK_OK;
}

static lk_status get_numbers(const decoder *d, const lk_pickle_value *value, size_t out[LK_MAX_DIMS], int *count)
{
    if (!value || (value->kind != LK_PICKLE_KIND_TUPLE && value->kind != LK_PICKLE_KIND_LIST))
        return wrong(d, "has a malformed shape: its sizes and strides are tuples");
    if (value->as.items.count > LK_MAX_DIMS)
        return wrong(d, "has more dimensions than 8, which are read");
    uint32_t cell = value->as.items.first;
    *count = 0;
    for (const lk_pickle_value *item; (item = lk__pickle_next(d->pickle, &cell)); ++*count) {
        uint64_t number;
        if (!get_count(item, &number))
            return wrong(d, "has a size or stride that is no integer from 0 on");
        out[*count] = (size_t)number;
    }
    return LK_OK;
}

/* Computes the tensor's bytes and checks that its last element is inside the storage. */
static lk_status check_bounds(decoder *d)
{
    lk_pth_tensor *t = &d->tensor;
    uint64_t last = t->offset;
    bool overflow = !lk__dtype_count_bytes(t->dtype, t->ndim, t->dims, &t->bytes);
    if (!overflow && t->bytes == 0)
        return LK_OK;
    for (int i = 0; i < t->ndim; i++) {
        uint64_t span;
        overflow |= __builtin_mul_overflow((uint64_t)t->dims[i] - 1, (uint64_t)t->strides[i], &span);
        overflow |= __builtin_add_overflow(last, span, &last);
    }
    if (!overflow && last < t->storage.count && t->bytes <= INT64_MAX)
        return LK_OK;
    char text[160];
    snprintf(text, sizeof text, "reaches beyond the %" PRIu64 " elements of its storage", t->storage.count);
    return wrong(d, text);
}

/* Returns the arguments of the call that makes a tensor, inside calls that make it a parameter or a
 * subclass; NULL if there is none. */
static const lk_pickle_value *unwrap(const lk_pickle *pickle, const lk_pickle_value *value, int *role)
{
    for (int depth = 0; depth < 8 && value && value->kind == LK_PICKLE_KIND_CALL; depth++) {
        const lk_pickle_value *args = lk__pickle_value(pickle, value->as.call.args);
        *role = role_of(value);
        if (*role == OF_CLASS) {
            *role = role_of(lk__pickle_item(pickle, args, 0));
            args = lk__pickle_item(pickle, args, 2);
        }
        if (*role == TENSOR || *role == TENSOR_OF_DTYPE)
            return args;
        value = *role == PARAMETER && args ? lk__pickle_item(pickle, args, 0) : NULL;
    }
    return NULL;
}

static lk_status get_dtype(decoder *d, const lk_pickle_value *args, int role)
{
    lk_pth_storage *storage = &d->tensor.storage;
    const lk_pth_type *type = storage->type;
    if (role == TENSOR_OF_DTYPE) {
        type = type_of(lk__pickle_item(d->pickle, args, 6));
        if (type) {
            storage->first = 0;
            storage->count = storage->bytes / type->size;
        }
    }
    if (!type || type->dtype == NO_DTYPE) {
        char text[160];
        snprintf(text, sizeof text,
                 "has elements of type %s; float64, float32, bfloat16, float16, int64, int32 and uint8 can be read: "
                 "convert it first",
                 type ? type->name : "unknown");
        return wrong(d, text);
    }
    d->tensor.dtype = (lk_dtype)type->dtype;
    return LK_OK;
}

/* The arguments are (storage, offset, sizes, strides, ...). */
static lk_status get_tensor(decoder *d, const lk_pickle_value *value)
{
    const lk_pickle *pickle = d->pickle;
    int role = OTHER, strides = 0;
    const lk_pickle_value *args = unwrap(pickle, value, &role);
    const lk_pickle_value *storage = args ? lk__pickle_item(pickle, args, 0) : NULL;
    if (!storage || storage->kind != LK_PICKLE_KIND_PERSISTENT ||
        !get_count(lk__pickle_item(pickle, args, 1), &d->tensor.offset))
        return wrong(d, "is malformed; expected a storage, an offset, sizes and strides");
    LK_TRY(lk__pth_storage(pickle, storage, &d->tensor.storage));
    LK_TRY(get_dtype(d, args, role));
    LK_TRY(get_numbers(d, lk__pickle_item(pickle, args, 2), d->tensor.dims, &d->tensor.ndim));
    LK_TRY(get_numbers(d, lk__pickle_item(pickle, args, 3), d->tensor.strides, &strides));
    if (strides != d->tensor.ndim)
        return wrong(d, "has more or fewer strides than dimensions");
    /* Pending operations: the tensor's elements are not those in the storage. */
    const lk_pickle_value *marks = lk__pickle_item(pickle, args, role == TENSOR_OF_DTYPE ? 7 : 6);
    if (marks && marks->kind == LK_PICKLE_KIND_DICT && marks->as.items.count > 0)
        return wrong(d, "is still to be negated or conjugated; save what its resolve_neg().resolve_conj() gives");
    return check_bounds(d);
}

static size_t count_tensors(const lk_pickle *pickle, const lk_pickle_value *dict)
{
    size_t count = 0;
    uint32_t cell = dict->as.items.first;
    for (const lk_pickle_value *key; (key = lk__pickle_next(pickle, &cell));) {
        const lk_pickle_value *value = lk__pickle_next(pickle, &cell);
        count += key->kind == LK_PICKLE_KIND_TEXT && is_tensor(value);
    }
    return count;
}

static lk_status no_state(const lk_pickle *pickle, const lk_pickle_value *dict)
{
    char keys[800] = "";
    size_t used = 0, shown = 0;
    uint32_t cell = dict->as.items.first;
    for (const lk_pickle_value *key; shown < 8 && (key = lk__pickle_next(pickle, &cell)); shown++) {
        char cut[32], quoted[6 * sizeof cut + 3];
        bool text = key->kind == LK_PICKLE_KIND_TEXT;
        snprintf(cut, sizeof cut, "%.*s", text ? (int)lk__size_min(key->as.text.length, sizeof cut) : 0,
                 text ? key->as.text.bytes : "");
        quoted[lk__json_quote(cut, quoted)] = '\0';
        if (used < sizeof keys)
            used += (size_t)snprintf(keys + used, sizeof keys - used, "%s%s", shown ? ", " : "",
                                     text ? quoted : "one that is no text");
        (void)lk__pickle_next(pickle, &cell);
    }
    return lk__pickle_fail(&pickle->stream, dict->at,
                           "no tensors are in its dict, nor in a dict under \"state_dict\", \"model_state_dict\", "
                           "\"model\" or \"net\" in it; its keys are: %s%s",
                           keys, cell ? ", ..." : "");
}

/* A training checkpoint has the state beside other values, also tensors (a best accuracy, a random
 * state), so its keys are tried before the dict itself. */
static lk_status find_state(const lk_pickle *pickle, const lk_pickle_value **out)
{
    static const char *const keys[] = {"state_dict", "model_state_dict", "model", "net"};
    const lk_pickle_value *root = lk__pickle_root(pickle);
    if (root->kind != LK_PICKLE_KIND_DICT)
        return lk__pickle_fail(&pickle->stream, root->at,
                               "it holds no dict; in Python save one: torch.save(model.state_dict(), PATH)");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const lk_pickle_value *dict = lk__pickle_find(pickle, root, keys[i]);
        if (dict && dict->kind == LK_PICKLE_KIND_DICT && count_tensors(pickle, dict)) {
            *out = dict;
            return LK_OK;
        }
    }
    if (root->as.items.count && !count_tensors(pickle, root))
        return no_state(pickle, root);
    *out = root;
    return LK_OK;
}

static lk_status get_tensors(const lk_pickle *pickle, const lk_pickle_value *dict, const name_set *names,
                             lk_pth_tensor *out)
{
    size_t count = 0;
    uint32_t cell = dict->as.items.first;
    for (const lk_pickle_value *key; (key = lk__pickle_next(pickle, &cell));) {
        const lk_pickle_value *value = lk__pickle_next(pickle, &cell);
        if (key->kind != LK_PICKLE_KIND_TEXT || !is_tensor(value))
            continue;
        decoder d = {.pickle = pickle, .tensor.order = count};
        LK_TRY(get_name(&d, key));
        LK_TRY(add_name(names, &d, out));
        LK_TRY(get_tensor(&d, value));
        out[count++] = d.tensor;
    }
    return LK_OK;
}

/* Called before memory is allocated for the tensors. In files of torch.save each tensor takes a
 * hundred bytes of the pickle, and most take an entry of the archive's directory. */
static lk_status check_count(const lk_pth_reader *reader, const lk_pickle_value *dict, size_t count)
{
    enum { FEW = 64, LEAST_BYTES = 8 };
    if (count <= FEW + reader->file_bytes / LEAST_BYTES)
        return LK_OK;
    return lk__pickle_fail(&reader->pickle->stream, dict->at,
                           "the state has %zu tensors, more tensors than a file of %" PRIu64 " bytes can describe",
                           count, reader->file_bytes);
}

static lk_status make_tensors(const lk_pickle *pickle, const lk_pickle_value *dict, size_t count, lk_pth_tensor **out)
{
    lk_pth_tensor *tensors;
    name_set names = {.mask = 15};
    while (names.mask < 2 * count)
        names.mask = 2 * names.mask + 1;
    lk_status status;
    LK_TRY(LK_ALLOC(names.mask + 1, "the names of a PyTorch file", &names.slots));
    LK_TRY_GOTO(LK_ALLOC(count, "the tensors of a PyTorch file", &tensors), free_names);
    status = get_tensors(pickle, dict, &names, tensors);
    if (status == LK_OK)
        *out = tensors;
    else
        lk__mem_free(tensors);
free_names:
    lk__mem_free(names.slots);
    return status;
}

lk_status lk__pth_tensors(const lk_pth_reader *reader, lk_pth_tensor **out, size_t *count)
{
    const lk_pickle *pickle = reader->pickle;
    const lk_pickle_value *dict = NULL;
    LK_TRY(find_state(pickle, &dict));
    size_t found = count_tensors(pickle, dict);
    LK_TRY(check_count(reader, dict, found));
    LK_TRY(make_tensors(pickle, dict, found, out));
    *count = found;
    return LK_OK;
}
