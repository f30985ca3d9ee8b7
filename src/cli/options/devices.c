/* devices.c - reads lists of devices and checks them against a device table.
 *
 * An item is read as a kind and an index, from which the names in the result are written: "cuda:07" and
 * "cuda:7" are the same device. */
#include "cli/options/devices.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/spec.h"

enum { ITEM_BYTES = 64, MAX_INDEX = 65535, SHOWN_NAMES = 4 };

static const char CPU[] = "cpu", GPU[] = "cuda", AUTO[] = "auto";

/* A list that is being read. */
typedef struct reading {
    const char *flag; /* for messages */
    const char *text; /* all of the list */
    lk_devices_table table;
    bool no_cuda;
    char kind[ITEM_BYTES]; /* of the devices so far */
    lk_devices list;
} reading;

static const lk_device_type *find_type(lk_devices_table table, const char *kind)
{
    const lk_device_type *type;
    for (size_t i = 0; (type = table(i)) && strcmp(type->name, kind) != 0; i++)
        continue;
    return type;
}

/* All kinds that a user may write, whether this build has them or not. */
static const char *next_kind(const void *arg, size_t index)
{
    static const char *const kinds[] = {AUTO, CPU, GPU};
    (void)arg;
    return index < sizeof kinds / sizeof *kinds ? kinds[index] : NULL;
}

/* Refuses a kind that --no-cuda excludes. Called before a device is looked for, so that the command line is the mistake
 * on every machine. */
static lk_status check_no_cuda(const reading *r, const char *kind)
{
    if (r->no_cuda && strcmp(kind, CPU) != 0)
        return lk__fail(LK_STATUS_USAGE, "`no_cuda` and `devices` %s contradict each other; give one", r->text);
    return LK_OK;
}

static lk_status fail_kind(const reading *r, const char *kind)
{
    size_t known;
    lk_names names = {.what = r->flag, .kind = "device", .next = next_kind};
    /* Handled here because the nearest known word is "cpu". */
    bool gpu = strcmp(kind, "gpu") == 0;
    if (gpu && find_type(r->table, GPU))
        return lk__fail(LK_STATUS_USAGE, "%s '%s': write %s:0, %s:1, ... for GPUs, or '`gpu_ids` 0,1'", r->flag,
                        r->text, GPU, GPU);
    if (!gpu)
        LK_TRY(lk__names_find(&names, kind, &known));
    LK_TRY(check_no_cuda(r, kind));
    return lk__fail(LK_STATUS_UNSUPPORTED, "%s '%s': this build has no %s devices; write '`devices` cpu'", r->flag,
                    r->text, gpu ? GPU : kind);
}

/* "cuda:0, cuda:1", and for many "cuda:0 to cuda:15". */
static void device_names(const char *kind, int count, char *text, size_t bytes)
{
    if (count > SHOWN_NAMES) {
        snprintf(text, bytes, "%s:0 to %s:%d", kind, kind, count - 1);
        return;
    }
    size_t used = 0;
    for (int i = 0; i < count && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s:%d", i ? ", " : "", kind, i);
}

/* Only GPUs are counted. CUDA_VISIBLE_DEVICES may hide some. */
static lk_status fail_absent(const reading *r, const lk_device_type *type, int index, int count)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char names[4 * LK_DEVICE_NAME_BYTES * SHOWN_NAMES], with[128] = "";
    if (visible)
        snprintf(with, sizeof with, " with CUDA_VISIBLE_DEVICES '%.64s'", visible);
    if (count <= 0 && visible)
        return lk__fail(LK_STATUS_UNSUPPORTED,
                        "%s '%s': this machine shows no GPU%s ('lockstep info' says why); unset that variable if it "
                        "hides them, or write '`devices` cpu'",
                        r->flag, r->text, with);
    if (count <= 0)
        return lk__fail(LK_STATUS_UNSUPPORTED,
                        "%s '%s': this machine has no %s device ('lockstep info' says why); write '`devices` cpu'",
                        r->flag, r->text, type->name);
    device_names(type->name, count, names, sizeof names);
    return lk__fail(LK_STATUS_UNSUPPORTED, "%s '%s': %s:%d: this machine shows %d GPU%s (%s)%s", r->flag, r->text,
                    type->name, index, count, count == 1 ? "" : "s", names, with);
}

