/* allreduce.c - `lockstep bench allreduce`: sums of float vectors between ranks of this host, from 4 bytes to
 * 100 MB, with Open MPI measured in the same run if mpirun is installed.
 *
 * Columns are defined as in nccl-tests: algorithm bandwidth is bytes over time; bus bandwidth is that times
 * 2(n-1)/n, which can be compared with the hardware's limit for any number of ranks. Runs of the peers
 * alternate. A time is the median over the runs; the time of a run is the median over batches of calls. Before
 * a size is timed, one sum is checked. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <lockstep/group.h>
#include <lockstep/launch.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/median.h"
#include "base/mem.h"
#include "cli/bench/openmpi.h"
#include "cli/cli.h"
#include "cli/report/json.h"
#include "comm/transport/transport.h"
#include "launch/executable.h"
#include "parallel/engine/backend.h"

static const size_t sizes[] = {4,        16,        64,      256,     1 << 10,  4 << 10,  16 << 10,
                               64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 100000000};
enum { SIZES = sizeof sizes / sizeof *sizes, MAX_RUNS = 99, BATCHES = 9, DEFAULT_RANKS = 2, DEFAULT_RUNS = 5 };

/* Set for the ranks that mpirun starts. */
#define PEER_VARIABLE "LOCKSTEP_BENCH_OPENMPI"

/* The programs that are measured. */
enum { GROUP_MEMORY, PLAIN_MEMORY, OPEN_MPI, PEERS };
static const char *const peer_names[] = {"lockstep", "lockstep, plain memory", "Open MPI"};

typedef struct bench {
    const lk_args *args;
    int ranks;
    size_t largest; /* bytes */
    int runs;
    bool present[PEERS];
    double (*seconds)[PEERS][SIZES]; /* (runs), shared with the ranks */
    int run;                         /* number of the current run */
} bench;

/* How a rank sums. */
typedef struct summer {
    lk_group *group; /* NULL: Open MPI */
    int rank, ranks;
    float *data;
} summer;

static lk_status sum(const summer *with, size_t count)
{
    if (with->group)
        return lk_allreduce(with->group, (lk_buffer){with->data, count, LK_DTYPE_F32}, LK_REDUCTION_SUM, NULL);
    lk__openmpi_allreduce(with->data, count);
    return LK_OK;
}

/* Integers that floats represent exactly; neighbouring elements differ. */
static float addend(int rank, size_t element)
{
    return (float)((rank + 1) * (int)(1 + element % 13));
}

/* Leaves zeros in the data, which stay zeros after any number of sums. */
static lk_status check_sum(const summer *with, size_t count)
{
    for (size_t i = 0; i < count; i++)
        with->data[i] = addend(with->rank, i);
    LK_TRY(sum(with, count));
    for (size_t i = 0; i < count; i++) {
        float wanted = (float)(with->ranks * (with->ranks + 1) / 2) * addend(0, i);
        if (with->data[i] != wanted)
            return lk__fail(LK_STATUS_MISMATCH, "rank %d: element %zu of %zu sums to %g, not to %g", with->rank, i,
                            count, (double)with->data[i], (double)wanted);
    }
    memset(with->data, 0, count * sizeof *with->data);
    return LK_OK;
}

/* Calls in a batch: the same at all ranks; a batch takes a few milliseconds. */
static int batch_calls(size_t bytes)
{
    size_t calls = ((size_t)4 << 20) / (bytes + 4096);
    return (int)lk__size_min(lk__size_max(calls, 1), 500);
}

