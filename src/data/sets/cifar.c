/* cifar.c - the binary files of CIFAR-10 and CIFAR-100: records of a label byte (CIFAR-100: two,
 * the coarse class and the fine one, which is the label) and 3072 pixel bytes (red, green, blue
 * planes of 32 by 32). Files may have any number of whole records. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "data/sets/dataset.h"

enum { SIDE = 32, CHANNELS = 3, PIXELS = CHANNELS * SIDE * SIDE };

/* Bounds the content of a gzipped file. CIFAR-10 has 10,000 records in a file, CIFAR-100 50,000. */
enum { MAX_RECORDS = 1 << 20 };

typedef struct layout {
    size_t label_bytes; /* before the pixels; the last one is the label */
    size_t least_classes;
    const char *files[2][LK_DATASET_MAX_FILES + 1]; /* for each split, NULL after the last */
} layout;

static const layout cifar10 = {
    .label_bytes = 1,
    .least_classes = 10,
    .files = {[LK_SPLIT_TRAIN] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                                  "data_batch_5.bin"},
              [LK_SPLIT_TEST] = {"test_batch.bin"}},
};

static const layout cifar100 = {
    .label_bytes = 2,
    .least_classes = 100,
    .files = {[LK_SPLIT_TRAIN] = {"train.bin"}, [LK_SPLIT_TEST] = {"test.bin"}},
};

static size_t record_bytes(const layout *l)
{
    return l->label_bytes + PIXELS;
}

static lk_inventory probe(const layout *l, const char *folder, lk_split split)
{
    lk_inventory inventory = {0};
    for (const char *const *name = l->files[split]; *name; name++) {
        char path[LK_MAX_PATH];
        lk__inventory_add(&inventory, folder, *name, lk__dataset_find_file(folder, *name, path));
    }
    return inventory;
}

static lk_status check_records(const layout *l, const char *path, const uint8_t *content, size_t bytes, size_t classes)
{
    size_t record = record_bytes(l), label = l->label_bytes - 1;
    if (bytes == 0 || bytes % record != 0)
        return lk__fail(LK_STATUS_FORMAT, "%s: ends at byte %zu, which is not the end of a record (%zu bytes each)",
                        path, bytes, record);
    for (size_t i = 0; i < bytes / record; i++)
        if (content[i * record + label] >= classes)
            return lk__fail(LK_STATUS_FORMAT, "%s: label %d of record %zu (byte %zu) is out of range (0 to %zu)", path,
                            content[i * record + label], i, i * record + label, classes - 1);
    return LK_OK;
}

/* The pixels of a sample; its label is the byte before them. */
static const uint8_t *pixels_of(const lk_dataset *data, size_t index)
{
    const layout *l = data->own;
    size_t file = 0;
    while (index >= data->first[file + 1])
        file++;
    return data->contents[file] + (index - data->first[file]) * record_bytes(l) + l->label_bytes;
}

static int32_t label_of(const lk_dataset *data, size_t index)
{
    return pixels_of(data, index)[-1];
}

static lk_status get(const lk_dataset *data, size_t index, void *pixels, void *label)
{
    const uint8_t *from = pixels_of(data, index);
    *(int32_t *)label = from[-1];
    memcpy(pixels, from, PIXELS);
    return LK_OK;
}

static lk_status check_fetched(const lk_fetch_opts *opts, const uint8_t *content)
{
    return check_records(opts->format, opts->path, content, opts->bytes, opts->classes);
}

/* The size of a gzipped file's content is known after it is read, so it is read here; a plain file is read later. */
static lk_status open_file(lk_dataset *data, const layout *l, const char *path, size_t index, size_t *bytes)
{
    lk_file_outline file = {0};
    LK_TRY(lk__file_outline(path, &file));
    if (!file.gzip && file.bytes > 0 && file.bytes % record_bytes(l) == 0 &&
        file.bytes <= MAX_RECORDS * record_bytes(l)) {
        lk_fetch_opts fetch = {.path = path,
                               .size = file.bytes,
                               .bytes = file.bytes,
                               .check = check_fetched,
                               .format = l,
                               .classes = data->info.classes};
        *bytes = file.bytes;
        return lk__fetch_create(&fetch, &data->fetches[index]);
    }
    LK_TRY(lk__dataset_read_steady(path, file.bytes, MAX_RECORDS * record_bytes(l), &data->files[index], bytes));
    data->contents[index] = data->files[index];
    return check_records(l, path, data->files[index], *bytes, data->info.classes);
}

static lk_status ready(lk_dataset *data)
{
    for (size_t i = 0; i < LK_DATASET_MAX_FILES; i++)
        if (data->fetches[i] != NULL)
            LK_TRY(lk__fetch_wait(data->fetches[i], &data->contents[i]));
    return LK_OK;
}

static lk_status hash_files(const lk_dataset *data, uint64_t *hash)
{
    for (size_t i = 0; i < LK_DATASET_MAX_FILES && data->first[i] < data->info.count; i++) {
        size_t bytes = (data->first[i + 1] - data->first[i]) * record_bytes(data->own);
        uint64_t content = 0;
        if (data->fetches[i] != NULL)
            LK_TRY(lk__fetch_hash(data->fetches[i], &content));
        else
            content = lk__hash(data->files[i], bytes, 0);
        *hash = lk__hash(&content, sizeof content, *hash);
    }
    return LK_OK;
}

static lk_status open_layout(lk_dataset *data, const layout *l, const char *folder)
{
    static const lk_dataset_ops ops = {.get = get, .label = label_of, .hash_files = hash_files, .ready = ready};
    size_t files = 0;
    data->info.classes = lk__size_max(data->info.classes, l->least_classes);
    for (; l->files[data->split][files]; files++) {
        char path[LK_MAX_PATH];
        size_t bytes = 0;
        if (!lk__dataset_find_file(folder, l->files[data->split][files], path))
            return lk__fail(LK_STATUS_NOT_FOUND, "the CIFAR files of %s have gone", folder);
        LK_TRY(open_file(data, l, path, files, &bytes));
        data->first[files + 1] = data->first[files] + bytes / record_bytes(l);
    }
    data->info.count = data->first[files];
    data->info.channels = CHANNELS;
    data->info.height = data->info.width = SIDE;
    data->own = l;
    data->ops = &ops;
    return LK_OK;
}

static lk_inventory probe_cifar10(const char *folder, lk_split split)
{
    return probe(&cifar10, folder, split);
}

static lk_status open_cifar10(lk_dataset *data, const char *folder)
{
    return open_layout(data, &cifar10, folder);
}

const lk_dataset_format lk__dataset_format_cifar = {
    .expects = "data_batch_1.bin to data_batch_5.bin, test_batch.bin, each plain or .gz",
    .probe = probe_cifar10,
    .open = open_cifar10,
};

static lk_inventory probe_cifar100(const char *folder, lk_split split)
{
    return probe(&cifar100, folder, split);
}

static lk_status open_cifar100(lk_dataset *data, const char *folder)
{
    return open_layout(data, &cifar100, folder);
}

const lk_dataset_format lk__dataset_format_cifar100 = {
    .expects = "train.bin, test.bin, each plain or .gz",
    .probe = probe_cifar100,
    .open = open_cifar100,
};
