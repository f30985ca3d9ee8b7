/* kernels.c - `lockstep bench kernels`: the matrix and convolution kernels in GF/s, with the core's peak of
 * fused multiply-adds and OpenBLAS's sgemm on a product of the same size (for convolutions without the cost of
 * im2col). All three are measured in turn and medians are compared, because on a shared machine the peak varies
 * as much as the rest. */
#include <stdio.h>

#include "base/clock.h"
#include "base/median.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/bench/blas.h"
#include "cli/cli.h"
#include "cli/report/json.h"
#include "tensor/cpu/cpu.h"

/* A convolution, or with kernel 0 a linear layer. */
typedef struct kernel_case {
    const char *name;
    size_t n, in, size, out; /* samples, input channels, height and width, output channels */
    lk_conv2d_desc conv;
} kernel_case;

static const kernel_case cases[] = {
    {"linear 1024^3", 1024, 1024, 1, 1024, {.groups = 1}},
    {"cnn fc1", 64, 9216, 1, 128, {.groups = 1}},
    {"cnn conv1", 64, 1, 28, 32, {LK_WINDOW_SQUARE(3, 1, 0), 1}},
    {"cnn conv2", 64, 32, 26, 64, {LK_WINDOW_SQUARE(3, 1, 0), 1}},
    {"resnet20 stem", 64, 3, 32, 16, {LK_WINDOW_SQUARE(3, 1, 1), 1}},
    {"resnet20 16x32x32", 64, 16, 32, 16, {LK_WINDOW_SQUARE(3, 1, 1), 1}},
    {"resnet20 16-32 /2", 64, 16, 32, 32, {LK_WINDOW_SQUARE(3, 2, 1), 1}},
    {"resnet20 32x16x16", 64, 32, 16, 32, {LK_WINDOW_SQUARE(3, 1, 1), 1}},
    {"resnet20 64x8x8", 64, 64, 8, 64, {LK_WINDOW_SQUARE(3, 1, 1), 1}},
    {"pointwise 64-256", 8, 64, 56, 256, {LK_WINDOW_SQUARE(1, 1, 0), 1}},
    {"pointwise 1024-256", 8, 1024, 14, 256, {LK_WINDOW_SQUARE(1, 1, 0), 1}},
    {"pointwise 512-2048", 8, 512, 7, 2048, {LK_WINDOW_SQUARE(1, 1, 0), 1}},
    {"conv 64x32x32", 8, 64, 32, 64, {LK_WINDOW_SQUARE(3, 1, 1), 1}},
    {"conv 256x14x14", 16, 256, 14, 256, {LK_WINDOW_SQUARE(3, 1, 1), 1}},
    {"conv 512x4x4", 32, 512, 4, 512, {LK_WINDOW_SQUARE(3, 1, 1), 1}},
    {"winograd 64x32x32", 8, 64, 32, 64, {LK_WINDOW_SQUARE(3, 1, 1), 1, LK_CONV2D_DESC_BY_SHAPE}},
    {"winograd 256x14x14", 16, 256, 14, 256, {LK_WINDOW_SQUARE(3, 1, 1), 1, LK_CONV2D_DESC_BY_SHAPE}},
    {"winograd 512x4x4", 32, 512, 4, 512, {LK_WINDOW_SQUARE(3, 1, 1), 1, LK_CONV2D_DESC_BY_SHAPE}},
};

enum { CASES = sizeof cases / sizeof *cases, MAX_REPEAT = 1000, PEAK_ROUNDS = 1 << 19 };

/* A case with its buffers. */
typedef struct problem {
    const kernel_case *row;
    lk_device *dev;
    lk_tensor x, y, dx, dy;
    float *w, *b;          // (out, in, kh, kw), (out)
    lk_partials dw, db;    // slots of w and b
    size_t weights, depth; /* elements of w; k of the product */
    void *scratch;
    size_t begin[LK_MAX_SHARDS + 1];
    int merges[LK_MAX_SHARDS];
    lk_shards shards;
} problem;

