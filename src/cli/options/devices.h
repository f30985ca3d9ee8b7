/* devices.h - reads --devices and --gpu-ids as a checked list of devices, and chooses those of one process.
 * Opens no device. */
#ifndef LK_CLI_OPTIONS_DEVICES_H
#define LK_CLI_OPTIONS_DEVICES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "tensor/device.h"

enum { LK_DEVICES_MAX = 64, LK_DEVICE_NAME_BYTES = 16 };

/* Devices of one kind, in the given order, one for each rank. A device that is listed twice has two ranks. */
typedef struct lk_devices {
    int count;  /* at least 1 */
    bool named; /* the user named these devices, so no others may be used; false for "auto" */
    char name[LK_DEVICES_MAX][LK_DEVICE_NAME_BYTES]; /* for lk__device_open: "cpu", "cpu:1", "cuda:12" */
} lk_devices;

/* The command line; NULL and "" both mean: not given. */
typedef struct lk_devices_choice {
    const char *devices; /* --devices: "auto" (the default), "cpu", "cpu:0,cpu:1", "cuda:0,cuda:2" */
    const char *gpu_ids; /* --gpu-ids: "1,6,3" is cuda:1, cuda:6 and cuda:3 */
    bool no_cuda;        /* --no-cuda: "auto" is the CPU, and other kinds are refused */
} lk_devices_choice;

/* Rows of a device table, NULL after the last: lk__device_list, or a test's. */
typedef const lk_device_type *(*lk_devices_table)(size_t index);

/* "auto" is all devices (LK_DEVICES_MAX at most) of the first kind that counts its devices and has any,
 * otherwise the CPU. USAGE for a list that is misspelt, mixes kinds, contradicts itself or has more than
 * LK_DEVICES_MAX; UNSUPPORTED for devices that this build or this machine does not have. */
lk_status lk__devices_choose(const lk_devices_choice *choice, lk_devices_table table, lk_devices *out) LK_CHECKED;

/* Replaces the devices by the CPU, with the same number of ranks. */
void lk__devices_use_cpu(lk_devices *list);

/* Whether "auto" found GPUs, but fewer than local_size processes need: one each, or with dp all of them each. */
bool lk__devices_crowded(const lk_devices *all, bool dp, int local_size);

/* The devices of one of the local_size processes of this host. All devices: with dp, where a process runs one
 * rank on each, and if local_size is 0, as for a process started by hand. A single device is shared by all
 * processes. Otherwise the process gets part local_rank of local_size equal parts; USAGE if the devices cannot
 * be divided equally. */
lk_status lk__devices_share(const lk_devices *all, bool dp, int local_rank, int local_size, lk_devices *out) LK_CHECKED;

#endif
