/* test_device_sums.c - one program run by two executors: by polling frames, and by enqueuing work on
 * a channel between devices. Both give the bits of the tree's definition, and the channel gets no
 * more work than the schedule has. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "parallel/joined.h"

#include "check.h"
#include "comm/collective/device_sums.h"
#include "comm/collective/group_impl.h"
#include "comm/sums.h"

static const sum_case cases[] = {
    {16, 1000, LK_DTYPE_F32, LK_REDUCTION_SUM}, {5, 12007, LK_DTYPE_F32, LK_REDUCTION_SUM},
    {64, 301, LK_DTYPE_F32, LK_REDUCTION_SUM},  {11, 3, LK_DTYPE_F32, LK_REDUCTION_SUM},
    {8, 0, LK_DTYPE_F32, LK_REDUCTION_SUM},     {0},
};
static const int sizes[] = {1, 2, 3, 5, 8};
enum { SIZES = COUNT_OF(sizes) };

/* Counts the work of a rank's channel. */
typedef struct tally {
    int exchanges, adds;
    size_t sent, received; /* elements */
} tally;

static _Thread_local tally given;
static lk_channel_type counted; /* joined_type or joined_near, with a tally */
static const lk_channel_type *plain;

static lk_status counted_move(lk_channel *channel, const lk_channel_move *moves, int count)
{
    given.exchanges++;
    for (int i = 0; i < count; i++)
        *(moves[i].send ? &given.sent : &given.received) += moves[i].count;
    return plain->move(channel, moves, count);
}

static lk_status counted_add(lk_channel *channel, size_t count, const float *a, const float *b, float *out)
{
    given.adds++;
    return plain->add(channel, count, a, b, out);
}

static void count_on(const lk_channel_type *type)
{
    plain = type;
    counted = *type;
    counted.move = counted_move;
    counted.add = counted_add;
}

static lk_program *make_program(const shards *s)
{
    lk_program_key key = {.kind = LK_CALL_KIND_ALLREDUCE, .element = sizeof(float), .count = s->elements, .root = -1};
    lk_program_input input = {.topology = &s->group->topology, .rank = s->rank, .bounds = s->bounds, .segments = true};
    lk_program *program;
    CHECK_OK(lk__program_create(&key, &input, &program));
    return program;
}

/* Starts the group's executor as a call does. */
static void run_polled(const shards *s, lk_program *program, const partials *p, float *out)
{
    lk_group *group = s->group;
    lk_request *request;
    program->users++;
    CHECK_OK(lk__request_create(group, program, &request));
    request->call = (lk_call){.group = group->id,
                              .kind = LK_CALL_KIND_ALLREDUCE,
                              .dtype = LK_DTYPE_F32,
                              .op = LK_REDUCTION_SUM,
                              .root = -1,
                              .count = s->elements,
                              .number = group->calls++};
    request->op = LK_REDUCTION_SUM;
    request->out = (lk_request_window){(char *)out, 0, s->elements};
    for (int i = 0; i < p->count; i++)
        request->partials[i] = p->at[i];
    request->record = group->history_count++;
    group->history[request->record % LK_HISTORY] =
        (lk_call_record){.call = request->call, .peer = -1, .begin = lk__clock()};
    lk__executor_start(request);
    CHECK_OK(lk_request_wait(request));
}

/* Copies the vectors to slots in the device's memory, one stride apart. */
static lk_partials upload(const shards *s, lk_device *dev, const partials *p)
{
    lk_partials vectors = {.stride = s->elements + 5};
    size_t slots = p->count > 1 ? (size_t)p->count : 1;
    CHECK_OK(dev->type->alloc(dev, slots * vectors.stride * sizeof(float), "vectors", (void **)&vectors.slot0));
    for (int i = 0; i < p->count; i++)
        CHECK_OK(dev->type->upload(dev, p->at[i], s->elements * sizeof(float), lk__partials_slot(vectors, i)));
    return vectors;
}

