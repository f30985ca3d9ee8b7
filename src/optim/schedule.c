/* schedule.c - learning-rate schedules: pure functions of the epoch. */
#include <string.h>

#include "base/mem.h"
#include "base/spec.h"
#include "optim/optim.h"

enum { MAX_PARAMS = 2 };

struct lk_schedule {
    double (*lr)(const lk_schedule *schedule, double base_lr, size_t epoch);
    double values[MAX_PARAMS];
};

typedef struct row {
    lk_optim_info info;
    double (*lr)(const lk_schedule *schedule, double base_lr, size_t epoch);
    lk_spec_param params[MAX_PARAMS];
} row;

static double constant_lr(const lk_schedule *schedule, double base_lr, size_t epoch)
{
    (void)schedule, (void)epoch;
    return base_lr;
}

enum { STEP_SIZE, STEP_GAMMA };

/* One product after the other, as PyTorch's StepLR rounds them. */
static double step_lr(const lk_schedule *schedule, double base_lr, size_t epoch)
{
    double lr = base_lr;
    for (size_t i = epoch / (size_t)schedule->values[STEP_SIZE]; i > 0 && lr != 0; i--)
        lr *= schedule->values[STEP_GAMMA];
    return lr;
}

static const row schedules[] = {
    {.info = {.name = "constant", .summary = "the learning rate stays"}, .lr = constant_lr},
    {.info = {.name = "step", .summary = "size=1,gamma=0.7: times gamma after every `size` epochs"},
     .lr = step_lr,
     .params = {[STEP_SIZE] = {"size", 1, 1, 1e9, true}, [STEP_GAMMA] = {"gamma", 0.7, 0, 1e3, false}}},
};

enum { SCHEDULES = sizeof schedules / sizeof *schedules };

static const char option[] = "--schedule";

const lk_optim_info *lk__schedule_list(size_t index)
{
    return index < SCHEDULES ? &schedules[index].info : NULL;
}

static const char *schedule_name(const void *arg, size_t index)
{
    (void)arg;
    return index < SCHEDULES ? schedules[index].info.name : NULL;
}

static const lk_names names = {.what = option, .kind = "schedule", .next = schedule_name};

lk_status lk__schedule_create(const char *spec, lk_schedule **out)
{
    size_t found = 0;
    double values[MAX_PARAMS] = {0};
    LK_TRY(lk__spec_find(spec, &names, &found));
    LK_TRY(lk__spec_values(spec, option, schedules[found].params, MAX_PARAMS, values));
    lk_schedule *schedule;
    LK_TRY(LK_ALLOC(1, "schedule", &schedule));
    schedule->lr = schedules[found].lr;
    memcpy(schedule->values, values, sizeof values);
    *out = schedule;
    return LK_OK;
}

void lk__schedule_destroy(lk_schedule *schedule)
{
    lk__free(schedule);
}

double lk__schedule_lr(const lk_schedule *schedule, double base_lr, size_t epoch)
{
    return schedule->lr(schedule, base_lr, epoch);
}
