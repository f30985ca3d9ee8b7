/* from_mpi_ranks.c CASE PAGE - one process of an MPI program that makes groups of its communicators
 * (lk_group_from_mpi), for from_mpi.sh. PAGE is a file of zeros that all processes share. Linked with the MPI library
 * itself, as a user's program is. $BACKEND is the backend of the groups, $PORT a free port. */
#define _GNU_SOURCE /* RTLD_NOLOAD, dl_iterate_phdr */
#include <dlfcn.h>
#include <link.h>
#include <mpi.h>

#include "check.h"
#include "comm/collectives.h"
#include "comm/mpi/load.h"
#include "comm/sums.h"

static const sum_case sum_cases[] = {
    {16, 900, LK_DTYPE_F32, LK_REDUCTION_SUM},
    {8, 3000, LK_DTYPE_BF16, LK_REDUCTION_SUM},
    {5, 250003, LK_DTYPE_F32, LK_REDUCTION_SUM},
    {0},
};
static const effort plan = {.largest = 100003};
static int rank, size;
static team_page *page;

static void init(int wanted)
{
    int provided = 0;
    CHECK(MPI_Init_thread(NULL, NULL, wanted, &provided) == MPI_SUCCESS && provided >= wanted);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}

static int keep_loaded(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    if (info->dlpi_name && *info->dlpi_name)
        (void)dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    return 0;
}

/* MPI_Finalize of Open MPI 4.1 unloads parts whose code its own event thread may still run: about one process in three
 * hundred crashes. Parts that stay loaded do no harm. */
static void finalise(void)
{
    dl_iterate_phdr(keep_loaded, NULL);
    MPI_Finalize();
}

static lk_group_opts options(void)
{
    return (lk_group_opts){.backend = getenv("BACKEND"), .timeout = 30};
}

static lk_group *make_group(MPI_Comm comm)
{
    lk_group *group = NULL;
    lk_group_opts opts = options();
    int place, count;
    CHECK_OK(lk_group_from_mpi(&comm, &opts, &group));
    MPI_Comm_rank(comm, &place);
    MPI_Comm_size(comm, &count);
    CHECK(lk_group_rank(group) == place && lk_group_size(group) == count);
    return group;
}

/* The program's own use of MPI. */
static void count_by_mpi(MPI_Comm comm, int want)
{
    int one = 1, sum = 0;
    CHECK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS && sum == want);
}

static void collectives(void)
{
    init(MPI_THREAD_MULTIPLE);
    team_spec team = {.size = size, .transport = getenv("BACKEND"), .timeout = 30, .page = page};
    lk_group *group = make_group(MPI_COMM_WORLD);
    try_all_sums(group, &team, sum_cases);
    count_by_mpi(MPI_COMM_WORLD, size);
    try_collectives(group, &team, &plan);
    lk_group_destroy(group);
    count_by_mpi(MPI_COMM_WORLD, size);
    finalise();
}

/* The same sum in a group of lk_group_join. */
static void bits(void)
{
    enum { COUNT = 10007 };
    static float joined[COUNT], made[COUNT];
    char url[64];
    lk_group *group = NULL, *other;
    init(MPI_THREAD_SERIALIZED);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%s", getenv("PORT"));
    lk_group_opts opts = {
        .init_method = url, .rank = rank, .world_size = size, .backend = "tcp", .token = "a test", .timeout = 30};
    CHECK_OK(lk_group_join(&opts, &group));
    other = make_group(MPI_COMM_WORLD);
    for (int i = 0; i < COUNT; i++)
        joined[i] = made[i] = 1.0f / (float)(1 + i + 37 * rank);
    CHECK_OK(lk_allreduce(group, (lk_buffer){joined, COUNT, LK_DTYPE_F32}, LK_REDUCTION_MEAN, NULL));
    CHECK_OK(lk_allreduce(other, (lk_buffer){made, COUNT, LK_DTYPE_F32}, LK_REDUCTION_MEAN, NULL));
    CHECK(memcmp(joined, made, sizeof made) == 0);
    lk_group_destroy(other);
    lk_group_destroy(group);
    finalise();
}

/* Two groups at once, of halves of the world, and a third of all; the program's own messages stay under way, with any
 * tag, while the groups work. */
