/* samples.h - compares large tensors with samples at even distances and with their Euclidean norm. */
#ifndef LK_TESTS_GOLDEN_SAMPLES_H
#define LK_TESTS_GOLDEN_SAMPLES_H

#include "golden/golden.h"

enum { GOLDEN_SAMPLES = 48 };

/* If every element is within e of its truth, the norms are within e * sqrt(count). */
static inline void golden_check_samples(const lk_state_entry *ours, const lk_state *golden, const char *part)
{
    char prefix[256];
    snprintf(prefix, sizeof prefix, "%s/%s", part, ours->name);
    const lk_state_entry *samples = golden_get(golden, prefix, "samples");
    double max = golden_at(golden_get(golden, prefix, "max"), 0);
    double truth = golden_at(golden_get(golden, prefix, "norm"), 0), square = 0;
    size_t count = golden_count(ours), stride = (count + GOLDEN_SAMPLES - 1) / GOLDEN_SAMPLES;
    assert_int_equal((count + stride - 1) / stride, golden_count(samples));
    for (size_t i = 0; i < golden_count(samples); i++)
        golden_near(prefix, i * stride, golden_at(ours, i * stride), golden_at(samples, i), max);
    for (size_t i = 0; i < count; i++)
        square += golden_at(ours, i) * golden_at(ours, i);
    golden_near("norm", 0, sqrt(square), truth, max * sqrt((double)count));
}

#endif
