/* kernels.h - the kernels of a device: one struct of function pointers.
 *
 * Contract of every slot, unless its comment says otherwise:
 * - A slot enqueues work on the device's stream and may return before the work is complete. Work runs in the
 *   order of the calls. Faults are returned by the device's sync.
 * - Host arguments (descriptions, lk_shards, rows) are read before the slot returns.
 * - A slot allocates nothing. `scratch` has at least the bytes that the family's *_scratch slot returned for
 *   the same problem with the largest n that is used. Its content is lost after the call.
 * - Outputs do not overlap inputs unless the comment says "in place".
 * - Each output element is one sum in a fixed order. The order depends on the shape of a sample, never on n,
 *   threads or vector width. The order inside a leaf of a sum over samples may also depend on lk_shards.most and
 *   lk_shards.all, which are equal on all ranks.
 * - Sums over samples are added to partial sums, one leaf for each shard (shards.h).
 * - NaN propagates: max(NaN, 0) is NaN, and the gradient of a ReLU passes where its result is NaN.
 * - Activations are (n, h, w, c) in memory, in the device's value type and pitch; all other arrays are f32
 *   without pads. "w" and "b" of convolutions and linear layers have the value type; weights and their
 *   gradients are in the device's own order (device.h).
 * - All slots are required. */
#ifndef LK_TENSOR_KERNELS_H
#define LK_TENSOR_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include <lockstep/graph.h>
#include <lockstep/group.h>

#include "tensor/shards.h"
#include "tensor/tensor.h"

/* The windows of a convolution or a pooling along one axis. Tap k of window o reads the input at coordinate
 * o * stride + k * dilation - pad. */
typedef struct lk_window {
    size_t kernel; /* taps */
    size_t stride;
    size_t pad;      /* pixels before and after the input */
    size_t dilation; /* pixels from one tap to the next */
} lk_window;

/* Pixels from the first tap of a window to its last, both included. */
static inline size_t lk__window_extent(const lk_window *window)
{
    return (window->kernel - 1) * window->dilation + 1;
}

typedef struct lk_conv2d_desc {
    lk_window h, w;
    size_t groups; /* divides the input channels and the output channels */
    /* Pixels of the side of Winograd's tiles on CPUs; 0: the direct convolution, as always where the kernel is not 3x3,
     * the stride not 1, or there are groups. GPUs ignore it. */
    size_t tile;
} lk_conv2d_desc;

/* A value of tile that leaves the choice to the kernels (cpu/conv2d_winograd.h); other tiles have 2 or 4 pixels. */
enum { LK_CONV2D_DESC_BY_SHAPE = 1 };

static inline size_t lk__conv2d_desc_taps(const lk_conv2d_desc *conv)
{
    return conv->h.kernel * conv->w.kernel;
}

typedef struct lk_pool2d_desc {
    lk_window h, w; /* average pooling: their dilation is 1 */
} lk_pool2d_desc;

/* For initialisers of both descriptions: the same windows along both axes, without dilation. */
#define LK_WINDOW_SQUARE(kernel, stride, pad) .h = {kernel, stride, pad, 1}, .w = {kernel, stride, pad, 1}

/* Functions of one element. Phi is the distribution function of the normal distribution. */
typedef enum lk_unary {
    LK_UNARY_SIGMOID,   /* 1 / (1 + exp(-x)) */
    LK_UNARY_TANH,      /* tanh(x) */
    LK_UNARY_SILU,      /* x sigmoid(x) */
    LK_UNARY_GELU,      /* x Phi(x) */
    LK_UNARY_GELU_TANH, /* x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3): GELU with (1 + tanh(u)) / 2 for Phi */
    LK_UNARY_COUNT
} lk_unary;

/* In the index of max pooling: this output element passes no gradient back. */
enum { LK_POOL2D_NO_GRADIENT = 255 };

/* Elements of a block of sum_squares. The clipped gradient depends on this number. */
enum { LK_NORM_BLOCK = 4096 };

/* The address of a dropout layer's random numbers: base/rng.h, LK_RNG_PURPOSE_DROPOUT. */
typedef struct lk_dropout_desc {
    float p; /* probability of dropping an element, in [0,1) */
    uint64_t seed;
    uint32_t layer;
    const uint32_t *step; /* device memory, so that a recorded step can be run again */
    const uint32_t *ids;  /* (n) sample ids, device memory */
    bool channels;        /* drops whole channels: element numbers of the draws are channels */
} lk_dropout_desc;

/* An element is dropped if its random word is below this threshold. */
static inline uint32_t lk__dropout_desc_threshold(const lk_dropout_desc *dropout)
{
    return (uint32_t)((double)dropout->p * 0x1p32);
}

/* Factor for the elements that are not dropped. */
static inline float lk__dropout_desc_scale(const lk_dropout_desc *dropout)
{
    return (float)(1.0 / (1.0 - (double)dropout->p));
}