static void halves(void)
{
    MPI_Comm half;
    MPI_Request requests[2];
    MPI_Status states[2];
    int mine = 100, got = 0;
    init(MPI_THREAD_SERIALIZED);
    CHECK(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half) == MPI_SUCCESS);
    int count = (size + 1 - rank % 2) / 2;
    MPI_Irecv(&got, 1, MPI_INT, (rank + size - 1) % size, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[0]);
    lk_group *group = make_group(half), *all = make_group(MPI_COMM_WORLD), *inner = NULL;
    for (int round = 0; round < 50; round++) {
        int32_t sum = rank + round, total = 1;
        int want = 0;
        for (int r = rank % 2; r < size; r += 2)
            want += r + round;
        CHECK_OK(lk_allreduce(group, (lk_buffer){&sum, 1, LK_DTYPE_I32}, LK_REDUCTION_SUM, NULL));
        CHECK_OK(lk_allreduce(all, (lk_buffer){&total, 1, LK_DTYPE_I32}, LK_REDUCTION_SUM, NULL));
        CHECK(sum == want && total == size);
        count_by_mpi(half, count);
    }
    CHECK_OK(lk_group_split(group, 0, -lk_group_rank(group), &inner));
    CHECK(lk_group_rank(inner) == count - 1 - lk_group_rank(group));
    CHECK_OK(lk_barrier(inner, NULL));
    MPI_Isend(&mine, 1, MPI_INT, (rank + 1) % size, 5, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, states);
    CHECK(got == 100);
    lk_group_destroy(inner);
    lk_group_destroy(all);
    lk_group_destroy(group);
    MPI_Comm_free(&half);
    finalise();
}

/* Many groups of one communicator, one after the other, with a progress thread. */
static void again(void)
{
    init(MPI_THREAD_MULTIPLE);
    for (int i = 0; i < 5; i++) {
        lk_group *group = NULL;
        lk_group_opts opts = options();
        MPI_Comm comm = MPI_COMM_WORLD;
        int32_t sum = 1;
        opts.progress_thread = true;
        CHECK_OK(lk_group_from_mpi(&comm, &opts, &group));
        CHECK_OK(lk_allreduce(group, (lk_buffer){&sum, 1, LK_DTYPE_I32}, LK_REDUCTION_SUM, NULL));
        CHECK(sum == size);
        lk_group_destroy(group);
    }
    finalise();
}

static void refuse(const void *comm, lk_group_opts opts, lk_status status, const char *text)
{
    lk_group *group = NULL;
    CHECK_FAILS(lk_group_from_mpi(comm, &opts, &group), status, text);
    CHECK(!group);
}

static lk_mpi_phase another_phase(void)
{
    return LK_MPI_PHASE_RUNNING;
}

/* All errors that need no second rank. */
static void errors(void)
{
    MPI_Comm comm = MPI_COMM_WORLD, null = MPI_COMM_NULL, inter, self = MPI_COMM_SELF;
    lk_mpi other = {.version = LK_MPI_VERSION, .phase = another_phase, .name = "another"};
    const char *plugins = strdup(getenv("LOCKSTEP_PLUGINS"));
    lk_group *group = NULL;
    refuse(&comm, options(), LK_STATUS_USAGE, "call MPI_Init_thread first");
    init(MPI_THREAD_MULTIPLE);
    refuse(NULL, options(), LK_STATUS_USAGE, "comm is NULL");
    CHECK_FAILS(lk_group_from_mpi(&comm, NULL, NULL), LK_STATUS_USAGE, "out is NULL");
    setenv("LOCKSTEP_PLUGINS", "/nowhere", 1);
    refuse(&comm, options(), LK_STATUS_NOT_FOUND, "-dev is installed");
    setenv("LOCKSTEP_PLUGINS", plugins, 1);
    lk__mpi_use(&other);
    refuse(&comm, options(), LK_STATUS_UNSUPPORTED, "for another one (another)");
    lk__mpi_use(NULL);
    refuse(&null, options(), LK_STATUS_USAGE, "MPI_COMM_NULL");
    refuse(&comm, (lk_group_opts){.token = "one"}, LK_STATUS_USAGE, "`token` must be left out");
    refuse(&comm, (lk_group_opts){.world_size = 2}, LK_STATUS_USAGE, "`world_size` must be left out");
    refuse(&comm, (lk_group_opts){.threads = 2}, LK_STATUS_USAGE, "`thread` must be left out");
    refuse(&comm, (lk_group_opts){.init_method = "env://"}, LK_STATUS_USAGE, "`init_method` must be left out");
    refuse(&comm, (lk_group_opts){.timeout = -1}, LK_STATUS_USAGE, "timeout");
    refuse(&self, (lk_group_opts){.backend = "pigeon"}, LK_STATUS_USAGE, "pigeon");
    MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, rank ^ 1, 1, &inter);
    refuse(&inter, options(), LK_STATUS_USAGE, "inter-communicator");
    MPI_Comm_free(&inter);
    CHECK_OK(lk_group_from_mpi(&self, NULL, &group));
    CHECK(lk_group_size(group) == 1);
    lk_group_destroy(group);
    finalise();
    refuse(&comm, options(), LK_STATUS_USAGE, "already finalised MPI");
    free((void *)(uintptr_t)plugins);
}

