/* fuzz_safetensors.c - lk_state_load on arbitrary bytes, for libFuzzer.
 *
 * What loads must also survive: saved and loaded again it is the same state.
 * The first byte chooses whether the input is a whole file or a header, whose
 * length is then put right, so that most runs get past it. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <lockstep/state.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put(int fd, const void *bytes, size_t count)
{
    if (write(fd, bytes, count) != (ssize_t)count)
        abort();
}

/* A header alone ends at the first newline; what follows is data. */
static void put_file(int fd, const uint8_t *data, size_t size)
{
    if (data[0] & 1) {
        const uint8_t *line = memchr(data, '\n', size);
        uint64_t length = line ? (size_t)(line - data - 1) : size - 1;
        put(fd, &length, sizeof length);
        put(fd, data + 1, (size_t)length);
        if (line)
            put(fd, line + 1, size - (size_t)length - 2);
    } else {
        put(fd, data + 1, size - 1);
    }
}

static void check_round_trip(const lk_state *state)
{
    static char path[64];
    lk_state *back = NULL;
    /* Saving syncs, which memory does fastest. */
    if (!path[0])
        snprintf(path, sizeof path, "%s/lk-fuzz-%ld", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp",
                 (long)getpid());
    if (lk_state_save(state, path) != LK_OK || lk_state_load(path, &back) != LK_OK)
        abort();
    if (lk_state_compare(state, back, NULL, NULL) != 0 || lk_state_hash(state) != lk_state_hash(back))
        abort();
    lk_state_destroy(back);
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
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
        check_round_trip(state);
    lk_state_destroy(state);
    close(fd);
    return 0;
}
