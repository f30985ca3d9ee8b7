/* schedule.c - learning-rate schedules: an optional warm-up, then a curve from the table that
 * starts at its own step 0.
 *
 * A rate reaches the weights, so it must be the same double on every machine: no libm here.
 * Positions in the run are whole numbers of steps until one last division. */
#include <string.h>

#include "base/math64.h"
#include "base/mem.h"
#include "base/spec.h"
#include "optim/optim.h"

/* The first parameters of every row; the row's own parameters follow. */
enum { WARMUP, WARMUP_STEPS, OWN, MAX_PARAMS = OWN + 4 };

#define WARMUP_PARAMS [WARMUP] = {"warmup", 0, 0, 1e9, true}, [WARMUP_STEPS] = {"warmup_steps", 0, 0, 1e15, true}

/* A position after the warm-up. Epochs here start at the end of the warm-up and have as many steps
 * as the run's. */
typedef struct position {
    size_t epoch, batch;            /* from 0; from 0, in the epoch */
    size_t batches, epochs, warmup; /* of an epoch; of the run; steps of the warm-up */
} position;

typedef struct row {
    lk_optim_info info;
    /* The rate after the warm-up. It never falls or never rises. */
    double (*lr)(const lk_lr_schedule *schedule, double base_lr, position at);
    /* Optional: refuses parameters that do not fit the run, whose length is in `at`. */
    lk_status (*check)(const lk_lr_schedule *schedule, double base_lr, lk_lr_schedule_at at);
    lk_spec_param params[MAX_PARAMS];
    lk_spec_list list;
} row;

struct lk_lr_schedule {
    const row *row;
    double values[MAX_PARAMS]; /* in the order of row->params */
    lk_spec_list list;
};

static const char option[] = "`schedule`";

size_t lk__lr_schedule_warmup(const lk_lr_schedule *schedule, size_t batches)
{
    return (size_t)schedule->values[WARMUP] * batches + (size_t)schedule->values[WARMUP_STEPS];
}

static double constant_lr(const lk_lr_schedule *schedule, double base_lr, position at)
{
    (void)schedule, (void)at;
    return base_lr;
}

/* Multiplies one by one, to round as PyTorch's schedulers do. */
static double times(double lr, double gamma, size_t count)
{
    for (; count > 0 && lr != 0; count--)
        lr *= gamma;
    return lr;
}

enum { STEP_SIZE = OWN, STEP_GAMMA };

static double step_lr(const lk_lr_schedule *schedule, double base_lr, position at)
{
    return times(base_lr, schedule->values[STEP_GAMMA], at.epoch / (size_t)schedule->values[STEP_SIZE]);
}

enum { GAMMA = OWN };

static double multistep_lr(const lk_lr_schedule *schedule, double base_lr, position at)
{
    size_t passed = 0;
    while (passed < schedule->list.count && schedule->list.values[passed] <= (double)at.epoch)
        passed++;
    return times(base_lr, schedule->values[GAMMA], passed);
}

static double exponential_lr(const lk_lr_schedule *schedule, double base_lr, position at)
{
    return times(base_lr, schedule->values[GAMMA], at.epoch);
}

/* Parameters of cosine and gaussian, which fall over the rest of the run. */
enum { FALL_MIN = OWN, FALL_EPOCHS, FALL_BY_STEP, FALL_SIGMA };

#define FALL_PARAMS                                                                      \
    [FALL_MIN] = {"min", 0, 0, 1e9, false}, [FALL_EPOCHS] = {"epochs", 0, 0, 1e9, true}, \
    [FALL_BY_STEP] = {"by_step", 0, 0, 1, true}

/* Steps of the run, including the warm-up, until the fall ends. */
static size_t fall_end(const lk_lr_schedule *schedule, size_t epochs, size_t batches)
{
    double given = schedule->values[FALL_EPOCHS];
    return (given != 0 ? (size_t)given : epochs) * batches;
}

