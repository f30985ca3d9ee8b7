/* test_own_loss.c - lk_loss_check accepts correct losses of the program's own, and finds each planted fault by the
 * check that is meant for it; lk_loss_label_rank. */
#include <math.h>
#include <pthread.h>
#include <time.h>

#include <lockstep/lockstep.h>

#include "check.h"
#include "tensor/device.h"

#define ARGUMENTS \
    void *arg, const float *x, size_t floats, int32_t label, const float *target, size_t target_floats, float *dx
#define PASSED arg, x, floats, label, target, target_floats, dx

/* The mean of log(cosh(x - target)). */
static float log_cosh(ARGUMENTS)
{
    float sum = 0;
    CHECK(target_floats == floats && label == 0);
    (void)arg;
    for (size_t i = 0; i < floats; i++) {
        float d = x[i] - target[i], size = fabsf(d);
        sum += size + lk_op_log((1 + lk_op_exp(-2 * size)) / 2);
        if (dx)
            dx[i] = lk_op_tanh(d) / (float)floats;
    }
    return sum / (float)floats;
}

/* Cross-entropy of labels; all classes count. */
static float classes(ARGUMENTS)
{
    float sum = 0;
    CHECK(target_floats == 0 && !target && label >= 0 && (size_t)label < floats && *(int *)arg == 7);
    for (size_t k = 0; k < floats; k++)
        sum += lk_op_exp(x[k]);
    for (size_t k = 0; dx && k < floats; k++)
        dx[k] = lk_op_exp(x[k]) / sum - (float)(k == (size_t)label);
    return lk_op_log(sum) - x[label];
}

/* Scores that are less than 0.5 below the label's: with kinks. */
static float hinge(ARGUMENTS)
{
    float loss = 0;
    (void)arg, (void)target, (void)target_floats;
    for (size_t k = 0; dx && k < floats; k++)
        dx[k] = 0;
    for (size_t k = 0; k < floats; k++) {
        float short_by = 0.5f - (x[label] - x[k]);
        if (k == (size_t)label || short_by <= 0)
            continue;
        loss += short_by;
        if (dx) {
            dx[k] += 1;
            dx[label] -= 1;
        }
    }
    return loss;
}

static int seven = 7;

/* The same, without its argument. */
static float classes_here(ARGUMENTS)
{
    (void)arg;
    return classes(&seven, x, floats, label, target, target_floats, dx);
}

static const lk_loss_check_opts small = {.x = {2, 3, 4}};
static const lk_loss_check_opts vector = {.x = {1, 1, 9}};

static void add(const char *name, lk_loss_fn sample)
{
    lk_loss_def def = {.name = name, .target_floats = LK_TARGETS_AS_X, .sample = sample};
    assert_ok(lk_loss_register(&def));
}

static void test_correct(void **state)
{
    char report[1024];
    lk_loss_check_opts opts = small;
    lk_loss_def labels = {.name = "classes", .sample = classes, .arg = &seven, .rank = lk_loss_label_rank};
    add("log_cosh", log_cosh);
    assert_ok(lk_loss_register(&labels));
    labels = (lk_loss_def){.name = "hinge", .sample = hinge};
    assert_ok(lk_loss_register(&labels));
    opts.report = report;
    opts.report_bytes = sizeof report;
    assert_ok(lk_loss_check("log_cosh", &opts));
    static const char *const lines[] = {"guards: ", "outputs: ", "state: ", "threads: ", "shards: ", "gradients: "};
    for (size_t i = 0; i < COUNT_OF(lines); i++)
        assert_contains(report, lines[i]);
    opts.samples = 20;
    opts.target_low = 3;
    opts.target_high = 4;
    assert_ok(lk_loss_check("log_cosh", &opts));
    assert_ok(lk_loss_check("classes", &vector));
    opts = vector;
    opts.low = 5;
    opts.high = 8;
    for (opts.seed = 0; opts.seed < 8; opts.seed++) {
        assert_ok(lk_loss_check("classes", &opts));
        assert_ok(lk_loss_check("hinge", &opts));
    }
}

static float loss_wrong(ARGUMENTS)
{
    float loss = log_cosh(PASSED);
    if (dx)
        dx[floats - 1] *= 1.1f;
    return loss;
}

static float loss_hole(ARGUMENTS)
{
    float old = dx ? dx[2] : 0, loss = log_cosh(PASSED);
    if (dx)
        dx[2] = old;
    return loss;
}

static float loss_infinite(ARGUMENTS)
{
    return log_cosh(PASSED) / 0.0f;
}

static float loss_after(ARGUMENTS)
{
    float loss = log_cosh(PASSED);
    if (dx)
        dx[floats] = loss;
    return loss;
}

static float loss_before(ARGUMENTS)
{
    if (dx)
        dx[-3] = 0;
    return log_cosh(PASSED);
}

