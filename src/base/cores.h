/* cores.h - how many cores this process may use. */
#ifndef LK_BASE_CORES_H
#define LK_BASE_CORES_H

#include <stdint.h>

/* The number of cpu_set_t in a set of CPUs: one alone, of 1024 CPUs, is too small for the largest hosts. */
enum { LK_CORES_SETS = 8 };

/* The cores of this process's affinity, or those that its control group's quota keeps busy if they
 * are fewer; at least 1. */
int lk__cores(void);
/* The cores for each process when several share: `sharers` processes have this affinity and
 * `neighbours` have this quota; both counts include this process. 0: less than one core each. */
int lk__cores_part(int sharers, int neighbours);
/* A hash of the set of cores in the affinity. */
uint64_t lk__cores_set(void);

/* The cores that the quota alone allows, rounded down; INT_MAX without a quota. The system's files
 * are read below root; "" is this system. */
int lk__cores_quota(const char *root);

#endif
