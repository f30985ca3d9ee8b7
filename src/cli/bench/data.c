/* data.c - `lockstep bench data`: whole epochs of batches from the loader, decoded, transformed and normalised,
 * without training. */
#include <stdio.h>

#include "base/clock.h"
#include "base/cores.h"
#include "base/median.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/report/json.h"
#include "data/loader/loader.h"

enum { MAX_RUNS = 99, DEFAULT_RUNS = 3 };

static lk_status read_epoch(lk_loader *loader, size_t epoch, double *seconds)
{
    double began = lk__clock();
    const lk_batch *batch;
    LK_TRY(lk_loader_start(loader, epoch, 0));
    do {
        LK_TRY(lk_loader_next(loader, &batch));
    } while (batch);
    *seconds = lk__clock() - began;
    return LK_OK;
}

static void report(const lk_args *args, const lk_dataset_info *info, int workers, double seconds)
{
    double rate = (double)info->count / seconds;
    if (!args->json) {
        printf("%s: %zu images in %.2f s, %.0f img/s with %d workers\n", info->name, info->count, seconds, rate,
               workers);
        return;
    }
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "case", "data");
    cJSON_AddStringToObject(line, "data", info->name);
    cJSON_AddNumberToObject(line, "images", (double)info->count);
    cJSON_AddNumberToObject(line, "workers", workers);
    cJSON_AddNumberToObject(line, "seconds", seconds);
    cJSON_AddNumberToObject(line, "img_per_s", rate);
    lk__cli_json_line(line);
}

static lk_status run_epochs(const lk_args *args, const lk_dataset *data, int workers, lk_loader *loader)
{
    double seconds[MAX_RUNS];
    size_t runs = args->runs ? args->runs : DEFAULT_RUNS;
    for (size_t run = 0; run < runs; run++)
        LK_TRY(read_epoch(loader, run, &seconds[run]));
    report(args, lk_dataset_get_info(data), workers, lk__median(seconds, runs));
    return LK_OK;
}

lk_status lk__bench_data(const lk_args *args)
{
    const lk_train_opts *opts = &args->train;
    lk_dataset *data;
    lk_loader *loader;
    LK_TRY(lk_dataset_open(opts->data, opts->data_dir, LK_SPLIT_TRAIN, &data));
    lk_loader_opts loader_opts = {.batch = lk__size_min(opts->batch, lk_dataset_get_info(data)->count),
                                  .shuffle = true,
                                  .seed = opts->seed,
                                  .workers = opts->workers,
                                  .augment = opts->augment};
    if (opts->workers == LK_OPTION_WORD)
        loader_opts.workers = lk__loader_auto_workers(data, lk__cores());
    lk_status status = lk_loader_create(data, &loader_opts, &loader);
    if (status == LK_OK) {
        status = run_epochs(args, data, loader_opts.workers, loader);
        lk_loader_destroy(loader);
    }
    lk_dataset_destroy(data);
    return status;
}
