/* own_loss.c - the table of losses by name: the library's own, then those that the program has registered. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "nn/op.h"
#include "tensor/scores.h"

/* The first field of a row is its op, so a layer's op leads to the row. */
typedef struct own_loss {
    lk_op op;
    lk_loss_def def;
} own_loss;

enum { MOST = 64 };

/* Rows are added, never changed: readers need no lock. */
static own_loss rows[MOST];
static atomic_int count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const lk_op *const library[] = {
    &lk__op_cross_entropy,        &lk__op_nll_loss,           &lk__op_mse_loss, &lk__op_l1_loss,
    &lk__op_bce_with_logits_loss, &lk__op_soft_cross_entropy,
};
enum { LIBRARY = sizeof library / sizeof *library };

/* Losses that lk_loss does not build, because they have a parameter. */
static const char *const taken[] = {"huber_loss", "smooth_l1_loss"};

static const lk_loss_def *def_of(const lk_layer *layer)
{
    return &((const own_loss *)(const void *)layer->op)->def;
}

static size_t targets(const lk_layer *layer)
{
    size_t floats = def_of(layer)->target_floats;
    return floats == LK_TARGETS_AS_X ? lk__shape_sample(layer->shape) : floats;
}

static lk_status infer(const lk_graph *graph, lk_layer *layer)
{
    layer->shape = lk__op_input_shape(graph, layer, 0);
    if (layer->op->targets && targets(layer) > LK_RNG_MAX_ELEMENT)
        return lk__fail(LK_STATUS_USAGE, "layer %d: targets of loss '%s' have %zu floats, more than 2^34", layer->index,
                        layer->op->name, targets(layer));
    return LK_OK;
}

static lk_status supports(const lk_device *dev, const lk_layer *layer)
{
    if (dev->type->host_memory || def_of(layer)->cuda)
        return LK_OK;
    return lk__fail(LK_STATUS_UNSUPPORTED,
                    "layer %d: loss '%s' has no function for %s: set `cuda` of its lk_loss_def, or compute on the CPU "
                    "(`device` cpu)",
                    layer->index, layer->op->name, dev->type->name);
}

static size_t scratch(lk_device *dev, const lk_layer *layer, lk_shape x, lk_shape y)
{
    (void)layer, (void)y;
    return dev->kernels->target_loss_scratch(dev, LK_LOSS_KIND_OWN, x);
}

static void forward(const lk_op_call *call)
{
    lk__op_run_target_loss(call, LK_LOSS_KIND_OWN, def_of(call->layer));
}

static const lk_op *find(const char *name)
{
    for (int i = 0; i < LIBRARY; i++)
        if (strcmp(library[i]->name, name) == 0)
            return library[i];
    for (int i = 0; i < atomic_load(&count); i++)
        if (strcmp(rows[i].op.name, name) == 0)
            return &rows[i].op;
    return NULL;
}

static bool is_taken(const char *name)
{
    bool found = find(name) != NULL;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        found = found || strcmp(taken[i], name) == 0;
    return found;
}

static lk_status add_row(const lk_loss_def *def)
{
    int at = atomic_load(&count);
    char *name;
    if (is_taken(def->name))
        return lk__fail(LK_STATUS_USAGE, "there is a loss named '%s'; give another `name`", def->name);
    if (at == MOST)
        return lk__fail(LK_STATUS_USAGE, "loss '%s': this process has registered %d losses, and more are not possible",
                        def->name, MOST);
    LK_TRY(lk__mem_copy_text(def->name, "a name", &name));
    rows[at].def = *def;
    rows[at].def.name = name;
    rows[at].op = (lk_op){.name = name,
                          .infer = infer,
                          .supports = supports,
                          .scratch = scratch,
                          .forward = forward,
                          .is_loss = true,
                          .targets = def->target_floats ? targets : NULL};
    atomic_store(&count, at + 1);
    return LK_OK;
}

lk_status lk_loss_register(const lk_loss_def *def)
{
    LK_TRY(LK_GIVEN(def));
    LK_TRY(LK_CLEAR(def, "lk_loss_def"));
    LK_TRY(LK_GIVEN(def->name));
    LK_TRY(LK_GIVEN(def->sample));
    if (!*def->name || strlen(def->name) >= LK_MAX_NAME)
        return lk__fail(LK_STATUS_USAGE, "the `name` of a loss must have 1 to %d characters, got '%s'", LK_MAX_NAME - 1,
                        def->name);
    pthread_mutex_lock(&lock);
    lk_status status = add_row(def);
    pthread_mutex_unlock(&lock);
    return status;
}

lk_node lk_loss(lk_graph *graph, lk_node x, const char *name)
{
    if (!graph || graph->status != LK_OK)
        return (lk_node){.index = -1};
    lk_status given = LK_GIVEN(name);
    if (given != LK_OK)
        return lk__graph_reject(graph, given);
    const lk_op *op = find(name);
    if (!op)
        return lk__graph_reject(graph, lk__fail(LK_STATUS_USAGE,
                                                "there is no loss '%s'; lk_loss_register adds one, and "
                                                "losses with a parameter have builders of their own",
                                                name));
    return lk__graph_add_layer(graph, (lk_layer){.op = op}, NULL, &x, 1);
}

lk_status lk__op_own_loss(const char *loss, const lk_loss_def **out)
{
    for (int i = 0; i < atomic_load(&count); i++) {
        if (strcmp(rows[i].op.name, loss) != 0)
            continue;
        *out = &rows[i].def;
        return LK_OK;
    }
    return lk__fail(LK_STATUS_NOT_FOUND, "no loss '%s' is registered in this process; call lk_loss_register first",
                    loss);
}

int32_t lk_loss_label_rank(void *arg, const float *x, size_t floats, int32_t label, const float *target,
                           size_t target_floats)
{
    (void)arg;
    if (!x || floats == 0 || (target_floats > 0 && (!target || target_floats != floats)))
        return -1;
    size_t right = target_floats ? lk__scores_largest(target, floats) : (size_t)label;
    return right < floats ? lk__scores_label_rank(x, floats, right) : -1;
}
