/* bench_allreduce.c - `lockstep bench allreduce`: sums of float vectors between
 * ranks of this host, from 4 bytes to 100 MB, and Open MPI beside them in the
 * same run where mpirun is installed.
 *
 * Columns as nccl-tests defines them: algorithm bandwidth is bytes over time,
 * bus bandwidth is that times 2(n-1)/n, which compares with the hardware's limit
 * whatever the number of ranks. Runs of the peers alternate; a time is the
 * median of the runs, and a run's time the median of batches of calls. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <lockstep/group.h>
#include <lockstep/launch.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "cli/cli.h"
#include "cli/json.h"
#include "cli/openmpi.h"

static const size_t sizes[] = {4,        16,        64,      256,     1 << 10,  4 << 10,  16 << 10,
                               64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 100000000};
enum { SIZES = sizeof sizes / sizeof *sizes, MAX_RUNS = 99, BATCHES = 9 };

/* Set for the ranks that mpirun starts. */
#define PEER_VARIABLE "LOCKSTEP_BENCH_OPENMPI"

/* Who is measured. */
enum { GROUP_MEMORY, PLAIN_MEMORY, OPEN_MPI, PEERS };
static const char *const peer_names[] = {"lockstep", "lockstep, plain memory", "Open MPI"};

typedef struct bench {
    const lk_args *args;
    size_t largest; /* bytes */
    int runs;
    bool present[PEERS];
    double (*seconds)[PEERS][SIZES]; /* (runs), shared with the ranks */
    int run;                         /* under way */
} bench;

/* ---- one rank ------------------------------------------------------------ */

/* What a rank sums with. */
typedef struct summer {
    lk_group *group; /* NULL: Open MPI */
    float *data;
} summer;

static lk_status sum(const summer *with, size_t count)
{
    if (with->group)
        return lk_allreduce(with->group, (lk_data){with->data, count, LK_DTYPE_F32}, LK_REDUCTION_SUM, NULL);
    lk__openmpi_allreduce(with->data, count);
    return LK_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 2];
}

/* Calls in a batch: the same at all ranks, a few milliseconds each. */
static int batch_calls(size_t bytes)
{
    size_t calls = ((size_t)4 << 20) / (bytes + 4096);
    return (int)lk__min_size(lk__max_size(calls, 1), 500);
}

static lk_status time_size(const summer *with, size_t bytes, double *out)
{
    double batches[BATCHES];
    int calls = batch_calls(bytes);
    size_t count = bytes / sizeof(float);
    for (int i = 0; i < calls; i++)
        LK_TRY(sum(with, count));
    for (int b = 0; b < BATCHES; b++) {
        double begin = lk__clock();
        for (int i = 0; i < calls; i++)
            LK_TRY(sum(with, count));
        batches[b] = (lk__clock() - begin) / calls;
    }
    *out = median(batches, BATCHES);
    return LK_OK;
}

static lk_status time_sizes(const summer *with, size_t largest, double *seconds)
{
    for (size_t i = 0; i < SIZES && sizes[i] <= largest; i++)
        LK_TRY(time_size(with, sizes[i], &seconds[i]));
    return LK_OK;
}

static lk_status run_rank(const bench *b, int rank, lk_group *group)
{
    double unused[SIZES];
    float *plain = NULL;
    summer with = {.group = group};
    lk_status status;
    LK_TRY(lk_group_alloc(group, b->largest, (void **)&with.data));
    double *seconds = rank == 0 ? b->seconds[b->run][GROUP_MEMORY] : unused;
    LK_TRY(time_sizes(&with, b->largest, seconds));
    LK_TRY(lk__alloc(b->largest, 1, "a vector", (void **)&plain));
    with.data = plain;
    status = time_sizes(&with, b->largest, rank == 0 ? b->seconds[b->run][PLAIN_MEMORY] : unused);
    lk__free(plain);
    return status;
}

