/* clock.h - time in seconds. */
#ifndef LK_BASE_CLOCK_H
#define LK_BASE_CLOCK_H

double lk__clock(void); /* monotonic */

/* Since 1970. */
double lk__clock_unix(void);

/* Seconds since this process was started, in the kernel's clock ticks; measures how long the start
 * took. 0 if unknown. */
double lk__clock_since_exec(void);

/* CPU time of this process, all threads together. */
double lk__clock_cpu(void);

/* CPU time of the calling thread. */
double lk__clock_thread(void);

/* Sleeps for at most `duration` seconds; 0 or less: not at all. A signal ends the sleep early. */
void lk__clock_sleep(double duration);

#endif
