/* cgroup.c - finds the folders of this process's control groups with /proc/self/cgroup. */
#include "base/cgroup.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { PATH = LK_CGROUP_PATH / 2 };

/* Whether a list such as "cpu,cpuacct" has this name; changes the list. */
static bool has_name(char *list, const char *name)
{
    char *rest = NULL;
    for (char *at = strtok_r(list, ",", &rest); at; at = strtok_r(NULL, ",", &rest))
        if (strcmp(at, name) == 0)
            return true;
    return false;
}

/* Visits the group and its parents. In a container the path may be the host's and not exist here;
 * the top folder is then the container's group. */
static void visit_upwards(const char *mount, char *group, int version, lk_cgroup_fn visit, void *arg)
{
    char folder[LK_CGROUP_PATH];
    for (;;) {
        char *slash = strrchr(group, '/');
        snprintf(folder, sizeof folder, "%s%s", mount, group);
        visit(arg, folder, version);
        if (!slash)
            return;
        *slash = '\0';
    }
}

/* Lines are "4:cpu,cpuacct:/path" for version 1 and "0::/path" for version 2. */
void lk__cgroup_visit(const char *root, const char *controller, lk_cgroup_fn visit, void *arg)
{
    char path[PATH], mount[PATH], line[PATH];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
        if (!group)
            continue;
        *names++ = *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        if (!*names) {
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
            visit_upwards(mount, group, 2, visit, arg);
        } else if (has_name(names, controller)) {
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/%s", root, controller);
            visit_upwards(mount, group, 1, visit, arg);
        }
    }
    if (file)
        fclose(file);
}
