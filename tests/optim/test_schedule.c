/* test_schedule.c - learning-rate schedules: their rates, warm-ups, first and last steps, and refused
 * specs. tests/golden compares with PyTorch. */
#include <math.h>

#include "check.h"
#include "optim/optim.h"

enum { EPOCHS = 10, BATCHES = 4 };

static double rate(const char *spec, double base, size_t epoch, size_t batch)
{
    lk_lr_schedule *schedule;
    lk_lr_schedule_at at = {.epoch = epoch, .epochs = EPOCHS, .batch = batch, .batches = BATCHES};
    assert_int_equal(lk_lr_schedule_create(spec, &schedule), LK_OK);
    double lr = lk_lr_schedule_lr(schedule, base, at);
    lk_lr_schedule_destroy(schedule);
    return lr;
}

static double lr_at(const char *spec, double base, size_t epoch)
{
    return rate(spec, base, epoch, 0);
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-14 * fabs(b);
}

static void test_factors(void **state)
{
    assert_true(lr_at("constant", 0.3, 1000) == 0.3);
    assert_true(lr_at("step", 1.0, 0) == 1.0);
    assert_true(lr_at("step", 1.0, 1) == 0.7);
    assert_true(lr_at("step", 1.0, 2) == 0.7 * 0.7);
    assert_true(rate("step", 1.0, 2, 3) == 0.7 * 0.7);
    assert_true(lr_at("step:size=30,gamma=.1", 0.1, 29) == 0.1);
    assert_true(lr_at("step:size=30,gamma=.1", 0.1, 30) == 0.1 * 0.1);
    assert_true(lr_at("step:gamma=0", 0.1, 5) == 0);
    assert_true(lr_at("step:gamma=2", 0.5, 3) == 4);
    assert_true(near(lr_at("step:gamma=.9", 1.0, 20), pow(0.9, 20)));
    assert_true(lr_at("exponential", 1.0, 0) == 1.0);
    assert_true(near(lr_at("exponential", 1.0, 7), pow(0.95, 7)));
    assert_true(lr_at("exponential:gamma=.5", 1.0, 3) == 0.125);
}

static void test_milestones(void **state)
{
    const char *spec = "multistep:milestones=2/3/7,gamma=.5";
    const double want[EPOCHS] = {1, 1, 0.5, 0.25, 0.25, 0.25, 0.25, 0.125, 0.125, 0.125};
    for (size_t epoch = 0; epoch < EPOCHS; epoch++)
        assert_true(lr_at(spec, 1.0, epoch) == want[epoch]);
    assert_true(lr_at("multistep", 1.0, 29) == 1.0);
    assert_true(lr_at("multistep", 1.0, 30) == 0.1);
    assert_true(near(lr_at("multistep", 1.0, 90), 1e-3));
}

static void test_cosine(void **state)
{
    const double pi = acos(-1);
    for (size_t epoch = 0; epoch < EPOCHS; epoch++) {
        assert_true(near(lr_at("cosine", 0.5, epoch), 0.25 * (1 + cos(pi * (double)epoch / EPOCHS))));
        assert_true(rate("cosine", 0.5, epoch, 3) == lr_at("cosine", 0.5, epoch));
        double part = (double)(epoch * BATCHES + 3) / (EPOCHS * BATCHES);
        assert_true(fabs(rate("cosine:by_step", 0.5, epoch, 3) - 0.25 * (1 + cos(pi * part))) <= 1e-15);
    }
    assert_true(lr_at("cosine", 0.5, 0) == 0.5);
    assert_true(near(lr_at("cosine", 0.5, 5), 0.25));
    assert_true(near(lr_at("cosine:min=.25", 0.75, 5), 0.5));
    /* The rate stays after the schedule's end. */
    assert_true(lr_at("cosine:min=.25", 0.75, 10) == 0.25);
    assert_true(near(lr_at("cosine:epochs=4", 0.5, 2), 0.25));
    assert_true(lr_at("cosine:epochs=4", 0.5, 4) == 0);
    assert_true(lr_at("cosine:epochs=4", 0.5, 9) == 0);
    assert_true(near(lr_at("cosine:epochs=20", 0.5, 10), 0.25));
}

