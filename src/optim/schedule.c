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
enum { WARMUP, WARMUP_STEPS, OWN, MAX_PARAMS = OWN + 8 };

#define WARMUP_PARAMS [WARMUP] = {"warmup", 0, 0, 1e9, true}, [WARMUP_STEPS] = {"warmup_steps", 0, 0, 1e15, true}

/* A position after the warm-up. Epochs here start at the end of the warm-up and have as many steps
 * as the run's. */
typedef struct position {
    size_t epoch, batch;            /* from 0; from 0, in the epoch */
    size_t batches, epochs, warmup; /* of an epoch; of the run; steps of the warm-up */
    size_t drops;                   /* as in lk_lr_schedule_at */
} position;

typedef struct row {
    lk_optim_info info;
    /* The rate after the warm-up. It never falls or never rises, except at a peak. */
    double (*lr)(const lk_lr_schedule *schedule, double base_lr, position at);
    /* Optional: the last step, which need not be whole, up to which the rate rises; it falls after it. Such a schedule
     * takes no warm-up. */
    double (*peak)(const lk_lr_schedule *schedule, size_t steps);
    /* Optional: counts the result of an epoch after the warm-up. */
    void (*observe)(const lk_lr_schedule *schedule, lk_lr_schedule_result result, lk_lr_schedule_watch *watch);
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

size_t lk_lr_schedule_warmup(const lk_lr_schedule *schedule, size_t batches)
{
    if (!schedule)
        return 0;
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
        fall_end(schedule, at.epochs, at.batches) <= lk_lr_schedule_warmup(schedule, at.batches))
        return lk__fail(LK_STATUS_USAGE,
                        "%s %s: epochs=%.10g leaves nothing after the warm-up of %zu steps; it counts from the run's "
                        "beginning, %zu steps an epoch",
                        option, name, schedule->values[FALL_EPOCHS], lk_lr_schedule_warmup(schedule, at.batches),
                        at.batches);
    return LK_OK;
}

enum { CYCLE_START = OWN, CYCLE_DIV, CYCLE_FINAL_DIV, CYCLE_THREE_PHASE, CYCLE_LINEAR };

static double cycle_peak(const lk_lr_schedule *schedule, size_t steps)
{
    return schedule->values[CYCLE_START] * (double)steps - 1;
}

/* The part of a phase from step `begin` to step `end` that is done at step `now`. */
static double phase_part(double now, double begin, double end)
{
    return end > begin ? (now - begin) / (end - begin) : 1;
}

static double between(const lk_lr_schedule *schedule, double from, double to, double part)
{
    if (schedule->values[CYCLE_LINEAR] != 0)
        return (to - from) * part + from;
    double root = lk__math_cospi64(part / 2); /* as in cosine_lr */
    return to + (from - to) * (root * root);
}

/* PyTorch's OneCycleLR without the cycle of the momentum: from max / div_factor up to max, which is base_lr, and down
 * to the first rate / final_div_factor; with three phases down to the first rate before that, in as many steps as
 * up. */
static double onecycle_lr(const lk_lr_schedule *schedule, double base_lr, position at)
{
    size_t steps = at.epochs * at.batches;
    double low = base_lr / schedule->values[CYCLE_DIV], end = low / schedule->values[CYCLE_FINAL_DIV];
    double now = (double)(at.epoch * at.batches + at.batch), peak = cycle_peak(schedule, steps), down = 2 * peak;
    if (now <= peak)
        return between(schedule, low, base_lr, phase_part(now, 0, peak));
    if (now >= (double)steps)
        return end;
    if (schedule->values[CYCLE_THREE_PHASE] == 0)
        return between(schedule, base_lr, end, phase_part(now, peak, (double)steps - 1));
    if (now <= down)
        return between(schedule, base_lr, low, phase_part(now, peak, down));
    return between(schedule, low, end, phase_part(now, down, (double)steps - 1));
}

static lk_status check_cycle(const lk_lr_schedule *schedule, double base_lr, lk_lr_schedule_at at)
{
    (void)base_lr, (void)at;
    if (schedule->values[CYCLE_THREE_PHASE] != 0 && schedule->values[CYCLE_START] > 0.5)
        return lk__fail(
            LK_STATUS_USAGE,
            "%s onecycle: three_phase rises and falls in two equal parts, so pct_start=%.10g must be at most "
            "0.5",
            option, schedule->values[CYCLE_START]);
    return LK_OK;
}

