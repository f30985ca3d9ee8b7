/* tape.h - lets a device record steps and evaluations: playing a recording does the work again.
 *
 * During that the host may only enqueue work: a copy to or from the device, or waiting for the
 * device, ends the process. So does work with other arguments than when the recording was first played: a GPU
 * would use those of the recording. */
#ifndef LK_TESTS_TAPE_H
#define LK_TESTS_TAPE_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "tensor/device.h"

struct lk_device_recording {
    lk_status (*work)(void *arg);
    void *arg;
    uint64_t print; /* of the arguments of kernels; 0: not played before */
};

/* Bytes. Uploads of samples up to this size do not wait, and engines keep copies of the samples. */
enum { TAPE_PROMPT = 80 << 10 };

static lk_device_type tape_base;
static atomic_size_t tape_recorded, tape_played; /* by all ranks of the process */
static atomic_bool tape_stuck;                   /* work that is played never ends */
static _Thread_local bool tape_plays;
static _Thread_local int tape_kept; /* recordings of the rank */
static lk_kernels tape_kernels;     /* without the tape */
static _Thread_local uint64_t tape_print;

static inline void tape_require(bool right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "tape: %s\n", what);
    abort();
}

/* Adds an address and a number to the print of the arguments. */
static inline void tape_note(const void *at, size_t number)
{
    tape_print = (tape_print ^ (uintptr_t)at) * 0x9e3779b97f4a7c15u;
    tape_print = (tape_print ^ number ^ tape_print >> 29) * 0xbf58476d1ce4e5b9u;
}

static inline void tape_note_tensor(const lk_tensor *x)
{
    tape_note(x->data, x->shape.n);
}

static inline void tape_fetch(lk_device *dev, const lk_fetch_desc *fetch, void *dst)
{
    tape_note(fetch->ring, fetch->bytes);
    tape_note(fetch->turn, fetch->stride);
    tape_note(dst, 0);
    tape_kernels.fetch(dev, fetch, dst);
}

static inline void tape_post(lk_device *dev, const lk_post *post)
{
    tape_note(post->ring, post->stride);
    tape_note(post->loss, post->n);
    tape_note(post->label_rank, 0);
    tape_note(post->norm, 0);
    tape_note(post->error, 0);
    tape_note(post->turn, 0);
    tape_kernels.post(dev, post);
}

static inline void tape_copy(lk_device *dev, const lk_tensor *x, lk_tensor *y)
{
    tape_note_tensor(x);
    tape_note_tensor(y);
    tape_kernels.copy(dev, x, y);
}

static inline void tape_gather(lk_device *dev, const lk_gather_desc *gather, const uint32_t *ids, lk_tensor *x)
{
    tape_note(gather->pixels, gather->crop);
    tape_note(gather->values, gather->record);
    tape_note(gather->epoch, 0);
    tape_note(ids, 0);
    tape_note_tensor(x);
    tape_kernels.gather(dev, gather, ids, x);
}

static inline void tape_linear_forward(lk_device *dev, const lk_tensor *x, const void *w, const void *b, bool relu,
                                       const lk_dropout_desc *dropout, lk_tensor *y, void *scratch)
{
    tape_note_tensor(x);
    tape_note_tensor(y);
    tape_note(w, relu);
    tape_kernels.linear_forward(dev, x, w, b, relu, dropout, y, scratch);
}

static inline void tape_nll(lk_device *dev, const lk_loss_desc *desc, const lk_tensor *x, float *loss,
                            int32_t *label_rank, lk_tensor *dx)
{
    tape_note_tensor(x);
    tape_note(desc->labels, dx != NULL);
    tape_note(loss, 0);
    tape_note(label_rank, 0);
    tape_kernels.nll(dev, desc, x, loss, label_rank, dx);
}

static inline void tape_target_loss(lk_device *dev, const lk_loss_desc *desc, const lk_tensor *x,
                                    const lk_loss_results *results, lk_tensor *dx, void *scratch)
{
    tape_note_tensor(x);
    tape_note(desc->targets, dx != NULL);
    tape_note(desc->weights, desc->target_floats);
    tape_note(results->loss, 0);
    tape_note(results->error, 0);
    tape_kernels.target_loss(dev, desc, x, results, dx, scratch);
}

static inline void tape_scale(lk_device *dev, const lk_flag *flag, size_t count, const float *factor, float *x)
{
    tape_note(factor, count);
    tape_note(x, 0);
    tape_kernels.scale(dev, flag, count, factor, x);
}

static inline void tape_adam_step(lk_device *dev, const lk_adam *adam, const lk_flag *flag, size_t count,
                                  const lk_update_arrays *arrays, float *m, float *v)
{
    tape_note(adam, count);
    tape_note(arrays->grad, 0);
    tape_kernels.adam_step(dev, adam, flag, count, arrays, m, v);
}

/* Watches the arguments of some kernels of a device. */
static inline void tape_watch(lk_kernels *kernels)
{
    tape_kernels = *kernels;
    kernels->fetch = tape_fetch;
    kernels->post = tape_post;
    kernels->copy = tape_copy;
    kernels->gather = tape_gather;
    kernels->linear_forward = tape_linear_forward;
    kernels->nll = tape_nll;
    kernels->target_loss = tape_target_loss;
    kernels->scale = tape_scale;
    kernels->adam_step = tape_adam_step;
}

static inline lk_status tape_record(lk_device *dev, lk_status (*work)(void *arg), void *arg, lk_device_recording **out)
{
    tape_recorded++;
    tape_kept++;
    LK_TRY(LK_ALLOC(1, "a recording", out));
    **out = (lk_device_recording){.work = work, .arg = arg};
    return LK_OK;
}

static inline lk_status tape_play(lk_device *dev, lk_device_recording *recording)
{
    tape_played++;
    if (tape_stuck)
        return LK_OK;
    tape_plays = true;
    tape_print = 1;
    lk_status status = recording->work(recording->arg);
    tape_plays = false;
    tape_require(!recording->print || recording->print == tape_print, "a recording that would need other arguments");
    recording->print = tape_print;
    return status;
}

static inline void tape_forget(lk_device *dev, lk_device_recording *recording)
{
    tape_kept--;
    lk__mem_free(recording);
}

static inline lk_status tape_poll(lk_device *dev, bool *idle)
{
    *idle = !tape_stuck;
    return LK_OK;
}

static inline lk_status tape_upload(lk_device *dev, const void *host, size_t bytes, void *dst)
{
    tape_require(!tape_plays, "an upload in a recording");
    return tape_base.upload(dev, host, bytes, dst);
}

static inline lk_status tape_download(lk_device *dev, const void *src, size_t bytes, void *host)
{
    tape_require(!tape_plays, "a download in a recording");
    return tape_base.download(dev, src, bytes, host);
}

static inline lk_status tape_sync(lk_device *dev)
{
    tape_require(!tape_plays, "waiting in a recording");
    return tape_base.sync(dev);
}

/* Adds recording to a device type. */
static inline void tape_extend(lk_device_type *type)
{
    tape_base = *type;
    type->prompt_upload = TAPE_PROMPT;
    type->upload = tape_upload;
    type->download = tape_download;
    type->sync = tape_sync;
    type->record = tape_record;
    type->play = tape_play;
    type->forget = tape_forget;
    type->poll = tape_poll;
    type->alloc_host = lk__device_cpu.alloc;
    type->free_host = lk__device_cpu.free;
}

#endif
