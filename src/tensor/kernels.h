/* kernels.h - the operations a device can do: one struct of function pointers.
 *
 * Contract of every slot, unless it says otherwise:
 * - It enqueues work on the device's stream and may return before it is done;
 *   slots run in the order of the calls. Faults surface at lk_device sync.
 * - Host arguments (descriptions, lk_shards, rows) are read before it returns.
 * - It allocates nothing. Scratch comes in as `scratch`, of at least the bytes
 *   that the family's *_scratch slot returned for the same problem with the
 *   largest n that will be used. Its content does not survive the call.
 * - Outputs do not overlap inputs unless the comment says "in place".
 * - Each output element is one sum in a fixed order that depends on the
 *   problem's shape per sample alone, never on n, threads or vector width.
 * - Sums over samples go leaf by leaf into partial sums (shards.h).
 * - A NaN passes: max(y, 0) of a NaN is a NaN, wherever it is done, and the
 *   gradient of a ReLU passes where its result is a NaN.
 * Tensors of activations are (n, h, w, c) in memory, of the device's value type
 * and pitch unless the comment says otherwise; all other arrays are f32 without
 * pads. "w" and "b" of convolutions and linear layers are of the value type, and
 * weights and their gradients in the device's own order (device.h). All slots are
 * required. */
#ifndef LK_TENSOR_KERNELS_H
#define LK_TENSOR_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include <lockstep/group.h>

#include "tensor/shards.h"
#include "tensor/tensor.h"

typedef struct lk_conv2d_desc {
    size_t kernel, stride, pad;
    size_t groups; /* divides the channels of both sides */
} lk_conv2d_desc;

typedef struct lk_pool2d_desc {
    size_t kernel, stride, pad;
} lk_pool2d_desc;

enum { LK_POOL2D_NO_GRADIENT = 255 };

/* Elements of a block of sum_squares; part of the result of clipping. */
enum { LK_NORM_BLOCK = 4096 };

/* Where the random numbers of a dropout layer are: base/rng.h, LK_RNG_DROPOUT. */
typedef struct lk_dropout_desc {
    float p; /* chance of a zero, in [0,1) */
    uint64_t seed;
    uint32_t layer;
    const uint32_t *step; /* device memory, so that a recorded step can be run again */
    const uint32_t *ids;  /* (n) sample ids, device memory */
    bool channels;        /* a draw is for a whole channel, which is its element */
} lk_dropout_desc;

/* Words below it drop their element. */
static inline uint32_t lk__dropout_desc_threshold(const lk_dropout_desc *dropout)
{
    return (uint32_t)((double)dropout->p * 0x1p32);
}

/* What those that stay are multiplied by. */
static inline float lk__dropout_desc_scale(const lk_dropout_desc *dropout)
{
    return (float)(1.0 / (1.0 - (double)dropout->p));
}

/* What a loss compares scores with: the label, of weight 1 - smoothing, and all
 * classes alike, of weight smoothing / classes each. */
typedef struct lk_loss_desc {
    const int32_t *labels; /* (n), device memory */
    float smoothing;       /* in [0,1) */
    float scale;           /* of the gradient */
} lk_loss_desc;

/* Mean and 1/sqrt(variance + eps) per channel, in one group for all samples or
 * in one group a shard. */
typedef struct lk_moments {
    int groups;   /* 1, or the wave's shard count */
    float *mean;  /* (groups, c) */
    float *scale; /* (groups, c) */
} lk_moments;

/* What becomes of a normalised value: xhat * gamma + beta, of the value type, then the
 * sum of that and other, then max(y, 0). */
typedef struct lk_batchnorm_desc {
    const float *gamma, *beta; // (c)
    const lk_tensor *other;    /* y's channels or the first of them, the rest being 0; NULL: nothing is added */
    bool relu;
} lk_batchnorm_desc;

