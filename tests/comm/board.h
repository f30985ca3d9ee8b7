/* board.h - ranks for tests of the transports over shared memory: threads for inproc,
 * processes for shm. They exchange addresses as in ranks.h. */
#ifndef LK_TESTS_COMM_BOARD_H
#define LK_TESTS_COMM_BOARD_H

#include <dirent.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "comm/ranks.h"
#include "comm/transport/shared.h"

/* Lives in memory that all ranks share. */
typedef struct board {
    meeting *shared;
    const lk_transport_type *type;
    rank_fn body;
    atomic_int exchanges; /* made by rank 0 */
    int hide;             /* this many first exchanges name a wrong process */
    bool kill_all;        /* every rank kills itself in the first exchange */
    atomic_int modes;     /* permission bits of all offered segments, or-ed */
} board;

/* A rank and the number of its exchanges. */
typedef struct board_rank {
    place at;
    board *board;
    int calls;
} board_rank;

/* Bytes 8 to 15 of an offer are the process id and the descriptor of a segment. Other exchanged
 * data names no file in /dev/shm. */
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

static inline lk_status board_exchange(void *arg, const void *mine, size_t bytes, void *all)
{
    board_rank *self = arg;
    unsigned char offer[EXCHANGE_BYTES];
    CHECK(bytes <= sizeof offer);
    if (self->board->kill_all)
        raise(SIGKILL);
    memcpy(offer, mine, bytes);
    note_mode(self->board, mine, bytes);
    if (self->calls++ < self->board->hide)
        memset(offer + 8, 0x7f, 8);
    if (self->at.rank == 0)
        atomic_fetch_add(&self->board->exchanges, 1);
    return meeting_exchange(&self->at, offer, bytes, all);
}

static inline void board_be_rank(int rank, void *arg)
{
    board *b = arg;
    board_rank self = {.at = {.shared = b->shared, .rank = rank}, .board = b};
    lk_boot boot = meeting_boot(&self.at, 60);
    boot.exchange = board_exchange;
    boot.check = meeting_check;
    boot.arg = &self;
    CHECK_OK(b->type->open(&boot, &self.at.t));
    b->body(&self.at, NULL);
    b->type->close(self.at.t);
}

/* Counts named segments of this process and of processes that have ended; other tests may run at
 * the same time. */
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
    board *b = process_share(sizeof *b);
    b->shared = meeting_create(size);
    return b;
}

static inline void board_destroy(board *b)
{
    meeting_destroy(b->shared);
    munmap(b, sizeof *b);
}

/* Runs body on every rank; the ranks of the bit mask `killed` must be ended by SIGKILL. */
static inline void run_board(board *b, const lk_transport_type *type, rank_fn body, unsigned killed)
{
    b->type = type;
    b->body = body;
    if (type == &lk__transport_inproc)
        threads_run(b->shared->size, board_be_rank, b);
    else
        assert_true(processes_run(b->shared->size, board_be_rank, b, killed));
    assert_int_equal(segments_left(), 0);
}

static inline void run(const lk_transport_type *type, int size, rank_fn body)
{
    board *b = board_create(size);
    run_board(b, type, body, 0);
    board_destroy(b);
}

static inline void run_both(int size, rank_fn body)
{
    run(&lk__transport_inproc, size, body);
    run(&lk__transport_shm, size, body);
}

static inline unsigned char board_byte(size_t i, uint32_t seed)
{
    return (unsigned char)((i * 2654435761u + seed * 40503u) >> 7);
}

static inline void fill(unsigned char *data, size_t bytes, uint32_t seed)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = board_byte(i, seed);
}

/* Sends a frame, waiting for room; returns the ticket. */
static inline uint64_t send_one(const place *at, const int *peers, int count, int number, const void *data,
                                size_t bytes)
{
    lk_frame frame = frame_of(number, bytes);
    uint64_t ticket = 0;
    for (;;) {
        CHECK_OK(at->t->type->send(at->t, peers, count, &frame, data, &ticket));
        if (ticket != 0)
            return ticket;
        at->t->type->wait(at->t, 1);
    }
}

/* Takes the next frame from peer and compares it with fill(). */
static inline void take(const place *at, int peer, int number, uint32_t seed, size_t bytes)
{
    const lk_frame *frame = await_frame(at->t, peer);
    const void *there = NULL;
    CHECK(frame->call.number == (uint32_t)number && frame->part == (uint32_t)number && frame->bytes == bytes);
    CHECK_OK(at->t->type->payload(at->t, peer, NULL, &there));
    CHECK(there != NULL);
    for (size_t i = 0; i < bytes; i++)
        CHECK(((const unsigned char *)there)[i] == board_byte(i, seed));
    at->t->type->release(at->t, peer);
}

/* A vector in group memory counts as sent when the last peer has released it; peers read it where
 * it is. */
static inline void lend(place *at, const void *arg)
{
    size_t bytes = 3000000;
    int me = at->rank;
    lk_transport *t = at->t;
    void *block;
    uint64_t ticket = 0;
    if (t->type->alloc != NULL)
        CHECK_OK(t->type->alloc(t, bytes * (size_t)(me + 1), &block));
    else
        CHECK((block = malloc(bytes)) != NULL);
    if (me == 0) {
        CHECK(t->type->max_frame(t, block, bytes) == SIZE_MAX);
        fill(block, bytes, 1);
        ticket = send_one(at, (int[]){1, 2}, 2, 0, block, bytes);
        CHECK(!t->type->sent(t, ticket));
    }
    together(at);
    if (me == 1)
        take(at, 0, 0, 1, bytes);
    together(at);
    CHECK(me != 0 || !t->type->sent(t, ticket));
    together(at);
    if (me == 2) {
        const void *there = await_payload(t, 0, NULL);
        memcpy(at->shared->note, &there, sizeof there);
        take(at, 0, 0, 1, bytes);
    }
    if (me == 0)
        await_sent(t, ticket);
    together(at);
    if (t->type->alloc == NULL) {
        CHECK(me != 0 || memcmp(at->shared->note, &block, sizeof block) == 0);
        free(block);
    } else if (me != 1) { /* close frees the block of rank 1 */
        t->type->free(t, block);
    }
}

#endif
