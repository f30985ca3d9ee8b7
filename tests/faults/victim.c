/* victim.c - a rank that makes one kind of call in a loop and fails at a chosen moment in a chosen way.
 * The scripts of this folder start it and check the effects.
 *
 *   victim [--call NAME] [--fault KIND --when MOMENT --in RANK] [--option VALUE] ...
 *
 * If the variable VICTIM_FOLDER is set, writes the time of the fault (seconds since 1970) to
 * fault.RANK and its process id to pid.RANK in that folder. If a call fails, exits with status 1 and
 * prints the detail and the history to stderr. */
#define _GNU_SOURCE /* setitimer */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <lockstep/group.h>

#include "base/hash.h"

enum { MAX_WORLD = 64, MAX_COUNT = 1 << 20 };

typedef struct settings {
    const char *init, *backend, *token, *call, *fault, *when;
    long rank, world, hosts, in, at, iterations, count, shards, stubborn, child, alloc, delay;
    double timeout, pause;
} settings;

static settings it = {.init = "env://",
                      .call = "allreduce",
                      .fault = "none",
                      .when = "inside",
                      .rank = -1,
                      .world = -1,
                      .in = -1,
                      .at = 3,
                      .iterations = 10,
                      .count = 3000,
                      .delay = 150000,
                      .timeout = 60};

static const struct {
    const char *name;
    const char **text;
    long *number;
    double *seconds;
} options[] = {
    {"--init", &it.init, NULL, NULL},       /* init method */
    {"--backend", &it.backend, NULL, NULL}, /* auto, shm, tcp */
    {"--token", &it.token, NULL, NULL},     /* the job's secret */
    {"--call", &it.call, NULL, NULL},       /* a row of calls[] */
    {"--fault", &it.fault, NULL, NULL},     /* a row of faults[], or none */
    {"--when", &it.when, NULL, NULL},       /* before, during, joining, absent, gone, after, inside */
    {"--delay", NULL, &it.delay, NULL},     /* microseconds to the fault, of during and joining */
    {"--rank", NULL, &it.rank, NULL},       /* default $RANK */
    {"--world", NULL, &it.world, NULL},     /* default $WORLD_SIZE */
    {"--hosts", NULL, &it.hosts, NULL},     /* so many hosts are simulated, in turn */
    {"--in", NULL, &it.in, NULL},           /* the rank that fails */
    {"--at", NULL, &it.at, NULL},           /* iteration of the fault */
    {"--iterations", NULL, &it.iterations, NULL},
    {"--count", NULL, &it.count, NULL},       /* elements a rank */
    {"--shards", NULL, &it.shards, NULL},     /* print the hash of a sum over so many shards */
    {"--stubborn", NULL, &it.stubborn, NULL}, /* 1: SIGTERM is ignored */
    {"--child", NULL, &it.child, NULL},       /* 1: with a child that outlives it */
    {"--alloc", NULL, &it.alloc, NULL},       /* bytes of group memory to ask for */
    {"--timeout", NULL, NULL, &it.timeout},
    {"--pause", NULL, NULL, &it.pause}, /* seconds between iterations */
};

static float *data, *more; /* (world * count) */
static size_t counts[MAX_WORLD];

static void fault_kill(void)
{
    raise(SIGKILL);
}

static void fault_exit(void)
{
    _exit(3);
}

static void fault_segv(void)
{
    volatile int *volatile nowhere = NULL;
    *nowhere = 1;
}

static void fault_stop(void)
{
    raise(SIGSTOP);
}

static const struct {
    const char *name;
    void (*commit)(void);
} faults[] = {{"kill", fault_kill}, {"exit", fault_exit}, {"segv", fault_segv}, {"stop", fault_stop}};

