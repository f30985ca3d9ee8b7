/* post.c - reads a step's data from the host's ring, and writes its results to the ring that the host reads. */
#include <string.h>

#include "tensor/cpu/decls.h"

/* The sum over the tree on the indices: pairs of neighbours, then pairs of these sums, and so on. */
static double tree_sum(double *values, size_t count)
{
    for (size_t apart = 1; apart < count; apart *= 2) {
        for (size_t i = 0; i + apart < count; i += 2 * apart)
            values[i] += values[i + apart];
    }
    return count ? values[0] : 0;
}

void LK_KERNEL(post)(lk_device *dev, const lk_post *post)
{
    (void)dev;
    lk_results *results = (lk_results *)(void *)(post->ring + *post->step % post->slots * post->stride);
    float *loss = (float *)(results + 1);
    memcpy(loss, post->loss, post->n * sizeof *loss);
    memcpy(loss + post->n, post->label_rank, post->n * sizeof *post->label_rank);
    results->flag = *post->flag;
    results->square = tree_sum(post->squares, post->blocks);
    __atomic_store_n(&results->number, *post->step + 1, __ATOMIC_RELEASE);
}

void LK_KERNEL(fetch)(lk_device *dev, const lk_fetch_desc *fetch, void *dst)
{
    (void)dev;
    memcpy(dst, fetch->ring + *fetch->turn % fetch->slots * fetch->stride, fetch->bytes);
    ++*fetch->turn;
}
