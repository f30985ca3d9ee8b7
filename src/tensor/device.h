/* device.h - a place that computes: memory, a stream of work, and kernels.
 *
 * A device is opened by name from the device table. Its memory may be out of
 * the host's reach and its work may be asynchronous: layers above move bytes
 * with upload and download and wait with sync, on the CPU too. */
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
    bool crowded;    /* with those of other ranks they outnumber the cores */
    const char *isa; /* NULL, or the kernel build to use ("scalar", "avx2", ...) */
    lk_precision precision;
} lk_device_opts;

/* Work that a device has kept to do again and again. */
typedef struct lk_device_recording lk_device_recording;

/* A parameter, for devices that keep some in an order of their own. All zero: an
 * array that every device keeps as it is. */
typedef struct lk_device_weight {
    size_t out, in; /* PyTorch's is (out, in, kernel, kernel); `in` is of one group */
    size_t kernel;  /* of a convolution; 0: a linear layer, (out, in) */
    size_t groups;  /* of a convolution */
    size_t pixels;  /* of a linear layer: its features are those of a flattened tensor of so many pixels, which
                     * lie as that tensor does where the device flattens by view; else 1 */
} lk_device_weight;

typedef struct lk_device_type {
    const char *name;
    bool host_memory; /* the host can read and write it: groups may lend it */
    /* Bits of convolutions and linear layers depend on the n of the call: layers
     * call these shard by shard. */
    bool by_shard;
    /* A flattened tensor that only a linear layer reads is the tensor itself. */
    bool flat_views;
    /* A log_softmax that only an nll_loss reads is left to that one, which is given the
     * scores: nothing is rounded between the two. */
    bool loss_views;
    size_t most_samples; /* in a wave; 0: any */
    /* An upload of at most so many bytes waits for none but the fourth before it. */
    size_t prompt_upload;
    /* Elements from a pixel of an activation to the next. Optional: the channels. */
    size_t (*pitch)(size_t channels);
    /* Elements of such a parameter on the device, and copies between PyTorch's order
     * and the device's, both on the host; pads are zero. Optional, together: all
     * parameters are kept in PyTorch's order. */
    size_t (*weight_count)(const lk_device_weight *weight);
    void (*pack)(const lk_device_weight *weight, const float *plain, float *packed);
    void (*unpack)(const lk_device_weight *weight, const float *packed, float *plain);
    /* Devices of this kind that the machine has, of index 0 and up. It is asked
     * before ranks are forked, so it must start nothing that a fork breaks, as a
     * driver's context. Optional: without it any index may be opened. */
    int (*count)(void);
    /* Whether one that is counted could be opened, with what it needs to work, and has
     * room for `need` bytes; otherwise why not. What it starts stays for open, in this
     * process, so that asking costs little; nothing may be forked after it. Optional:
     * without it there is no doubt. */
    lk_status (*probe)(int index, size_t need);
    /* Fails with UNSUPPORTED when the machine has no such device. */
    lk_status (*open)(const lk_device_opts *opts, lk_device **out);
    /* Waits for work under way. */
    void (*close)(lk_device *dev);
    /* Zeroed memory of the device, aligned to LK_ALIGN. May block. */
    lk_status (*alloc)(lk_device *dev, size_t bytes, const char *what, void **out);
    void (*free)(lk_device *dev, void *block);
    /* Bytes that alloc could still give. Optional: without it nothing is kept on the
     * device that need not be there. */
    size_t (*room)(lk_device *dev);
    /* Ordered with kernels. The host memory may be reused when upload returns,
     * and is filled when download returns (it blocks). */
    lk_status (*upload)(lk_device *dev, const void *host, size_t bytes, void *dst);
    lk_status (*download)(lk_device *dev, const void *src, size_t bytes, void *host);
    /* Blocks until all work enqueued so far is done; reports its faults. */
    lk_status (*sync)(lk_device *dev);
    /* Optional, together. record keeps what work enqueues, instead of doing it; play
     * enqueues all of it again, at little cost. Work must do nothing but enqueue, and
     * layers must have done theirs before outside of a recording, so that the device
     * knows their shapes. */
    lk_status (*record)(lk_device *dev, lk_status (*work)(void *arg), void *arg, lk_device_recording **out);
    lk_status (*play)(lk_device *dev, lk_device_recording *recording);
    void (*forget)(lk_device *dev, lk_device_recording *recording);
    /* Faults so far, and whether all work that was enqueued is done, without waiting. */
    lk_status (*poll)(lk_device *dev, bool *idle);
    /* Zeroed memory of the host that kernels can write to while the host reads.
     * Optional, with record. */
    lk_status (*alloc_host)(lk_device *dev, size_t bytes, const char *what, void **out);
    void (*free_host)(lk_device *dev, void *block);
    /* How devices of several ranks reach each other, what is to be preferred first and
     * NULL last. Optional: through the host. */
    const lk_channel_type *const *channels;
    /* Lines for `lockstep info`, '\n' between them: what would be opened, "" when
     * nothing. Nothing is forked after it. */
    void (*describe)(char *text, size_t bytes);
} lk_device_type;

/* Every implementation starts with this. */
struct lk_device {
    const lk_device_type *type;
    const lk_kernels *kernels;
    lk_dtype values; /* of activations and their gradients: f32 or bf16 */
};

/* "fp32", "tf32", "bf16" by lk_precision, NULL after the last. */
extern const char *const lk__device_precision_names[];

/* Elements from a pixel of so many channels to the next, in an activation. */
static inline size_t lk__device_pitch(const lk_device *dev, size_t channels)
{
    return dev->type->pitch ? dev->type->pitch(channels) : channels;
}

/* "cpu" or "cpu:N". An unknown name lists the known ones. */
lk_status lk__device_open(const char *name, const lk_device_opts *opts, lk_device **out) LK_CHECKED;
void lk__device_close(lk_device *dev);
/* Asks the slot of that name. */
lk_status lk__device_probe(const char *name, size_t need) LK_CHECKED;

/* The row that a name, with or without its ":N", stands for; NULL: there is none. */
const lk_device_type *lk__device_find(const char *name);
/* Rows of the device table, NULL after the last. */
const lk_device_type *lk__device_list(size_t index);
/* Adds a row to the table, for tests; not thread-safe. The type is borrowed. USAGE where there is no room for more. */
lk_status lk__device_add(const lk_device_type *type) LK_CHECKED;

extern const lk_device_type lk__device_cpu;
extern const lk_device_type lk__device_cuda; /* in builds with CUDA */

#endif