/* Writes a file and then renames it: others wait for a complete file. */
static void write_file(const char *name, const char *text)
{
    char path[PATH_MAX], temporary[PATH_MAX];
    const char *folder = getenv("VICTIM_FOLDER");
    if (!folder)
        return;
    snprintf(path, sizeof path, "%s/%s.%ld", folder, name, it.rank);
    snprintf(temporary, sizeof temporary, "%s/new.%s.%ld", folder, name, it.rank);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, text, strlen(text)) < 0 || close(fd) != 0 || rename(temporary, path) != 0)
        perror(path);
}

static void commit(void)
{
    struct timespec now;
    char text[64];
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(text, sizeof text, "%lld.%06ld\n", (long long)now.tv_sec, now.tv_nsec / 1000);
    write_file("fault", text);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (strcmp(faults[i].name, it.fault) == 0)
            faults[i].commit();
}

static void on_alarm(int number)
{
    commit();
}

static bool fails(const char *when)
{
    return it.rank == it.in && strcmp(it.fault, "none") != 0 && strcmp(it.when, when) == 0;
}

/* Makes the fault happen after it.delay, with a timer. With `during` the last rank does not join, so
 * this rank is in the rendezvous then. With `joining` all ranks join, and this rank may be anywhere,
 * for example in making shared memory. */
static void commit_soon(void)
{
    struct itimerval timer = {.it_value = {.tv_usec = it.delay}};
    signal(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &timer, NULL);
}

typedef struct pending {
    lk_request *requests[2];
} pending;

static lk_buffer part(void)
{
    return (lk_buffer){.at = data, .count = (size_t)it.count, .dtype = LK_DTYPE_F32};
}

static lk_buffer whole(float *at)
{
    return (lk_buffer){.at = at, .count = (size_t)(it.count * it.world), .dtype = LK_DTYPE_F32};
}

static lk_status allreduce(lk_group *group, pending *out)
{
    return lk_allreduce(group, part(), LK_REDUCTION_MAX, &out->requests[0]);
}

static lk_status reduce(lk_group *group, pending *out)
{
    return lk_reduce(group, part(), LK_REDUCTION_SUM, 0, &out->requests[0]);
}

static lk_status reduce_scatter(lk_group *group, pending *out)
{
    return lk_reduce_scatter(group, whole(data), counts, more, LK_REDUCTION_SUM, &out->requests[0]);
}

static lk_status allgather(lk_group *group, pending *out)
{
    return lk_allgather(group, part(), counts, more, &out->requests[0]);
}

static lk_status gather(lk_group *group, pending *out)
{
    return lk_gather(group, part(), counts, more, 0, &out->requests[0]);
}

static lk_status scatter(lk_group *group, pending *out)
{
    return lk_scatter(group, more, counts, part(), 0, &out->requests[0]);
}

static lk_status broadcast(lk_group *group, pending *out)
{
    return lk_broadcast(group, part(), 0, &out->requests[0]);
}

static lk_status alltoall(lk_group *group, pending *out)
{
    return lk_alltoall(group, whole(data), counts, whole(more), counts, &out->requests[0]);
}

static lk_status barrier(lk_group *group, pending *out)
{
    return lk_barrier(group, &out->requests[0]);
}

static lk_status message(lk_group *group, pending *out)
{
    int size = lk_group_size(group), rank = lk_group_rank(group);
    lk_buffer got = {.at = more, .count = (size_t)it.count, .dtype = LK_DTYPE_F32};
    lk_status status = lk_send(group, part(), (rank + 1) % size, &out->requests[0]);
    if (status != LK_OK)
        return status;
    return lk_recv(group, got, (rank + size - 1) % size, &out->requests[1]);
}

static const struct {
    const char *name;
    lk_status (*start)(lk_group *, pending *);
} calls[] = {
    {"allreduce", allreduce}, {"reduce", reduce},   {"reduce_scatter", reduce_scatter}, {"allgather", allgather},
    {"gather", gather},       {"scatter", scatter}, {"broadcast", broadcast},           {"alltoall", alltoall},
    {"barrier", barrier},     {"message", message},
};

