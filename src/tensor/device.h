/* device.h - a device: memory, a stream of work, and kernels.
 *
 * A device is opened by name from the device table. The host may be unable to read its memory, and its work may
 * be asynchronous: callers move bytes with upload and download and wait with sync, on the CPU too. */
#ifndef LK_TENSOR_DEVICE_H
#define LK_TENSOR_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "tensor/channel.h"
#include "tensor/kernels.h"

typedef struct lk_device_opts {
    int index;       /* the N of "cuda:N" or "cpu:N" */
    int threads;     /* host threads that kernels may use, at least 1 */
    bool crowded;    /* the threads of all ranks on this host outnumber its cores */
    const char *isa; /* NULL, or the kernel build to use ("scalar", "avx2", ...) */
    lk_precision precision;
} lk_device_opts;

/* Enqueued work that a device has recorded and can run again. */
typedef struct lk_device_recording lk_device_recording;

/* Shape of a parameter, for devices that store some parameters in an order of their own. All zero: an array
 * that every device stores as it is. */
typedef struct lk_device_weight {
    size_t out, in; /* PyTorch's order is (out, in, taps); `in` counts the channels of one group */
    size_t taps;    /* of a convolution; 0: a linear layer, (out, in) */
    size_t groups;  /* of a convolution */
    size_t pixels; /* of a linear layer: pixels of the flattened tensor whose elements are its features; with flat_views
                      the features are in that tensor's memory order. Otherwise 1. */
} lk_device_weight;

enum { LK_DEVICE_MARKS = 4096, LK_DEVICE_ADDRESS = 32, LK_DEVICE_FACTS = 4, LK_DEVICE_FACT_VALUE = 256 };

/* Something on which the bits of a device's results depend, besides this program: "GPU" and "NVIDIA H200", or "cuDNN"
 * and "9.13.0". */
typedef struct lk_device_fact {
    const char *name;
    char value[LK_DEVICE_FACT_VALUE];
} lk_device_fact;

typedef struct lk_device_type {
    const char *name;
    bool host_memory;       /* the host can read and write the device's memory, so groups use it directly */
    lk_precision precision; /* what LK_PRECISION_AUTO means */
    unsigned precisions;    /* 1 << p for every lk_precision p that the device has; 0: all of them */
    /* flatten does nothing if only a linear layer reads its result: that layer reads the unflattened tensor. */
    bool flat_views;
    /* log_softmax does nothing if only an nll_loss reads its result: the loss is computed from the scores, and
     * nothing is rounded in between. */
    bool loss_views;
    /* batchnorm_forward can write the signs of its result, which batchnorm_add_sums reads. */
    bool signs;
    /* Whether batchnorm_forward and its gradient can apply such a max pooling (lk_batchnorm_desc.pool). Optional: they
     * can apply none. */
    bool (*pools)(const lk_pool2d_desc *windows);
    size_t most_samples; /* the largest wave; 0: no limit */
    /* An upload of at most this many bytes blocks only until the fourth upload before it is complete. */
    size_t prompt_upload;
    /* Elements from one pixel of an activation to the next. Optional: the number of channels. */
    size_t (*pitch)(size_t channels);
    /* Elements of such a parameter on the device, and copies between PyTorch's order and the device's; both
     * sides are host memory, pads are zero. Optional, together: without them all parameters are in PyTorch's
     * order. */
    size_t (*weight_count)(const lk_device_weight *weight);
    void (*pack)(const lk_device_weight *weight, const float *plain, float *packed);
    void (*unpack)(const lk_device_weight *weight, const float *packed, float *plain);
    /* Number of devices of this type in the machine; their indexes start at 0. Called before ranks are forked,
     * so it must not start anything that a fork breaks, such as a driver's context. Optional: without it any
     * index may be opened. */
    int (*count)(void);
    /* Checks that the device can be opened, that its libraries work and that it has room for `need` bytes; the
     * detail says why not. What it starts stays in this process for open; the process must not fork after it.
     * Optional: without it every counted device is taken as usable. */
    lk_status (*probe)(int index, size_t need);
    /* UNSUPPORTED if the machine has no such device. */
    lk_status (*open)(const lk_device_opts *opts, lk_device **out);
    /* Blocks until the work under way is complete. */
    void (*close)(lk_device *dev);
    /* Zeroed memory of the device, aligned to LK_ALIGN. May block. */
    lk_status (*alloc)(lk_device *dev, size_t bytes, const char *what, void **out);
    void (*free)(lk_device *dev, void *block);
    /* Bytes that alloc could still give. Optional: without it only what the step needs is kept on the device. */
    size_t (*room)(lk_device *dev);
    /* Both are ordered with kernels. upload: the host memory may be reused when it returns. download blocks
     * until the host memory is filled. */
    lk_status (*upload)(lk_device *dev, const void *host, size_t bytes, void *dst);
    lk_status (*download)(lk_device *dev, const void *src, size_t bytes, void *host);
    /* Blocks until all work enqueued so far is complete; returns its faults. */
    lk_status (*sync)(lk_device *dev);
    /* Optional, together. record runs `work` and keeps what it enqueues instead of executing it; play enqueues
     * the recording, at little cost. `work` may only enqueue. Its layers must have run once outside of a
     * recording, so that the device has prepared for their shapes. */
    lk_status (*record)(lk_device *dev, lk_status (*work)(void *arg), void *arg, lk_device_recording **out);
    lk_status (*play)(lk_device *dev, lk_device_recording *recording);
    void (*forget)(lk_device *dev, lk_device_recording *recording);
    /* Returns faults so far and whether all enqueued work is complete; does not block. */
    lk_status (*poll)(lk_device *dev, bool *idle);
    /* Zeroed host memory that kernels can write while the host reads it. Optional, with record. */
    lk_status (*alloc_host)(lk_device *dev, size_t bytes, const char *what, void **out);
    void (*free_host)(lk_device *dev, void *block);
    /* Optional, together; for traces. mark enqueues a mark, [0, LK_DEVICE_MARKS), between the work before and after it;
     * not inside a recording. The first mark blocks until the work before it is complete. mark_time returns whether the
     * mark was reached, and the lk__clock() time; it does not block. */
    lk_status (*mark)(lk_device *dev, int index);
    bool (*mark_time)(lk_device *dev, int index, double *out);
    /* Channel types of this device, the preferred one first, NULL after the last. Optional: ranks exchange data
     * through host memory. */
    const lk_channel_type *const *channels;
    /* Writes the PCI bus id of a device that is open in this process, as "0000:3b:00.0"; false if it is unknown.
     * Optional: the device has none. */
    bool (*address)(int index, char out[LK_DEVICE_ADDRESS]);
    /* Writes the facts of a device that is open in this process and returns their number; devices with equal facts give
     * equal bits. May load libraries. Optional: there are none, all devices of this type give equal bits. */
    size_t (*facts)(int index, lk_device_fact out[LK_DEVICE_FACTS]);
    /* Lines for `lockstep info`, separated by '\n': the devices that could be opened; "" if there are none. The
     * process must not fork after it. */
    void (*describe)(char *text, size_t bytes);
    /* Says how the device has computed convolutions and linear layers: one line for each pass of each shape, in the
     * order of their first runs. A line exists during the call of `each` only. Optional: all layers are computed by own
     * kernels, whole waves at once. */
    void (*explain)(lk_device *dev, void (*each)(void *arg, const char *line), void *arg);
} lk_device_type;

