/* plan.h - the plan of a job: who starts its ranks, which devices they have, the
 * parallel mode, and the options that depend on these.
 *
 * A plan is made once from the options and from how this process was started, and
 * nothing changes it afterwards: ranks get it as const. Ranks that `train -n` forks
 * take over the plan of their launcher. Where a GPU of the plan cannot be used, a
 * second plan is made, which has the same ranks on the CPU. No device is opened here. */
#ifndef LK_CLI_JOB_PLAN_H
#define LK_CLI_JOB_PLAN_H

#include "cli/job/join.h"
#include "cli/job/mode.h"
#include "cli/options/args.h"

/* A plan must stay where it is: train points into it, and into the lk_args that it was
 * made of. */
typedef struct lk_job_plan {
    lk_join join;        /* who starts the ranks, and which process this is */
    lk_devices host;     /* the devices of all processes of this host */
    lk_devices devices;  /* those of this process, a rank each */
    lk_mode mode;        /* parallel is AUTO where join has no number of processes */
    lk_train_opts train; /* options of all ranks, with this plan's stages, shards, precision, device */
} lk_job_plan;

/* The plan of `train`, after lk__args_complete. join->processes is 0 at the launcher
 * of one of several nodes, which does not know how many ranks the others have: then the
 * mode is left open. USAGE for devices that the processes of this host cannot share
 * evenly, and for options that contradict each other. */
lk_status lk__job_plan_make(const lk_args *args, const lk_devices *host, const lk_join *join,
                            lk_job_plan *out) LK_CHECKED;
/* The plan of a rank that `train -n` has started: the launcher's, with the devices of
 * this process, and with a mode where the launcher has left it open. */
lk_status lk__job_plan_inherit(const lk_args *args, const lk_job_plan *launcher, const lk_join *join,
                               lk_job_plan *out) LK_CHECKED;
/* The plan of a command whose ranks all compute on the first device. USAGE where
 * several are named. command is for messages. */
lk_status lk__job_plan_one_device(const lk_args *args, const char *command, int ranks, lk_job_plan *out) LK_CHECKED;

/* The second plan, where a GPU that was not named cannot be used: as many ranks, on the
 * CPU, with the shards and the precision of a machine without GPUs. */
void lk__job_plan_on_cpu(const lk_args *args, const lk_job_plan *gpus, lk_job_plan *out);
/* The line on stderr about it; why is the GPU's reason. */
void lk__job_plan_print_cpu(const char *command, const char *why);

#endif