/* The fraction of the fall that is done, in [0,1]. */
static double fallen(const lk_lr_schedule *schedule, position at)
{
    size_t now = at.epoch * at.batches + (schedule->values[FALL_BY_STEP] != 0 ? at.batch : 0);
    size_t end = fall_end(schedule, at.epochs, at.batches);
    return at.warmup + now < end ? (double)now / (double)(end - at.warmup) : 1;
}

static double fall_to(const lk_lr_schedule *schedule, double base_lr, double height)
{
    double min = schedule->values[FALL_MIN];
    return min + (base_lr - min) * height;
}

/* Uses the square of cos(pi x / 2), which equals (1 + cos(pi x)) / 2 without cancellation. */
static double cosine_lr(const lk_lr_schedule *schedule, double base_lr, position at)
{
    double root = lk__math_cospi64(fallen(schedule, at) / 2);
    return fall_to(schedule, base_lr, root * root);
}

static double gaussian_lr(const lk_lr_schedule *schedule, double base_lr, position at)
{
    double deviations = fallen(schedule, at) / schedule->values[FALL_SIGMA];
    return fall_to(schedule, base_lr, lk__math_exp64(-0.5 * deviations * deviations));
}

static lk_status check_fall(const lk_lr_schedule *schedule, double base_lr, lk_lr_schedule_at at)
{
    const char *name = schedule->row->info.name;
    double min = schedule->values[FALL_MIN];
    if (min > base_lr)
        return lk__fail(LK_STATUS_USAGE, "%s %s: min=%.10g is above the learning rate %.10g that it falls from (`lr`)",
                        option, name, min, base_lr);
    if (schedule->values[FALL_EPOCHS] != 0 &&
        fall_end(schedule, at.epochs, at.batches) <= lk__lr_schedule_warmup(schedule, at.batches))
        return lk__fail(LK_STATUS_USAGE,
                        "%s %s: epochs=%.10g leaves nothing after the warm-up of %zu steps; it counts from the run's "
                        "beginning, %zu steps an epoch",
                        option, name, schedule->values[FALL_EPOCHS], lk__lr_schedule_warmup(schedule, at.batches),
                        at.batches);
    return LK_OK;
}

static const row schedules[] = {
    {.info = {.name = "constant",
              .summary = "the learning rate stays; all of these take warmup=EPOCHS or warmup_steps=STEPS, "
                         "rise step by step, and count from there"},
     .lr = constant_lr,
     .params = {WARMUP_PARAMS}},
    {.info = {.name = "step", .summary = "size=1,gamma=0.7: times gamma after every `size` epochs"},
     .lr = step_lr,
     .params = {WARMUP_PARAMS, [STEP_SIZE] = {"size", 1, 1, 1e9, true}, [STEP_GAMMA] = {"gamma", 0.7, 0, 1e3, false}}},
    {.info = {.name = "multistep", .summary = "milestones=30/60/90,gamma=0.1: times gamma after each of these epochs"},
     .lr = multistep_lr,
     .params = {WARMUP_PARAMS, [GAMMA] = {"gamma", 0.1, 0, 1e3, false}},
     .list = {.name = "milestones", .min = 1, .max = 1e9, .whole = true, .count = 3, .values = {30, 60, 90}}},
    {.info = {.name = "exponential", .summary = "gamma=0.95: times gamma after every epoch"},
     .lr = exponential_lr,
     .params = {WARMUP_PARAMS, [GAMMA] = {"gamma", 0.95, 0, 1e3, false}}},
    {.info = {.name = "cosine",
              .summary = "min=0,epochs=0,by_step=0: down half a cosine to min, by the end of the run or of `epochs`"},
     .lr = cosine_lr,
     .check = check_fall,
     .params = {WARMUP_PARAMS, FALL_PARAMS}},
    {.info = {.name = "gaussian",
              .summary =
                  "sigma=0.3,min=0,epochs=0,by_step=0: towards min by exp(-x^2 / 2 sigma^2), x the part of the run"},
     .lr = gaussian_lr,
     .check = check_fall,
     .params = {WARMUP_PARAMS, FALL_PARAMS, [FALL_SIGMA] = {"sigma", 0.3, 1e-3, 1e3, false}}},
};

