/* fuzz_safetensors.c - libFuzzer target: lk_state_load on arbitrary bytes.
 *
 * The first byte chooses whether the input is a whole file or a header that gets its right length, so that most
 * inputs get past the length. A state that loads, is saved and is loaded again must be the same. */
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>

#include "state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A header ends at the first newline; data follow. */
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
