/* shm.c - the transport of processes on one host.
 *
 * A segment is a file in /dev/shm without a name, which peers open through /proc, so that nothing is left
 * when processes are killed. If that is impossible (another PID namespace, an old kernel), the file has an
 * unguessable name until all ranks have mapped it. Its pages are reserved when it is made: a full /dev/shm is
 * then an error, not a SIGBUS later. */
#define _GNU_SOURCE /* O_TMPFILE, getrandom */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"
#include "comm/transport/shared.h"

static const char SHM_FOLDER[] = "/dev/shm";

enum { NAME_BYTES = 56, TEXT_BYTES = 240 };

typedef struct shm {
    lk_shared shared;
    lk_boot boot;
    size_t segment_bytes; /* mapped bytes of a segment */
    uint32_t next_region;
} shm;

/* A segment that this rank made. */
typedef struct segment {
    int fd;
    char name[NAME_BYTES]; /* "": it has no name */
} segment;

/* What a rank sends to the others about its segment. */
typedef struct offer {
    int32_t status; /* lk_status */
    union {
        char text[TEXT_BYTES]; /* why this rank failed */
        struct {
            int32_t pid, fd;
            uint64_t device, inode, bytes;
            char name[NAME_BYTES];
            uint64_t cpus[LK_CPU_WORDS];
        };
    };
} offer;
_Static_assert(sizeof(offer) <= 256, "an exchange takes no more");

/* The blocks of all ranks as they are mapped here. */
typedef struct views {
    void **base;   /* (size) NULL: not mapped */
    size_t *bytes; /* (size) */
} views;

static lk_status fail_full(size_t bytes)
{
    char wanted[LK_TEXT_AMOUNT], left[LK_TEXT_AMOUNT];
    struct statvfs info;
    size_t room = 0;
    if (statvfs(SHM_FOLDER, &info) == 0)
        room = (size_t)info.f_bavail * (size_t)info.f_frsize;
    return lk__fail(LK_STATUS_MEMORY,
                    "shared memory needs %s in %s, which has %s left; enlarge it or use `backend` tcp",
                    lk__text_amount(bytes, wanted), SHM_FOLDER, lk__text_amount(room, left));
}

/* Bytes that the folder has left; SIZE_MAX: unknown, or no limit. f_blocks is 0 on a tmpfs without a limit. */
static size_t folder_room(void)
{
    struct statvfs info;
    size_t bytes;
    if (statvfs(SHM_FOLDER, &info) != 0 || info.f_blocks == 0 ||
        __builtin_mul_overflow((size_t)info.f_bavail, (size_t)info.f_frsize, &bytes))
        return SIZE_MAX;
    return bytes;
}

static lk_status reserve(int fd, size_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur)
        return lk__fail(LK_STATUS_MEMORY,
                        "shared memory needs %zu bytes, more than the limit on file sizes (%llu); "
                        "raise it (ulimit -f) or use `backend` tcp",
                        bytes, (unsigned long long)limit.rlim_cur);
    /* Checked before reserving: a reservation that fails would use all free memory for a moment. */
    if (bytes > folder_room())
        return fail_full(bytes);
    int error;
    do {
        error = posix_fallocate(fd, 0, (off_t)bytes);
    } while (error == EINTR);
    if (error == ENOSPC || error == ENOMEM || error == EFBIG)
        return fail_full(bytes);
    if (error != 0)
        return lk__fail(LK_STATUS_IO, "cannot reserve %zu bytes in %s: %s", bytes, SHM_FOLDER, strerror(error));
    return LK_OK;
}

static lk_status create_named(segment *out)
{
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return lk__fail(LK_STATUS_IO, "the system gives no random numbers: %s", strerror(errno));
    char name[NAME_BYTES];
    /* The process id is for people; the random part makes the name unguessable. */
    snprintf(name, sizeof name, "/lockstep-%ld-%016llx%016llx", (long)getpid(), (unsigned long long)random[0],
             (unsigned long long)random[1]);
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return lk__fail(LK_STATUS_IO, "cannot make shared memory in %s: %s; use `backend` tcp", SHM_FOLDER,
                        strerror(errno));
    out->fd = fd;
    memcpy(out->name, name, sizeof name);
    return LK_OK;
}

