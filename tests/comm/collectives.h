/* collectives.h - every collective with every data type. The values are small whole numbers: every
 * sum is exact in every type. */
#ifndef LK_TESTS_COMM_COLLECTIVES_H
#define LK_TESTS_COMM_COLLECTIVES_H

#include "comm/harness.h"

/* The shape of one call and its data; in and out each have room_of() elements of 8 bytes. */
typedef struct bench {
    lk_group *group;
    int rank, size;
    lk_dtype dtype;
    lk_reduction op;
    size_t count;
    unsigned seed; /* changes from call to call */
    void *in, *out;
} bench;

static inline size_t room_of(size_t count, int size)
{
    return 2 * count + 64 * (size_t)size + 64;
}

static inline double value_of(const bench *b, int rank, size_t i)
{
    uint32_t x = ((uint32_t)i + 77u * (uint32_t)rank + 1013u * b->seed) * 2654435761u;
    if (b->op == LK_REDUCTION_PRODUCT) /* products stay small */
        return rank % 4 == 0 && x >> 31 ? 2 : b->dtype == LK_DTYPE_U8 || x >> 30 & 1 ? 1 : -1;
    return (double)(x >> 28) - (b->dtype == LK_DTYPE_U8 ? 0 : 7);
}

static inline void fill(const bench *b, void *at, int rank, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        team_put(b->dtype, at, i, value_of(b, rank, first + i));
}

/* Checks that `at` has the values [first, first + count) of rank's vector. */
static inline void expect(const bench *b, const void *at, int rank, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        CHECK(team_get(b->dtype, at, i) == value_of(b, rank, first + i));
}

static inline void expect_untouched(const bench *b, const void *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        CHECK(((const uint8_t *)at)[i] == 0xa5);
}

static inline char *at_element(const bench *b, void *base, size_t i)
{
    return (char *)base + i * lk_dtype_size(b->dtype);
}

static inline double reduced(const bench *b, size_t i)
{
    double total = value_of(b, 0, i);
    for (int r = 1; r < b->size; r++) {
        double x = value_of(b, r, i);
        if (b->op == LK_REDUCTION_MIN)
            total = x < total ? x : total;
        else if (b->op == LK_REDUCTION_MAX)
            total = x > total ? x : total;
        else if (b->op == LK_REDUCTION_PRODUCT)
            total *= x;
        else
            total += x;
    }
    return total;
}

/* Checks that `at` has the elements [first, first + count) of the reduction, rounded to the type. */
static inline void expect_reduced(const bench *b, const void *at, size_t first, size_t count)
{
    bool whole = b->dtype == LK_DTYPE_I64 || b->dtype == LK_DTYPE_I32 || b->dtype == LK_DTYPE_U8;
    for (size_t i = 0; i < count; i++) {
        double want = reduced(b, first + i);
        unsigned char cell[8];
        if (b->op == LK_REDUCTION_MEAN)
            want = whole                      ? (double)((int)want / b->size)
                   : b->dtype == LK_DTYPE_F64 ? want / b->size
                                              : (double)((float)want / (float)b->size);
        team_put(b->dtype, cell, 0, want);
        CHECK(team_get(b->dtype, at, i) == team_get(b->dtype, cell, 0));
    }
}

static inline lk_buffer data_of(const bench *b, void *at, size_t count)
{
    return (lk_buffer){at, count, b->dtype};
}

/* Divides count unevenly among the ranks; some get 0. */
static inline void cut_count(const bench *b, size_t *counts)
{
    size_t weights = 0, given = 0;
    int last = 0;
    for (int r = 0; r < b->size; r++)
        weights += (size_t)(5u * (unsigned)r + b->seed) % 4;
    for (int r = 0; r < b->size; r++) {
        size_t weight = (size_t)(5u * (unsigned)r + b->seed) % 4;
        counts[r] = weights ? b->count * weight / weights : 0;
        given += counts[r];
        last = weight > 0 ? r : last;
    }
    counts[last] += b->count - given;
}

static inline size_t before(const size_t *counts, int rank)
{
    size_t total = 0;
    for (int r = 0; r < rank; r++)
        total += counts[r];
    return total;
}

