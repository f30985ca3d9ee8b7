/* optim.h - optimisers over flat arrays, and learning-rate schedules.
 *
 * An optimiser knows elements, not tensors: it may step any range of the flat
 * parameter array, so a range can be updated as soon as its gradient is there.
 * Update rules are PyTorch's. */
#ifndef LK_OPTIM_OPTIM_H
#define LK_OPTIM_OPTIM_H

#include <stddef.h>
#include <stdint.h>

#include "tensor/device.h"

typedef struct lk_optim lk_optim;

/* spec is a row of the table with parameters: "sgd:momentum=.9". lr 0 takes the
 * optimiser's own default. State for count elements is allocated on dev. */
lk_status lk__optim_create(const char *spec, double lr, lk_device *dev, size_t count, lk_optim **out) LK_CHECKED;
void lk__optim_destroy(lk_optim *optim);

double lk__optim_lr(const lk_optim *optim);
/* USAGE for what is no rate: below 0, not finite, or not finite as a float. 0 is one. */
lk_status lk__optim_set_lr(lk_optim *optim, double lr) LK_CHECKED;
/* What random numbers of a training step are found by: counted steps, whether the
 * optimiser updated by them or not. */
uint64_t lk__optim_steps(const lk_optim *optim);
/* Counts a training step. Each update needs one that was counted before it. */
void lk__optim_count(lk_optim *optim);
/* The arrays of state that it keeps, one float an element each, on dev. */
size_t lk__optim_states(const lk_optim *optim);
float *lk__optim_state(const lk_optim *optim, size_t index);
/* In PyTorch's words: "exp_avg". */
const char *lk__optim_state_name(const lk_optim *optim, size_t index);

/* All else that later steps depend on, beside what it was created with. */
typedef struct lk_optim_numbers {
    uint64_t steps;
    double lr;
    double powers[2]; /* a rule's own, in [0,1]: parameters to the power of updates, or marks */
} lk_optim_numbers;
lk_optim_numbers lk__optim_numbers(const lk_optim *optim);
void lk__optim_set_numbers(lk_optim *optim, const lk_optim_numbers *numbers);

/* The row of the table: "adam". */
const char *lk__optim_name(const lk_optim *optim);

/* An update is one begin, then any disjoint ranges that cover all elements. */
typedef struct lk_optim_range {
    const float *grads; /* the whole flat arrays, on dev */
    float *params;
    size_t begin, end;
    const lk_flag *flag; /* where it is bad nothing changes; NULL: never. Device memory */
} lk_optim_range;
lk_status lk__optim_begin(lk_optim *optim) LK_CHECKED;
/* The same in parts, for a caller that brings the update's scalars to the device itself:
 * they are then at `place` there, of LK_SCALARS_BYTES, and advance writes what belongs there. */
enum { LK_SCALARS_BYTES = 64 };
void lk__optim_place(lk_optim *optim, void *place);
void lk__optim_advance(lk_optim *optim, void *scalars);
void lk__optim_range(lk_optim *optim, const lk_optim_range *range);

/* Rows of the optimiser table, NULL after the last. */
typedef struct lk_optim_info {
    const char *name;
    const char *summary; /* parameters and their defaults */
} lk_optim_info;
const lk_optim_info *lk__optim_list(size_t index);

/* A schedule is a pure function of the place in the run, so that a run resumed
 * there goes on alike. */
typedef struct lk_lr_schedule_at {
    size_t epoch, epochs;  /* from 0; of the run */
    size_t batch, batches; /* from 0, in the epoch; of an epoch */
} lk_lr_schedule_at;

/* spec is a row of the table with parameters: "step:size=1,gamma=.7". Each also
 * takes a warm-up of N steps, warmup_steps=N, or of E epochs, warmup=E, in which
 * the rate rises from step to step: base_lr * (step + 1) / N, where N is E times
 * the batches of an epoch.
 * What follows begins at its own 0, as in PyTorch's SequentialLR([LinearLR(1/N,
 * total_iters=N-1), ...], [N]) that is stepped after each batch: step, multistep
 * and exponential count epochs, of as many steps as the run's, from the end of the
 * warm-up; cosine and gaussian fall from there up to the end of the run (or of its
 * epoch `epochs`, then they stay), epoch by epoch or, with by_step, step by step. */
typedef struct lk_lr_schedule lk_lr_schedule;
lk_status lk__lr_schedule_create(const char *spec, lk_lr_schedule **out) LK_CHECKED;
void lk__lr_schedule_destroy(lk_lr_schedule *schedule);
/* USAGE when the schedule does not fit base_lr and the run, whose epochs and
 * batches `at` gives. A run that ends in its warm-up is legal: recipes are tried
 * out with fewer epochs. */
lk_status lk__lr_schedule_check(const lk_lr_schedule *schedule, double base_lr, lk_lr_schedule_at at) LK_CHECKED;
/* Steps of the warm-up; 0: there is none. */
size_t lk__lr_schedule_warmup(const lk_lr_schedule *schedule, size_t batches);
/* The rate of the step at this place. */
double lk__lr_schedule_lr(const lk_lr_schedule *schedule, double base_lr, lk_lr_schedule_at at);
/* The rates of steps begin to end - 1 of the run, of which there is one at least. `at` gives the run's length. */
typedef struct lk_lr_schedule_rates {
    double first, highest, last;
} lk_lr_schedule_rates;
lk_lr_schedule_rates lk__lr_schedule_rates(const lk_lr_schedule *schedule, double base_lr, lk_lr_schedule_at at,
                                           size_t begin, size_t end);
const lk_optim_info *lk__lr_schedule_list(size_t index);

#endif