static void segment_fini(segment *seg)
{
    if (seg->name[0] != '\0')
        shm_unlink(seg->name);
    if (seg->fd >= 0)
        close(seg->fd);
    *seg = (segment){.fd = -1};
}

static lk_status segment_init(segment *seg, size_t bytes, bool named)
{
    *seg = (segment){.fd = named ? -1 : open(SHM_FOLDER, O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600)};
    if (seg->fd < 0)
        LK_TRY(create_named(seg));
    lk_status status = reserve(seg->fd, bytes);
    if (status != LK_OK)
        segment_fini(seg);
    return status;
}

static lk_status describe(const segment *seg, size_t bytes, offer *out)
{
    struct stat info;
    if (fstat(seg->fd, &info) != 0)
        return lk__fail(LK_STATUS_IO, "cannot look at shared memory: %s", strerror(errno));
    out->pid = (int32_t)getpid();
    out->fd = seg->fd;
    out->device = (uint64_t)info.st_dev;
    out->inode = (uint64_t)info.st_ino;
    out->bytes = bytes;
    memcpy(out->name, seg->name, sizeof out->name);
    lk__bell_cpus(out->cpus);
    return LK_OK;
}

static void write_failure(offer *out, lk_status status)
{
    memset(out, 0, sizeof *out);
    out->status = (int32_t)status;
    snprintf(out->text, sizeof out->text, "%s", lk_error_detail());
}

/* Opens the offered file and checks that it is the same one with all its bytes. -1: it cannot be opened here. */
static int open_offered(const offer *from)
{
    int fd;
    if (memchr(from->name, '\0', sizeof from->name) == NULL)
        return -1;
    if (from->name[0] != '\0') {
        fd = shm_open(from->name, O_RDWR | O_CLOEXEC, 0);
    } else {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)from->pid, (int)from->fd);
        fd = open(path, O_RDWR | O_CLOEXEC);
    }
    struct stat info;
    if (fd >= 0 && (fstat(fd, &info) != 0 || (uint64_t)info.st_dev != from->device ||
                    (uint64_t)info.st_ino != from->inode || (uint64_t)info.st_size < from->bytes)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void unmap_all(views *v, int size)
{
    for (int r = 0; r < size; r++) {
        if (v->base[r] != NULL)
            munmap(v->base[r], v->bytes[r]);
        v->base[r] = NULL;
    }
}

static lk_status map_one(int fd, int rank, size_t bytes, views *v)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return lk__fail(LK_STATUS_MEMORY, "cannot map %zu bytes of shared memory of rank %d: %s", bytes, rank,
                        strerror(errno));
    v->base[rank] = at;
    v->bytes[rank] = bytes;
    return LK_OK;
}

/* *missing becomes a rank whose segment cannot be opened here, or does not change. */
static lk_status map_all(const lk_boot *boot, const segment *own, const offer *all, views *v, int *missing)
{
    for (int r = 0; r < boot->size; r++) {
        if (r == boot->rank) {
            LK_TRY(map_one(own->fd, r, (size_t)all[r].bytes, v));
            continue;
        }
        int fd = open_offered(&all[r]);
        if (fd < 0) {
            *missing = r;
            continue;
        }
        lk_status status = map_one(fd, r, (size_t)all[r].bytes, v);
        close(fd);
        LK_TRY(status);
    }
    return LK_OK;
}

static lk_status exchange_offers(const lk_boot *boot, const offer *mine, offer *all)
{
    LK_TRY(boot->exchange(boot->arg, mine, sizeof *mine, all));
    for (int r = 0; r < boot->size; r++) {
        if (all[r].status == LK_OK)
            continue;
        all[r].text[TEXT_BYTES - 1] = '\0';
        bool known = all[r].status > 0 && all[r].status < LK_STATUS_COUNT;
        return lk__fail(known ? (lk_status)all[r].status : LK_STATUS_PEER, "rank %d: %s", r, all[r].text);
    }
    return LK_OK;
}

