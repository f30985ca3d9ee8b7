/* room.c - memory of inputs and results, which grows with the largest batch. An evaluation may have more samples than a
 * training batch. */
#include "parallel/step/room.h"

#include "base/mem.h"

/* All memory whose size depends on the number of samples. */
typedef struct blocks {
    void *inputs, *losses, *label_ranks, *errors; /* device */
    float *host_losses, *host_errors;
    int32_t *host_label_ranks;
} blocks;

static void free_blocks(lk_device *dev, const blocks *b)
{
    dev->type->free(dev, b->inputs);
    dev->type->free(dev, b->losses);
    dev->type->free(dev, b->label_ranks);
    dev->type->free(dev, b->errors);
    lk__mem_free(b->host_errors);
    lk__mem_free(b->host_losses);
    lk__mem_free(b->host_label_ranks);
}

static lk_status alloc_blocks(const lk_engine *engine, size_t n, blocks *b)
{
    lk_device *dev = engine->dev;
    size_t all = lk__size_max(n, engine->opts.batch), errors = engine->target_floats ? 2 * n : 0;
    size_t inputs = lk__engine_input_bytes(engine, n) + n * sizeof(float);
    LK_TRY(dev->type->alloc(dev, inputs, "the step", &b->inputs));
    LK_TRY(dev->type->alloc(dev, all * sizeof *engine->losses, "losses", &b->losses));
    LK_TRY(dev->type->alloc(dev, n * sizeof *engine->label_ranks, "results", &b->label_ranks));
    if (errors) {
        LK_TRY(dev->type->alloc(dev, errors * sizeof *engine->errors, "results", &b->errors));
        LK_TRY(LK_ALLOC(errors, "results", &b->host_errors));
    }
    LK_TRY(LK_ALLOC(n, "losses", &b->host_losses));
    return LK_ALLOC(n, "results", &b->host_label_ranks);
}

static void set_blocks(lk_engine *engine, const blocks *b)
{
    engine->inputs = b->inputs;
    engine->losses = b->losses;
    engine->label_ranks = b->label_ranks;
    engine->errors = b->errors;
    engine->host_errors = b->host_errors;
    engine->host_losses = b->host_losses;
    engine->host_label_ranks = b->host_label_ranks;
}

lk_status lk__engine_ensure_room(lk_engine *engine, size_t n)
{
    blocks grown = {0};
    n = lk__size_max(n, 1);
    if (n <= engine->room)
        return LK_OK;
    lk_status status = alloc_blocks(engine, n, &grown);
    if (status != LK_OK) {
        free_blocks(engine->dev, &grown);
        return status;
    }
    lk__engine_free_room(engine);
    set_blocks(engine, &grown);
    engine->room = n;
    lk__optim_set_scalars(engine->optim, engine->inputs->scalars);
    return LK_OK;
}

void lk__engine_free_room(lk_engine *engine)
{
    free_blocks(engine->dev, &(blocks){.inputs = engine->inputs,
                                       .losses = engine->losses,
                                       .label_ranks = engine->label_ranks,
                                       .errors = engine->errors,
                                       .host_losses = engine->host_losses,
                                       .host_errors = engine->host_errors,
                                       .host_label_ranks = engine->host_label_ranks});
    set_blocks(engine, &(blocks){0});
    engine->room = 0;
}
