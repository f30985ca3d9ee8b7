/* test_own_rule.c - an optimiser rule of the program: one that repeats sgd has the bits of sgd, however the work is
 * divided, its states are saved by their names, and wrong definitions are refused. */
#include <math.h>

#include "optim/optim.h"
#include "ranks.h"
#include "tape.h"

enum { MOMENTUM, WEIGHT_DECAY };

/* sgd as tensor/cpu/optim.c has it. */
static void update(void *arg, const lk_optimizer_update *u)
{
    const lk_optimizer_numbers *now = u->numbers;
    float lr = (float)now->lr, decay = (float)now->weight_decay, momentum = (float)u->values[MOMENTUM];
    for (size_t i = 0; i < u->count; i++) {
        float d = fmaf(decay, u->params[i], u->grads[i]);
        if (now->step > 1)
            d = fmaf(1.0f, d, momentum * u->states[0][i]);
        u->states[0][i] = d;
        u->params[i] = fmaf(-lr, d, u->params[i]);
    }
    atomic_store((atomic_bool *)arg, true);
}

static atomic_bool seen;
static const lk_optimizer_param params[] = {{"momentum", .5, 0, 1}, {"weight_decay", 0, 0, 1e6}};
static const char *const states[] = {"momentum_buffer"};
static const lk_optimizer_def own = {
    .name = "own_sgd",
    .lr = .01,
    .params = params,
    .param_count = 2,
    .states = states,
    .state_count = 1,
    .cpu = update,
    .arg = &seen,
};

enum { KB = 1024 };
enum { MLP, RES, CASES };

static const law_group groups[] = {
    {"*.bias", {.lr_scale = 2, .weight_decay = LK_NO_DECAY}}, {"conv1.weight", {.frozen = true}}, {0}};

/* Once for sgd, once for the rule of the program. */
static const law_case cases[2][CASES] = {
    {[MLP] = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "sgd:momentum=.9", .05, 4, 19, .shards = 7, .first = 3},
     [RES] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "sgd:momentum=.5,weight_decay=.01", .05, 3, 11,
              .shards = 5, .first = 4, .groups = groups}},
    {[MLP] = {"mlp", LAW_MNIST, LK_BN_MODE_BATCH, "own_sgd:momentum=.9", .05, 4, 19, .shards = 7, .first = 3},
     [RES] = {"resnet20:width=4", LAW_SMALL, LK_BN_MODE_BATCH, "own_sgd:weight_decay=.01", .05, 3, 11, .shards = 5,
              .first = 4, .groups = groups}},
};

static const ranks_row rows[] = {
    {"2 ranks", MLP, {.ranks = 2, .transport = "inproc", .threads = 2, .bucket_bytes = 16 * KB}},
    {"3 ranks", RES, {.ranks = 3, .transport = "shm", .threads = 1, .bucket_bytes = 1 * KB, .halves = true}},
    {"2 stages", MLP, {.ranks = 2, .transport = "inproc", .threads = 1, .stages = "2"}},
    {"2 x 2", RES, {.ranks = 4, .transport = "inproc", .threads = 1, .stages = "2", .pipelined = true}},
};

static lk_device_type tape;

static lk_status open_tape(const lk_device_opts *opts, lk_device **out)
{
    LK_TRY(lk__device_cpu.open(opts, out));
    (*out)->type = &tape;
    return LK_OK;
}

static int prepare(void **state)
{
    tape = lk__device_cpu;
    tape.name = "tape";
    tape.open = open_tape;
    tape_extend(&tape);
    law_require(lk__device_add(&tape));
    law_require(lk_optimizer_register(&own));
    return 0;
}

static void test_row(void **arg)
{
    const ranks_row *r = *arg;
    ranks_truth truth = {0};
    ranks_expect(&cases[1][r->c], r->way, ranks_know(&cases[0][r->c], &truth));
}

static void test_bits_of_sgd(void **arg)
{
    for (int i = 0; i < CASES; i++) {
        uint64_t want = law_run(&cases[0][i], (law_way){.threads = 1});
        law_expect(&cases[1][i], (law_way){.threads = 1}, want);
        law_expect(&cases[1][i], (law_way){.threads = 3, .micro_batch = 4}, want);
        law_expect(&cases[1][i], (law_way){.device = "tape", .threads = 2}, want);
    }
    assert_true(seen);
}

static void make_steps(const law_case *c, lk_engine *engine, int first, int last)
{
    law_samples s = law_samples_make(c);
    for (int i = first; i < last; i++) {
        lk_batch batch;
        lk_metrics metrics;
        law_batch(c, i, s.x, s.labels, s.ids, &batch);
        law_require(lk_engine_step(engine, &batch, &metrics));
    }
    law_samples_free(&s);
}

