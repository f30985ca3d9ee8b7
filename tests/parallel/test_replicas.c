/* test_replicas.c - replicas start equal; any bit that changes in one of them is found and named in
 * the same words at every rank. */
#include "law.h"

#include <math.h>

#include "parallel/layout/replicas.h"
#include "processes.h"

enum { MAX_RANKS = 5, DETAIL = 2048 };

/* fc.weight has 125440 bytes: more than is compared at once. */
static lk_graph *build(void)
{
    lk_graph *graph;
    law_require(lk_graph_create(&graph));
    lk_node x = lk_input(graph, 1, 28, 28);
    x = lk_conv2d(graph, x, "conv1", (lk_conv2d_opts){.out = 4, .kernel = 3, .pad = 1});
    x = lk_batchnorm2d(graph, x, "bn1");
    x = lk_flatten(graph, lk_relu(graph, x));
    x = lk_linear(graph, x, "fc", 10);
    lk_cross_entropy(graph, x);
    law_require(lk_graph_check(graph));
    return graph;
}

typedef struct rank rank;

/* What the ranks of a team do. */
typedef struct plan {
    int size, stage, stages;
    lk_status want;
    void (*spoil)(rank *self); /* changes the replicas of some ranks; may be NULL */
    const char *words;         /* of LK_STATUS_MISMATCH */
    bool seeds_differ;
    bool far; /* every other rank has memory that the host may not read */
} plan;

struct rank {
    const plan *plan;
    const lk_graph *graph;
    lk_group *group;
    int index;
    lk_device *dev;
    lk_params *params;
    lk_optim *optim;
    lk_status status;
    char detail[DETAIL];
};

static int layer_named(const rank *self, const char *name)
{
    int i = 0;
    while (strcmp(self->graph->layers[i].name, name) != 0)
        i++;
    return i;
}

static void flip(float *x)
{
    uint32_t bits;
    memcpy(&bits, x, sizeof bits);
    bits ^= 1;
    memcpy(x, &bits, sizeof bits);
}

static size_t param_at(const rank *self, const char *name, int slot)
{
    return self->params->param_offset[layer_named(self, name)][slot];
}

static void spoil_weight(rank *self)
{
    if (self->index == 1)
        flip(self->params->params + param_at(self, "conv1", 0));
}

static void spoil_last_element(rank *self)
{
    if (self->index == self->plan->size - 1)
        flip(self->params->params + param_at(self, "fc", 0) + 31359);
}

static void spoil_buffer(rank *self)
{
    if (self->index == 0)
        flip(self->params->buffers + self->params->buffer_offset[layer_named(self, "bn1")][1] + 3);
}

static void spoil_counter(rank *self)
{
    if (self->index == 1)
        self->params->batches[layer_named(self, "bn1")]++;
}

static void spoil_first_state(rank *self)
{
    if (self->index == 1)
        flip(lk__optim_state(self->optim, 0) + param_at(self, "conv1", 1));
}

static void spoil_second_state(rank *self)
{
    if (self->index == 0)
        flip(lk__optim_state(self->optim, 1) + param_at(self, "fc", 0) + 20000);
}

static void spoil_rate(rank *self)
{
    if (self->index == 1)
        law_require(lk__optim_set_lr(self->optim, nextafter(lk__optim_lr(self->optim), 1)));
}

static void spoil_steps(rank *self)
{
    if (self->index == 1)
        lk__optim_count(self->optim);
}

/* Ranks 1 and 3, in different tensors. */
static void spoil_two(rank *self)
{
    if (self->index == 1)
        flip(self->params->params + param_at(self, "bn1", 0));
    if (self->index == 3)
        flip(self->params->params + param_at(self, "bn1", 1));
}

/* Ranks 2 and 3 in the same way: of four ranks there is no majority. */
static void spoil_half(rank *self)
{
    if (self->index >= 2)
        flip(self->params->params + param_at(self, "fc", 1));
}

static void spoil_all(rank *self)
{
    self->params->params[param_at(self, "fc", 1)] = (float)self->index;
}

static void spoil_much(rank *self)
{
    if (self->index == 1)
        for (size_t i = 0; i < self->params->count; i++)
            self->params->params[i] += 1;
}

/* Gaps between tensors do not count. */
static void spoil_gap(rank *self)
{
    if (self->index == 1)
        self->params->params[param_at(self, "fc", 1) + 10] = 3;
}

