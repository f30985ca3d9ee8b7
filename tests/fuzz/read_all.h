/* read_all.h - opens the data set in a fuzzer's folder and reads all its samples. */
#ifndef LK_TESTS_FUZZ_READ_ALL_H
#define LK_TESTS_FUZZ_READ_ALL_H

#include <lockstep/data.h>

#include "scratch.h"

enum { READ_SAMPLES = 512 };

/* The result of opening and reading a data set. */
typedef struct outcome {
    lk_status status;
    size_t count, height, width, classes;
    uint32_t sum; /* checksum of labels and pixels */
} outcome;

/* A failure must be a damaged file, which the detail names. */
static inline void check_refusal(lk_status status)
{
    require(status == LK_STATUS_FORMAT || status == LK_STATUS_MISMATCH);
    require(strstr(lk_error_detail(), scratch_open()) != NULL);
}

static inline uint32_t add_sample(uint32_t sum, int32_t label, const uint8_t *pixels, size_t bytes)
{
    uLong labelled = crc32(sum, (const Bytef *)&label, sizeof label);
    return (uint32_t)crc32(labelled, pixels, (uInt)bytes);
}

static inline void read_samples(const lk_dataset *data, outcome *out)
{
    const lk_dataset_info *info = lk_dataset_get_info(data);
    size_t bytes = info->channels * info->height * info->width;
    uint8_t *pixels = malloc(bytes);
    require(pixels != NULL);
    for (size_t i = 0; i < info->count && i < READ_SAMPLES && out->status == LK_OK; i++) {
        int32_t label = -1;
        out->status = lk_dataset_get(data, i, pixels, &label);
        if (out->status != LK_OK)
            break;
        require(label >= 0 && (size_t)label < info->classes);
        out->sum = add_sample(out->sum, label, pixels, bytes);
    }
    free(pixels);
}

static inline outcome read_all(lk_split split)
{
    lk_dataset *data = NULL;
    outcome out = {.status = lk_dataset_open(scratch_open(), NULL, split, &data)};
    require((out.status == LK_OK) == (data != NULL));
    if (data != NULL) {
        const lk_dataset_info *info = lk_dataset_get_info(data);
        require(info->count > 0 && info->channels > 0 && info->height > 0 && info->width > 0);
        out.count = info->count;
        out.height = info->height;
        out.width = info->width;
        out.classes = info->classes;
        read_samples(data, &out);
    }
    if (out.status != LK_OK)
        check_refusal(out.status);
    lk_dataset_destroy(data);
    return out;
}

/* Plain and gzipped files of the same content give the same data set, or the same failure. */
static inline void check_same(const outcome *a, const outcome *b)
{
    require((a->status == LK_OK) == (b->status == LK_OK));
    if (a->status != LK_OK)
        return;
    require(a->count == b->count && a->height == b->height && a->width == b->width);
    require(a->classes == b->classes && a->sum == b->sum);
}

/* A plain file that begins like gzip data is inflated; its gzipped form is inflated once only. */
static inline bool looks_gzipped(const uint8_t *bytes, size_t count)
{
    return count >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

#endif
