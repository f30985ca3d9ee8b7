/* store.c - blocks of shared memory, each filled once under a mutex that notices the death of its owner. */
#define _GNU_SOURCE /* memfd_create */
#include "data/sets/store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"

/* A process that was stopped while it reads a file delays the others by this time at most. */
enum { LOCK_TIMEOUT_SECONDS = 10 };

static const uint64_t MAGIC = 0x6c6b73746f726532; /* "lkstore2": of this layout */

typedef struct entry {
    lk_store_key key;
    uint64_t at, room; /* of the block in the store; whole pages */
    pthread_mutex_t lock;
    atomic_bool full;
    bool hashed; /* the next field is valid; both are protected by the lock */
    uint64_t hash;
} entry;

/* The first bytes of the store. */
typedef struct table {
    uint64_t magic, entry_bytes, count;
    entry entries[LK_STORE_MAX_FILES];
} table;

struct lk_store {
    int fd;
    size_t bytes;
    table *table;        /* writable */
    const uint8_t *base; /* all of the store, read-only: a stray write cannot change the data of other processes */
};

lk_store_key lk__store_key(const char *path, size_t bytes)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return (lk_store_key){0};
    return (lk_store_key){.device = (uint64_t)info.st_dev,
                          .inode = (uint64_t)info.st_ino,
                          .size = (uint64_t)info.st_size,
                          .seconds = (uint64_t)info.st_mtim.tv_sec,
                          .nanoseconds = (uint64_t)info.st_mtim.tv_nsec,
                          .bytes = bytes};
}

static lk_status fail_store(const char *what)
{
    return lk__fail(LK_STATUS_IO, "cannot %s memory for data that processes share: %s", what, strerror(errno));
}

/* Takes over fd, also on failure. */
static lk_status map_store(int fd, size_t bytes, lk_store **out)
{
    lk_store *store;
    lk_status status;
    void *head = MAP_FAILED, *base = MAP_FAILED;
    LK_TRY_GOTO(LK_ALLOC(1, "shared data", &store), close_fd);
    head = mmap(NULL, lk__mem_whole_pages(sizeof(table)), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    base = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    *store = (lk_store){.fd = fd, .bytes = bytes, .table = head, .base = base};
    if (head != MAP_FAILED && base != MAP_FAILED) {
        *out = store;
        return LK_OK;
    }
    status = fail_store("map");
    lk__store_destroy(store);
    return status;

close_fd:
    close(fd);
    return status;
}

void lk__store_destroy(lk_store *store)
{
    if (store == NULL)
        return;
    if (store->table != MAP_FAILED)
        munmap(store->table, lk__mem_whole_pages(sizeof(table)));
    if (store->base != MAP_FAILED)
        munmap((void *)(uintptr_t)store->base, store->bytes);
    close(store->fd);
    lk__mem_free(store);
}

static void fill_table(table *t, const lk_store_key *keys, size_t count)
{
    pthread_mutexattr_t kind;
    size_t at = lk__mem_whole_pages(sizeof *t);
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    t->magic = MAGIC;
    t->entry_bytes = sizeof(entry);
    t->count = count;
    for (size_t i = 0; i < count; i++) {
        entry *e = &t->entries[i];
        e->key = keys[i];
        e->at = at;
        e->room = lk__mem_whole_pages((size_t)keys[i].bytes + 1);
        pthread_mutex_init(&e->lock, &kind);
        at += e->room;
    }
    pthread_mutexattr_destroy(&kind);
}

/* The kernel applies the limit on file sizes here, too, with a signal. */
static bool is_allowed(size_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur;
}

static lk_status make_memory(size_t bytes, int *out)
{
    errno = EFBIG;
    int fd = is_allowed(bytes) ? memfd_create("lockstep-data", MFD_CLOEXEC) : -1;
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0) {
        *out = fd;
        return LK_OK;
    }
    lk_status status = fail_store("make");
    if (fd >= 0)
        close(fd);
    return status;
}

lk_status lk__store_create(const lk_store_key *keys, size_t count, lk_store **out)
{
    size_t bytes = lk__mem_whole_pages(sizeof(table));
    int fd = -1;
    for (size_t i = 0; i < count; i++)
        bytes += lk__mem_whole_pages((size_t)keys[i].bytes + 1);
    LK_TRY(make_memory(bytes, &fd));
    lk_store *store;
    LK_TRY(map_store(fd, bytes, &store));
    fill_table(store->table, keys, count);
    *out = store;
    return LK_OK;
}

