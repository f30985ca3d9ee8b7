/* contents.c - hashes of samples, and of image files for data sets with one file for each image. A resumed run
 * uses them to check that the data are unchanged, ranks that their data are equal. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "data/sets/dataset.h"

enum { CHUNK = 256 * 1024, SAMPLED_FILES = 1024, HASHED_LABELS = 256 };
/* For the comparison of ranks: the number of files; the most bytes of a file that is read whole;
 * else the bytes read at each end. */
enum { COMPARED_FILES = 64, WHOLE_BYTES = 1 << 20, END_BYTES = 64 * 1024 };

uint64_t lk__dataset_contents_limit = (uint64_t)1 << 30;

/* From stat of all files. Times are in whole seconds, because some copies keep no more. */
typedef struct survey {
    uint64_t bytes, sizes, times;
} survey;

/* The status is IO, because another command line would not help. */
static lk_status fail_gone(const char *path, int error)
{
    return lk__fail(LK_STATUS_IO, "%s: %s; it was there when the folder was listed", path, strerror(error));
}

static lk_status survey_files(const lk_dataset *data, survey *out)
{
    survey s = {0};
    for (size_t i = 0; i < data->info.count; i++) {
        char path[LK_MAX_PATH];
        struct stat info;
        data->ops->path(data, i, path, sizeof path);
        if (stat(path, &info) != 0)
            return fail_gone(path, errno);
        const uint64_t size = (uint64_t)info.st_size;
        const int64_t seconds = (int64_t)info.st_mtime;
        s.bytes += size;
        s.sizes = lk__hash(&size, sizeof size, s.sizes);
        s.times = lk__hash(&seconds, sizeof seconds, s.times);
    }
    *out = s;
    return LK_OK;
}

/* An open image file. */
typedef struct image_file {
    const char *path;
    int fd;
    size_t bytes;
} image_file;

/* Hashes bytes from `at` to `end`, or to the end of the file if it comes first. */
static lk_status hash_range(const image_file *file, size_t at, size_t end, uint8_t *chunk, uint64_t *hash)
{
    while (at < end) {
        ssize_t got = lk__fd_read_at(file->fd, chunk, lk__size_min(CHUNK, end - at), (off_t)at);
        if (got < 0)
            return lk__fail(LK_STATUS_IO, "cannot read %s: %s", file->path, strerror(errno));
        if (got == 0)
            return LK_OK;
        *hash = lk__hash(chunk, (size_t)got, *hash);
        at += (size_t)got;
    }
    return LK_OK;
}

static lk_status hash_whole(const image_file *file, uint8_t *chunk, uint64_t *hash)
{
    return hash_range(file, 0, SIZE_MAX, chunk, hash);
}

static lk_status hash_ends(const image_file *file, uint8_t *chunk, uint64_t *hash)
{
    const uint64_t size = file->bytes;
    size_t ends = file->bytes <= WHOLE_BYTES ? file->bytes : END_BYTES;
    *hash = lk__hash(&size, sizeof size, *hash);
    LK_TRY(hash_range(file, 0, ends, chunk, hash));
    return ends == file->bytes ? LK_OK : hash_range(file, file->bytes - ends, file->bytes, chunk, hash);
}

typedef lk_status (*hash_fn)(const image_file *file, uint8_t *chunk, uint64_t *hash);

static lk_status hash_file(const lk_dataset *data, size_t index, hash_fn fn, uint8_t *chunk, uint64_t *hash)
{
    char path[LK_MAX_PATH];
    image_file file = {.path = path};
    data->ops->path(data, index, path, sizeof path);
    lk_status status = lk__file_open(path, &file.fd, &file.bytes);
    if (status == LK_STATUS_NOT_FOUND)
        return fail_gone(path, ENOENT);
    LK_TRY(status);
    status = fn(&file, chunk, hash);
    lk__fd_close(&file.fd);
    return status;
}

/* Hashes `read` files, evenly spread. Without `strict`, unreadable files are skipped. */
static lk_status hash_files(const lk_dataset *data, size_t read, hash_fn fn, bool strict, uint64_t *hash)
{
    uint8_t *chunk;
    LK_TRY(LK_ALLOC(CHUNK, "a piece of an image file", &chunk));
    lk_status status = LK_OK;
    for (size_t i = 0; i < read && status == LK_OK; i++) {
        status = hash_file(data, i * data->info.count / read, fn, chunk, hash);
        status = strict ? status : LK_OK;
    }
    lk__mem_free(chunk);
    return status;
}

