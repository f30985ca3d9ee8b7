/* folder.c - a folder of images in ImageNet's layout: train/CLASS/FILE and, for the test split,
 * val/CLASS/FILE or test/CLASS/FILE.
 *
 * Classes are numbered by the sorted names of the folders in train, for both splits. Images are
 * ordered by class, then by path. The loader's workers decode files when they need them. */
#define _DEFAULT_SOURCE /* d_type, which saves a stat of every file */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "data/codec/codec.h"
#include "data/sets/dataset.h"

/* The deepest folders below a class, and the most bytes of a file. */
enum { MAX_DEPTH = 8 };
#define MAX_FILE_BYTES ((size_t)1 << 28)

/* Names in one block, each with its 0. */
typedef struct names {
    char *text;
    size_t used, room;
    size_t *at; /* offset of each name */
    size_t count, capacity;
} names;

typedef struct folder {
    char *root;     /* DIR/train or DIR/val */
    names classes;  /* of train, sorted */
    names files;    /* paths relative to root */
    int32_t *label; /* (files.count) */
    /* (files.count) bytes of each file when it was first read, below MAX_FILE_BYTES; 0: not read
     * yet. Later epochs must find the same size. */
    atomic_uint_least32_t *seen;
    pthread_mutex_t lock; /* guards the fields below */
    bool sized;
    lk_transforms_common_size size; /* valid if sized */
} folder;

static const char *name_at(const names *list, size_t index)
{
    return list->text + list->at[index];
}

static lk_status add_name(names *list, const char *text)
{
    size_t length = strlen(text) + 1;
    while (list->room - list->used < length)
        LK_TRY(LK_GROW(list->used, "names of images", &list->room, &list->text));
    if (list->count == list->capacity)
        LK_TRY(LK_GROW(list->count, "names of images", &list->capacity, &list->at));
    memcpy(list->text + list->used, text, length);
    list->at[list->count++] = list->used;
    list->used += length;
    return LK_OK;
}

static void names_fini(names *list)
{
    lk__mem_free(list->at);
    lk__mem_free(list->text);
}

/* The sorted names in a folder, without those that start with a dot. */
typedef struct listing {
    struct dirent **at;
    int count;
} listing;

static int keep_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* By bytes, independent of the locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static lk_status list_folder(const char *path, listing *out)
{
    out->count = scandir(path, &out->at, keep_visible, by_name);
    if (out->count < 0)
        return lk__fail(LK_STATUS_IO, "cannot list folder %s: %s", path, strerror(errno));
    return LK_OK;
}

static void listing_fini(listing *list)
{
    for (int i = 0; i < list->count; i++)
        free(list->at[i]);
    free(list->at);
}

static lk_status join(const char *folder_path, const char *name, char path[LK_MAX_PATH])
{
    if (snprintf(path, LK_MAX_PATH, "%s%s%s", folder_path, *folder_path ? "/" : "", name) >= LK_MAX_PATH)
        return lk__fail(LK_STATUS_USAGE, "%s/%s: the path is longer than %d bytes", folder_path, name, LK_MAX_PATH - 1);
    return LK_OK;
}

static bool folder_at(const char *parent, const char *name, char path[LK_MAX_PATH])
{
    return snprintf(path, LK_MAX_PATH, "%s/%s", parent, name) < LK_MAX_PATH && lk__path_is_folder(path);
}

/* d_type says it on most file systems; otherwise, and for links, stat is needed. */
static bool is_folder(const char *parent, const struct dirent *entry)
{
    char path[LK_MAX_PATH];
    if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK)
        return entry->d_type == DT_DIR;
    return folder_at(parent, entry->d_name, path);
}

/* Adds the images of root/below and its subfolders to the list. */
static lk_status add_images(folder *f, const char *below, int depth)
{
    char path[LK_MAX_PATH], inner[LK_MAX_PATH];
    listing list;
    if (depth > MAX_DEPTH)
        return lk__fail(LK_STATUS_FORMAT, "%s/%s: folders lie more than %d deep in each other", f->root, below,
                        MAX_DEPTH);
    LK_TRY(join(f->root, below, path));
    LK_TRY(list_folder(path, &list));
    lk_status status = LK_OK;
    for (int i = 0; i < list.count && status == LK_OK; i++) {
        const struct dirent *entry = list.at[i];
        status = join(below, entry->d_name, inner);
        if (status != LK_OK)
            break;
        if (is_folder(path, entry))
            status = add_images(f, inner, depth + 1);
        else if (lk__image_named(entry->d_name))
            status = add_name(&f->files, inner);
    }
    listing_fini(&list);
    return status;
}

