/* op.h - operations of the program's own: layers that the library does not have.
 *
 * An op is registered once (lk_op_register) and added to graphs by its name (lk_op_add). Its functions then run inside
 * the library's plans as those of the library's own ops do: in every layout of ranks, stages, waves and threads.
 * lk_op_check tries an op out, and says which of the rules below it breaks; lk_loss_check does the same for own losses
 * (lk_loss_register).
 *
 * What an op must do to keep the law (the same bits, however the work is divided):
 * - forward and the gradients of inputs treat every sample alone: the result of a sample depends on this sample and
 *   on the parameters, never on n or on other samples.
 * - The gradient of a parameter is one sum over the samples of one call, in a fixed order. A call has the samples of
 *   one shard; the library adds the shards, in the order of its sum tree.
 * - A result does not depend on the thread that computes it, on addresses, on the time or on earlier calls. What
 *   backward needs of forward is in x, y or the workspace, never in a variable of the program: between the two passes
 *   of a sample the library may run both passes of others, on several threads.
 * - Functions must be compiled without -ffast-math and with -ffp-contract=off. Then machines of one kind give the same
 *   bits. exp, log, tanh of libm differ from machine to machine; lk_op_exp and its neighbours do not.
 *
 * Memory: a layer keeps x and y until its backward pass, the workspace, and in each rank one gradient of its parameters
 * for each of the rank's shards and for each level of the sum tree (26).
 *
 * NaN must pass: an input that is NaN gives a result that is NaN, so that the step can report it.
 *
 * Threads: lk_op_register, lk_op_check and lk_loss_check may be called by any thread at any time. The functions of an
 * op are called by threads of the library, several at once, with different samples. They must not call other functions
 * of the library, except those of this header that compute, and lk_fail in `shape`. */
#ifndef LOCKSTEP_OP_H
#define LOCKSTEP_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/graph.h>
#include <lockstep/status.h>

LK_API_BEGIN

enum {
    LK_OP_MAX_INPUTS = 2,
    LK_OP_MAX_PARAMS = 4,
    LK_OP_MAX_ATTR = 256, /* bytes of the attributes of a layer */
    LK_OP_LIMIT = 256     /* ops that a process can register */
};

/* The size of one sample of a node, in the order of memory (see "Shapes" in graph.h). */
typedef struct lk_op_size {
    size_t height, width, channels;
} lk_op_size;

/* How the first values of a parameter are made. */
typedef enum lk_op_first {
    LK_OP_FIRST_CONSTANT, /* every element is `number` */
    LK_OP_FIRST_UNIFORM,  /* uniform in +-1/sqrt(number): `number` is the fan in, as PyTorch's layers have it */
    LK_OP_FIRST_NORMAL,   /* normal with mean 0 and standard deviation `number` */
    LK_OP_FIRST_COUNT
} lk_op_first;

typedef struct lk_op_param {
    int ndim;             /* 1 to 4 */
    size_t dims[4];       /* each at least 1 */
    lk_op_first first;    /* of the elements */
    double number;        /* see lk_op_first */
    uint64_t reserved[4]; /* zero */
} lk_op_param;

/* What the function `shape` is given, and what it decides. */
typedef struct lk_op_shape {
    /* Given. */
    lk_op_size x[LK_OP_MAX_INPUTS];
    const void *attr; /* the attributes that lk_op_add was given, aligned for every type; NULL if there are none */
    size_t attr_bytes;
    void *arg; /* of the definition */
    /* Set by the function. Before the call y is x[0], param_count the number of names in the definition, and all
     * else 0. */
    lk_op_size y;
    int param_count; /* the first param_count parameters of the definition; the others do not exist in this layer */
    lk_op_param param[LK_OP_MAX_PARAMS];
    size_t workspace;     /* floats of each sample that backward needs from forward */
    uint64_t reserved[8]; /* zero */
} lk_op_shape;

/* One call of forward or backward. Arrays are dense f32; samples have the order (n, height, width, channels). On the
 * CPU they are host memory, for the functions of CUDA device memory. */
