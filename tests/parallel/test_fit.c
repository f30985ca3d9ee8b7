/* test_fit.c - the error for a lack of memory says how much is needed, for what, and what to change;
 * the advised change is enough. */
#include <lockstep/lockstep.h>

#include "base/text.h"
#include "far.h"
#include "parallel/layout/defaults.h"
#include "parallel/memory/fit.h"
#include "processes.h"

/* The only rank of a job, as the engine describes it. */
typedef struct alone {
    lk_engine_rank_model rank;
    lk_graph *graph;
    int bounds[2];
} alone;

static void alone_on(const char *device, alone *a, const char *model, lk_model_shape shape, const lk_engine_opts *opts)
{
    assert_int_equal(lk_model_build(model, shape, &a->graph), LK_OK);
    a->rank = (lk_engine_rank_model){.graph = a->graph, .opts = lk__engine_defaults(opts)};
    a->bounds[0] = 0;
    a->bounds[1] = a->rank.opts.shards;
    a->rank.grid =
        (lk_grid){.replicas = 1, .stages = 1, .first_layer = 1, .last_layer = a->graph->count, .bounds = a->bounds};
    assert_int_equal(lk__device_open(device, &(lk_device_opts){.threads = 1}, &a->rank.dev), LK_OK);
}

static void alone_init(alone *a, const char *model, lk_model_shape shape, const lk_engine_opts *opts)
{
    alone_on("cpu", a, model, shape, opts);
}

static void alone_fini(alone *a)
{
    lk__device_close(a->rank.dev);
    lk_graph_destroy(a->graph);
}

static size_t need_of(const lk_engine_rank_model *rank)
{
    lk_engine_size size;
    assert_int_equal(lk__engine_measure_rank(rank, &size), LK_OK);
    return lk__engine_size_total(&size);
}

static lk_available room_of(size_t host, size_t process)
{
    return (lk_available){{host, "the test's host"}, {process, "the test's ulimit"}};
}

/* Returns the number that follows the words in the text. */
static size_t number_after(const char *text, const char *words)
{
    const char *at = strstr(text, words);
    if (!at)
        fail_msg("'%s' lacks '%s'", text, words);
    return strtoul(at + strlen(words), NULL, 10);
}

static const lk_model_shape grey = {1, 28, 28, 10}, colour = {3, 32, 32, 10};

static void test_enough(void **arg)
{
    alone a;
    alone_init(&a, "cnn", grey, &(lk_engine_opts){.batch = 256});
    lk_engine_size size;
    assert_int_equal(lk__engine_measure_rank(&a.rank, &size), LK_OK);
    size_t need = need_of(&a.rank) + size.parameters; /* the second term is a copy of the parameters */
    const size_t rooms[] = {SIZE_MAX, 2 * need, need, need - need / 20};
    for (size_t i = 0; i < COUNT_OF(rooms); i++) {
        lk_available host = room_of(rooms[i], SIZE_MAX), process = room_of(SIZE_MAX, rooms[i]);
        assert_int_equal(lk__fit_check(&a.rank, &host), LK_OK);
        assert_int_equal(lk__fit_check(&a.rank, &process), LK_OK);
    }
    alone_fini(&a);
}

static void test_micro_batch(void **arg)
{
    alone a;
    alone_init(&a, "cnn", grey, &(lk_engine_opts){.batch = 2048, .optimizer = "adam"});
    size_t room = need_of(&a.rank) / 3;
    lk_available available = room_of(room, SIZE_MAX);
    assert_fails(lk__fit_check(&a.rank, &available), LK_STATUS_MEMORY, "this rank needs ");
    assert_detail(" MB of memory, but the test's host leaves ");
    assert_detail(" MB for activations of 2048 samples, ");
    assert_detail("MB for the optimiser's state");
    assert_detail("MB for parameters");
    size_t wave = number_after(lk_error_detail(), "It would fit with `micro_batch` ");
    assert_in_range(wave, 2048 / 16, 2047);
    assert_int_equal(wave % (2048 / 16), 0); /* whole shards */
    assert_null(strstr(lk_error_detail(), "another result"));
    a.rank.opts.micro_batch = wave;
    assert_true(need_of(&a.rank) < room);
    /* The advised micro-batch is not much smaller than necessary. */
    a.rank.opts.micro_batch = 2 * wave;
    lk_engine_size size;
    assert_int_equal(lk__engine_measure_rank(&a.rank, &size), LK_OK);
    assert_true(lk__engine_size_total(&size) + size.parameters + size.optimizer > room / 2);
    a.rank.opts.micro_batch = wave;
    assert_int_equal(lk__fit_check(&a.rank, &available), LK_OK);
    alone_fini(&a);
}

