/* limits.c - the peak of a core and the bandwidth of memory. */
#include "cli/bench/limits.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

/* More than the caches of most machines hold, in tasks of the size of a kernel's. */
enum { COPY_BYTES = 128 << 20, TASK_BYTES = 1 << 20, COPIES = 5 };

double lk__bench_peak(const lk_cpu_build *build, size_t rounds)
{
    double began = lk__clock(), work = build->peak(rounds);
    return 1e-9 * work / (lk__clock() - began);
}

typedef struct copy_job {
    char *from, *to; // (COPY_BYTES)
} copy_job;

static void copy_task(void *arg, size_t index, int thread)
{
    (void)thread;
    const copy_job *job = arg;
    memcpy(job->to + index * TASK_BYTES, job->from + index * TASK_BYTES, TASK_BYTES);
}

lk_status lk__bench_bandwidth(lk_device *dev, double *out)
{
    copy_job job;
    lk_status status;
    double fastest = 0;
    LK_TRY(LK_ALLOC(COPY_BYTES, "a copy", &job.from));
    LK_TRY_GOTO(LK_ALLOC(COPY_BYTES, "a copy", &job.to), free_from);
    memset(job.from, 1, COPY_BYTES);
    memset(job.to, 2, COPY_BYTES);
    for (int i = 0; i < COPIES; i++) {
        double began = lk__clock();
        lk__pool_run(lk__cpu_pool(dev), COPY_BYTES / TASK_BYTES, copy_task, &job);
        double rate = 2e-9 * COPY_BYTES / (lk__clock() - began);
        fastest = rate > fastest ? rate : fastest;
    }
    *out = fastest;
    lk__mem_free(job.to);

free_from:
    lk__mem_free(job.from);
    return status;
}
