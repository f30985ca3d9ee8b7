/* keep.c - checkpoints of a run: rank 0 copies the engine's states between two steps, and the saver's thread
 * writes them while training continues. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/spec.h"
#include "base/trace.h"
#include "parallel/engine/engine.h"
#include "train/run.h"

const char lk__train_run_note[] = "run";
static const char seconds_note[] = "run-seconds";

double lk__run_earlier(const lk_train_run *run)
{
    const lk_checkpoint *resume = run->shared->resume;
    const char *name = resume ? lk_checkpoint_note(resume, lk__train_run_note) : NULL;
    const char *text = resume ? lk_checkpoint_note(resume, seconds_note) : NULL;
    double seconds;
    bool same = name && run->rank->run_name && strcmp(name, run->rank->run_name) == 0;
    return same && text && lk__number_parse_double(text, &seconds) && seconds > 0 ? seconds : 0;
}

/* The run folder and the time. Checkpoints without a run folder have neither: equal runs save equal bytes. */
static lk_status note_run(const lk_train_run *run, lk_checkpoint *checkpoint)
{
    char text[64];
    if (!run->rank->run_name)
        return LK_OK;
    snprintf(text, sizeof text, "%a", run->earlier + lk__clock() - run->began);
    LK_TRY(lk_checkpoint_set_note(checkpoint, lk__train_run_note, run->rank->run_name));
    return lk_checkpoint_set_note(checkpoint, seconds_note, text);
}

static lk_status make_checkpoint(const lk_train_run *run, lk_state *model, lk_state *optimizer, lk_checkpoint **out)
{
    lk_checkpoint *checkpoint;
    lk_status status;
    LK_TRY(lk_checkpoint_create(model, optimizer, &checkpoint));
    LK_TRY_GOTO(lk__train_describe(run->opts, run->shared, model), destroy_checkpoint);
    LK_TRY_GOTO(lk__position_note(&run->at, checkpoint), destroy_checkpoint);
    LK_TRY_GOTO(lk__train_options_note(run->rank, &run->effective, checkpoint), destroy_checkpoint);
    LK_TRY_GOTO(lk__device_notes_add(run->rank->device, checkpoint), destroy_checkpoint);
    LK_TRY_GOTO(note_run(run, checkpoint), destroy_checkpoint);
    *out = checkpoint;
    return LK_OK;

destroy_checkpoint:
    lk_checkpoint_destroy(checkpoint);
    return status;
}

/* Collective over the stages of replica 0, which exchange their parts; rank 0 is one of them. */
static lk_status copy_states(lk_train_run *run, lk_state **model, lk_state **optimizer)
{
    lk_state *first;
    LK_TRY(lk__run_collective_result(run, lk_engine_state(run->engine, &first)));
    lk_status status = lk__run_collective_result(run, lk_engine_optimizer_state(run->engine, optimizer));
    if (status == LK_OK)
        *model = first;
    else
        lk_state_destroy(first);
    return status;
}

static lk_status put(lk_train_run *run, lk_state *model, lk_state *optimizer, bool best)
{
    lk_checkpoint *checkpoint;
    LK_TRY(make_checkpoint(run, model, optimizer, &checkpoint));
    return lk__saver_put(run->shared->saver, checkpoint, run->at.step, best);
}

static bool same_position(const lk_position *a, const lk_position *b)
{
    return a->step == b->step && a->tested == b->tested;
}

/* NULL except at rank 0. */
static lk_saver *saver_of(const lk_train_run *run)
{
    return run->self.rank == 0 ? run->shared->saver : NULL;
}

static lk_status emit_saved(lk_train_run *run, bool wait)
{
    lk_saver *saver = saver_of(run);
    lk_saver_saved saved;
    bool done = false;
    if (!saver)
        return LK_OK;
    LK_TRY(lk__run_own_result(run, (wait ? lk__saver_wait : lk__saver_poll)(saver, &done, &saved)));
    snprintf(run->result.checkpoint, sizeof run->result.checkpoint, "%s", lk__saver_last(saver));
    if (!done || !run->hooks->saved)
        return LK_OK;
    lk_train_saved event = {.run = run,
                            .path = saved.path,
                            .step = (size_t)saved.step,
                            .best = saved.best,
                            .again = saved.again,
                            .seconds = saved.seconds};
    run->hooks->saved(run->hooks->arg, &event);
    return lk__run_asked(run);
}