static float loss_changes_x(ARGUMENTS)
{
    float loss = log_cosh(PASSED);
    ((float *)(uintptr_t)x)[4] = 0;
    return loss;
}

static float loss_changes_target(ARGUMENTS)
{
    float loss = log_cosh(PASSED);
    ((float *)(uintptr_t)target)[5] = 0;
    return loss;
}

static float loss_counts(ARGUMENTS)
{
    static unsigned calls;
    return log_cosh(PASSED) + (float)(__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) % 5);
}

static float loss_of_address(ARGUMENTS)
{
    return log_cosh(PASSED) + ((uintptr_t)x % 16 ? 1.0f : 0.0f);
}

static float loss_of_gradient(ARGUMENTS)
{
    return log_cosh(PASSED) + (dx ? 0.0f : 1.0f);
}

static float loss_rough(ARGUMENTS)
{
    (void)log_cosh(PASSED);
    return floorf(x[0] * 40) + floorf(x[1] * 40) + floorf(x[2] * 40);
}

/* A loss that another thread than the first one computes differently. The first thread waits for another in its later
 * calls, so that there is one. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t others = PTHREAD_COND_INITIALIZER;
static pthread_t first;
static int thread_calls;
static bool other_came;

static float loss_of_thread(ARGUMENTS)
{
    enum { SINGLE = 3 * 7 + 8 * 7 }; /* calls before there are two threads */
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 20;
    pthread_mutex_lock(&lock);
    if (thread_calls++ == 0)
        first = pthread_self();
    bool other = !pthread_equal(first, pthread_self());
    other_came = other_came || other;
    pthread_cond_broadcast(&others);
    while (thread_calls > SINGLE && !other_came)
        if (pthread_cond_timedwait(&others, &lock, &end) != 0)
            break;
    pthread_mutex_unlock(&lock);
    return log_cosh(PASSED) + (other ? 1.0f : 0.0f);
}

static const struct fault {
    const char *name;
    lk_loss_fn sample;
    const char *check, *place; /* parts of the detail */
} faults[] = {
    {"after", loss_after, "check `guards`: `sample` of sample 0", "outside of dx, which has 24 floats: 1 float after"},
    {"before", loss_before, "check `guards`", "written 0 outside of dx, which has 24 floats: 3 floats before"},
    {"changes_x", loss_changes_x, "check `guards`", "changed element 4 of x"},
    {"changes_target", loss_changes_target, "check `guards`", "changed element 5 of target"},
    {"hole", loss_hole, "check `outputs`", "element 2 of dx of sample 0 is NaN"},
    {"infinite", loss_infinite, "check `outputs`", "the loss of sample 0 is inf"},
    {"counts", loss_counts, "check `state`", "the loss of sample 6 is"},
    {"of_address", loss_of_address, "check `state`", "at other addresses"},
    {"of_gradient", loss_of_gradient, "check `state`", "without dx"},
    {"of_thread", loss_of_thread, "check `threads`", "when 2 threads call it at once"},
    {"wrong", loss_wrong, "check `gradients`", "element 23 of dx of sample"},
    {"rough", loss_rough, "check `gradients`", "not smooth"},
};

static void test_faults(void **state)
{
    for (size_t i = 0; i < COUNT_OF(faults); i++) {
        lk_loss_check_opts opts = small;
        opts.x.height = strcmp(faults[i].name, "rough") == 0 ? 1 : 2;
        opts.x.channels = strcmp(faults[i].name, "rough") == 0 ? 1 : 4;
        add(faults[i].name, faults[i].sample);
        assert_fails(lk_loss_check(faults[i].name, &opts), LK_STATUS_MISMATCH, faults[i].check);
        assert_contains(lk_error_detail(), faults[i].place);
        assert_contains(lk_error_detail(), faults[i].name);
    }
}

/* Wrong in one element of one sample. */
static float loss_wrong_once(ARGUMENTS)
{
    float loss = classes_here(PASSED);
    if (dx && label == 3)
        dx[floats - 1] += 0.5f;
    return loss;
}

/* Wrong in a fortieth of the elements of one sample. */
static float loss_wrong_in_part(ARGUMENTS)
{
    float loss = classes_here(PASSED);
    for (size_t k = 0; dx && label == 6 && k < floats / 40; k++)
        dx[2 * floats / 3 + k] += 0.5f;
    return loss;
}

