/* cgroup.h - the control groups of this process.
 *
 * A limit can be set on a process's own group and on each of its parents; the smallest counts. */
#ifndef LK_BASE_CGROUP_H
#define LK_BASE_CGROUP_H

enum { LK_CGROUP_PATH = 8192 }; /* bytes of the longest folder path */

/* Calls visit(arg, folder, version) for the group that limits this process by `controller`
 * ("memory", "cpu") and then for its parents, from the inside out. The folder may not exist.
 * version is the cgroup version, 1 or 2; their file names differ. The system's files are read below
 * root; "" is this system. */
typedef void (*lk_cgroup_fn)(void *arg, const char *folder, int version);
void lk__cgroup_visit(const char *root, const char *controller, lk_cgroup_fn visit, void *arg);

#endif