/* A run that is saved and continued has the bits of one that is not; the saved state has the keys of sgd's. */
static void test_saved_states(void **arg)
{
    const law_case *c = &cases[1][MLP];
    lk_engine *whole = law_engine(c, (law_way){.threads = 1}), *half = law_engine(c, (law_way){.threads = 1}),
              *rest = law_engine(c, (law_way){.threads = 1}),
              *sgd = law_engine(&cases[0][MLP], (law_way){.threads = 1});
    lk_state *model, *optimizer;
    make_steps(c, whole, 0, 4);
    make_steps(c, half, 0, 2);
    make_steps(c, sgd, 0, 4);
    law_require(lk_engine_state(half, &model));
    law_require(lk_engine_optimizer_state(half, &optimizer));
    assert_non_null(lk_state_find(optimizer, "momentum_buffer.chunk1.1.weight"));
    law_require(lk_engine_set_state(rest, model));
    law_require(lk_engine_set_optimizer_state(rest, optimizer));
    make_steps(c, rest, 2, 4);
    assert_true(law_hash_all(rest) == law_hash_all(whole));
    assert_true(law_hash_all(sgd) == law_hash_all(whole));
    lk_state_destroy(model);
    lk_state_destroy(optimizer);
    lk_engine_destroy(sgd);
    lk_engine_destroy(rest);
    lk_engine_destroy(half);
    lk_engine_destroy(whole);
}

static void refuse(lk_optimizer_def def, const char *words)
{
    assert_fails(lk_optimizer_register(&def), LK_STATUS_USAGE, words);
}

static void test_definitions(void **arg)
{
    static const lk_optimizer_param twice[] = {{"a", 0, 0, 1}, {"a", 0, 0, 1}}, outside[] = {{"a", 2, 0, 1}},
                                    nameless[] = {{NULL, 0, 0, 1}};
    static const char *const same[] = {"s", "s"};
    const lk_optimizer_def right = {.name = "another", .lr = 1, .cpu = update};
    lk_optimizer_def def = right;
    refuse(own, "'own_sgd' already");
    def.name = "sgd";
    refuse(def, "'sgd' already");
    def.name = "a:b";
    refuse(def, "'a:b'");
    def.name = NULL;
    refuse(def, "the name");
    def = right, def.cpu = NULL;
    refuse(def, "`cpu`");
    def = right, def.lr = 0;
    refuse(def, "`lr`");
    def = right, def.params = twice, def.param_count = 2;
    refuse(def, "two parameters 'a'");
    def = right, def.params = outside, def.param_count = 1;
    refuse(def, "default 2 of a");
    def = right, def.params = nameless, def.param_count = 1;
    refuse(def, "a parameter");
    def = right, def.param_count = 9;
    refuse(def, "at most 8");
    def = right, def.state_count = 1;
    refuse(def, "NULL");
    def = right, def.states = same, def.state_count = 2;
    refuse(def, "two state arrays 's'");
    def = right, def.reserved[0] = 1;
    refuse(def, "reserved");
    assert_fails(lk_optimizer_register(NULL), LK_STATUS_USAGE, "def");
}

/* The parameters of a spec are checked as those of the library's rules; the list has the rule. */
static void test_specs(void **arg)
{
    law_case c = cases[1][MLP];
    lk_engine *engine;
    lk_engine_opts opts = law_opts(&c, &(law_way){.threads = 1});
    opts.optimizer = "own_sgd:momentum=2";
    assert_fails(law_create(&c, &opts, &engine), LK_STATUS_USAGE, "momentum");
    opts.optimizer = "own_sgd:moment=1";
    assert_fails(law_create(&c, &opts, &engine), LK_STATUS_USAGE, "did you mean 'momentum'");
    const lk_optim_info *info, *last = NULL;
    for (size_t i = 0; (info = lk_optimizer_list(i)); i++)
        last = info;
    assert_string_equal(last->name, "own_sgd");
    assert_string_equal(last->summary, "momentum=0.5,weight_decay=0; learning rate 0.01");
}

/* A device whose memory the host cannot reach needs a function of its own. */
static void test_other_devices(void **arg)
{
    lk_device *dev;
    lk_optim *optim;
    lk_device_type gpu = lk__device_cpu;
    gpu.name = "gpu";
    gpu.host_memory = false;
    law_require(lk__device_open("cpu", &(lk_device_opts){.threads = 1}, &dev));
    dev->type = &gpu;
    assert_fails(lk__optim_create("own_sgd", 0, dev, 8, &optim), LK_STATUS_UNSUPPORTED, "no function `cuda`");
    dev->type = &lk__device_cpu;
    lk__device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_bits_of_sgd), TEST(test_saved_states), TEST(test_definitions),
                                       TEST(test_specs), TEST(test_other_devices)};
    int failed = cmocka_run_group_tests(tests, prepare, NULL);
    return failed + ranks_run_rows(rows, COUNT_OF(rows), getenv("LAW_ONLY"), test_row);
}
