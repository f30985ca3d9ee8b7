/* test_own_guards.c - lk_op_check finds what an own op writes outside of its results, before it harms other memory. */
#include <lockstep/lockstep.h>

#include "own_ops.h"

/* One element too many. */
static void forward_after(const lk_op_args *args)
{
    swish_forward(args);
    args->y[swish_floats(args)] = 0.25f;
}

static void forward_past_workspace(const lk_op_args *args)
{
    swish_forward(args);
    args->workspace[swish_floats(args) + 2] = 0.25f;
}

static void backward_before(const lk_op_args *args)
{
    swish_backward(args);
    if (args->dx[0])
        args->dx[0][-1] = 0.25f;
}

/* Adds, as gradients of parameters do; in a plan the neighbour is the gradient of the next parameter or shard. */
static void backward_past_grad(const lk_op_args *args)
{
    swish_backward(args);
    if (args->grad[0])
        args->grad[0][args->y_size.channels] += args->dy[0];
}

static void forward_changes_x(const lk_op_args *args)
{
    swish_forward(args);
    ((float *)(uintptr_t)args->x[0])[3] = 0.25f;
}

static void backward_changes_y(const lk_op_args *args)
{
    swish_backward(args);
    args->y[1] = 0.25f;
}

/* Writes one sample too many, but only of several. */
static void forward_many(const lk_op_args *args)
{
    swish_forward(args);
    if (args->n > 1)
        memset(args->y + swish_floats(args), 0, 8 * sizeof *args->y);
}

static const struct fault {
    const char *name;
    void (*forward)(const lk_op_args *args);
    void (*backward)(const lk_op_args *args);
    const char *check, *place; /* parts of the detail */
} faults[] = {
    {"after", forward_after, swish_backward, "check `guards`: forward of 1 sample has written 0.25 outside of y",
     "which has 24 floats: 1 float after its last one"},
    {"past_workspace", forward_past_workspace, swish_backward, "check `guards`: forward of 1 sample",
     "outside of workspace, which has 24 floats: 3 floats after its last one"},
    {"before", swish_forward, backward_before, "check `guards`: backward to inputs of 1 sample",
     "outside of dx[0], which has 24 floats: 1 float before its first one"},
    {"past_grad", swish_forward, backward_past_grad, "check `guards`: backward to parameters of 1 sample",
     "outside of grad[0], which has 4 floats: 1 float after its last one"},
    {"changes_x", forward_changes_x, swish_backward, "check `guards`: forward of 1 sample has changed",
     "element 3 of x[0]"},
    {"changes_y", swish_forward, backward_changes_y, "check `guards`: backward to inputs of 1 sample has changed",
     "element 1 of y"},
    {"many", forward_many, swish_backward, "check `guards`: forward of 7 samples has written 0 outside of y",
     "which has 168 floats: 1 float after its last one"},
};

static void test_faults(void **state)
{
    lk_op_check_opts opts = {.x = {{2, 3, 4}}};
    for (size_t i = 0; i < COUNT_OF(faults); i++) {
        lk_op_def def = {.name = faults[i].name,
                         .inputs = 1,
                         .params = {"slope"},
                         .shape = swish_shape,
                         .forward = faults[i].forward,
                         .backward = faults[i].backward};
        assert_ok(lk_op_register(&def));
        assert_fails(lk_op_check(faults[i].name, &opts), LK_STATUS_MISMATCH, faults[i].check);
        assert_contains(lk_error_detail(), faults[i].place);
        assert_contains(lk_error_detail(), faults[i].name);
    }
}

TEST_MAIN(NULL, NULL, TEST(test_faults))
