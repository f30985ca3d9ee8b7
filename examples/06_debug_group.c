/* 06_debug_group.c - do the ranks of a job find each other?
 *
 * Run it where a training job is to run, the same way, before the job:
 * lockstep run -n 4 examples/06_debug_group
 * Each rank says where it is and what it got from the others. */
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
    LK_TRY(lk_allreduce(group, (lk_buffer){&sum, 1, LK_DTYPE_F32}, LK_REDUCTION_SUM, NULL));
    printf("host %s: rank %d of %d, local rank %d of %d, over %s: 1 + ... + %d = %g\n", lk_group_host(group, rank),
           rank, size, lk_group_local_rank(group), lk_group_local_size(group), lk_group_transport(group), size, sum);
    return lk_barrier(group, NULL);
}

int main(void)
{
    lk_group *group = NULL;
    lk_group_opts opts = {.timeout = 60, .notice = notice}; /* who is missing is told while it is awaited */
    lk_status status = lk_group_join(&opts, &group);
    if (status == LK_OK)
        status = debug(group);
    if (status != LK_OK)
        fprintf(stderr, "06_debug_group: %s\n", lk_error_detail());
    lk_group_destroy(group);
    return status != LK_OK;
}