static inline void try_allreduce(const bench *b)
{
    fill(b, b->in, b->rank, 0, b->count);
    CHECK_OK(lk_allreduce(b->group, data_of(b, b->in, b->count), b->op, NULL));
    expect_reduced(b, b->in, 0, b->count);
}

static inline void try_reduce(const bench *b)
{
    int root = (int)(b->seed % (unsigned)b->size);
    fill(b, b->in, b->rank, 0, b->count);
    CHECK_OK(lk_reduce(b->group, data_of(b, b->in, b->count), b->op, root, NULL));
    if (b->rank == root)
        expect_reduced(b, b->in, 0, b->count);
    else
        expect(b, b->in, b->rank, 0, b->count);
}

static inline void try_reduce_scatter(const bench *b)
{
    size_t counts[TEAM_MAX];
    cut_count(b, counts);
    fill(b, b->in, b->rank, 0, b->count);
    memset(b->out, 0xa5, (b->count + 1) * 8);
    CHECK_OK(lk_reduce_scatter(b->group, data_of(b, b->in, b->count), counts, b->out, b->op, NULL));
    expect_reduced(b, b->out, before(counts, b->rank), counts[b->rank]);
    expect_untouched(b, at_element(b, b->out, counts[b->rank]), 8);
    expect(b, b->in, b->rank, 0, b->count);
}

static inline void try_allgather(const bench *b, bool in_place)
{
    size_t counts[TEAM_MAX];
    cut_count(b, counts);
    size_t first = before(counts, b->rank), mine = counts[b->rank];
    void *from = in_place ? at_element(b, b->out, first) : b->in;
    memset(b->out, 0xa5, (b->count + 1) * 8);
    fill(b, from, b->rank, 0, mine);
    CHECK_OK(lk_allgather(b->group, data_of(b, from, mine), counts, b->out, NULL));
    for (int r = 0; r < b->size; r++)
        expect(b, at_element(b, b->out, before(counts, r)), r, 0, counts[r]);
    expect_untouched(b, at_element(b, b->out, b->count), 8);
}

/* Without counts every rank gives count / size elements. */
static inline void try_allgather_even(const bench *b)
{
    size_t mine = b->count / (size_t)b->size;
    fill(b, b->in, b->rank, 0, mine);
    CHECK_OK(lk_allgather(b->group, data_of(b, b->in, mine), NULL, b->out, NULL));
    for (int r = 0; r < b->size; r++)
        expect(b, at_element(b, b->out, mine * (size_t)r), r, 0, mine);
}

static inline void try_gather(const bench *b)
{
    size_t counts[TEAM_MAX];
    int root = (int)(b->seed % (unsigned)b->size);
    cut_count(b, counts);
    fill(b, b->in, b->rank, 0, counts[b->rank]);
    memset(b->out, 0xa5, (b->count + 1) * 8);
    void *out = b->rank == root ? b->out : NULL;
    CHECK_OK(lk_gather(b->group, data_of(b, b->in, counts[b->rank]), counts, out, root, NULL));
    for (int r = 0; r < b->size && b->rank == root; r++)
        expect(b, at_element(b, b->out, before(counts, r)), r, 0, counts[r]);
    expect_untouched(b, at_element(b, b->out, b->rank == root ? b->count : 0), 8);
}

static inline void try_scatter(const bench *b)
{
    size_t counts[TEAM_MAX];
    int root = (int)(b->seed % (unsigned)b->size);
    cut_count(b, counts);
    fill(b, b->in, root, 0, b->rank == root ? b->count : 0);
    memset(b->out, 0xa5, (b->count + 1) * 8);
    const void *in = b->rank == root ? b->in : NULL;
    CHECK_OK(lk_scatter(b->group, in, counts, data_of(b, b->out, counts[b->rank]), root, NULL));
    expect(b, b->out, root, before(counts, b->rank), counts[b->rank]);
    expect_untouched(b, at_element(b, b->out, counts[b->rank]), 8);
}

