/* state.c - exporting and importing an engine's parameters, buffers, gradients and optimiser state. */
#include <float.h>
#include <stdio.h>
#include <string.h>

#include "parallel/engine/engine.h"
#include "parallel/layout/replicas.h"
#include "parallel/step/engine_impl.h"
#include "tensor/state.h"

/* The bytes of a key are zero at all stages but one, so
 * their sum as integers has the bytes of that stage. */
static lk_status gather(const lk_engine *engine, lk_state *state)
{
    for (size_t i = 0; engine->grid.pipeline && i < lk_state_count(state); i++) {
        const lk_state_entry *entry = lk_state_at(state, i);
        LK_TRY(lk_allreduce(engine->grid.pipeline, (lk_buffer){entry->data, entry->bytes, LK_DTYPE_U8},
                            LK_REDUCTION_SUM, NULL));
    }
    return LK_OK;
}

/* Gives every stage the tensors of all stages; destroys the state on failure. */
static lk_status gather_out(const lk_engine *engine, lk_state *state, lk_state **out)
{
    return lk__state_hand_over(gather(engine, state), state, out);
}

lk_status lk__engine_export(const lk_engine *engine, const lk_params *params, lk_state **out)
{
    lk_state *state;
    LK_TRY(lk__params_export(params, &state));
    return gather_out(engine, state, out);
}

static lk_status export_grads(const lk_engine *engine, lk_state **out)
{
    lk_state *state;
    LK_TRY(lk__params_export_grads(engine->params, &state));
    return gather_out(engine, state, out);
}

lk_status lk_engine_state(const lk_engine *engine, lk_state **out)
{
    LK_TRY(LK_GIVEN(engine));
    LK_TRY(LK_GIVEN(out));
    LK_TRY(lk__engine_enter_idle(engine));
    return lk__engine_leave(engine,
                            lk__engine_abort_on_failure(engine, lk__engine_export(engine, engine->params, out)));
}

lk_status lk_engine_grads(const lk_engine *engine, lk_state **out)
{
    LK_TRY(LK_GIVEN(engine));
    LK_TRY(LK_GIVEN(out));
    LK_TRY(lk__engine_enter_idle(engine));
    if (!engine->has_grads)
        return lk__engine_leave(
            engine,
            lk__fail(LK_STATUS_USAGE,
                     "no gradients are there; lk_engine_gradients or lk_engine_step must have succeeded before"));
    return lk__engine_leave(engine, lk__engine_abort_on_failure(engine, export_grads(engine, out)));
}

static lk_status set_state(lk_engine *engine, const lk_state *state)
{
    LK_TRY(lk__params_import(engine->params, state));
    return engine->grid.sums ? lk__replicas_start(engine->grid.sums, engine->params) : LK_OK;
}

lk_status lk__engine_check_state(const lk_engine *engine, const lk_state *state)
{
    return lk__params_check(engine->params, state);
}

lk_status lk_engine_set_state(lk_engine *engine, const lk_state *state)
{
    LK_TRY(LK_GIVEN(engine));
    LK_TRY(LK_GIVEN(state));
    LK_TRY(lk__engine_enter_idle(engine));
    return lk__engine_leave(engine, lk__engine_abort_on_failure(engine, set_state(engine, state)));
}

/* The optimiser's numbers, which are equal at all stages. */
static const size_t two = 2;
static const struct number {
    lk_params_key key;
    size_t offset; /* in lk_optim_numbers */
} numbers[] = {
    {{.name = "steps", .dtype = LK_DTYPE_I64}, offsetof(lk_optim_numbers, steps)},
    {{.name = "lr", .dtype = LK_DTYPE_F64}, offsetof(lk_optim_numbers, lr)},
    {{.name = "powers", .dtype = LK_DTYPE_F64, .ndim = 1, .dims = &two}, offsetof(lk_optim_numbers, powers)},
};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static lk_status export_numbers(const lk_optim *optim, lk_state *state)
{
    lk_optim_numbers values = lk__optim_numbers(optim);
    for (size_t i = 0; i < NUMBERS; i++) {
        const lk_params_key *key = &numbers[i].key;
        lk_state_entry *entry;
        LK_TRY(lk_state_add(state, key->name, key->dtype, key->ndim, key->dims, &entry));
        memcpy(entry->data, (const char *)&values + numbers[i].offset, entry->bytes);
    }
    return LK_OK;
}

static lk_params_array array_at(const lk_optim *optim, size_t i)
{
    return (lk_params_array){.name = lk__optim_state_name(optim, i), .data = lk__optim_state(optim, i)};
}

