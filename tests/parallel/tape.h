/* tape.h - lets a device record steps: playing a recording does the work again.
 *
 * During that the host may only enqueue work: a copy to or from the device, or waiting for the
 * device, ends the process. */
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
};

/* Bytes. Uploads of samples up to this size do not wait, and engines keep copies of the samples. */
enum { TAPE_PROMPT = 80 << 10 };

static lk_device_type tape_base;
static atomic_size_t tape_recorded, tape_played; /* by all ranks of the process */
static atomic_bool tape_stuck;                   /* work that is played never ends */
static _Thread_local bool tape_plays;
static _Thread_local int tape_kept; /* recordings of the rank */

static inline void tape_require(bool right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "tape: %s\n", what);
    abort();
}

static inline lk_status tape_record(lk_device *dev, lk_status (*work)(void *arg), void *arg, lk_device_recording **out)
{
    tape_recorded++;
    tape_kept++;
    LK_TRY(LK_ALLOC(1, "a recording", out));
    **out = (lk_device_recording){work, arg};
    return LK_OK;
}

static inline lk_status tape_play(lk_device *dev, lk_device_recording *recording)
{
    tape_played++;
    if (tape_stuck)
        return LK_OK;
    tape_plays = true;
    lk_status status = recording->work(recording->arg);
    tape_plays = false;
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