lk_status lk__run_saved(lk_train_run *run)
{
    return emit_saved(run, false);
}

/* Writing may take longer than the timeout of a collective call. So the ranks poll with short collective
 * calls, which also notice a rank that dies. */
lk_status lk__run_await_saved(lk_train_run *run)
{
    static const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    if (!run->opts->checkpoint || !run->rank->group)
        return emit_saved(run, true);
    for (;;) {
        lk_saver *saver = saver_of(run);
        int64_t busy = saver && lk__saver_writing(saver) > 0;
        LK_TRY(emit_saved(run, false));
        LK_TRY(lk__run_collective_result(
            run, lk_allreduce(run->rank->group, (lk_buffer){&busy, 1, LK_DTYPE_I64}, LK_REDUCTION_MAX, NULL)));
        if (!busy)
            return LK_OK;
        nanosleep(&pause, NULL);
    }
}

lk_status lk__run_check(lk_train_run *run)
{
    LK_TRY(lk__run_collective_result(run, lk_engine_check(run->engine)));
    run->at.agreed = (size_t)lk__engine_equal_at(run->engine);
    return LK_OK;
}

/* Copies the states, then compares the replicas, so that a bit that changes in between is found. Only rank 0
 * writes; the other ranks of replica 0 take part in the copy. */
static lk_status save(lk_train_run *run, bool best, bool compare)
{
    lk_state *model = NULL, *optimizer = NULL;
    lk_status status = run->self.layout.replica > 0 ? LK_OK : copy_states(run, &model, &optimizer);
    if (status == LK_STATUS_MEMORY)
        return lk__fail(status, "cannot save a checkpoint of step %zu, which takes a copy of all that is learned: %s",
                        run->at.step, lk_error_detail());
    LK_TRY(status);
    if (compare)
        status = lk__run_check(run);
    if (status == LK_OK && run->self.rank == 0)
        return lk__run_own_result(run, put(run, model, optimizer, best));
    lk_state_destroy(model);
    lk_state_destroy(optimizer);
    return status;
}

static bool is_new(const lk_train_run *run)
{
    return run->opts->checkpoint && run->at.step > 0 && !same_position(&run->at, &run->saved);
}

lk_status lk__run_save(lk_train_run *run, bool best)
{
    if (!is_new(run))
        return LK_OK;
    double traced = lk__trace_begin();
    LK_TRY(lk__run_await_saved(run)); /* the previous checkpoint */
    LK_TRY(save(run, best, true));
    run->saved = run->at;
    lk__trace_end(LK_TRACE_KIND_SAVE, "save", (int)run->at.step, traced);
    return LK_OK;
}

lk_status lk__run_save_without_peers(lk_train_run *run)
{
    if (!is_new(run))
        return LK_OK;
    LK_TRY(save(run, false, false));
    run->saved = run->at;
    return emit_saved(run, true);
}

/* Sets later checkpoints aside, and writes what was done, for the end of a sentence. */
static void describe_distrust(lk_saver *saver, uint64_t last, char text[LK_CHECKPOINT_PATH + 128])
{
    const size_t bytes = LK_CHECKPOINT_PATH + 128;
    char example[LK_CHECKPOINT_PATH];
    size_t count = 0;
    if (lk__saver_distrust(saver, last, &count, example) != LK_OK)
        snprintf(text, bytes, "; checkpoints after that step could not be set aside: %s. Remove them",
                 lk_error_detail());
    else if (count > 1)
        snprintf(text, bytes, "; %zu checkpoints after that step are set aside, as %s", count, example);
    else if (count > 0)
        snprintf(text, bytes, "; the checkpoint after that step is set aside, as %s", example);
}

lk_status lk__run_distrust(lk_train_run *run, lk_status failure)
{
    char why[LK_DETAIL_BYTES], aside[LK_CHECKPOINT_PATH + 128] = "";
    lk_saver *saver = saver_of(run);
    if (!saver)
        return failure;
    snprintf(why, sizeof why, "%s", lk_error_detail());
    describe_distrust(saver, lk__engine_equal_at(run->engine), aside);
    return lk__fail(failure, "%s%s", why, aside);
}
