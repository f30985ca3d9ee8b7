/* fuzz_pth.c - libFuzzer target: lk_state_load on files of torch.save.
 *
 * The first byte chooses what the rest is: a whole file; the bytes after the preamble of the older format; or
 * the pickle of an archive with two storages of 16 and 64 bytes and right checksums. A state that loads, is
 * saved as .pth and is loaded again must be the same. */
#define _GNU_SOURCE
#include <stdint.h>

#include "../io/pth_bytes.h"
#include "state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WHOLE, LEGACY, ARCHIVE, KINDS, MOST = 1 << 13 };

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && size <= MOST)
        check_state(data, size, put_file, ".pth");
    return 0;
}