/* Waves smaller than a shard need more shards. */
static void test_shards(void **arg)
{
    alone a;
    alone_init(&a, "cnn", grey, &(lk_engine_opts){.batch = 8192, .shards = 2});
    lk_available available = room_of(SIZE_MAX, need_of(&a.rank) / 4);
    assert_fails(lk__fit_check(&a.rank, &available), LK_STATUS_MEMORY, "the test's ulimit leaves");
    assert_detail("; or raise the limit");
    a.rank.opts.shards = a.bounds[1] = (int)number_after(lk_error_detail(), "It would fit with `shards` ");
    a.rank.opts.micro_batch = number_after(lk_error_detail(), " `micro_batch` ");
    assert_in_range(a.rank.opts.shards, 4, LK_MAX_SHARDS);
    assert_true(need_of(&a.rank) < available.process.bytes);
    assert_int_equal(lk__fit_check(&a.rank, &available), LK_OK);
    alone_fini(&a);
}

/* BatchNorm over the batch allows no waves. */
static void test_one_wave(void **arg)
{
    alone a;
    alone_init(&a, "resnet20:width=8", colour, &(lk_engine_opts){.batch = 1024});
    lk_available available = room_of(need_of(&a.rank) / 3, SIZE_MAX);
    assert_int_equal(lk__fit_check(&a.rank, &available), LK_STATUS_MEMORY);
    size_t wave = number_after(lk_error_detail(), "It would fit with `bn` shard `micro_batch` ");
    size_t batch = number_after(lk_error_detail(), "or with batches of ");
    size_t times = number_after(strstr(lk_error_detail(), "`batch`"), "or with ");
    assert_detail(" times as many hosts and ranks");
    /* The result is that of the run with more hosts, but not with `bn` shard or a smaller batch. */
    assert_detail(" MB a rank, another result), or with batches of ");
    assert_detail(" MB a rank, another result), or with");
    assert_detail(" MB a rank)");
    assert_in_range(wave, 1024 / 16, 1023);
    assert_in_range(batch, 1, 1024 / 3);
    assert_in_range(times, 3, 16);
    a.rank.opts.batch = batch;
    assert_int_equal(lk__fit_check(&a.rank, &available), LK_OK);
    a.rank.opts.batch = 1024;
    a.rank.opts.bn = LK_BN_MODE_SHARD;
    a.rank.opts.micro_batch = wave;
    assert_int_equal(lk__fit_check(&a.rank, &available), LK_OK);
    alone_fini(&a);
}

/* If parameters need most of the memory, a smaller batch does not help. */
static void test_parameters(void **arg)
{
    alone a;
    alone_init(&a, "mlp:hidden=4096", grey, &(lk_engine_opts){.batch = 16, .optimizer = "adam"});
    size_t need = need_of(&a.rank);
    lk_available available = room_of(need - need / 8, SIZE_MAX);
    assert_fails(lk__fit_check(&a.rank, &available), LK_STATUS_MEMORY, "It would fit with `optimizer` sgd");
    assert_null(strstr(lk_error_detail(), "`micro_batch`"));
    a.rank.opts.optimizer = "sgd";
    assert_int_equal(lk__fit_check(&a.rank, &available), LK_OK);
    available = room_of(need_of(&a.rank) - need / 16, SIZE_MAX);
    assert_int_equal(lk__fit_check(&a.rank, &available), LK_STATUS_MEMORY);
    assert_null(strstr(lk_error_detail(), "`optimizer`"));
    assert_null(strstr(lk_error_detail(), "`micro_batch`"));
    alone_fini(&a);
}

