/* verify.c - compares the files of a data set with what was published; finds a data set's folder. */
#include <stdio.h>

#include "base/file.h"
#include "data/download/obtain.h"

lk_status lk__source_folder(const lk_source *source, const char *dir, char folder[LK_MAX_PATH])
{
    char cache[LK_MAX_PATH];
    if (dir == NULL ? !lk__dataset_cache_folder(cache) : *dir == '\0')
        return lk__fail(LK_STATUS_USAGE, "there is no cache folder, as HOME is not set: give a folder with `data_dir`");
    if (dir == NULL)
        dir = cache;
    if (snprintf(folder, LK_MAX_PATH, "%s/%s", dir, source->folder) >= LK_MAX_PATH)
        return lk__fail(LK_STATUS_USAGE, "%s: a path has %d bytes at most", dir, LK_MAX_PATH - 1);
    return LK_OK;
}

lk_status lk__source_locate(const char *name, const char *dir, char folder[LK_MAX_PATH])
{
    static const lk_split splits[] = {LK_SPLIT_TEST, LK_SPLIT_TRAIN};
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++)
        LK_TRY(lk__dataset_find(name, dir, splits[i], folder));
    return LK_OK;
}

static bool find_part(const lk_source_part *part, const char *folder, char path[LK_MAX_PATH])
{
    return lk__dataset_find_file(folder, part->file, path) ||
           (part->alias != NULL && lk__dataset_find_file(folder, part->alias, path));
}

static lk_status check_file(const char *path, bool content, const lk_checksum_published *expected)
{
    lk_checksum_pair sums;
    LK_TRY(lk__checksum_file(path, content, expected->bytes, &sums));
    return lk__checksum_check(path, &sums, expected);
}

/* A gzipped file is correct as published, or if its content is: distributions compress files again. */
static lk_status check_part(const lk_source_file *file, const lk_source_part *part, const char *path,
                            const char **remark)
{
    lk_file_outline outline;
    LK_TRY(lk__file_outline(path, &outline));
    if (outline.gzip && part->member == NULL && outline.bytes == file->published.bytes &&
        check_file(path, false, &file->published) == LK_OK)
        return LK_OK;
    LK_TRY(check_file(path, true, &part->content));
    if (outline.gzip)
        *remark = "compressed differently, the content is right";
    return LK_OK;
}

lk_status lk__source_verify(const lk_source *source, const char *folder, lk_obtain_verdict_fn report, void *arg,
                            bool *right)
{
    bool all = true;
    LK_TRY(lk__checksum_available());
    for (size_t i = 0; i < source->file_count; i++) {
        const lk_source_file *file = &source->files[i];
        for (size_t p = 0; p < file->part_count; p++) {
            char path[LK_MAX_PATH];
            lk_obtain_verdict verdict = {.path = path, .remark = ""};
            if (find_part(&file->parts[p], folder, path)) {
                verdict.status = check_part(file, &file->parts[p], path, &verdict.remark);
            } else {
                snprintf(path, sizeof path, "%s/%s", folder, file->parts[p].file);
                verdict.status = lk__fail(LK_STATUS_NOT_FOUND, "%s is missing", path);
            }
            all = all && verdict.status == LK_OK;
            report(arg, &verdict);
        }
    }
    *right = all;
    return LK_OK;
}
