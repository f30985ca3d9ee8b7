/* optim.h - optimisers over flat arrays, and learning-rate schedules.
 *
 * An optimiser knows elements, not tensors: it can update any range of the flat parameter array, so
 * a range is updated as soon as its gradient is complete. The update rules are PyTorch's. */
#ifndef LK_OPTIM_OPTIM_H
#define LK_OPTIM_OPTIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/optim.h>

#include "tensor/device.h"

typedef struct lk_optim lk_optim;

/* spec is the name of an optimiser with parameters: "sgd:momentum=.9". lr 0 means the optimiser's
 * default rate. The state for count elements is allocated on dev. */
lk_status lk__optim_create(const char *spec, double lr, lk_device *dev, size_t count, lk_optim **out) LK_CHECKED;
void lk__optim_destroy(lk_optim *optim);

double lk__optim_lr(const lk_optim *optim);
/* The default rate of the optimiser that spec names; 0 if there is no such optimiser. */
double lk__optim_default_lr(const char *spec);
/* USAGE if lr is below 0, not finite, or not finite as a float. 0 is legal. */
lk_status lk__optim_set_lr(lk_optim *optim, double lr) LK_CHECKED;
/* The number of counted training steps, with or without an update. Addresses the random numbers of
 * a step. */
uint64_t lk__optim_steps(const lk_optim *optim);
/* Counts a training step. Each update needs a step counted before it. */
void lk__optim_count(lk_optim *optim);
/* The state arrays on dev, each with one float for every element: their number, and one of them. */
size_t lk__optim_states(const lk_optim *optim);
float *lk__optim_state(const lk_optim *optim, size_t index);
/* PyTorch's name: "exp_avg". */
const char *lk__optim_state_name(const lk_optim *optim, size_t index);

/* Everything else that later steps depend on, beside the arguments of lk__optim_create. */
typedef struct lk_optim_numbers {
    uint64_t steps;
    double lr;
    double powers[2]; /* for the rule, in [0,1]: parameters to the power of the updates, or flags */
} lk_optim_numbers;
lk_optim_numbers lk__optim_numbers(const lk_optim *optim);
void lk__optim_set_numbers(lk_optim *optim, const lk_optim_numbers *numbers);

/* The name in the table: "adam". */
const char *lk__optim_name(const lk_optim *optim);

/* A group of elements that has its own learning rate and weight decay. */
typedef struct lk_optim_group {
    double lr_scale;     /* factor of the optimiser's rate */
    double weight_decay; /* NaN: the optimiser's */
} lk_optim_group;
enum { LK_OPTIM_MAX_GROUPS = 16 };
/* USAGE if the scale is not positive, or the decay is negative or one that the optimiser does not have. */
lk_status lk__optim_check_group(const lk_optim *optim, const lk_optim_group *group) LK_CHECKED;
/* Sets the groups that ranges may have, which were checked; at first there is one, {1, NaN}. count is 1 to
 * LK_OPTIM_MAX_GROUPS. */
void lk__optim_set_groups(lk_optim *optim, const lk_optim_group *groups, size_t count);

/* An update is one lk__optim_begin, then lk__optim_range for disjoint ranges that cover all
 * elements. */
typedef struct lk_optim_range {
    const float *grads; /* the whole flat arrays, on dev */
    float *params;
    /* NULL, or the copy of params in the device's value type. Rules of the library write it with params; rules of the
     * program do not (lk__optim_rounds). */
    void *values;
    size_t begin, end;
    size_t group;        /* of these elements */
    const lk_flag *flag; /* device memory; a raised flag prevents the update; NULL: none */
} lk_optim_range;
lk_status lk__optim_begin(lk_optim *optim) LK_CHECKED;
/* lk__optim_begin in parts, for a caller that itself copies the scalars of an update to the device. The
 * optimiser then reads the scalars from `scalars` in device memory, LK_SCALARS_BYTES long and borrowed, and frees its
 * own; later calls set other memory. lk__optim_advance begins an update and writes its scalars to host memory. */
enum { LK_SCALARS_BYTES = 32 * LK_OPTIM_MAX_GROUPS };
void lk__optim_set_scalars(lk_optim *optim, void *scalars);
void lk__optim_advance(lk_optim *optim, void *scalars);
void lk__optim_range(lk_optim *optim, const lk_optim_range *range);
/* Whether lk__optim_range writes values: the library's rules do. */
bool lk__optim_rounds(const lk_optim *optim);

/* Whether the optimiser whose name begins the spec has this parameter; false for an unknown name. */
bool lk__optim_takes(const char *spec, const char *key);

/* The rates of steps begin to end - 1 of the run; at least one step. `at` gives the length of the
 * run. */
typedef struct lk_lr_schedule_rates {
    double first, highest, last;
} lk_lr_schedule_rates;
lk_lr_schedule_rates lk__lr_schedule_rates(const lk_lr_schedule *schedule, double base_lr, lk_lr_schedule_at at,
                                           size_t begin, size_t end);

#endif
