/* devices.h - --devices and --gpu-ids as a checked list of devices, and which of
 * them a process takes. Nothing is opened here. */
#ifndef LK_CLI_OPTIONS_DEVICES_H
#define LK_CLI_OPTIONS_DEVICES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "tensor/device.h"

enum { LK_DEVICES_MAX = 64, LK_DEVICE_NAME_BYTES = 16 };

/* Devices of one kind, in the order in which they were asked for, a rank each. One
 * that is there twice has two ranks. */
typedef struct lk_devices {
    int count;                                       /* at least 1 */
    bool named;                                      /* no other devices will do; not with "auto" */
    char name[LK_DEVICES_MAX][LK_DEVICE_NAME_BYTES]; /* for lk__device_open: "cpu", "cpu:1", "cuda:12" */
} lk_devices;

/* What the command line says; NULL and "" are the same: not given. */
typedef struct lk_devices_choice {
    const char *devices; /* --devices: "auto" (the default), "cpu", "cpu:0,cpu:1", "cuda:0,cuda:2" */
    const char *gpu_ids; /* --gpu-ids: "1,6,3" is cuda:1, cuda:6 and cuda:3 */
    bool no_cuda;        /* --no-cuda: "auto" is the CPU, and other kinds are refused */
} lk_devices_choice;

/* Rows of a device table, NULL after the last: lk__device_list, or a test's. */
typedef const lk_device_type *(*lk_devices_table)(size_t index);

/* "auto" is all devices (LK_DEVICES_MAX at most) of the first kind that counts
 * its devices and has any, otherwise the CPU. USAGE for what is misspelt, of
 * several kinds, contradictory or more than LK_DEVICES_MAX; UNSUPPORTED
 * for what this build or this machine does not have. */
lk_status lk__devices_choose(const lk_devices_choice *choice, lk_devices_table table, lk_devices *out) LK_CHECKED;

/* Whether devices of this name are fastest with few shards, as GPUs are. */
bool lk__devices_few_shards(const char *name);

/* The same number of ranks on the CPU. */
void lk__devices_use_cpu(lk_devices *list);

/* Whether "auto" found devices, which are GPUs then, and fewer than local_size
 * processes need that take one each, or all of them each with dp. */
bool lk__devices_crowded(const lk_devices *all, bool dp, int local_size);

/* The devices of one of the local_size processes of this host. All of them with
 * dp, where a process runs a rank on each, and when local_size is 0, as it is
 * for a process started by hand; a single device is everyone's; otherwise the
 * process takes the local_rank-th of local_size equal parts, and USAGE when the
 * devices cannot be cut into such. */
lk_status lk__devices_share(const lk_devices *all, bool dp, int local_rank, int local_size, lk_devices *out) LK_CHECKED;

#endif
