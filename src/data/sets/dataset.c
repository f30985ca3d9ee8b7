/* dataset.c - the table of data sets; finds and opens them.
 *
 * The formats (idx.c, cifar.c, folder.c) know the files; digits.c draws its own samples. */
#include "data/sets/dataset.h"
#include "data/sets/sources.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/spec.h"

enum { MAX_FOLDERS = 5, MAX_BASES = 5, LEAST_CLASSES = 10 };

#define SYSTEM_FOLDER "/usr/share/datasets"

typedef struct statistics {
    float mean[LK_DATASET_MAX_CHANNELS], std[LK_DATASET_MAX_CHANNELS];
} statistics;

static const statistics mnist_statistics = {.mean = {.1307f}, .std = {.3081f}};
static const statistics fashion_statistics = {.mean = {.2860f}, .std = {.3530f}};
static const statistics imagenet_statistics = {.mean = {.485f, .456f, .406f}, .std = {.229f, .224f, .225f}};
static const statistics cifar100_statistics = {.mean = {.5071f, .4867f, .4408f}, .std = {.2675f, .2565f, .2761f}};
static const statistics cifar_statistics = {.mean = {.4914f, .4822f, .4465f}, .std = {.2023f, .1994f, .2010f}};

typedef struct dataset_row {
    lk_dataset_row row;
    const lk_dataset_format *format;  /* NULL: built in */
    const char *folders[MAX_FOLDERS]; /* spellings below a search folder, then NULL */
    const statistics *statistics;
    const char *augment, *test_augment;
    const char *const *class_names; /* NULL: numbers, or the format's own */
} dataset_row;

#define FOLDER_AUGMENT "resized_crop=224,flip"
#define FOLDER_TEST_AUGMENT "resize=256,center_crop=224"

