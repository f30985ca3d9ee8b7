/* own_trial.h - what lk_op_check and lk_loss_check share: options, random inputs, arrays with guards, finite
 * differences, the report. */
#ifndef LK_NN_OPS_OWN_TRIAL_H
#define LK_NN_OPS_OWN_TRIAL_H

#include "nn/op.h"

/* The most samples of a trial, the samples by default, and the most elements of a tensor whose gradient is checked. */
enum { LK_OP_TRIAL_SAMPLES = 64, LK_OP_TRIAL_USUAL = 7, LK_OP_TRIAL_PROBES = 48 };

/* A range of random numbers; both 0: [-1, 1). */
typedef struct lk_op_range {
    double low, high;
} lk_op_range;

/* USAGE, with the name of the public function, if one of these options is impossible. `names` are those of the range's
 * options. */
lk_status lk__op_trial_check_samples(const char *function, size_t samples, size_t least) LK_CHECKED;
lk_status lk__op_trial_check_range(const char *function, const char *names[2], lk_op_range range) LK_CHECKED;
lk_status lk__op_trial_check_tolerance(const char *function, double tolerance) LK_CHECKED;

/* Uniform numbers: a stream for each tensor, and a turn for each new draw of it. */
void lk__op_trial_draw(uint64_t seed, int stream, uint32_t turn, lk_op_range range, size_t count, float *out);
/* The elements to check, k from 0 to LK_OP_TRIAL_PROBES - 1: all of `count`, or some of them at random. */
size_t lk__op_trial_probe(uint64_t seed, int stream, uint32_t turn, size_t count, size_t k);

/* The largest magnitude. */
double lk__op_trial_largest(const float *values, size_t count);

/* An input layer of a trial's graph, which may have several. */
lk_node lk__op_trial_input(lk_graph *graph, lk_op_size size);

/* The report of a check: the caller's text, and how much of it is used. */
typedef struct lk_op_report {
    char *text; /* NULL: none */
    size_t bytes, used;
} lk_op_report;
void lk__op_report_begin(lk_op_report *report, char *text, size_t bytes);
void lk__op_report_add(lk_op_report *report, const char *line);

/* A derivative by finite differences, and by how much the function is not smooth there. */
typedef struct lk_op_slope {
    double slope, doubt;
} lk_op_slope;
/* Writes the value of a function with `delta` added to its argument. The step that was taken, which rounding has
 * changed, is written to *taken. */
typedef lk_status (*lk_op_slope_fn)(void *arg, double delta, double *taken, double *value);
/* `at` is the argument itself. */
lk_status lk__op_slope_find(lk_op_slope_fn value, void *arg, double at, lk_op_slope *out) LK_CHECKED;
/* The error of a gradient that is accepted: tolerance times the largest slope, and the effect of rounding on values
 * that are sums of floats; `size` is the sum of their magnitudes. */
double lk__op_slope_bound(const lk_op_slope *slopes, size_t count, double tolerance, double size);
/* Whether the function is not smooth enough for a comparison. */
bool lk__op_slope_is_rough(lk_op_slope slope, double bound);

/* Floats of a device with watched floats before and after them. */
typedef struct lk_op_guarded {
    char name[32];       /* in messages */
    size_t room;         /* floats */
    size_t first, count; /* of the floats that were put last, in the arrays below */
    float *put, *seen;   /* host: all floats as they were put, and as they are now */
    float *block;        /* device */
} lk_op_guarded;

/* Also correct for room 0. lk__op_guarded_fini also frees what a failure has left. */
lk_status lk__op_guarded_init(lk_device *dev, const char *name, size_t room, lk_op_guarded *out) LK_CHECKED;
void lk__op_guarded_fini(lk_device *dev, lk_op_guarded *guarded);
/* Puts `count` floats, `shift` floats (below 16) before an aligned address; or `count` times one float, aligned. */
lk_status lk__op_guarded_put(lk_device *dev, lk_op_guarded *guarded, const float *values, size_t count,
                             size_t shift) LK_CHECKED;
lk_status lk__op_guarded_fill(lk_device *dev, lk_op_guarded *guarded, float value, size_t count) LK_CHECKED;
/* The floats in the device's memory. */
float *lk__op_guarded_at(const lk_op_guarded *guarded);
/* Reads everything back. MISMATCH if something outside of the floats has changed, or unless `written` one of them; who
 * is the beginning of the detail: "op 'swish', check `guards`: forward of 1 sample". */
lk_status lk__op_guarded_check(lk_device *dev, lk_op_guarded *guarded, const char *who, bool written) LK_CHECKED;
/* The floats as they were read back. */
const float *lk__op_guarded_seen(const lk_op_guarded *guarded);

#endif
