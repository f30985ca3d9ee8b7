/* moves.c - moves shards from slow ranks to fast ones while a run goes on: measures the steps of this rank, exchanges
 * the times every LK_BALANCE_WINDOW steps, and moves where balance.c finds it worth while. No bit depends on it. */
#include "base/clock.h"
#include "base/median.h"
#include "base/mem.h"
#include "data/loader/loader.h"
#include "parallel/engine/move.h"
#include "train/run.h"

lk_status lk__run_moves_open(lk_train_run *run)
{
    lk_run_moves *moves = &run->moves;
    size_t replicas = (size_t)run->self.layout.replicas;
    run->share = run->self.share;
    /* With a shard for each replica, nothing can move. */
    if (run->opts->balance == LK_BALANCE_MODE_EVEN || (size_t)run->opts->shards <= replicas ||
        !lk__engine_can_move(run->engine))
        return LK_OK;
    LK_TRY(lk__balance_init(&moves->balance, run->opts->shards, (int)replicas));
    LK_TRY(LK_ALLOC(replicas, "the replicas' times", &moves->all));
    LK_TRY(LK_ALLOC(replicas + 1, "shards", &moves->next));
    moves->on = true;
    return LK_OK;
}

void lk__run_moves_close(lk_train_run *run)
{
    lk__balance_fini(&run->moves.balance);
    lk__mem_free(run->moves.all);
    lk__mem_free(run->moves.next);
}

/* Adds the last step to the window, if it is a whole batch; returns whether the window is full. */
static bool add_step(lk_train_run *run, size_t total)
{
    lk_run_moves *moves = &run->moves;
    double own = run->use.phases.data + run->use.phases.compute, now = lk__clock();
    if (moves->at > 0 && total == lk__run_batch(run)) {
        moves->own[moves->count] =
            run->hooks->step_time ? run->hooks->step_time(run->hooks->arg, run->share) : own - moves->own_at;
        moves->whole[moves->count++] = now - moves->at;
    }
    moves->own_at = own;
    moves->at = now;
    return moves->count == LK_BALANCE_WINDOW;
}

/* Collective: moves to moves->next. Without the memory for it, no further move is tried. */
static lk_status move(lk_train_run *run)
{
    lk_run_moves *moves = &run->moves;
    bool moved = false;
    LK_TRY(lk__run_collective_result(run, lk__engine_move_shards(run->engine, moves->next, &moved)));
    moves->on = moved;
    moves->at = 0; /* the next step is slower: its batch is made again, and memory that has grown is touched first */
    if (!moved)
        return LK_OK;
    run->share = lk__engine_train_range(run->engine);
    run->result.moves++;
    return lk__run_own_result(run, lk__loader_set_share(run->loader, run->share));
}

lk_status lk__run_moves_step(lk_train_run *run, size_t total)
{
    lk_run_moves *moves = &run->moves;
    if (!moves->on || run->under_way > 0 || !add_step(run, total))
        return LK_OK;
    /* A single step that was disturbed, by a save or by another program, does not change a median. */
    lk_balance_times mine = {.own = lk__median(moves->own, LK_BALANCE_WINDOW),
                             .whole = lk__median(moves->whole, LK_BALANCE_WINDOW)};
    enum { NUMBERS = sizeof mine / sizeof(double) };
    moves->count = 0;
    LK_TRY(lk__run_collective_result(
        run, lk_allgather(run->rank->group, (lk_buffer){&mine, NUMBERS, LK_DTYPE_F64}, NULL, moves->all, NULL)));
    const int *now = lk__engine_train_bounds(run->engine);
    return lk__balance_decide(&moves->balance, moves->all, now, moves->next) ? move(run) : LK_OK;
}
