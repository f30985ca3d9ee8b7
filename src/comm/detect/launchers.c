/* launchers.c - the table of launchers. */
#include "comm/detect/launchers.h"

#include <stddef.h>

/* The variables of srun that describe the step come before those that describe the job. */
static const lk_launcher_row rows[] = {
    {.launcher = {"torchrun", "torchrun or lockstep run", "torchrun", "torchrun", NULL},
     .torchrun = true,
     .variables = {{LK_TASK_RANK, {"RANK"}},
                   {LK_TASK_SIZE, {"WORLD_SIZE"}},
                   {LK_TASK_LOCAL_RANK, {"LOCAL_RANK"}},
                   {LK_TASK_LOCAL_SIZE, {"LOCAL_WORLD_SIZE"}},
                   {LK_TASK_NODE, {"GROUP_RANK", "NODE_RANK"}},
                   {LK_TASK_NODES, {"GROUP_WORLD_SIZE"}},
                   {LK_TASK_HOST, {"MASTER_ADDR"}},
                   {LK_TASK_PORT, {"MASTER_PORT"}},
                   {LK_TASK_JOB, {"TORCHELASTIC_RUN_ID", "LOCKSTEP_RUN_ID"}}}},
    {.launcher = {"Open MPI", "mpirun", "mpirun --map-by ppr:1:node", "ompi", "-n "},
     .variables = {{LK_TASK_RANK, {"OMPI_COMM_WORLD_RANK"}},
                   {LK_TASK_SIZE, {"OMPI_COMM_WORLD_SIZE"}},
                   {LK_TASK_LOCAL_RANK, {"OMPI_COMM_WORLD_LOCAL_RANK"}},
                   {LK_TASK_LOCAL_SIZE, {"OMPI_COMM_WORLD_LOCAL_SIZE"}},
                   {LK_TASK_JOB, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}}}},
    {.launcher = {"MVAPICH", "mpirun", "mpirun -ppn 1", "mvapich", "-n "},
     .variables = {{LK_TASK_RANK, {"MV2_COMM_WORLD_RANK", "MVP_COMM_WORLD_RANK"}},
                   {LK_TASK_SIZE, {"MV2_COMM_WORLD_SIZE", "MVP_COMM_WORLD_SIZE"}},
                   {LK_TASK_LOCAL_RANK, {"MV2_COMM_WORLD_LOCAL_RANK", "MVP_COMM_WORLD_LOCAL_RANK"}},
                   {LK_TASK_LOCAL_SIZE, {"MV2_COMM_WORLD_LOCAL_SIZE", "MVP_COMM_WORLD_LOCAL_SIZE"}}}},
    {.launcher = {"MPICH or Intel MPI", "mpiexec", "mpiexec -ppn 1", "pmi", "-n "},
     .started = lk__launcher_pmi_started,
     .variables = {{LK_TASK_RANK, {"PMI_RANK"}},
                   {LK_TASK_SIZE, {"PMI_SIZE"}},
                   {LK_TASK_LOCAL_RANK, {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"}},
                   {LK_TASK_LOCAL_SIZE, {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}},
                   {LK_TASK_JOB, {"PMI_JOBID", "PALS_APID"}}}},
    {.launcher = {"PMIx", "prun", "prun --map-by ppr:1:node", "pmix", "-n "},
     .started = lk__launcher_pmix_started,
     .variables = {{LK_TASK_RANK, {"PMIX_RANK"}}, {LK_TASK_JOB, {"PMIX_NAMESPACE"}}}},
    {.launcher = {"Slurm", "srun", "srun --ntasks-per-node=1", "slurm", "--ntasks="},
     .started = lk__launcher_slurm_started,
     .variables = {{LK_TASK_RANK, {"SLURM_PROCID"}},
                   {LK_TASK_SIZE, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}},
                   {LK_TASK_LOCAL_RANK, {"SLURM_LOCALID"}},
                   {LK_TASK_NODE, {"SLURM_NODEID"}},
                   {LK_TASK_NODES, {"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"}},
                   {LK_TASK_CPUS, {"SLURM_CPUS_PER_TASK"}},
                   {LK_TASK_GPUS, {"SLURM_GPUS_ON_NODE"}}},
     .derive = lk__launcher_slurm_derive,
     .allocate = lk__launcher_slurm_allocate},
    {.launcher = {"PBS", "mpirun", "pbsdsh -u", "pbs", NULL},
     .started = lk__launcher_pbs_started,
     .variables = {{LK_TASK_RANK, {"PBS_VNODENUM"}},
                   {LK_TASK_SIZE, {"PBS_NP"}},
                   {LK_TASK_NODE, {"PBS_NODENUM"}},
                   {LK_TASK_NODES, {"PBS_NUM_NODES"}},
                   {LK_TASK_JOB, {"PBS_JOBID"}}},
     .derive = lk__launcher_pbs_derive,
     .allocate = lk__launcher_pbs_allocate},
};

const lk_launcher_row *lk__launcher_list(size_t index)
{
    return index < sizeof rows / sizeof *rows ? &rows[index] : NULL;
}
