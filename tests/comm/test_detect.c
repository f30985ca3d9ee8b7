/* test_detect.c - tasks of launchers and schedulers, from recorded environments: of each launcher the variables that
 * matter, as it sets them. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "comm/detect/task.h"
#include "temp_folder.h"

/* An environment: "NAME=value NAME=value". */
static const char *lookup(void *arg, const char *name)
{
    static char value[8][256];
    static int next;
    size_t length = strlen(name);
    for (const char *at = arg; *at; at += strcspn(at, " "), at += strspn(at, " ")) {
        if (strncmp(at, name, length) != 0 || at[length] != '=')
            continue;
        char *text = value[next++ % 8];
        snprintf(text, sizeof value[0], "%.*s", (int)strcspn(at + length + 1, " "), at + length + 1);
        return text;
    }
    return NULL;
}

static lk_task find(const char *environment)
{
    lk_task task;
    lk__task_find(lookup, (void *)environment, &task);
    return task;
}

static void add(char text[512], const lk_task *task, const char *name, lk_task_quantity a, lk_task_quantity b)
{
    size_t used = strlen(text);
    const lk_task_value *x = &task->values[a], *y = &task->values[b];
    if (x->known || y->known)
        snprintf(text + used, 512 - used, "%s %.40s/%.40s, ", name, x->known ? x->text : "?", y->known ? y->text : "?");
}

/* "Slurm, rank 5/6, local 1/2, node 2/3, at n1 10003, job 3.0" */
static const char *describe(const lk_task *task)
{
    static char text[512];
    const lk_task_value *v = task->values;
    snprintf(text, sizeof text, "%s, ", task->launcher ? task->launcher->name : "none");
    add(text, task, "rank", LK_TASK_QUANTITY_RANK, LK_TASK_QUANTITY_SIZE);
    add(text, task, "local", LK_TASK_QUANTITY_LOCAL_RANK, LK_TASK_QUANTITY_LOCAL_SIZE);
    add(text, task, "node", LK_TASK_QUANTITY_NODE, LK_TASK_QUANTITY_NODES);
    size_t used = strlen(text);
    if (v[LK_TASK_QUANTITY_HOST].known || v[LK_TASK_QUANTITY_PORT].known)
        used += (size_t)snprintf(text + used, sizeof text - used, "at %.40s %.40s, ",
                                 v[LK_TASK_QUANTITY_HOST].known ? v[LK_TASK_QUANTITY_HOST].text : "?",
                                 v[LK_TASK_QUANTITY_PORT].known ? v[LK_TASK_QUANTITY_PORT].text : "?");
    snprintf(text + used, sizeof text - used, "job %.40s",
             v[LK_TASK_QUANTITY_JOB].known ? v[LK_TASK_QUANTITY_JOB].text : "?");
    return text;
}

#define STEP_3X2                                                                                                 \
    "SLURM_JOB_ID=3 SLURM_JOBID=3 SLURM_STEP_ID=0 SLURM_STEPID=0 SLURM_PROCID=5 SLURM_LOCALID=1 SLURM_NODEID=2 " \
    "SLURM_NTASKS=6 SLURM_NPROCS=6 SLURM_STEP_NUM_TASKS=6 SLURM_NNODES=3 SLURM_STEP_NUM_NODES=3 "                \
    "SLURM_JOB_NUM_NODES=3 SLURM_JOB_NODELIST=n[1-3] SLURM_NODELIST=n[1-3] SLURM_STEP_NODELIST=n[1-3] "          \
    "SLURM_TASKS_PER_NODE=2(x3) SLURM_STEP_TASKS_PER_NODE=2(x3) SLURM_CPUS_PER_TASK=1 SLURM_CPUS_ON_NODE=2 "     \
    "SLURM_GPUS_ON_NODE=2 SLURM_STEP_GPUS=0,1 CUDA_VISIBLE_DEVICES=0,1 SLURM_GTIDS=4,5 "