typedef struct lk_op_args {
    size_t n; /* samples of this call, at least 1 */
    lk_op_size x_size[LK_OP_MAX_INPUTS], y_size;
    const float *x[LK_OP_MAX_INPUTS]; /* (n, sizes of x) */
    float *y;                         /* (n, sizes of y); forward writes every element, backward only reads */
    const float *dy;                  /* (n, sizes of y); NULL in forward */
    /* Gradients of inputs, which backward writes (it does not add to them). NULL: not wanted. */
    float *dx[LK_OP_MAX_INPUTS];
    const float *param[LK_OP_MAX_PARAMS];
    /* Gradients of parameters: backward adds the sum over the n samples to these zeros. NULL: not wanted; all of them
     * are wanted, or none. A call wants gradients of inputs or gradients of parameters, not both. */
    float *grad[LK_OP_MAX_PARAMS];
    float *workspace; /* (n, workspace): written by forward, read by backward */
    const void *attr;
    size_t attr_bytes;
    void *arg;
    bool train;   /* false: evaluation; backward will not be called */
    void *stream; /* functions of CUDA: the cudaStream_t on which they enqueue; otherwise NULL */
    uint64_t reserved[8];
} lk_op_args;

typedef struct lk_op_def {
    const char *name; /* of the op: 1 to 63 letters, digits, '_', '-' or '.'; copied */
    int inputs;       /* 1 to LK_OP_MAX_INPUTS */
    /* The names of its parameters, NULL after the last; copied. The key of a parameter in a state dict is
     * "<name of the layer>.<name of the parameter>". 1 to 23 letters, digits or '_'. */
    const char *params[LK_OP_MAX_PARAMS];
    /* Checks the sizes of the inputs and the attributes, and sets the size of the output, parameters and workspace.
     * A failure (return lk_fail(LK_STATUS_USAGE, "...")) becomes the mistake of the graph. It must give the same
     * result in every call with the same inputs. */
    lk_status (*shape)(lk_op_shape *shape);
    void (*forward)(const lk_op_args *args);
    void (*backward)(const lk_op_args *args);
    /* The same on a GPU; NULL, both: lk_engine_create on a GPU then returns UNSUPPORTED. They enqueue kernels on
     * args->stream and nothing else: they must not allocate, copy from or to host memory, or wait, because steps are
     * recorded and played again. If activations are bf16 or padded, the library converts them before and after. */
    void (*cuda_forward)(const lk_op_args *args);
    void (*cuda_backward)(const lk_op_args *args);
    void *arg;            /* given to all functions; must stay valid, and must not change */
    uint64_t reserved[8]; /* zero */
} lk_op_def;

/* Registers an op until this process ends. All ranks must register the same ops: lk_engine_create compares the
 * names and attributes of layers, and cannot compare functions. Errors: USAGE if a name is no name, a function is NULL
 * where it must not be, `inputs` is out of range, the name is registered already or LK_OP_LIMIT is reached; MEMORY. */
lk_status lk_op_register(const lk_op_def *def) LK_CHECKED;

/* Adds a layer with the op of this name. `name` is the layer's, the prefix of its keys; NULL if it has no parameters.
 * inputs has `count` nodes. attr is copied: at most LK_OP_MAX_ATTR bytes, all of which belong to the hash of the
 * model, so pads of a struct must be zero; NULL with attr_bytes 0: none. Mistakes (lk_graph_check): NOT_FOUND if no
 * such op is registered; USAGE for another number of inputs, too many bytes, a size of 0, and what `shape` returns. */
lk_node lk_op_add(lk_graph *graph, const char *op, const char *name, const lk_node *inputs, int count, const void *attr,
                  size_t attr_bytes);

/* How lk_op_check tries an op out. */
typedef struct lk_op_check_opts {
    lk_op_size x[LK_OP_MAX_INPUTS]; /* sizes of the inputs, required; small ones are fast */
    const void *attr;
    size_t attr_bytes;
    const char *device; /* NULL: "cpu"; "cuda:0" checks the functions of CUDA */
    size_t samples;     /* 0: 7 */
    uint64_t seed;      /* of inputs, parameters and gradients */
    double low, high;   /* inputs are uniform in [low, high); both 0: [-1, 1) */
    /* The error of a gradient that is accepted, relative to the largest gradient of the same tensor; 0: 0.01. */
    double tolerance;
    /* NULL, or room for report_bytes characters: one line for each check that has passed, also after a failure. */
    char *report;
    size_t report_bytes;
    uint64_t reserved[8]; /* zero */
} lk_op_check_opts;