enum { SCHEDULES = sizeof schedules / sizeof *schedules };

const lk_optim_info *lk__lr_schedule_list(size_t index)
{
    return index < SCHEDULES ? &schedules[index].info : NULL;
}

static const char *schedule_name(const void *arg, size_t index)
{
    (void)arg;
    return index < SCHEDULES ? schedules[index].info.name : NULL;
}

static const lk_names names = {.what = option, .kind = "schedule", .next = schedule_name};

lk_status lk__lr_schedule_create(const char *spec, lk_lr_schedule **out)
{
    size_t found = 0;
    LK_TRY(lk__spec_find(spec, &names, &found));
    lk_lr_schedule read = {.row = &schedules[found], .list = schedules[found].list};
    LK_TRY(lk__spec_values_list(spec, option, read.row->params, MAX_PARAMS, read.values, &read.list));
    if (read.values[WARMUP] != 0 && read.values[WARMUP_STEPS] != 0)
        return lk__fail(LK_STATUS_USAGE, "%s: warmup=%.10g counts epochs, warmup_steps=%.10g steps; give one of them",
                        option, read.values[WARMUP], read.values[WARMUP_STEPS]);
    lk_lr_schedule *schedule;
    LK_TRY(LK_ALLOC(1, "schedule", &schedule));
    *schedule = read;
    *out = schedule;
    return LK_OK;
}

void lk__lr_schedule_destroy(lk_lr_schedule *schedule)
{
    lk__mem_free(schedule);
}

lk_status lk__lr_schedule_check(const lk_lr_schedule *schedule, double base_lr, lk_lr_schedule_at at)
{
    return schedule->row->check ? schedule->row->check(schedule, base_lr, at) : LK_OK;
}

static position after_warmup(lk_lr_schedule_at at, size_t warmup)
{
    size_t step = at.epoch * at.batches + at.batch - warmup;
    return (position){.epoch = step / at.batches,
                      .batch = step % at.batches,
                      .batches = at.batches,
                      .epochs = at.epochs,
                      .warmup = warmup};
}

double lk__lr_schedule_lr(const lk_lr_schedule *schedule, double base_lr, lk_lr_schedule_at at)
{
    size_t step = at.epoch * at.batches + at.batch, warmup = lk__lr_schedule_warmup(schedule, at.batches);
    if (step < warmup)
        return base_lr * ((double)(step + 1) / (double)warmup);
    return schedule->row->lr(schedule, base_lr, after_warmup(at, warmup));
}

static double rate_of_step(const lk_lr_schedule *schedule, double base_lr, lk_lr_schedule_at at, size_t step)
{
    at.epoch = step / at.batches;
    at.batch = step % at.batches;
    return lk__lr_schedule_lr(schedule, base_lr, at);
}

/* The warm-up rises and a curve is monotonic, so the highest rate is at an end of one of them. */
lk_lr_schedule_rates lk__lr_schedule_rates(const lk_lr_schedule *schedule, double base_lr, lk_lr_schedule_at at,
                                           size_t begin, size_t end)
{
    size_t warmup = lk__lr_schedule_warmup(schedule, at.batches);
    const size_t ends[] = {begin, warmup ? warmup - 1 : 0, warmup, end - 1};
    lk_lr_schedule_rates rates = {.first = rate_of_step(schedule, base_lr, at, begin),
                                  .last = rate_of_step(schedule, base_lr, at, end - 1)};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (ends[i] < begin || ends[i] >= end)
            continue;
        double lr = rate_of_step(schedule, base_lr, at, ends[i]);
        rates.highest = lr > rates.highest ? lr : rates.highest;
    }
    return rates;
}