#define BODY_3X2                                                                                                   \
    "ENVIRONMENT=BATCH SLURM_JOB_ID=3 SLURM_JOBID=3 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=6 " \
    "SLURM_NPROCS=6 SLURM_NNODES=3 SLURM_JOB_NUM_NODES=3 SLURM_JOB_NODELIST=n[1-3] SLURM_NODELIST=n[1-3] "         \
    "SLURM_TASKS_PER_NODE=2(x3) SLURM_CPUS_PER_TASK=1 SLURM_GPUS_ON_NODE=2 SLURM_GTIDS=0 "
/* The variables of an interactive step that sbatch passes on. */
#define LEFT_OVER                                                                                               \
    "SLURM_STEP_ID=0 SLURM_STEPID=0 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_NUM_NODES=1 SLURM_STEP_TASKS_PER_NODE=1 " \
    "SLURM_STEP_NODELIST=n1 "
/* The exports of R4's script. */
#define R4 "WORLD_SIZE=6 MASTER_PORT=10003 MASTER_ADDR=n1 GPUS_PER_NODE=2 "
#define INTERACTIVE                                                                                        \
    "SLURM_JOB_ID=9 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_STEP_NUM_TASKS=1 " \
    "SLURM_NTASKS=1 SLURM_NNODES=1 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NODELIST=n1 SLURM_STEP_TASKS_PER_NODE=1 "
#define TORCHRUN                                                                                                    \
    "RANK=3 LOCAL_RANK=1 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 ROLE_RANK=3 ROLE_WORLD_SIZE=4 MASTER_ADDR=h " \
    "MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 "
#define OMPI                                                                                                   \
    "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 " \
    "OMPI_COMM_WORLD_NODE_RANK=1 OMPI_UNIVERSE_SIZE=2 PMIX_RANK=1 "

