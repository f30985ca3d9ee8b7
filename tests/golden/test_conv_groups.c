/* test_conv_groups.c - convolutions in groups of channels, also groups of one channel, against PyTorch:
 * outputs, input gradients, and weight gradients summed over shards. */
#include "golden/kernels.h"

static int setup(void **state)
{
    return setup_file(state, "conv_groups.safetensors");
}

static void test_groups(void **state)
{
    static const char *const ops[] = {"groups_2", "groups_odd", "groups_wide", "groups_1x1"};
    conv_cases(state, ops, COUNT_OF(ops));
}

static void test_depthwise(void **state)
{
    static const char *const ops[] = {"depthwise", "depthwise_stride", "depthwise_wide", "depthwise_5x5"};
    conv_cases(state, ops, COUNT_OF(ops));
}

static void test_multiplier(void **state)
{
    static const char *const ops[] = {"multiplier_2", "multiplier_2_stride"};
    conv_cases(state, ops, COUNT_OF(ops));
}

TEST_MAIN(setup, teardown, CASE(test_groups), CASE(test_depthwise), CASE(test_multiplier))