/* Runs a registered op on random inputs and checks, in this order:
 * - guards: nothing is written outside of y, workspace and the gradients (64 floats before and after each of them are
 *   watched), and inputs, parameters, dy and, in backward, y and workspace stay as they are;
 * - outputs: every element of y and of the gradients is written and finite;
 * - state: the same call gives the same bits again, after calls with other samples in between;
 * - samples: a sample alone gives the same y and dx as among others;
 * - threads: 1, 2 or 3 threads, one wave or several, with all, one or no gradients of inputs: the same bits;
 * - shards: the gradient of a parameter is the same sum, up to rounding, for every cut into shards;
 * - gradients: those of inputs and parameters are finite differences of forward. Of each tensor at most 48 elements are
 *   compared, chosen by `seed`. Elements where forward is not smooth (the difference depends on the step) are left out;
 *   at most half of them may be.
 * Errors: MISMATCH if a check fails: the detail names the check, the place and both numbers; NOT_FOUND if there is no
 * such op; USAGE for impossible options; UNSUPPORTED if the device or a function for it is missing; MEMORY. */
lk_status lk_op_check(const char *op, const lk_op_check_opts *opts) LK_CHECKED;

/* How lk_loss_check tries a loss out. */
typedef struct lk_loss_check_opts {
    lk_op_size x;       /* the size of the loss's input, required; small ones are fast */
    const char *device; /* NULL: "cpu"; "cuda:0" checks the function of CUDA, too */
    size_t samples;     /* 0: 7 */
    uint64_t seed;      /* of inputs, targets and weights */
    double low, high;   /* inputs are uniform in [low, high); both 0: [-1, 1) */
    /* Float targets are uniform in [target_low, target_high); both 0: [-1, 1). Labels are uniform in [0, channels). */
    double target_low, target_high;
    /* The error of a gradient that is accepted, relative to the largest gradient; on CUDA also that of the loss. 0:
     * 0.01. */
    double tolerance;
    /* NULL, or room for report_bytes characters: one line for each check that has passed, also after a failure. */
    char *report;
    size_t report_bytes;
    uint64_t reserved[8]; /* zero */
} lk_loss_check_opts;

/* Runs a registered loss on random inputs and targets and checks, in this order:
 * - guards: nothing is written outside of dx (64 floats before and after it are watched), and x and target stay as they
 *   are;
 * - outputs: the loss is finite, every element of dx is written and finite;
 * - state: the same calls in another order, at other addresses and without dx give the same bits;
 * - threads: 1, 2 or 3 threads that call at the same time get the same bits;
 * - shards: all samples at once, in parts or one by one, with and without weights, give the same bits; on CUDA they
 *   are also those of `sample`, up to the tolerance, multiplied by weight and scale;
 * - gradients: dx is finite differences of the loss. All elements are compared, or 4,194,304 / (elements of a sample)
 *   of them, at least 64, where that is fewer; they are spread evenly over samples and elements, and chosen by `seed`.
 *   Elements where the loss is not smooth (the difference depends on the step) are left out; at most half of them may
 *   be.
 * `rank`, if it is given, takes part in the checks guards, state, threads and shards.
 * Errors: MISMATCH if a check fails: the detail names the check, the place and both numbers; NOT_FOUND if the program
 * has registered no such loss; USAGE for impossible options; UNSUPPORTED if the device or a function for it is missing;
 * MEMORY. */
lk_status lk_loss_check(const char *loss, const lk_loss_check_opts *opts) LK_CHECKED;

/* Functions that give the same bits on every machine; the errors are below 4 units in the last place. */
float lk_op_exp(float x);
float lk_op_log(float x);
float lk_op_tanh(float x);
float lk_op_sigmoid(float x); /* 1 / (1 + exp(-x)) */

LK_API_END
#endif