/* Losses of float targets. d is x - target. */
typedef enum lk_loss_kind {
    LK_LOSS_KIND_MSE,       /* d^2 */
    LK_LOSS_KIND_L1,        /* |d| */
    LK_LOSS_KIND_HUBER,     /* d^2 / 2 if |d| < p, otherwise p (|d| - p / 2), with p = parameter > 0 */
    LK_LOSS_KIND_SMOOTH_L1, /* d^2 / (2p) if |d| < p, otherwise |d| - p / 2, with p = parameter >= 0 */
    LK_LOSS_KIND_BCE,  /* -(w t log s(x) + (1 - t) log(1 - s(x))) with the target t, the logistic function s, and the
                        * class weight w of the channel */
    LK_LOSS_KIND_SOFT, /* cross-entropy of scores and probabilities; see lk_loss_desc */
    LK_LOSS_KIND_SOFT_LOGS, /* the same from log-probabilities */
    LK_LOSS_KIND_OWN,       /* a loss of the program (lk_loss_register) */
    LK_LOSS_KIND_COUNT
} lk_loss_kind;

/* The target of a loss of labels is weight 1 - smoothing for the label, plus smoothing / classes for every class.
 * target_loss with labels takes this target, multiplied by the class weights: the label's part by the label's weight,
 * smoothing / classes by the weight of each class. Without labels it takes ((1 - smoothing) target + smoothing /
 * classes), times the weight of each class. A pointer that may be NULL says so; the arrays are device memory. */
typedef struct lk_loss_desc {
    const int32_t *labels; /* (n); target_loss: or NULL */
    float smoothing;       /* in [0,1) */
    float scale;           /* factor of the gradient */
    const float *weights;  /* (n) factor of each sample's loss and gradient, or NULL */
    /* The fields below are for target_loss. */
    lk_loss_kind kind;
    float parameter;
    size_t target_floats;       /* floats of a sample's target: those of x, except for OWN */
    const float *targets;       /* (n, target_floats), the order of x's elements in memory without pads; or NULL */
    const float *class_weights; /* (channels of x), or NULL */
    const lk_loss_def *own;     /* for OWN; host memory */
} lk_loss_desc;

/* On the CPU: the factor of the gradient of sample n. */
static inline float lk__loss_desc_scale(const lk_loss_desc *desc, size_t n)
{
    return desc->weights ? desc->scale * desc->weights[n] : desc->scale;
}

/* The results of target_loss for each sample; device memory. */
typedef struct lk_loss_results {
    float *loss;         /* (n) the mean over the elements, or the sum over the classes, times the weight */
    int32_t *label_rank; /* (n) of classes, as from cross_entropy: the label is the first largest target. BCE: 0 if x >
                          * 0 exactly where the target is above 0.5. OWN: its `rank`. Otherwise INT32_MAX */
    float *error; /* (n, 2) the means over the elements of |e| and e^2, where e is x - target; BCE: s(x) - target;
                   * SOFT: probability - target. 0 if there are fewer or more targets than elements, or none */
} lk_loss_results;

/* Mean and 1/sqrt(variance + eps) of each channel: one group for all samples, or one group for each shard. */
typedef struct lk_moments {
    int groups;   /* 1, or the number of shards of the wave */
    float *mean;  /* (groups, c) */
    float *scale; /* (groups, c) */
} lk_moments;

/* The normalisation and what follows it: y = xhat * gamma + beta, rounded to the value type, then y + other, then
 * max(y, 0), then min(y, 6), then the pooling. */
typedef struct lk_batchnorm_desc {
    const float *gamma, *beta; // (c)
    const lk_tensor *other;    /* has y's channels, or fewer: then the missing channels are 0; NULL: nothing is added */
    bool relu;                 /* max(y, 0), as by relu_forward */
    bool six;                  /* with relu: the minimum too, as by relu6_forward */
    uint8_t *signs;            /* NULL, or where forward writes the signs of y, with other of y's pitch and relu */
    /* NULL, or, without other, six and signs, a max pooling that the device type can do: y and dy are the pooling's. */
    const lk_pool2d_desc *pool;
    uint8_t *index; /* of the pooling, as of maxpool_forward: forward writes it, the gradient reads it */
} lk_batchnorm_desc;

/* What batchnorm_stats writes. */
typedef struct lk_batchnorm_stats {
    float *stats;         // (count, 2, c): mean and M2, the sum of squared deviations, of each shard
    lk_partials partials; /* slot0 NULL, or entries to which batchnorm_fold adds the shards */
    lk_moments *moments;  /* NULL, or the result of batchnorm_moments with rows and eps */
    bool by_shard;        /* moments are those of each shard; false: those of slot 0 of partials */
    const size_t *rows;   // (groups) samples
    float eps;
} lk_batchnorm_stats;

