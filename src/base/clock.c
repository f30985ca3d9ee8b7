/* clock.c - reads the clocks and the age of the process, and sleeps. */
#include "base/clock.h"

#include <time.h>
#include <unistd.h>

#include "base/process.h"

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double lk__clock(void)
{
    return seconds(CLOCK_MONOTONIC);
}

double lk__clock_unix(void)
{
    return seconds(CLOCK_REALTIME);
}

double lk__clock_cpu(void)
{
    return seconds(CLOCK_PROCESS_CPUTIME_ID);
}

double lk__clock_thread(void)
{
    return seconds(CLOCK_THREAD_CPUTIME_ID);
}

void lk__clock_sleep(double duration)
{
    if (duration <= 0)
        return;
    time_t whole = (time_t)duration;
    struct timespec pause = {.tv_sec = whole, .tv_nsec = (long)((duration - (double)whole) * 1e9)};
    nanosleep(&pause, NULL);
}

double lk__clock_since_exec(void)
{
    lk_process self;
    if (!lk__process_read(0, &self))
        return 0;
    double age = seconds(CLOCK_BOOTTIME) - (double)self.birth / (double)sysconf(_SC_CLK_TCK);
    return age > 0 ? age : 0;
}
