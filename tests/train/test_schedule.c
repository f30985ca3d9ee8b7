/* test_schedule.c - the loop sets the learning rate of every step, equal on all ranks, and refuses a
 * schedule that does not fit the run. */
#include "optim/optim.h"
#include "tiny.h"

enum { EPOCHS = 4, BATCHES = 3 };

static void assert_rates(const char *spec, const record *told)
{
    lk_lr_schedule *schedule;
    assert_int_equal(lk_lr_schedule_create(spec, &schedule), LK_OK);
    for (size_t i = 0; i < told->steps; i++) {
        lk_lr_schedule_at at = {.epoch = i / BATCHES, .epochs = EPOCHS, .batch = i % BATCHES, .batches = BATCHES};
        assert_true(told->step[i].lr == lk_lr_schedule_lr(schedule, 0.125, at));
    }
    lk_lr_schedule_destroy(schedule);
}

static lk_train_opts scheduled(const char *spec)
{
    lk_train_opts opts = options();
    opts.optimizer = "adamw";
    opts.lr = 0.125;
    opts.epochs = EPOCHS;
    opts.schedule = spec;
    return opts;
}

static void every_step_has_its_rate(void **state)
{
    const char *specs[] = {"cosine:by_step,warmup_steps=4", "gaussian:warmup=2", "multistep:milestones=1/3"};
    for (size_t i = 0; i < COUNT_OF(specs); i++) {
        lk_train_opts opts = scheduled(specs[i]);
        record told;
        (void)train_well(&opts, &told);
        assert_int_equal(told.steps, EPOCHS * BATCHES);
        assert_rates(specs[i], &told);
    }
}

/* A run with max_steps has the rates of the whole run. */
static void max_steps_bends_nothing(void **state)
{
    lk_train_opts opts = scheduled("cosine:by_step");
    opts.max_steps = 5;
    record told;
    (void)train_well(&opts, &told);
    assert_int_equal(told.steps, 5);
    assert_rates(opts.schedule, &told);
}

static void ranks_agree_with_one(void **state)
{
    lk_train_opts opts = scheduled("cosine:by_step,warmup_steps=4,min=.01");
    record told[3];
    lk_train_outcome one, three;
    lk_train_failure failure;
    one = train_well(&opts, told);
    assert_int_equal(train_ranks(&opts, 3, told, &three, &failure), LK_OK);
    assert_true(one.hash == three.hash);
    for (int rank = 0; rank < 3; rank++)
        assert_rates(opts.schedule, &told[rank]);
}

static void refuse(const char *spec, const char *hint)
{
    lk_train_opts opts = scheduled(spec);
    record told;
    lk_train_outcome result;
    assert_int_equal(train(&opts, &told, &result), LK_STATUS_USAGE);
    assert_int_equal(told.steps, 0);
    assert_detail(hint);
}

static void misfits_are_refused(void **state)
{
    refuse("cosine:min=.5", "min=0.5 is above the learning rate 0.125");
    lk_train_opts opts = scheduled("cosine:epochs=1,warmup=1");
    record told[3];
    lk_train_outcome result;
    lk_train_failure failure;
    assert_int_equal(train_ranks(&opts, 3, told, &result, &failure), LK_STATUS_USAGE);
    assert_int_equal(failure.fault, LK_TRAIN_FAULT_COMMON);
    lk__train_failure_fini(&failure);
}

TEST_MAIN(make_data, temp_folder_tear_down, TEST(every_step_has_its_rate), TEST(max_steps_bends_nothing),
          TEST(ranks_agree_with_one), TEST(misfits_are_refused))