static lk_status set_labels(folder *f, size_t first, size_t number, size_t *room)
{
    while (*room < f->files.count)
        LK_TRY(LK_GROW(first, "labels of images", room, &f->label));
    for (size_t i = first; i < f->files.count; i++)
        f->label[i] = (int32_t)number;
    return LK_OK;
}

/* In the test split a class may have no images; in the training split this is an error. */
static lk_status scan(folder *f, lk_split split)
{
    size_t room = 0;
    for (size_t number = 0; number < f->classes.count; number++) {
        const char *name = name_at(&f->classes, number);
        char path[LK_MAX_PATH];
        struct stat info;
        size_t first = f->files.count;
        LK_TRY(join(f->root, name, path));
        if (split == LK_SPLIT_TEST && stat(path, &info) != 0)
            continue;
        LK_TRY(add_images(f, name, 1));
        if (split == LK_SPLIT_TRAIN && f->files.count == first)
            return lk__fail(LK_STATUS_FORMAT, "%s: the class has no .jpg, .jpeg or .png image", path);
        LK_TRY(set_labels(f, first, number, &room));
    }
    return LK_OK;
}

static lk_status list_classes(const char *root, names *out)
{
    listing list;
    LK_TRY(list_folder(root, &list));
    lk_status status = LK_OK;
    for (int i = 0; i < list.count && status == LK_OK; i++)
        if (is_folder(root, list.at[i]))
            status = add_name(out, list.at[i]->d_name);
    listing_fini(&list);
    return status;
}

static bool has_class(const names *classes, const char *name)
{
    for (size_t i = 0; i < classes->count; i++)
        if (strcmp(name_at(classes, i), name) == 0)
            return true;
    return false;
}

/* Every class of the test split must be in the training split, which gives the numbers. */
static lk_status check_classes(const folder *f)
{
    names own = {0};
    lk_status status = list_classes(f->root, &own);
    for (size_t i = 0; status == LK_OK && i < own.count; i++)
        if (!has_class(&f->classes, name_at(&own, i)))
            status = lk__fail(LK_STATUS_MISMATCH, "%s/%s: the training split has no class of this name", f->root,
                              name_at(&own, i));
    names_fini(&own);
    return status;
}

static bool find_split(const char *parent, lk_split split, char path[LK_MAX_PATH])
{
    if (split == LK_SPLIT_TRAIN)
        return folder_at(parent, "train", path);
    return folder_at(parent, "val", path) || folder_at(parent, "test", path);
}

static bool has_folder(const char *path)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    bool found = false;
    while (dir && !found && (entry = readdir(dir)))
        found = keep_visible(entry) && is_folder(path, entry);
    if (dir)
        closedir(dir);
    return found;
}

static lk_inventory probe(const char *parent, lk_split split)
{
    char path[LK_MAX_PATH];
    lk_inventory inventory = {0};
    bool found = find_split(parent, split, path) && has_folder(path);
    lk__inventory_add(&inventory, parent, split == LK_SPLIT_TRAIN ? "train/CLASS" : "val/CLASS", found);
    return inventory;
}

static int32_t label_of(const lk_dataset *data, size_t index)
{
    const folder *f = data->own;
    return f->label[index];
}

static lk_status check_seen(const folder *f, size_t index, const char *path, size_t count)
{
    uint_least32_t before = 0;
    if (atomic_compare_exchange_strong(&f->seen[index], &before, (uint_least32_t)count) || before == count)
        return LK_OK;
    return lk__dataset_fail_changed(path, before, count);
}

static lk_status load(const lk_dataset *data, size_t index, const lk_image_want *want, lk_image *image, int32_t *label)
{
    const folder *f = data->own;
    char path[LK_MAX_PATH];
    uint8_t *bytes;
    size_t count;
    LK_TRY(join(f->root, name_at(&f->files, index), path));
    lk_status found = lk__file_read(path, MAX_FILE_BYTES, &bytes, &count);
    /* IO: another command line would not help. */
    if (found == LK_STATUS_NOT_FOUND)
        return lk__fail(LK_STATUS_IO, "%s; it was there when the folder was listed", lk_error_detail());
    LK_TRY(found);
    lk_status status = check_seen(f, index, path, count);
    if (status == LK_OK)
        status = lk__image_decode(&(lk_image_file){path, bytes, count}, want, image);
    lk__mem_free(bytes);
    if (status == LK_OK)
        *label = f->label[index];
    return status;
}

