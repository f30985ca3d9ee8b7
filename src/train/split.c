/* split.c - holds a part of the training data back for validation. Which samples it has follows from the seed and their
 * number alone, so it is the same at every rank, in every layout and after a resume. */
#include <stdint.h>

#include "base/mem.h"
#include "data/loader/loader.h"
#include "train/parts.h"

/* The random numbers of the choice are those of an epoch that no run reaches. */
enum { EPOCH_OF_SPLIT = UINT32_MAX };

static size_t count_held(double part, size_t count)
{
    size_t held = (size_t)(part * (double)count + 0.5);
    return held < 1 ? 1 : held > count - 1 ? count - 1 : held;
}

static void choose(uint64_t seed, size_t held, size_t count, uint32_t *order, bool *taken)
{
    lk__sampler_permute(seed, (uint32_t)EPOCH_OF_SPLIT, (uint32_t)count, order);
    for (size_t i = 0; i < held; i++)
        taken[order[i]] = true;
}

static lk_status choose_samples(const lk_train_opts *opts, size_t count, bool *taken)
{
    uint32_t *order;
    LK_TRY(LK_ALLOC(count, "the order of samples", &order));
    choose(opts->seed, count_held(opts->val_split, count), count, order, taken);
    lk__mem_free(order);
    return LK_OK;
}

/* The samples whose `taken`, (count), is `wanted`, in their order. */
static lk_status make_part(const lk_dataset *whole, const bool *taken, bool wanted, lk_split split, lk_dataset **out)
{
    size_t count = lk_dataset_get_info(whole)->count, *indices, at = 0;
    LK_TRY(LK_ALLOC(count, "the samples of a part", &indices));
    for (size_t i = 0; i < count; i++)
        if (taken[i] == wanted)
            indices[at++] = i;
    lk_status status = lk_dataset_subset(whole, indices, at, split, out);
    lk__mem_free(indices);
    return status;
}

lk_status lk__train_split(const lk_train_opts *opts, const lk_dataset *whole, lk_dataset **train, lk_dataset **val)
{
    size_t count = lk_dataset_get_info(whole)->count;
    bool *taken;
    lk_status status;
    if (count < 2 || count > UINT32_MAX)
        return lk__fail(LK_STATUS_USAGE, "`val_split` %g: %s has %zu training samples, which cannot be divided",
                        opts->val_split, lk_dataset_get_info(whole)->name, count);
    LK_TRY(LK_ALLOC(count, "the samples of the validation", &taken));
    LK_TRY_GOTO(choose_samples(opts, count, taken), free_taken);
    LK_TRY_GOTO(make_part(whole, taken, false, LK_SPLIT_TRAIN, train), free_taken);
    status = make_part(whole, taken, true, LK_SPLIT_TEST, val);
free_taken:
    lk__mem_free(taken);
    return status;
}
