/* fuzz_tar.c - libFuzzer target: lk__archive_read on arbitrary bytes.
 *
 * The first byte chooses whether the input is the .tar.gz or the tar in it, and whether the headers of a tar get
 * right checksums and magic. Every member must arrive whole and once. */
#include <stdint.h>

#include "data/download/archive.h"
#include "scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BLOCK = 512, SIZE = 124, SUM = 148, MAGIC = 257, MEMBERS = 2, MOST = 1 << 16 };
enum { TAR = 1, MEND_SUM = 2, MEND_MAGIC = 4 };

static const lk_archive_member members[MEMBERS] = {{"set/none.bin", 0}, {"set/two.bin", 700}};

typedef struct taken {
    size_t open; /* member that is being written; MEMBERS: none */
    size_t bytes;
    bool whole[MEMBERS];
} taken;

static lk_status begin(void *arg, size_t member)
{
    taken *t = arg;
    require(member < MEMBERS && t->open == MEMBERS && !t->whole[member]);
    t->open = member;
    t->bytes = 0;
    return LK_OK;
}

static lk_status take(void *arg, const uint8_t *data, size_t bytes)
{
    taken *t = arg;
    uint8_t copy[1024];
    require(t->open < MEMBERS && bytes > 0 && bytes <= members[t->open].bytes - t->bytes);
    memcpy(copy, data, bytes);
    t->bytes += bytes;
    return LK_OK;
}

static lk_status end(void *arg, size_t member)
{
    taken *t = arg;
    require(member == t->open && t->bytes == members[member].bytes);
    t->whole[member] = true;
    t->open = MEMBERS;
    return LK_OK;
}

/* Offset of the next header: after the data of this one. */
static size_t next(const uint8_t *block)
{
    size_t bytes = 0;
    for (int i = 0; i < 11 && block[SIZE + i] >= '0' && block[SIZE + i] <= '7'; i++)
        bytes = bytes * 8 + (size_t)(block[SIZE + i] - '0');
    return BLOCK + (bytes + BLOCK - 1) / BLOCK * BLOCK;
}

static void mend(uint8_t *tar, size_t count, bool magic)
{
    for (size_t at = 0, step; count - at >= BLOCK; at += step) {
        uint8_t *block = tar + at;
        char text[8];
        unsigned sum = 0;
        step = next(block);
        if (magic)
            memcpy(block + MAGIC, "ustar", 6);
        memset(block + SUM, ' ', sizeof text);
        for (size_t i = 0; i < BLOCK; i++)
            sum += block[i];
        snprintf(text, sizeof text, "%06o", sum);
        memcpy(block + SUM, text, sizeof text - 1);
        if (step > count - at)
            return;
    }
}

static void read_archive(const char *path)
{
    taken t = {.open = MEMBERS};
    const lk_archive_sink sink = {.arg = &t, .begin = begin, .write = take, .end = end};
    lk_status status = lk__archive_read(path, members, MEMBERS, &sink);
    require(status == LK_OK || status == LK_STATUS_FORMAT);
    if (status != LK_OK)
        require(strstr(lk_error_detail(), path) != NULL);
    for (size_t i = 0; i < MEMBERS && status == LK_OK; i++)
        require(t.whole[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t tar[MOST];
    if (size < 1 || size > MOST)
        return 0;
    size_t count = size - 1;
    memcpy(tar, data + 1, count);
    if (data[0] & MEND_SUM)
        mend(tar, count, data[0] & MEND_MAGIC);
    read_archive(data[0] & TAR ? scratch_put_gzip("set.tar.gz", tar, count) : scratch_put("set.tar.gz", tar, count));
    scratch_clear();
    return 0;
}
