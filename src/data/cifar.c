/* cifar.c - CIFAR-10's binary files: records of one label byte and 3072 pixel
 * bytes (red, green, blue planes of 32 by 32). Five files make the training
 * split, one the test split; files may hold any number of whole records. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/dataset.h"

enum { SIDE = 32, CHANNELS = 3, PIXELS = CHANNELS * SIDE * SIDE, RECORD = 1 + PIXELS, TRAIN_FILES = 5 };

/* Bounds what a gzipped file may swell to; CIFAR-10 has 10,000 a file. */
enum { MAX_RECORDS = 1 << 20 };

static size_t file_count(lk_split split)
{
    return split == LK_SPLIT_TRAIN ? TRAIN_FILES : 1;
}

static void file_name(lk_split split, size_t index, char name[LK_MAX_FILE_NAME])
{
    if (split == LK_SPLIT_TRAIN)
        snprintf(name, LK_MAX_FILE_NAME, "data_batch_%d.bin", (int)index + 1);
    else
        snprintf(name, LK_MAX_FILE_NAME, "test_batch.bin");
}

static lk_inventory probe(const char *folder, lk_split split)
{
    lk_inventory inventory = {0};
    for (size_t i = 0; i < file_count(split); i++) {
        char path[LK_MAX_PATH], name[LK_MAX_FILE_NAME];
        file_name(split, i, name);
        lk__inventory_add(&inventory, folder, name, lk__find_file(folder, name, path));
    }
    return inventory;
}

static lk_status check_records(const char *path, const uint8_t *content, size_t bytes, size_t classes)
{
    if (bytes == 0 || bytes % RECORD != 0)
        return lk__fail(LK_STATUS_FORMAT, "%s: ends at byte %zu, which is not the end of a record (%d bytes each)",
                        path, bytes, RECORD);
    for (size_t i = 0; i < bytes / RECORD; i++)
        if (content[i * RECORD] >= classes)
            return lk__fail(LK_STATUS_FORMAT, "%s: label %d of record %zu (byte %zu) is out of range (0 to %zu)", path,
                            content[i * RECORD], i, i * RECORD, classes - 1);
    return LK_OK;
}

static const uint8_t *record_of(const lk_dataset *data, size_t index)
{
    size_t file = 0;
    while (index >= data->first[file + 1])
        file++;
    return data->files[file] + (index - data->first[file]) * RECORD;
}

static int32_t label_of(const lk_dataset *data, size_t index)
{
    return record_of(data, index)[0];
}

static lk_status get(const lk_dataset *data, size_t index, uint8_t *pixels, int32_t *label)
{
    const uint8_t *record = record_of(data, index);
    *label = record[0];
    memcpy(pixels, record + 1, PIXELS);
    return LK_OK;
}

static lk_status open_cifar(lk_dataset *data, const char *folder)
{
    static const lk_dataset_ops ops = {.get = get, .label = label_of};
    size_t files = file_count(data->split);
    for (size_t i = 0; i < files; i++) {
        char path[LK_MAX_PATH], name[LK_MAX_FILE_NAME];
        file_name(data->split, i, name);
        if (!lk__find_file(folder, name, path))
            return lk__fail(LK_STATUS_NOT_FOUND, "the CIFAR files of %s have gone", folder);
        size_t bytes = 0;
        LK_TRY(lk__file_read(path, (size_t)MAX_RECORDS * RECORD, &data->files[i], &bytes));
        LK_TRY(check_records(path, data->files[i], bytes, data->info.classes));
        data->first[i + 1] = data->first[i] + bytes / RECORD;
    }
    data->info.count = data->first[files];
    data->info.channels = CHANNELS;
    data->info.height = data->info.width = SIDE;
    data->ops = &ops;
    return LK_OK;
}

const lk_dataset_format lk__cifar_format = {
    .expects = "data_batch_1.bin to data_batch_5.bin, test_batch.bin, each plain or .gz",
    .probe = probe,
    .open = open_cifar,
};