static int rank_main(int rank, void *arg)
{
    const bench *b = arg;
    lk_group_opts opts = {.backend = b->args->backend};
    lk_group *group = NULL;
    lk_status status = lk_group_join(&opts, &group);
    if (status == LK_OK)
        status = run_rank(b, rank, group);
    int code = status == LK_OK ? LK_EXIT_DONE : lk__cli_group_fail(status, group);
    lk_group_destroy(group);
    return code;
}

/* ---- the peer ------------------------------------------------------------ */

/* What mpirun's ranks run: rank 0 prints a line of bytes and seconds a size. */
static lk_status run_openmpi_rank(size_t largest)
{
    double seconds[SIZES];
    summer with = {0};
    int rank = 0;
    LK_TRY(lk__openmpi_start(&rank));
    LK_TRY(lk__alloc(largest, 1, "a vector", (void **)&with.data));
    LK_TRY(time_sizes(&with, largest, seconds));
    for (size_t i = 0; rank == 0 && i < SIZES && sizes[i] <= largest; i++)
        printf("%zu %.9g\n", sizes[i], seconds[i]);
    fflush(stdout);
    lk__openmpi_stop();
    lk__free(with.data);
    return LK_OK;
}

static FILE *start_mpirun(const bench *b, pid_t *pid)
{
    char ranks[16], largest[32];
    int ends[2];
    snprintf(ranks, sizeof ranks, "%d", b->args->nproc);
    snprintf(largest, sizeof largest, "--max-bytes=%zu", b->largest);
    bool tcp = b->args->backend && strcmp(b->args->backend, "tcp") == 0;
    const char *argv[] = {"mpirun",
                          "--oversubscribe",
                          "--allow-run-as-root",
                          "-n",
                          ranks,
                          "--mca",
                          "btl",
                          tcp ? "self,tcp" : "self,vader",
                          "/proc/self/exe",
                          "bench",
                          "allreduce",
                          largest,
                          NULL};
    char self[LK_PATH_BYTES];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0 || pipe(ends) != 0)
        return NULL;
    self[length] = 0;
    argv[8] = self;
    *pid = fork();
    if (*pid == 0) {
        setenv(PEER_VARIABLE, "1", 1);
        dup2(ends[1], STDOUT_FILENO);
        /* What mpirun has to say about its surroundings is not ours. */
        if (!freopen("/dev/null", "w", stderr))
            _exit(LK_EXIT_FAILED);
        close(ends[0]);
        close(ends[1]);
        execvp(argv[0], (char *const *)argv);
        _exit(127);
    }
    close(ends[1]);
    if (*pid < 0) {
        close(ends[0]);
        return NULL;
    }
    return fdopen(ends[0], "r");
}

static void run_openmpi(bench *b)
{
    pid_t pid = -1;
    FILE *lines = start_mpirun(b, &pid);
    double *seconds = b->seconds[b->run][OPEN_MPI];
    char line[128];
    size_t found = 0;
    if (!lines)
        return;
    while (fgets(line, sizeof line, lines)) {
        char *rest = NULL;
        unsigned long long bytes = strtoull(line, &rest, 10);
        if (found < SIZES && bytes == sizes[found])
            seconds[found++] = strtod(rest, NULL);
    }
    fclose(lines);
    int code = 0;
    while (waitpid(pid, &code, 0) < 0)
        continue;
    b->present[OPEN_MPI] = b->present[OPEN_MPI] && found > 0 && code == 0;
}

/* ---- the table ----------------------------------------------------------- */

static double overall(const bench *b, int peer, size_t size)
{
    double values[MAX_RUNS];
    for (int r = 0; r < b->runs; r++)
        values[r] = b->seconds[r][peer][size];
    return median(values, b->runs);
}

static double bus_factor(const bench *b)
{
    return 2.0 * (b->args->nproc - 1) / b->args->nproc;
}