/* One attempt. *complete: every rank has mapped every segment. */
static lk_status share_once(const lk_boot *boot, size_t bytes, bool named, offer *all, views *v, bool *complete)
{
    segment own = {.fd = -1};
    /* All bytes are sent, including the padding, so they must be set. */
    offer mine;
    memset(&mine, 0, sizeof mine);
    int missing = -1;
    lk_status status = segment_init(&own, bytes, named);
    if (status == LK_OK)
        status = describe(&own, bytes, &mine);
    if (status != LK_OK)
        write_failure(&mine, status);
    LK_TRY_GOTO(exchange_offers(boot, &mine, all), fini_segment);
    status = map_all(boot, &own, all, v, &missing);
    offer verdict = {.status = LK_OK};
    verdict.fd = missing;
    if (status != LK_OK)
        write_failure(&verdict, status);
    offer *verdicts;
    LK_TRY_GOTO(LK_ALLOC((size_t)boot->size, "shared memory", &verdicts), unmap);
    LK_TRY_GOTO(exchange_offers(boot, &verdict, verdicts), free_verdicts);
    *complete = true;
    for (int r = 0; r < boot->size; r++) {
        if (verdicts[r].fd < 0)
            continue;
        *complete = false;
        status = lk__fail(LK_STATUS_IO, "rank %d cannot open the shared memory of rank %d; use `backend` tcp", r,
                          (int)verdicts[r].fd);
    }

free_verdicts:
    lk__mem_free(verdicts);
unmap:
    if (status != LK_OK)
        unmap_all(v, boot->size);
fini_segment:
    segment_fini(&own);
    return status;
}

/* Collective. Every rank makes a segment of its size and maps all. all (size) gets the offers of the ranks. */
static lk_status share(const lk_boot *boot, size_t bytes, offer *all, views *v)
{
    bool complete = true;
    lk_status status = share_once(boot, bytes, false, all, v, &complete);
    if (status != LK_OK && !complete)
        status = share_once(boot, bytes, true, all, v, &complete);
    return status;
}

static lk_status check_one_host(const lk_boot *boot)
{
    for (int r = 1; r < boot->size; r++)
        if (boot->members[r].host_key != boot->members[0].host_key)
            return lk__fail(LK_STATUS_USAGE,
                            "backend shm needs all ranks on one host, but rank 0 runs on %s and rank %d on %s; "
                            "use `backend` auto",
                            boot->members[0].host, r, boot->members[r].host);
    return LK_OK;
}

static void fill_crowded(lk_shared *s, const offer *all)
{
    uint64_t cpus[LK_CPU_WORDS] = {0};
    for (int r = 0; r < s->size; r++)
        for (size_t i = 0; i < LK_CPU_WORDS; i++)
            cpus[i] |= all[r].cpus[i];
    s->crowded = lk__bell_cpus_crowded(cpus, s->size);
}

/* Segments of another size than this rank's mean that the ranks run different versions. */
static lk_status check_sizes(const shm *t, const views *v)
{
    for (int r = 0; r < t->boot.size; r++)
        if (v->bytes[r] != t->segment_bytes)
            return lk__fail(LK_STATUS_MISMATCH, "rank %d lays out shared memory otherwise: it runs another version", r);
    return LK_OK;
}

static lk_status open_segments(shm *t)
{
    lk_shared *s = &t->shared;
    size_t size = (size_t)s->size;
    offer *all = NULL;
    views v = {.base = (void **)s->segment, .bytes = NULL};
    lk_status status;
    LK_TRY_GOTO(LK_ALLOC(size, "shared memory", &all), free_arrays);
    LK_TRY_GOTO(LK_ALLOC(size, "shared memory", &v.bytes), free_arrays);
    LK_TRY_GOTO(share(&t->boot, t->segment_bytes, all, &v), free_arrays);
    status = check_sizes(t, &v);
    if (status != LK_OK)
        unmap_all(&v, s->size);
    else
        fill_crowded(s, all);

free_arrays:
    lk__mem_free(v.bytes);
    lk__mem_free(all);
    return status;
}