static const dataset_row rows[] = {
    {.row = {"mnist", "handwritten digits, 60,000 + 10,000 grey images of 28x28 in IDX files"},
     .format = &lk__dataset_format_idx,
     .folders = {"mnist", "MNIST/raw", "MNIST"},
     .statistics = &mnist_statistics,
     .augment = "none",
     .test_augment = "none"},
    {.row = {"fashion-mnist", "articles of clothing, 60,000 + 10,000 grey images of 28x28 in IDX files"},
     .format = &lk__dataset_format_idx,
     .folders = {"fashion-mnist", "FashionMNIST/raw", "FashionMNIST", "fashion_mnist"},
     .statistics = &fashion_statistics,
     .class_names = lk__dataset_fashion_names,
     .augment = "none",
     .test_augment = "none"},
    {.row = {"cifar10", "photographs, 50,000 + 10,000 colour images of 32x32 in CIFAR's binary files"},
     .format = &lk__dataset_format_cifar,
     .folders = {"cifar10", "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "cifar-10"},
     .statistics = &cifar_statistics,
     .class_names = lk__dataset_cifar10_names,
     .augment = "crop=4,flip",
     .test_augment = "none"},
    {.row = {"cifar100", "photographs in 100 classes, 50,000 + 10,000 colour images of 32x32 in CIFAR's binary files"},
     .format = &lk__dataset_format_cifar100,
     .folders = {"cifar100", "cifar-100-binary", "cifar100/cifar-100-binary", "cifar-100"},
     .statistics = &cifar100_statistics,
     .class_names = lk__dataset_cifar100_names,
     .augment = "crop=4,flip",
     .test_augment = "none"},
    {.row = {"imagenet", "a folder of JPEG or PNG images of any size: train/CLASS/FILE and val/CLASS/FILE"},
     .format = &lk__dataset_format_folder,
     .folders = {"imagenet", "ImageNet", "ILSVRC2012", "ILSVRC/Data/CLS-LOC"},
     .statistics = &imagenet_statistics,
     .augment = FOLDER_AUGMENT,
     .test_augment = FOLDER_TEST_AUGMENT},
    {.row = {"digits", "built in: digits drawn by the program, 60,000 + 10,000 grey images of 28x28"},
     .statistics = &mnist_statistics,
     .augment = "none",
     .test_augment = "none"},
};

enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

const lk_dataset_row *lk_dataset_list(size_t index)
{
    return index < ROW_COUNT ? &rows[index].row : NULL;
}

static const char *row_name(const void *arg, size_t index)
{
    (void)arg;
    return index < ROW_COUNT ? rows[index].row.name : NULL;
}

static const dataset_row *find_row(const char *name)
{
    for (size_t i = 0; i < ROW_COUNT; i++)
        if (strcmp(rows[i].row.name, name) == 0)
            return &rows[i];
    return NULL;
}

bool lk__dataset_find_file(const char *folder, const char *name, char path[LK_MAX_PATH])
{
    static const char *const endings[] = {"", ".gz"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        int length = snprintf(path, LK_MAX_PATH, "%s/%s%s", folder, name, endings[i]);
        if (length < LK_MAX_PATH && lk__file_exists(path))
            return true;
    }
    return false;
}

void lk__inventory_add(lk_inventory *inventory, const char *folder, const char *name, bool found)
{
    char path[LK_MAX_PATH];
    struct stat info;
    inventory->present += found;
    if (found)
        return;
    if (!*inventory->missing)
        snprintf(inventory->missing, sizeof inventory->missing, "%s", name);
    if (snprintf(path, sizeof path, "%s/%s", folder, name) < LK_MAX_PATH && stat(path, &info) != 0 && errno == EACCES)
        inventory->denied = true;
}

static bool complete(const lk_inventory *inventory)
{
    return !*inventory->missing;
}

/* Whether a folder has some files of the format but not all of the split's; text then says which is
 * missing. */
static bool explain(const lk_dataset_format *format, const char *folder, lk_split split, char *text, size_t bytes)
{
    lk_split other = split == LK_SPLIT_TRAIN ? LK_SPLIT_TEST : LK_SPLIT_TRAIN;
    lk_inventory wanted = format->probe(folder, split);
    if (wanted.denied)
        snprintf(text, bytes, "%s: %s", folder, strerror(EACCES));
    else if (wanted.present + format->probe(folder, other).present > 0)
        snprintf(text, bytes, "%s lacks %s", folder, wanted.missing);
    else
        return false;
    return true;
}

/* Search folders in order, each with its name for messages. */
typedef struct base_list {
    size_t count;
    struct {
        const char *what;
        char path[LK_MAX_PATH];
    } at[MAX_BASES];
} base_list;

static void add_base(base_list *list, const char *what, const char *folder, const char *below)
{
    if (folder == NULL || *folder == '\0')
        return;
    int length = snprintf(list->at[list->count].path, LK_MAX_PATH, "%s%s", folder, below);
    list->at[list->count].what = what;
    list->count += length < LK_MAX_PATH;
}

bool lk__dataset_cache_folder(char folder[LK_MAX_PATH])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *below = "/lockstep";
    if (cache == NULL || *cache == '\0') {
        cache = getenv("HOME");
        below = "/.cache/lockstep";
    }
    return cache != NULL && *cache != '\0' && snprintf(folder, LK_MAX_PATH, "%s%s", cache, below) < LK_MAX_PATH;
}

/* A given folder is the only search folder: another copy may differ. */
static void list_bases(base_list *list, const char *dir)
{
    list->count = 0;
    add_base(list, "the folder given", dir, "");
    if (list->count > 0)
        return;
    add_base(list, "$LOCKSTEP_DATA", getenv("LOCKSTEP_DATA"), "");
    add_base(list, "here", "./data", "");
    char cache[LK_MAX_PATH];
    add_base(list, "the user's cache", lk__dataset_cache_folder(cache) ? cache : NULL, "");
    add_base(list, "the system's", SYSTEM_FOLDER, "");
}

/* Whether path ends in one of the row's folders, as ".../FashionMNIST/raw" does. */
static bool named_after(const char *path, const dataset_row *row)
{
    size_t length = lk__path_length(path);
    for (size_t i = 0; i < MAX_FOLDERS && row->folders[i] != NULL; i++) {
        size_t tail = strlen(row->folders[i]);
        if (tail <= length && memcmp(path + length - tail, row->folders[i], tail) == 0 &&
            (tail == length || path[length - tail - 1] == '/'))
            return true;
    }
    return false;
}

