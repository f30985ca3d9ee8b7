/* hostlist.h - Slurm's short texts: lists of hosts, "n[1-4,7],gpu-[001-003],r[1-2]n[01-04],login", and counts for
 * each node, "2(x3),1". Nothing is allocated, and the work is bounded by the length of the text: a list of a
 * billion hosts takes as long as its text. */
#ifndef LK_COMM_DETECT_HOSTLIST_H
#define LK_COMM_DETECT_HOSTLIST_H

#include <stdbool.h>
#include <stddef.h>

enum { LK_HOSTLIST_NAME = 256, LK_HOSTLIST_MOST = 1 << 20 };

/* The number of hosts in the list; -1 if the text is no list, or has more than LK_HOSTLIST_MOST hosts. */
int lk__hostlist_count(const char *list);
/* Writes the name of host `index`, from 0, in the order of the list: the last bracket of a name counts fastest.
 * false if the text is no list, if there is no such host, or if its name needs more than `bytes`. */
bool lk__hostlist_name(const char *list, int index, char *name, size_t bytes);

/* The sum of the counts; -1 if the text is no list of counts, or if there are more than LK_HOSTLIST_MOST nodes or
 * tasks. */
int lk__hostlist_tasks(const char *counts);
/* The count of node `index`; -1 if there is none. *before (may be NULL) gets the sum of the counts before it. */
int lk__hostlist_tasks_of(const char *counts, int index, int *before);

#endif