static lk_status shm_open_transport(const lk_boot *boot, lk_transport **out)
{
    shm *t;
    LK_TRY(check_one_host(boot));
    LK_TRY(LK_ALLOC(1, "a transport", &t));
    lk_status status;
    LK_TRY_GOTO(lk__shared_init(&t->shared, boot, false), free_transport);
    t->boot = *boot;
    t->segment_bytes = lk__mem_whole_pages(t->shared.layout.bytes);
    LK_TRY_GOTO(open_segments(t), fini_shared);
    lk__shared_start(&t->shared);
    t->shared.base.type = &lk__transport_shm;
    *out = &t->shared.base;
    return LK_OK;

fini_shared:
    lk__shared_fini(&t->shared);
free_transport:
    lk__mem_free(t);
    return status;
}

static void region_destroy(lk_shared_region *region, int size)
{
    if (region == NULL)
        return;
    if (region->base != NULL)
        unmap_all(&(views){.base = region->base, .bytes = region->bytes}, size);
    lk__mem_free(region->bytes);
    lk__mem_free(region->base);
    lk__mem_free(region);
}

static void shm_close(lk_transport *transport)
{
    if (transport == NULL)
        return;
    shm *t = (shm *)transport;
    lk_shared *s = &t->shared;
    while (s->regions != NULL) {
        lk_shared_region *next = s->regions->next;
        region_destroy(s->regions, s->size);
        s->regions = next;
    }
    for (int r = 0; r < s->size; r++)
        munmap(s->segment[r], t->segment_bytes);
    lk__shared_fini(s);
    lk__mem_free(t);
}

static lk_status shm_alloc(lk_transport *transport, size_t bytes, void **out)
{
    shm *t = (shm *)transport;
    size_t size = (size_t)t->shared.size;
    offer *all = NULL;
    lk_shared_region *region;
    LK_TRY(LK_ALLOC(1, "shared memory", &region));
    lk_status status;
    LK_TRY_GOTO(LK_ALLOC(size, "shared memory", &region->base), destroy_region);
    LK_TRY_GOTO(LK_ALLOC(size, "shared memory", &region->bytes), destroy_region);
    LK_TRY_GOTO(LK_ALLOC(size, "shared memory", &all), destroy_region);
    LK_TRY_GOTO(share(&t->boot, lk__mem_whole_pages(bytes), all, &(views){region->base, region->bytes}),
                destroy_region);
    lk__mem_free(all);
    region->id = t->next_region++;
    region->next = t->shared.regions;
    t->shared.regions = region;
    *out = region->base[t->shared.rank];
    return LK_OK;

destroy_region:
    lk__mem_free(all);
    region_destroy(region, t->shared.size);
    return status;
}

static void shm_free(lk_transport *transport, void *block)
{
    lk_shared *s = (lk_shared *)transport;
    for (lk_shared_region **at = &s->regions; *at != NULL; at = &(*at)->next) {
        lk_shared_region *region = *at;
        if (region->base[s->rank] != block)
            continue;
        *at = region->next;
        region_destroy(region, s->size);
        return;
    }
}

static size_t shm_room(const lk_transport *transport)
{
    struct rlimit limit;
    size_t room = folder_room();
    (void)transport;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < room)
        return (size_t)limit.rlim_cur;
    return room;
}

const lk_transport_type lk__transport_shm = {
    .name = "shm",
    .summary = "processes of one host, over shared memory",
    .open = shm_open_transport,
    .close = shm_close,
    .alloc = shm_alloc,
    .free = shm_free,
    .room = shm_room,
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
