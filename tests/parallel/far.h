/* far.h - device "far": the CPU as a device whose memory the host cannot reach.
 *
 * The memory is ordinary memory, but the device keeps a list of its blocks. It ends the process if a
 * copy is not between one of its blocks and other memory, or if gradients are not in its blocks. */
#ifndef LK_TESTS_FAR_H
#define LK_TESTS_FAR_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "tensor/device.h"

enum { FAR_BLOCKS = 1024 };

typedef struct far_block {
    const char *at;
    size_t bytes;
} far_block;

static pthread_mutex_t far_lock = PTHREAD_MUTEX_INITIALIZER;
static far_block far_blocks[FAR_BLOCKS]; /* at is NULL in a free entry */
static atomic_size_t far_fetched;        /* bytes downloaded by all ranks of the process */
static lk_device_type far_type;
static lk_kernels far_kernels, far_cpu; /* with checks and without */

/* Returns the block that starts at `at`; for NULL a free entry. */
static inline far_block *far_find(const void *at)
{
    int i = 0;
    while (i < FAR_BLOCKS - 1 && far_blocks[i].at != at)
        i++;
    return &far_blocks[i];
}

static inline bool far_has(const void *memory, size_t bytes)
{
    const char *at = memory;
    bool found = false;
    pthread_mutex_lock(&far_lock);
    for (int i = 0; i < FAR_BLOCKS && !found; i++)
        found = at >= far_blocks[i].at && at + bytes <= far_blocks[i].at + far_blocks[i].bytes;
    pthread_mutex_unlock(&far_lock);
    return found;
}

static inline void far_require(bool right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "device far: %s\n", what);
    abort();
}

static inline lk_status far_open(const lk_device_opts *opts, lk_device **out)
{
    LK_TRY(lk__device_cpu.open(opts, out));
    (*out)->type = &far_type;
    (*out)->kernels = &far_kernels;
    return LK_OK;
}

static inline lk_status far_alloc(lk_device *dev, size_t bytes, const char *what, void **out)
{
    LK_TRY(lk__device_cpu.alloc(dev, bytes, what, out));
    pthread_mutex_lock(&far_lock);
    *far_find(NULL) = (far_block){*out, bytes};
    pthread_mutex_unlock(&far_lock);
    return LK_OK;
}

static inline void far_free(lk_device *dev, void *block)
{
    pthread_mutex_lock(&far_lock);
    if (block)
        *far_find(block) = (far_block){0};
    pthread_mutex_unlock(&far_lock);
    lk__device_cpu.free(dev, block);
}

static inline lk_status far_upload(lk_device *dev, const void *host, size_t bytes, void *dst)
{
    far_require(bytes == 0 || (far_has(dst, bytes) && !far_has(host, 1)), "an upload from or to the wrong memory");
    return lk__device_cpu.upload(dev, host, bytes, dst);
}

static inline lk_status far_download(lk_device *dev, const void *src, size_t bytes, void *host)
{
    far_require(bytes == 0 || (far_has(src, bytes) && !far_has(host, 1)), "a download from or to the wrong memory");
    far_fetched += bytes;
    return lk__device_cpu.download(dev, src, bytes, host);
}

static inline void far_conv2d_grad_weight(lk_device *dev, const lk_conv2d_desc *conv, const lk_tensor *x,
                                          const lk_tensor *dy, const lk_shards *shards, lk_partials dw, lk_partials db,
                                          void *scratch)
{
    far_require(far_has(dw.slot0, 1) && far_has(x->data, 1) && far_has(dy->data, 1), "a gradient elsewhere");
    far_cpu.conv2d_grad_weight(dev, conv, x, dy, shards, dw, db, scratch);
}

static inline void far_linear_grad_weight(lk_device *dev, const lk_tensor *x, const lk_tensor *dy,
                                          const lk_shards *shards, lk_partials dw, lk_partials db, void *scratch)
{
    far_require(far_has(dw.slot0, 1) && far_has(x->data, 1) && far_has(dy->data, 1), "a gradient elsewhere");
    far_cpu.linear_grad_weight(dev, x, dy, shards, dw, db, scratch);
}

static inline void far_flag_above(lk_device *dev, int parts, const lk_flag_part *part, float limit, lk_flag *flag)
{
    for (int i = 0; i < parts; i++)
        far_require(far_has(part[i].x, part[i].count * sizeof(float)), "a search elsewhere");
    far_require(far_has(flag, sizeof *flag), "a flag elsewhere");
    far_cpu.flag_above(dev, parts, part, limit, flag);
}

/* Adds device "far" to the table of devices. */
static inline lk_status far_add(void)
{
    lk_device *cpu;
    LK_TRY(lk__device_open("cpu", &(lk_device_opts){.threads = 1}, &cpu));
    far_kernels = far_cpu = *cpu->kernels;
    lk__device_close(cpu);
    far_kernels.conv2d_grad_weight = far_conv2d_grad_weight;
    far_kernels.linear_grad_weight = far_linear_grad_weight;
    far_kernels.flag_above = far_flag_above;
    far_type = lk__device_cpu;
    far_type.name = "far";
    far_type.host_memory = false;
    far_type.open = far_open;
    far_type.alloc = far_alloc;
    far_type.free = far_free;
    far_type.upload = far_upload;
    far_type.download = far_download;
    return lk__device_add(&far_type);
}

#endif