static lk_status compare_sizes(const folder *f, lk_transforms_common_size *out)
{
    lk_transforms_common_size size = {0};
    for (size_t i = 0; i < f->files.count && size.other == 0; i++) {
        char path[LK_MAX_PATH];
        size_t height, width;
        LK_TRY(join(f->root, name_at(&f->files, i), path));
        LK_TRY(lk__image_size(path, &height, &width));
        if (i == 0)
            size = (lk_transforms_common_size){.height = height, .width = width};
        else if (height != size.height || width != size.width)
            size = (lk_transforms_common_size){size.height, size.width, i, height, width};
    }
    *out = size;
    return LK_OK;
}

static lk_status common_size(const lk_dataset *data, lk_transforms_common_size *out)
{
    folder *f = (folder *)(uintptr_t)data->own;
    pthread_mutex_lock(&f->lock);
    lk_status status = f->sized ? LK_OK : compare_sizes(f, &f->size);
    f->sized = status == LK_OK;
    if (status == LK_OK)
        *out = f->size;
    pthread_mutex_unlock(&f->lock);
    return status;
}

static void path_of(const lk_dataset *data, size_t index, char *text, size_t bytes)
{
    const folder *f = data->own;
    snprintf(text, bytes, "%s/%s", f->root, name_at(&f->files, index));
}

static const char *class_name(const lk_dataset *data, size_t index)
{
    const folder *f = data->own;
    return index < f->classes.count ? name_at(&f->classes, index) : NULL;
}

/* Hashes the classes too: a class may have no file in this split. */
static uint64_t hash_names(const lk_dataset *data, uint64_t seed)
{
    const folder *f = data->own;
    return lk__hash(f->files.text, f->files.used, lk__hash(f->classes.text, f->classes.used, seed));
}

static void destroy(folder *f)
{
    pthread_mutex_destroy(&f->lock);
    lk__mem_free(f->seen);
    lk__mem_free(f->label);
    names_fini(&f->files);
    names_fini(&f->classes);
    lk__mem_free(f->root);
    lk__mem_free(f);
}

static void close_folder(lk_dataset *data)
{
    destroy((folder *)(uintptr_t)data->own);
}

/* root is the split's folder. */
static lk_status fill(folder *f, const char *parent, const char *root, lk_split split)
{
    char train[LK_MAX_PATH];
    LK_TRY(lk__mem_copy_text(root, "a name", &f->root));
    LK_TRY(list_classes(find_split(parent, LK_SPLIT_TRAIN, train) ? train : root, &f->classes));
    if (split == LK_SPLIT_TEST)
        LK_TRY(check_classes(f));
    LK_TRY(scan(f, split));
    if (f->files.count == 0)
        return lk__fail(LK_STATUS_FORMAT, "%s: there is no .jpg, .jpeg or .png image in its folders", root);
    return LK_ALLOC(f->files.count, "sizes of images", &f->seen);
}

static lk_status open_folder(lk_dataset *data, const char *parent)
{
    static const lk_dataset_ops ops = {.load = load,
                                       .common_size = common_size,
                                       .label = label_of,
                                       .path = path_of,
                                       .class_name = class_name,
                                       .hash_names = hash_names,
                                       .close = close_folder};
    char root[LK_MAX_PATH];
    folder *f;
    if (!find_split(parent, data->split, root))
        return lk__fail(LK_STATUS_NOT_FOUND, "the images of %s have gone", parent);
    LK_TRY(LK_ALLOC(1, "a folder of images", &f));
    pthread_mutex_init(&f->lock, NULL);
    lk_status status = fill(f, parent, root, data->split);
    if (status != LK_OK) {
        destroy(f);
        return status;
    }
    data->info.count = f->files.count;
    data->info.channels = 3;
    data->info.classes = f->classes.count;
    data->own = f;
    data->ops = &ops;
    return LK_OK;
}

const lk_dataset_format lk__dataset_format_folder = {
    .expects = "train/CLASS/*.jpg and val/CLASS/*.jpg, or .png",
    .probe = probe,
    .open = open_folder,
};
