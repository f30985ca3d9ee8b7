/* list.c - finds the run folders in a folder. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "record/read.h"

enum { PATH_BYTES = 4096 };

bool lk__record_is_run(const char *folder)
{
    char path[PATH_BYTES];
    return lk__path_join(folder, "run.json", path, sizeof path) && lk__file_exists(path);
}

static bool is_listed(const char *dir, const char *name)
{
    char folder[PATH_BYTES];
    return name[0] != '.' && lk__path_join(dir, name, folder, sizeof folder) && lk__record_is_run(folder);
}

static lk_status add_name(lk_record_list *list, size_t *room, const char *name)
{
    if (list->count == *room)
        LK_TRY(LK_GROW(list->count, "list of run folders", room, &list->names));
    LK_TRY(lk__mem_copy_text(name, "name of a run folder", &list->names[list->count]));
    list->count++;
    return LK_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

lk_status lk__record_list(const char *dir, lk_record_list **out)
{
    lk_record_list *list;
    size_t room = 0;
    lk_status status = LK_OK;
    DIR *opened = opendir(dir);
    if (!opened)
        return lk__fail(lk__status_of(errno), "cannot open the folder %s: %s", dir, strerror(errno));
    LK_TRY_GOTO(LK_ALLOC(1, "list of run folders", &list), close_folder);
    for (const struct dirent *entry; status == LK_OK && (entry = readdir(opened)) != NULL;) {
        if (is_listed(dir, entry->d_name))
            status = add_name(list, &room, entry->d_name);
    }
    if (status == LK_OK) {
        if (list->count > 0)
            qsort(list->names, list->count, sizeof *list->names, by_name);
        *out = list;
    } else
        lk__record_list_destroy(list);
close_folder:
    closedir(opened);
    return status;
}

void lk__record_list_destroy(lk_record_list *list)
{
    if (!list)
        return;
    for (size_t i = 0; i < list->count; i++)
        lk__mem_free(list->names[i]);
    lk__mem_free(list->names);
    lk__mem_free(list);
}
