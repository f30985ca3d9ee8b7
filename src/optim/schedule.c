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
    struct {
        const char *name; /* NULL after the last */
        double value, min, max;
        bool whole;
    } params[MAX_PARAMS];
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
     .params = {[STEP_SIZE] = {"size", 1, 1, 1e9, true}, [STEP_GAMMA] = {"gamma", 0.7, 0, 1, false}}},
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

static lk_status find_row(const char *spec, const row **out)
{
    char name[LK_SPEC_MAX_NAME];
    LK_TRY(lk__spec_name(spec, option, name));
    for (size_t i = 0; i < SCHEDULES; i++) {
        if (strcmp(schedules[i].info.name, name) == 0) {
            *out = &schedules[i];
            return LK_OK;
        }
    }
    const char *near = lk__nearest(name, schedule_name, NULL);
    return lk__fail(LK_STATUS_USAGE, "%s: no schedule '%s'; %s%s", option, name,
                    near ? "did you mean " : "there are constant and ", near ? near : "step");
}

static lk_status read_values(const row *found, const char *spec, double values[MAX_PARAMS])
{
    lk_spec_key keys[MAX_PARAMS];
    size_t count = 0;
    for (; count < MAX_PARAMS && found->params[count].name; count++) {
        values[count] = found->params[count].value;
        keys[count] = (lk_spec_key){.name = found->params[count].name,
                                    .value = &values[count],
                                    .min = found->params[count].min,
                                    .max = found->params[count].max};
    }
    LK_TRY(lk__spec_params(spec, option, keys, count));
    for (size_t i = 0; i < count; i++) {
        if (found->params[i].whole && values[i] != (double)(size_t)values[i])
            return lk__fail(LK_STATUS_USAGE, "%s %s: %s=%g must be a whole number", option, found->info.name,
                            keys[i].name, values[i]);
    }
    return LK_OK;
}

lk_status lk__schedule_create(const char *spec, lk_schedule **out)
{
    const row *found = NULL;
    double values[MAX_PARAMS] = {0};
    LK_TRY(find_row(spec, &found));
    LK_TRY(read_values(found, spec, values));
    lk_schedule *schedule;
    LK_TRY(LK_ALLOC(1, "schedule", &schedule));
    schedule->lr = found->lr;
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
