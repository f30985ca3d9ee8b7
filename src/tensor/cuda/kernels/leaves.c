/* leaves.c - dividing leaves among launches, groups and parts. */
#include "tensor/cuda/kernels/leaves.h"

#include <assert.h>
#include <limits.h>

#include "base/mem.h"

/* Floats of the parts and roots of a launch, at most, if it has more than one: 256 MiB. Larger layers have several
 * launches for a wave; one of them fills the GPU. */
static const size_t most_floats = (size_t)64 << 20;

/* Block rows of a launch, at most: a limit of grids. */
static const size_t most_rows = 65535;

static size_t chunks_of(const lk_cuda_cut *cut, size_t samples)
{
    return lk__size_divide_up(samples * cut->rows, cut->chunk);
}

/* The time of this many leaves of n chunks each in parts of `chunks` chunks, in chunks of one block: half of cut->full
 * blocks run at once. */
static size_t parts_time(const lk_cuda_cut *cut, size_t n, size_t chunks, size_t leaves)
{
    size_t blocks = cut->tiles * leaves * lk__size_divide_up(n, chunks);
    return lk__size_divide_up(blocks, lk__size_divide_up(cut->full, 2)) * (chunks + cut->extra);
}

/* The chunks of a part that take the least time: twice that of all leaves in one launch, plus that of an eighth of
 * them, as several GPUs or waves have. */
static size_t fastest_chunks(const lk_cuda_cut *cut, size_t n, size_t all, size_t *time)
{
    size_t most = lk__size_divide_up(4 * cut->full, cut->tiles * all), found = n;
    most = most < LK_CUDA_PARTS ? most : LK_CUDA_PARTS;
    *time = SIZE_MAX;
    for (size_t parts = 1; parts <= most && parts <= n; parts++) {
        size_t chunks = lk__size_divide_up(n, parts);
        if (parts > 1 && chunks < cut->least)
            break;
        size_t t = 2 * parts_time(cut, n, chunks, all) + parts_time(cut, n, chunks, lk__size_divide_up(all, 8));
        if (t < *time) {
            *time = t;
            found = chunks;
        }
    }
    return found;
}

/* Chunks of a part. Without cut->extra so many that all leaves of a step have 2 * full blocks if they have the largest
 * size, but not fewer than `least`, and that a leaf has not too many parts. */
static size_t part_chunks(const lk_cuda_cut *cut, const lk_shards *shards)
{
    size_t n = chunks_of(cut, shards->most), all = (size_t)shards->all, time;
    if (cut->extra > 0)
        return fastest_chunks(cut, n, all, &time);
    size_t parts = lk__size_divide_up(2 * cut->full, cut->tiles * all);
    size_t chunks = lk__size_divide_up(n, parts < LK_CUDA_PARTS ? parts : LK_CUDA_PARTS);
    return chunks > cut->least ? chunks : cut->least;
}

size_t lk__cuda_leaves_time(const lk_cuda_cut *cut, size_t most, size_t all)
{
    size_t time;
    (void)fastest_chunks(cut, chunks_of(cut, most), all, &time);
    return time;
}

/* Divides leaves [first, end) into at most `room` groups of at most `most` leaves. Sets groups, group and count. */
static void make_groups(const lk_shards *shards, int end, int most, size_t room, lk_cuda_leaves *out)
{
    int at = out->first;
    out->groups = 0;
    while (at < end && (size_t)out->groups < room) {
        out->group[out->groups++] = (uint8_t)(at - out->first);
        at = lk__tree_subtree_end(shards->merges, at, end, most);
    }
    out->count = at - out->first;
    out->group[out->groups] = (uint8_t)out->count;
}

/* The time of a launch, in leaves of one block: half of cut->full blocks run at once. */
static size_t time_of(const lk_cuda_cut *cut, const lk_cuda_leaves *leaves, int most)
{
    return lk__size_divide_up(cut->tiles * (size_t)leaves->groups, lk__size_divide_up(cut->full, 2)) * (size_t)most;
}

