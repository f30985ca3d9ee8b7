/* fetch.c - reads one file on a thread of its own.
 *
 * Inflating MNIST's images takes longer than the rest of the start-up, so it runs while the plan is
 * made. Files are read one after another in the order of the requests: the training split, which is
 * needed first, does not share a core with the others. Ranks of one host have no spare cores. */
#include "data/sets/dataset.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/thread.h"

enum { DETAIL = 2048 };

/* Shared by all fetches of the process. */
static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_passed = PTHREAD_COND_INITIALIZER;
static unsigned long long tickets, served;

struct lk_fetch {
    pthread_t thread;
    unsigned long long ticket;
    pthread_mutex_t lock;
    atomic_bool joined; /* status, detail and content are final */
    lk_status status;
    char detail[DETAIL];
    lk_fetch_opts opts; /* its path is `path` below */
    uint8_t *content;
    char path[];
};

lk_status lk__dataset_fail_changed(const char *path, size_t before, size_t now)
{
    return lk__fail(LK_STATUS_FORMAT,
                    "%s: changed while it was in use: it had %zu bytes and has %zu now; start again when nothing "
                    "writes to it any more",
                    path, before, now);
}

lk_status lk__dataset_read_steady(const char *path, size_t size, size_t max_bytes, uint8_t **out, size_t *bytes)
{
    uint8_t *content = NULL;
    size_t got = 0;
    char why[DETAIL];
    lk_file_outline now = {.bytes = size};
    lk_status status = lk__file_read(path, max_bytes, &content, &got);
    snprintf(why, sizeof why, "%s", lk_error_detail());
    bool there = lk__file_outline(path, &now) == LK_OK;
    /* A plain file may have shrunk and grown again in between. */
    if (there && now.bytes == size && !now.gzip && status == LK_OK)
        now.bytes = got;
    if (there && now.bytes != size) {
        lk__mem_free(content);
        return lk__dataset_fail_changed(path, size, now.bytes);
    }
    if (status != LK_OK)
        return lk__fail(status, "%s", why);
    *out = content;
    *bytes = got;
    return LK_OK;
}

static lk_status read_exactly(lk_fetch *f)
{
    const lk_fetch_opts *opts = &f->opts;
    size_t got = 0;
    LK_TRY(lk__dataset_read_steady(f->path, opts->size, opts->bytes, &f->content, &got));
    if (got != opts->bytes)
        return lk__fail(LK_STATUS_FORMAT, "%s: ends at byte %zu where its header calls for %zu bytes", f->path, got,
                        opts->bytes);
    if (memcmp(f->content, opts->header, sizeof opts->header) != 0)
        return lk__fail(LK_STATUS_FORMAT,
                        "%s: changed while it was in use: its first %zu bytes are not what they were; start again when "
                        "nothing writes to it any more",
                        f->path, sizeof opts->header);
    return LK_OK;
}

static unsigned long long take_ticket(void)
{
    pthread_mutex_lock(&turn_lock);
    unsigned long long ticket = tickets++;
    pthread_mutex_unlock(&turn_lock);
    return ticket;
}

static void await_turn(unsigned long long ticket)
{
    pthread_mutex_lock(&turn_lock);
    while (served != ticket)
        pthread_cond_wait(&turn_passed, &turn_lock);
    pthread_mutex_unlock(&turn_lock);
}

static void pass_turn(void)
{
    pthread_mutex_lock(&turn_lock);
    served++;
    pthread_cond_broadcast(&turn_passed);
    pthread_mutex_unlock(&turn_lock);
}

static void *fetch_main(void *arg)
{
    lk_fetch *f = arg;
    await_turn(f->ticket);
    f->status = read_exactly(f);
    pass_turn();
    if (f->status != LK_OK)
        snprintf(f->detail, sizeof f->detail, "%s", lk_error_detail());
    return NULL;
}

lk_status lk__fetch_start(const lk_fetch_opts *opts, lk_fetch **out)
{
    size_t length = strlen(opts->path);
    assert(opts->bytes >= sizeof opts->header);
    void *block = NULL;
    LK_TRY(lk__mem_alloc(1, sizeof(lk_fetch) + length + 1, "a file being read", &block));
    lk_fetch *f = block;
    f->opts = *opts;
    memcpy(f->path, opts->path, length + 1);
    f->opts.path = f->path;
    f->ticket = take_ticket();
    pthread_mutex_init(&f->lock, NULL);
    /* Without a thread the file is read now. */
    if (lk__thread_create(&f->thread, fetch_main, f) != 0) {
        fetch_main(f);
        atomic_store(&f->joined, true);
    }
    *out = f;
    return LK_OK;
}

static void join(lk_fetch *f)
{
    if (atomic_load_explicit(&f->joined, memory_order_acquire))
        return;
    pthread_mutex_lock(&f->lock);
    if (!atomic_load(&f->joined)) {
        pthread_join(f->thread, NULL);
        atomic_store_explicit(&f->joined, true, memory_order_release);
    }
    pthread_mutex_unlock(&f->lock);
}

lk_status lk__fetch_wait(lk_fetch *fetch, const uint8_t **out)
{
    join(fetch);
    if (fetch->status != LK_OK)
        return lk__fail(fetch->status, "%s", fetch->detail);
    *out = fetch->content;
    return LK_OK;
}

void lk__fetch_destroy(lk_fetch *fetch)
{
    if (fetch == NULL)
        return;
    join(fetch);
    pthread_mutex_destroy(&fetch->lock);
    lk__mem_free(fetch->content);
    lk__mem_free(fetch);
}
