/* trace_pack.c - the events of a rank as one block of memory, which can be sent. Hosts of a job have the same order
 * of bytes, as in all of its messages. */
#include <string.h>

#include "base/mem.h"
#include "train/trace.h"

enum { MAX_NAMES = 4096 };

/* A pack under construction. Names are told apart by their pointers. */
typedef struct packing {
    lk_trace_track *tracks;
    size_t track_count;
    double since, offset;
    const char *names[MAX_NAMES];
    uint32_t offsets[MAX_NAMES];
    size_t name_count, text;
    size_t spans;
    uint64_t dropped;
} packing;

/* The index of a name; names that are too many share one. */
static size_t add_name(packing *p, const char *name)
{
    static const char left_out[] = "(name left out)";
    for (size_t i = p->name_count; i-- > 0;)
        if (p->names[i] == name)
            return i;
    if (p->name_count == MAX_NAMES - 1 && name != left_out)
        return add_name(p, left_out);
    p->names[p->name_count] = name;
    p->offsets[p->name_count] = (uint32_t)p->text;
    p->text += strlen(name) + 1;
    return p->name_count++;
}

static bool is_inside(const packing *p, const lk_trace_event *event)
{
    return event->begin + p->offset >= p->since;
}

/* Counts what the block will hold. */
static void measure(packing *p)
{
    for (size_t t = 0; t < p->track_count; t++) {
        const lk_trace_track *track = &p->tracks[t];
        add_name(p, track->name);
        p->dropped += track->dropped;
        for (size_t i = 0; i < track->count; i++) {
            if (!is_inside(p, &track->events[i]))
                continue;
            add_name(p, track->events[i].name);
            p->spans++;
        }
    }
}

static lk_train_trace_span span_of(packing *p, const lk_trace_event *event, size_t thread)
{
    return (lk_train_trace_span){.begin = event->begin + p->offset,
                                 .end = event->end + p->offset,
                                 .from = event->from,
                                 .to = event->to,
                                 .kind = event->kind,
                                 .number = event->number,
                                 .name = p->offsets[add_name(p, event->name)],
                                 .thread = (uint32_t)thread};
}

static void fill(packing *p, lk_train_trace_pack *pack)
{
    lk_train_trace_thread *threads = (lk_train_trace_thread *)(pack + 1);
    lk_train_trace_span *spans = (lk_train_trace_span *)(threads + p->track_count);
    char *text = (char *)(spans + p->spans);
    for (size_t t = 0; t < p->track_count; t++) {
        const lk_trace_track *track = &p->tracks[t];
        threads[t] = (lk_train_trace_thread){p->offsets[add_name(p, track->name)], track->index};
        for (size_t i = 0; i < track->count; i++)
            if (is_inside(p, &track->events[i]))
                *spans++ = span_of(p, &track->events[i], t);
    }
    for (size_t i = 0; i < p->name_count; i++)
        memcpy(text + p->offsets[i], p->names[i], strlen(p->names[i]) + 1);
}

static size_t block_bytes(uint64_t threads, uint64_t spans, uint64_t text)
{
    return sizeof(lk_train_trace_pack) + threads * sizeof(lk_train_trace_thread) + spans * sizeof(lk_train_trace_span) +
           text;
}

static lk_status make_pack(packing *p, const char *name, lk_train_trace_pack **out)
{
    lk_train_trace_pack *pack;
    void *block;
    add_name(p, name);
    measure(p);
    size_t bytes = block_bytes(p->track_count, p->spans, p->text);
    LK_TRY(lk__mem_alloc(1, bytes, "a trace", &block));
    pack = block;
    *pack = (lk_train_trace_pack){
        .bytes = bytes, .threads = p->track_count, .spans = p->spans, .text = p->text, .dropped = p->dropped};
    fill(p, pack);
    *out = pack;
    return LK_OK;
}

/* Threads that begin to record between both calls of lk__trace_tracks are left out. The counts of events are read
 * once, so that both passes see the same events. */
static lk_status take_tracks(int rank, packing *p)
{
    size_t room = lk__trace_tracks(rank, NULL, 0);
    LK_TRY(LK_ALLOC(room, "a trace", &p->tracks));
    p->track_count = lk__size_min(lk__trace_tracks(rank, p->tracks, room), room);
    return LK_OK;
}

lk_status lk__train_trace_pack_create(int rank, const char *name, double since, double offset,
                                      lk_train_trace_pack **out)
{
    packing *p;
    LK_TRY(LK_ALLOC(1, "a trace", &p));
    p->since = since;
    p->offset = offset;
    lk_status status = take_tracks(rank, p);
    if (status == LK_OK)
        status = make_pack(p, name, out);
    lk__mem_free(p->tracks);
    lk__mem_free(p);
    return status;
}

/* Whether all offsets and indices of the block are inside it. */
static bool fits(const lk_train_trace_view *view)
{
    const lk_train_trace_pack *pack = view->pack;
    if (pack->text == 0 || view->text[pack->text - 1] != '\0')
        return false;
    for (uint64_t i = 0; i < pack->threads; i++)
        if (view->threads[i].name >= pack->text)
            return false;
    for (uint64_t i = 0; i < pack->spans; i++) {
        const lk_train_trace_span *span = &view->spans[i];
        if (span->kind < 0 || span->kind >= LK_TRACE_KIND_COUNT || span->name >= pack->text ||
            span->thread >= pack->threads || !(span->end >= span->begin))
            return false;
    }
    return true;
}

lk_status lk__train_trace_pack_view(const lk_train_trace_pack *pack, lk_train_trace_view *out)
{
    const uint64_t most = UINT32_MAX;
    bool sane = pack->threads <= most && pack->spans <= most && pack->text <= most &&
                pack->bytes == block_bytes(pack->threads, pack->spans, pack->text);
    lk_train_trace_view view = {.pack = pack, .threads = (const lk_train_trace_thread *)(pack + 1)};
    if (sane) {
        view.spans = (const lk_train_trace_span *)(view.threads + pack->threads);
        view.text = (const char *)(view.spans + pack->spans);
        sane = fits(&view);
    }
    if (!sane)
        return lk__fail(LK_STATUS_FORMAT, "the events of a rank's trace do not fit together");
    *out = view;
    return LK_OK;
}