static void test_gaussian(void **state)
{
    assert_true(lr_at("gaussian", 0.5, 0) == 0.5);
    assert_true(near(lr_at("gaussian", 0.5, 3), 0.5 * exp(-0.5)));
    assert_true(near(lr_at("gaussian:sigma=.1", 0.5, 3), 0.5 * exp(-4.5)));
    assert_true(near(rate("gaussian:sigma=.5,by_step", 0.5, 2, 2), 0.5 * exp(-0.125)));
    assert_true(near(lr_at("gaussian:sigma=.5,min=.25", 0.5, 5), 0.25 + 0.25 * exp(-0.5)));
    assert_true(lr_at("gaussian:sigma=.001", 0.5, 9) == 0);
    /* The reference has a scale of 1500 over 90 epochs, of which 5 are a warm-up. */
    lk_lr_schedule *schedule;
    lk_lr_schedule_at at = {.epoch = 45, .epochs = 90, .batches = 10};
    assert_int_equal(lk_lr_schedule_create("gaussian:sigma=.32218974,warmup=5", &schedule), LK_OK);
    assert_true(fabs(lk_lr_schedule_lr(schedule, 0.256, at) / (0.256 * exp(-1600.0 / 1500)) - 1) < 1e-7);
    lk_lr_schedule_destroy(schedule);
}

/* The warm-ups of all schedules rise linearly and reach the base rate with the last step of the warm-up. */
static void test_warmup(void **state)
{
    const lk_optim_info *info;
    for (size_t i = 0; (info = lk_lr_schedule_list(i)); i++) {
        char epochs[64], steps[64];
        if (strcmp(info->name, "onecycle") == 0)
            continue;
        snprintf(epochs, sizeof epochs, "%s:warmup=3", info->name);
        snprintf(steps, sizeof steps, "%s:warmup_steps=6", info->name);
        for (size_t step = 0; step < 3 * BATCHES; step++)
            assert_true(rate(epochs, 0.3, step / BATCHES, step % BATCHES) == 0.3 * ((double)(step + 1) / 12));
        for (size_t step = 0; step < 6; step++)
            assert_true(rate(steps, 0.3, step / BATCHES, step % BATCHES) == 0.3 * ((double)(step + 1) / 6));
        assert_true(rate(epochs, 0.3, 2, 3) == 0.3 && rate(epochs, 0.3, 3, 0) == 0.3);
        assert_true(rate(steps, 0.3, 1, 1) == 0.3 && rate(steps, 0.3, 1, 2) == 0.3);
    }
}

