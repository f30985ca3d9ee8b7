/* 08_collectives.c - collective calls of a group, without a network.
 *
 * Start it as four ranks: lockstep run -n 4 build/examples/08_collectives
 * Without a launcher, the program starts four processes itself. */
#include <stdio.h>
#include <stdlib.h>

#include <lockstep/lockstep.h>

enum { RANKS = 4, COUNT = 1 << 20 };

/* Each rank gives a number; all ranks get the sum. */
static lk_status sum(lk_group *group)
{
    int32_t value = lk_group_rank(group) + 1;
    LK_TRY(lk_allreduce(group, (lk_buffer){.at = &value, .count = 1, .dtype = LK_DTYPE_I32}, LK_REDUCTION_SUM, NULL));
    if (lk_group_rank(group) == 0)
        printf("the sum over %d ranks is %d\n", lk_group_size(group), value);
    return LK_OK;
}

/* With a request, the rank can compute while the vector is being summed. The ranks of a host read memory of
 * lk_group_alloc directly. */
static lk_status sum_beside_work(lk_group *group)
{
    float *vector;
    lk_request *request;
    double work = 0;
    LK_TRY(lk_group_alloc(group, COUNT * sizeof *vector, (void **)&vector));
    for (int i = 0; i < COUNT; i++)
        vector[i] = 1;
    LK_TRY(lk_allreduce(group, (lk_buffer){.at = vector, .count = COUNT, .dtype = LK_DTYPE_F32}, LK_REDUCTION_MEAN,
                        &request));
    for (int i = 1; i < 1000; i++)
        work += 1.0 / i;
    LK_TRY(lk_request_wait(request));
    if (lk_group_rank(group) == 0)
        printf("the mean of ones is %g, worked out beside a sum of %.3f\n", vector[COUNT - 1], work);
    return LK_OK;
}

/* Rank 0 gathers pieces of different sizes. */
static lk_status gather(lk_group *group)
{
    int rank = lk_group_rank(group), size = lk_group_size(group);
    size_t *counts = calloc((size_t)size, sizeof *counts), total = 0;
    for (int r = 0; counts && r < size; r++)
        total += counts[r] = (size_t)r + 1;
    uint8_t *mine = calloc((size_t)rank + 1, 1), *all = calloc(total + 1, 1);
    lk_status status = LK_STATUS_MEMORY;
    if (counts && mine && all) {
        for (int i = 0; i <= rank; i++)
            mine[i] = (uint8_t)('a' + rank);
        lk_buffer piece = {.at = mine, .count = (size_t)rank + 1, .dtype = LK_DTYPE_U8};
        status = lk_gather(group, piece, counts, all, 0, NULL);
    }
    if (status == LK_OK && rank == 0)
        printf("gathered %s\n", (const char *)all);
    free(counts);
    free(mine);
    free(all);
    return status;
}

/* Even and odd ranks form separate groups. */
static lk_status split(lk_group *group)
{
    lk_group *part;
    LK_TRY(lk_group_split(group, lk_group_rank(group) % 2, 0, &part));
    lk_status status = sum(part);
    lk_group_destroy(part);
    return status;
}

static int work(int rank, void *arg)
{
    lk_group *group = NULL;
    (void)rank, (void)arg;
    lk_status status = lk_group_join(NULL, &group);
    lk_status (*const steps[])(lk_group *) = {sum, sum_beside_work, gather, split};
    for (size_t i = 0; status == LK_OK && i < sizeof steps / sizeof *steps; i++)
        status = steps[i](group);
    if (status != LK_OK)
        fprintf(stderr, "%s\n", lk_error_detail());
    lk_group_destroy(group);
    return status != LK_OK;
}

int main(void)
{
    if (lk_group_launched())
        return work(0, NULL);
    return lk_spawn(RANKS, work, NULL) != LK_OK;
}