static lk_status check_present(const reading *r, const lk_device_type *type, int index)
{
    int count = type->count ? type->count() : MAX_INDEX + 1;
    return index < count ? LK_OK : fail_absent(r, type, index, count);
}

/* Adds a device; bare: its name was written without an index. */
static lk_status add_device(reading *r, const char *kind, int index, bool bare)
{
    lk_devices *list = &r->list;
    const lk_device_type *type = find_type(r->table, kind);
    if (!type)
        return fail_kind(r, kind);
    if (list->count > 0 && strcmp(r->kind, kind) != 0)
        return lk__fail(LK_STATUS_USAGE, "%s '%s': devices of one run must be of one kind, not %s and %s", r->flag,
                        r->text, r->kind, kind);
    LK_TRY(check_no_cuda(r, kind));
    LK_TRY(check_present(r, type, index));
    if (list->count == LK_DEVICES_MAX)
        return lk__fail(LK_STATUS_USAGE, "%s: more than %d devices, of which a process has no more; give fewer",
                        r->flag, LK_DEVICES_MAX);
    snprintf(r->kind, sizeof r->kind, "%s", kind);
    char *name = list->name[list->count++];
    int length = bare ? snprintf(name, LK_DEVICE_NAME_BYTES, "%s", kind)
                      : snprintf(name, LK_DEVICE_NAME_BYTES, "%s:%d", kind, index);
    assert(length < LK_DEVICE_NAME_BYTES);
    (void)length;
    return LK_OK;
}

/* Adds one item of "1,6,3". */
static lk_status add_id(reading *r, const char *item)
{
    long long index;
    if (!lk__number_parse_int(item, 0, MAX_INDEX, &index))
        return lk__fail(LK_STATUS_USAGE, "%s '%s': GPUs are whole numbers from 0 to %d, as in '%s 0,1'", r->flag, item,
                        MAX_INDEX, r->flag);
    return add_device(r, GPU, (int)index, false);
}

/* Adds one item of "0,1", which are GPUs as in --gpu-ids. A number that stands alone may be meant as a count. */
static lk_status add_number(reading *r, const char *item)
{
    if (strchr(r->text, ',') || !item[strspn(item, "0")])
        return add_id(r, item);
    return lk__fail(LK_STATUS_USAGE,
                    "%s '%s' may be a GPU or a number of devices: write '`gpu_ids` %s' for that GPU, or '-n %s' for so "
                    "many ranks",
                    r->flag, r->text, item, item);
}

/* Adds one item of "cpu:0,cpu:1". */
static lk_status add_named(reading *r, const char *item)
{
    if (!item[strspn(item, "0123456789")])
        return add_number(r, item);
    char kind[ITEM_BYTES];
    size_t length = strcspn(item, ":");
    long long index = 0;
    snprintf(kind, sizeof kind, "%.*s", (int)length, item);
    if (strcmp(kind, AUTO) == 0)
        return lk__fail(LK_STATUS_USAGE, "%s '%s': auto stands alone, or leave it out", r->flag, r->text);
    /* An unknown kind is reported before its number is checked. */
    if (!find_type(r->table, kind))
        return fail_kind(r, kind);
    if (item[length] && !lk__number_parse_int(item + length + 1, 0, MAX_INDEX, &index))
        return lk__fail(LK_STATUS_USAGE, "%s '%s': after ':' comes a whole number from 0 to %d, as in '%s:0'", r->flag,
                        item, MAX_INDEX, kind);
    return add_device(r, kind, (int)index, !item[length]);
}