static const struct {
    const char *what, *environment, *wanted;
} rows[] = {
    {"nothing", "HOME=/root", "none, job ?"},
    {"torchrun 2.x, 2 x 2", TORCHRUN "TORCHELASTIC_USE_AGENT_STORE=True GROUP_WORLD_SIZE=2",
     "torchrun, rank 3/4, local 1/2, node 1/2, at h 29500, job none"},
    {"torchrun 1.13, one node",
     "RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 ROLE_RANK=1 MASTER_ADDR=127.0.0.1 "
     "MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none",
     "torchrun, rank 1/2, local 1/2, node 0/1, at 127.0.0.1 29500, job none"},
    {"Kubernetes", "RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=23456", "torchrun, rank 1/2, at a 23456, job ?"},
    {"Open MPI 4.1, one node", OMPI "PMIX_NAMESPACE=1046413313 OMPI_MCA_ess_base_jobid=1046413313",
     "Open MPI, rank 1/2, local 1/2, node 0/1, at 127.0.0.1 21696, job 1046413313"},
    {"Open MPI 5, one node", OMPI "PMIX_NAMESPACE=prterun-vm-21153@1 PMIX_VERSION=5.0.1",
     "Open MPI, rank 1/2, local 1/2, node 0/1, at 127.0.0.1 22368, job prterun-vm-21153@1"},
    {"Open MPI, two nodes",
     "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 "
     "PMIX_NAMESPACE=77",
     "Open MPI, rank 1/2, local 0/1, at ? 13232, job 77"},
    {"MPICH 4, hydra", "PMI_FD=8 PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 HYDI_CONTROL_FD=7",
     "MPICH or Intel MPI, rank 1/2, local 1/2, node 0/1, at 127.0.0.1 ?, job ?"},
    {"Intel MPI", "PMI_FD=8 PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 I_MPI_MPIRUN=mpirun",
     "MPICH or Intel MPI, rank 2/4, local 0/2, job ?"},
    {"MVAPICH", "MV2_COMM_WORLD_RANK=0 MV2_COMM_WORLD_SIZE=2 MV2_COMM_WORLD_LOCAL_RANK=0 MV2_COMM_WORLD_LOCAL_SIZE=2",
     "MVAPICH, rank 0/2, local 0/2, node 0/1, at 127.0.0.1 ?, job ?"},
    {"PMIx alone", "PMIX_RANK=1 PMIX_NAMESPACE=5", "PMIx, rank 1/?, at ? 12080, job 5"},
    {"jsrun, two nodes",
     "JSM_NAMESPACE_RANK=1 JSM_NAMESPACE_SIZE=2 JSM_NAMESPACE_LOCAL_RANK=0 JSM_NAMESPACE_LOCAL_SIZE=1 PMIX_RANK=1 "
     "PMIX_NAMESPACE=3 LSB_JOBID=5",
     "jsrun, rank 1/2, local 0/1, at ? 12048, job 3"},
    {"jsrun --smpiargs, one node",
     "JSM_NAMESPACE_RANK=1 JSM_NAMESPACE_SIZE=2 JSM_NAMESPACE_LOCAL_RANK=1 JSM_NAMESPACE_LOCAL_SIZE=2 PMIX_RANK=1 "
     "PMIX_NAMESPACE=3 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1",
     "Open MPI, rank 1/2, local 1/"},
    {"Flux in a task of srun",
     STEP_3X2 "FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2 FLUX_TASK_LOCAL_ID=1 FLUX_JOB_NNODES=1 FLUX_JOB_ID=f23 PMI_FD=9 "
              "PMI_RANK=1 PMI_SIZE=2",
     "Flux, rank 1/2, local 1/2, node 0/1, at 127.0.0.1 "},
    {"Cray PALS without PMI", "PALS_RANKID=1 PALS_NODEID=0 PALS_APID=ab", "MPICH or Intel MPI, rank 1/?, at ? "},
    {"Slurm 22, 3 x 2", STEP_3X2, "Slurm, rank 5/6, local 1/2, node 2/3, at n1 20848, job 3.0"},
    {"Slurm 22, requeued", STEP_3X2 "SLURM_RESTART_COUNT=1", "Slurm, rank 5/6, local 1/2, node 2/3, at n1"},
    {"R4", STEP_3X2 R4, "Slurm, rank 5/6, local 1/2, node 2/3, at n1 10003, job 3.0"},
    {"Slurm 20, uneven",
     "SLURM_JOBID=2 SLURM_STEPID=1 SLURM_PROCID=4 SLURM_LOCALID=0 SLURM_NODEID=2 SLURM_STEP_NUM_TASKS=5 "
     "SLURM_NTASKS=5 SLURM_NNODES=3 SLURM_STEP_NUM_NODES=3 SLURM_STEP_NODELIST=gpu-[08-10] "
     "SLURM_STEP_TASKS_PER_NODE=2(x2),1",
     "Slurm, rank 4/5, local 0/1, node 2/3, at gpu-08 "},
    {"Slurm 23, a step on one of three nodes",
     "SLURM_JOB_ID=3 SLURM_STEP_ID=1 SLURM_PROCID=1 SLURM_LOCALID=1 SLURM_NODEID=0 SLURM_STEP_NUM_TASKS=2 "
     "SLURM_NTASKS=2 SLURM_NNODES=1 SLURM_STEP_NUM_NODES=1 SLURM_JOB_NUM_NODES=3 SLURM_JOB_NODELIST=n[1-3] "
     "SLURM_STEP_NODELIST=n2 SLURM_STEP_TASKS_PER_NODE=2",
     "Slurm, rank 1/2, local 1/2, node 0/1, at 127.0.0.1 20864, job 3.1"},
    {"srun --mpi=pmi2", STEP_3X2 "PMI_RANK=5 PMI_SIZE=6 PMI_FD=13 PMI_JOBID=3.0",
     "Slurm, rank 5/6, local 1/2, node 2/3, at n1 20848, job 3.0"},
    {"srun --mpi=pmix", STEP_3X2 "PMIX_RANK=5 PMIX_NAMESPACE=slurm.pmix.3.0",
     "Slurm, rank 5/6, local 1/2, node 2/3, at n1"},
    {"the script of sbatch", BODY_3X2, "none, job ?"},
    {"the shell of salloc",
     "SLURM_JOB_ID=4 SLURM_NNODES=2 SLURM_NTASKS=3 SLURM_TASKS_PER_NODE=2,1 SLURM_NODELIST=n[1-2]", "none, job ?"},
    {"the shell of salloc in a step of Slurm's own",
     "SLURM_JOB_ID=4 SLURM_NTASKS=3 SLURM_STEP_ID=4294967290 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0", "none, job ?"},
    {"R4's script without srun", BODY_3X2 R4, "torchrun, rank ?/6, at n1 10003, job ?"},
    {"an array",
     "SLURM_JOB_ID=7 SLURM_ARRAY_JOB_ID=5 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_ID=2 SLURM_ARRAY_TASK_MAX=3 "
     "SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_STEP=1 SLURM_PROCID=0 SLURM_NNODES=1",
     "none, job ?"},
    /* Launchers inside tasks of others. */
    {"torchrun in a task of srun", STEP_3X2 TORCHRUN "GROUP_WORLD_SIZE=2",
     "torchrun, rank 3/4, local 1/2, node 1/2, at h 29500, job none"},
    {"lockstep run in a task of mpirun",
     OMPI "RANK=0 LOCAL_RANK=0 WORLD_SIZE=3 LOCAL_WORLD_SIZE=3 GROUP_RANK=0 GROUP_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 "
          "MASTER_PORT=4000 LOCKSTEP_RUN_ID=ab",
     "torchrun, rank 0/3, local 0/3, node 0/1, at 127.0.0.1 4000, job ab"},
    {"mpirun in the script of sbatch", BODY_3X2 OMPI "PMIX_NAMESPACE=78",
     "Open MPI, rank 1/2, local 1/2, node 0/1, at 127.0.0.1 "},
    {"a daemon of mpirun in a step, other nodes",
     STEP_3X2 "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 "
              "OMPI_COMM_WORLD_LOCAL_SIZE=1 PMIX_RANK=3 PMIX_NAMESPACE=78",
     "Open MPI, rank 3/4, local 0/1, at n1 13248, job 78"},
    {"hydra with srun as its bootstrap", STEP_3X2 "PMI_RANK=1 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2",
     "MPICH or Intel MPI, rank 1/4, local 1/2, at n1 "},
    {"ranks by hand in srun --pty bash", INTERACTIVE "RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=4000",
     "torchrun, rank 1/2, at 127.0.0.1 4000, job ?"},
    {"a wrapper script that exports srun's numbers", STEP_3X2 "RANK=5 WORLD_SIZE=6 LOCAL_RANK=1",
     "Slurm, rank 5/6, local 1/2, node 2/3, at n1 20848, job 3.0"},
    {"each task trains alone", STEP_3X2 "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0",
     "torchrun, rank 0/1, local 0/1, node 0/1, job ?"},
    {"ranks by hand in srun --mpi=pmix --pty bash",
     INTERACTIVE "PMIX_RANK=0 PMIX_NAMESPACE=slurm.pmix.9.0 RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=4000",
     "torchrun, rank 1/2, at 127.0.0.1 4000, job ?"},
    {"sbatch in srun --pty bash", BODY_3X2 LEFT_OVER, "none, job ?"},
    {"sbatch in srun --mpi=pmi2 --pty bash", BODY_3X2 LEFT_OVER "PMI_FD=11 PMI_JOBID=2.0 PMI_RANK=0 PMI_SIZE=1",
     "none, job ?"},
    {"sbatch in srun --mpi=pmix --pty bash", BODY_3X2 LEFT_OVER "PMIX_RANK=0 PMIX_NAMESPACE=slurm.pmix.2.0",
     "none, job ?"},
    {"srun --preserve-env, fewer tasks than the job",
     "SLURM_JOB_ID=14 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_STEP_NUM_TASKS=2 "
     "SLURM_NTASKS=4 SLURM_NNODES=2 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=n[1-2] "
     "SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_TASKS_PER_NODE=3,1",
     "Slurm, rank 1/2, local 0/1, node 1/2, at n1 "},
    {"a heterogeneous step of two components",
     "SLURM_JOB_ID=8 SLURM_STEP_ID=0 SLURM_HET_SIZE=2 SLURM_PROCID=2 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_NTASKS=3 "
     "SLURM_STEP_NUM_TASKS=3 SLURM_NNODES=2 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=n[1-2] "
     "SLURM_STEP_TASKS_PER_NODE=2,1 SLURM_TASKS_PER_NODE=2,1",
     "Slurm, rank 2/3, local 0/1, node 1/2, at n1 "},
    {"Kubernetes with a service `master`", "MASTER_PORT=tcp://10.0.0.1:80", "none, job ?"},
    {"one task", INTERACTIVE, "Slurm, rank 0/1, local 0/1, node 0/1, at 127.0.0.1 "},
};