static lk_status export_optim(const lk_engine *engine, lk_state *state)
{
    for (size_t i = 0; i < lk__optim_states(engine->optim); i++)
        LK_TRY(lk__params_export_array(engine->params, array_at(engine->optim, i), state));
    LK_TRY(gather(engine, state));
    return export_numbers(engine->optim, state);
}

static lk_status optimizer_state(const lk_engine *engine, lk_state **out)
{
    lk_state *state;
    LK_TRY(lk_state_create(&state));
    lk_status status = export_optim(engine, state);
    return lk__state_hand_over(status, state, out);
}

lk_status lk_engine_optimizer_state(const lk_engine *engine, lk_state **out)
{
    LK_TRY(LK_GIVEN(engine));
    LK_TRY(LK_GIVEN(out));
    LK_TRY(lk__engine_enter_idle(engine));
    return lk__engine_leave(engine, lk__engine_abort_on_failure(engine, optimizer_state(engine, out)));
}

static bool is_known(const lk_engine *engine, const char *key)
{
    for (size_t i = 0; i < NUMBERS; i++) {
        if (strcmp(numbers[i].key.name, key) == 0)
            return true;
    }
    for (size_t i = 0; i < lk__optim_states(engine->optim); i++) {
        if (lk__params_array_has(engine->params, lk__optim_state_name(engine->optim, i), key))
            return true;
    }
    return false;
}

static lk_status check_unknown(const lk_engine *engine, const lk_state *state, const char *owner)
{
    for (size_t i = 0; i < lk_state_count(state); i++) {
        const char *key = lk_state_at(state, i)->name;
        if (!is_known(engine, key))
            return lk__fail(LK_STATUS_MISMATCH, "the state has a key '%s' that %s does not know", key, owner);
    }
    return LK_OK;
}

static lk_status check_keys(const lk_engine *engine, const lk_state *state)
{
    char owner[64];
    size_t known = NUMBERS;
    snprintf(owner, sizeof owner, "the optimiser %s", lk__optim_name(engine->optim));
    for (size_t i = 0; i < NUMBERS; i++)
        LK_TRY(lk__params_key_check(&numbers[i].key, state, owner));
    for (size_t i = 0; i < lk__optim_states(engine->optim); i++)
        LK_TRY(lk__params_check_array(engine->params, lk__optim_state_name(engine->optim, i), state, owner, &known));
    return known < lk_state_count(state) ? check_unknown(engine, state, owner) : LK_OK;
}

static lk_status check_numbers(const lk_optim_numbers *values)
{
    if (values->steps > UINT32_MAX)
        return lk__fail(LK_STATUS_MISMATCH, "key 'steps' is %lld, not in 0 to %u", (long long)values->steps,
                        UINT32_MAX);
    if (!(values->lr >= 0 && values->lr <= FLT_MAX))
        return lk__fail(LK_STATUS_MISMATCH, "key 'lr' is %g; a learning rate is a number not below 0", values->lr);
    for (size_t i = 0; i < two; i++) {
        if (!(values->powers[i] >= 0 && values->powers[i] <= 1))
            return lk__fail(LK_STATUS_MISMATCH, "key 'powers' has a %g, not in 0 to 1", values->powers[i]);
    }
    return LK_OK;
}

/* Finishes all checks before it replaces anything. */
static lk_status import_optim(lk_engine *engine, const lk_state *state)
{
    lk_optim_numbers values;
    LK_TRY(check_keys(engine, state));
    for (size_t i = 0; i < NUMBERS; i++) {
        const lk_state_entry *entry = lk_state_find(state, numbers[i].key.name);
        memcpy((char *)&values + numbers[i].offset, entry->data, entry->bytes);
    }
    LK_TRY(check_numbers(&values));
    for (size_t i = 0; i < lk__optim_states(engine->optim); i++)
        LK_TRY(lk__params_import_array(engine->params, state, array_at(engine->optim, i)));
    lk__optim_set_numbers(engine->optim, &values);
    /* The present gradients belong to another number of steps. */
    engine->ready = false;
    if (engine->grid.sums)
        LK_TRY(lk__replicas_start_optim(engine->grid.sums, engine->params, engine->optim));
    engine->equal_at = lk__optim_steps(engine->optim);
    return LK_OK;
}

lk_status lk_engine_set_optimizer_state(lk_engine *engine, const lk_state *state)
{
    LK_TRY(LK_GIVEN(engine));
    LK_TRY(LK_GIVEN(state));
    LK_TRY(lk__engine_enter_idle(engine));
    return lk__engine_leave(engine, lk__engine_abort_on_failure(engine, import_optim(engine, state)));
}