static lk_status time_size(const summer *with, size_t bytes, double *out)
{
    double batches[BATCHES];
    int calls = batch_calls(bytes);
    size_t count = bytes / sizeof(float);
    LK_TRY(check_sum(with, count));
    for (int i = 0; i < calls; i++)
        LK_TRY(sum(with, count));
    for (int b = 0; b < BATCHES; b++) {
        double begin = lk__clock();
        for (int i = 0; i < calls; i++)
            LK_TRY(sum(with, count));
        batches[b] = (lk__clock() - begin) / calls;
    }
    *out = lk__median(batches, BATCHES);
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
    summer with = {.group = group, .rank = rank, .ranks = b->ranks};
    lk_status status;
    LK_TRY(lk_group_alloc(group, b->largest, (void **)&with.data));
    double *seconds = rank == 0 ? b->seconds[b->run][GROUP_MEMORY] : unused;
    LK_TRY(time_sizes(&with, b->largest, seconds));
    LK_TRY(lk__mem_alloc(b->largest, 1, "a vector", (void **)&plain));
    with.data = plain;
    status = time_sizes(&with, b->largest, rank == 0 ? b->seconds[b->run][PLAIN_MEMORY] : unused);
    lk__mem_free(plain);
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

static const char failed_word[] = "failed";

static lk_status time_openmpi(const lk_args *args)
{
    double seconds[SIZES];
    summer with = {.ranks = args->nproc};
    LK_TRY(lk__openmpi_start(&with.rank));
    LK_TRY(lk__mem_alloc(args->max_bytes, 1, "a vector", (void **)&with.data));
    lk_status status = time_sizes(&with, args->max_bytes, seconds);
    for (size_t i = 0; status == LK_OK && with.rank == 0 && i < SIZES && sizes[i] <= args->max_bytes; i++)
        printf("%zu %.9g\n", sizes[i], seconds[i]);
    lk__mem_free(with.data);
    return status;
}

/* The program of mpirun's ranks: rank 0 prints bytes and seconds of each size, one line each. A rank that fails
 * prints the status and the reason. */
static lk_status run_openmpi_rank(const lk_args *args)
{
    lk_status status = time_openmpi(args);
    if (status != LK_OK)
        printf("%s %d %s\n", failed_word, (int)status, lk_error_detail());
    fflush(stdout);
    /* A rank that failed ends without MPI_Finalize, because the others may be waiting in a sum. */
    if (status == LK_OK)
        lk__openmpi_stop();
    return status;
}

static FILE *start_mpirun(const bench *b, pid_t *pid)
{
    char ranks[16], largest[32];
    int ends[2];
    snprintf(ranks, sizeof ranks, "%d", b->ranks);
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
                          "-n",
                          ranks,
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
        /* Messages of mpirun about the machine are not shown. */
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

/* Output of the ranks of Open MPI: their times, or why there are none. */
typedef struct answer {
    size_t found; /* number of sizes */
    int status;
    char reason[512];
} answer;

static void read_answer(FILE *lines, double *seconds, answer *out)
{
    char line[600];
    while (fgets(line, sizeof line, lines)) {
        char *rest = NULL;
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, failed_word, sizeof failed_word - 1) == 0 && out->status == LK_OK) {
            out->status = (int)strtol(line + sizeof failed_word, &rest, 10);
            snprintf(out->reason, sizeof out->reason, "%.500s", rest + (*rest == ' '));
        }
        unsigned long long bytes = strtoull(line, &rest, 10);
        if (out->found < SIZES && bytes == sizes[out->found])
            seconds[out->found++] = strtod(rest, NULL);
    }
}

static size_t size_count(const bench *b)
{
    size_t count = 0;
    while (count < SIZES && sizes[count] <= b->largest)
        count++;
    return count;
}

/* If Open MPI does not work, a line says so and it is left out; wrong sums are an error. */
static lk_status run_openmpi(bench *b)
{
    pid_t pid = -1;
    int code = 0;
    answer got = {.reason = "mpirun did not start"};
    FILE *lines = start_mpirun(b, &pid);
    if (lines) {
        read_answer(lines, b->seconds[b->run][OPEN_MPI], &got);
        fclose(lines);
        /* If SIGCHLD is ignored, the exit status is unknown; then the printed lines decide. */
        while (waitpid(pid, &code, 0) < 0 && errno == EINTR)
            continue;
        if (got.status == LK_OK)
            snprintf(got.reason, sizeof got.reason, "mpirun %s %d",
                     WIFEXITED(code) ? "exited with status" : "died of signal",
                     WIFEXITED(code) ? WEXITSTATUS(code) : WTERMSIG(code));
    }
    if (got.status == LK_STATUS_MISMATCH)
        return lk__fail(LK_STATUS_MISMATCH, "Open MPI: %s", got.reason);
    b->present[OPEN_MPI] = code == 0 && got.found == size_count(b);
    if (!b->present[OPEN_MPI])
        fprintf(stderr, "Open MPI is not measured: %s\n", got.reason);
    return LK_OK;
}