static void test_recorded(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lk_task task = find(rows[i].environment);
        const char *text = describe(&task);
        if (strncmp(text, rows[i].wanted, strlen(rows[i].wanted)) != 0)
            fail_msg("%s: '%s', not '%s'", rows[i].what, text, rows[i].wanted);
        if (*task.problem)
            fail_msg("%s: %s", rows[i].what, task.problem);
    }
}

static void check_problem(const char *environment, const char *first, const char *second)
{
    lk_task task = find(environment);
    assert_contains(task.problem, first);
    assert_contains(task.problem, second);
    assert_fails(lk__task_check(&task), LK_STATUS_USAGE, first);
    assert_true(lk__task_joins(&task));
}

static void test_contradictions(void **state)
{
    check_problem(STEP_3X2 "WORLD_SIZE=4", "WORLD_SIZE says that the world size is 4",
                  "SLURM_STEP_NUM_TASKS of Slurm says 6");
    check_problem(STEP_3X2 "RANK=0", "RANK says that the rank is 0", "SLURM_PROCID of Slurm says 5");
    check_problem(STEP_3X2 "RANK=0 WORLD_SIZE=6", "RANK says that the rank is 0", "SLURM_PROCID of Slurm says 5");
    check_problem(STEP_3X2 "LOCAL_RANK=0", "LOCAL_RANK says that the local rank is 0", "SLURM_LOCALID of Slurm says 1");
    check_problem(OMPI "WORLD_SIZE=4", "WORLD_SIZE says that the world size is 4", "OMPI_COMM_WORLD_SIZE of Open MPI");
    check_problem(STEP_3X2 "PMIX_RANK=0", "PMIX_RANK says that the rank is 0", "SLURM_PROCID of Slurm says 5");
    /* R4's exports, and a step with one task only. */
    check_problem(INTERACTIVE R4, "WORLD_SIZE says that the world size is 6", "SLURM_STEP_NUM_TASKS of Slurm says 1");
    check_problem("RANK=one WORLD_SIZE=2", "RANK is 'one'", "must be a number from 0 on");
    check_problem("RANK=0 WORLD_SIZE=2 MASTER_PORT=70000", "MASTER_PORT is '70000'", "1 to 65535");
    check_problem(STEP_3X2 "MASTER_PORT=tcp://10.0.0.1:80", "MASTER_PORT is 'tcp://10.0.0.1:80'", "1 to 65535");
    /* What a launcher further out has set wrong does not matter. */
    lk_task task = find(TORCHRUN "OMPI_COMM_WORLD_RANK=x");
    assert_string_equal(task.problem, "");
}

