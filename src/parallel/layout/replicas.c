/* replicas.c - broadcasting the state of replica 0, and comparing replicas by hashes.
 *
 * A rank hashes each tensor, then these hashes. The ranks exchange the last hash, eight bytes. Only if
 * these differ do they exchange the hashes of all tensors; then every rank finds the same difference. */
#include "parallel/layout/replicas.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/text.h"

/* Broadcasts an array of the device through host memory. */
static lk_status start_array(lk_group *group, lk_device *dev, float *array, size_t count)
{
    enum { FLOATS = 1 << 20 };
    float *piece;
    LK_TRY(LK_ALLOC(lk__size_min(count, FLOATS), "a piece of the parameters", &piece));
    lk_status status = LK_OK;
    for (size_t at = 0; at < count; at += FLOATS) {
        size_t n = lk__size_min(FLOATS, count - at);
        LK_TRY_GOTO(dev->type->download(dev, array + at, n * sizeof *piece, piece), free_piece);
        LK_TRY_GOTO(lk_broadcast(group, (lk_buffer){piece, n, LK_DTYPE_F32}, 0, NULL), free_piece);
        LK_TRY_GOTO(dev->type->upload(dev, piece, n * sizeof *piece, array + at), free_piece);
    }

free_piece:
    lk__mem_free(piece);
    return status;
}

lk_status lk__replicas_start_array(lk_group *group, const lk_params *params, float *array)
{
    return start_array(group, params->dev, array, params->count);
}

lk_status lk__replicas_start(lk_group *group, lk_params *params)
{
    size_t layers = (size_t)params->graph->count;
    LK_TRY(lk__replicas_start_array(group, params, params->params));
    lk__params_round(params, 0, params->count);
    LK_TRY(start_array(group, params->dev, params->buffers, params->buffer_count));
    return lk_broadcast(group, (lk_buffer){params->batches, layers, LK_DTYPE_I64}, 0, NULL);
}

lk_status lk__replicas_start_optim(lk_group *group, const lk_params *params, lk_optim *optim)
{
    lk_optim_numbers numbers = lk__optim_numbers(optim);
    for (size_t i = 0; i < lk__optim_states(optim); i++)
        LK_TRY(lk__replicas_start_array(group, params, lk__optim_state(optim, i)));
    LK_TRY(lk_broadcast(group, (lk_buffer){&numbers, sizeof numbers, LK_DTYPE_U8}, 0, NULL));
    lk__optim_set_numbers(optim, &numbers);
    return LK_OK;
}

/* One tensor or number of a replica. */
typedef struct item {
    const lk_layer *layer; /* NULL: suffix is the whole name */
    const char *suffix;
    const char *state; /* the name of an array of the optimiser; NULL: not an array of the optimiser */
    const void *data;  /* device memory; NULL: the item is `value` */
    uint64_t value;
    size_t bytes; /* of data */
} item;

/* If `at` is NULL, items are only counted. */
typedef struct item_list {
    item *at;
    size_t count;
} item_list;

static void add_item(item_list *list, item it)
{
    if (list->at)
        list->at[list->count] = it;
    list->count++;
}

static void add_param(item_list *list, const lk_params *params, const lk_optim *optim, const lk_layer *layer, int slot)
{
    size_t offset = params->param_offset[layer->index][slot];
    item it = {.layer = layer, .suffix = layer->params[slot].suffix, .data = params->params + offset};
    it.bytes = lk__params_elements(params->graph, params->dev, layer, slot) * sizeof(float);
    add_item(list, it);
    for (size_t i = 0; i < lk__optim_states(optim); i++) {
        it.state = lk__optim_state_name(optim, i);
        it.data = lk__optim_state(optim, i) + offset;
        add_item(list, it);
    }
}

static void add_layer(item_list *list, const lk_params *params, const lk_optim *optim, const lk_layer *layer)
{
    for (int slot = 0; slot < layer->param_count; slot++)
        add_param(list, params, optim, layer, slot);
    for (int slot = 0; slot < layer->buffer_count; slot++)
        add_item(list, (item){.layer = layer,
                              .suffix = layer->buffers[slot].suffix,
                              .data = params->buffers + params->buffer_offset[layer->index][slot],
                              .bytes = lk__op_slot_count(&layer->buffers[slot]) * sizeof(float)});
    if (layer->counts_batches)
        add_item(
            list,
            (item){.layer = layer, .suffix = "num_batches_tracked", .value = (uint64_t)params->batches[layer->index]});
}

