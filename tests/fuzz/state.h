/* state.h - shared by the fuzzers of state files: an input becomes a file in memory, and a state that loads from
 * it is saved and loaded again. The including file defines _GNU_SOURCE first. */
#ifndef LK_TESTS_FUZZ_STATE_H
#define LK_TESTS_FUZZ_STATE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <lockstep/state.h>

static inline void put(int fd, const void *bytes, size_t count)
{
    if (write(fd, bytes, count) != (ssize_t)count)
        abort();
}

static inline void check_round_trip(const lk_state *state, const char *ending)
{
    char path[64];
    lk_state *back = NULL;
    /* Saving syncs the file; this is fast in /dev/shm, which is memory. */
    snprintf(path, sizeof path, "%s/lk-fuzz-%ld%s", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (long)getpid(),
             ending);
    if (lk_state_save(state, path) != LK_OK || lk_state_load(path, &back) != LK_OK)
        abort();
    if (lk_state_compare(state, back, NULL, NULL) != 0 || lk_state_hash(state) != lk_state_hash(back))
        abort();
    lk_state_destroy(back);
    unlink(path);
}

/* put_file makes the file of the data (size > 0); the state is saved to a file with this ending. */
static inline void check_state(const uint8_t *data, size_t size, void (*put_file)(int, const uint8_t *, size_t),
                               const char *ending)
{
    int fd = memfd_create("fuzz", 0);
    if (fd < 0)
        abort();
    put_file(fd, data, size);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    lk_state *state = NULL;
    lk_status status = lk_state_load(path, &state);
    if ((status == LK_OK) != (state != NULL) || (status != LK_OK && status != LK_STATUS_FORMAT))
        abort();
    if (state)
        check_round_trip(state, ending);
    lk_state_destroy(state);
    close(fd);
}

#endif