enum {
    PLATEAU_FACTOR = OWN,
    PLATEAU_PATIENCE,
    PLATEAU_THRESHOLD,
    PLATEAU_ABS,
    PLATEAU_COOLDOWN,
    PLATEAU_MIN,
    PLATEAU_EPS,
    PLATEAU_ACCURACY
};

/* Drops that would change the rate by at most eps do not happen. */
static double plateau_lr(const lk_lr_schedule *schedule, double base_lr, position at)
{
    const double *values = schedule->values;
    double lr = base_lr;
    for (size_t i = 0; i < at.drops; i++) {
        double next = lr * values[PLATEAU_FACTOR];
        next = next > values[PLATEAU_MIN] ? next : values[PLATEAU_MIN];
        if (!(lr - next > values[PLATEAU_EPS]))
            break;
        lr = next;
    }
    return lr;
}

static bool is_better(const double *values, double result, double best)
{
    double threshold = values[PLATEAU_THRESHOLD];
    if (values[PLATEAU_ACCURACY] != 0)
        return result > (values[PLATEAU_ABS] != 0 ? best + threshold : best * (threshold + 1));
    return result < (values[PLATEAU_ABS] != 0 ? best - threshold : best * (1 - threshold));
}

static void plateau_observe(const lk_lr_schedule *schedule, lk_lr_schedule_result result, lk_lr_schedule_watch *watch)
{
    const double *values = schedule->values;
    double now = values[PLATEAU_ACCURACY] != 0 ? result.accuracy : result.loss;
    bool better = watch->results++ == 0 || is_better(values, now, watch->best);
    watch->best = better ? now : watch->best;
    watch->bad = better ? 0 : watch->bad + 1;
    if (watch->cooldown > 0) {
        watch->cooldown--;
        watch->bad = 0;
    }
    if (watch->bad > (size_t)values[PLATEAU_PATIENCE]) {
        watch->drops++;
        watch->cooldown = (size_t)values[PLATEAU_COOLDOWN];
        watch->bad = 0;
    }
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
    {.info = {.name = "onecycle",
              .summary =
                  "pct_start=0.3,div_factor=25,final_div_factor=1e4,three_phase=0,linear=0: up to the learning rate "
                  "in this part of the run's steps, then down; no warm-up, and the momentum stays"},
     .lr = onecycle_lr,
     .peak = cycle_peak,
     .check = check_cycle,
     .params = {WARMUP_PARAMS, [CYCLE_START] = {"pct_start", 0.3, 0, 1, false},
                [CYCLE_DIV] = {"div_factor", 25, 1, 1e9, false},
                [CYCLE_FINAL_DIV] = {"final_div_factor", 1e4, 1, 1e15, false},
                [CYCLE_THREE_PHASE] = {"three_phase", 0, 0, 1, true}, [CYCLE_LINEAR] = {"linear", 0, 0, 1, true}}},
    {.info = {.name = "plateau",
              .summary =
                  "factor=0.1,patience=10,threshold=1e-4,abs=0,cooldown=0,min=0,eps=1e-8,accuracy=0: times factor "
                  "after more than `patience` epochs without a better loss (or accuracy) of the validation or "
                  "test data"},
     .lr = plateau_lr,
     .observe = plateau_observe,
     .params = {WARMUP_PARAMS, [PLATEAU_FACTOR] = {"factor", 0.1, 0, 0.999999, false},
                [PLATEAU_PATIENCE] = {"patience", 10, 0, 1e9, true},
                [PLATEAU_THRESHOLD] = {"threshold", 1e-4, 0, 1e9, false}, [PLATEAU_ABS] = {"abs", 0, 0, 1, true},
                [PLATEAU_COOLDOWN] = {"cooldown", 0, 0, 1e9, true}, [PLATEAU_MIN] = {"min", 0, 0, 1e9, false},
                [PLATEAU_EPS] = {"eps", 1e-8, 0, 1e9, false}, [PLATEAU_ACCURACY] = {"accuracy", 0, 0, 1, true}}},
};

enum { SCHEDULES = sizeof schedules / sizeof *schedules };

const lk_optim_info *lk_lr_schedule_list(size_t index)
{
    return index < SCHEDULES ? &schedules[index].info : NULL;
}

