/* cgroup.h - the control groups that this process is in.
 *
 * A limit may be set to a process's own group and to any group around it; the
 * least of them counts. */
#ifndef LK_BASE_CGROUP_H
#define LK_BASE_CGROUP_H

enum { LK_CGROUP_PATH = 8192 }; /* the longest folder */

/* Calls visit(arg, folder, version) for the group that limits this process by
 * `controller` ("memory", "cpu") and for all groups around it, inner ones first.
 * The folder may not be there. Version is that of cgroups, 1 or 2, which name
 * their files in different ways. The system's files are read below root: "" is
 * this system. */
typedef void (*lk_cgroup_fn)(void *arg, const char *folder, int version);
void lk__cgroup_visit(const char *root, const char *controller, lk_cgroup_fn visit, void *arg);

#endif
