/* trace.c - memory of the spans: one track for each thread that has recorded something.
 *
 * Only its own thread writes to a track. The count is published with release order after the event, so a reader
 * sees complete events. Tracks stay in a list until the process ends, because a thread may still hold its own. */
#include "base/trace.h"

#include <pthread.h>

#include "base/mem.h"

enum { TRACK_EVENTS = 1 << 15 };

/* The tracks of a thread: its own, and that of the device's stream for which it works. */
typedef enum row { ROW_OWN, ROW_STREAM, ROWS } row;

typedef struct track {
    struct track *next;
    int rank;
    const char *name;
    int index;
    bool taken;             /* by a thread that has not ended */
    atomic_uint generation; /* of the events */
    atomic_size_t count, dropped;
    lk_trace_event *events; /* (TRACK_EVENTS) */
} track;

const char *const lk__trace_kinds[LK_TRACE_KIND_COUNT] = {
#define TEXT(name, text) [LK_TRACE_KIND_##name] = text,
    LK_TRACE_KIND_LIST(TEXT)
#undef TEXT
};

atomic_int lk__trace_ranks;

static atomic_uint generation;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects the list and the start */
static track *tracks;
static pthread_key_t key; /* its destructor runs when a thread ends */
static bool key_created;

static _Thread_local struct {
    int rank; /* plus one, so that a thread without a rank has 0 */
    const char *name;
    int index;
    track *tracks[ROWS];
    lk_trace_label label;
} self;

/* Gives the tracks of the calling thread back, so that later threads can use them when their events are no longer
 * needed. */
static void release_tracks(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&lock);
    for (row r = 0; r < ROWS; r++) {
        if (self.tracks[r])
            self.tracks[r]->taken = false;
        self.tracks[r] = NULL;
    }
    pthread_mutex_unlock(&lock);
}

void lk__trace_thread(int rank, const char *name, int index)
{
    release_tracks(NULL);
    self.rank = rank + 1;
    self.name = name;
    self.index = index;
}

int lk__trace_rank(void)
{
    return self.rank - 1;
}

void lk__trace_set_label(lk_trace_label label)
{
    self.label = label;
}

lk_trace_label lk__trace_label(void)
{
    return self.label;
}

static void create_key(void)
{
    key_created = pthread_key_create(&key, release_tracks) == 0;
}

/* A track with events of an earlier generation that no thread holds, or a new one. */
static track *take_track(void)
{
    track *t = tracks;
    while (t && (t->taken || atomic_load(&t->generation) == atomic_load(&generation)))
        t = t->next;
    if (t)
        return t;
    if (LK_ALLOC(1, "a trace", &t) != LK_OK)
        return NULL;
    if (LK_ALLOC(TRACK_EVENTS, "a trace", &t->events) != LK_OK) {
        lk__mem_free(t);
        return NULL;
    }
    t->next = tracks;
    tracks = t;
    return t;
}

/* A track of the calling thread; NULL: no memory. */
static track *own_track(row r)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (self.tracks[r])
        return self.tracks[r];
    pthread_once(&once, create_key);
    pthread_mutex_lock(&lock);
    track *t = take_track();
    if (t) {
        t->rank = lk__trace_rank();
        t->name = r == ROW_STREAM ? "stream" : self.name;
        t->index = r == ROW_STREAM ? -1 : self.index;
        t->taken = true;
    }
    pthread_mutex_unlock(&lock);
    self.tracks[r] = t;
    if (t && key_created)
        pthread_setspecific(key, t);
    return t;
}

static void append(row r, const lk_trace_event *event)
{
    track *t = self.rank > 0 ? own_track(r) : NULL;
    if (!t)
        return;
    unsigned now = atomic_load(&generation);
    if (atomic_load_explicit(&t->generation, memory_order_relaxed) != now) {
        atomic_store_explicit(&t->count, 0, memory_order_relaxed);
        atomic_store_explicit(&t->dropped, 0, memory_order_relaxed);
        atomic_store(&t->generation, now);
    }
    size_t count = atomic_load_explicit(&t->count, memory_order_relaxed);
    if (count == TRACK_EVENTS) {
        atomic_fetch_add_explicit(&t->dropped, 1, memory_order_relaxed);
        return;
    }
    t->events[count] = *event;
    atomic_store_explicit(&t->count, count + 1, memory_order_release);
}

void lk__trace_record(const lk_trace_event *event)
{
    append(ROW_OWN, event);
}

void lk__trace_record_stream(const lk_trace_event *event)
{
    append(ROW_STREAM, event);
}

void lk__trace_start(void)
{
    pthread_mutex_lock(&lock);
    if (atomic_load(&lk__trace_ranks) == 0)
        atomic_fetch_add(&generation, 1);
    atomic_fetch_add(&lk__trace_ranks, 1);
    pthread_mutex_unlock(&lock);
}

void lk__trace_stop(void)
{
    atomic_fetch_sub(&lk__trace_ranks, 1);
}

size_t lk__trace_tracks(int rank, lk_trace_track *out, size_t room)
{
    size_t found = 0;
    pthread_mutex_lock(&lock);
    for (track *t = tracks; t; t = t->next) {
        if (t->rank != rank || atomic_load(&t->generation) != atomic_load(&generation))
            continue;
        if (found < room)
            out[found] = (lk_trace_track){.name = t->name,
                                          .index = t->index,
                                          .events = t->events,
                                          .count = atomic_load_explicit(&t->count, memory_order_acquire),
                                          .dropped = atomic_load_explicit(&t->dropped, memory_order_relaxed)};
        found++;
    }
    pthread_mutex_unlock(&lock);
    return found;
}
