/* cores.h - how many cores this process may use. */
#ifndef LK_BASE_CORES_H
#define LK_BASE_CORES_H

#include <stdint.h>

/* Those of its affinity, or as many as the quota of its control group keeps busy
 * if that is fewer; at least 1. */
int lk__cores(void);
/* The same for each of several processes: `sharers` have this affinity, and
 * `neighbours` this quota, this one among them. 0: less than one. */
int lk__cores_part(int sharers, int neighbours);
/* A hash of which cores the affinity has. */
uint64_t lk__cores_set(void);

/* The quota alone, rounded down; INT_MAX without one. The system's files are read
 * below root: "" is this system. */
int lk__cores_quota(const char *root);

#endif