/* What the gradient of a normalisation needs of each group. */
typedef struct lk_batchnorm_grad {
    const float *gamma; // (c)
    const float *sums;  // (groups, 2, c), of dy and of dy * xhat
    const size_t *rows; // (groups) samples
    bool add;           /* dx has a part of a gradient, and gets the sum of that and this one, of the value type */
} lk_batchnorm_grad;

/* What flag_above found, in device memory. Nothing: {LK_FLAG_NONE, 0}. */
typedef struct lk_flag {
    uint64_t first; /* the lowest place */
    uint32_t bad;   /* 1 where there is one */
} lk_flag;
#define LK_FLAG_NONE UINT64_MAX

/* A step's results on their way to the host, which reads them while the device goes
 * on: `number` is written last, and all else is there when it is. */
typedef struct lk_results {
    lk_flag flag;
    uint32_t number; /* of the step, plus 1 */
    /* Behind it: (n) losses, then (n) places. */
} lk_results;

typedef struct lk_post {
    size_t n;
    const float *loss;    /* (n) */
    const int32_t *label_rank; /* (n) */
    const lk_flag *flag;
    const uint32_t *step; /* its number, in device memory like all before */
    char *ring;           /* of lk_results in memory of alloc_host; step s goes to s % slots */
    uint32_t slots;
    size_t stride; /* bytes from one to the next */
} lk_post;

/* A data set of bytes, and what becomes of a sample that is taken from it. All that
 * is random is drawn as in data/transform_crop.c: base/rng.h, LK_RNG_AUGMENT. */
typedef struct lk_gather_desc {
    const uint8_t *pixels; /* (samples, c, h, w), device memory like all pointers here */
    size_t record;         /* bytes of a sample */
    const float *table;    /* (c, 256): what a byte of a channel becomes */
    const uint32_t *epoch;
    uint64_t seed;
    uint32_t crop; /* zeros around the image that a window of its size is taken from; 0: no crop */
    double flip;   /* chance of left and right being exchanged; 0: never */
    /* Places in the list of transforms: the lower one is done first. */
    uint32_t crop_layer, flip_layer;
} lk_gather_desc;

/* What a step needs on its way from the host, which writes it into a ring in memory
 * of alloc_host and enqueues the step: the device counts the turns. */
typedef struct lk_fetch_desc {
    const char *ring;
    uint32_t slots;
    size_t stride;  /* bytes from one to the next */
    size_t bytes;   /* a multiple of 4 */
    uint32_t *turn; /* device memory: slot *turn % slots is next; one more afterwards */
} lk_fetch_desc;

/* One optimiser step over flat arrays. Scalars are already what the element
 * update needs; the struct is in device memory. */
typedef struct lk_sgd {
    float lr, momentum, dampening, weight_decay;
    bool nesterov;
    bool first; /* momentum buffer starts as the gradient */
} lk_sgd;

typedef struct lk_adam {
    float beta2, one_minus_beta1, one_minus_beta2;
    float step_size;       /* lr / (1 - beta1^t) */
    float root_correction; /* sqrt(1 - beta2^t) */
    float eps, weight_decay;
    float shrink; /* what the parameter is multiplied by first: 1, or AdamW's 1 - lr * decay */
} lk_adam;

typedef struct lk_adadelta {
    float lr, rho, one_minus_rho, eps, weight_decay;
} lk_adadelta;

