/* fuzz_pth.c - lk_state_load on files of torch.save, for libFuzzer.
 *
 * The first byte chooses what the rest is: a whole file; what follows the
 * preamble of the older format; or the pickle of an archive that has two storages
 * of 16 and 64 bytes, with its checksums put right. What loads must survive:
 * saved as .pth and loaded again it is the same state. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <lockstep/state.h>

#include "../io/pth_bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WHOLE, LEGACY, ARCHIVE, KINDS, MOST = 1 << 13 };

static void put(int fd, const void *bytes, size_t count)
{
    if (write(fd, bytes, count) != (ssize_t)count)
        abort();
}

static void put_archive(int fd, const uint8_t *data, size_t size)
{
    static zip_build z;
    static const uint8_t storage[64] = {1, 2, 3, 4};
    z.file.size = z.directory.size = 0;
    z.members = 0;
    zip_add(&z, "a/data.pkl", data, size, size);
    zip_add(&z, "a/data/0", storage, 16, 16);
    zip_add(&z, "a/data/1", storage, 64, 64);
    zip_end(&z);
    put(fd, z.file.bytes, z.file.size);
}

static void put_file(int fd, const uint8_t *data, size_t size)
{
    int kind = data[0] % KINDS;
    if (kind == ARCHIVE) {
        put_archive(fd, data + 1, size - 1);
        return;
    }
    if (kind == LEGACY)
        put(fd, LEGACY_PREAMBLE, sizeof LEGACY_PREAMBLE - 1);
    put(fd, data + 1, size - 1);
}

static void check_round_trip(const lk_state *state)
{
    static char path[64];
    lk_state *back = NULL;
    /* Saving syncs, which memory does fastest. */
    if (!path[0])
        snprintf(path, sizeof path, "%s/lk-fuzz-%ld.pth", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp",
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
    if (size == 0 || size > MOST)
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
