/* fetch.c - reads one file on a thread of its own.
 *
 * Inflating MNIST's images takes longer than the rest of the start-up, so it runs while the plan is
 * made. Files are read one after another in the order of the requests: the training split, which is
 * needed first, does not share a core with the others. Ranks of one host have no spare cores: they read each file
 * once, into a store (store.h). */
#include "data/sets/dataset.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/hash.h"
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
    bool begun;
    atomic_bool joined; /* status, detail and content are final */
    lk_status status;
    char detail[DETAIL];
    lk_fetch_opts opts; /* its path is `path` below */
    lk_store_key key;
    lk_store *store; /* borrowed, or NULL */
    const uint8_t *content;
    uint8_t *own;  /* the content, if it is not in the store */
    bool hashed;   /* hash is valid; both are protected by the lock */
    uint64_t hash; /* of the content */
    char path[];
};

lk_status lk__dataset_fail_changed(const char *path, size_t before, size_t now)
{
    return lk__fail(LK_STATUS_FORMAT,
                    "%s: changed while it was in use: it had %zu bytes and has %zu now; start again when nothing "
                    "writes to it any more",
                    path, before, now);
}

/* The result of reading a file that had `size` bytes when it was examined. */
static lk_status check_steady(const char *path, size_t size, lk_status status, size_t got)
{
    char why[DETAIL];
    lk_file_outline now = {.bytes = size};
    snprintf(why, sizeof why, "%s", status == LK_OK ? "" : lk_error_detail());
    bool there = lk__file_outline(path, &now) == LK_OK;
    /* A plain file may have shrunk and grown again in between. */
    if (there && now.bytes == size && !now.gzip && status == LK_OK)
        now.bytes = got;
    if (there && now.bytes != size)
        return lk__dataset_fail_changed(path, size, now.bytes);
    return status == LK_OK ? LK_OK : lk__fail(status, "%s", why);
}

lk_status lk__dataset_read_steady(const char *path, size_t size, size_t max_bytes, uint8_t **out, size_t *bytes)
{
    uint8_t *content = NULL;
    size_t got = 0;
    lk_status status = lk__file_read(path, max_bytes, &content, &got);
    status = check_steady(path, size, status, got);
    if (status != LK_OK) {
        lk__mem_free(content);
        return status;
    }
    *out = content;
    *bytes = got;
    return LK_OK;
}

static lk_status check_header(const lk_fetch *f, const uint8_t *content)
{
    if (memcmp(content, f->opts.header, f->opts.header_bytes) == 0)
        return LK_OK;
    return lk__fail(LK_STATUS_FORMAT,
                    "%s: changed while it was in use: its first %zu bytes are not what they were; start again when "
                    "nothing writes to it any more",
                    f->path, f->opts.header_bytes);
}

/* An lk_store_read_fn. */
static lk_status read_exactly(void *arg, uint8_t *block)
{
    const lk_fetch *f = arg;
    const lk_fetch_opts *opts = &f->opts;
    size_t got = 0;
    lk__fault_point("read");
    const char *before = lk__fault_enter("read");
    lk_status status = lk__file_read_into(f->path, opts->bytes, block, &got);
    status = check_steady(f->path, opts->size, status, got);
    lk__fault_leave(before);
    LK_TRY(status);
    if (got != opts->bytes)
        return lk__fail(LK_STATUS_FORMAT, "%s: ends at byte %zu where its header calls for %zu bytes", f->path, got,
                        opts->bytes);
    LK_TRY(check_header(f, block));
    return opts->check ? opts->check(opts, block) : LK_OK;
}

static lk_status read_own(lk_fetch *f)
{
    LK_TRY(LK_ALLOC(f->opts.bytes + 1, f->path, &f->own));
    LK_TRY(read_exactly(f, f->own));
    f->content = f->own;
    return LK_OK;
}

static lk_status read_file(lk_fetch *f)
{
    if (f->store)
        LK_TRY(lk__store_get(f->store, &f->key, read_exactly, f, &f->content));
    return f->content ? check_header(f, f->content) : read_own(f);
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
    f->status = read_file(f);
    pass_turn();
    if (f->status != LK_OK)
        snprintf(f->detail, sizeof f->detail, "%s", lk_error_detail());
    return NULL;
}

lk_status lk__fetch_create(const lk_fetch_opts *opts, lk_fetch **out)
{
    size_t length = strlen(opts->path);
    assert(opts->bytes >= opts->header_bytes);
    void *block = NULL;
    LK_TRY(lk__mem_alloc(1, sizeof(lk_fetch) + length + 1, "a file being read", &block));
    lk_fetch *f = block;
    f->opts = *opts;
    memcpy(f->path, opts->path, length + 1);
    f->opts.path = f->path;
    f->key = lk__store_key(f->path, opts->bytes);
    pthread_mutex_init(&f->lock, NULL);
    *out = f;
    return LK_OK;
}

/* Needs the lock. */
static void begin(lk_fetch *f, lk_store *store)
{
    if (f->begun)
        return;
    f->begun = true;
    f->store = store;
    f->ticket = take_ticket();
    /* Without a thread the file is read now. */
    if (lk__thread_create(&f->thread, fetch_main, f) != 0) {
        fetch_main(f);
        atomic_store(&f->joined, true);
    }
}

void lk__fetch_begin(lk_fetch *fetch, lk_store *store)
{
    pthread_mutex_lock(&fetch->lock);
    begin(fetch, store);
    pthread_mutex_unlock(&fetch->lock);
}

static void join(lk_fetch *f)
{
    if (atomic_load_explicit(&f->joined, memory_order_acquire))
        return;
    pthread_mutex_lock(&f->lock);
    begin(f, NULL);
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

lk_status lk__fetch_hash(lk_fetch *fetch, uint64_t *out)
{
    const uint8_t *content = NULL;
    LK_TRY(lk__fetch_wait(fetch, &content));
    pthread_mutex_lock(&fetch->lock);
    if (!fetch->hashed)
        fetch->hash = fetch->own ? lk__hash(content, fetch->opts.bytes, 0) : lk__store_hash(fetch->store, &fetch->key);
    fetch->hashed = true;
    *out = fetch->hash;
    pthread_mutex_unlock(&fetch->lock);
    return LK_OK;
}

void lk__fetch_destroy(lk_fetch *fetch)
{
    if (fetch == NULL)
        return;
    if (fetch->begun)
        join(fetch);
    pthread_mutex_destroy(&fetch->lock);
    lk__mem_free(fetch->own);
    lk__mem_free(fetch);
}

void lk__dataset_keys(const lk_dataset *data, lk_store_key *keys, size_t *count)
{
    for (size_t i = 0; i < LK_DATASET_MAX_FILES && *count < LK_STORE_MAX_FILES; i++)
        if (data->fetches[i] != NULL)
            keys[(*count)++] = data->fetches[i]->key;
}

lk_status lk__dataset_begin(lk_dataset *data, lk_store *store, int reader, int readers)
{
    lk_fetch *fetches[LK_DATASET_MAX_FILES];
    size_t count = 0;
    for (size_t i = 0; i < LK_DATASET_MAX_FILES; i++)
        if (data->fetches[i] != NULL)
            fetches[count++] = data->fetches[i];
    for (size_t i = 0; i < count; i++)
        lk__fetch_begin(fetches[(i + (size_t)reader * count / (size_t)readers) % count], store);
    return data->ops->ready ? data->ops->ready(data) : LK_OK;
}