/* Files of MNIST and Fashion-MNIST have the same names: a folder with the name of another data set
 * is not accepted for this one. */
static bool named_after_another(const char *path, const dataset_row *row)
{
    if (named_after(path, row))
        return false;
    for (size_t i = 0; i < ROW_COUNT; i++)
        if (&rows[i] != row && named_after(path, &rows[i]))
            return true;
    return false;
}

/* A search for a data set. */
typedef struct finder {
    const dataset_row *row;
    lk_split split;
    char *folder;      /* (LK_MAX_PATH) the folder that is checked now */
    char problem[512]; /* of the first incomplete folder, or "" */
} finder;

static bool probe_folder(finder *f)
{
    lk_inventory inventory = f->row->format->probe(f->folder, f->split);
    if (complete(&inventory))
        return true;
    if (!*f->problem)
        explain(f->row->format, f->folder, f->split, f->problem, sizeof f->problem);
    return false;
}

/* Searches below base, then base itself. */
static bool search_base(finder *f, const char *base)
{
    for (size_t i = 0; i < MAX_FOLDERS && f->row->folders[i] != NULL; i++) {
        int length = snprintf(f->folder, LK_MAX_PATH, "%s/%s", base, f->row->folders[i]);
        if (length < LK_MAX_PATH && probe_folder(f))
            return true;
    }
    snprintf(f->folder, LK_MAX_PATH, "%s", base);
    return !named_after_another(base, f->row) && probe_folder(f);
}

/* Appends to text, which has size bytes; cuts what does not fit. */
static void append(char *text, size_t size, const char *more)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s", more);
}

/* Lists the searched folders and their names. */
static void list_searched(const base_list *bases, bool given, char *text, size_t size)
{
    for (size_t i = 0; i < bases->count; i++) {
        append(text, size, i > 0 ? ", " : "");
        append(text, size, bases->at[i].path);
        append(text, size, given ? "" : " (");
        append(text, size, given ? "" : bases->at[i].what);
        append(text, size, given ? "" : ")");
    }
    if (given && !lk__path_is_folder(bases->at[0].path))
        append(text, size, errno ? ", which is not there" : ", which is not a folder");
}

/* dir: the given folder, or NULL. */
static lk_status not_found(const finder *f, const base_list *bases, const char *dir)
{
    const dataset_row *row = f->row;
    bool fetch = lk__source_find(row->row.name) != NULL;
    char searched[1024] = "", folders[256] = "";
    list_searched(bases, dir != NULL, searched, sizeof searched);
    for (size_t i = 0; i < MAX_FOLDERS && row->folders[i] != NULL; i++) {
        append(folders, sizeof folders, row->folders[i]);
        append(folders, sizeof folders, "/, ");
    }
    return lk__fail(LK_STATUS_NOT_FOUND,
                    "data set '%s' was not found%s%s; looked in %s, %sfor %sand the files themselves (%s). "
                    "%s%s%s%s%s%s, or use the built-in 'digits' as `data`",
                    row->row.name, *f->problem ? ": " : "", f->problem, searched, dir ? "" : "in each ", folders,
                    row->format->expects,
                    dir ? "Give another `data_dir`, leave `data_dir` out to look in the usual folders"
                        : "Say where it is with `data_dir` or LOCKSTEP_DATA",
                    fetch ? ", fetch it with 'lockstep data get " : " (it cannot be fetched)",
                    fetch ? row->row.name : "", fetch && dir ? " --data-dir " : "", fetch && dir ? dir : "",
                    fetch ? "'" : "");
}

static lk_status search(const dataset_row *row, const char *dir, lk_split split, char folder[LK_MAX_PATH])
{
    base_list *bases = NULL;
    if (dir != NULL && strlen(dir) >= LK_MAX_PATH)
        return lk__fail(LK_STATUS_USAGE, "`data_dir`: a path has %d bytes at most", LK_MAX_PATH - 1);
    LK_TRY(LK_ALLOC(1, "folder names", &bases));
    list_bases(bases, dir);
    finder f = {.row = row, .split = split, .folder = folder};
    size_t i = 0;
    while (i < bases->count && !search_base(&f, bases->at[i].path))
        i++;
    lk_status status = i < bases->count ? LK_OK : not_found(&f, bases, dir != NULL && *dir ? dir : NULL);
    lk__mem_free(bases);
    return status;
}