/* The CPU as a device whose memory the host cannot reach. */
static lk_device_type far_type;

/* Updates with the parameters as gradients, to fill the optimiser's arrays. */
static lk_status step_by_itself(const lk_params *params, lk_optim *optim)
{
    lk_optim_range range = {.grads = params->params, .params = params->params, .end = params->count};
    lk__optim_count(optim);
    LK_TRY(lk__optim_begin(optim));
    lk__optim_range(optim, &range);
    return LK_OK;
}

static lk_status prepare(rank *self)
{
    LK_TRY(lk__device_open("cpu", &(lk_device_opts){.threads = 1}, &self->dev));
    if (self->plan->far && self->index % 2)
        self->dev->type = &far_type;
    LK_TRY(lk__params_create(self->graph, self->dev, 0, self->graph->count, &self->params));
    LK_TRY(lk__params_init(self->params, self->plan->seeds_differ ? (uint64_t)self->index : 7, 1));
    LK_TRY(lk__optim_create("adam", 0.01, self->dev, self->params->count, &self->optim));
    for (int i = 0; i < self->graph->count; i++)
        self->params->batches[i] += self->plan->seeds_differ ? self->index + 1 : 1;
    if (self->plan->seeds_differ)
        LK_TRY(lk__replicas_start(self->group, self->params));
    LK_TRY(step_by_itself(self->params, self->optim));
    return self->dev->type->sync(self->dev);
}

static lk_status run(rank *self)
{
    LK_TRY(prepare(self));
    LK_TRY(lk__replicas_compare(self->group, self->params, self->optim, 41, self->plan->stage, self->plan->stages));
    if (self->plan->spoil)
        self->plan->spoil(self);
    return lk__replicas_compare(self->group, self->params, self->optim, 42, self->plan->stage, self->plan->stages);
}

static void rank_main(int number, void *arg)
{
    rank *self = (rank *)arg + number;
    self->status = run(self);
    snprintf(self->detail, sizeof self->detail, "%s", self->status == LK_OK ? "" : lk_error_detail());
}

static void check_rank(const plan *p, const rank *self)
{
    if (self->status != p->want)
        fail_msg("rank %d of %d: status %d: %s", self->index, p->size, self->status, self->detail);
    if (p->want != LK_OK && strncmp(self->detail, p->words, strlen(p->words)) != 0)
        fail_msg("rank %d of %d says '%s', not '%s...'", self->index, p->size, self->detail, p->words);
}

static void clean(rank *self)
{
    lk__optim_destroy(self->optim);
    lk__params_destroy(self->params);
    lk__device_close(self->dev);
}

static void run_team(plan p, void (*also)(const rank *ranks))
{
    lk_group *groups[MAX_RANKS];
    rank ranks[MAX_RANKS] = {0};
    lk_graph *graph = build();
    law_require(lk_group_create_threads(p.size, NULL, groups));
    far_type = *lk__device_list(0);
    far_type.host_memory = false;
    p.stages = p.stages ? p.stages : 1;
    p.want = p.words ? LK_STATUS_MISMATCH : LK_OK;
    for (int r = 0; r < p.size; r++)
        ranks[r] = (rank){.plan = &p, .graph = graph, .group = groups[r], .index = r};
    threads_run(p.size, rank_main, ranks);
    for (int r = 0; r < p.size; r++)
        check_rank(&p, &ranks[r]);
    if (also)
        also(ranks);
    for (int r = p.size - 1; r >= 0; r--) {
        clean(&ranks[r]);
        lk_group_destroy(groups[r]);
    }
    lk_graph_destroy(graph);
}

static void test_equal_replicas(void **state)
{
    for (int size = 1; size <= MAX_RANKS; size++)
        run_team((plan){.size = size}, NULL);
    run_team((plan){.size = 2, .spoil = spoil_gap}, NULL);
}

/* The hash does not depend on the kind of memory. */
static void test_far_memory(void **state)
{
    run_team((plan){.size = 3, .far = true}, NULL);
    run_team((plan){.size = 3,
                    .far = true,
                    .spoil = spoil_weight,
                    .words = "step 42: rank 1 differs from the other replicas in conv1.weight;"},
             NULL);
}

