/* load.c - the table of plug-ins, their folders, and dlopen. */
#define _GNU_SOURCE /* RTLD_NOLOAD, dl_iterate_phdr */
#include "comm/mpi/load.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/libraries.h"

#ifndef LK_PLUGINS_DIR
#define LK_PLUGINS_DIR "/usr/local/lib/lockstep"
#endif
#ifndef LK_PLUGINS_FROM_BIN
#define LK_PLUGINS_FROM_BIN "../lib/lockstep"
#endif

enum { FOLDERS = 3 };

static const lk_mpi_module modules[] = {
    {"openmpi", "Open MPI", "libopenmpi-dev"},
    {"mpich", "MPICH", "libmpich-dev"},
};
enum { MODULE_COUNT = sizeof modules / sizeof *modules };

/* Variables that a launcher sets, and the plug-in that can talk to this launcher. Open MPI comes first: its
 * mpirun sets variables of PMIx as well, and MPICH's sets those of PMI only. */
static const struct sign {
    const char *variable;
    const char *module;
} signs[] = {
    {"OMPI_COMM_WORLD_SIZE", "openmpi"},
    {"PMIX_RANK", "openmpi"},
    {"PMI_RANK", "mpich"},
    {"PMI_SIZE", "mpich"},
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const lk_mpi *loaded;

const lk_mpi_module *lk__mpi_module_list(size_t index)
{
    return index < MODULE_COUNT ? &modules[index] : NULL;
}

static const lk_mpi_module *module_called(const char *name)
{
    for (size_t i = 0; i < MODULE_COUNT; i++)
        if (strcmp(modules[i].name, name) == 0)
            return &modules[i];
    return NULL;
}

/* The folder of the program's file; "" if unknown. */
static void program_folder(char folder[LK_MPI_PATH])
{
    ssize_t bytes = readlink("/proc/self/exe", folder, LK_MPI_PATH - 1);
    folder[bytes > 0 ? bytes : 0] = 0;
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = 0;
}

/* Writes the folders to search; returns their count. */
static int search_folders(char folders[FOLDERS][LK_MPI_PATH])
{
    const char *given = getenv("LOCKSTEP_PLUGINS");
    char program[LK_MPI_PATH];
    if (given && *given) {
        snprintf(folders[0], LK_MPI_PATH, "%s", given);
        return 1;
    }
    program_folder(program);
    snprintf(folders[0], LK_MPI_PATH, "%s", program);
    snprintf(folders[1], LK_MPI_PATH, "%.*s/%s", LK_MPI_PATH - 256, program, LK_PLUGINS_FROM_BIN);
    snprintf(folders[2], LK_MPI_PATH, "%s", LK_PLUGINS_DIR);
    return FOLDERS;
}

static lk_status fail_missing(const lk_mpi_module *module, char folders[FOLDERS][LK_MPI_PATH], int count)
{
    char text[1024];
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < count && used < sizeof text; i++) {
        int added = snprintf(text + used, sizeof text - used, "%s%s", i ? ", " : "", folders[i]);
        used += added > 0 ? (size_t)added : 0;
    }
    return lk__fail(LK_STATUS_NOT_FOUND,
                    "the plug-in for %s, lockstep-%s.so, is in none of these folders: %s. A build makes it where %s is "
                    "installed; $LOCKSTEP_PLUGINS may name its folder",
                    module->library, module->name, text, module->package);
}

lk_status lk__mpi_module_find(const lk_mpi_module *module, char path[LK_MPI_PATH])
{
    char folders[FOLDERS][LK_MPI_PATH];
    int count = search_folders(folders);
    for (int i = 0; i < count; i++) {
        char file[LK_MPI_PATH];
        int bytes = snprintf(file, sizeof file, "%s/lockstep-%s.so", folders[i], module->name);
        if (bytes > 0 && bytes < LK_MPI_PATH && access(file, R_OK) == 0) {
            memcpy(path, file, (size_t)bytes + 1);
            return LK_OK;
        }
    }
    return fail_missing(module, folders, count);
}

/* NULL if no plug-in is chosen, or one that Lockstep does not know. */
static const lk_mpi_module *find_chosen(const char *named, const char **because)
{
    *because = "LOCKSTEP_MPI";
    if (named && *named)
        return module_called(named);
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        *because = signs[i].variable;
        if (getenv(signs[i].variable))
            return module_called(signs[i].module);
    }
    return NULL;
}

bool lk__mpi_module_is_chosen(void)
{
    const char *because;
    return find_chosen(getenv("LOCKSTEP_MPI"), &because) != NULL;
}

lk_status lk__mpi_module_choose(const lk_mpi_module **out, const char **because)
{
    const char *named = getenv("LOCKSTEP_MPI"), *variable;
    const lk_mpi_module *module = find_chosen(named, &variable);
    if (module) {
        *out = module;
        *because = variable;
        return LK_OK;
    }
    if (named && *named)
        return lk__fail(LK_STATUS_USAGE, "the variable LOCKSTEP_MPI is '%s': it must be openmpi or mpich", named);
    return lk__fail(LK_STATUS_USAGE, "no MPI launcher has started this process, so MPI cannot connect its ranks: start "
                                     "them with mpirun or srun --mpi, as in `mpirun -n 4 lockstep train ...`, or leave "
                                     "`backend` mpi out");
}

static const lk_mpi *call_module(void *handle)
{
    const lk_mpi *(*plugin)(void);
    return lk__library_symbol(handle, "lk__mpi_plugin", &plugin) ? plugin() : NULL;
}

