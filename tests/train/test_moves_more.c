/* test_moves_more.c - the measured time moves shards: a fault makes rank 1 sleep in each step for so long that the work
 * of the other rank, some milliseconds, is nothing beside it on any machine. The run ends after the first move. */
#include <stdlib.h>

#include "tiny.h"
#include "train/run.h"

enum { RANKS = 2, MOST_STEPS = 60 };

static void stop_after_move(void *arg, const lk_train_step *step)
{
    on_step(arg, step);
    if (step->run->result.moves > 0)
        lk_train_stop(step->run);
}

static lk_train_outcome run_ranks(const lk_train_opts *opts, record *told)
{
    lk_train_hooks hooks[RANKS];
    const char *devices[RANKS];
    lk_train_outcome result;
    lk_train_failure failure;
    for (int i = 0; i < RANKS; i++) {
        hooks[i] = (lk_train_hooks){.arg = &told[i], .step = stop_after_move, .end = on_end, .stopped = on_end};
        devices[i] = "cpu";
    }
    lk_group_opts group = {.timeout = 60};
    lk_train_ranks ranks = {.opts = opts,
                            .count = RANKS,
                            .devices = devices,
                            .group = &group,
                            .one_process = true,
                            .asks = true,
                            .hooks = hooks};
    assert_int_equal(lk__train(&ranks, &result, &failure), LK_OK);
    return result;
}

static void slow_rank(void **state)
{
    static record alone, told[RANKS];
    lk_train_opts opts = options();
    opts.batch = 45;
    opts.epochs = MOST_STEPS;
    opts.max_steps = MOST_STEPS;
    opts.no_test = true;
    opts.threads = 1;
    lk_train_outcome moved = run_ranks(&opts, told);
    opts.max_steps = moved.steps;
    lk_train_outcome single = train_well(&opts, &alone);
    assert_true(moved.moves > 0);
    assert_true(moved.hash == single.hash);
    assert_true(told[0].use[1].shards < 8 && told[0].use[0].shards > 8);
}

int main(void)
{
    setenv("LOCKSTEP_FAULT", "slow:rank=1,op=forward,seconds=.3", 1);
    return RUN_TESTS(make_data, temp_folder_tear_down, TEST(slow_rank));
}