static inline void try_broadcast(const bench *b, int root)
{
    memset(b->in, 0xa5, (b->count + 1) * 8);
    if (b->rank == root)
        fill(b, b->in, root, 0, b->count);
    CHECK_OK(lk_broadcast(b->group, data_of(b, b->in, b->count), root, NULL));
    expect(b, b->in, root, 0, b->count);
    expect_untouched(b, at_element(b, b->in, b->count), 8);
}

/* The number of elements that `from` sends to `to`. */
static inline size_t portion(const bench *b, int from, int to)
{
    size_t unit = b->count / (2 * (size_t)b->size) + (b->count > 0);
    return unit * (size_t)((3u * (unsigned)from + 5u * (unsigned)to + b->seed) % 4);
}

static inline void try_alltoall(const bench *b)
{
    size_t send[TEAM_MAX] = {0}, recv[TEAM_MAX] = {0};
    for (int r = 0; r < b->size; r++) {
        send[r] = portion(b, b->rank, r);
        recv[r] = portion(b, r, b->rank);
    }
    size_t gives = before(send, b->size), takes = before(recv, b->size);
    for (int r = 0; r < b->size; r++)
        fill(b, at_element(b, b->in, before(send, r)), b->rank, 100 * (size_t)r, send[r]);
    memset(b->out, 0xa5, (takes + 1) * 8);
    CHECK_OK(lk_alltoall(b->group, data_of(b, b->in, gives), send, data_of(b, b->out, takes), recv, NULL));
    for (int r = 0; r < b->size; r++)
        expect(b, at_element(b, b->out, before(recv, r)), r, 100 * (size_t)b->rank, recv[r]);
    expect_untouched(b, at_element(b, b->out, takes), 8);
}

static inline void try_alltoall_even(const bench *b)
{
    size_t each = b->count / (size_t)b->size, all = each * (size_t)b->size;
    fill(b, b->in, b->rank, 0, all);
    CHECK_OK(lk_alltoall(b->group, data_of(b, b->in, all), NULL, data_of(b, b->out, all), NULL, NULL));
    for (int r = 0; r < b->size; r++)
        expect(b, at_element(b, b->out, each * (size_t)r), r, each * (size_t)b->rank, each);
}

/* Every rank sends its vector to the next rank while it receives from the one before. */
static inline void try_ring(const bench *b)
{
    int next = (b->rank + 1) % b->size, last = (b->rank + b->size - 1) % b->size;
    lk_request *out = NULL, *in = NULL;
    if (b->size == 1)
        return;
    fill(b, b->in, b->rank, 0, b->count);
    CHECK_OK(lk_send(b->group, data_of(b, b->in, b->count), next, &out));
    CHECK_OK(lk_recv(b->group, data_of(b, b->out, b->count), last, &in));
    CHECK_OK(lk_request_wait(b->seed % 2 ? in : out));
    CHECK_OK(lk_request_wait(b->seed % 2 ? out : in));
    expect(b, b->out, last, 0, b->count);
}

/* Neighbours swap vectors: first with blocking calls, then with a request for the send. */
static inline void try_swap(const bench *b)
{
    int peer = b->rank ^ 1;
    lk_request *sent = NULL;
    if (peer >= b->size)
        return;
    fill(b, b->in, b->rank, 0, b->count);
    if (b->rank < peer) {
        CHECK_OK(lk_send(b->group, data_of(b, b->in, b->count), peer, NULL));
        CHECK_OK(lk_recv(b->group, data_of(b, b->out, b->count), peer, NULL));
    } else {
        CHECK_OK(lk_recv(b->group, data_of(b, b->out, b->count), peer, NULL));
        CHECK_OK(lk_send(b->group, data_of(b, b->in, b->count), peer, NULL));
    }
    expect(b, b->out, peer, 0, b->count);
    memset(b->out, 0xa5, (b->count + 1) * 8);
    CHECK_OK(lk_send(b->group, data_of(b, b->in, b->count), peer, &sent));
    CHECK_OK(lk_recv(b->group, data_of(b, b->out, b->count), peer, NULL));
    CHECK_OK(lk_request_wait(sent));
    expect(b, b->out, peer, 0, b->count);
}

