/* clock.h - time in seconds. */
#ifndef LK_BASE_CLOCK_H
#define LK_BASE_CLOCK_H

double lk__clock(void); /* monotonic */

/* Seconds since this process was started, to the kernel's clock tick; used to
 * tell how long the start took. 0 where it cannot be known. */
double lk__clock_since_exec(void);

#endif