static float shard_value(int shard, size_t element)
{
    uint64_t bits = lk__hash(&element, sizeof element, (uint64_t)shard);
    return (float)(bits >> 40) / 4096.0F * (bits & 1 ? 1.0F : -1.0F) * (bits & 2 ? 1e-3F : 1e3F);
}

/* The sum of the shards [first, last), a subtree. */
static void subtree(int first, int last, size_t count, float *out)
{
    if (last - first == 1) {
        for (size_t e = 0; e < count; e++)
            out[e] = shard_value(first, e);
        return;
    }
    int half = 1;
    while (2 * half < last - first)
        half *= 2;
    float *right = malloc(count * sizeof *right);
    if (!right)
        abort();
    subtree(first, first + half, count, out);
    subtree(first + half, last, count, right);
    for (size_t e = 0; e < count; e++)
        out[e] += right[e];
    free(right);
}

static lk_status sum_shards(lk_group *group)
{
    int bounds[MAX_WORLD + 1], begin[LK_MAX_ROOTS];
    int size = lk_group_size(group), rank = lk_group_rank(group), shards = (int)it.shards;
    size_t count = (size_t)it.count;
    const void *roots[LK_MAX_ROOTS];
    for (int r = 0; r <= size; r++)
        bounds[r] = (int)((long)shards * r / size);
    int n = lk_shard_roots(shards, bounds[rank], bounds[rank + 1], begin);
    float *vectors = malloc((size_t)(n + 1) * count * sizeof *vectors);
    if (!vectors)
        abort();
    for (int i = 0; i < n; i++) {
        subtree(begin[i], i + 1 < n ? begin[i + 1] : bounds[rank + 1], count, vectors + (size_t)i * count);
        roots[i] = vectors + (size_t)i * count;
    }
    lk_buffer out = {.at = vectors + (size_t)n * count, .count = count, .dtype = LK_DTYPE_F32};
    lk_shard_sums sums = {.bounds = bounds, .roots = roots};
    lk_status status = lk_allreduce_shards(group, &sums, out, LK_REDUCTION_SUM, NULL);
    if (status == LK_OK)
        printf("sum %016" PRIx64 "\n", lk__hash(out.at, count * sizeof(float), 0));
    free(vectors);
    return status;
}

static void print_notice(void *arg, const char *text)
{
    fprintf(stderr, "notice: %s\n", text);
}

static void pause_for(double seconds)
{
    struct timespec pause = {.tv_sec = (time_t)seconds, .tv_nsec = (long)(1e9 * (seconds - (double)(time_t)seconds))};
    if (seconds > 0)
        nanosleep(&pause, NULL);
}

/* Makes one iteration; a fault happens while the call is under way. */
static lk_status iterate(lk_group *group, long iteration)
{
    pending call = {{NULL, NULL}};
    bool done = false;
    lk_status status = LK_OK;
    for (size_t i = 0; i < sizeof calls / sizeof *calls && status == LK_OK; i++)
        if (strcmp(calls[i].name, it.call) == 0)
            status = calls[i].start(group, &call);
    for (int i = 0; i < 2 && status == LK_OK; i++) {
        if (i == 0 && iteration == it.at && fails("inside")) {
            status = lk_request_test(call.requests[i], &done);
            commit();
        }
        if (call.requests[i] && !done && status == LK_OK)
            status = lk_request_wait(call.requests[i]);
        done = false;
    }
    return status;
}

static lk_status work(lk_group *group)
{
    lk_status status = LK_OK;
    void *block;
    printf("joined: %s, rank %d of %d, %d here\n", lk_group_transport(group), lk_group_rank(group),
           lk_group_size(group), lk_group_local_size(group));
    fflush(stdout);
    if (fails("after"))
        commit();
    if (it.alloc > 0)
        status = lk_group_alloc(group, (size_t)it.alloc, &block);
    for (long i = 0; status == LK_OK && i < it.iterations; i++) {
        status = iterate(group, i);
        pause_for(it.pause);
    }
    if (status == LK_OK && it.shards > 0)
        status = sum_shards(group);
    return status;
}