static void test_quantities(void **state)
{
    lk_task task = find(STEP_3X2 R4);
    const lk_task_value *v = task.values;
    assert_string_equal(v[LK_TASK_QUANTITY_RANK].source, "SLURM_PROCID");
    assert_string_equal(v[LK_TASK_QUANTITY_SIZE].source, "WORLD_SIZE");
    assert_string_equal(v[LK_TASK_QUANTITY_SIZE].launcher->name, "torchrun");
    assert_string_equal(lk__task_launcher_name(&task, v[LK_TASK_QUANTITY_SIZE].launcher), "the environment");
    assert_string_equal(lk__task_launcher_name(&task, v[LK_TASK_QUANTITY_RANK].launcher), "Slurm");
    assert_string_equal(v[LK_TASK_QUANTITY_LOCAL_SIZE].source, "SLURM_STEP_TASKS_PER_NODE");
    assert_int_equal(v[LK_TASK_QUANTITY_CPUS].number, 1);
    assert_int_equal(v[LK_TASK_QUANTITY_GPUS].number, 2);
    assert_true(task.several && !task.by_torchrun && !task.ports && lk__task_joins(&task));
    char text[128], host[LK_TASK_TEXT];
    lk__task_text(&task, text, sizeof text);
    assert_string_equal(text, "Slurm job 3: 6 tasks on 3 nodes, n1 is first");
    assert_ok(lk__task_host(&task, host));
    assert_string_equal(host, "n1");

    task = find(STEP_3X2 TORCHRUN);
    assert_string_equal(task.left_out[0]->name, "Slurm");
    assert_null(task.left_out[1]);
    assert_true(task.by_torchrun);
    assert_string_equal(lk__task_launcher_name(&task, task.launcher), "torchrun");
    task = find("LOCKSTEP_RUN_ID=a RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=h MASTER_PORT=4000");
    assert_string_equal(lk__task_launcher_name(&task, task.launcher), "lockstep run");
    task = find(OMPI "PMIX_NAMESPACE=5");
    assert_null(task.left_out[0]);
    task = find(INTERACTIVE);
    assert_false(lk__task_joins(&task));
}