/* What batchnorm_sums writes. */
typedef struct lk_batchnorm_sums {
    float *sums;          // (count, 2, c): the sums of dy and of dy * xhat of each shard
    lk_partials partials; /* slot0 NULL, or entries of (2, c) to which rows_fold adds the shards */
    /* slot0 NULL, or gradients of gamma and beta, with partials: a copy of every entry that is on the stack after the
     * wave, its sums of dy * xhat to dgamma and its sums of dy to dbeta. */
    lk_partials dgamma, dbeta;
} lk_batchnorm_sums;

/* The rest of a gradient: it becomes mask <= 0 ? 0 : gradient + part, as by add_masked, or without mask and signs
 * gradient + part, as by add. */
typedef struct lk_batchnorm_addition {
    lk_tensor part, mask; /* of the gradient's shape and pitch; mask.data NULL: no mask, or its signs */
    /* NULL, or the mask's signs, which are read instead: one byte for each 16 bytes of the mask, in their order. Bit i
     * is 0 if element i of these is <= 0. Only for devices with signs, and a pitch that is a multiple of 8. */
    const uint8_t *signs;
} lk_batchnorm_addition;

/* Inputs of the normalisation's gradient, for each group. */
typedef struct lk_batchnorm_grad {
    const float *sums;  // (groups, 2, c): sums of dy and of dy * xhat
    const size_t *rows; // (groups) samples
    bool add;           /* adds the gradient to dx, in the value type, instead of overwriting dx; without a pooling */
} lk_batchnorm_grad;

/* The running statistics of one layer, and what they are updated with. */
typedef struct lk_batchnorm_update {
    size_t c;
    const float *entry; // (2, c) mean and M2 of `elements` values
    size_t elements;
    float momentum;
    float *mean, *variance; // (c)
} lk_batchnorm_update;

/* Group normalisation. The channels of a pixel are divided into groups of equal size. A set is one group of channels
 * of one sample, over all pixels; or with by_pixel, of one pixel (layer normalisation, with one group). Each set is
 * normalised to mean 0 and variance 1: y = xhat * gamma + beta with xhat = (x - mean) / sqrt(variance + eps).
 * moments is (sets, 2): mean and 1 / sqrt(variance + eps) of each set, in the order of samples, pixels, groups. */
typedef struct lk_groupnorm_desc {
    size_t groups; /* divides the channels */
    bool by_pixel;
    float eps;
    const float *gamma, *beta; // (c)
} lk_groupnorm_desc;

/* Sets of a tensor of this shape. */
static inline size_t lk__groupnorm_desc_sets(const lk_groupnorm_desc *desc, lk_shape shape)
{
    return shape.n * (desc->by_pixel ? shape.h * shape.w : 1) * desc->groups;
}

typedef struct lk_matmul_desc {
    bool transpose_a, transpose_b;
} lk_matmul_desc;

/* An embedding: one row of weights for each id. Every element of a sample of x is an id, in the order of memory; y has
 * one pixel for each, with the channels of its row. An id that is no whole number in [0,rows) gives NaN and has no
 * gradient. */
typedef struct lk_embedding_desc {
    size_t rows; /* at most 2^24, so that a float can hold every id */
} lk_embedding_desc;

/* Result of flag_above, in device memory. {LK_FLAG_NONE, 0}: nothing was found. */
typedef struct lk_flag {
    uint64_t first; /* the lowest position found */
    uint32_t bad;   /* 1 if a position was found */
} lk_flag;
#define LK_FLAG_NONE UINT64_MAX

/* Values that flag_above searches; position base is that of x[0]. */
typedef struct lk_flag_part {
    size_t count;
    const float *x; // (count)
    uint64_t base;
} lk_flag_part;
enum { LK_FLAG_PARTS = 2 }; /* the most of one call */

/* The norm of a gradient, in device memory. */
typedef struct lk_norm {
    double square; /* the sum of the squares of all elements; the norm is its root */
    float factor;  /* the factor that clips the gradient; 1: the gradient stays as it is */
} lk_norm;

/* Results of a step or evaluation in a ring that the host reads while the device computes on. `number` is written last:
 * when the host sees it, everything else is complete. */
typedef struct lk_results {
    lk_flag flag;
    double square;   /* lk_norm.square; 0 without a norm */
    uint32_t number; /* of the turn, plus 1 */
    /* Followed by (n) losses, (n) label ranks and, if lk_post.error is given, (n, 2) errors. */
} lk_results;

typedef struct lk_post {
    size_t n;
    const float *loss;         /* (n) */
    const int32_t *label_rank; /* (n) */
    const float *error;        /* (n, 2) of lk_loss_results, or NULL */
    const lk_flag *flag;
    const lk_norm *norm;  /* or NULL */
    const uint32_t *turn; /* the number of this recorded step or evaluation; device memory like the pointers above */
    char *ring;           /* slots of lk_results, in memory of alloc_host; turn t uses slot t % slots */
    uint32_t slots;
    size_t stride; /* bytes from one slot to the next */
} lk_post;