static bool is_conv(const problem *p)
{
    return p->row->conv.h.kernel > 0;
}

static void run_forward(problem *p)
{
    const lk_kernels *kernels = p->dev->kernels;
    if (is_conv(p))
        kernels->conv2d_forward(p->dev, &p->row->conv, &p->x, p->w, p->b, false, &p->y, p->scratch);
    else
        kernels->linear_forward(p->dev, &p->x, p->w, p->b, false, NULL, &p->y, p->scratch);
}

static void run_grad_input(problem *p)
{
    const lk_kernels *kernels = p->dev->kernels;
    if (is_conv(p))
        kernels->conv2d_grad_input(p->dev, &p->row->conv, &p->dy, p->w, NULL, &p->dx, p->scratch);
    else
        kernels->linear_grad_input(p->dev, &p->dy, p->w, NULL, NULL, &p->dx, p->scratch);
}

static void run_grad_weight(problem *p)
{
    const lk_kernels *kernels = p->dev->kernels;
    if (is_conv(p))
        kernels->conv2d_grad_weight(p->dev, &p->row->conv, &p->x, &p->dy, &p->shards, p->dw, p->db, p->scratch);
    else
        kernels->linear_grad_weight(p->dev, &p->x, &p->dy, &p->shards, p->dw, p->db, p->scratch);
}

static const struct {
    const char *name;
    void (*run)(problem *problem);
} directions[] = {
    {"forward", run_forward},
    {"grad_input", run_grad_input},
    {"grad_weight", run_grad_weight},
};

enum { DIRECTIONS = sizeof directions / sizeof *directions };

/* Values in [-1,1): zeros and subnormals would distort the speed. */
static void fill(float *values, size_t count, uint32_t stream)
{
    lk_rng rng = lk__rng(1, LK_RNG_PURPOSE_INIT, stream, 0, 0);
    for (size_t i = 0; i < count; i++)
        values[i] = 2 * lk__rng_unit(lk__rng_u32(&rng, i)) - 1;
}

static lk_status make(lk_device *dev, size_t count, uint32_t stream, float **out)
{
    void *block;
    LK_TRY(dev->type->alloc(dev, count * sizeof(float), "a benchmark's tensor", &block));
    fill(block, count, stream);
    *out = block;
    return LK_OK;
}

static lk_status make_tensor(lk_device *dev, lk_shape shape, uint32_t stream, lk_tensor *out)
{
    float *data;
    LK_TRY(make(dev, lk__shape_count(shape), stream, &data));
    *out = (lk_tensor){.data = data, .dtype = LK_DTYPE_F32, .shape = shape};
    return LK_OK;
}

static void cut_shards(problem *p, int shards)
{
    for (int s = 0; s <= shards; s++)
        p->begin[s] = lk__shard_begin(p->row->n, shards, s);
    for (int s = 0; s < shards; s++)
        p->merges[s] = lk__tree_merges(shards, s);
    p->shards = (lk_shards){.count = shards,
                            .begin = p->begin,
                            .most = lk__shard_largest(p->row->n, shards),
                            .all = shards,
                            .merges = p->merges};
}

static lk_status make_weights(problem *p)
{
    p->depth = p->row->in * (is_conv(p) ? lk__conv2d_desc_taps(&p->row->conv) : 1);
    p->weights = p->row->out * p->depth;
    p->dw.stride = lk__size_round_up(p->weights, LK_ALIGN);
    p->db.stride = lk__size_round_up(p->row->out, LK_ALIGN);
    LK_TRY(make(p->dev, p->weights, 3, &p->w));
    LK_TRY(make(p->dev, p->row->out, 4, &p->b));
    LK_TRY(make(p->dev, p->dw.stride * LK_TREE_MAX_DEPTH, 5, &p->dw.slot0));
    return make(p->dev, p->db.stride * LK_TREE_MAX_DEPTH, 6, &p->db.slot0);
}