static void test_stages(void **arg)
{
    alone a;
    alone_init(&a, "resnet18", (lk_model_shape){3, 224, 224, 1000}, &(lk_engine_opts){.batch = 1, .shards = 1});
    lk_available available = room_of(need_of(&a.rank) * 7 / 8, SIZE_MAX);
    assert_int_equal(lk__fit_check(&a.rank, &available), LK_STATUS_MEMORY);
    size_t stages = number_after(lk_error_detail(), "It would fit with `stages` ");
    assert_in_range(stages, 2, 16);
    alone_fini(&a);
}

static void test_nothing_helps(void **arg)
{
    alone a;
    alone_init(&a, "mlp", grey, &(lk_engine_opts){.batch = 64});
    lk_available available = room_of(1000, SIZE_MAX);
    assert_fails(lk__fit_check(&a.rank, &available), LK_STATUS_MEMORY, "leaves 1.00 kB");
    assert_detail("It takes more memory, or a smaller model or batch");
    alone_fini(&a);
}

/* A batch whose memory cannot be measured. */
static void test_no_measure(void **arg)
{
    alone a;
    alone_init(&a, "cnn", grey, &(lk_engine_opts){.batch = (size_t)1 << 50});
    lk_available available = room_of(SIZE_MAX, SIZE_MAX);
    assert_fails(lk__fit_check(&a.rank, &available), LK_STATUS_MEMORY, "would need over");
    alone_fini(&a);
}

static void test_explain(void **arg)
{
    alone a;
    alone_init(&a, "cnn", grey, &(lk_engine_opts){.batch = 2048});
    (void)lk__fail_memory(12345, "a test");
    assert_fails(lk__fit_explain(&a.rank), LK_STATUS_MEMORY, "no memory for a test (12345 bytes). This rank needs ");
    assert_detail("for activations of 2048 samples");
    a.rank.opts.micro_batch = number_after(lk_error_detail(), "Less is needed with `micro_batch` ");
    size_t less = need_of(&a.rank);
    a.rank.opts.micro_batch = 0;
    assert_true(less < need_of(&a.rank) / 2);
    alone_fini(&a);
}

/* A device with memory of its own, of which this much is free. */
static size_t free_bytes;

static size_t far_room(lk_device *dev)
{
    return free_bytes;
}

static void explain_far(const alone *a, size_t (*room)(lk_device *dev), size_t bytes)
{
    far_type.room = room;
    free_bytes = bytes;
    (void)lk__fail_memory(12345, "a test");
    assert_int_equal(lk__fit_explain(&a->rank), LK_STATUS_MEMORY);
    assert_int_equal(a->rank.dev->values, LK_DTYPE_F32);
}

/* The advice uses the device's free memory, and half of the need where that says nothing. */
static void test_room_of_the_device(void **arg)
{
    alone a;
    alone_on("far", &a, "resnet20:width=8", colour, &(lk_engine_opts){.batch = 2048});
    size_t need = need_of(&a.rank);
    struct {
        size_t (*room)(lk_device *dev);
        size_t bytes, more, less; /* the free memory, and between what the advised batch needs */
    } rows[] = {{far_room, need - need / 8, need / 2, need - need / 8},
                {far_room, need / 3, need / 5, need / 3},
                {far_room, 2 * need, need / 3, need / 2},
                {NULL, 0, need / 3, need / 2}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        explain_far(&a, rows[i].room, rows[i].bytes);
        a.rank.opts.batch = number_after(lk_error_detail(), "or with batches of ");
        assert_in_range(need_of(&a.rank), rows[i].more, rows[i].less);
        a.rank.opts.batch = 2048;
    }
    alone_fini(&a);
}

