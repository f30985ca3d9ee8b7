/* plan.h - the plan of a job: who starts its ranks, which devices they use, the parallel mode, and the options
 * that depend on these.
 *
 * A plan is made once, from the options and from how this process was started, and does not change: ranks get
 * it as const. Ranks that `train -n` forks take over the plan of their launcher. If a GPU of the plan cannot be
 * used, a second plan is made with the same ranks on the CPU. No device is opened here. */
#ifndef LK_CLI_JOB_PLAN_H
#define LK_CLI_JOB_PLAN_H

#include "cli/job/join.h"
#include "cli/job/mode.h"
#include "cli/options/args.h"

/* A plan must not be moved: train points into it, and into the lk_args from which it was made. */
typedef struct lk_job_plan {
    lk_join join;        /* who starts the ranks, and which process this is */
    lk_devices host;     /* the devices of all processes of this host */
    lk_devices devices;  /* the devices of this process, one for each rank */
    lk_mode mode;        /* parallel is AUTO if join has no number of processes */
    lk_train_opts train; /* options of all ranks, with this plan's stages, shards, precision, device */
} lk_job_plan;

/* The devices of this host for nproc processes: those of the options, or the CPU if "auto" found fewer GPUs, because
 * ranks that share a GPU are far slower than one rank on it. A line on stderr says so; command is for that line. */
lk_devices lk__job_plan_host(const char *command, const lk_args *args, int nproc);
/* The plan of `train`, after lk__args_complete. join->processes is 0 in the launcher of one of several nodes,
 * which does not know how many ranks the other nodes have: then the mode stays AUTO. USAGE for devices that the
 * processes of this host cannot share evenly, and for contradicting options. */
lk_status lk__job_plan_make(const lk_args *args, const lk_devices *host, const lk_join *join,
                            lk_job_plan *out) LK_CHECKED;
/* The plan of a rank that `train -n` has started: the launcher's plan with the devices of this process, and
 * with a mode if the launcher's is AUTO. */
lk_status lk__job_plan_inherit(const lk_args *args, const lk_job_plan *launcher, const lk_join *join,
                               lk_job_plan *out) LK_CHECKED;
/* The plan of a command that names one device at most: the first one. USAGE if several devices are named. command is
 * for messages. */
lk_status lk__job_plan_one_device(const lk_args *args, const char *command, int ranks, lk_job_plan *out) LK_CHECKED;

/* The plan of a command with `ranks` ranks in this process, on the devices in turn. */
void lk__job_plan_ranks(const lk_args *args, int ranks, lk_job_plan *out);

/* The second plan, if a GPU that was not named cannot be used: the same number of ranks on the CPU, with the
 * precision of a machine without GPUs. */
void lk__job_plan_on_cpu(const lk_args *args, const lk_job_plan *gpus, lk_job_plan *out);
/* Prints the line about it on stderr; why is the GPU's reason. */
void lk__job_plan_print_cpu(const char *command, const char *why);

#endif
