/* gauge.h - how busy, full and hot an NVIDIA GPU is, as the driver's library NVML (libnvidia-ml.so.1) reports.
 *
 * NVML is loaded with dlopen when the first gauge is created. A call of NVML may take milliseconds, so a thread of
 * the gauge makes the calls, twice a second, and readers get the newest reading without waiting for the driver. */
#ifndef LK_TENSOR_GAUGE_H
#define LK_TENSOR_GAUGE_H

#include <stdbool.h>

typedef struct lk_gauge lk_gauge;

/* A number that the GPU does not report is NaN. */
typedef struct lk_gauge_reading {
    double busy_pct;  /* part of the time in which a kernel of any process ran, in percent */
    double memory_mb; /* memory in use, of all processes, in units of 10^6 bytes */
    double celsius;
} lk_gauge_reading;

/* address: the PCI bus id, as "0000:3b:00.0" (lk__device_address). Takes the first reading, then starts the thread.
 * Returns NULL if there is no NVML, no such GPU, or no memory or thread for it. */
lk_gauge *lk__gauge_create(const char *address);
/* The newest reading; all NaN for NULL. */
lk_gauge_reading lk__gauge_read(lk_gauge *gauge);
/* Ends the thread. Waits at most five seconds for a driver that does not answer, then leaves the thread behind. */
void lk__gauge_destroy(lk_gauge *gauge);

#endif