static inline void try_all(bench *b)
{
    try_allreduce(b);
    b->seed++;
    try_reduce(b);
    try_reduce_scatter(b);
    try_allgather(b, false);
    b->seed++;
    try_allgather(b, true);
    try_allgather_even(b);
    try_gather(b);
    b->seed++;
    try_scatter(b);
    for (int root = 0; root < b->size; root++)
        try_broadcast(b, root);
    b->seed++;
    try_alltoall(b);
    try_alltoall_even(b);
    try_ring(b);
    b->seed++;
    try_swap(b);
    b->seed += 7;
}

static inline void try_ops(bench *b)
{
    for (int op = 0; op < LK_REDUCTION_COUNT; op++) {
        b->op = (lk_reduction)op;
        try_allreduce(b);
        try_reduce(b);
        try_reduce_scatter(b);
        b->seed++;
    }
    b->op = LK_REDUCTION_SUM;
}

/* When a barrier returns, every rank has called it. */
static inline void try_barrier(const bench *b, const team_spec *team)
{
    for (int round = 1; round <= 20; round++) {
        team->page->counter++;
        CHECK_OK(lk_barrier(b->group, NULL));
        CHECK(team->page->counter >= round * b->size);
        CHECK_OK(lk_barrier(b->group, NULL));
    }
}

enum { FLIGHTS = 6 };
typedef enum landing { LAND_IN_ORDER, LAND_REVERSED, LAND_POLLED, LAND_COUNT } landing;

/* Several calls under way, each with its own part of the memory. */
static inline void try_flights(bench *b, landing how)
{
    static const size_t counts[FLIGHTS] = {5, 20011, 0, 300, 3001, 1};
    bench each[FLIGHTS];
    lk_request *requests[FLIGHTS] = {0};
    size_t first = 0;
    for (int i = 0; i < FLIGHTS; i++) {
        each[i] = *b;
        each[i].count = counts[i];
        each[i].dtype = team_dtypes[i];
        each[i].in = (char *)b->in + 8 * first;
        each[i].seed = b->seed + (unsigned)i;
        first += counts[i] + 8;
        fill(&each[i], each[i].in, b->rank, 0, counts[i]);
        if (i == 3 && b->size > 1)
            CHECK_OK(lk_broadcast(b->group, data_of(&each[i], each[i].in, counts[i]), 1, &requests[i]));
        else
            CHECK_OK(lk_allreduce(b->group, data_of(&each[i], each[i].in, counts[i]), b->op, &requests[i]));
    }
    for (int left = FLIGHTS; how == LAND_POLLED && left > 0;) {
        for (int i = 0; i < FLIGHTS; i++) {
            bool done = false;
            if (!requests[i])
                continue;
            CHECK_OK(lk_request_test(requests[i], &done));
            requests[i] = done ? NULL : requests[i];
            left -= done;
        }
    }
    for (int i = 0; how != LAND_POLLED && i < FLIGHTS; i++)
        CHECK_OK(lk_request_wait(requests[how == LAND_REVERSED ? FLIGHTS - 1 - i : i]));
    for (int i = 0; i < FLIGHTS; i++) {
        if (i == 3 && b->size > 1)
            expect(&each[i], each[i].in, 1, 0, counts[i]);
        else
            expect_reduced(&each[i], each[i].in, 0, counts[i]);
    }
    b->seed += FLIGHTS;
}

/* Starts two messages each way between all pairs and a barrier, then waits for all of them. */
static inline void try_crossing(bench *b)
{
    enum { MESSAGES = 2, LENGTH = 501 };
    lk_request *requests[4 * TEAM_MAX + 1];
    int count = 0;
    for (int r = 0; r < b->size; r++) {
        for (int m = 0; m < MESSAGES && r != b->rank; m++) {
            size_t at = (size_t)(MESSAGES * r + m) * LENGTH;
            fill(b, at_element(b, b->in, at), b->rank, (size_t)(10 * r + m), LENGTH);
            CHECK_OK(lk_recv(b->group, data_of(b, at_element(b, b->out, at), LENGTH), r, &requests[count++]));
            CHECK_OK(lk_send(b->group, data_of(b, at_element(b, b->in, at), LENGTH), r, &requests[count++]));
        }
    }
    CHECK_OK(lk_barrier(b->group, &requests[count++]));
    while (count > 0)
        CHECK_OK(lk_request_wait(requests[--count]));
    for (int r = 0; r < b->size; r++)
        for (int m = 0; m < MESSAGES && r != b->rank; m++)
            expect(b, at_element(b, b->out, (size_t)(MESSAGES * r + m) * LENGTH), r, (size_t)(10 * b->rank + m),
                   LENGTH);
    b->seed++;
}