typedef struct lk_kernels {
    /* conv2d: w is (o, i / groups, kh, kw) row-major as in PyTorch. y = conv(x, w) + b,
     * then max(y, 0) if relu; b may be NULL. */
    size_t (*conv2d_scratch)(lk_device *dev, const lk_conv2d_desc *conv, lk_shape x, lk_shape y);
    void (*conv2d_forward)(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *x, const void *w, const void *b,
                           bool relu, lk_tensor *y, void *scratch);
    /* mask is NULL, or x where it is the result of a ReLU whose gradient is taken
     * here as well: dx is 0 where x <= 0. */
    void (*conv2d_grad_input)(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *dy, const void *w,
                              const lk_tensor *mask, lk_tensor *dx, void *scratch);
    /* dw in the order of w; db may have slot0 NULL when there is no bias. */
    void (*conv2d_grad_weight)(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *x, const lk_tensor *dy,
                               const lk_shards *shards, lk_partials dw, lk_partials db, void *scratch);

    /* linear: x (n, i), w (o, i) row-major, y (n, o) = x w^T + b. */
    size_t (*linear_scratch)(lk_device *dev, lk_shape x, lk_shape y);
    void (*linear_forward)(lk_device *dev, const lk_tensor *x, const void *w, const void *b, bool relu, lk_tensor *y,
                           void *scratch);
    void (*linear_grad_input)(lk_device *dev, const lk_tensor *dy, const void *w, const lk_tensor *mask, lk_tensor *dx,
                              void *scratch);
    void (*linear_grad_weight)(lk_device *dev, const lk_tensor *x, const lk_tensor *dy, const lk_shards *shards,
                               lk_partials dw, lk_partials db, void *scratch);

    /* batchnorm2d. stats: per shard the mean and M2 (sum of squared deviations)
     * of each channel over its samples and pixels: (count, 2, c). An empty shard
     * gives zeros. */
    void (*batchnorm_stats)(lk_device *dev, const lk_tensor *x, const lk_shards *shards, float *stats);
    /* Folds per-shard stats into partial (mean, M2) entries of 2*c floats, left
     * child then right child, weighted by rows * pixels (Chan's formula). */
    void (*batchnorm_fold)(lk_device *dev, size_t c, size_t pixels, const lk_shards *shards, const float *stats,
                           lk_partials moments);
    /* From (mean, M2) of `groups` groups with rows[g] samples: moments->mean and
     * moments->scale. stats is (groups, 2, c); a group without samples gives 0. */
    void (*batchnorm_moments)(lk_device *dev, size_t c, size_t pixels, const float *stats, const size_t *rows,
                              float eps, lk_moments *moments);
    /* The same from running statistics: mean and variance per channel. */
    void (*batchnorm_running_moments)(lk_device *dev, size_t c, const float *mean, const float *variance, float eps,
                                      lk_moments *moments);
    /* running = (1 - momentum) * running + momentum * (mean, unbiased variance
     * of `elements` values), from a (mean, M2) entry. One element leaves the
     * variance alone. Nothing changes where flag->bad; flag may be NULL. */
    void (*batchnorm_running_update)(lk_device *dev, size_t c, const float *entry, size_t elements, float momentum,
                                     const lk_flag *flag, float *mean, float *variance);
    void (*batchnorm_forward)(lk_device *dev, const lk_batchnorm_desc *desc, const lk_tensor *x,
                              const lk_shards *shards, const lk_moments *moments, lk_tensor *y);
    /* Per shard the sums of dy and of dy * xhat: (count, 2, c), xhat being
     * (x - mean) * scale. */
    void (*batchnorm_sums)(lk_device *dev, const lk_tensor *x, const lk_tensor *dy, const lk_shards *shards,
                           const lk_moments *moments, float *sums);
    void (*batchnorm_grad_input)(lk_device *dev, const lk_batchnorm_grad *grad, const lk_tensor *x, const lk_tensor *dy,
                                 const lk_shards *shards, const lk_moments *moments, lk_tensor *dx);
    /* Folds (count, width) rows, one a shard and `row` floats apart, by plain
     * addition into partials of width floats. */
    void (*rows_fold)(lk_device *dev, size_t width, const float *leaves, size_t row, const lk_shards *shards,
                      lk_partials sums);

    /* y = max(x, 0) as x <= 0 ? 0 : x; y may be x. */
    void (*relu_forward)(lk_device *dev, const lk_tensor *x, lk_tensor *y);
    /* dx = y <= 0 ? 0 : dy; dx may be dy. */
    void (*relu_grad_input)(lk_device *dev, const lk_tensor *y, const lk_tensor *dy, lk_tensor *dx);
    /* y = 6 <= x ? 6 : max(x, 0); y may be x. */
    void (*relu6_forward)(lk_device *dev, const lk_tensor *x, lk_tensor *y);
    /* dx = y <= 0 or 6 <= y ? 0 : dy; dx may be dy. */
    void (*relu6_grad_input)(lk_device *dev, const lk_tensor *y, const lk_tensor *dy, lk_tensor *dx);
    /* y = a + b, then max(y, 0) if relu; y may be a or b. */
    void (*add)(lk_device *dev, const lk_tensor *a, const lk_tensor *b, bool relu, lk_tensor *y);
    /* Of one shape. Types (f32 and bf16) and pitches may differ, and be any. */
    void (*copy)(lk_device *dev, const lk_tensor *x, lk_tensor *y);
    /* Samples ids[0..n) of a data set, n and the shape being x's; ids is device memory.
     * The loader's values, rounded to x's type. */
    void (*gather)(lk_device *dev, const lk_gather_desc *gather, const uint32_t *ids, lk_tensor *x);
    /* The first channels of x; where y has more, the rest are 0. */
    void (*fit_channels)(lk_device *dev, const lk_tensor *x, lk_tensor *y);
    /* y = x / (1 - p), or where that is dropped x - x: 0, or NaN where x is not finite.
     * By the logical (c, h, w) element index of each sample, or by its channel; the
     * gradient is the same function. In place allowed. */
    void (*dropout)(lk_device *dev, const lk_dropout_desc *dropout, const lk_tensor *x, lk_tensor *y);
    /* (n, h, w, c) to (n, c*h*w) in c, h, w order, and back. */
    void (*flatten_forward)(lk_device *dev, const lk_tensor *x, lk_tensor *y);
    void (*flatten_grad_input)(lk_device *dev, const lk_tensor *dy, lk_tensor *dx);

    /* index: (n, h, w, pitch) of y, the winner's place in its window, ky*kernel+kx;
     * the first of equal values wins, and the first NaN wins over all. Padding never
     * wins. With mask, x being the result of a ReLU whose gradient is taken here as
     * well, a winner <= 0 has place LK_POOL2D_NO_GRADIENT and gets no gradient. With dropout,
     * which may be NULL, y and dy are those of a dropout behind the pooling; what it
     * drops has place LK_POOL2D_NO_GRADIENT. */
    void (*maxpool_forward)(lk_device *dev, const lk_pool2d_desc *pool, const lk_dropout_desc *dropout,
                            const lk_tensor *x, bool mask, lk_tensor *y, uint8_t *index);
    void (*maxpool_grad_input)(lk_device *dev, const lk_pool2d_desc *pool, const lk_dropout_desc *dropout,
                               const lk_tensor *dy, const uint8_t *index, lk_tensor *dx);
    /* Means over windows, as many as y has; padding counts as zeros, what lies
     * beyond it does not count. */
    void (*avgpool_forward)(lk_device *dev, const lk_pool2d_desc *pool, const lk_tensor *x, lk_tensor *y);
    void (*avgpool_grad_input)(lk_device *dev, const lk_pool2d_desc *pool, const lk_tensor *dy, lk_tensor *dx);
    void (*global_avgpool_forward)(lk_device *dev, const lk_tensor *x, lk_tensor *y);
    void (*global_avgpool_grad_input)(lk_device *dev, const lk_tensor *dy, lk_tensor *dx);

    void (*log_softmax_forward)(lk_device *dev, const lk_tensor *x, lk_tensor *y);
    /* y is the forward result. */
    void (*log_softmax_grad_input)(lk_device *dev, const lk_tensor *y, const lk_tensor *dy, lk_tensor *dx);
    /* x (n, classes): log-probabilities for nll, scores for cross_entropy. Per
     * sample: its loss; the place of its label among the classes, 0 for the largest
     * score, of equals the first comes first; and dx = scale * d(loss)/dx, unless dx
     * is NULL. */
    void (*nll)(lk_device *dev, const lk_loss_desc *desc, const lk_tensor *x, float *loss, int32_t *label_rank,
                lk_tensor *dx);
    void (*cross_entropy)(lk_device *dev, const lk_loss_desc *desc, const lk_tensor *x, float *loss, int32_t *label_rank,
                          lk_tensor *dx);

    /* PyTorch's update rules over count elements; state arrays are updated in
     * place. sgd's momentum buffer is NULL when momentum is 0. Nothing changes
     * where flag->bad; flag may be NULL. */
    void (*sgd_step)(lk_device *dev, const lk_sgd *sgd, const lk_flag *flag, size_t count, const float *grad,
                     float *param, float *buffer);
    void (*adam_step)(lk_device *dev, const lk_adam *adam, const lk_flag *flag, size_t count, const float *grad,
                      float *param, float *m, float *v);
    void (*adadelta_step)(lk_device *dev, const lk_adadelta *adadelta, const lk_flag *flag, size_t count,
                          const float *grad, float *param, float *square, float *delta);

    /* Adds to *flag, which is device memory, the first element whose magnitude is
     * above limit or that is a NaN, as place base + its index. FLT_MAX finds what
     * is not finite. */
    void (*flag_above)(lk_device *dev, size_t count, float limit, const float *x, uint64_t base, lk_flag *flag);

    void (*post)(lk_device *dev, const lk_post *post);
    /* To dst, device memory. */
    void (*fetch)(lk_device *dev, const lk_fetch_desc *fetch, void *dst);

    /* sums[b] = the sum of the squares of block b of x, LK_NORM_BLOCK elements or
     * what the last one has. */
    void (*sum_squares)(lk_device *dev, size_t count, const float *x, double *sums);
    /* x = x * factor. */
    void (*scale)(lk_device *dev, size_t count, float factor, float *x);

    /* Vectors of any type but f16, for sums between ranks. out = a op b, where
     * MEAN adds as SUM does; out may be a or b. Integers wrap around; a bf16 is
     * added as a float and rounded to the nearest, ties to even. MIN and MAX
     * take b only where it is below or above a. */
    void (*reduce)(lk_device *dev, lk_dtype dtype, lk_reduction op, size_t count, const void *a, const void *b,
                   void *out);
    /* x = x / divisor, which is above 0; integers round towards zero. */
    void (*divide)(lk_device *dev, lk_dtype dtype, size_t count, int divisor, void *x);
    void (*copy_bytes)(lk_device *dev, size_t bytes, const void *src, void *dst);
} lk_kernels;