static void from_thread(int number, void *arg)
{
    MPI_Comm self = MPI_COMM_SELF;
    refuse(&self, options(), LK_STATUS_USAGE, "only the thread that initialised MPI");
}

/* MPI without threads: messages by MPI are refused, and the other backends work. */
static void single(void)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    init(MPI_THREAD_SINGLE);
    int level = 0;
    MPI_Query_thread(&level);
    CHECK(level < MPI_THREAD_SERIALIZED);
    refuse(&comm, (lk_group_opts){.backend = "mpi", .timeout = 30}, LK_STATUS_UNSUPPORTED, "MPI_THREAD_SERIALIZED");
    threads_run(1, from_thread, NULL);
    lk_group *group = make_group(comm);
    int32_t sum = 1;
    CHECK_OK(lk_allreduce(group, (lk_buffer){&sum, 1, LK_DTYPE_I32}, LK_REDUCTION_SUM, NULL));
    CHECK(sum == size);
    lk_group_destroy(group);
    finalise();
}

static void level(void)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    init(MPI_THREAD_SERIALIZED);
    int provided = 0;
    MPI_Query_thread(&provided);
    if (provided == MPI_THREAD_SERIALIZED)
        refuse(&comm, (lk_group_opts){.backend = "mpi", .timeout = 30, .progress_thread = true}, LK_STATUS_UNSUPPORTED,
               "MPI_THREAD_MULTIPLE with `progress_thread`");
    finalise();
}

/* Rank 1 never makes the call. The others get an error in time, and say so after that. */
static void late(void)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    init(MPI_THREAD_MULTIPLE);
    if (rank != 1)
        refuse(&comm, (lk_group_opts){.timeout = 2}, LK_STATUS_PEER, "within 2 s");
    fprintf(stderr, "rank %d goes on\n", rank);
    fflush(NULL);
    sleep(rank == 0 ? 1 : 6);
    _exit(3);
}

/* Rank 1 dies in the middle of calls. */
static void killed(void)
{
    init(MPI_THREAD_MULTIPLE);
    lk_group *group = make_group(MPI_COMM_WORLD);
    int32_t value = 0;
    lk_status status = LK_OK;
    for (int i = 0; i < 1000000 && status == LK_OK; i++) {
        if (i == 100 && rank == 1)
            raise(SIGKILL);
        status = lk_allreduce(group, (lk_buffer){&value, 1, LK_DTYPE_I32}, LK_REDUCTION_SUM, NULL);
    }
    CHECK(status == LK_STATUS_PEER);
    fprintf(stderr, "rank %d: %s\n", rank, lk_error_detail());
    lk_group_destroy(group);
    fflush(NULL);
    _exit(3);
}

static team_page *map_page(const char *path)
{
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0);
    void *memory = mmap(NULL, sizeof(team_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(memory != MAP_FAILED);
    close(fd);
    return memory;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"collectives", collectives}, {"bits", bits},   {"halves", halves}, {"again", again},   {"errors", errors},
        {"single", single},           {"level", level}, {"late", late},     {"killed", killed},
    };
    CHECK(argc == 3);
    page = map_page(argv[2]);
    alarm(PROCESS_SECONDS);
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        if (strcmp(cases[i].name, argv[1]) == 0) {
            cases[i].run();
            return 0;
        }
    return 2;
}
