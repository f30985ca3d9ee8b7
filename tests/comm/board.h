/* board.h - ranks for tests of the transports over shared memory: threads over
 * inproc, processes over shm, with a board in memory for their exchange. */
#ifndef LK_TESTS_COMM_BOARD_H
#define LK_TESTS_COMM_BOARD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/transport/shared.h"

#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS 0x20
#endif

enum { MAX_SIZE = 8, BOARD_BYTES = 256, SMALL = 4096 };

/* cmocka's asserts belong to the main thread: ranks count their faults here. */
typedef struct board {
    pthread_barrier_t barrier;
    unsigned char data[MAX_SIZE][BOARD_BYTES];
    atomic_int faults;
    atomic_int exchanges; /* of rank 0 */
    int hide;             /* the first so many exchanges tell a wrong process */
    bool kill_all;        /* in the first exchange */
    atomic_int modes;     /* rights of all segments that were offered, or-ed */
} board;

typedef struct rank {
    board *board;
    lk_boot boot;
    const lk_transport_type *type;
    lk_transport *t;
    int calls;
    int (*body)(struct rank *self);
} rank;

#define CHECK(self, condition)                                                                             \
    do {                                                                                                   \
        if (!(condition)) {                                                                                \
            fprintf(stderr, "%s:%d: rank %d of %d (%s): %s [%s]\n", __FILE__, __LINE__, (self)->boot.rank, \
                    (self)->boot.size, (self)->type->name, #condition, lk_error_detail());                 \
            return 1;                                                                                      \
        }                                                                                                  \
    } while (0)

/* Bytes 8 to 15 of an offer are the process and its descriptor; what else is
 * exchanged names no file of /dev/shm. */
static inline void note_mode(board *b, const void *offer, size_t bytes)
{
    int fd;
    struct stat info, folder;
    if (bytes < 16 || stat("/dev/shm", &folder) != 0)
        return;
    memcpy(&fd, (const char *)offer + 12, sizeof fd);
    if (fstat(fd, &info) == 0 && info.st_dev == folder.st_dev)
        atomic_fetch_or(&b->modes, (int)(info.st_mode & 07777));
}

static inline lk_status exchange(void *arg, const void *mine, size_t bytes, void *all)
{
    rank *self = arg;
    board *b = self->board;
    if (bytes > BOARD_BYTES)
        return LK_STATUS_USAGE;
    if (b->kill_all)
        raise(SIGKILL);
    unsigned char *place = b->data[self->boot.rank];
    memcpy(place, mine, bytes);
    note_mode(b, mine, bytes);
    if (self->calls < b->hide)
        memset(place + 8, 0x7f, 8);
    self->calls++;
    if (self->boot.rank == 0)
        atomic_fetch_add(&b->exchanges, 1);
    pthread_barrier_wait(&b->barrier);
    for (int r = 0; r < self->boot.size; r++)
        memcpy((unsigned char *)all + (size_t)r * bytes, b->data[r], bytes);
    pthread_barrier_wait(&b->barrier);
    return LK_OK;
}

static inline lk_status check(void *arg)
{
    (void)arg;
    return LK_OK;
}

static inline void meet(rank *self)
{
    pthread_barrier_wait(&self->board->barrier);
}

static inline int rank_main(rank *self)
{
    CHECK(self, self->type->open(&self->boot, &self->t) == LK_OK);
    int faults = self->body(self);
    self->type->close(self->t);
    return faults;
}

static inline void *thread_main(void *arg)
{
    rank *self = arg;
    if (rank_main(self) != 0)
        atomic_fetch_add(&self->board->faults, 1);
    return NULL;
}

static inline void run_threads(rank *ranks, int size)
{
    pthread_t threads[MAX_SIZE];
    for (int r = 0; r < size; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, thread_main, &ranks[r]), 0);
    for (int r = 0; r < size; r++)
        pthread_join(threads[r], NULL);
}

/* Returns how many were killed. */
static inline int run_processes(rank *ranks, int size)
{
    pid_t pids[MAX_SIZE];
    int killed = 0;
    for (int r = 0; r < size; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0)
            _exit(rank_main(&ranks[r]) != 0);
    }
    for (int r = 0; r < size; r++) {
        int status;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
            killed++;
        else if (status != 0)
            atomic_fetch_add(&ranks[r].board->faults, 1);
    }
    return killed;
}

/* Named segments of this process and of processes that are gone: other tests may
 * run at the same time. */
static inline int segments_left(void)
{
    DIR *folder = opendir("/dev/shm");
    assert_non_null(folder);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (strncmp(entry->d_name, "lockstep-", 9) == 0) {
            pid_t owner = (pid_t)strtol(entry->d_name + 9, NULL, 10);
            count += owner == getpid() || kill(owner, 0) != 0;
        }
    closedir(folder);
    return count;
}

static inline board *board_create(int size)
{
    board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(b != MAP_FAILED);
    pthread_barrierattr_t attr;
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    assert_int_equal(pthread_barrier_init(&b->barrier, &attr, (unsigned)size), 0);
    pthread_barrierattr_destroy(&attr);
    return b;
}

