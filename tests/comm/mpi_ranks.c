/* mpi_ranks.c CASE PAGE [HOSTS] - one process of a job that mpirun has started, for mpi.sh: groups over MPI.
 * PAGE is a file of zeros that all processes share, HOSTS has a letter for each process. $PORT is a free
 * port. */
#define _DEFAULT_SOURCE /* MAP_SHARED with flags of the harness */
#include "check.h"
#include "comm/collectives.h"
#include "comm/mpi/session.h"
#include "comm/sums.h"

static const sum_case sum_cases[] = {
    {16, 900, LK_DTYPE_F32, LK_REDUCTION_SUM},    {16, 12007, LK_DTYPE_F32, LK_REDUCTION_MEAN},
    {8, 3000, LK_DTYPE_BF16, LK_REDUCTION_SUM},   {5, 700, LK_DTYPE_F64, LK_REDUCTION_SUM},
    {64, 301, LK_DTYPE_F32, LK_REDUCTION_SUM},    {16, 500, LK_DTYPE_I32, LK_REDUCTION_MEAN},
    {5, 2500003, LK_DTYPE_F32, LK_REDUCTION_SUM}, {0},
};
static const effort plan = {.largest = 1000003};

static void count_calls(lk_group *group, int32_t want)
{
    int32_t sum = 1;
    CHECK_OK(lk_allreduce(group, (lk_buffer){&sum, 1, LK_DTYPE_I32}, LK_REDUCTION_SUM, NULL));
    CHECK(sum == want);
}

/* Many groups at once, whose calls and messages must not mix, and groups of groups. */
static bool split(lk_group *group, const team_spec *team, const void *arg)
{
    enum { PARTS = 5 };
    int rank = lk_group_rank(group), size = lk_group_size(group);
    lk_group *parts[PARTS], *inner = NULL;
    lk_request *requests[PARTS];
    int32_t values[PARTS];
    for (int i = 0; i < PARTS; i++) {
        CHECK_OK(lk_group_split(group, i % 2 ? rank % 2 : 0, i % 3 ? -rank : rank, &parts[i]));
        CHECK(strcmp(lk_group_transport(parts[i]), "mpi") == 0);
    }
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < PARTS; i++) {
            values[i] = 1000 * i + round;
            CHECK_OK(lk_allreduce(parts[i], (lk_buffer){&values[i], 1, LK_DTYPE_I32}, LK_REDUCTION_SUM, &requests[i]));
        }
        for (int i = PARTS - 1; i >= 0; i--) {
            CHECK_OK(lk_request_wait(requests[i]));
            CHECK(values[i] == lk_group_size(parts[i]) * (1000 * i + round));
        }
    }
    CHECK_OK(lk_group_split(parts[1], lk_group_rank(parts[1]) == 0 ? -1 : 0, 0, &inner));
    if (inner)
        count_calls(inner, lk_group_size(parts[1]) - 1);
    lk_group_destroy(inner);
    for (int i = 0; i < PARTS; i++)
        lk_group_destroy(parts[i]);
    count_calls(group, size);
    return false;
}

/* Rank 1 dies in the middle of calls. The other ranks learn it from the control. */
static bool kill_one(lk_group *group, const team_spec *team, const void *arg)
{
    int32_t value = 0;
    lk_status status = LK_OK;
    for (int i = 0; i < 1000000 && status == LK_OK; i++) {
        if (i == 100 && lk_group_rank(group) == 1)
            raise(SIGKILL);
        status = lk_allreduce(group, (lk_buffer){&value, 1, LK_DTYPE_I32}, LK_REDUCTION_SUM, NULL);
    }
    CHECK(status == LK_STATUS_PEER);
    fprintf(stderr, "rank %d: %s\n", lk_group_rank(group), lk_error_detail());
    fflush(stderr);
    exit(3);
}

/* One rank fails with a reason of its own, while the others wait. */
static bool give_up(lk_group *group, const team_spec *team, const void *arg)
{
    int32_t value = 0;
    if (lk_group_rank(group) == 1)
        lk_group_abort(group, "of a test");
    lk_status status = lk_allreduce(group, (lk_buffer){&value, 1, LK_DTYPE_I32}, LK_REDUCTION_SUM, NULL);
    CHECK(status == LK_STATUS_PEER);
    fprintf(stderr, "rank %d: %s\n", lk_group_rank(group), lk_error_detail());
    exit(lk_group_rank(group) == 1 ? 5 : 0);
}

/* A child that was forked after the start of MPI must not end MPI. */
static bool forked(lk_group *group, const team_spec *team, const void *arg)
{
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        exit(0);
    CHECK(process_wait(child) == 0);
    count_calls(group, lk_group_size(group));
    return false;
}

/* Leaves the group and joins again. */
static bool again(lk_group *group, const team_spec *team, const void *arg)
{
    count_calls(group, team->size);
    return false;
}

static const struct {
    const char *name;
    team_fn fn;
    const void *arg;
    int threads, times;
} cases[] = {
    {"collectives", try_collectives, &plan, 1, 1},
    {"sums", try_all_sums, sum_cases, 1, 1},
    {"split", split, NULL, 1, 1},
    {"threads", try_all_sums, sum_cases, 2, 1},
    {"threads_split", split, NULL, 3, 1},
    {"killed", kill_one, NULL, 1, 1},
    {"give_up", give_up, NULL, 1, 1},
    {"forked", forked, NULL, 1, 1},
    {"again", again, NULL, 1, 5},
};

static int number_of(const char *first, const char *second)
{
    const char *text = getenv(first) ? getenv(first) : getenv(second);
    CHECK(text);
    return (int)strtol(text, NULL, 10);
}

static team_page *map_page(const char *path)
{
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0);
    void *page = mmap(NULL, sizeof(team_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(page != MAP_FAILED);
    close(fd);
    return page;
}

int main(int argc, char **argv)
{
    CHECK(argc >= 3);
    team_spec team = {.transport = "mpi", .timeout = 30, .hosts = argc > 3 ? argv[3] : NULL, .page = map_page(argv[2])};
    team_run_args run = {.team = &team, .port = number_of("PORT", "PORT")};
    int processes = number_of("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"), found = 0;
    /* Two processes of one host need one name for it. */
    unsetenv("LOCKSTEP_HOSTID");
    alarm(PROCESS_SECONDS);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        if (strcmp(cases[i].name, argv[1]) != 0)
            continue;
        found++;
        team.threads = cases[i].threads;
        team.size = processes * cases[i].threads;
        run.fn = cases[i].fn;
        run.arg = cases[i].arg;
        for (int time = 0; time < cases[i].times; time++)
            team_be_child(number_of("OMPI_COMM_WORLD_RANK", "PMI_RANK"), &run);
    }
    CHECK(found == 1);
    return 0;
}