/* A warm-up of one epoch rises step by step, whether the schedule goes by epochs or by steps. */
static void test_one_epoch_warms_up(void **state)
{
    const char *specs[] = {"cosine:by_step=1,warmup=1", "cosine:warmup=1", "step:warmup=1", "constant:warmup=1"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (size_t batch = 0; batch < BATCHES; batch++)
            assert_true(rate(specs[i], 0.5, 0, batch) == 0.5 * ((double)(batch + 1) / BATCHES));
}

/* A schedule begins at its epoch 0 after the warm-up, like PyTorch's SequentialLR stepped after each batch. */
static void test_after_warmup(void **state)
{
    assert_true(lr_at("constant:warmup=3", 0.3, 3) == 0.3);
    assert_true(lr_at("step:gamma=.5,warmup=3", 1.0, 3) == 1.0);
    assert_true(lr_at("step:gamma=.5,warmup=3", 1.0, 4) == 0.5);
    assert_true(lr_at("step:size=2,gamma=.5,warmup=3", 1.0, 8) == 0.25);
    assert_true(lr_at("exponential:gamma=.5,warmup=3", 1.0, 3) == 1.0);
    assert_true(lr_at("exponential:gamma=.5,warmup=3", 1.0, 5) == 0.25);
    assert_true(rate("multistep:milestones=2/5,gamma=.5,warmup=3", 1.0, 4, 3) == 1.0);
    assert_true(lr_at("multistep:milestones=2/5,gamma=.5,warmup=3", 1.0, 5) == 0.5);
    assert_true(lr_at("multistep:milestones=2/5,gamma=.5,warmup=3", 1.0, 8) == 0.25);
    assert_true(lr_at("cosine:warmup=2", 0.5, 2) == 0.5);
    assert_true(near(lr_at("cosine:warmup=2", 0.5, 6), 0.25));
    assert_true(near(lr_at("cosine:warmup=2,epochs=6", 0.5, 4), 0.25));
    assert_true(near(lr_at("gaussian:warmup=2,sigma=.25", 0.5, 4), 0.5 * exp(-0.5)));
    /* The schedule has steps 8 to 40; the middle is 24. */
    assert_true(near(rate("cosine:warmup_steps=8,by_step", 0.5, 6, 0), 0.25));
    assert_true(near(rate("cosine:warmup_steps=8", 0.5, 6, 3), 0.25));
    /* Epochs are counted from the warm-up's end, here after 7 steps: the first epoch ends with step 10. */
    assert_true(rate("cosine:warmup_steps=7", 0.5, 2, 2) == 0.5);
    assert_true(rate("cosine:warmup_steps=7", 0.5, 2, 3) < 0.5);
    assert_true(rate("step:gamma=.5,warmup_steps=7", 1.0, 2, 2) == 1.0);
    assert_true(rate("step:gamma=.5,warmup_steps=7", 1.0, 2, 3) == 0.5);
    assert_true(rate("multistep:milestones=1/3,gamma=.5,warmup_steps=7", 1.0, 4, 2) == 0.5);
    assert_true(rate("multistep:milestones=1/3,gamma=.5,warmup_steps=7", 1.0, 4, 3) == 0.25);
}

/* One result an epoch; a drop shows in the next epoch. tests/golden compares longer sequences with PyTorch. */
static void test_plateau(void **state)
{
    static const double losses[] = {1, .5, .6, .7, .4, .45, .44, .43, .42};
    static const size_t drops[] = {0, 0, 0, 1, 1, 1, 2, 2, 3};
    lk_lr_schedule *schedule;
    lk_lr_schedule_watch watch = {0};
    assert_int_equal(lk_lr_schedule_create("plateau:patience=1,factor=.5,warmup=1", &schedule), LK_OK);
    assert_true(lk_lr_schedule_watches(schedule));
    lk_lr_schedule_at at = {.epoch = 0, .epochs = 20, .batch = BATCHES - 1, .batches = BATCHES};
    lk_lr_schedule_observe(schedule, at, (lk_lr_schedule_result){.loss = 0.001}, &watch);
    assert_int_equal(watch.results, 0); /* in the warm-up */
    for (at.epoch = 1; at.epoch <= sizeof losses / sizeof *losses; at.epoch++) {
        lk_lr_schedule_observe(schedule, at, (lk_lr_schedule_result){.loss = losses[at.epoch - 1]}, &watch);
        assert_int_equal(watch.drops, drops[at.epoch - 1]);
        assert_true(lk_lr_schedule_lr(schedule, 0.5, (lk_lr_schedule_at){5, 20, 0, BATCHES, watch.drops}) ==
                    0.5 / (double)(1u << watch.drops));
    }
    lk_lr_schedule_destroy(schedule);
    assert_int_equal(lk_lr_schedule_create("step", &schedule), LK_OK);
    assert_false(lk_lr_schedule_watches(schedule));
    lk_lr_schedule_destroy(schedule);
}

/* Compares lk__lr_schedule_rates with a search through all steps. */
static void assert_rates(const char *spec, size_t epochs, size_t begin, size_t end)
{
    lk_lr_schedule *schedule;
    lk_lr_schedule_at run = {.epochs = epochs, .batches = BATCHES};
    double highest = 0;
    assert_int_equal(lk_lr_schedule_create(spec, &schedule), LK_OK);
    lk_lr_schedule_rates rates = lk__lr_schedule_rates(schedule, 0.5, run, begin, end);
    for (size_t step = begin; step < end; step++) {
        lk_lr_schedule_at at = {step / BATCHES, epochs, step % BATCHES, BATCHES, 0};
        double lr = lk_lr_schedule_lr(schedule, 0.5, at);
        highest = lr > highest ? lr : highest;
        assert_true(step != begin || rates.first == lr);
        assert_true(step + 1 != end || rates.last == lr);
    }
    if (rates.highest != highest)
        fail_msg("%s, steps %zu to %zu: highest rate %g, found %g", spec, begin, end, highest, rates.highest);
    lk_lr_schedule_destroy(schedule);
}

static void test_rates(void **state)
{
    const char *specs[] = {"constant",
                           "constant:warmup=3",
                           "step:gamma=2,warmup=1",
                           "step:warmup=2",
                           "exponential:gamma=1.5",
                           "multistep:milestones=2/4,warmup_steps=7",
                           "cosine:min=.1",
                           "cosine:by_step,warmup=1",
                           "multistep:milestones=2/4,gamma=3",
                           "cosine:warmup=100",
                           "cosine:epochs=4",
                           "gaussian:by_step,warmup_steps=5,min=.2",
                           "onecycle",
                           "onecycle:three_phase,linear",
                           "onecycle:pct_start=0",
                           "onecycle:pct_start=1",
                           "plateau:warmup=2"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (size_t begin = 0; begin < EPOCHS * BATCHES; begin++)
            for (size_t end = begin + 1; end <= EPOCHS * BATCHES; end++)
                assert_rates(specs[i], EPOCHS, begin, end);
}

static void refuse(const char *spec, const char *hint)
{
    lk_lr_schedule *schedule = NULL;
    assert_fails(lk_lr_schedule_create(spec, &schedule), LK_STATUS_USAGE, hint);
    assert_detail("`schedule`");
    assert_null(schedule);
}

static void test_refusals(void **state)
{
    refuse("steps", "did you mean 'step'");
    refuse("cosin", "did you mean 'cosine'");
    refuse("", "missing");
    refuse("step:size=0", "from 1 to");
    refuse("step:size=1.5", "whole number");
    refuse("step:gama=1", "did you mean 'gamma'");
    refuse("step:gamma=1001", "from 0 to 1000");
    refuse("step:milestones=3", "known: warmup, warmup_steps, size, gamma");
    refuse("multistep:milestone=3", "did you mean 'milestones'");
    refuse("multistep:milestones=30/20", "must rise");
    refuse("multistep:milestones=0/20", "from 1 to");
    refuse("multistep:milestones=1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17", "at most 16");
    refuse("cosine:sigma=1", "known: warmup, warmup_steps, min, epochs, by_step");
    refuse("cosine:min=-1", "min=-1 is out of range");
    refuse("gaussian:sigma=0", "sigma=0 is out of range");
    refuse("constant:warm_up=3", "did you mean 'warmup'");
    refuse("constant:warmup=2.5", "whole number");
    refuse("constant:warmup=3,warmup_steps=100", "give one of them");
    refuse("onecycle:warmup=1", "leave the warm-up out");
    refuse("onecycle:pct_start=2", "from 0 to 1");
    refuse("plateau:factor=1", "factor=1 is out of range");
    refuse("plateau:patience=.5", "whole number");
    lk_lr_schedule_destroy(NULL);
}

static void check(const char *spec, const char *hint)
{
    lk_lr_schedule *schedule;
    lk_lr_schedule_at at = {.epochs = EPOCHS, .batches = BATCHES};
    assert_int_equal(lk_lr_schedule_create(spec, &schedule), LK_OK);
    lk_status status = lk_lr_schedule_check(schedule, 0.5, at);
    assert_int_equal(status, hint ? LK_STATUS_USAGE : LK_OK);
    if (hint) {
        assert_detail(hint);
        assert_detail("`schedule`");
    }
    lk_lr_schedule_destroy(schedule);
}

static void test_fit(void **state)
{
    check("onecycle:three_phase", NULL);
    check("onecycle:three_phase,pct_start=.6", "at most 0.5");
    check("step:size=100", NULL);
    check("multistep:milestones=100", NULL);
    check("constant:warmup=10", NULL);
    check("cosine:warmup_steps=40", NULL);
    check("constant:warmup=11", NULL);
    check("cosine:warmup_steps=41", NULL);
    check("cosine:min=.5", NULL);
    check("cosine:min=.6", "min=0.6 is above the learning rate 0.5");
    check("gaussian:min=1", "min=1 is above");
    check("cosine:epochs=20", NULL);
    check("cosine:epochs=6,warmup=5", NULL);
    check("cosine:epochs=5,warmup=5", "epochs=5 leaves nothing after the warm-up of 20 steps");
    check("gaussian:epochs=2,warmup_steps=8", "epochs=2 leaves nothing after the warm-up of 8 steps");
}

static void test_list(void **state)
{
    size_t count = 0;
    const lk_optim_info *info;
    for (; (info = lk_lr_schedule_list(count)); count++) {
        assert_true(strlen(info->summary) > 0);
        assert_null(strchr(info->summary, '\n'));
        check(info->name, NULL);
    }
    assert_int_equal(count, 8);
}

TEST_MAIN(NULL, NULL, TEST(test_factors), TEST(test_milestones), TEST(test_cosine), TEST(test_gaussian),
          TEST(test_plateau), TEST(test_warmup), TEST(test_one_epoch_warms_up), TEST(test_after_warmup),
          TEST(test_rates), TEST(test_refusals), TEST(test_fit), TEST(test_list))