static double overall(const bench *b, int peer, size_t size)
{
    double values[MAX_RUNS];
    for (int r = 0; r < b->runs; r++)
        values[r] = b->seconds[r][peer][size];
    return lk__median(values, (size_t)b->runs);
}

static double bus_factor(const bench *b)
{
    return 2.0 * (b->ranks - 1) / b->ranks;
}

static void print_json(const bench *b, int peer, size_t size)
{
    double seconds = overall(b, peer, size);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "bench", "allreduce");
    cJSON_AddStringToObject(object, "peer", peer_names[peer]);
    cJSON_AddStringToObject(object, "backend", b->args->backend ? b->args->backend : "auto");
    cJSON_AddNumberToObject(object, "ranks", b->ranks);
    cJSON_AddNumberToObject(object, "bytes", (double)sizes[size]);
    cJSON_AddNumberToObject(object, "us", 1e6 * seconds);
    cJSON_AddNumberToObject(object, "algbw_gb_s", 1e-9 * (double)sizes[size] / seconds);
    cJSON_AddNumberToObject(object, "busbw_gb_s", 1e-9 * (double)sizes[size] / seconds * bus_factor(b));
    lk__cli_json_line(object);
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
    printf("allreduce of floats, %d rank%s, backend %s; medians of %d runs\n", b->ranks, b->ranks == 1 ? "" : "s",
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

static bool installed(const char *program)
{
    char path[LK_EXECUTABLE_BYTES];
    return lk__executable_find(program, path) == LK_OK;
}

static lk_status run_all(bench *b)
{
    for (b->run = 0; b->run < b->runs; b->run++) {
        LK_TRY(lk_spawn(b->ranks, rank_main, b));
        if (b->present[OPEN_MPI])
            LK_TRY(run_openmpi(b));
    }
    return LK_OK;
}

lk_status lk__bench_allreduce(const lk_args *args)
{
    bench b = {.args = args,
               .ranks = args->nproc ? args->nproc : DEFAULT_RANKS,
               .largest = args->max_bytes,
               .runs = args->runs ? (int)args->runs : DEFAULT_RUNS};
    if (getenv(PEER_VARIABLE))
        return run_openmpi_rank(args);
    const lk_transport_type *transport;
    if (lk__engine_backend_find(args->train.backend) == LK_ENGINE_BACKEND_COUNT)
        return lk__fail(LK_STATUS_USAGE,
                        "`backend` %s moves gradients of training only: measure it with `lockstep bench train`",
                        args->train.backend);
    if (args->backend)
        LK_TRY(lk__transport_find(args->backend, &transport));
    size_t bytes = (size_t)b.runs * sizeof *b.seconds;
    void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return lk__fail_memory(bytes, "the times of all runs");
    b.seconds = shared;
    b.present[GROUP_MEMORY] = b.present[PLAIN_MEMORY] = true;
    b.present[OPEN_MPI] = b.ranks > 1 && installed("mpirun");
    if (!b.present[OPEN_MPI] && !args->json)
        printf("Open MPI is not measured: %s\n", b.ranks > 1 ? "mpirun is not installed" : "one rank only");
    lk_status status = run_all(&b);
    if (status == LK_OK && args->json)
        print_all_json(&b);
    else if (status == LK_OK)
        print_table(&b);
    munmap(shared, bytes);
    return status;
}