static lk_status problem_open(problem *p, const kernel_case *row, lk_device *dev, int shards)
{
    *p = (problem){.row = row, .dev = dev};
    lk_shape x = {.n = row->n, .c = row->in, .h = row->size, .w = row->size};
    const lk_window *window = &row->conv.h;
    size_t side = is_conv(p) ? (row->size + 2 * window->pad - window->kernel) / window->stride + 1 : 1;
    lk_shape y = {.n = row->n, .c = row->out, .h = side, .w = side};
    LK_TRY(make_tensor(dev, x, 1, &p->x));
    LK_TRY(make_tensor(dev, x, 1, &p->dx));
    LK_TRY(make_tensor(dev, y, 2, &p->y));
    LK_TRY(make_tensor(dev, y, 2, &p->dy));
    LK_TRY(make_weights(p));
    cut_shards(p, shards);
    size_t bytes =
        is_conv(p) ? dev->kernels->conv2d_scratch(dev, &row->conv, x, y) : dev->kernels->linear_scratch(dev, x, y);
    return dev->type->alloc(dev, bytes, "a kernel's scratch", &p->scratch);
}

static void problem_close(problem *p)
{
    void *blocks[] = {p->x.data, p->dx.data, p->y.data, p->dy.data, p->w, p->b, p->dw.slot0, p->db.slot0, p->scratch};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        p->dev->type->free(p->dev, blocks[i]);
}

typedef struct kernel_call {
    problem *problem;
    size_t direction;
} kernel_call;

static void call_kernel(void *arg)
{
    kernel_call *call = arg;
    directions[call->direction].run(call->problem);
    /* Kernels may only be enqueued, so wait for them. The CPU device has no faults. */
    (void)call->problem->dev->type->sync(call->problem->dev);
}

typedef struct blas_call {
    lk_blas_product product;
    float *a, *b, *c;
} blas_call;

static void call_blas(void *arg)
{
    blas_call *call = arg;
    lk__blas_multiply(&call->product, call->a, call->b, call->c);
}

/* One core at its peak. */
typedef struct peak_call {
    const lk_cpu_build *build;
    double work; /* FLOPs of a call */
} peak_call;

static void call_peak(void *arg)
{
    peak_call *call = arg;
    call->work = call->build->peak(PEAK_ROUNDS);
}

/* A function to time. */
typedef struct contender {
    void (*run)(void *arg);
    void *arg;
    double seconds[MAX_REPEAT];
    double median;
} contender;

/* The contenders alternate, so that a busy machine is equally busy for all; the first round warms up. */
static void time_turns(contender *contenders, size_t count, size_t repeat)
{
    for (size_t turn = 0; turn <= repeat; turn++) {
        for (size_t i = 0; i < count; i++) {
            double began = lk__clock();
            contenders[i].run(contenders[i].arg);
            if (turn > 0)
                contenders[i].seconds[turn - 1] = lk__clock() - began;
        }
    }
    for (size_t i = 0; i < count; i++)
        contenders[i].median = lk__median(contenders[i].seconds, repeat);
}

/* y = x w^T; dx = dy w; dw = dy^T x, with x as rows of `depth` values. */
static lk_blas_product product_of(const problem *p, size_t direction)
{
    size_t rows = p->y.shape.n * p->y.shape.h * p->y.shape.w, out = p->row->out, depth = p->depth;
    const lk_blas_product products[DIRECTIONS] = {
        {.m = rows, .n = out, .k = depth, .b_transposed = true},
        {.m = rows, .n = depth, .k = out},
        {.m = out, .n = depth, .k = rows, .a_transposed = true},
    };
    return products[direction];
}

/* What all cases are compared with. */
typedef struct setting {
    lk_device *dev;
    int threads, shards;
    const lk_cpu_build *build;
    bool blas;
    size_t repeat;
    bool json;
} setting;

static void print_header(const setting *set)
{
    if (set->json)
        return;
    printf("%s kernels, %d thread%s; medians of %zu, in turn with the peak of fused multiply-adds%s\n",
           set->build->name, set->threads, set->threads == 1 ? "" : "s", set->repeat,
           set->blas ? " and OpenBLAS" : "; OpenBLAS is not installed");
    printf("%-20s %-12s %9s %9s %7s %9s\n", "case", "direction", "GF/s", "peak", "% peak", "OpenBLAS");
}

