/* device.c - the device table. */
#include "tensor/device.h"

#include <string.h>

#include "base/spec.h"

static const lk_device_type *const devices[] = {
    &lk__device_cpu,
#ifdef LK_HAVE_CUDA
    &lk__device_cuda,
#endif
};

enum { DEVICES = sizeof devices / sizeof *devices, MOST_ADDED = 8 };

static const lk_device_type *added[MOST_ADDED];
static size_t added_count;

const lk_device_type *lk__device_list(size_t index)
{
    if (index < DEVICES)
        return devices[index];
    return index - DEVICES < added_count ? added[index - DEVICES] : NULL;
}

lk_status lk__device_add(const lk_device_type *type)
{
    if (added_count == MOST_ADDED)
        return lk__fail(LK_STATUS_USAGE, "no room for device '%s': a program may add %d", type->name, MOST_ADDED);
    added[added_count++] = type;
    return LK_OK;
}

static const char *next_name(const void *arg, size_t index)
{
    (void)arg;
    const lk_device_type *type = lk__device_list(index);
    return type ? type->name : NULL;
}

const char *const lk__device_precision_names[] = {
    [LK_PRECISION_FP32] = "fp32",         [LK_PRECISION_TF32] = "tf32", [LK_PRECISION_BF16] = "bf16",
    [LK_PRECISION_TF32CONV] = "tf32conv", [LK_PRECISION_AUTO] = "auto", NULL};

lk_precision lk__device_precision(const char *name, lk_precision wanted)
{
    const lk_device_type *type = lk__device_find(name);
    if (wanted != LK_PRECISION_AUTO)
        return wanted;
    return type ? type->precision : LK_PRECISION_FP32;
}

bool lk__device_has_precision(const char *name, lk_precision wanted)
{
    const lk_device_type *type = lk__device_find(name);
    return !type || type->precisions == 0 || (type->precisions & 1u << wanted) != 0;
}

static lk_status fail_name(const char *name)
{
    char known[128];
    lk__names_join(&(lk_names){.next = next_name}, known, sizeof known);
    return lk__fail(LK_STATUS_USAGE, "`device` '%s' is not in this build; there is: %s", name, known);
}

const lk_device_type *lk__device_find(const char *name)
{
    size_t length = strcspn(name, ":");
    const lk_device_type *type;
    for (size_t i = 0; (type = lk__device_list(i)); i++)
        if (strlen(type->name) == length && strncmp(type->name, name, length) == 0)
            break;
    return type;
}

const lk_channel_type *lk__device_find_channel(const char *name, const char *channel)
{
    const lk_device_type *type = lk__device_find(name);
    const lk_channel_type *const *list = type ? type->channels : NULL;
    while (list && *list && channel && strcmp((*list)->name, channel) != 0)
        list++;
    return list && channel ? *list : NULL;
}

static lk_status read_name(const char *name, const lk_device_type **type, int *out)
{
    const char *number = strchr(name, ':');
    long long index = 0;
    *type = lk__device_find(name);
    if (!*type)
        return fail_name(name);
    if (number && !lk__number_parse_int(number + 1, 0, 65535, &index))
        return lk__fail(LK_STATUS_USAGE,
                        "`device` '%s': the part after ':' must be a number from 0 to 65535, as in %s:1", name,
                        (*type)->name);
    *out = (int)index;
    return LK_OK;
}

lk_status lk__device_open(const char *name, const lk_device_opts *opts, lk_device **out)
{
    const lk_device_type *type;
    lk_device_opts chosen = *opts;
    LK_TRY(read_name(name, &type, &chosen.index));
    return type->open(&chosen, out);
}

lk_status lk__device_probe(const char *name, size_t need)
{
    const lk_device_type *type;
    int index = 0;
    LK_TRY(read_name(name, &type, &index));
    return type->probe ? type->probe(index, need) : LK_OK;
}

bool lk__device_address(const char *name, char out[LK_DEVICE_ADDRESS])
{
    const lk_device_type *type;
    int index = 0;
    return read_name(name, &type, &index) == LK_OK && type->address && type->address(index, out);
}

size_t lk__device_facts(const char *name, lk_device_fact out[LK_DEVICE_FACTS])
{
    const lk_device_type *type;
    int index = 0;
    return read_name(name, &type, &index) == LK_OK && type->facts ? type->facts(index, out) : 0;
}

void lk__device_close(lk_device *dev)
{
    if (dev)
        dev->type->close(dev);
}
