/* idx.c - MNIST's IDX files, plain or gzipped.
 *
 * A file of images is magic 0x00000803, count, height, width (big-endian words), then one byte for
 * each pixel; a file of labels is 0x00000801, count, one byte each. The headers and all labels are
 * checked when the data set is opened; a thread reads the pixels. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "data/sets/dataset.h"

enum { IMAGES_MAGIC = 0x00000803, LABELS_MAGIC = 0x00000801, IMAGES_HEADER = 16, LABELS_HEADER = 8, MAX_SIDE = 4096 };

static const char *const prefixes[] = {[LK_SPLIT_TRAIN] = "train", [LK_SPLIT_TEST] = "t10k"};

/* kind is "images" or "labels", rank its number of dimensions. */
static bool find(const char *folder, lk_split split, const char *kind, int rank, char path[LK_MAX_PATH])
{
    static const char separators[] = {'-', '.'};
    for (size_t i = 0; i < sizeof separators; i++) {
        char name[LK_MAX_FILE_NAME];
        snprintf(name, sizeof name, "%s-%s%cidx%d-ubyte", prefixes[split], kind, separators[i], rank);
        if (lk__dataset_find_file(folder, name, path))
            return true;
    }
    return false;
}

static lk_inventory probe(const char *folder, lk_split split)
{
    static const struct {
        const char *kind;
        int rank;
    } files[] = {{"images", 3}, {"labels", 1}};
    lk_inventory inventory = {0};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[LK_MAX_PATH], name[LK_MAX_FILE_NAME];
        snprintf(name, sizeof name, "%s-%s-idx%d-ubyte", prefixes[split], files[i].kind, files[i].rank);
        lk__inventory_add(&inventory, folder, name, find(folder, split, files[i].kind, files[i].rank, path));
    }
    return inventory;
}

