/* use.c - what each rank has used: time by phases, CPU time, memory, sensors of its GPU; gathered at rank 0 at the end
 * and, if somebody listens, from time to time. loop.c measures the phases. */
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "data/loader/loader.h"
#include "parallel/engine/backend.h"
#include "tensor/device.h"
#include "train/run.h"

/* Nothing samples a GPU that nobody looks at. */
static void open_gauge(lk_train_run *run)
{
    char address[LK_DEVICE_ADDRESS];
    if (run->uses_every > 0 && lk__device_address(run->self.device, address))
        run->gauge = lk__gauge_create(address);
}

lk_status lk__run_uses_open(lk_train_run *run)
{
    int64_t every = run->hooks->uses ? (int64_t)run->hooks->uses_every : 0;
    lk_group *group = run->rank->group;
    run->cpu_began = lk__clock_cpu();
    if (run->self.rank == 0)
        LK_TRY(lk__run_own_result(run, LK_ALLOC((size_t)run->self.ranks, "the ranks' times", &run->uses)));
    if (group)
        LK_TRY(lk__run_collective_result(run, lk_broadcast(group, (lk_buffer){&every, 1, LK_DTYPE_I64}, 0, NULL)));
    run->uses_every = (size_t)every;
    open_gauge(run);
    return LK_OK;
}

void lk__run_uses_close(lk_train_run *run)
{
    lk__gauge_destroy(run->gauge);
    run->gauge = NULL;
    lk__mem_free(run->uses);
    run->uses = NULL;
    run->result.uses = NULL;
}

/* This rank's use since the start. */
static lk_train_use use_now(const lk_train_run *run)
{
    lk_train_use use = run->use;
    lk_train_phases *phases = &use.phases;
    use.rank = run->self.rank;
    use.shards = run->share.shards > 0 ? run->share.last - run->share.first : run->opts->shards;
    use.seconds = run->result.train_seconds;
    phases->other = use.seconds - phases->data - phases->compute - phases->wait;
    if (phases->other < 0)
        phases->other = 0;
    lk_loader_work work = lk__loader_work(run->loader);
    use.loaded = work.samples;
    use.loader_seconds = work.seconds;
    use.loader_threads = (int64_t)work.threads;
    use.cpu_seconds = lk__clock_cpu() - run->cpu_began;
    use.memory_mb = lk__mem_now_mb();
    use.peak_mb = fmax(lk__mem_peak_mb(), use.memory_mb); /* the kernel updates its maximum late */
    lk_gauge_reading gpu = lk__gauge_read(run->gauge);
    use.gpu_pct = gpu.busy_pct;
    use.gpu_memory_mb = gpu.memory_mb;
    use.gpu_celsius = gpu.celsius;
    /* The host waits for sums over MPI, as for those of the group. */
    use.joint = lk__engine_backend_find(run->self.layout.gradient_backend) == LK_ENGINE_BACKEND_COUNT;
    snprintf(use.host, sizeof use.host, "%s", run->self.host);
    snprintf(use.device, sizeof use.device, "%s", run->self.device);
    return use;
}

static lk_train_use use_between(const lk_train_use *now, const lk_train_use *before)
{
    lk_train_use use = *now;
    use.steps -= before->steps;
    use.samples -= before->samples;
    use.seconds -= before->seconds;
    use.phases.data -= before->phases.data;
    use.phases.compute -= before->phases.compute;
    use.phases.wait -= before->phases.wait;
    use.phases.other -= before->phases.other;
    use.loaded -= before->loaded;
    use.loader_seconds -= before->loader_seconds;
    use.cpu_seconds -= before->cpu_seconds;
    return use;
}

/* Collective: the uses of all ranks, in run->uses at rank 0. */
static lk_status gather_uses(lk_train_run *run, lk_train_use *mine)
{
    if (!run->rank->group) {
        run->uses[0] = *mine;
        return LK_OK;
    }
    lk_buffer data = {mine, sizeof *mine, LK_DTYPE_U8};
    return lk__run_collective_result(run, lk_gather(run->rank->group, data, NULL, run->uses, 0, NULL));
}

lk_status lk__run_uses_step(lk_train_run *run, size_t total)
{
    lk_shard_range share = run->share;
    run->use.steps++;
    run->use.samples += share.shards > 0 ? lk_shard_range_count(share, total) : total;
    if (run->uses_every == 0 || (run->at.batch - 1) % run->uses_every != 0)
        return LK_OK;
    lk_train_use now = use_now(run), use = use_between(&now, &run->used);
    run->used = now;
    LK_TRY(gather_uses(run, &use));
    if (run->self.rank > 0)
        return LK_OK;
    lk_train_uses uses = {
        .step = run->at.step, .seconds = lk__clock() - run->began, .ranks = run->self.ranks, .use = run->uses};
    run->hooks->uses(run->hooks->arg, &uses);
    return LK_OK;
}

lk_status lk__run_uses_end(lk_train_run *run)
{
    lk_train_use use = use_now(run);
    run->result.joint = use.joint;
    LK_TRY(gather_uses(run, &use));
    run->result.uses = run->uses;
    return LK_OK;
}