/* A data set on the device, and the change to each sample that is read from it.
 *
 * The sample with id i is record i of values or of pixels. A record of values is the sample as it is, and the
 * fields after `record` are not used. The random numbers of a record of pixels are those of lk__rng(seed,
 * LK_RNG_PURPOSE_AUGMENT, layer, *epoch, i), where layer is crop_layer or flip_layer:
 * - crop = p > 0: the image gets p rows and columns of byte 0 on each side; then a window of the image's size begins
 *   at row lk__rng_below(word 0, 2p + 1) and column lk__rng_below(word 1, 2p + 1) of the larger image.
 * - flip > 0: columns are reversed if lk__rng_unit(word 0) >= 1 - flip.
 * The one with the lower layer is applied first. At last byte v of channel k becomes table[k][v]. */
typedef struct lk_gather_desc {
    const float *values;   /* (samples, h, w, c), or NULL; device memory like all pointers here */
    const uint8_t *pixels; /* (samples, c, h, w); not used with values */
    size_t record;         /* elements of a sample */
    const float *table;    /* (c, 256): the value of each byte in each channel */
    const uint32_t *epoch;
    uint64_t seed;
    uint32_t crop; /* pixels of padding on each side; 0: no crop */
    double flip;   /* probability of reversing the columns; 0: never */
    /* Positions in the list of transforms. */
    uint32_t crop_layer, flip_layer;
} lk_gather_desc;

/* A ring of slots in memory of alloc_host, through which the host hands data to recorded steps. The host fills
 * a slot and enqueues the step; the device counts the slots that it has read. */
typedef struct lk_fetch_desc {
    const char *ring;
    uint32_t slots;
    size_t stride;  /* bytes from one slot to the next */
    size_t bytes;   /* a multiple of 4 */
    uint32_t *turn; /* device memory: the kernel reads slot *turn % slots, then adds 1 to *turn */
} lk_fetch_desc;

/* Work on the items [begin,end) of a call of run_parts. stream: NULL on the CPU, the cudaStream_t on CUDA. */
typedef void (*lk_parts_fn)(void *arg, size_t begin, size_t end, void *stream);

/* Scalars of one optimiser step over flat arrays, in the form that the update of an element uses. In device
 * memory. */
typedef struct lk_sgd {
    float lr, momentum, dampening, weight_decay;
    bool nesterov;
    bool first; /* the momentum buffer starts as the gradient */
} lk_sgd;

typedef struct lk_adam {
    float beta2, one_minus_beta1, one_minus_beta2;
    float step_size;       /* lr / (1 - beta1^t) */
    float root_correction; /* sqrt(1 - beta2^t) */
    float eps, weight_decay;
    float shrink; /* factor of the parameter before the update: 1, or AdamW's 1 - lr * decay */
} lk_adam;

typedef struct lk_adadelta {
    float lr, rho, one_minus_rho, eps, weight_decay;
} lk_adadelta;

typedef struct lk_rmsprop {
    float lr, alpha, one_minus_alpha, eps, weight_decay, momentum;
} lk_rmsprop;
/* The arrays of an optimiser step, beside its state. */
typedef struct lk_update_arrays {
    const float *grad;
    float *param;
    void *values; /* NULL, as where values are f32, or params in the device's value type, which the step also writes */
} lk_update_arrays;
/* The state of RMSprop. */
typedef struct lk_rmsprop_state {
    float *square, *buffer; /* buffer of the momentum; NULL: momentum 0 */
    float *mean;            /* of the gradients, for the centered variance; NULL: not centered */
} lk_rmsprop_state;