/* The module stays loaded: MPI cannot be started twice. Its symbols are global, because parts of an MPI
 * library that the library loads itself may need them. */
static lk_status open_module(const char *path, const lk_mpi **out)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!handle) {
        const char *why = dlerror();
        return lk__fail(LK_STATUS_UNSUPPORTED, "the plug-in %s cannot be loaded: %s", path, why ? why : "no reason");
    }
    const lk_mpi *table = call_module(handle);
    if (table && table->version == LK_MPI_VERSION) {
        *out = table;
        return LK_OK;
    }
    lk_status status = lk__fail(LK_STATUS_UNSUPPORTED,
                                "%s is of another version of Lockstep (its table has version %u, this program needs "
                                "%d): install the plug-in of this build",
                                path, table ? table->version : 0, LK_MPI_VERSION);
    dlclose(handle);
    return status;
}

static lk_status load_chosen(void)
{
    const lk_mpi_module *module = NULL;
    const char *because = NULL;
    char path[LK_MPI_PATH];
    LK_TRY(lk__mpi_module_choose(&module, &because));
    LK_TRY(lk__mpi_module_find(module, path));
    return open_module(path, &loaded);
}

lk_status lk__mpi_load(const lk_mpi **out)
{
    pthread_mutex_lock(&lock);
    lk_status status = loaded ? LK_OK : load_chosen();
    if (status == LK_OK)
        *out = loaded;
    pthread_mutex_unlock(&lock);
    return status;
}

/* Files of MPI libraries that the process has loaded. */
enum { MOST_FILES = 8 };
typedef struct loaded_files {
    int count;
    char paths[MOST_FILES][LK_MPI_PATH];
} loaded_files;

static int note_file(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    loaded_files *files = arg;
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    (void)bytes;
    if (slash && strncmp(slash, "/libmpi", 7) == 0 && files->count < MOST_FILES)
        snprintf(files->paths[files->count++], LK_MPI_PATH, "%s", info->dlpi_name);
    return 0;
}

/* MPI's own functions, found by name: the plug-in is not known yet. MPI_Get_library_version writes at most 8192 bytes
 * with any library. */
static bool is_initialised(void *handle, char text[LK_MPI_TEXT])
{
    int (*initialised)(int *), (*version)(char *, int *);
    char full[16384] = "";
    int begun = 0, length = 0;
    if (!lk__library_symbol(handle, "MPI_Initialized", &initialised) ||
        !lk__library_symbol(handle, "MPI_Get_library_version", &version) || initialised(&begun) != 0 || !begun ||
        version(full, &length) != 0)
        return false;
    full[strcspn(full, "\n")] = 0;
    snprintf(text, LK_MPI_TEXT, "%.*s", LK_MPI_TEXT - 1, full);
    return true;
}

/* Writes the name of the MPI library that is initialised in this process. The program may be linked with it, or may
 * have loaded it as a part of a module, as Python does. */
static bool find_running(char text[LK_MPI_TEXT])
{
    loaded_files *files = calloc(1, sizeof *files);
    bool found = is_initialised(RTLD_DEFAULT, text);
    if (files && !found)
        dl_iterate_phdr(note_file, files);
    for (int i = 0; files && i < files->count && !found; i++) {
        void *handle = dlopen(files->paths[i], RTLD_LAZY | RTLD_NOLOAD);
        found = handle && is_initialised(handle, text);
        if (handle)
            dlclose(handle);
    }
    free(files);
    return found;
}

static const lk_mpi_module *module_of(const char *text)
{
    for (size_t i = 0; i < MODULE_COUNT; i++)
        if (strncmp(text, modules[i].library, strlen(modules[i].library)) == 0)
            return &modules[i];
    return NULL;
}

static lk_status load_of(const char *text)
{
    const lk_mpi_module *module = module_of(text);
    char path[LK_MPI_PATH];
    if (!module)
        return lk__fail(LK_STATUS_UNSUPPORTED,
                        "the program's MPI is '%s', and Lockstep has plug-ins for Open MPI and MPICH only", text);
    if (loaded && strcmp(loaded->name, module->name) != 0)
        return lk__fail(LK_STATUS_UNSUPPORTED,
                        "the program's MPI is '%s', but this process has loaded Lockstep's plug-in for another one "
                        "(%s), so the communicator cannot be used: set LOCKSTEP_MPI to %s, or unset it",
                        text, loaded->name, module->name);
    if (loaded)
        return LK_OK;
    LK_TRY(lk__mpi_module_find(module, path));
    return open_module(path, &loaded);
}

/* A table that was given (lk__mpi_use) needs no library that can be found by name. */
lk_status lk__mpi_load_running(const lk_mpi **out)
{
    char text[LK_MPI_TEXT];
    lk_status status = LK_OK;
    pthread_mutex_lock(&lock);
    if (find_running(text))
        status = load_of(text);
    else if (!loaded || !loaded->phase)
        status = lk__fail(LK_STATUS_USAGE, "lk_group_from_mpi: no MPI library is initialised in this process: call "
                                           "MPI_Init_thread first");
    if (status == LK_OK)
        *out = loaded;
    pthread_mutex_unlock(&lock);
    return status;
}

void lk__mpi_use(const lk_mpi *table)
{
    pthread_mutex_lock(&lock);
    loaded = table;
    pthread_mutex_unlock(&lock);
}