/* Runs body at every rank; returns how many were killed. */
static inline int run_board(board *b, const lk_transport_type *type, int size, int (*body)(rank *))
{
    static lk_member members[MAX_SIZE];
    rank ranks[MAX_SIZE];
    for (int r = 0; r < size; r++) {
        ranks[r] = (rank){.board = b, .type = type, .body = body};
        ranks[r].boot = (lk_boot){.rank = r, .size = size, .members = members, .timeout = 60};
        ranks[r].boot.exchange = exchange;
        ranks[r].boot.check = check;
        ranks[r].boot.arg = &ranks[r];
    }
    int killed = 0;
    if (type == &lk__transport_inproc)
        run_threads(ranks, size);
    else
        killed = run_processes(ranks, size);
    assert_int_equal(atomic_load(&b->faults), 0);
    assert_int_equal(segments_left(), 0);
    return killed;
}

static inline void run(const lk_transport_type *type, int size, int (*body)(rank *))
{
    board *b = board_create(size);
    assert_int_equal(run_board(b, type, size, body), 0);
    munmap(b, sizeof *b);
}

static inline void run_both(int size, int (*body)(rank *))
{
    run(&lk__transport_inproc, size, body);
    run(&lk__transport_shm, size, body);
}

static inline void fill(unsigned char *data, size_t bytes, uint32_t seed)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)((i * 2654435761u + seed * 40503u) >> 7);
}

static inline bool filled(const unsigned char *data, size_t bytes, uint32_t seed)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != (unsigned char)((i * 2654435761u + seed * 40503u) >> 7))
            return false;
    return true;
}

static inline lk_frame frame_of(uint32_t number, size_t bytes)
{
    return (lk_frame){.call = {.number = number, .kind = LK_CALL_MESSAGE, .root = -1}, .part = number, .bytes = bytes};
}

/* Sends, waiting for room. */
static inline int send_one(rank *self, const int *peers, int count, uint32_t number, const void *data, size_t bytes,
                           uint64_t *ticket)
{
    lk_frame frame = frame_of(number, bytes);
    for (;;) {
        CHECK(self, self->type->send(self->t, peers, count, &frame, data, ticket) == LK_OK);
        if (*ticket != 0)
            return 0;
        self->type->wait(self->t, 1);
    }
}

static inline const lk_frame *await(rank *self, int peer)
{
    const lk_frame *frame;
    while ((frame = self->type->arrived(self->t, peer)) == NULL)
        if (self->type->progress(self->t) != LK_OK)
            return NULL;
        else
            self->type->wait(self->t, 1);
    return frame;
}

/* Takes the next frame from peer, which fill() made. */
static inline int take(rank *self, int peer, uint32_t number, uint32_t seed, size_t bytes)
{
    const lk_frame *frame = await(self, peer);
    CHECK(self, frame != NULL);
    CHECK(self, frame->call.number == number && frame->part == number && frame->bytes == bytes);
    const void *at = NULL;
    CHECK(self, self->type->payload(self->t, peer, NULL, &at) == LK_OK);
    CHECK(self, at != NULL && filled(at, bytes, seed));
    self->type->release(self->t, peer);
    return 0;
}

static inline void wait_sent(rank *self, uint64_t ticket)
{
    while (!self->type->sent(self->t, ticket))
        self->type->wait(self->t, 1);
}

/* Lent data are sent when the last peer has let go of them, and are read in
 * place. */
static inline int lend(rank *self)
{
    size_t bytes = 3000000;
    int peers[] = {1, 2}, me = self->boot.rank;
    void *block;
    uint64_t ticket = 0;
    if (self->type->alloc != NULL)
        CHECK(self, self->type->alloc(self->t, bytes * (size_t)(me + 1), &block) == LK_OK);
    else
        CHECK(self, (block = malloc(bytes)) != NULL);
    unsigned char *data = block;
    if (me == 0) {
        CHECK(self, self->type->max_frame(self->t, data, bytes) == SIZE_MAX);
        fill(data, bytes, 1);
        if (send_one(self, peers, 2, 0, data, bytes, &ticket) != 0)
            return 1;
        CHECK(self, !self->type->sent(self->t, ticket));
    }
    meet(self);
    if (me == 1 && take(self, 0, 0, 1, bytes) != 0)
        return 1;
    meet(self);
    if (me == 0)
        CHECK(self, !self->type->sent(self->t, ticket));
    meet(self);
    if (me == 2) {
        const void *at;
        CHECK(self, await(self, 0) != NULL && self->type->payload(self->t, 0, NULL, &at) == LK_OK);
        memcpy(self->board->data[0], &at, sizeof at);
        if (take(self, 0, 0, 1, bytes) != 0)
            return 1;
    }
    if (me == 0) {
        wait_sent(self, ticket);
        CHECK(self, self->type->sent(self->t, ticket));
    }
    meet(self);
    if (self->type->alloc == NULL) {
        CHECK(self, me != 0 || memcmp(self->board->data[0], &block, sizeof block) == 0);
        free(block);
    } else if (me != 1) { /* what is left is freed by close */
        self->type->free(self->t, block);
    }
    return 0;
}

#endif