typedef struct lk_kernels {
    /* conv2d: w is (o, i / groups, kh, kw), row-major as in PyTorch. y = conv(x, w) + b, then max(y, 0) if relu; b may
     * be NULL. */
    size_t (*conv2d_scratch)(lk_device *dev, const lk_conv2d_desc *conv, lk_shape x, lk_shape y);
    void (*conv2d_forward)(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *x, const void *w, const void *b,
                           bool relu, lk_tensor *y, void *scratch);
    /* mask is NULL, or x if x is the result of a ReLU: then dx is 0 where x <= 0, which applies the ReLU's
     * gradient too. */
    void (*conv2d_grad_input)(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *dy, const void *w,
                              const lk_tensor *mask, lk_tensor *dx, void *scratch);
    /* dw is in the order of w; db.slot0 is NULL if there is no bias. */
    void (*conv2d_grad_weight)(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *x, const lk_tensor *dy,
                               const lk_shards *shards, lk_partials dw, lk_partials db, void *scratch);

    /* y = y + b, rounded to the value type; b (c) is f32. */
    void (*bias_add)(lk_device *dev, const float *b, lk_tensor *y);
    /* leaves is (count, c): for each shard the sums of dy over its samples and pixels. An empty shard gives zeros. */
    void (*bias_sums)(lk_device *dev, const lk_tensor *dy, const lk_shards *shards, float *leaves);

    /* linear: x (n, i), w (o, i) row-major, y (n, o) = x w^T + b, then max(y, 0) if relu. dropout, if not NULL, is a
     * dropout layer after that: y is its result. */
    size_t (*linear_scratch)(lk_device *dev, lk_shape x, lk_shape y);
    void (*linear_forward)(lk_device *dev, const lk_tensor *x, const void *w, const void *b, bool relu,
                           const lk_dropout_desc *dropout, lk_tensor *y, void *scratch);
    /* mask: as for conv2d_grad_input. dropout, if not NULL, is a dropout layer between that ReLU and this layer, and
     * mask is its result: it is above 0 where neither of them stops the gradient. */
    void (*linear_grad_input)(lk_device *dev, const lk_tensor *dy, const void *w, const lk_tensor *mask,
                              const lk_dropout_desc *dropout, lk_tensor *dx, void *scratch);
    void (*linear_grad_weight)(lk_device *dev, const lk_tensor *x, const lk_tensor *dy, const lk_shards *shards,
                               lk_partials dw, lk_partials db, void *scratch);

    /* batchnorm2d. Statistics of each channel over the samples and pixels of each shard; those of an empty shard are
     * zeros. */
    void (*batchnorm_stats)(lk_device *dev, const lk_tensor *x, const lk_shards *shards, const lk_batchnorm_stats *out);
    /* Folds the stats of shards into partial (mean, M2) entries of 2*c floats: left child, then right child,
     * weighted by rows * pixels (Chan's formula). */
    void (*batchnorm_fold)(lk_device *dev, size_t c, size_t pixels, const lk_shards *shards, const float *stats,
                           lk_partials moments);
    /* Computes moments->mean and moments->scale from stats (groups, 2, c): mean and M2 of groups with rows[g]
     * samples. A group without samples gives 0. */
    void (*batchnorm_moments)(lk_device *dev, size_t c, size_t pixels, const float *stats, const size_t *rows,
                              float eps, lk_moments *moments);
    /* Computes moments->mean and moments->scale from running statistics: the mean and the variance of each
     * channel. */
    void (*batchnorm_running_moments)(lk_device *dev, size_t c, const float *mean, const float *variance, float eps,
                                      lk_moments *moments);
    /* For each of `count` layers: running = (1 - momentum) * running + momentum * (mean, unbiased variance of
     * `elements` values). If elements is 1, the variance does not change. Nothing changes if flag->bad; flag may be
     * NULL. */
    void (*batchnorm_running_update)(lk_device *dev, size_t count, const lk_batchnorm_update *updates,
                                     const lk_flag *flag);
    void (*batchnorm_forward)(lk_device *dev, const lk_batchnorm_desc *desc, const lk_tensor *x,
                              const lk_shards *shards, const lk_moments *moments, lk_tensor *y);
    /* The gradient, with xhat = (x - mean) * scale. If desc->relu, dy is the gradient of the ReLU's result: it is 0
     * where relu_grad_input or relu6_grad_input sets it to 0. y is computed from x again, so desc->other is NULL
     * then. */
    void (*batchnorm_sums)(lk_device *dev, const lk_batchnorm_desc *desc, const lk_tensor *x, const lk_tensor *dy,
                           const lk_shards *shards, const lk_moments *moments, const lk_batchnorm_sums *out);
    /* Completes dy by the addition, in place, then batchnorm_sums; desc has no pooling, and with a mask no ReLU. */
    void (*batchnorm_add_sums)(lk_device *dev, const lk_batchnorm_desc *desc, const lk_batchnorm_addition *add,
                               const lk_tensor *x, const lk_shards *shards, const lk_moments *moments, lk_tensor *dy,
                               const lk_batchnorm_sums *out);
    void (*batchnorm_grad_input)(lk_device *dev, const lk_batchnorm_desc *desc, const lk_batchnorm_grad *grad,
                                 const lk_tensor *x, const lk_tensor *dy, const lk_shards *shards,
                                 const lk_moments *moments, lk_tensor *dx);
    /* Adds (count, width) rows, one for each shard and `row` floats apart, to partial sums of width floats. Slots of
     * the sums inside the wave may be written, not only those after it; shards->begin and shards->rows are not read. */
    void (*rows_fold)(lk_device *dev, size_t width, const float *leaves, size_t row, const lk_shards *shards,
                      lk_partials sums);

    /* Group normalisation. forward writes moments, which the others read. */
    void (*groupnorm_forward)(lk_device *dev, const lk_groupnorm_desc *desc, const lk_tensor *x, float *moments,
                              lk_tensor *y);
    void (*groupnorm_grad_input)(lk_device *dev, const lk_groupnorm_desc *desc, const lk_tensor *x, const lk_tensor *dy,
                                 const float *moments, lk_tensor *dx);
    /* leaves is (count, 2, c): for each shard the sums of dy * xhat and of dy. An empty shard gives zeros. */
    void (*groupnorm_grad_weight)(lk_device *dev, const lk_groupnorm_desc *desc, const lk_tensor *x,
                                  const lk_tensor *dy, const float *moments, const lk_shards *shards, float *leaves);

    /* embedding: w is (rows, c) with y's channels. */
    size_t (*embedding_scratch)(lk_device *dev, const lk_embedding_desc *desc, lk_shape x, lk_shape y);
    void (*embedding_forward)(lk_device *dev, const lk_embedding_desc *desc, const lk_tensor *x, const float *w,
                              lk_tensor *y);
    /* A leaf is for each row the sum of dy over its ids in the shard, in their order. */
    void (*embedding_grad_weight)(lk_device *dev, const lk_embedding_desc *desc, const lk_tensor *x,
                                  const lk_tensor *dy, const lk_shards *shards, lk_partials dw, void *scratch);

    /* y = max(x, 0) as x <= 0 ? 0 : x; y may be x. */
    void (*relu_forward)(lk_device *dev, const lk_tensor *x, lk_tensor *y);
    /* dx = y <= 0 ? 0 : dy; dx may be dy. */
    void (*relu_grad_input)(lk_device *dev, const lk_tensor *y, const lk_tensor *dy, lk_tensor *dx);
    /* y = 6 <= x ? 6 : max(x, 0); y may be x. */
    void (*relu6_forward)(lk_device *dev, const lk_tensor *x, lk_tensor *y);
    /* dx = y <= 0 or 6 <= y ? 0 : dy; dx may be dy. */
    void (*relu6_grad_input)(lk_device *dev, const lk_tensor *y, const lk_tensor *dy, lk_tensor *dx);
    /* y = x <= 0 ? slope * x : x, slope in [0,1); y may be x. */
    void (*leaky_relu_forward)(lk_device *dev, const lk_tensor *x, float slope, lk_tensor *y);
    /* dx = y <= 0 ? slope * dy : dy; dx may be dy. */
    void (*leaky_relu_grad_input)(lk_device *dev, const lk_tensor *y, const lk_tensor *dy, float slope, lk_tensor *dx);
    /* y = f(x); y may be x. */
    void (*unary_forward)(lk_device *dev, lk_unary f, const lk_tensor *x, lk_tensor *y);
    /* dx = dy * f'(x). v is y = f(x) for SIGMOID and TANH, and x for the others; dx may be dy. */
    void (*unary_grad_input)(lk_device *dev, lk_unary f, const lk_tensor *v, const lk_tensor *dy, lk_tensor *dx);
    /* y = a * b; y may be a or b. */
    void (*mul)(lk_device *dev, const lk_tensor *a, const lk_tensor *b, lk_tensor *y);
    /* y = a + b, then max(y, 0) if relu; y may be a or b. */
    void (*add)(lk_device *dev, const lk_tensor *a, const lk_tensor *b, bool relu, lk_tensor *y);
    /* y = mask <= 0 ? 0 : a + b; y may be a or b. */
    void (*add_masked)(lk_device *dev, const lk_tensor *a, const lk_tensor *b, const lk_tensor *mask, lk_tensor *y);
    /* y = x; both have the same shape. Their types (f32, bf16) and pitches may differ. */
    void (*copy)(lk_device *dev, const lk_tensor *x, lk_tensor *y);
    /* x = samples ids[0..n) of a data set, rounded to x's type; x has the samples' shape. ids is device memory. */
    void (*gather)(lk_device *dev, const lk_gather_desc *gather, const uint32_t *ids, lk_tensor *x);
    /* y gets the first channels of x; if y has more channels than x, the rest are 0. */
    void (*fit_channels)(lk_device *dev, const lk_tensor *x, lk_tensor *y);
    /* y has the channels of a, then those of b. */
    void (*concat_forward)(lk_device *dev, const lk_tensor *a, const lk_tensor *b, lk_tensor *y);
    /* dx gets the channels of dy from `first` on. */
    void (*concat_grad_input)(lk_device *dev, const lk_tensor *dy, size_t first, lk_tensor *dx);
    /* y = x with two axes exchanged: 1 is the height, 2 the width, 3 the channels. */
    void (*swap_axes)(lk_device *dev, int a, int b, const lk_tensor *x, lk_tensor *y);
    /* y gets the elements of each sample of x in their order (h, w, c); both have as many. */
    void (*reshape)(lk_device *dev, const lk_tensor *x, lk_tensor *y);
    /* y = a b for each sample and height: matrices of w rows and c columns. The first (second) factor is transposed if
     * transpose_a (transpose_b). On the CPU each element is a sum in the order of cpu/sums.h. */
    void (*matmul)(lk_device *dev, const lk_matmul_desc *desc, const lk_tensor *a, const lk_tensor *b, lk_tensor *y);
    /* y = x / (1 - p), or x - x for dropped elements: 0, or NaN if x is non-finite. Draws are addressed by each
     * sample's logical (c, h, w) element index, or by its channel. The gradient is the same function. In place
     * is allowed. */
    void (*dropout)(lk_device *dev, const lk_dropout_desc *dropout, const lk_tensor *x, lk_tensor *y);
    /* (n, h, w, c) to (n, c*h*w) in the order c, h, w, and back. */
    void (*flatten_forward)(lk_device *dev, const lk_tensor *x, lk_tensor *y);
    void (*flatten_grad_input)(lk_device *dev, const lk_tensor *dy, lk_tensor *dx);

    /* index has y's shape and pitch: the tap of the maximum in its window, ky*kw + kx. The first of equal
     * values is taken, and the first NaN before all numbers; padding is never taken. mask: x is the result of a
     * ReLU whose gradient is applied too. dropout, if not NULL, is a dropout layer after the pooling: y and dy
     * are its result and gradient. Index is LK_POOL2D_NO_GRADIENT where mask is set and the maximum is <= 0,
     * and where the element is dropped. */
    void (*maxpool_forward)(lk_device *dev, const lk_pool2d_desc *pool, const lk_dropout_desc *dropout,
                            const lk_tensor *x, bool mask, lk_tensor *y, uint8_t *index);
    void (*maxpool_grad_input)(lk_device *dev, const lk_pool2d_desc *pool, const lk_dropout_desc *dropout,
                               const lk_tensor *dy, const uint8_t *index, lk_tensor *dx);
    /* Means over windows. Padding counts as zeros; what lies beyond the padding does not count. */
    void (*avgpool_forward)(lk_device *dev, const lk_pool2d_desc *pool, const lk_tensor *x, lk_tensor *y);
    void (*avgpool_grad_input)(lk_device *dev, const lk_pool2d_desc *pool, const lk_tensor *dy, lk_tensor *dx);
    void (*global_avgpool_forward)(lk_device *dev, const lk_tensor *x, lk_tensor *y);
    void (*global_avgpool_grad_input)(lk_device *dev, const lk_tensor *dy, lk_tensor *dx);

    /* y (n, c) is the maximum of each channel. index has y's shape and pitch: the pixel of the maximum, chosen as by
     * maxpool_forward; dx is dy at this pixel, otherwise 0. */
    void (*global_maxpool_forward)(lk_device *dev, const lk_tensor *x, lk_tensor *y, int32_t *index);
    void (*global_maxpool_grad_input)(lk_device *dev, const lk_tensor *dy, const int32_t *index, lk_tensor *dx);

    /* Over the channels of each pixel. y is the forward result. */
    void (*softmax_forward)(lk_device *dev, const lk_tensor *x, lk_tensor *y);
    void (*softmax_grad_input)(lk_device *dev, const lk_tensor *y, const lk_tensor *dy, lk_tensor *dx);
    void (*log_softmax_forward)(lk_device *dev, const lk_tensor *x, lk_tensor *y);
    /* y is the forward result. */
    void (*log_softmax_grad_input)(lk_device *dev, const lk_tensor *y, const lk_tensor *dy, lk_tensor *dx);
    /* x is (n, classes): log-probabilities for nll, scores for cross_entropy. Writes for each sample its loss,
     * its label rank (of equal scores the first class ranks higher) and, unless dx is NULL, dx = scale *
     * d(loss)/dx. */
    void (*nll)(lk_device *dev, const lk_loss_desc *desc, const lk_tensor *x, float *loss, int32_t *label_rank,
                lk_tensor *dx);
    void (*cross_entropy)(lk_device *dev, const lk_loss_desc *desc, const lk_tensor *x, float *loss,
                          int32_t *label_rank, lk_tensor *dx);
    /* The loss of kind desc->kind, of x with any shape; SOFT takes vectors. Each sum over a sample's elements is in
     * double. The gradient of a sample's loss is rounded to f32, then multiplied by scale and the sample's weight.
     * target_loss_scratch: bytes of scratch for n samples like x. */
    size_t (*target_loss_scratch)(lk_device *dev, lk_loss_kind kind, lk_shape x);
    void (*target_loss)(lk_device *dev, const lk_loss_desc *desc, const lk_tensor *x, const lk_loss_results *results,
                        lk_tensor *dx, void *scratch);

    /* PyTorch's update rules over count elements. arrays->param and the state are updated in place; arrays->values, if
     * given, gets the rounded result. sgd's
     * buffer is NULL if momentum is 0. Nothing changes if flag->bad; flag may be NULL. */
    void (*sgd_step)(lk_device *dev, const lk_sgd *sgd, const lk_flag *flag, size_t count,
                     const lk_update_arrays *arrays, float *buffer);
    void (*adam_step)(lk_device *dev, const lk_adam *adam, const lk_flag *flag, size_t count,
                      const lk_update_arrays *arrays, float *m, float *v);
    void (*adadelta_step)(lk_device *dev, const lk_adadelta *adadelta, const lk_flag *flag, size_t count,
                          const lk_update_arrays *arrays, float *square, float *delta);
    void (*rmsprop_step)(lk_device *dev, const lk_rmsprop *rmsprop, const lk_flag *flag, size_t count,
                         const lk_update_arrays *arrays, const lk_rmsprop_state *state);

    /* Looks for the element of the lowest position that is NaN or whose magnitude is above limit; lowers flag->first to
     * this position and sets flag->bad. With limit FLT_MAX it finds non-finite values. flag is device memory. */
    void (*flag_above)(lk_device *dev, int parts, const lk_flag_part *part, float limit, lk_flag *flag);

    void (*post)(lk_device *dev, const lk_post *post);
    /* dst is device memory. */
    void (*fetch)(lk_device *dev, const lk_fetch_desc *fetch, void *dst);

    /* sums[b] = the sum of the squares of block b of x. Blocks have LK_NORM_BLOCK elements; the last one may
     * have fewer. */
    void (*sum_squares)(lk_device *dev, size_t count, const float *x, double *sums);
    /* Adds (count) sums, which are overwritten, over the tree on their indices (base/tree.h) and writes
     * the result to norm->square; 0 if count is 0. norm->factor becomes limit / (sqrt(norm->square) + 1e-6), computed
     * in double; 1 if the quotient is at least 1, and if limit is 0. A NaN stays NaN. */
    void (*fold_squares)(lk_device *dev, size_t count, double *sums, double limit, lk_norm *norm);
    /* x = x * *factor; x stays as it is if *factor is 1 or flag->bad. factor is device memory; flag may be NULL. */
    void (*scale)(lk_device *dev, const lk_flag *flag, size_t count, const float *factor, float *x);

    /* out = a op b for vectors of any type; op is not an own reduction. MEAN adds as SUM does; out may be a or b.
     * Integers wrap around. bf16 and f16 are combined as floats and rounded to nearest, ties to even. MIN and MAX take
     * b only if b is below or above a. */
    void (*reduce)(lk_device *dev, lk_dtype dtype, lk_reduction op, size_t count, const void *a, const void *b,
                   void *out);
    /* x = x / divisor, divisor > 0; integers round towards zero. */
    void (*divide)(lk_device *dev, lk_dtype dtype, size_t count, int divisor, void *x);
    void (*copy_bytes)(lk_device *dev, size_t bytes, const void *src, void *dst);
    void (*zero_bytes)(lk_device *dev, size_t bytes, void *dst);

    /* Calls work for ranges of items that make up [0,count): functions of the program. On the CPU the threads divide
     * the items; on CUDA one call has them all and enqueues on its stream. No call for count 0. */
    void (*run_parts)(lk_device *dev, size_t count, lk_parts_fn work, void *arg);
} lk_kernels;