/* bf16 is measured, too. */
static void test_bf16(void **arg)
{
    alone a;
    char want[64], number[LK_TEXT_AMOUNT];
    alone_on("far", &a, "resnet20:width=8", colour, &(lk_engine_opts){.batch = 2048});
    size_t wide = need_of(&a.rank);
    a.rank.dev->values = LK_DTYPE_BF16;
    size_t narrow = need_of(&a.rank);
    a.rank.dev->values = LK_DTYPE_F32;
    assert_true(narrow < wide * 2 / 3);
    explain_far(&a, far_room, wide - wide / 8);
    snprintf(want, sizeof want, "or with `precision` bf16 (%s a rank, another result)",
             lk__text_amount(narrow, number));
    assert_detail(want);
    explain_far(&a, far_room, narrow - narrow / 8);
    assert_null(strstr(lk_error_detail(), "bf16"));
    assert_detail("or with batches of ");
    alone_fini(&a);
}

/* One of two ranks lacks memory: both fail, and the detail says why. */
enum { RANKS = 2 };

typedef struct member {
    alone a;
    lk_available available;
    lk_status status;
    char detail[2048];
} member;

static void be_member(int rank, void *arg)
{
    member *m = (member *)arg + rank;
    lk_group *group = m->a.rank.grid.world;
    m->status = lk__fit_check(&m->a.rank, &m->available);
    snprintf(m->detail, sizeof m->detail, "%s", lk_error_detail());
    if (m->status == LK_STATUS_MEMORY)
        lk_group_abort(group, m->detail);
    lk_group_destroy(group);
}

static void run_members(member members[RANKS], const size_t rooms[RANKS], bool host)
{
    static const lk_engine_opts opts = {.batch = 1024};
    lk_group *groups[RANKS];
    assert_int_equal(lk_group_create_threads(RANKS, &(lk_group_opts){.timeout = 30}, groups), LK_OK);
    for (int r = 0; r < RANKS; r++) {
        members[r] = (member){.available = host ? room_of(rooms[r], SIZE_MAX) : room_of(SIZE_MAX, rooms[r])};
        alone_init(&members[r].a, "cnn", grey, &opts);
        members[r].a.rank.grid.world = groups[r];
    }
    threads_run(RANKS, be_member, members);
}

static void test_ranks(void **arg)
{
    member members[RANKS];
    alone a;
    alone_init(&a, "cnn", grey, &(lk_engine_opts){.batch = 1024});
    size_t need = need_of(&a.rank);
    alone_fini(&a);
    const size_t enough[RANKS] = {2 * need, 2 * need}, little[RANKS] = {need, need}, second[RANKS] = {SIZE_MAX, need};
    for (int host = 0; host <= 1; host++) {
        run_members(members, enough, host);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(members[r].status, LK_OK);
            alone_fini(&members[r].a);
        }
        for (int failing = 0; failing < RANKS; failing++) {
            run_members(members, failing == 0 ? little : second, host);
            assert_int_equal(members[failing].status, LK_STATUS_MEMORY);
            assert_int_equal(members[1 - failing].status, LK_STATUS_PEER);
            const char *words = host ? "2 ranks of this host need " : "2 ranks of this process need ";
            for (int r = 0; r < RANKS; r++) {
                assert_contains(members[r].detail, words);
                assert_contains(members[r].detail, "A rank needs ");
                assert_contains(members[r].detail, "It would fit with `micro_batch` ");
                alone_fini(&members[r].a);
            }
        }
    }
}

int main(void)
{
    if (far_add() != LK_OK)
        return 1;
    return RUN_TESTS(NULL, NULL, TEST(test_enough), TEST(test_micro_batch), TEST(test_shards), TEST(test_one_wave),
                     TEST(test_parameters), TEST(test_stages), TEST(test_nothing_helps), TEST(test_no_measure),
                     TEST(test_explain), TEST(test_room_of_the_device), TEST(test_bf16), TEST(test_ranks));
}