/* Every implementation of a device starts with this struct. */
struct lk_device {
    const lk_device_type *type;
    const lk_kernels *kernels;
    lk_dtype values; /* of activations and their gradients: f32 or bf16 */
};

/* "fp32", "tf32" and so on by lk_precision, NULL after the last. */
extern const char *const lk__device_precision_names[];
/* The wanted precision; AUTO becomes that of the named device, which need not exist. */
lk_precision lk__device_precision(const char *name, lk_precision wanted);
/* Whether the named device has the precision, which is not AUTO; true if there is no such device. */
bool lk__device_has_precision(const char *name, lk_precision wanted);

/* Elements from one pixel of an activation with this many channels to the next. */
static inline size_t lk__device_pitch(const lk_device *dev, size_t channels)
{
    return dev->type->pitch ? dev->type->pitch(channels) : channels;
}

/* Opens a device by its name in the device table ("cpu", "cuda"), which ":N" may follow: N is the device's number, 0
 * without it. The error for an unknown name lists the known ones. */
lk_status lk__device_open(const char *name, const lk_device_opts *opts, lk_device **out) LK_CHECKED;
void lk__device_close(lk_device *dev);
/* Calls the probe slot of the named device. */
lk_status lk__device_probe(const char *name, size_t need) LK_CHECKED;
/* Calls the address slot of the named device, which is open; false without one. */
bool lk__device_address(const char *name, char out[LK_DEVICE_ADDRESS]);

/* Calls the facts slot of the named device, which is open; 0 without one. */
size_t lk__device_facts(const char *name, lk_device_fact out[LK_DEVICE_FACTS]);

/* The row for a name with or without ":N"; NULL if there is none. */
const lk_device_type *lk__device_find(const char *name);
/* The channel of that name between devices of the named device's type; NULL if there is none, or if channel is NULL. */
const lk_channel_type *lk__device_find_channel(const char *name, const char *channel);
/* Rows of the device table, NULL after the last. */
const lk_device_type *lk__device_list(size_t index);
/* Adds a row to the table, for tests; not thread-safe. The type is borrowed. USAGE if the table is full. */
lk_status lk__device_add(const lk_device_type *type) LK_CHECKED;

extern const lk_device_type lk__device_cpu;
extern const lk_device_type lk__device_cuda; /* only in builds with CUDA */

#endif
