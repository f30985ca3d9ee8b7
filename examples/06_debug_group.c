/* 06_debug_group.c - checks whether the ranks of a job can join and communicate.
 *
 * Start it before a training job, on the same hosts and in the same way:
 * lockstep run -n 4 build/examples/06_debug_group
 * Each rank prints its host, its numbers and the result of an allreduce. */
#include <stdio.h>

#include <lockstep/lockstep.h>

static void notice(void *arg, const char *text)
{
    (void)arg;
    fprintf(stderr, "06_debug_group: %s\n", text);
}

static lk_status debug(lk_group *group)
{
    int rank = lk_group_rank(group), size = lk_group_size(group);
    float sum = (float)rank + 1;
    LK_TRY(lk_allreduce(group, (lk_buffer){.at = &sum, .count = 1, .dtype = LK_DTYPE_F32}, LK_REDUCTION_SUM, NULL));
    printf("host %s: rank %d of %d, local rank %d of %d, over %s: 1 + ... + %d = %g\n", lk_group_host(group, rank),
           rank, size, lk_group_local_rank(group), lk_group_local_size(group), lk_group_transport(group), size, sum);
    return lk_barrier(group, NULL);
}

int main(void)
{
    lk_group *group = NULL;
    lk_group_opts opts = {.timeout = 60, .notice = notice}; /* notices name missing ranks */
    lk_status status = lk_group_join(&opts, &group);
    if (status == LK_OK)
        status = debug(group);
    if (status != LK_OK)
        fprintf(stderr, "06_debug_group: %s\n", lk_error_detail());
    lk_group_destroy(group);
    return status != LK_OK;
}