static void test_two_differ(void **state)
{
    run_team((plan){.size = 2, .spoil = spoil_weight, .words = "step 42: ranks 0 and 1 differ in conv1.weight;"}, NULL);
    run_team((plan){.size = 2, .spoil = spoil_buffer, .words = "step 42: ranks 0 and 1 differ in bn1.running_var;"},
             NULL);
    run_team((plan){.size = 2,
                    .spoil = spoil_first_state,
                    .words = "step 42: ranks 0 and 1 differ in conv1.bias (exp_avg);"},
             NULL);
}

static void test_odd_one_is_named(void **state)
{
    static const struct {
        void (*spoil)(rank *self);
        int rank; /* -1: the last */
        const char *what;
    } cases[] = {
        {spoil_weight, 1, "conv1.weight"},
        {spoil_last_element, -1, "fc.weight"},
        {spoil_buffer, 0, "bn1.running_var"},
        {spoil_counter, 1, "bn1.num_batches_tracked"},
        {spoil_first_state, 1, "conv1.bias (exp_avg)"},
        {spoil_second_state, 0, "fc.weight (exp_avg_sq)"},
        {spoil_rate, 1, "the learning rate"},
        {spoil_steps, 1, "the optimiser's count of steps"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        for (int size = 3; size <= 5; size += 2) {
            char words[256];
            int odd = cases[i].rank < 0 ? size - 1 : cases[i].rank;
            snprintf(words, sizeof words, "step 42: rank %d differs from the other replicas in %s;", odd,
                     cases[i].what);
            run_team((plan){.size = size, .spoil = cases[i].spoil, .words = words}, NULL);
        }
    }
}

static void test_several_differ(void **state)
{
    run_team((plan){.size = 5,
                    .spoil = spoil_two,
                    .words = "step 42: ranks 1 and 3 differ from the other replicas in bn1.weight and bn1.bias;"},
             NULL);
    run_team((plan){.size = 4, .spoil = spoil_half, .words = "step 42: ranks 0, 1, 2 and 3 differ in fc.bias;"}, NULL);
    run_team((plan){.size = 3, .spoil = spoil_all, .words = "step 42: ranks 0, 1 and 2 differ in fc.bias;"}, NULL);
    run_team((plan){.size = 3,
                    .spoil = spoil_much,
                    .words = "step 42: rank 1 differs from the other replicas in conv1.weight, conv1.bias, bn1.weight "
                             "and 3 more;"},
             NULL);
}

/* Messages have the ranks of the job if a replica has several stages. */
static void test_ranks_of_a_grid(void **state)
{
    run_team((plan){.size = 3,
                    .stage = 1,
                    .stages = 3,
                    .spoil = spoil_last_element,
                    .words = "step 42: rank 7 differs from the other replicas in fc.weight;"},
             NULL);
    run_team((plan){.size = 2,
                    .stage = 0,
                    .stages = 2,
                    .spoil = spoil_weight,
                    .words = "step 42: ranks 0 and 2 differ in conv1.weight;"},
             NULL);
}

/* All ranks have the first parameters of rank 0. */
static void check_start(const rank *ranks)
{
    lk_params *own;
    law_require(lk__params_create(ranks->graph, ranks->dev, 0, ranks->graph->count, &own));
    law_require(lk__params_init(own, 0, 1));
    lk_optim *optim;
    law_require(lk__optim_create("adam", 0.01, ranks->dev, own->count, &optim));
    law_require(step_by_itself(own, optim));
    law_require(ranks->dev->type->sync(ranks->dev));
    for (int r = 0; r < ranks->plan->size; r++) {
        assert_memory_equal(ranks[r].params->params, own->params, own->count * sizeof *own->params);
        assert_memory_equal(ranks[r].params->buffers, own->buffers, own->buffer_count * sizeof *own->buffers);
        for (int i = 0; i < own->graph->count; i++)
            assert_int_equal(ranks[r].params->batches[i], 1);
    }
    lk__optim_destroy(optim);
    lk__params_destroy(own);
}

static void test_start(void **state)
{
    run_team((plan){.size = 2, .seeds_differ = true}, check_start);
    run_team((plan){.size = 5, .seeds_differ = true}, check_start);
}

TEST_MAIN(NULL, NULL, TEST(test_equal_replicas), TEST(test_far_memory), TEST(test_two_differ),
          TEST(test_odd_one_is_named), TEST(test_several_differ), TEST(test_ranks_of_a_grid), TEST(test_start))