/* How much is tested. */
typedef struct effort {
    size_t largest; /* elements of the largest vector */
    bool every;     /* all types with all counts; else large counts with f32 only */
} effort;

static inline void try_counts(bench *b, const effort *plan)
{
    static const size_t counts[] = {0, 1, 7, 1000};
    static const size_t odd[] = {700, 1500, 2500, 5003, 100003};
    for (size_t d = 0; d < TEAM_DTYPES; d++) {
        b->dtype = team_dtypes[d];
        for (size_t c = 0; c < COUNT_OF(counts); c++) {
            b->count = counts[c];
            try_all(b);
            try_ops(b);
        }
        b->op = (lk_reduction)(d % LK_REDUCTION_COUNT);
        for (size_t c = 0; c < COUNT_OF(odd); c++) {
            b->count = odd[c] < plan->largest ? odd[c] : plan->largest;
            if (plan->every || odd[c] < 10000 || d == 0)
                try_all(b);
            else
                try_allreduce(b);
        }
        b->op = LK_REDUCTION_SUM;
    }
    b->dtype = LK_DTYPE_F64;
    b->count = plan->largest;
    try_allreduce(b);
    try_reduce(b);
    try_reduce_scatter(b);
    try_broadcast(b, b->size - 1);
    try_allgather(b, false);
    try_ring(b);
}

static inline void try_more(bench *b, const team_spec *team)
{
    b->dtype = LK_DTYPE_I32;
    b->op = LK_REDUCTION_SUM;
    for (int how = 0; how < LAND_COUNT; how++)
        try_flights(b, (landing)how);
    b->dtype = LK_DTYPE_F32;
    try_crossing(b);
    try_barrier(b, team);
}

static inline void check_names(const lk_group *group, const team_spec *team)
{
    int here = 0, before_me = 0, rank = lk_group_rank(group);
    CHECK(lk_group_size(group) == team->size);
    for (int r = 0; r < team->size; r++) {
        bool same = !team->hosts || team->hosts[r] == team->hosts[rank];
        here += same;
        before_me += same && r < rank;
        CHECK(strlen(lk_group_host(group, r)) > 0);
    }
    CHECK(lk_group_local_size(group) == here && lk_group_local_rank(group) == before_me);
    CHECK(strcmp(team->transport, "auto") == 0 || strcmp(lk_group_transport(group), team->transport) == 0);
}

static inline bool try_collectives(lk_group *group, const team_spec *team, const void *arg)
{
    const effort *plan = arg;
    bench b = {.group = group, .rank = lk_group_rank(group), .size = lk_group_size(group), .seed = 1};
    size_t bytes = 8 * room_of(plan->largest, b.size);
    check_names(group, team);
    b.in = malloc(bytes);
    b.out = malloc(bytes);
    CHECK(b.in && b.out);
    try_counts(&b, plan);
    try_more(&b, team);
    free(b.in);
    free(b.out);
    team->page->counter = 0;
    CHECK_OK(lk_barrier(group, NULL));
    CHECK_OK(lk_group_alloc(group, bytes, &b.in));
    CHECK_OK(lk_group_alloc(group, bytes, &b.out));
    for (size_t i = 0; i < bytes; i += 997)
        CHECK(((char *)b.in)[i] == 0);
    CHECK_OK(lk_barrier(group, NULL));
    try_counts(&b, plan);
    try_more(&b, team);
    lk_group_free(group, b.in);
    return false;
}

#endif