static void add_all(item_list *list, const lk_params *params, const lk_optim *optim)
{
    for (int i = params->first; i < params->last; i++)
        add_layer(list, params, optim, &params->graph->layers[i]);
    double lr = lk__optim_lr(optim);
    item it = {.suffix = "the learning rate"};
    memcpy(&it.value, &lr, sizeof lr);
    add_item(list, it);
    add_item(list, (item){.suffix = "the optimiser's count of steps", .value = lk__optim_steps(optim)});
}

static void name_item(const item *it, char *text, size_t bytes)
{
    char key[LK_MAX_KEY];
    snprintf(key, sizeof key, "%s", it->suffix);
    if (it->layer)
        lk__op_slot_key(it->layer, it->suffix, key);
    if (it->state)
        snprintf(text, bytes, "%s (%s)", key, it->state);
    else
        snprintf(text, bytes, "%s", key);
}

/* Bytes that are downloaded and hashed at a time, so that they stay in the cache. Host memory is hashed
 * directly, in the same pieces, so that the hashes are equal. */
enum { PIECE = 64 * 1024 };

static lk_status hash_item(lk_device *dev, const item *it, uint8_t *piece, uint64_t *out)
{
    uint64_t hash = it->data ? 0 : lk__hash(&it->value, sizeof it->value, 0);
    for (size_t at = 0; at < it->bytes; at += PIECE) {
        size_t bytes = lk__size_min(PIECE, it->bytes - at);
        const uint8_t *data = (const uint8_t *)it->data + at;
        if (!dev->type->host_memory)
            LK_TRY(dev->type->download(dev, data, bytes, piece));
        hash = lk__hash(dev->type->host_memory ? data : piece, bytes, hash);
    }
    *out = hash;
    return LK_OK;
}

static lk_status hash_items(lk_device *dev, const item_list *list, uint64_t *hashes)
{
    uint8_t *piece;
    LK_TRY(LK_ALLOC(PIECE, "a piece of the parameters", &piece));
    lk_status status;
    LK_TRY_GOTO(dev->type->sync(dev), free_piece);
    for (size_t i = 0; i < list->count; i++)
        LK_TRY_GOTO(hash_item(dev, &list->at[i], piece, &hashes[i]), free_piece);

free_piece:
    lk__mem_free(piece);
    return status;
}

/* Everything that the description of a difference needs. */
typedef struct findings {
    const item_list *list;
    int size, stage, stages;
    uint64_t step;
    const uint64_t *totals; /* (size) */
    const uint64_t *hashes; /* (size, items) */
} findings;

static int count_equal(const findings *f, int rank)
{
    int count = 0;
    for (int r = 0; r < f->size; r++)
        count += f->totals[r] == f->totals[rank];
    return count;
}

/* Finds the state that most ranks have; false if several states are equally frequent. */
static bool find_most(const findings *f, uint64_t *out)
{
    int best = 0;
    for (int r = 1; r < f->size; r++)
        best = count_equal(f, r) > count_equal(f, best) ? r : best;
    for (int r = 0; r < f->size; r++) {
        if (f->totals[r] != f->totals[best] && count_equal(f, r) == count_equal(f, best))
            return false;
    }
    *out = f->totals[best];
    return true;
}

/* "rank 2 differs from the other replicas", or "ranks 0 and 1 differ". */
static lk_status name_ranks(const findings *f, char *text, size_t bytes)
{
    uint64_t most = 0;
    bool known = find_most(f, &most);
    int marks = f->size * f->stages, odd = 0;
    uint8_t *marked;
    LK_TRY(LK_ALLOC((size_t)marks, "ranks that differ", &marked));
    for (int r = 0; r < f->size; r++) {
        bool differs = !known || f->totals[r] != most;
        marked[r * f->stages + f->stage] = differs;
        odd += differs;
    }
    size_t used = lk__text_list("rank", marked, marks, text, bytes);
    if (used < bytes)
        snprintf(text + used, bytes - used, " differ%s%s", odd == 1 ? "s" : "",
                 known ? " from the other replicas" : "");
    lk__mem_free(marked);
    return LK_OK;
}

