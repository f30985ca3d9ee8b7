/* inproc.c - the transport of ranks that are threads of one process.
 *
 * Segments are ordinary memory. They live until the last rank has closed the transport, because ranks leave
 * in any order. */
#include <string.h>

#include "base/mem.h"
#include "comm/transport/shared.h"

/* Memory of all ranks. */
typedef struct world {
    atomic_int users;
    int size;
    void *block[]; /* (size) contain the segments */
} world;

typedef struct inproc {
    lk_shared shared;
    world *world;
} inproc;

typedef struct offer {
    lk_status status;
    void *block;
    world *world; /* of rank 0 */
    uint64_t cpus[LK_CPU_WORDS];
} offer;

static void leave(world *w)
{
    if (atomic_fetch_sub(&w->users, 1) > 1)
        return;
    for (int r = 0; r < w->size; r++)
        lk__mem_free(w->block[r]);
    lk__mem_free(w);
}

static lk_status make_offer(const lk_shared *s, offer *mine)
{
    size_t size = (size_t)s->size;
    lk__bell_cpus(mine->cpus);
    LK_TRY(lk__mem_alloc(1, s->layout.bytes + LK_SHARED_ALIGN, "the lanes of a thread rank", &mine->block));
    if (s->rank != 0)
        return LK_OK;
    LK_TRY(lk__mem_alloc(1, sizeof *mine->world + size * sizeof(void *), "thread ranks", (void **)&mine->world));
    atomic_init(&mine->world->users, s->size);
    mine->world->size = s->size;
    return LK_OK;
}

static unsigned char *aligned(void *block)
{
    return (unsigned char *)block + (LK_SHARED_ALIGN - (uintptr_t)block % LK_SHARED_ALIGN) % LK_SHARED_ALIGN;
}

/* From here on the blocks belong to the world, and every rank is a user of it. */
static void attach_segments(inproc *t, const offer *all)
{
    lk_shared *s = &t->shared;
    uint64_t cpus[LK_CPU_WORDS] = {0};
    t->world = all[0].world;
    t->world->block[s->rank] = all[s->rank].block;
    for (int r = 0; r < s->size; r++) {
        s->segment[r] = aligned(all[r].block);
        for (size_t i = 0; i < LK_CPU_WORDS; i++)
            cpus[i] |= all[r].cpus[i];
    }
    s->crowded = lk__bell_cpus_crowded(cpus, s->size);
    lk__shared_start(s);
}

static lk_status exchange_offers(inproc *t, const lk_boot *boot, offer *all)
{
    offer mine;
    memset(&mine, 0, sizeof mine);
    mine.status = make_offer(&t->shared, &mine);
    lk_status status = boot->exchange(boot->arg, &mine, sizeof mine, all);
    for (int r = 0; r < boot->size && status == LK_OK; r++)
        if (all[r].status != LK_OK)
            status = lk__fail(all[r].status, "no memory for the lanes of thread rank %d (%zu bytes)", r,
                              t->shared.layout.bytes);
    if (status != LK_OK) {
        lk__mem_free(mine.block);
        lk__mem_free(mine.world);
    }
    return status;
}

static lk_status inproc_open(const lk_boot *boot, lk_transport **out)
{
    inproc *t;
    offer *all = NULL;
    LK_TRY(LK_ALLOC(1, "a transport", &t));
    lk_status status;
    LK_TRY_GOTO(lk__shared_init(&t->shared, boot, true), free_transport);
    LK_TRY_GOTO(LK_ALLOC((size_t)boot->size, "thread ranks", &all), fini_shared);
    LK_TRY_GOTO(exchange_offers(t, boot, all), free_offers);
    attach_segments(t, all);
    lk__mem_free(all);
    t->shared.base.type = &lk__transport_inproc;
    *out = &t->shared.base;
    return LK_OK;

free_offers:
    lk__mem_free(all);
fini_shared:
    lk__shared_fini(&t->shared);
free_transport:
    lk__mem_free(t);
    return status;
}

static void inproc_close(lk_transport *transport)
{
    if (transport == NULL)
        return;
    inproc *t = (inproc *)transport;
    lk__shared_fini(&t->shared);
    leave(t->world);
    lk__mem_free(t);
}

const lk_transport_type lk__transport_inproc = {
    .name = "inproc",
    .summary = "threads of one process",
    .open = inproc_open,
    .close = inproc_close,
    .max_frame = lk__shared_max_frame,
    .send = lk__shared_send,
    .sent = lk__shared_sent,
    .taken = lk__shared_taken,
    .arrived = lk__shared_arrived,
    .payload = lk__shared_payload,
    .release = lk__shared_release,
    .progress = lk__shared_progress,
    .wait = lk__shared_wait,
};