static uint32_t word(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static lk_status check_magic(const char *path, uint32_t got, uint32_t expected, const char *kind)
{
    if (got == expected)
        return LK_OK;
    return lk__fail(LK_STATUS_FORMAT, "%s: byte 0 begins 0x%08x, but IDX %s begin 0x%08x", path, got, kind, expected);
}

/* Reads the first bytes of the content only. */
static lk_status read_header(const char *path, const char *kind, uint8_t *header, unsigned bytes)
{
    /* Reports what zlib cannot: why a file cannot be opened, and that it is a pipe, which would
     * block. */
    lk_file_outline outline;
    LK_TRY(lk__file_outline(path, &outline));
    gzFile file = gzopen(path, "rb");
    if (file == NULL)
        return lk__fail_memory(bytes, path);
    int got = gzread(file, header, bytes), error = Z_OK;
    const char *why = gzerror(file, &error);
    lk_status status = LK_OK;
    if (got < 0 && error == Z_MEM_ERROR)
        status = lk__fail_memory(bytes, path);
    else if (got < 0 && error == Z_ERRNO)
        status = lk__fail(LK_STATUS_IO, "cannot read %s", why); /* `why` starts with the path */
    else if (got < 0)
        status = lk__fail(LK_STATUS_FORMAT, "%s: damaged gzip data (%s); download the file again", path, why);
    gzclose(file);
    LK_TRY(status);
    if (got != (int)bytes)
        return lk__fail(LK_STATUS_FORMAT, "%s: ends at byte %d, inside the %u-byte header of IDX %s", path, got, bytes,
                        kind);
    return LK_OK;
}

/* Compares the size in the header with the file's, before memory is allocated for it. */
static lk_status check_size(const char *path, const lk_file_outline *file, size_t bytes)
{
    if (file->gzip && bytes > file->most)
        return lk__fail(LK_STATUS_FORMAT,
                        "%s: bytes 4 to 15 call for %zu bytes of content, more than %zu gzipped bytes can hold", path,
                        bytes, file->bytes);
    if (!file->gzip && bytes != file->bytes)
        return lk__fail(LK_STATUS_FORMAT, "%s: is %zu bytes long, but its header at bytes 4 to 15 calls for %zu", path,
                        file->bytes, bytes);
    return LK_OK;
}

static lk_status open_images(lk_dataset *data, const char *path)
{
    uint8_t header[IMAGES_HEADER];
    LK_TRY(read_header(path, "images", header, sizeof header));
    LK_TRY(check_magic(path, word(header), IMAGES_MAGIC, "images"));
    size_t count = word(header + 4), height = word(header + 8), width = word(header + 12);
    if (count == 0)
        return lk__fail(LK_STATUS_FORMAT, "%s: byte 4 says that it holds no images", path);
    if (height == 0 || width == 0 || height > MAX_SIDE || width > MAX_SIDE)
        return lk__fail(LK_STATUS_FORMAT, "%s: bytes 8 to 15 give images of %zu by %zu pixels (each side 1 to %d)",
                        path, height, width, MAX_SIDE);
    size_t bytes;
    if (__builtin_mul_overflow(count, height * width, &bytes) || bytes > SIZE_MAX - IMAGES_HEADER)
        return lk__fail(LK_STATUS_FORMAT, "%s: bytes 4 to 15 call for more than can be addressed", path);
    bytes += IMAGES_HEADER;
    lk_file_outline file = {0};
    LK_TRY(lk__file_outline(path, &file));
    LK_TRY(check_size(path, &file, bytes));
    data->info.count = count;
    data->info.channels = 1;
    data->info.height = height;
    data->info.width = width;
    lk_fetch_opts fetch = {.path = path, .size = file.bytes, .bytes = bytes, .header_bytes = sizeof header};
    static_assert(sizeof fetch.header == sizeof header, "what is read is compared with the header");
    memcpy(fetch.header, header, sizeof header);
    LK_TRY(lk__fetch_create(&fetch, &data->fetches[0]));
    /* The gzip trailer differs: the file is truncated, wrong, or has several members. The content
     * decides, and this call returns its error. */
    const uint8_t *content;
    return file.gzip && file.tail != (uint32_t)bytes ? lk__fetch_wait(data->fetches[0], &content) : LK_OK;
}

static lk_status check_labels(const char *path, const uint8_t *content, size_t bytes)
{
    if (bytes < LABELS_HEADER)
        return lk__fail(LK_STATUS_FORMAT, "%s: ends at byte %zu, inside the %d-byte header of IDX labels", path, bytes,
                        LABELS_HEADER);
    LK_TRY(check_magic(path, word(content), LABELS_MAGIC, "labels"));
    size_t count = word(content + 4);
    if (bytes - LABELS_HEADER != count)
        return lk__fail(LK_STATUS_FORMAT, "%s: byte 4 says %zu labels, but %zu bytes follow the header", path, count,
                        bytes - LABELS_HEADER);
    return LK_OK;
}

/* The largest label, with its index. */
static uint8_t largest(const uint8_t *labels, size_t count, size_t *index)
{
    *index = 0;
    for (size_t i = 1; i < count; i++)
        if (labels[i] > labels[*index])
            *index = i;
    return labels[*index];
}

/* Raises the number of classes to cover the labels; it is fixed for a known data set. */
static lk_status count_classes(lk_dataset *data, const char *path, const uint8_t *content, size_t bytes)
{
    if (bytes == LABELS_HEADER)
        return LK_OK;
    size_t index;
    size_t label = largest(content + LABELS_HEADER, bytes - LABELS_HEADER, &index);
    if (label < data->info.classes)
        return LK_OK;
    if (data->known)
        return lk__fail(LK_STATUS_FORMAT,
                        "%s: label %zu of sample %zu (byte %zu) is out of range; %s has labels 0 to %zu", path, label,
                        index, index + LABELS_HEADER, data->info.name, data->info.classes - 1);
    data->info.classes = label + 1;
    return LK_OK;
}

static lk_status open_labels(lk_dataset *data, const char *path, const char *images)
{
    size_t bytes = 0;
    LK_TRY(lk__file_read(path, LABELS_HEADER + data->info.count + 1, &data->files[0], &bytes));
    LK_TRY(check_labels(path, data->files[0], bytes));
    size_t count = bytes - LABELS_HEADER;
    if (count != data->info.count)
        return lk__fail(LK_STATUS_MISMATCH, "%s holds %zu labels, but %s holds %zu images", path, count, images,
                        data->info.count);
    return count_classes(data, path, data->files[0], bytes);
}

/* Both splits of a user's folder must have the same number of classes, so the other split's labels
 * count too, if they exist. */
static lk_status count_other_classes(lk_dataset *data, const char *folder)
{
    char path[LK_MAX_PATH];
    lk_split other = data->split == LK_SPLIT_TRAIN ? LK_SPLIT_TEST : LK_SPLIT_TRAIN;
    if (data->known || !find(folder, other, "labels", 1, path))
        return LK_OK;
    uint8_t header[LABELS_HEADER], *content = NULL;
    size_t bytes = 0;
    lk_status status = LK_OK;
    LK_TRY(read_header(path, "labels", header, sizeof header));
    LK_TRY(lk__file_read(path, LABELS_HEADER + (size_t)word(header + 4) + 1, &content, &bytes));
    LK_TRY_GOTO(check_labels(path, content, bytes), free_content);
    status = count_classes(data, path, content, bytes);
free_content:
    lk__mem_free(content);
    return status;
}

static int32_t label_of(const lk_dataset *data, size_t index)
{
    return data->files[0][LABELS_HEADER + index];
}

static lk_status get(const lk_dataset *data, size_t index, void *pixels, void *label)
{
    const uint8_t *images = NULL;
    LK_TRY(lk__fetch_wait(data->fetches[0], &images));
    size_t bytes = data->info.height * data->info.width;
    memcpy(pixels, images + IMAGES_HEADER + index * bytes, bytes);
    *(int32_t *)label = label_of(data, index);
    return LK_OK;
}

static lk_status hash_files(const lk_dataset *data, uint64_t *hash)
{
    uint64_t images = 0;
    LK_TRY(lk__fetch_hash(data->fetches[0], &images));
    *hash = lk__hash(&images, sizeof images, *hash);
    *hash = lk__hash(data->files[0] + LABELS_HEADER, data->info.count, *hash);
    return LK_OK;
}

static lk_status open_idx(lk_dataset *data, const char *folder)
{
    static const lk_dataset_ops ops = {.get = get, .label = label_of, .hash_files = hash_files};
    char images[LK_MAX_PATH], labels[LK_MAX_PATH];
    if (!find(folder, data->split, "images", 3, images) || !find(folder, data->split, "labels", 1, labels))
        return lk__fail(LK_STATUS_NOT_FOUND, "the IDX files of %s have gone", folder);
    LK_TRY(open_images(data, images));
    LK_TRY(open_labels(data, labels, images));
    LK_TRY(count_other_classes(data, folder));
    data->ops = &ops;
    return LK_OK;
}

const lk_dataset_format lk__dataset_format_idx = {
    .expects = "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, "
               "each plain or .gz",
    .probe = probe,
    .open = open_idx,
};