static int all_roots(const shards *s)
{
    int count = 0;
    for (int r = 0; r < s->size; r++)
        count += lk_shard_roots(s->count, s->bounds[r], s->bounds[r + 1], NULL);
    return count;
}

/* There are two exchanges. A rank sends each of its vectors without its own segment, receives its
 * segment of all other vectors, adds one time less than there are vectors, and sends the sum. */
static void check_tally(const shards *s, int own)
{
    lk_span mine = lk__span_segment(s->elements, s->size, s->rank);
    size_t others = (size_t)s->size - 1, roots = (size_t)all_roots(s);
    CHECK(given.exchanges == (s->size > 1 ? 2 : 1));
    CHECK(given.adds == (mine.count ? (int)roots - 1 : 0));
    CHECK(given.sent == (size_t)own * (s->elements - mine.count) + others * mine.count);
    CHECK(given.received == (roots - (size_t)own) * mine.count + (s->elements - mine.count));
}

/* Runs the program, then a sum that finds its own program, then waits for the mark. */
static void run_enqueued(const shards *s, const lk_program *program, lk_device *dev, const partials *p,
                         const void *want)
{
    lk_partials vectors[] = {upload(s, dev, p), upload(s, dev, p)};
    lk_device_sums_opts opts = {
        .group = s->group, .bounds = s->bounds, .dev = dev, .channel = &counted, .sums = 1, .most = s->elements};
    lk_device_sums *direct;
    CHECK_OK(lk__device_sums_create(&opts, &direct));
    given = (tally){0};
    CHECK_OK(lk__device_sums_run(direct, program, vectors[0]));
    check_tally(s, p->count);
    CHECK_OK(lk__device_sums_sum(direct, 0, s->elements, vectors[1]));
    CHECK_OK(lk__device_sums_lead(direct, 0));
    CHECK_OK(lk__device_sums_wait(direct));
    lk__device_sums_leave(direct);
    lk__device_sums_destroy(direct);
    for (int k = 0; k < 2; k++) {
        same_bits(s, vectors[k].slot0, want, 0, s->elements);
        for (int i = 1; i < p->count; i++)
            same_bits(s, lk__partials_slot(vectors[k], i), p->at[i], 0, s->elements);
        dev->type->free(dev, vectors[k].slot0);
    }
}

static void try_program(const shards *s, const void *want, lk_device *dev)
{
    partials p = make_partials(s, false);
    lk_program *program = make_program(s);
    float *out = calloc(s->elements + 1, sizeof *out);
    CHECK(out);
    run_polled(s, program, &p, out);
    same_bits(s, out, want, 0, s->elements);
    run_enqueued(s, program, dev, &p, want);
    lk__program_release(program);
    free_partials(s, &p, false);
    free(out);
}

static bool try_all(lk_group *group, const team_spec *team, const void *arg)
{
    lk_device *dev;
    CHECK_OK(lk__device_open("far", &(lk_device_opts){.threads = 1}, &dev));
    for (const sum_case *c = arg; c->count > 0; c++) {
        int bounds[TEAM_MAX + 1];
        shards s = {group, lk_group_rank(group), lk_group_size(group), c->dtype, c->op, c->count, c->elements, bounds};
        void *want = reference(&s);
        for (int which = 0; which < MAX_CUTS; which++) {
            if (cut_shards(c->count, s.size, which, bounds))
                try_program(&s, want, dev);
        }
        free(want);
    }
    lk__device_close(dev);
    return false;
}

static void try_sizes(const lk_channel_type *type)
{
    count_on(type);
    for (size_t i = 0; i < SIZES; i++)
        assert_true(team_run((team_spec){.size = sizes[i], .transport = "inproc"}, try_all, cases));
}

static void test_moves_at_once(void **state)
{
    try_sizes(&joined_type);
}

static void test_moves_in_halves(void **state)
{
    try_sizes(&joined_near);
}

int main(void)
{
    if (joined_add_device() != LK_OK)
        return 1;
    return RUN_TESTS(NULL, NULL, TEST(test_moves_at_once), TEST(test_moves_in_halves));
}