/* Every seed finds the mistake, not only those that draw its element. */
static void test_rare_faults(void **state)
{
    lk_loss_def once = {.name = "once", .sample = loss_wrong_once};
    lk_loss_def in_part = {.name = "in_part", .sample = loss_wrong_in_part};
    lk_loss_check_opts opts = {.x = {1, 1, 40}};
    assert_ok(lk_loss_register(&once));
    assert_ok(lk_loss_register(&in_part));
    for (opts.seed = 0; opts.seed < 8; opts.seed++)
        assert_fails(lk_loss_check("once", &opts), LK_STATUS_MISMATCH, "element 39 of dx of sample 3 is");
    opts.x.channels = 4000;
    for (opts.seed = 0; opts.seed < 4; opts.seed++)
        assert_fails(lk_loss_check("in_part", &opts), LK_STATUS_MISMATCH, "of dx of sample 6 is");
}

static int32_t rank_counts(void *arg, const float *x, size_t floats, int32_t label, const float *target,
                           size_t target_floats)
{
    static int32_t calls;
    (void)arg, (void)x, (void)floats, (void)label, (void)target, (void)target_floats;
    return __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
}

static void test_rank_that_counts(void **state)
{
    lk_loss_def def = {.name = "odd_rank", .sample = hinge, .rank = rank_counts};
    assert_ok(lk_loss_register(&def));
    assert_fails(lk_loss_check("odd_rank", &vector), LK_STATUS_MISMATCH, "check `state`: the rank of sample 6 is 7");
}

/* A device with memory of its own: the CPU in disguise. Its loss calls `cuda`, as the GPU's does. */
static lk_kernels distant_kernels;
static lk_device_type distant_type;

static void distant_loss(lk_device *dev, const lk_loss_desc *desc, const lk_tensor *x, const lk_loss_results *results,
                         lk_tensor *dx, void *scratch)
{
    (void)dev, (void)scratch;
    lk_loss_cuda_call call = {.count = x->shape.n,
                              .floats = lk__shape_sample(x->shape),
                              .x = lk__tensor_f32(x),
                              .labels = desc->labels,
                              .target_floats = desc->target_floats,
                              .targets = desc->targets,
                              .weights = desc->weights,
                              .scale = desc->scale,
                              .loss = results->loss,
                              .dx = dx ? lk__tensor_f32(dx) : NULL,
                              .label_rank = results->label_rank};
    for (size_t i = 0; i < call.count; i++)
        call.label_rank[i] = INT32_MAX;
    desc->own->cuda(desc->own->arg, &call);
}

static lk_status distant_open(const lk_device_opts *opts, lk_device **out)
{
    LK_TRY(lk__device_cpu.open(opts, out));
    distant_kernels = *(*out)->kernels;
    distant_kernels.target_loss = distant_loss;
    (*out)->kernels = &distant_kernels;
    (*out)->type = &distant_type;
    return LK_OK;
}

static void add_distant(void)
{
    distant_type = lk__device_cpu;
    distant_type.name = "distant";
    distant_type.host_memory = false;
    distant_type.open = distant_open;
    assert_ok(lk__device_add(&distant_type));
}

/* The mistake that the function below makes. */
enum { CORRECT, NO_SCALE, NO_WEIGHT, NO_RANK, WRONG_VALUE, PAST_LOSS, PAST_DX, PAST_RANK, CHANGES_WEIGHTS, OTHERS };

static void classes_on_device(void *arg, const lk_loss_cuda_call *call)
{
    int mistake = *(const int *)arg;
    for (size_t i = 0; i < call->count; i++) {
        const float *x = call->x + i * call->floats;
        float *dx = call->dx ? call->dx + i * call->floats : NULL, weight = call->weights ? call->weights[i] : 1;
        float scale = mistake == NO_SCALE ? 1 : call->scale;
        weight = mistake == NO_WEIGHT ? 1 : weight;
        float loss = classes(&seven, x, call->floats, call->labels[i], NULL, 0, dx);
        loss += mistake == WRONG_VALUE ? 0.5f : mistake == OTHERS ? 1e-3f * (float)i : 0;
        call->loss[i] = weight * loss;
        for (size_t k = 0; dx && k < call->floats; k++)
            dx[k] *= scale * weight;
        if (mistake != NO_RANK)
            call->label_rank[i] = lk_loss_label_rank(NULL, x, call->floats, call->labels[i], NULL, 0);
    }
    if (mistake == PAST_LOSS)
        call->loss[call->count] = 0;
    if (mistake == PAST_DX && call->dx)
        call->dx[call->count * call->floats + 1] = 0;
    if (mistake == PAST_RANK)
        call->label_rank[call->count] = 3;
    if (mistake == CHANGES_WEIGHTS && call->weights)
        ((float *)(uintptr_t)call->weights)[0] = 3;
}