/* "; did you mean 'cifar10' or 'cifar100'?": the names that begin with this one, or else the nearest one; "" if there
 * is none. */
static void suggest(const char *name, char *text, size_t bytes)
{
    const char *near = lk__names_nearest(name, row_name, NULL);
    size_t used = 0;
    *text = '\0';
    for (size_t i = 0; !near && strlen(name) >= 3 && i < ROW_COUNT && used < bytes; i++) {
        const char *known = row_name(NULL, i);
        if (strncmp(known, name, strlen(name)) == 0)
            used += (size_t)snprintf(text + used, bytes - used, "%s '%s'", used ? " or" : "; did you mean", known);
    }
    if (near)
        snprintf(text, bytes, "; did you mean '%s'?", near);
    else if (used && used < bytes)
        snprintf(text + used, bytes - used, "?");
}

static lk_status no_such_name(const char *name)
{
    char known[256], meant[256];
    lk__names_join(&(lk_names){.next = row_name}, known, sizeof known);
    suggest(name, meant, sizeof meant);
    return lk__fail(
        LK_STATUS_NOT_FOUND,
        "`data`: no data set and no folder '%s'%s (known: %s, or a folder of IDX or CIFAR files or of images)", name,
        meant, known);
}

/* No format has all its files of the split in the folder. */
static lk_status no_split(const char *name, lk_split split)
{
    char problem[LK_MAX_PATH + 128];
    const char *which = split == LK_SPLIT_TRAIN ? "training" : "test";
    for (size_t i = 0; i < ROW_COUNT; i++) {
        const lk_dataset_format *format = rows[i].format;
        if (format && explain(format, name, split, problem, sizeof problem))
            return lk__fail(LK_STATUS_NOT_FOUND, "no %s split: folder %s; expected are %s", which, problem,
                            format->expects);
    }
    return lk__fail(LK_STATUS_NOT_FOUND,
                    "folder %s holds no %s split; expected are IDX files (%s), CIFAR files (%s; %s) or images (%s)",
                    name, which, lk__dataset_format_idx.expects, lk__dataset_format_cifar.expects,
                    lk__dataset_format_cifar100.expects, lk__dataset_format_folder.expects);
}

static void set_defaults(lk_dataset *data, const dataset_row *row)
{
    data->info.mean = row->statistics->mean;
    data->info.std = row->statistics->std;
    data->augment = row->augment;
    data->test_augment = row->test_augment;
}

/* A user's folder gets the defaults of the first data set with its format. */
static lk_status open_folder(lk_dataset *data, const char *name)
{
    if (!lk__path_is_folder(name)) {
        if (errno == EACCES)
            return lk__fail(LK_STATUS_NOT_FOUND, "cannot look at folder %s: %s", name, strerror(errno));
        return no_such_name(name);
    }
    for (size_t i = 0; i < ROW_COUNT; i++) {
        const dataset_row *row = &rows[i];
        if (!row->format)
            continue;
        lk_inventory inventory = row->format->probe(name, data->split);
        if (!complete(&inventory))
            continue;
        set_defaults(data, row);
        LK_TRY(lk__mem_copy_text(name, "a name", &data->path));
        return row->format->open(data, name);
    }
    return no_split(name, data->split);
}

static lk_status open_row(lk_dataset *data, const dataset_row *row, const char *dir)
{
    data->known = true;
    data->class_names = row->class_names;
    data->drawn = row->format == NULL;
    if (data->drawn) {
        data->ops = &lk__digits_ops;
        data->info = lk__digits_info[data->split];
    }
    set_defaults(data, row);
    if (data->drawn)
        return lk__mem_copy_text("", "a name", &data->path);
    char folder[LK_MAX_PATH];
    LK_TRY(search(row, dir, data->split, folder));
    LK_TRY(lk__mem_copy_text(folder, "a name", &data->path));
    return row->format->open(data, folder);
}