lk_store_offer lk__store_offer(const lk_store *store)
{
    struct stat info;
    if (fstat(store->fd, &info) != 0)
        return (lk_store_offer){0};
    return (lk_store_offer){.pid = (int64_t)getpid(),
                            .fd = store->fd,
                            .device = (uint64_t)info.st_dev,
                            .inode = (uint64_t)info.st_ino,
                            .bytes = store->bytes};
}

/* Whether a program of this version has made all of the table. */
static bool is_sound(const lk_store *store)
{
    const table *t = store->table;
    if (t->magic != MAGIC || t->entry_bytes != sizeof(entry) || t->count > LK_STORE_MAX_FILES)
        return false;
    for (size_t i = 0; i < t->count; i++) {
        const entry *e = &t->entries[i];
        if (e->at > store->bytes || e->room > store->bytes - e->at || e->key.bytes >= e->room)
            return false;
    }
    return true;
}

lk_status lk__store_open(const lk_store_offer *offer, lk_store **out)
{
    char path[64];
    struct stat info;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)offer->pid, (long long)offer->fd);
    int fd = offer->pid > 0 ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return fail_store("open");
    if (fstat(fd, &info) != 0 || (uint64_t)info.st_dev != offer->device || (uint64_t)info.st_ino != offer->inode ||
        (uint64_t)info.st_size < offer->bytes || offer->bytes < lk__mem_whole_pages(sizeof(table))) {
        close(fd);
        return lk__fail(LK_STATUS_IO, "process %lld offers memory for data that is not there", (long long)offer->pid);
    }
    lk_store *store;
    LK_TRY(map_store(fd, (size_t)offer->bytes, &store));
    if (!is_sound(store)) {
        lk__store_destroy(store);
        return lk__fail(LK_STATUS_IO, "process %lld of another version offers memory for data", (long long)offer->pid);
    }
    *out = store;
    return LK_OK;
}

/* Whether the lock is taken. A lock whose owner has died is taken, too: its block is not full, and is filled again. */
static bool take(entry *e)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LOCK_TIMEOUT_SECONDS;
    int error = pthread_mutex_timedlock(&e->lock, &until);
    if (error == EOWNERDEAD)
        error = pthread_mutex_consistent(&e->lock);
    return error == 0;
}

/* The block is writable only here. */
static lk_status fill(const lk_store *store, entry *e, lk_store_read_fn read, void *arg)
{
    void *block = mmap(NULL, (size_t)e->room, PROT_READ | PROT_WRITE, MAP_SHARED, store->fd, (off_t)e->at);
    if (block == MAP_FAILED)
        return fail_store("map");
    lk_status status = read(arg, block);
    munmap(block, (size_t)e->room);
    if (status == LK_OK)
        atomic_store_explicit(&e->full, true, memory_order_release);
    return status;
}

static entry *find(const lk_store *store, const lk_store_key *key)
{
    table *t = store->table;
    for (size_t i = 0; i < t->count; i++)
        if (key->inode != 0 && memcmp(&t->entries[i].key, key, sizeof *key) == 0)
            return &t->entries[i];
    return NULL;
}

lk_status lk__store_get(lk_store *store, const lk_store_key *key, lk_store_read_fn read, void *arg, const uint8_t **out)
{
    entry *e = find(store, key);
    lk_status status = LK_OK;
    bool full = e && atomic_load_explicit(&e->full, memory_order_acquire);
    if (e && !full && take(e)) {
        if (!atomic_load_explicit(&e->full, memory_order_acquire))
            status = fill(store, e, read, arg);
        full = status == LK_OK;
        pthread_mutex_unlock(&e->lock);
    }
    LK_TRY(status);
    *out = full ? store->base + e->at : NULL;
    return LK_OK;
}

/* A process that was stopped while it hashes delays the others only for a time, as one that reads does. */
uint64_t lk__store_hash(lk_store *store, const lk_store_key *key)
{
    entry *e = find(store, key);
    const uint8_t *content = store->base + e->at;
    if (!take(e))
        return lk__hash(content, (size_t)e->key.bytes, 0);
    if (!e->hashed) {
        e->hash = lk__hash(content, (size_t)e->key.bytes, 0);
        e->hashed = true;
    }
    uint64_t hash = e->hash;
    pthread_mutex_unlock(&e->lock);
    return hash;
}
