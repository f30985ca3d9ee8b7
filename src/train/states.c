/* states.c - what rank 0 wants for all ranks; the events of states, copies of the whole model and its gradient. */
#include "train/run.h"

lk_status lk__run_states_open(lk_train_run *run)
{
    bool before = run->hooks->before_step != NULL;
    int64_t wishes[] = {run->hooks->state != NULL, (int64_t)run->hooks->norm_every, before};
    lk_group *group = run->rank->group;
    if (group)
        LK_TRY(lk__run_collective_result(run, lk_broadcast(group, (lk_buffer){wishes, 3, LK_DTYPE_I64}, 0, NULL)));
    if (before != (wishes[2] != 0)) /* the ranks would send steps in different orders */
        return lk__run_own_result(run, lk__fail(LK_STATUS_MISMATCH,
                                                "rank %d has %s `before_step`, unlike rank 0: all ranks must have it, "
                                                "or none",
                                                run->self.rank, before ? "a" : "no"));
    run->states = wishes[0] != 0;
    run->norm_every = (size_t)wishes[1];
    return LK_OK;
}

/* Collective over the stages of the first replica. */
static lk_status copy_states(lk_train_run *run, bool grads, lk_state **model, lk_state **gradient)
{
    LK_TRY(lk__run_collective_result(run, lk_engine_state(run->engine, model)));
    return grads ? lk__run_collective_result(run, lk_engine_grads(run->engine, gradient)) : LK_OK;
}

lk_status lk__run_emit_state(lk_train_run *run, lk_train_moment moment)
{
    lk_state *model = NULL, *grads = NULL;
    if (!run->states || run->self.layout.replica > 0)
        return LK_OK;
    lk_status status = copy_states(run, moment == LK_TRAIN_MOMENT_EPOCH, &model, &grads);
    if (status == LK_OK && run->self.rank == 0)
        run->hooks->state(run->hooks->arg,
                          &(lk_train_state){.moment = moment, .step = run->at.step, .model = model, .grads = grads});
    lk_state_destroy(grads);
    lk_state_destroy(model);
    return status;
}
