/* test_launched.c - lk_group_launched, with the variables of each launcher in the environment. */
#define _GNU_SOURCE
#include <lockstep/group.h>

#include "check.h"

#define OMPI "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_RANK=1 PMIX_RANK=1 PMIX_NAMESPACE=78 "
#define STEP "SLURM_JOB_ID=3 SLURM_STEP_ID=0 SLURM_NODEID=0 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NODELIST=n1 "

static const struct row {
    const char *what, *environment; /* "NAME=value NAME=value" */
    bool launched;
} rows[] = {
    {"no launcher", "", false},
    {"a service `master` of Kubernetes", "MASTER_PORT=tcp://10.0.0.1:80", false},
    {"lockstep run",
     "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=4000 LOCKSTEP_RUN_ID=a",
     true},
    {"lockstep run -n 1", "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=4000", true},
    {"torchrun",
     "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 MASTER_ADDR=h MASTER_PORT=29500 "
     "TORCHELASTIC_RUN_ID=none",
     true},
    {"Open MPI", OMPI "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2", true},
    {"Open MPI, one process",
     "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 "
     "PMIX_RANK=0 PMIX_NAMESPACE=78",
     false},
    {"MPICH", "PMI_RANK=0 PMI_SIZE=3 PMI_FD=9 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=3", true},
    {"MPICH, one process", "PMI_RANK=0 PMI_SIZE=1 PMI_FD=9 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1", false},
    {"MVAPICH", "MV2_COMM_WORLD_RANK=0 MV2_COMM_WORLD_SIZE=2 MV2_COMM_WORLD_LOCAL_RANK=0", true},
    {"PMIx, which does not say how many", "PMIX_RANK=1 PMIX_NAMESPACE=5", true},
    {"srun", STEP "SLURM_PROCID=1 SLURM_LOCALID=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=2", true},
    {"srun, one task", STEP "SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_TASKS_PER_NODE=1", false},
    {"the script of sbatch", "SLURM_JOB_ID=3 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=6 SLURM_NNODES=3", false},
    {"pbsdsh", "PBS_JOBID=12.server PBS_NODENUM=1 PBS_TASKNUM=2 PBS_NUM_NODES=2 PBS_NP=2 PBS_NODEFILE=/nowhere", true},
    {"the script of qsub", "PBS_JOBID=12.server PBS_NODENUM=0 PBS_TASKNUM=1 PBS_VNODENUM=0 PBS_NP=4", false},
    {"Flux", "FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2 FLUX_TASK_LOCAL_ID=1 FLUX_JOB_NNODES=1 FLUX_JOB_ID=f23", true},
    {"Flux, one task", "FLUX_TASK_RANK=0 FLUX_JOB_SIZE=1 FLUX_TASK_LOCAL_ID=0 FLUX_JOB_NNODES=1 FLUX_JOB_ID=f2", false},
    {"jsrun",
     "JSM_NAMESPACE_RANK=1 JSM_NAMESPACE_SIZE=2 JSM_NAMESPACE_LOCAL_RANK=0 JSM_NAMESPACE_LOCAL_SIZE=1 PMIX_RANK=1 "
     "PMIX_NAMESPACE=3",
     true},
    {"each task of mpirun alone", OMPI "OMPI_COMM_WORLD_SIZE=2 RANK=0 WORLD_SIZE=1 LOCAL_RANK=0", true},
};

/* Replaces the environment of this process. */
static void set_environment(const char *text)
{
    char copy[512], *rest = copy;
    snprintf(copy, sizeof copy, "%s", text);
    clearenv();
    for (char *name; (name = strsep(&rest, " "));) {
        char *value = strchr(name, '=');
        if (!value)
            continue;
        *value++ = '\0';
        assert_int_equal(setenv(name, value, 1), 0);
    }
}

static void test_launchers(void **state)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        set_environment(rows[i].environment);
        if (lk_group_launched() != rows[i].launched)
            fail_msg("%s: %s", rows[i].what, rows[i].launched ? "not launched" : "launched");
    }
}

/* Variables that contradict each other or are incomplete: the program is told to join, and joining says why not. */
static void test_problems(void **state)
{
    static const struct {
        const char *environment, *detail;
    } problems[] = {
        {OMPI "OMPI_COMM_WORLD_SIZE=2 WORLD_SIZE=4", "WORLD_SIZE says that the world size is 4"},
        {"RANK=one WORLD_SIZE=2", "RANK is 'one'"},
        {"RANK=0", "WORLD_SIZE"},
        {"WORLD_SIZE=6 MASTER_ADDR=n1 MASTER_PORT=4000", "RANK"},
    };
    for (size_t i = 0; i < COUNT_OF(problems); i++) {
        lk_group *group = NULL;
        set_environment(problems[i].environment);
        assert_true(lk_group_launched());
        assert_fails(lk_group_join(NULL, &group), LK_STATUS_USAGE, problems[i].detail);
    }
}

/* One rank of one joins alone. */
static void test_single(void **state)
{
    lk_group *group;
    set_environment("RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=4000 LOCKSTEP_TOKEN=a-token");
    assert_true(lk_group_launched());
    assert_ok(lk_group_join(NULL, &group));
    assert_int_equal(lk_group_size(group), 1);
    lk_group_destroy(group);
}

TEST_MAIN(NULL, NULL, TEST(test_launchers), TEST(test_problems), TEST(test_single))
