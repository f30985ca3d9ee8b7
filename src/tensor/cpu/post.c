/* post.c - reads a step's data from the host's ring, and writes its results to the ring that the host reads. */
#include <string.h>

#include "tensor/cpu/decls.h"

void LK_KERNEL(post)(lk_device *dev, const lk_post *post)
{
    (void)dev;
    lk_results *results = (lk_results *)(void *)(post->ring + *post->turn % post->slots * post->stride);
    float *loss = (float *)(results + 1);
    memcpy(loss, post->loss, post->n * sizeof *loss);
    memcpy(loss + post->n, post->label_rank, post->n * sizeof *post->label_rank);
    if (post->error)
        memcpy(loss + 2 * post->n, post->error, 2 * post->n * sizeof *loss);
    results->flag = *post->flag;
    results->square = post->norm ? post->norm->square : 0;
    __atomic_store_n(&results->number, *post->turn + 1, __ATOMIC_RELEASE);
}

void LK_KERNEL(fetch)(lk_device *dev, const lk_fetch_desc *fetch, void *dst)
{
    (void)dev;
    memcpy(dst, fetch->ring + *fetch->turn % fetch->slots * fetch->stride, fetch->bytes);
    ++*fetch->turn;
}
