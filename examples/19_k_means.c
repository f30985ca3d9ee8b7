/* 19_k_means.c - k-means clustering on several ranks, with collective calls alone.
 *
 * Start it as three ranks: lockstep run -n 3 build/examples/19_k_means
 * Without a launcher it is one rank. The points are cut into shards, and sums over shards follow a fixed tree, so the
 * centres have the same bits with any number of ranks. */
#include <stdio.h>

#include <lockstep/lockstep.h>

enum { POINTS = 6000, SHARDS = 24, CENTRES = 4, FLOATS = CENTRES * 3, ROUNDS = 25 };

/* For each centre: the sums of both coordinates of its points, and their number. */
typedef float totals[FLOATS];

/* Coordinate `axis` of a point: four clouds around the corners of a square. */
static float coordinate(int index, int axis)
{
    unsigned hash = (unsigned)(2 * index + axis + 1) * 2654435761u;
    hash = (hash ^ hash >> 15) * 2246822519u;
    return (float)(index >> axis & 1) * 2 + (float)(hash >> 16) / 65536 * 3;
}

static int nearest(const float *centres, float x, float y)
{
    int best = 0;
    float least = 1e30f;
    for (int c = 0; c < CENTRES; c++) {
        float dx = x - centres[3 * c], dy = y - centres[3 * c + 1];
        best = dx * dx + dy * dy < least ? c : best;
        least = dx * dx + dy * dy < least ? dx * dx + dy * dy : least;
    }
    return best;
}

/* The sum over the shards [first,last), as the tree has it (lk_shard_sums): one shard point by point, several as the
 * sum of two parts, of which the left has as many shards as the largest power of two below. */
static void sum(const float *centres, int first, int last, float *out)
{
    totals right;
    int half = 1;
    if (last - first > 1) {
        while (2 * half < last - first)
            half *= 2;
        sum(centres, first, first + half, out);
        sum(centres, first + half, last, right);
        for (int i = 0; i < FLOATS; i++)
            out[i] += right[i];
        return;
    }
    for (int i = 0; i < FLOATS; i++)
        out[i] = 0;
    for (int i = first * POINTS / SHARDS; i < last * POINTS / SHARDS; i++) {
        float x = coordinate(i, 0), y = coordinate(i, 1), *own = out + 3 * nearest(centres, x, y);
        own[0] += x;
        own[1] += y;
        own[2]++;
    }
}

/* Moves the centres to the means of their points. A rank gives a sum for each largest subtree of its own shards. */
static lk_status move(lk_group *group, const int *bounds, float *centres)
{
    int rank = lk_group_rank(group), begin[LK_MAX_ROOTS + 1];
    int count = lk_shard_roots(SHARDS, bounds[rank], bounds[rank + 1], begin);
    totals parts[LK_MAX_ROOTS], all;
    const void *roots[LK_MAX_ROOTS];
    begin[count] = bounds[rank + 1];
    for (int i = 0; i < count; i++) {
        sum(centres, begin[i], begin[i + 1], parts[i]);
        roots[i] = parts[i];
    }
    lk_shard_sums sums = {bounds, roots};
    LK_TRY(lk_allreduce_shards(group, &sums, (lk_buffer){.at = all, .count = FLOATS, .dtype = LK_DTYPE_F32},
                               LK_REDUCTION_SUM, NULL));
    for (int i = 0; i < FLOATS; i++)
        centres[i] = i % 3 == 2 || all[i / 3 * 3 + 2] == 0 ? all[i] : all[i] / all[i / 3 * 3 + 2];
    return LK_OK;
}

int main(void)
{
    lk_group *group = NULL;
    totals centres = {0, 0, 0, 1, 0, 0, 0, 1, 0, 1, 1, 0};
    int bounds[SHARDS + 1] = {0};
    lk_status status = lk_group_launched() ? lk_group_join(NULL, &group) : lk_group_create_threads(1, NULL, &group);
    int size = lk_group_size(group);
    for (int r = 1; r <= size && size <= SHARDS; r++)
        bounds[r] = r * SHARDS / size;
    for (int i = 0; i < ROUNDS && status == LK_OK; i++)
        status = size <= SHARDS ? move(group, bounds, centres) : lk_fail(LK_STATUS_USAGE, "at most %d ranks", SHARDS);
    for (int c = 0; c < CENTRES && status == LK_OK && lk_group_rank(group) == 0; c++)
        printf("centre %a %a: %g points\n", centres[3 * c], centres[3 * c + 1], centres[3 * c + 2]);
    if (status != LK_OK)
        fprintf(stderr, "%s\n", lk_error_detail());
    lk_group_destroy(group);
    return status != LK_OK;
}