/* An allocation is no task, and says how many there would be. */
static void test_allocations(void **state)
{
    lk_task task = find(BODY_3X2);
    assert_false(lk__task_joins(&task) || task.several);
    assert_string_equal(task.allocation.scheduler->command, "srun");
    assert_string_equal(task.allocation.job, "3");
    assert_int_equal(task.allocation.tasks, 6);
    assert_int_equal(task.allocation.nodes, 3);
    assert_string_equal(task.allocation.host, "n1");
    task = find("SLURM_JOB_ID=4 SLURM_JOB_NUM_NODES=2 SLURM_TASKS_PER_NODE=1(x2) SLURM_NODELIST=a,b");
    assert_int_equal(task.allocation.tasks, 2);
    task = find("SLURM_JOB_ID=4 SLURM_JOB_NUM_NODES=1 SLURM_TASKS_PER_NODE=64 SLURM_NODELIST=a");
    assert_int_equal(task.allocation.tasks, 1);
    task = find("SLURM_JOB_ID=4 SLURM_JOB_NUM_NODES=1 SLURM_NTASKS_PER_NODE=4 SLURM_TASKS_PER_NODE=4");
    assert_int_equal(task.allocation.tasks, 4);
    /* sbatch -N 3 in an interactive step, whose SLURM_NTASKS is passed on. */
    task = find("SLURM_JOB_ID=4 SLURM_NNODES=3 SLURM_TASKS_PER_NODE=1(x3) SLURM_NTASKS=1 " LEFT_OVER);
    assert_null(task.launcher);
    assert_int_equal(task.allocation.tasks, 3);
    task = find("SLURM_NTASKS=4 SLURM_PROCID=0");
    assert_null(task.allocation.scheduler);
    task = find("PBS_JOBID=1.x PBS_NODENUM=0 PBS_TASKNUM=1 PBS_NODEFILE=/nonexistent/nodes");
    assert_int_equal(task.allocation.tasks, 0);
    assert_non_null(strstr(task.allocation.unread, "/nonexistent/nodes"));
    task = find("PBS_JOBID=1.x PBS_NODENUM=0 PBS_TASKNUM=1 PBS_NP=2 PBS_NODEFILE=/nonexistent/nodes");
    assert_string_equal(task.allocation.unread, "");
}

static void check_array(const char *environment, int rank, int size)
{
    lk_task task = find(environment);
    assert_int_equal(lk__task_number(&task, LK_TASK_QUANTITY_ARRAY_RANK, -1), rank);
    assert_int_equal(lk__task_number(&task, LK_TASK_QUANTITY_ARRAY_SIZE, -1), size);
    assert_false(lk__task_joins(&task));
}

#define ARRAY "SLURM_JOB_ID=7 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_ID="

static void test_arrays(void **state)
{
    check_array(ARRAY "2 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=3 SLURM_ARRAY_TASK_STEP=1", 1, 3);
    check_array(ARRAY "8 SLURM_ARRAY_TASK_MIN=0 SLURM_ARRAY_TASK_MAX=8 SLURM_ARRAY_TASK_STEP=4", 2, 3);
    check_array(ARRAY "2", 2, 3);
    check_array(ARRAY "5 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=7", -1, 3); /* 1,5,7 */
    check_array(ARRAY "3", -1, 3);
    check_array("SLURM_JOB_ID=7", -1, -1);
}