static lk_status read_list(reading *r, lk_status (*add)(reading *r, const char *item))
{
    for (const char *at = r->text;; at++) {
        char item[ITEM_BYTES];
        size_t length = strcspn(at, ",");
        if (length == 0)
            return lk__fail(LK_STATUS_USAGE, "%s '%s': a device is missing beside a comma", r->flag, r->text);
        if (length >= sizeof item)
            return lk__fail(LK_STATUS_USAGE, "%s: '%.*s' is no device; 'lockstep info' lists those there are", r->flag,
                            (int)length, at);
        snprintf(item, sizeof item, "%.*s", (int)length, at);
        LK_TRY(add(r, item));
        at += length;
        if (!*at)
            return LK_OK;
    }
}

static lk_status add_all(reading *r)
{
    const lk_device_type *type;
    for (size_t i = 0; !r->no_cuda && (type = r->table(i)); i++) {
        int count = type->count ? type->count() : 0;
        for (int index = 0; index < count && index < LK_DEVICES_MAX; index++)
            LK_TRY(add_device(r, type->name, index, false));
        if (count > 0)
            return LK_OK;
    }
    return add_device(r, CPU, 0, true);
}

static lk_status check_choice(const lk_devices_choice *choice, bool named, bool numbered)
{
    if (named && numbered)
        return lk__fail(LK_STATUS_USAGE, "`devices` %s and `gpu_ids` %s contradict each other; give one",
                        choice->devices, choice->gpu_ids);
    if (choice->no_cuda && numbered)
        return lk__fail(LK_STATUS_USAGE, "`no_cuda` and `gpu_ids` %s contradict each other; give one", choice->gpu_ids);
    return LK_OK;
}

lk_status lk__devices_choose(const lk_devices_choice *choice, lk_devices_table table, lk_devices *out)
{
    bool named = choice->devices && *choice->devices && strcmp(choice->devices, AUTO) != 0;
    bool numbered = choice->gpu_ids && *choice->gpu_ids;
    LK_TRY(check_choice(choice, named, numbered));
    reading r = {.table = table, .flag = numbered ? "`gpu_ids`" : "`devices`", .no_cuda = choice->no_cuda};
    r.text = numbered ? choice->gpu_ids : named ? choice->devices : AUTO;
    if (named || numbered)
        LK_TRY(read_list(&r, numbered ? add_id : add_named));
    else
        LK_TRY(add_all(&r));
    r.list.named = named || numbered || choice->no_cuda;
    *out = r.list;
    return LK_OK;
}

void lk__devices_use_cpu(lk_devices *list)
{
    for (int i = 0; i < list->count; i++)
        snprintf(list->name[i], sizeof list->name[i], "%s", CPU);
}

bool lk__devices_crowded(const lk_devices *all, bool dp, int local_size)
{
    bool found = !all->named && strcmp(all->name[0], CPU) != 0;
    return found && local_size > (dp ? 1 : all->count);
}

lk_status lk__devices_share(const lk_devices *all, bool dp, int local_rank, int local_size, lk_devices *out)
{
    if (dp || local_size == 0 || all->count == 1) {
        *out = *all;
        return LK_OK;
    }
    assert(local_rank >= 0 && local_rank < local_size);
    if (all->count % local_size != 0)
        return lk__fail(LK_STATUS_USAGE,
                        "%d devices (from %s to %s) cannot be shared evenly by the %d processes of this host; name "
                        "%d devices, or one for all%s, or start %d processes",
                        all->count, all->name[0], all->name[all->count - 1], local_size, local_size,
                        all->named ? "" : " as in '`devices` cpu'", all->count);
    lk_devices part = {.count = all->count / local_size, .named = all->named};
    memcpy(part.name, all->name[local_rank * part.count], (size_t)part.count * sizeof *part.name);
    *out = part;
    return LK_OK;
}