/* Whether groups of half as many leaves take at least a fifth less time, which pays for more groups in the fold. */
static bool gains_by_half(const lk_cuda_cut *cut, const lk_shards *shards, int end, int most, size_t room,
                          const lk_cuda_leaves *leaves)
{
    lk_cuda_leaves half = *leaves;
    make_groups(shards, end, most / 2, room, &half);
    return half.count == leaves->count && 5 * time_of(cut, &half, most / 2) <= 4 * time_of(cut, leaves, most);
}

/* Groups as large as possible that fill the GPU or are small. */
static void choose_groups(const lk_cuda_cut *cut, const lk_shards *shards, int end, size_t room, lk_cuda_leaves *out)
{
    int most = out->parts > 1 ? 1 : 1 << cut->levels;
    for (;; most /= 2) {
        make_groups(shards, end, most, room, out);
        int leaves = most < end - out->first ? most : end - out->first;
        size_t rows = shards->most * cut->rows * (size_t)leaves;
        if (most == 1 || rows <= cut->small)
            return;
        if (cut->tiles * (size_t)out->groups >= cut->full / 2 && !gains_by_half(cut, shards, end, most, room, out))
            return;
    }
}

/* Divides the merges after each leaf among its group and the fold. */
static void divide_merges(const lk_shards *shards, lk_cuda_leaves *out)
{
    for (int g = 0; g < out->groups; g++) {
        int depth = 0;
        for (int i = out->group[g]; i < out->group[g + 1]; i++) {
            int merges = shards->merges[out->first + i], inner = merges < depth ? merges : depth;
            out->inner[i] = (uint8_t)inner;
            out->outer[g] = (uint8_t)(merges - inner);
            depth += 1 - inner;
        }
    }
}

static void count_parts(const lk_cuda_cut *cut, const lk_shards *shards, lk_cuda_leaves *out)
{
    for (int g = 0; g < out->groups; g++) {
        const size_t *begin = shards->begin + out->first + out->group[g];
        size_t parts =
            out->parts > 1 ? lk__size_divide_up(chunks_of(cut, begin[1] - begin[0]), (size_t)out->chunks) : 1;
        assert(parts <= (size_t)out->parts);
        out->parts_of[g] = (uint16_t)(parts > 0 ? parts : 1);
    }
}

lk_status lk__cuda_leaves_take(const lk_cuda_cut *cut, const lk_shards *shards, int first, lk_cuda_leaves *out)
{
    assert(shards->most > 0 && shards->all > 0);
    size_t chunks = part_chunks(cut, shards), parts = lk__size_divide_up(chunks_of(cut, shards->most), chunks);
    size_t room = most_floats / (parts * (cut->weights + cut->bias)) + 1;
    room = room * parts > most_rows ? most_rows / parts : room;
    int end = shards->count - first > LK_CUDA_LEAVES ? first + LK_CUDA_LEAVES : shards->count;
    if (shards->begin[shards->count] > UINT32_MAX / 2 / cut->rows || chunks > INT_MAX)
        return lk__fail(LK_STATUS_UNSUPPORTED,
                        "the gradients of a layer's weights: %zu samples of %zu pixels are too many for a GPU; "
                        "smaller micro-batches have fewer",
                        shards->begin[shards->count], cut->rows);
    *out = (lk_cuda_leaves){.first = first, .parts = (int)parts, .chunks = parts > 1 ? (int)chunks : INT_MAX};
    choose_groups(cut, shards, end, room, out);
    divide_merges(shards, out);
    count_parts(cut, shards, out);
    for (int i = 0; i <= out->count; i++)
        out->begin[i] = (uint32_t)(shards->begin[first + i] * cut->rows);
    return LK_OK;
}

bool lk__cuda_leaves_is_sum(const lk_cuda_leaves *leaves, const lk_shards *shards)
{
    return leaves->count == shards->count && leaves->groups == 1 && leaves->parts == 1 && leaves->outer[0] == 0;
}

int lk__cuda_leaves_depth(const lk_cuda_leaves *leaves, int depth)
{
    for (int g = 0; g < leaves->groups; g++)
        depth += 1 - leaves->outer[g];
    return depth;
}
