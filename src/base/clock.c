/* clock.c - reads the clocks and the age of the process, and sleeps. */
#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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
    FILE *file = fopen("/proc/self/stat", "r");
    if (!file)
        return 0;
    char line[1024];
    size_t length = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[length] = 0;
    /* The command name may contain spaces, so fields are counted from its ')'. The start time is
     * field 22, the 20th after ')'. */
    const char *cursor = strrchr(line, ')');
    for (int field = 0; cursor && field < 20; field++)
        cursor = strchr(cursor + 1, ' ');
    unsigned long long ticks;
    if (!cursor || sscanf(cursor, "%llu", &ticks) != 1)
        return 0;
    double age = seconds(CLOCK_BOOTTIME) - (double)ticks / (double)sysconf(_SC_CLK_TCK);
    return age > 0 ? age : 0;
}