static void print_json(const bench *b, int peer, size_t size)
{
    double seconds = overall(b, peer, size);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "bench", "allreduce");
    cJSON_AddStringToObject(object, "peer", peer_names[peer]);
    cJSON_AddStringToObject(object, "backend", b->args->backend ? b->args->backend : "auto");
    cJSON_AddNumberToObject(object, "ranks", b->args->nproc);
    cJSON_AddNumberToObject(object, "bytes", (double)sizes[size]);
    cJSON_AddNumberToObject(object, "us", 1e6 * seconds);
    cJSON_AddNumberToObject(object, "algbw_gb_s", 1e-9 * (double)sizes[size] / seconds);
    cJSON_AddNumberToObject(object, "busbw_gb_s", 1e-9 * (double)sizes[size] / seconds * bus_factor(b));
    lk__json_line(object);
}

static void print_row(const bench *b, size_t size)
{
    printf("%10zu", sizes[size]);
    for (int peer = 0; peer < PEERS; peer++) {
        if (!b->present[peer])
            continue;
        double seconds = overall(b, peer, size);
        double bandwidth = 1e-9 * (double)sizes[size] / seconds;
        printf("  %10.2f %7.2f %7.2f", 1e6 * seconds, bandwidth, bandwidth * bus_factor(b));
    }
    if (b->present[OPEN_MPI])
        printf("  %6.2f", overall(b, OPEN_MPI, size) / overall(b, GROUP_MEMORY, size));
    printf("\n");
}

static void print_table(const bench *b)
{
    const lk_args *args = b->args;
    printf("allreduce of floats, %d ranks, backend %s; medians of %d runs\n", args->nproc,
           args->backend ? args->backend : "auto", b->runs);
    printf("%10s", "");
    for (int peer = 0; peer < PEERS; peer++)
        if (b->present[peer])
            printf("  %-26s", peer_names[peer]);
    printf("\n%10s", "bytes");
    for (int peer = 0; peer < PEERS; peer++)
        if (b->present[peer])
            printf("  %10s %7s %7s", "us", "alg", "bus");
    printf("%s\n", b->present[OPEN_MPI] ? "   times" : "");
    for (size_t i = 0; i < SIZES && sizes[i] <= b->largest; i++)
        print_row(b, i);
    printf("alg, bus: GB/s as nccl-tests defines them%s\n",
           b->present[OPEN_MPI] ? "; times: how much faster than Open MPI" : "");
}

static void print_all_json(const bench *b)
{
    for (int peer = 0; peer < PEERS; peer++)
        for (size_t i = 0; b->present[peer] && i < SIZES && sizes[i] <= b->largest; i++)
            print_json(b, peer, i);
}

/* ---- the run ------------------------------------------------------------- */

static bool in_path(const char *program)
{
    const char *path = getenv("PATH");
    char file[LK_PATH_BYTES];
    while (path && *path) {
        int length = (int)strcspn(path, ":");
        snprintf(file, sizeof file, "%.*s/%s", length, path, program);
        if (access(file, X_OK) == 0)
            return true;
        path += length + (path[length] == ':');
    }
    return false;
}

static lk_status run_all(bench *b)
{
    for (b->run = 0; b->run < b->runs; b->run++) {
        LK_TRY(lk_spawn(b->args->nproc, rank_main, b));
        if (b->present[OPEN_MPI])
            run_openmpi(b);
    }
    return LK_OK;
}

lk_status lk__bench_allreduce(const lk_args *args)
{
    bench b = {.args = args, .largest = args->max_bytes, .runs = (int)args->runs};
    if (getenv(PEER_VARIABLE))
        return run_openmpi_rank(b.largest);
    size_t bytes = (size_t)b.runs * sizeof *b.seconds;
    void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return lk__fail_memory(bytes, "the times of all runs");
    b.seconds = shared;
    b.present[GROUP_MEMORY] = b.present[PLAIN_MEMORY] = true;
    b.present[OPEN_MPI] = args->nproc > 1 && in_path("mpirun");
    if (!b.present[OPEN_MPI] && !args->json)
        printf("Open MPI is not measured: %s\n", args->nproc > 1 ? "mpirun is not installed" : "one rank only");
    lk_status status = run_all(&b);
    if (status == LK_OK && args->json)
        print_all_json(&b);
    else if (status == LK_OK)
        print_table(&b);
    munmap(shared, bytes);
    return status;
}