/* Starts a child that ignores signals: the launcher must end it, too. */
static void start_child(void)
{
    if (fork() != 0)
        return;
    setsid();
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    for (;;)
        pause();
}

static void prepare(void)
{
    char text[64];
    const char *rank = getenv("RANK"), *world = getenv("WORLD_SIZE");
    if (it.rank < 0)
        it.rank = rank ? strtol(rank, NULL, 10) : 0;
    if (it.world < 0)
        it.world = world ? strtol(world, NULL, 10) : 1;
    if (it.world < 1 || it.world > MAX_WORLD || it.count < 0 || it.count > MAX_COUNT) {
        fprintf(stderr, "victim: too many ranks or elements\n");
        exit(2);
    }
    if (it.hosts > 0) {
        snprintf(text, sizeof text, "host-%ld-%s", it.rank % it.hosts, world ? world : "");
        setenv("LOCKSTEP_HOSTID", text, 1);
    }
    if (it.stubborn)
        signal(SIGTERM, SIG_IGN);
    snprintf(text, sizeof text, "%ld\n", (long)getpid());
    write_file("pid", text);
    if (it.child)
        start_child();
    for (long r = 0; r < it.world; r++)
        counts[r] = (size_t)it.count;
    data = calloc((size_t)(it.world * it.count) + 1, sizeof *data);
    more = calloc((size_t)(it.world * it.count) + 1, sizeof *more);
}

/* With `during` the last rank never joins, or joins after the fault if that is a stop. */
static void stay_away(void)
{
    char path[PATH_MAX];
    const char *folder = getenv("VICTIM_FOLDER");
    bool late = strcmp(it.when, "during") == 0 && it.rank == it.world - 1 && it.in != it.rank;
    if (strcmp(it.when, "absent") == 0 && it.rank == it.in)
        for (;;)
            pause();
    if (strcmp(it.when, "gone") == 0 && it.rank == it.in)
        exit(0);
    snprintf(path, sizeof path, "%s/fault.%ld", folder ? folder : ".", it.in);
    while (late && (strcmp(it.fault, "stop") != 0 || access(path, F_OK) != 0))
        pause_for(0.01);
}

static void parse(char **argv)
{
    for (; *argv; argv += 2) {
        size_t i = 0;
        while (i < sizeof options / sizeof *options && strcmp(options[i].name, *argv) != 0)
            i++;
        if (i == sizeof options / sizeof *options || !argv[1]) {
            fprintf(stderr, "victim: no option %s, or no value for it\n", *argv);
            exit(2);
        }
        if (options[i].text)
            *options[i].text = argv[1];
        else if (options[i].number)
            *options[i].number = strtol(argv[1], NULL, 10);
        else
            *options[i].seconds = strtod(argv[1], NULL);
    }
}

/* The reason comes last: the launcher keeps the last lines of a rank. */
static void tell_failure(lk_status status, const lk_group *group)
{
    static char history[64 * 256];
    if (group) {
        lk_group_history(group, history, sizeof history);
        fprintf(stderr, "history:\n%s", history);
    }
    fprintf(stderr, "victim: %s: %s\n", lk_status_string(status), lk_error_detail());
}

int main(int argc, char **argv)
{
    parse(argv + 1);
    prepare();
    lk_group_opts opts = {.init_method = it.init,
                          .rank = (int)it.rank,
                          .world_size = (int)it.world,
                          .backend = it.backend,
                          .timeout = it.timeout,
                          .token = it.token,
                          .notice = print_notice};
    lk_group *group = NULL;
    if (fails("before"))
        commit();
    if (fails("during") || fails("joining"))
        commit_soon();
    stay_away();
    lk_status status = lk_group_join(&opts, &group);
    if (status == LK_OK)
        status = work(group);
    if (status != LK_OK)
        tell_failure(status, group);
    lk_group_destroy(group);
    free(data);
    free(more);
    return status == LK_OK ? 0 : 1;
}
