/* plan.c - makes the plan of a job from the options, the devices and the way in which this process was started. */
#include "cli/job/plan.h"

#include <stdio.h>
#include <string.h>

#include "base/cores.h"
#include "base/mem.h"
#include "base/tree.h"

/* Makes options point to texts inside this plan. */
static void bind_texts(lk_job_plan *plan)
{
    plan->train.device = plan->devices.name[0];
    if (*plan->mode.whole)
        plan->train.stages = plan->mode.whole;
}

/* The threads of each rank where the scheduler gives this process fewer cores than its affinity has: its neighbours
 * have the same affinity. 0: the affinity is right. */
static int task_threads(const lk_join *join, int ranks)
{
    int cores = lk__cores(), part = cores / (join->local_size > 0 ? join->local_size : 1);
    if (join->cpus == 0 || join->cpus >= cores)
        return 0;
    int mine = (join->cpus < part ? join->cpus : part) / ranks;
    return mine > 0 ? mine : 1;
}

/* A device that does not have the precision of a checkpoint goes on in its own. */
static lk_precision choose_precision(const lk_args *args, const char *device)
{
    lk_precision wanted = lk__device_precision(device, args->train.precision);
    bool keep = args->precision_given || lk__device_has_precision(device, wanted);
    return keep ? wanted : lk__device_precision(device, LK_PRECISION_AUTO);
}

/* Sets the options that depend on the plan's ranks and devices. */
static void fill_options(const lk_args *args, lk_job_plan *plan)
{
    lk_train_opts *opts = &plan->train;
    *opts = args->train;
    bind_texts(plan);
    if (!opts->threads)
        opts->threads = task_threads(&plan->join, plan->devices.count);
    if (!args->shards_given)
        opts->shards = lk__train_default_shards(opts, plan->join.processes * plan->devices.count);
    opts->precision = choose_precision(args, plan->devices.name[0]);
}

static lk_status choose_mode(const lk_args *args, const lk_join *join, int devices, lk_mode *out)
{
    lk_mode_facts facts = {.asked = (lk_args_parallel)args->parallel,
                           .processes = join->processes,
                           .alone = !join->size_known,
                           .devices = devices,
                           .stages = args->train.stages,
                           .pipelined = args->train.pipelined};
    if (join->processes > 0)
        return lk__mode_choose(&facts, out);
    *out = (lk_mode){.parallel = LK_ARGS_PARALLEL_AUTO};
    return LK_OK;
}

/* Refuses options that would have no effect. */
static lk_status check_backend(const lk_args *args, const lk_join *join, const lk_devices *devices)
{
    bool threads = join->way == LK_JOIN_WAY_ALONE && devices->count > 1;
    const lk_device_type *type = lk__device_find(devices->name[0]);
    /* If the devices could sum gradients, the option makes the host do it, so it has an effect. */
    if (!args->backend || !threads || strcmp(args->backend, "auto") == 0 || (type && type->channels))
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE,
                    "`backend` %s is for ranks of several processes, and threads of one process need no backend: leave "
                    "it out, or start processes with -n 2",
                    args->backend);
}

lk_devices lk__job_plan_host(const char *command, const lk_args *args, int nproc)
{
    lk_devices devices = args->devices;
    bool dp = args->parallel == LK_ARGS_PARALLEL_DP;
    char gpus[64];
    if (!lk__devices_crowded(&devices, dp, nproc))
        return devices;
    snprintf(gpus, sizeof gpus, devices.count == 1 ? "%s" : "%s and %d more", devices.name[0], devices.count - 1);
    fprintf(stderr,
            "lockstep %s: %d ranks would share %s, many times slower than one rank on a GPU, so all use the CPU; "
            "'-n %d' starts one rank for each GPU, '--devices %s' makes all share that one\n",
            command, nproc, gpus, devices.count, devices.name[0]);
    if (!dp)
        devices.count = 1; /* shared by all ranks */
    lk__devices_use_cpu(&devices);
    return devices;
}

static lk_status take_devices(const lk_args *args, const lk_devices *host, const lk_join *join, lk_devices *out)
{
    return lk__devices_share(host, args->parallel == LK_ARGS_PARALLEL_DP, join->local_rank, join->local_size, out);
}

lk_status lk__job_plan_make(const lk_args *args, const lk_devices *host, const lk_join *join, lk_job_plan *out)
{
    lk_devices devices;
    lk_mode mode;
    LK_TRY(take_devices(args, host, join, &devices));
    LK_TRY(choose_mode(args, join, devices.count, &mode));
    LK_TRY(check_backend(args, join, &devices));
    *out = (lk_job_plan){.join = *join, .host = *host, .devices = devices, .mode = mode};
    fill_options(args, out);
    return LK_OK;
}

/* The scheduler has started the launcher, and the launcher the rank. */
static void take_started(const lk_job_plan *launcher, lk_job_plan *out)
{
    memcpy(out->join.started, launcher->join.started, sizeof out->join.started);
}

lk_status lk__job_plan_inherit(const lk_args *args, const lk_job_plan *launcher, const lk_join *join, lk_job_plan *out)
{
    lk_devices devices;
    if (launcher->mode.parallel == LK_ARGS_PARALLEL_AUTO) {
        LK_TRY(lk__job_plan_make(args, &launcher->host, join, out));
        take_started(launcher, out);
        return LK_OK;
    }
    LK_TRY(take_devices(args, &launcher->host, join, &devices));
    LK_TRY(check_backend(args, join, &devices));
    *out = *launcher;
    out->join = *join;
    out->devices = devices;
    take_started(launcher, out);
    bind_texts(out);
    return LK_OK;
}

void lk__job_plan_ranks(const lk_args *args, int ranks, lk_job_plan *out)
{
    *out = (lk_job_plan){.join = {.processes = ranks}, .host = args->devices, .devices = args->devices};
    out->devices.count = 1;
    fill_options(args, out);
}

lk_status lk__job_plan_one_device(const lk_args *args, const char *command, int ranks, lk_job_plan *out)
{
    const lk_devices *all = &args->devices;
    if (all->named && all->count > 1)
        return lk__fail(LK_STATUS_USAGE, "%s: runs on one device, and %d are named; name one: `devices` %s", command,
                        all->count, all->name[0]);
    lk__job_plan_ranks(args, ranks, out);
    return LK_OK;
}

void lk__job_plan_on_cpu(const lk_args *args, const lk_job_plan *gpus, lk_job_plan *out)
{
    *out = *gpus;
    lk__devices_use_cpu(&out->host);
    lk__devices_use_cpu(&out->devices);
    fill_options(args, out);
}

void lk__job_plan_print_cpu(const char *command, const char *why)
{
    fprintf(stderr,
            "lockstep %s: %s; the CPU is used, as no devices were named ('--devices cuda:0' insists on a GPU)\n",
            command, lk__args_spell(why));
}
