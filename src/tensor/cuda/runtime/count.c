/* count.c - the number of GPUs that CUDA would find, from files and one environment variable only.
 *
 * The driver's files are /dev/nvidia0, /dev/nvidia1, ..., and one folder for each GPU in
 * /proc/driver/nvidia/gpus. The variable is read as the driver reads it: its list ends before the first item
 * that is not a GPU, and a GPU that is listed twice makes the whole list invalid, so that no GPU is visible. */
#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tensor/cuda/runtime/query.h"

enum { MAX_GPUS = 64, UUID_BYTES = 64, PATH_BYTES = 512 };

typedef struct gpus {
    int count;
    int uuids; /* number of known UUIDs: of all GPUs, or 0 */
    char uuid[MAX_GPUS][UUID_BYTES];
} gpus;

/* True for "nvidia0" and so on, not for "nvidiactl" and "nvidia-uvm". */
static bool is_node(const char *name)
{
    static const char prefix[] = "nvidia";
    size_t length = sizeof prefix - 1;
    return strncmp(name, prefix, length) == 0 && name[length] != '\0' &&
           strspn(name + length, "0123456789") == strlen(name + length);
}

static int count_nodes(const char *root)
{
    char path[PATH_BYTES];
    const struct dirent *entry;
    int count = 0;
    snprintf(path, sizeof path, "%s/dev", root);
    DIR *folder = opendir(path);
    if (!folder)
        return 0;
    while (count < MAX_GPUS && (entry = readdir(folder))) {
        snprintf(path, sizeof path, "%s/dev/%s", root, entry->d_name);
        if (is_node(entry->d_name) && access(path, R_OK | W_OK) == 0)
            count++;
    }
    closedir(folder);
    return count;
}

/* Reads "GPU-..." from a GPU's file. The file contains '?' while the driver does not know the UUID. */
static bool read_uuid(const char *path, char uuid[UUID_BYTES])
{
    static const char key[] = "GPU UUID:";
    char line[256];
    bool found = false;
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    while (!found && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, sizeof key - 1) == 0)
            found = sscanf(line + sizeof key - 1, " %63s", uuid) == 1 && !strchr(uuid, '?');
    }
    fclose(file);
    return found;
}

static void read_uuids(const char *root, gpus *have)
{
    char path[PATH_BYTES];
    const struct dirent *entry;
    bool all = true;
    snprintf(path, sizeof path, "%s/proc/driver/nvidia/gpus", root);
    DIR *folder = opendir(path);
    if (!folder)
        return;
    while (have->uuids < MAX_GPUS && (entry = readdir(folder))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/proc/driver/nvidia/gpus/%s/information", root, entry->d_name);
        if (read_uuid(path, have->uuid[have->uuids]))
            have->uuids++;
        else
            all = false;
    }
    closedir(folder);
    if (!all)
        have->uuids = 0;
}

/* The GPU of an item, -1 for none; `before` is the number of earlier items. */
static int find_number(const gpus *have, const char *item, int before)
{
    (void)before;
    if (!isdigit((unsigned char)*item))
        return -1;
    unsigned long number = strtoul(item, NULL, 10);
    return number < (unsigned long)have->count ? (int)number : -1;
}

/* An item may be the beginning of a UUID if no other UUID begins with it. */
static int find_uuid(const gpus *have, const char *item, int before)
{
    size_t length = strcspn(item, ", ");
    int found = -1;
    if (strncmp(item, "GPU-", 4) != 0)
        return -1;
    if (have->uuids == 0)
        return before < have->count ? before : -1;
    for (int i = 0; i < have->uuids; i++) {
        if (strncmp(have->uuid[i], item, length) != 0)
            continue;
        if (found >= 0)
            return -1;
        found = i;
    }
    return found;
}

static int count_visible(const gpus *have, const char *visible)
{
    int seen[MAX_GPUS], count = 0;
    int (*find)(const gpus *, const char *, int) = strncmp(visible, "GPU-", 4) == 0 ? find_uuid : find_number;
    for (const char *item = visible;; item++) {
        item += strspn(item, " ");
        int gpu = find(have, item, count);
        if (gpu < 0)
            return count;
        for (int i = 0; i < count; i++) {
            if (seen[i] == gpu)
                return 0;
        }
        seen[count++] = gpu;
        item += strcspn(item, ",");
        if (!*item)
            return count;
    }
}

int lk__cuda_count_below(const char *root, const char *visible)
{
    gpus have = {.count = count_nodes(root)};
    if (!visible || have.count == 0)
        return have.count;
    /* A part of a GPU: CUDA shows at most one. */
    if (strncmp(visible, "MIG-", 4) == 0)
        return 1;
    read_uuids(root, &have);
    return count_visible(&have, visible);
}

int lk__cuda_count(void)
{
    return lk__cuda_count_below("", getenv("CUDA_VISIBLE_DEVICES"));
}