/* Rates in GF/s; blas is 0 if there is none. */
static void print_case(const setting *set, const char *name, const char *direction, double rate, double peak,
                       double blas)
{
    if (!set->json) {
        char peer[16] = "-";
        if (blas > 0)
            snprintf(peer, sizeof peer, "%.1f", blas);
        printf("%-20s %-12s %9.1f %9.1f %6.0f%% %9s\n", name, direction, rate, peak, 100 * rate / peak, peer);
        return;
    }
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "case", name);
    cJSON_AddStringToObject(line, "direction", direction);
    cJSON_AddNumberToObject(line, "threads", set->threads);
    cJSON_AddNumberToObject(line, "gflops", rate);
    cJSON_AddNumberToObject(line, "peak_gflops", peak);
    cJSON_AddNumberToObject(line, "percent_of_peak", 100 * rate / peak);
    if (blas > 0)
        cJSON_AddNumberToObject(line, "openblas_gflops", blas);
    else
        cJSON_AddNullToObject(line, "openblas_gflops");
    lk__cli_json_line(line);
}

static lk_status make_blas(const problem *p, size_t direction, blas_call *call)
{
    const lk_blas_product *size = &call->product;
    call->product = product_of(p, direction);
    LK_TRY(make(p->dev, size->m * size->k, 7, &call->a));
    LK_TRY(make(p->dev, size->k * size->n, 8, &call->b));
    return make(p->dev, size->m * size->n, 9, &call->c);
}

static void free_blas(const problem *p, blas_call *call)
{
    p->dev->type->free(p->dev, call->a);
    p->dev->type->free(p->dev, call->b);
    p->dev->type->free(p->dev, call->c);
}

static lk_status bench_direction(const setting *set, problem *p, size_t direction)
{
    static contender contenders[3];
    peak_call peak = {.build = set->build};
    kernel_call ours = {.problem = p, .direction = direction};
    blas_call theirs = {.a = NULL};
    lk_status status = LK_OK;
    if (set->blas)
        LK_TRY_GOTO(make_blas(p, direction, &theirs), free_blas);
    contenders[0] = (contender){.run = call_kernel, .arg = &ours};
    contenders[1] = (contender){.run = call_peak, .arg = &peak};
    contenders[2] = (contender){.run = call_blas, .arg = &theirs};
    time_turns(contenders, set->blas ? 3 : 2, set->repeat);
    lk_blas_product size = product_of(p, direction);
    double work = 2e-9 * (double)size.m * (double)size.n * (double)size.k;
    print_case(set, p->row->name, directions[direction].name, work / contenders[0].median,
               set->threads * 1e-9 * peak.work / contenders[1].median, set->blas ? work / contenders[2].median : 0);

free_blas:
    free_blas(p, &theirs);
    return status;
}

static lk_status bench_case(const setting *set, const kernel_case *row)
{
    problem p;
    lk_status status;
    LK_TRY_GOTO(problem_open(&p, row, set->dev, set->shards), close_problem);
    for (size_t d = 0; d < DIRECTIONS; d++)
        LK_TRY_GOTO(bench_direction(set, &p, d), close_problem);

close_problem:
    problem_close(&p);
    return status;
}

lk_status lk__bench_kernels(const lk_args *args)
{
    int threads = args->train.threads > 0 ? args->train.threads : 1;
    setting set = {.threads = threads,
                   .shards = args->train.shards,
                   .repeat = args->repeat,
                   .json = args->json,
                   .blas = lk__blas_open(threads)};
    lk_device_opts opts = {.threads = threads};
    LK_TRY(lk__device_open(args->train.device, &opts, &set.dev));
    set.build = ((lk_cpu_device *)set.dev)->build;
    print_header(&set);
    lk_status status = LK_OK;
    for (size_t i = 0; i < CASES && status == LK_OK; i++)
        status = bench_case(&set, &cases[i]);
    lk__device_close(set.dev);
    return status;
}