/* Every slot once. */
/* clang-format off */
#define LK_KERNEL_LIST(X)                                                                                              \
    X(conv2d_scratch) X(conv2d_forward) X(conv2d_grad_input) X(conv2d_grad_weight)                                     \
    X(linear_scratch) X(linear_forward) X(linear_grad_input) X(linear_grad_weight)                                     \
    X(batchnorm_stats) X(batchnorm_fold) X(batchnorm_moments) X(batchnorm_running_moments)                             \
    X(batchnorm_running_update) X(batchnorm_forward) X(batchnorm_sums) X(batchnorm_grad_input)                         \
    X(rows_fold) X(relu_forward) X(relu_grad_input) X(relu6_forward) X(relu6_grad_input)                               \
    X(add) X(copy) X(gather) X(fit_channels) X(dropout) X(flatten_forward) X(flatten_grad_input)                       \
    X(maxpool_forward) X(maxpool_grad_input) X(avgpool_forward) X(avgpool_grad_input)                                  \
    X(global_avgpool_forward) X(global_avgpool_grad_input)                                                             \
    X(log_softmax_forward) X(log_softmax_grad_input) X(nll) X(cross_entropy)                                           \
    X(sgd_step) X(adam_step) X(adadelta_step) X(flag_above) X(post) X(fetch)                                           \
    X(sum_squares) X(scale) X(reduce) X(divide) X(copy_bytes)
/* clang-format on */

#endif
