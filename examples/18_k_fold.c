/* 18_k_fold.c - k-fold validation with early stopping: each sample is in the validation data of one of five runs.
 *
 * lk_dataset_subset makes the parts, lk_train runs each fold and ends it after two epochs without a better result.
 * Start it as one process, or as several ranks (lockstep run -n 3 build/examples/18_k_fold): the results are the same.
 */
#include <stdio.h>
#include <stdlib.h>

#include <lockstep/lockstep.h>

enum { FOLDS = 5, SAMPLES = 2000 };

/* Every fifth sample, from number `fold`, is held back. */
static lk_status divide(const lk_dataset *data, size_t fold, lk_dataset **train, lk_dataset **held)
{
    size_t rest[SAMPLES], part[SAMPLES], rests = 0, parts = 0;
    for (size_t i = 0; i < SAMPLES; i++)
        if (i % FOLDS == fold)
            part[parts++] = i;
        else
            rest[rests++] = i;
    LK_TRY(lk_dataset_subset(data, rest, rests, LK_SPLIT_TRAIN, train));
    return lk_dataset_subset(data, part, parts, LK_SPLIT_TEST, held);
}

/* After a failure the process ends, so this function then frees nothing. */
static lk_status run_fold(lk_group *group, const lk_dataset *data, size_t fold, lk_train_result *result)
{
    lk_dataset *train, *held;
    LK_TRY(divide(data, fold, &train, &held));
    lk_train_opts opts = {.model = "mlp",
                          .train = train,
                          .test = held,
                          .batch = 100,
                          .epochs = 12,
                          .early_stop = 2,
                          .optimizer = "adam",
                          .lr = .003,
                          .schedule = "constant",
                          .seed = fold,
                          .stages = getenv("STAGES"), /* NULL: one stage */
                          .group = group,
                          .alone = !group};
    LK_TRY(lk_train(&opts, NULL, result));
    lk_dataset_destroy(held);
    lk_dataset_destroy(train);
    return LK_OK;
}

static lk_status run_folds(lk_group *group, const lk_dataset *data)
{
    size_t correct = 0;
    bool speaks = !group || lk_group_rank(group) == 0;
    for (size_t fold = 0; fold < FOLDS; fold++) {
        lk_train_result result;
        LK_TRY(run_fold(group, data, fold, &result));
        correct += result.best_correct;
        if (speaks)
            printf("fold %zu: best at step %zu of %zu, %zu of %zu correct, model %016llx\n", fold, result.best_step,
                   result.steps, result.best_correct, result.test.count, (unsigned long long)result.hash);
    }
    if (speaks)
        printf("mean accuracy %.2f %%\n", 100.0 * (double)correct / SAMPLES);
    return LK_OK;
}

int main(void)
{
    lk_group *group = NULL; /* NULL: one process */
    lk_dataset *data = NULL;
    if ((lk_group_launched() && lk_group_join(NULL, &group) != LK_OK) ||
        lk_dataset_open("digits", NULL, LK_SPLIT_TRAIN, &data) != LK_OK || run_folds(group, data) != LK_OK) {
        fprintf(stderr, "18_k_fold: %s\n", lk_error_detail());
        return 1;
    }
    lk_dataset_destroy(data);
    lk_group_destroy(group);
    return 0;
}
