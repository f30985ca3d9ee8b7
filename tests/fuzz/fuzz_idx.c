/* fuzz_idx.c - libFuzzer target: folders of IDX files, plain and gzipped.
 *
 * The first byte chooses how the input becomes files. PLAIN: the next two bytes are the length of the images
 * file, the rest is the labels file; gzipped files must give the same data set. GZIP: the same bytes are the .gz
 * files. MEND: the target makes matching headers, so that samples are read; height, width and labels are in the
 * input. */
#include <stdint.h>

#include "read_all.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PLAIN, GZIP, MEND, OTHER_LABELS = 4, MOST = 1 << 16 };

typedef struct file {
    const uint8_t *bytes;
    size_t count;
} file;

static void put_all(const file *images, const file *labels, bool others, const char *ending,
                    const char *(*put)(const char *name, const void *bytes, size_t count))
{
    char name[64];
    scratch_clear();
    snprintf(name, sizeof name, "train-images-idx3-ubyte%s", ending);
    put(name, images->bytes, images->count);
    snprintf(name, sizeof name, "train-labels-idx1-ubyte%s", ending);
    put(name, labels->bytes, labels->count);
    /* The number of classes includes the labels of the other split. */
    snprintf(name, sizeof name, "t10k-labels.idx1-ubyte%s", ending);
    if (others)
        put(name, labels->bytes, labels->count);
}

/* The data set has the content of the plain files. */
static void check_content(const outcome *got, const file *images, const file *labels)
{
    size_t area = got->height * got->width;
    uint32_t sum = 0;
    if (got->status != LK_OK)
        return;
    require(labels->count == 8 + got->count && images->count == 16 + got->count * area);
    for (size_t i = 0; i < got->count && i < READ_SAMPLES; i++)
        sum = add_sample(sum, labels->bytes[8 + i], images->bytes + 16 + i * area, area);
    require(sum == got->sum);
}

static void read_both_ways(const file *images, const file *labels, bool others)
{
    put_all(images, labels, others, "", scratch_put);
    outcome plain = read_all(LK_SPLIT_TRAIN);
    if (looks_gzipped(images->bytes, images->count) || looks_gzipped(labels->bytes, labels->count))
        return;
    put_all(images, labels, others, ".gz", scratch_put_gzip);
    outcome gzipped = read_all(LK_SPLIT_TRAIN);
    check_same(&plain, &gzipped);
    check_content(&plain, images, labels);
}

/* After height and width follows a label for each image; the same bytes are its pixels. */
static void read_mended(const uint8_t *in, size_t size, bool others)
{
    static uint8_t images[16 + MOST], labels[8 + 256];
    uint8_t height = (uint8_t)(1 + in[0] % 15), width = (uint8_t)(1 + in[1] % 15);
    uint8_t count = (uint8_t)(size - 2 < 255 ? size - 2 : 255);
    const uint8_t head[16] = {0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, height, 0, 0, 0, width};
    size_t area = (size_t)height * width;
    memcpy(images, head, sizeof head);
    memcpy(labels, head, 8);
    labels[3] = 1;
    memcpy(labels + 8, in + 2, count);
    for (size_t i = 0; i < count * area; i++)
        images[16 + i] = (uint8_t)(in[i % size] + i);
    read_both_ways(&(file){images, 16 + count * area}, &(file){labels, 8u + count}, others);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4 || size > MOST)
        return 0;
    bool others = data[0] & OTHER_LABELS;
    size_t split = (size_t)data[1] | (size_t)data[2] << 8, rest = size - 3;
    split = split < rest ? split : rest;
    const file images = {data + 3, split}, labels = {data + 3 + split, rest - split};
    switch (data[0] % 3) {
    case PLAIN:
        read_both_ways(&images, &labels, others);
        break;
    case GZIP:
        put_all(&images, &labels, others, ".gz", scratch_put);
        read_all(LK_SPLIT_TRAIN);
        break;
    default:
        read_mended(data + 1, size - 1, others);
    }
    scratch_clear();
    return 0;
}
