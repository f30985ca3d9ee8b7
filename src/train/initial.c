/* initial.c - initial weights from a file: converted to the model's types, without the layers of init_skip. */
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "base/mem.h"
#include "parallel/engine/engine.h"
#include "train/parts.h"

lk_status lk__train_load_weights(const char *path, lk_state **out)
{
    LK_TRY(lk_state_load(path, out));
    (void)lk_state_strip(*out, "module.");
    return LK_OK;
}

/* Whether the key belongs to a layer in a list such as "fc,layer4.0". */
static bool is_skipped(const char *list, const char *key)
{
    while (list && *list) {
        size_t length = strcspn(list, ",");
        if (length > 0 && strncmp(key, list, length) == 0 && (key[length] == '.' || key[length] == '\0'))
            return true;
        list += length + (list[length] == ',');
    }
    return false;
}

/* USAGE if a name of the list is not in the model. */
static lk_status check_skip(const char *list, const lk_state *model)
{
    for (const char *name = list; name && *name;) {
        int length = (int)strcspn(name, ",");
        char one[256];
        bool found = false;
        snprintf(one, sizeof one, "%.*s", length, name);
        for (size_t i = 0; i < lk_state_count(model) && !found; i++)
            found = is_skipped(one, lk_state_at(model, i)->name);
        if (!found)
            return lk__fail(LK_STATUS_USAGE, "`init_skip`: the model has no layer '%s' with parameters", one);
        name += length + (name[length] == ',');
    }
    return LK_OK;
}

/* Element i, converted to float. */
static float as_float(const lk_state_entry *entry, size_t i)
{
    uint16_t half;
    double wide;
    float value;
    switch (entry->dtype) {
    case LK_DTYPE_F16:
    case LK_DTYPE_BF16:
        memcpy(&half, (const char *)entry->data + i * sizeof half, sizeof half);
        return entry->dtype == LK_DTYPE_F16 ? lk__math_half_to_float(half)
                                            : lk__math_bits_to_float((uint32_t)half << 16);
    case LK_DTYPE_F64:
        memcpy(&wide, (const char *)entry->data + i * sizeof wide, sizeof wide);
        return (float)wide;
    default:
        memcpy(&value, (const char *)entry->data + i * sizeof value, sizeof value);
        return value;
    }
}

static bool is_float(lk_dtype dtype)
{
    return dtype == LK_DTYPE_F32 || dtype == LK_DTYPE_F64 || dtype == LK_DTYPE_F16 || dtype == LK_DTYPE_BF16;
}

/* Adds a copy of an entry to a state, converted to f32 if the model has f32. */
static lk_status add_entry(const lk_state_entry *from, lk_dtype wanted, lk_state *to)
{
    lk_state_entry *entry;
    bool cast = wanted == LK_DTYPE_F32 && from->dtype != wanted && is_float(from->dtype);
    LK_TRY(lk_state_add(to, from->name, cast ? wanted : from->dtype, from->ndim, from->dims, &entry));
    if (!cast) {
        memcpy(entry->data, from->data, from->bytes);
        return LK_OK;
    }
    for (size_t i = 0; i < entry->bytes / sizeof(float); i++)
        ((float *)entry->data)[i] = as_float(from, i);
    return LK_OK;
}

/* The state for the engine: for each key of the model the file's tensor or, if skipped, the model's own. Keys
 * that only the file has are added as well, so that the engine refuses them. */
static lk_status merge(const lk_state *model, const lk_state *file, const char *skip, lk_state *out)
{
    for (size_t i = 0; i < lk_state_count(model); i++) {
        const lk_state_entry *own = lk_state_at(model, i);
        const lk_state_entry *from = is_skipped(skip, own->name) ? own : lk_state_find(file, own->name);
        if (from)
            LK_TRY(add_entry(from, own->dtype, out));
    }
    for (size_t i = 0; i < lk_state_count(file); i++) {
        const lk_state_entry *from = lk_state_at(file, i);
        if (!is_skipped(skip, from->name) && !lk_state_find(model, from->name))
            LK_TRY(add_entry(from, from->dtype, out));
    }
    return LK_OK;
}

static lk_status take(lk_engine *engine, const lk_train_opts *opts, const lk_state *file)
{
    lk_state *model = NULL, *merged = NULL;
    lk_status status;
    LK_TRY_GOTO(lk_engine_state(engine, &model), destroy_states);
    LK_TRY_GOTO(check_skip(opts->init_skip, model), destroy_states);
    LK_TRY_GOTO(lk_state_create(&merged), destroy_states);
    LK_TRY_GOTO(merge(model, file, opts->init_skip, merged), destroy_states);
    /* All ranks have the same file, so each finds the same error without communication. */
    LK_TRY_GOTO(lk__engine_check_state(engine, merged), destroy_states);
    status = lk_engine_set_state(engine, merged);

destroy_states:
    lk_state_destroy(merged);
    lk_state_destroy(model);
    return status;
}

lk_status lk__train_init_engine(lk_engine *engine, const lk_train_opts *opts, const lk_state *file, const char *hint)
{
    lk_status status = take(engine, opts, file);
    if (status == LK_STATUS_MISMATCH)
        return lk__fail(status, "%s: %s (the model is %s%s)", opts->init_from, lk_error_detail(), opts->model, hint);
    return status;
}
