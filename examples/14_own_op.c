/* 14_own_op.c - a layer and a loss that the library does not have: Swish with learnt slopes, y = x sigmoid(slope x),
 * and log(cosh(x - target)). Alone, as ranks (lockstep run -n 3 ...) or stages (lockstep run -n 2 ... 2): same bits. */
#include <stdio.h>

#include <lockstep/lockstep.h>

enum { BATCH = 64, STEPS = 200 };

/* One slope for each channel, 1 at first; the output has the size of the input unless this function changes it. */
static lk_status shape(lk_op_shape *shape)
{
    shape->param[0] = (lk_op_param){.ndim = 1, .dims = {shape->y.channels}, .first = LK_OP_FIRST_CONSTANT, .number = 1};
    return LK_OK;
}

static void forward(const lk_op_args *args)
{
    lk_op_size size = args->y_size; /* x and y have the order (n, height, width, channels) */
    for (size_t i = 0; i < args->n * size.height * size.width * size.channels; i++)
        args->y[i] = args->x[0][i] * lk_op_sigmoid(args->param[0][i % size.channels] * args->x[0][i]);
}

static void backward(const lk_op_args *args)
{
    lk_op_size size = args->y_size;
    for (size_t i = 0; i < args->n * size.height * size.width * size.channels; i++) {
        float x = args->x[0][i], slope = args->param[0][i % size.channels], s = lk_op_sigmoid(slope * x);
        if (args->dx[0])
            args->dx[0][i] = args->dy[i] * s * (1 + slope * x * (1 - s));
        if (args->grad[0]) /* the sum over the samples of one shard */
            args->grad[0][i % size.channels] += args->dy[i] * x * x * s * (1 - s);
    }
}

static float log_cosh(void *arg, const float *x, size_t floats, int32_t label, const float *target,
                      size_t target_floats, float *dx)
{
    float d = x[0] - target[0], size = d < 0 ? -d : d;
    (void)arg, (void)floats, (void)label, (void)target_floats; /* both have one float */
    if (dx)
        dx[0] = lk_op_tanh(d);
    return size + lk_op_log((1 + lk_op_exp(-2 * size)) / 2);
}

static lk_status build_network(lk_graph **out)
{
    lk_op_def swish = {.name = "swish", .inputs = 1, .params = {"slope"}, .shape = shape, .forward = forward};
    lk_loss_def loss = {.name = "log_cosh", .target_floats = 1, .sample = log_cosh};
    swish.backward = backward;
    LK_TRY(lk_op_register(&swish));
    LK_TRY(lk_op_check("swish", &(lk_op_check_opts){.x = {{.height = 2, .width = 3, .channels = 4}}}));
    LK_TRY(lk_loss_register(&loss));
    LK_TRY(lk_loss_check("log_cosh", &(lk_loss_check_opts){.x = {.height = 1, .width = 1, .channels = 1}}));
    LK_TRY(lk_graph_create(out));
    lk_node x = lk_linear(*out, lk_input(*out, 2, 1, 1), "fc1", 24);
    x = lk_op_add(*out, "swish", "swish", &x, 1, NULL, 0);
    lk_loss(*out, lk_linear(*out, x, "fc2", 1), "log_cosh");
    return LK_OK;
}

static lk_status run(const char *stages)
{
    static float x[BATCH][2], y[BATCH];
    static uint32_t ids[BATCH], noise = 1;
    lk_group *group = NULL; /* one process */
    lk_graph *graph;
    lk_engine *engine;
    lk_state *state;
    lk_metrics metrics;
    LK_TRY(lk_group_launched() ? lk_group_join(NULL, &group) : LK_OK);
    LK_TRY(build_network(&graph));
    lk_engine_opts opts = {.batch = BATCH, .optimizer = "adam", .lr = .02, .group = group, .stages = stages};
    LK_TRY(lk_engine_create(graph, &opts, &engine));
    lk_batch batch = {.count = BATCH, .sample_floats = 2, .target_floats = 1, .x = x[0], .targets = y, .ids = ids};
    for (uint32_t id = 0; id < STEPS * BATCH; id++, noise = noise * 1664525u + 1013904223u) {
        x[id % BATCH][0] = (float)(noise >> 24) / 64.f - 2.f;
        x[id % BATCH][1] = (float)(noise >> 16 & 255) / 64.f - 2.f;
        y[id % BATCH] = x[id % BATCH][0] * x[id % BATCH][1]; /* what the network learns */
        ids[id % BATCH] = id;
        if (id % BATCH == BATCH - 1)
            LK_TRY(lk_engine_step(engine, &batch, &metrics));
    }
    LK_TRY(lk_engine_state(engine, &state));
    if (!group || lk_group_rank(group) == 0)
        printf("loss %.4f\nState hash %016llx\n", metrics.loss, (unsigned long long)lk_state_hash(state));
    lk_state_destroy(state);
    lk_engine_destroy(engine);
    lk_graph_destroy(graph);
    lk_group_destroy(group);
    return LK_OK;
}

int main(int argc, char **argv)
{
    if (run(argc > 1 ? argv[1] : NULL) == LK_OK)
        return 0;
    fprintf(stderr, "14_own_op: %s\n", lk_error_detail());
    return 1;
}