static bool item_differs(const findings *f, size_t i)
{
    for (int r = 1; r < f->size; r++) {
        if (f->hashes[(size_t)r * f->list->count + i] != f->hashes[i])
            return true;
    }
    return false;
}

/* "conv1.weight, conv1.bias, bn1.weight and 7 more". */
static void name_items(const findings *f, char *text, size_t bytes)
{
    enum { NAMED = 3 };
    size_t count = 0, listed = 0, used = 0;
    for (size_t i = 0; i < f->list->count; i++)
        count += item_differs(f, i);
    for (size_t i = 0; i < f->list->count && listed < NAMED && used < bytes; i++) {
        char name[LK_MAX_KEY + 32];
        if (!item_differs(f, i))
            continue;
        name_item(&f->list->at[i], name, sizeof name);
        const char *joint = listed == 0 ? "" : listed == count - 1 ? " and " : ", ";
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", joint, name);
        listed++;
    }
    if (count > listed && used < bytes)
        snprintf(text + used, bytes - used, " and %zu more", count - listed);
}

static lk_status describe(const findings *f)
{
    char ranks[256], items[3 * (LK_MAX_KEY + 48)] = "";
    LK_TRY(name_ranks(f, ranks, sizeof ranks));
    name_items(f, items, sizeof items);
    return lk__fail(LK_STATUS_MISMATCH,
                    "step %llu: %s in %s; replicas must be equal to the bit. Unless the program itself changed one, "
                    "suspect the memory of that machine",
                    (unsigned long long)f->step, ranks, items);
}

static bool all_equal(const uint64_t *totals, int size)
{
    for (int r = 1; r < size; r++) {
        if (totals[r] != totals[0])
            return false;
    }
    return true;
}

static lk_status exchange(lk_group *group, uint64_t *mine, size_t count, uint64_t *all)
{
    return lk_allgather(group, (lk_buffer){mine, count, LK_DTYPE_I64}, NULL, all, NULL);
}

/* `hashes` begins with the hashes of this rank; after them is room for the hashes of all ranks. */
static lk_status compare(lk_group *group, findings f, uint64_t *hashes)
{
    uint64_t *totals;
    LK_TRY(LK_ALLOC((size_t)f.size, "hashes of replicas", &totals));
    uint64_t total = lk__hash(hashes, f.list->count * sizeof *hashes, 0);
    lk_status status;
    LK_TRY_GOTO(exchange(group, &total, 1, totals), free_totals);
    if (all_equal(totals, f.size))
        goto free_totals;
    LK_TRY_GOTO(exchange(group, hashes, f.list->count, hashes + f.list->count), free_totals);
    f.totals = totals;
    f.hashes = hashes + f.list->count;
    status = describe(&f);

free_totals:
    lk__mem_free(totals);
    return status;
}

lk_status lk__replicas_compare(lk_group *group, const lk_params *params, const lk_optim *optim, uint64_t step,
                               int stage, int stages)
{
    findings f = {.size = lk_group_size(group), .stage = stage, .stages = stages, .step = step};
    if (f.size == 1)
        return LK_OK;
    item_list list = {0};
    uint64_t *hashes = NULL;
    add_all(&list, params, optim);
    LK_TRY(LK_ALLOC(list.count, "list of tensors", &list.at));
    list.count = 0;
    add_all(&list, params, optim);
    f.list = &list;
    lk_status status;
    LK_TRY_GOTO(LK_ALLOC(list.count * ((size_t)f.size + 1), "hashes of tensors", &hashes), free_list);
    LK_TRY_GOTO(hash_items(params->dev, &list, hashes), free_list);
    LK_TRY_GOTO(compare(group, f, hashes), free_list);

free_list:
    lk__mem_free(hashes);
    lk__mem_free(list.at);
    return status;
}