static void test_pbs(void **state)
{
    char path[TEMP_FOLDER_BYTES + 8], environment[1024];
    snprintf(path, sizeof path, "%s/nodes", temp_folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("a1\na1\nb2\nb2\n", file);
    fclose(file);
    /* The script of a job is no task; Torque's pbsdsh starts tasks; on other hosts the file does not exist. */
    snprintf(environment, sizeof environment,
             "PBS_JOBID=12.server PBS_NODENUM=0 PBS_TASKNUM=1 PBS_VNODENUM=0 PBS_NP=4 PBS_NODEFILE=%s", path);
    lk_task task = find(environment);
    assert_string_equal(describe(&task), "none, job ?");
    assert_int_equal(task.allocation.tasks, 4);
    assert_int_equal(task.allocation.nodes, 2);
    assert_string_equal(task.allocation.host, "a1");
    snprintf(environment, sizeof environment,
             "PBS_JOBID=12.server PBS_NODENUM=1 PBS_TASKNUM=2 PBS_VNODENUM=3 PBS_NP=4 PBS_NODEFILE=%s", path);
    task = find(environment);
    assert_contains(describe(&task), "PBS, rank 3/4, local 1/2, node 1/2, at a1 ");
    task = find("PBS_JOBID=12.server PBS_NODENUM=1 PBS_TASKNUM=2 PBS_NUM_NODES=2 PBS_NP=2 PBS_NODEFILE=/nowhere");
    assert_contains(describe(&task), "PBS, rank 1/2, local 0/?, node 1/2, at ? ");
    char host[LK_TASK_TEXT];
    assert_fails(lk__task_host(&task, host), LK_STATUS_USAGE, "MASTER_ADDR");
    snprintf(environment, sizeof environment, OMPI "PMIX_NAMESPACE=5 PBS_JOBID=1 PBS_NODEFILE=%s", path);
    task = find(environment);
    assert_contains(describe(&task), "Open MPI, rank 1/2, local 1/2, node 0/1, at 127.0.0.1 ");
}

static void check_no_nodes(const char *path)
{
    char environment[TEMP_FOLDER_BYTES + 64];
    snprintf(environment, sizeof environment, "PBS_JOBID=1 PBS_NP=3 PBS_NODEFILE=%s", path);
    lk_task task = find(environment);
    assert_int_equal(task.allocation.tasks, 3);
    assert_string_equal(task.allocation.host, "");
}

/* Files that are no list of hosts count as absent, and nothing waits for them. */
static void test_odd_node_files(void **state)
{
    char path[TEMP_FOLDER_BYTES + 8];
    snprintf(path, sizeof path, "%s/pipe", temp_folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    check_no_nodes(path);
    check_no_nodes(temp_folder);
    check_no_nodes("/dev/zero");
    snprintf(path, sizeof path, "%s/long", temp_folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), (off_t)1 << 30), 0);
    fclose(file);
    check_no_nodes(path);
}

static void test_ports(void **state)
{
    lk_task first = find("SLURM_JOB_ID=41 " STEP_3X2), next = find("SLURM_JOB_ID=42 " STEP_3X2);
    int a = 0, b = 0;
    assert_ok(lk__task_port(&first, &a));
    assert_ok(lk__task_port(&next, &b));
    assert_true(first.ports && a >= 12000 && a + LK_TASK_PORTS <= 28384 + 1 && abs(a - b) >= LK_TASK_PORTS);
    lk_task none = find("PMI_RANK=0 PMI_SIZE=2");
    assert_fails(lk__task_port(&none, &a), LK_STATUS_USAGE, "MASTER_PORT");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded),       cmocka_unit_test(test_contradictions), cmocka_unit_test(test_quantities),
        cmocka_unit_test(test_allocations),    cmocka_unit_test(test_arrays),         cmocka_unit_test(test_pbs),
        cmocka_unit_test(test_odd_node_files), cmocka_unit_test(test_ports),
    };
    return cmocka_run_group_tests(tests, temp_folder_set_up, temp_folder_tear_down);
}
