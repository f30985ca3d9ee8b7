/* fuzz_safetensors.c - lk_state_load on arbitrary bytes, for libFuzzer.
 *
 * What loads must also survive: saved and loaded again it is the same state.
 * The first byte chooses whether the input is a whole file or a header, whose
 * length is then put right, so that most runs get past it. */
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>

#include "state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0)
        check_state(data, size, put_file, "");
    return 0;
}