lk_status lk__dataset_find(const char *name, const char *dir, lk_split split, char folder[LK_MAX_PATH])
{
    const dataset_row *row = find_row(name);
    if (row == NULL)
        return no_such_name(name);
    folder[0] = '\0';
    return row->format == NULL ? LK_OK : search(row, dir, split, folder);
}

lk_status lk__dataset_check_split(lk_split split)
{
    if (split == LK_SPLIT_TRAIN || split == LK_SPLIT_TEST)
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE, "`split` %d is not a value of lk_split", (int)split);
}

lk_status lk__dataset_open_idle(const char *name, const char *dir, lk_split split, lk_dataset **out)
{
    LK_TRY(LK_GIVEN(name));
    if (*name == '\0')
        return lk__fail(LK_STATUS_USAGE, "the name of the data set is empty");
    lk_dataset *data = NULL;
    lk_status status;
    LK_TRY(lk__dataset_check_split(split));
    LK_TRY(LK_ALLOC(1, "a data set", &data));
    data->split = split;
    data->info.classes = LEAST_CLASSES;
    LK_TRY_GOTO(lk__mem_copy_text(name, "a name", &data->name), destroy_data);
    data->info.name = data->name;
    const dataset_row *row = find_row(name);
    LK_TRY_GOTO(row != NULL ? open_row(data, row, dir) : open_folder(data, name), destroy_data);
    data->info.name = data->name;
    data->info.path = data->path;
    data->info.dtype = LK_DTYPE_U8;
    data->info.order = LK_SAMPLE_ORDER_CHW;
    *out = data;
    return LK_OK;
destroy_data:
    lk_dataset_destroy(data);
    return status;
}

lk_status lk_dataset_open(const char *name, const char *dir, lk_split split, lk_dataset **out)
{
    lk_dataset *data;
    LK_TRY(LK_GIVEN(out));
    LK_TRY(lk__dataset_open_idle(name, dir, split, &data));
    lk_status status = lk__dataset_begin(data, NULL, 0, 1);
    if (status == LK_OK)
        *out = data;
    else
        lk_dataset_destroy(data);
    return status;
}

void lk_dataset_destroy(lk_dataset *data)
{
    if (data == NULL)
        return;
    if (data->ops && data->ops->close)
        data->ops->close(data);
    for (size_t i = 0; i < LK_DATASET_MAX_FILES; i++) {
        lk__fetch_destroy(data->fetches[i]);
        lk__mem_free(data->files[i]);
    }
    lk__mem_free(data->path);
    lk__mem_free(data->name);
    lk__mem_free(data->own_augment);
    lk__mem_free(data);
}

const lk_dataset_info *lk_dataset_get_info(const lk_dataset *data)
{
    return data ? &data->info : NULL;
}

lk_status lk_dataset_get(const lk_dataset *data, size_t index, void *sample, void *target)
{
    LK_TRY(LK_GIVEN(data));
    LK_TRY(LK_GIVEN(sample));
    LK_TRY(LK_GIVEN(target));
    if (index >= data->info.count)
        return lk__fail(LK_STATUS_USAGE, "%s has %zu samples, there is no sample %zu", data->info.name,
                        data->info.count, index);
    if (data->ops->load != NULL)
        return lk__fail(LK_STATUS_USAGE, "the images of %s have sizes of their own: load them with a loader",
                        data->info.name);
    return data->ops->values != NULL ? data->ops->values(data, index, sample, target)
                                     : data->ops->get(data, index, sample, target);
}

lk_status lk__dataset_load(const lk_dataset *data, size_t index, const lk_image_want *want, lk_image *image,
                           void *target)
{
    if (data->ops->load != NULL)
        return data->ops->load(data, index, want, image, target);
    LK_TRY(lk__image_resize(image, data->info.channels, data->info.height, data->info.width));
    return data->ops->get(data, index, image->pixels, target);
}

size_t lk__dataset_elements(const lk_dataset *data)
{
    return data->info.channels * data->info.height * data->info.width;
}

int32_t lk__dataset_likeliest(const float *probabilities, size_t classes)
{
    size_t best = 0;
    for (size_t i = 1; i < classes; i++)
        if (probabilities[i] > probabilities[best])
            best = i;
    return (int32_t)best;
}
