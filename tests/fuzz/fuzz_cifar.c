/* fuzz_cifar.c - libFuzzer target: folders of CIFAR-10 and CIFAR-100 files, plain and gzipped.
 *
 * The first byte chooses the files and their content: the input itself, the input as gzipped files, or a record
 * for each few bytes of the input, which are its labels and the start of its pixels (records are long). */
#include <stdint.h>

#include "read_all.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PLAIN, GZIP, MEND, PIXELS = 3072, MOST_RECORDS = 12, MOST = 1 << 16 };

typedef struct layout {
    lk_split split;
    size_t label_bytes;
    const char *names[6]; /* NULL after the last */
} layout;

static const layout layouts[] = {
    {LK_SPLIT_TRAIN,
     1,
     {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"}},
    {LK_SPLIT_TEST, 1, {"test_batch.bin"}},
    {LK_SPLIT_TRAIN, 2, {"train.bin"}},
    {LK_SPLIT_TEST, 2, {"test.bin"}},
};

static size_t record_bytes(const layout *l)
{
    return l->label_bytes + PIXELS;
}

/* The files before the last have half of the content, in whole records if possible, so that the last records
 * are in another file. */
static size_t bytes_of(const layout *l, size_t file, size_t count)
{
    size_t half = count / 2 / record_bytes(l) * record_bytes(l);
    return l->names[file + 1] == NULL || half == 0 ? count : half;
}

static void put_all(const layout *l, const uint8_t *bytes, size_t count, const char *ending,
                    const char *(*put)(const char *name, const void *bytes, size_t count))
{
    scratch_clear();
    for (size_t i = 0; l->names[i] != NULL; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s%s", l->names[i], ending);
        put(name, bytes, bytes_of(l, i, count));
    }
}

/* The data set has the content of the plain files in their order. */
static void check_content(const outcome *got, const layout *l, const uint8_t *bytes, size_t count)
{
    size_t samples = 0, record = record_bytes(l);
    uint32_t sum = 0;
    for (size_t i = 0; l->names[i] != NULL && got->status == LK_OK; i++)
        for (size_t at = 0; at < bytes_of(l, i, count); at += record, samples++)
            sum = add_sample(sum, bytes[at + l->label_bytes - 1], bytes + at + l->label_bytes, PIXELS);
    require(samples == got->count && sum == got->sum);
}

static void read_both_ways(const layout *l, const uint8_t *bytes, size_t count)
{
    put_all(l, bytes, count, "", scratch_put);
    outcome plain = read_all(l->split);
    if (looks_gzipped(bytes, count))
        return;
    put_all(l, bytes, count, ".gz", scratch_put_gzip);
    outcome gzipped = read_all(l->split);
    check_same(&plain, &gzipped);
    check_content(&plain, l, bytes, count);
}

/* Makes a record of its labels and the first value of its pixels; remaining bytes follow the last record. */
static void read_mended(const layout *l, const uint8_t *in, size_t size)
{
    static uint8_t content[(MOST_RECORDS + 1) * (PIXELS + 2)];
    size_t used = 0, piece = l->label_bytes + 1;
    for (size_t i = 0; i < MOST_RECORDS && size >= piece; i++, in += piece, size -= piece) {
        memcpy(content + used, in, l->label_bytes);
        used += l->label_bytes;
        for (size_t k = 0; k < PIXELS; k++)
            content[used++] = (uint8_t)(in[l->label_bytes] + k);
    }
    size = size < PIXELS ? size : PIXELS;
    memcpy(content + used, in, size);
    /* Content that is gzip data is left to the other choices, where the input's size bounds it. */
    if (!looks_gzipped(content, used + size))
        read_both_ways(l, content, used + size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > MOST)
        return 0;
    const layout *l = &layouts[data[0] & 3];
    switch ((data[0] >> 2) % 3) {
    case PLAIN:
        read_both_ways(l, data + 1, size - 1);
        break;
    case GZIP:
        put_all(l, data + 1, size - 1, ".gz", scratch_put);
        read_all(l->split);
        break;
    default:
        read_mended(l, data + 1, size - 1);
    }
    scratch_clear();
    return 0;
}