static bool has_files(const lk_dataset *data)
{
    return data->ops->load != NULL && data->ops->path != NULL;
}

lk_status lk__dataset_contents(const lk_dataset *data, lk_dataset_contents *out)
{
    lk_dataset_contents found = {0};
    survey s;
    if (!has_files(data)) {
        *out = found;
        return LK_OK;
    }
    LK_TRY(survey_files(data, &s));
    bool all = s.bytes <= lk__dataset_contents_limit;
    found.files = data->info.count;
    found.read = all ? found.files : lk__size_min(found.files, SAMPLED_FILES);
    found.hash = s.sizes;
    found.times = all ? 0 : s.times;
    LK_TRY(hash_files(data, found.read, hash_whole, true, &found.hash));
    *out = found;
    return LK_OK;
}

lk_status lk__dataset_sample_contents(const lk_dataset *data, lk_dataset_contents *out)
{
    lk_dataset_contents found = {0};
    if (has_files(data)) {
        found.files = data->info.count;
        found.read = lk__size_min(found.files, COMPARED_FILES);
        LK_TRY(hash_files(data, found.read, hash_ends, false, &found.hash));
    }
    *out = found;
    return LK_OK;
}

static uint64_t hash_first_image(const lk_dataset *data, uint64_t seed)
{
    lk_image image = {0};
    int32_t label;
    if (data->info.count > 0 && data->ops->load(data, 0, NULL, &image, &label) == LK_OK) {
        const uint64_t shape[] = {image.channels, image.height, image.width};
        seed = lk__hash(shape, sizeof shape, seed);
        seed = lk__hash(image.pixels, image.channels * image.height * image.width, seed);
    }
    lk__image_fini(&image);
    return seed;
}

static size_t target_bytes(const lk_dataset *data)
{
    return data->info.targets > 0 ? data->info.targets * sizeof(float) : sizeof(int32_t);
}

lk_status lk__dataset_hash_samples(const lk_dataset *data, size_t most, uint64_t *hash)
{
    size_t bytes = lk__dataset_elements(data) * lk_dtype_size(data->info.dtype), target = target_bytes(data);
    size_t count = lk__size_min(data->info.count, most);
    uint8_t *memory;
    lk_status status = LK_OK;
    LK_TRY(lk__mem_alloc(1, target + bytes, "a sample", (void **)&memory));
    for (size_t i = 0; i < count && status == LK_OK; i++) {
        status =
            lk_dataset_get(data, count < data->info.count ? i * data->info.count / count : i, memory + target, memory);
        *hash = lk__hash(memory, target, *hash);
        *hash = lk__hash(memory + target, bytes, *hash);
    }
    lk__mem_free(memory);
    return status;
}

lk_status lk__dataset_hash_files(const lk_dataset *data, uint64_t *out)
{
    uint64_t hash = 0;
    if (data->ops->hash_files != NULL)
        LK_TRY(data->ops->hash_files(data, &hash));
    *out = hash;
    return LK_OK;
}

lk_status lk__dataset_content(const lk_dataset *data, uint64_t *out)
{
    uint64_t hash = lk__dataset_fingerprint(data);
    if (data->ops->load != NULL)
        hash = hash_first_image(data, hash);
    else if (!data->drawn)
        LK_TRY(lk__dataset_hash_samples(data, data->info.count, &hash));
    for (size_t i = 0; data->ops->load != NULL && data->ops->label != NULL && i < data->info.count; i++) {
        int32_t label = data->ops->label(data, i);
        hash = lk__hash(&label, sizeof label, hash);
    }
    *out = hash;
    return LK_OK;
}

uint64_t lk__dataset_fingerprint(const lk_dataset *data)
{
    const lk_dataset_info *info = &data->info;
    size_t count = data->ops->label != NULL ? lk__size_min(info->count, HASHED_LABELS) : 0;
    uint64_t hash = lk__hash(info->mean, info->channels * sizeof *info->mean, 0);
    hash = lk__hash(info->std, info->channels * sizeof *info->std, hash);
    for (size_t i = 0; i < count; i++) {
        int32_t label = data->ops->label(data, i * info->count / count);
        hash = lk__hash(&label, sizeof label, hash);
    }
    return data->ops->hash_names != NULL ? data->ops->hash_names(data, hash) : hash;
}
