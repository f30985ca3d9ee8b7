/* scale.c - one training step of a data-parallel job on simulated hosts; bench/scale/run starts it.
 *
 * Computation is a clock: bucket i can be summed `ready` seconds after a step begins, and the step's own work
 * ends after `compute` seconds. A thread with a core of its own sums the buckets in their order (poll=0), or
 * the computing thread does so between layers, every `poll` seconds, and computes later what it lost.
 *
 * Arguments are words NAME=VALUE. Rank 0 prints one JSON object. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <smpi/smpi.h>

#include "ours.h"
#include "peers.h"
#include "smpi_table.h"

typedef struct bucket {
    double ready;
    size_t count;
} bucket;

enum { MOST_BUCKETS = 512 };

typedef struct plan {
    const char *how, *measure;
    double compute, poll, fold_rate;
    int steps, local;
    size_t check; /* elements of a sum of real numbers; 0: none */
    bucket buckets[MOST_BUCKETS];
    int bucket_count;
    size_t total, largest;
} plan;

typedef struct runner {
    const plan *plan;
    scale_ours *ours; /* NULL: a peer */
    scale_peer peer;
    float *data;
} runner;

static void fail(const char *what)
{
    fprintf(stderr, "scale: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

static void read_buckets(plan *p, const char *text)
{
    for (char *end; *text; text = *end ? end + 1 : end) {
        if (p->bucket_count == MOST_BUCKETS)
            fail("too many buckets");
        bucket *b = &p->buckets[p->bucket_count++];
        b->ready = strtod(text, &end);
        if (*end != ':')
            fail("buckets= wants READY:COUNT,READY:COUNT,...");
        b->count = strtoull(end + 1, &end, 10);
        p->total += b->count;
        p->largest = b->count > p->largest ? b->count : p->largest;
    }
}

static void read_word(plan *p, const char *word)
{
    const char *value = strchr(word, '=');
    if (!value)
        fail("an argument is not NAME=VALUE");
    size_t name = (size_t)(value - word);
    value++;
    if (name == 3 && !strncmp(word, "how", name))
        p->how = value;
    else if (name == 7 && !strncmp(word, "measure", name))
        p->measure = value;
    else if (name == 7 && !strncmp(word, "compute", name))
        p->compute = strtod(value, NULL);
    else if (name == 4 && !strncmp(word, "poll", name))
        p->poll = strtod(value, NULL);
    else if (name == 4 && !strncmp(word, "fold", name))
        p->fold_rate = strtod(value, NULL);
    else if (name == 5 && !strncmp(word, "steps", name))
        p->steps = (int)strtol(value, NULL, 10);
    else if (name == 5 && !strncmp(word, "local", name))
        p->local = (int)strtol(value, NULL, 10);
    else if (name == 5 && !strncmp(word, "check", name))
        p->check = strtoull(value, NULL, 10);
    else if (name == 7 && !strncmp(word, "buckets", name))
        read_buckets(p, value);
    else
        fail("an argument has an unknown name");
}

static void sum(const runner *r, float *data, size_t count)
{
    if (!r->ours) {
        scale_peer_sum(&r->peer, data, count);
        return;
    }
    scale_ours_start(r->ours, data, count);
    scale_ours_wait(r->ours);
}

/* The sums have a thread of their own: it sleeps until a bucket is ready. */
static void step_beside(const runner *r)
{
    const plan *p = r->plan;
    double begin = MPI_Wtime();
    float *at = r->data;
    for (int i = 0; i < p->bucket_count; i++) {
        scale_sleep(begin + p->buckets[i].ready - MPI_Wtime());
        sum(r, at, p->buckets[i].count);
        at += p->buckets[i].count;
    }
    scale_sleep(begin + p->compute - MPI_Wtime());
}

/* The computing thread polls. The time of its folds is lost for computing. */
static void step_between(const runner *r)
{
    const plan *p = r->plan;
    double computed = 0;
    float *at = r->data;
    for (int i = 0; computed < p->compute;) {
        double slice = p->compute - computed < p->poll ? p->compute - computed : p->poll;
        scale_sleep(slice);
        computed += slice;
        for (; i < p->bucket_count && p->buckets[i].ready <= computed + 1e-9; i++) {
            scale_ours_start(r->ours, at, p->buckets[i].count);
            at += p->buckets[i].count;
        }
        scale_ours_poll(r->ours);
    }
    scale_ours_wait(r->ours);
}

static void sum_whole(const runner *r)
{
    sum(r, r->data, r->plan->total);
}

static void sum_buckets(const runner *r)
{
    float *at = r->data;
    for (int i = 0; i < r->plan->bucket_count; i++) {
        sum(r, at, r->plan->buckets[i].count);
        at += r->plan->buckets[i].count;
    }
}

static void sum_one_bucket(const runner *r)
{
    sum(r, r->data, r->plan->largest);
}

static void sum_last_bucket(const runner *r)
{
    sum(r, r->data, r->plan->buckets[r->plan->bucket_count - 1].count);
}

static void sum_word(const runner *r)
{
    sum(r, r->data, 1);
}

static void run_steps(const runner *r)
{
    for (int i = 0; i < r->plan->steps; i++) {
        if (r->plan->poll > 0 && r->ours)
            step_between(r);
        else
            step_beside(r);
    }
}

/* The longest time of all ranks. */
static double time_of(const runner *r, void (*work)(const runner *r))
{
    double most = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    work(r);
    double mine = MPI_Wtime() - begin;
    MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

static float leaf(int rank, size_t i)
{
    unsigned x = (unsigned)rank * 2654435761u + (unsigned)i * 40503u + 12345u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    float value = (float)(x >> 8) / (float)(1u << (x % 20));
    return x & 32 ? -value : value;
}

/* The sum of the ranks [lo,hi) by the definition of the tree. */
static float tree_sum(int lo, int hi, size_t i)
{
    int half = 1;
    if (hi - lo == 1)
        return leaf(lo, i);
    while (2 * half < hi - lo)
        half *= 2;
    return tree_sum(lo, lo + half, i) + tree_sum(lo + half, hi, i);
}

/* Returns the number of elements, of all ranks, that differ from the definition. */
static long long wrong_bits(const runner *r, int rank, int size)
{
    size_t count = r->plan->check;
    long long mine = 0, all = 0;
    float *data = malloc(count * sizeof *data);
    if (!data)
        fail("out of memory");
    for (size_t i = 0; i < count; i++)
        data[i] = leaf(rank, i);
    sum(r, data, count);
    for (size_t i = 0; i < count; i++) {
        float want = tree_sum(0, size, i);
        mine += memcmp(&want, &data[i], sizeof want) != 0;
    }
    free(data);
    MPI_Allreduce(&mine, &all, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

/* What can be measured. */
static const struct {
    const char *name;
    void (*work)(const runner *r);
} measures[] = {
    {"word", sum_word},         /* a sum of one float */
    {"bucket", sum_one_bucket}, /* of the largest bucket */
    {"last", sum_last_bucket},  /* of the last bucket, which backward cannot hide */
    {"one", sum_whole},         /* of the whole gradient in one call */
    {"alone", sum_buckets},     /* of all buckets, one after the other */
    {"step", run_steps},        /* a step: computation, and the buckets' sums beside it */
};

static void report(const runner *r, int rank, int size)
{
    const plan *p = r->plan;
    if (rank == 0)
        printf("{\"ranks\": %d, \"how\": \"%s\", \"bytes\": %zu, \"buckets\": %d, \"compute\": %.9f", size, p->how,
               p->total * sizeof(float), p->bucket_count, p->compute);
    for (size_t i = 0; i < sizeof measures / sizeof *measures; i++) {
        if (!strstr(p->measure, measures[i].name))
            continue;
        double seconds = time_of(r, measures[i].work);
        if (rank == 0)
            printf(", \"%s\": %.9f", measures[i].name, seconds / (measures[i].work == run_steps ? p->steps : 1));
    }
    if (rank == 0)
        printf("}\n");
}

int main(int argc, char **argv)
{
    static plan p = {.how = "tree", .measure = "step", .steps = 1, .local = 1, .fold_rate = 10e9};
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 1; i < argc; i++)
        read_word(&p, argv[i]);
    runner r = {.plan = &p};
    bool direct = !strcmp(p.how, "direct");
    if (direct || !strcmp(p.how, "tree"))
        r.ours = scale_ours_open(&(scale_ours_opts){
            .rank = rank, .size = size, .local = p.local, .fold_rate = p.check ? 0 : p.fold_rate, .direct = direct});
    else if (!scale_peer_open(p.how, p.check ? 0 : p.fold_rate, &r.peer))
        fail("how= is one of tree, direct, ring, mpi");
    if (p.check) {
        long long wrong = wrong_bits(&r, rank, size);
        if (rank == 0)
            printf("{\"ranks\": %d, \"how\": \"%s\", \"elements\": %zu, \"wrong\": %lld}\n", size, p.how, p.check,
                   wrong);
    } else {
        r.data = scale_shared_alloc(p.total * sizeof *r.data);
        report(&r, rank, size);
        scale_shared_free(r.data);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (r.ours)
        scale_ours_close(r.ours);
    MPI_Finalize();
    return 0;
}