/* Every slot once. */
/* clang-format off */
#define LK_KERNEL_LIST(X)                                                                                              \
    X(conv2d_scratch) X(conv2d_forward) X(conv2d_grad_input) X(conv2d_grad_weight)                                     \
    X(bias_add) X(bias_sums)                                                                                           \
    X(linear_scratch) X(linear_forward) X(linear_grad_input) X(linear_grad_weight)                                     \
    X(batchnorm_stats) X(batchnorm_fold) X(batchnorm_moments) X(batchnorm_running_moments)                             \
    X(batchnorm_running_update) X(batchnorm_forward) X(batchnorm_sums) X(batchnorm_add_sums) X(batchnorm_grad_input)   \
    X(rows_fold) X(relu_forward) X(relu_grad_input) X(relu6_forward) X(relu6_grad_input)                               \
    X(leaky_relu_forward) X(leaky_relu_grad_input) X(unary_forward) X(unary_grad_input) X(mul)                         \
    X(groupnorm_forward) X(groupnorm_grad_input) X(groupnorm_grad_weight) X(concat_forward) X(concat_grad_input)       \
    X(swap_axes) X(reshape) X(matmul) X(embedding_scratch) X(embedding_forward) X(embedding_grad_weight)               \
    X(add) X(add_masked) X(copy) X(gather) X(fit_channels) X(dropout) X(flatten_forward) X(flatten_grad_input)         \
    X(maxpool_forward) X(maxpool_grad_input) X(avgpool_forward) X(avgpool_grad_input)                                  \
    X(global_avgpool_forward) X(global_avgpool_grad_input) X(global_maxpool_forward) X(global_maxpool_grad_input)      \
    X(softmax_forward) X(softmax_grad_input)                                                                           \
    X(log_softmax_forward) X(log_softmax_grad_input) X(nll) X(cross_entropy)                                           \
    X(target_loss_scratch) X(target_loss)                                                                              \
    X(sgd_step) X(adam_step) X(adadelta_step) X(rmsprop_step) X(flag_above) X(post) X(fetch)                           \
    X(sum_squares) X(fold_squares) X(scale) X(reduce) X(divide) X(copy_bytes) X(zero_bytes) X(run_parts)
/* clang-format on */

#endif