static const char *schedule_name(const void *arg, size_t index)
{
    (void)arg;
    return index < SCHEDULES ? schedules[index].info.name : NULL;
}

static const lk_names names = {.what = option, .kind = "schedule", .next = schedule_name};

lk_status lk_lr_schedule_create(const char *spec, lk_lr_schedule **out)
{
    size_t found = 0;
    LK_TRY(LK_GIVEN(spec));
    LK_TRY(LK_GIVEN(out));
    LK_TRY(lk__spec_find(spec, &names, &found));
    lk_lr_schedule read = {.row = &schedules[found], .list = schedules[found].list};
    LK_TRY(lk__spec_values_list(spec, option, read.row->params, MAX_PARAMS, read.values, &read.list));
    if (read.values[WARMUP] != 0 && read.values[WARMUP_STEPS] != 0)
        return lk__fail(LK_STATUS_USAGE, "%s: warmup=%.10g counts epochs, warmup_steps=%.10g steps; give one of them",
                        option, read.values[WARMUP], read.values[WARMUP_STEPS]);
    if (read.row->peak && (read.values[WARMUP] != 0 || read.values[WARMUP_STEPS] != 0))
        return lk__fail(LK_STATUS_USAGE, "%s: %s begins with a rise of its own; leave the warm-up out", option,
                        read.row->info.name);
    lk_lr_schedule *schedule;
    LK_TRY(LK_ALLOC(1, "schedule", &schedule));
    *schedule = read;
    *out = schedule;
    return LK_OK;
}

void lk_lr_schedule_destroy(lk_lr_schedule *schedule)
{
    lk__mem_free(schedule);
}

lk_status lk_lr_schedule_check(const lk_lr_schedule *schedule, double base_lr, lk_lr_schedule_at at)
{
    LK_TRY(LK_GIVEN(schedule));
    if (at.batches == 0)
        return lk__fail(LK_STATUS_USAGE, "an epoch of 0 batches has no rates");
    return schedule->row->check ? schedule->row->check(schedule, base_lr, at) : LK_OK;
}

static position after_warmup(lk_lr_schedule_at at, size_t warmup)
{
    size_t step = at.epoch * at.batches + at.batch - warmup;
    return (position){.epoch = step / at.batches,
                      .batch = step % at.batches,
                      .batches = at.batches,
                      .epochs = at.epochs,
                      .warmup = warmup,
                      .drops = at.drops};
}

double lk_lr_schedule_lr(const lk_lr_schedule *schedule, double base_lr, lk_lr_schedule_at at)
{
    size_t step = at.epoch * at.batches + at.batch, warmup = lk_lr_schedule_warmup(schedule, at.batches);
    if (!schedule || at.batches == 0)
        return 0;
    if (step < warmup)
        return base_lr * ((double)(step + 1) / (double)warmup);
    return schedule->row->lr(schedule, base_lr, after_warmup(at, warmup));
}

static double rate_of_step(const lk_lr_schedule *schedule, double base_lr, lk_lr_schedule_at at, size_t step)
{
    at.epoch = step / at.batches;
    at.batch = step % at.batches;
    return lk_lr_schedule_lr(schedule, base_lr, at);
}

bool lk_lr_schedule_watches(const lk_lr_schedule *schedule)
{
    return schedule && schedule->row->observe;
}

void lk_lr_schedule_observe(const lk_lr_schedule *schedule, lk_lr_schedule_at at, lk_lr_schedule_result result,
                            lk_lr_schedule_watch *watch)
{
    if (!schedule || !watch)
        return;
    bool warm = at.epoch * at.batches + at.batch >= lk_lr_schedule_warmup(schedule, at.batches);
    if (schedule->row->observe && warm)
        schedule->row->observe(schedule, result, watch);
}

/* The warm-up rises and a curve is monotonic on both sides of a peak, so the highest rate is at an end of one of
 * them. */
lk_lr_schedule_rates lk__lr_schedule_rates(const lk_lr_schedule *schedule, double base_lr, lk_lr_schedule_at at,
                                           size_t begin, size_t end)
{
    size_t warmup = lk_lr_schedule_warmup(schedule, at.batches);
    double top = schedule->row->peak ? schedule->row->peak(schedule, at.epochs * at.batches) : 0;
    size_t peak = top > 0 ? (size_t)top : 0;
    const size_t ends[] = {begin, warmup ? warmup - 1 : 0, warmup, peak, peak + 1, end - 1};
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