static void test_device(void **state)
{
    static const struct {
        const char *name, *check, *place;
    } cases[] = {
        [CORRECT] = {"dev_correct", NULL, NULL},
        [NO_SCALE] = {"dev_scale", "check `shards`: dx of sample", "multiply the gradient by `scale`"},
        [NO_WEIGHT] = {"dev_weight", "check `shards`: the loss of sample 0 is 0", "by the sample's weight"},
        [NO_RANK] = {"dev_rank", "check `shards`: the rank of sample 0", "on the device"},
        [WRONG_VALUE] = {"dev_value", "check `shards`: the loss of sample 0", "on the device"},
        [PAST_LOSS] = {"dev_past_loss", "check `guards`: `cuda` of 1 sample", "outside of loss, which has 1 floats"},
        [PAST_DX] = {"dev_past_dx", "check `guards`: `cuda` of 1 sample", "2 floats after its last one"},
        [PAST_RANK] = {"dev_past_rank", "check `guards`: `cuda` of 1 sample", "outside of label_rank"},
        [CHANGES_WEIGHTS] = {"dev_weights", "check `guards`: `cuda` of 1 sample", "element 0 of weights from 0 to 3"},
        [OTHERS] = {"dev_others", "check `shards`", "in parts"},
    };
    static const int mistakes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    lk_loss_check_opts opts = vector;
    opts.device = "distant";
    add_distant();
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        lk_loss_def def = {.name = cases[i].name,
                           .sample = classes_here,
                           .cuda = classes_on_device,
                           .arg = (void *)(uintptr_t)&mistakes[i],
                           .rank = lk_loss_label_rank};
        assert_ok(lk_loss_register(&def));
        if (!cases[i].check) {
            assert_ok(lk_loss_check(def.name, &opts));
            continue;
        }
        assert_fails(lk_loss_check(def.name, &opts), LK_STATUS_MISMATCH, cases[i].check);
        assert_contains(lk_error_detail(), cases[i].place);
    }
    assert_fails(lk_loss_check("classes", &opts), LK_STATUS_UNSUPPORTED, "no function for distant");
}

static void test_mistakes(void **state)
{
    lk_loss_check_opts opts = small;
    assert_fails(lk_loss_check("no_such", &opts), LK_STATUS_NOT_FOUND, "no loss 'no_such' is registered");
    assert_fails(lk_loss_check("mse_loss", &opts), LK_STATUS_NOT_FOUND, "no loss 'mse_loss' is registered");
    assert_fails(lk_loss_check(NULL, &opts), LK_STATUS_USAGE, "loss");
    assert_fails(lk_loss_check("log_cosh", NULL), LK_STATUS_USAGE, "opts");
    opts.x.channels = 0;
    assert_fails(lk_loss_check("log_cosh", &opts), LK_STATUS_USAGE, "`x` has a size of 0");
    opts = small;
    opts.samples = 65;
    assert_fails(lk_loss_check("log_cosh", &opts), LK_STATUS_USAGE, "`samples` is 65; 2 to 64");
    opts = small;
    opts.target_low = 2;
    assert_fails(lk_loss_check("log_cosh", &opts), LK_STATUS_USAGE, "`target_low` 2");
    opts = small;
    opts.low = 2;
    assert_fails(lk_loss_check("log_cosh", &opts), LK_STATUS_USAGE, "`low` 2");
    opts = small;
    opts.tolerance = 1;
    assert_fails(lk_loss_check("log_cosh", &opts), LK_STATUS_USAGE, "`tolerance`");
    opts = small;
    opts.reserved[2] = 1;
    assert_fails(lk_loss_check("log_cosh", &opts), LK_STATUS_USAGE, "lk_loss_check_opts");
    opts = small;
    opts.device = "abacus";
    assert_true(lk_loss_check("log_cosh", &opts) != LK_OK);
    assert_contains(lk_error_detail(), "abacus");
}

static void test_label_rank(void **state)
{
    const float x[] = {1, 3, 2, 3}, targets[] = {0, 0.5f, 0.5f, 0}, nan[] = {1, NAN, 2, 3};
    static const int32_t wanted[] = {3, 0, 2, 1};
    for (int32_t label = 0; label < 4; label++)
        assert_int_equal(lk_loss_label_rank(NULL, x, 4, label, NULL, 0), wanted[label]);
    assert_int_equal(lk_loss_label_rank(NULL, x, 4, 0, targets, 4), 0);
    assert_int_equal(lk_loss_label_rank(NULL, nan, 4, 3, NULL, 0), 1);
    assert_int_equal(lk_loss_label_rank(NULL, x, 4, 0, targets, 2), -1);
    assert_int_equal(lk_loss_label_rank(NULL, x, 4, 4, NULL, 0), -1);
    assert_int_equal(lk_loss_label_rank(NULL, x, 4, -1, NULL, 0), -1);
    assert_int_equal(lk_loss_label_rank(NULL, x, 0, 0, NULL, 0), -1);
}

TEST_MAIN(NULL, NULL, TEST(test_correct), TEST(test_faults), TEST(test_rare_faults), TEST(test_rank_that_counts),
          TEST(test_device), TEST(test_mistakes), TEST(test_label_rank))
