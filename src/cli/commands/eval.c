/* eval.c - `lockstep eval FILE`: a saved model on the test split. */
#include "cli/cli.h"
#include "cli/report/report.h"

int lk__cmd_eval(lk_args *args)
{
    if (args->word_count == 1 && args->train.init_from)
        return lk__cli_fail(lk__fail(LK_STATUS_USAGE, "eval: two model files, '%s' and --init-from '%s'; give one",
                                     args->words[0], args->train.init_from));
    if (args->word_count == 1)
        args->train.init_from = args->words[0];
    if (!args->train.init_from)
        return lk__cli_fail(lk__fail(LK_STATUS_USAGE, "eval wants a model file: lockstep eval FILE [options]"));
    lk_metrics metrics;
    size_t classes;
    lk_status status = lk__args_complete(args);
    if (status == LK_OK)
        status = lk__args_one_device(args, "eval");
    if (status == LK_OK) {
        lk__args_settle(args, "eval");
        lk__args_choose_shards(args, args->train.device, 1);
        status = lk__train_evaluate(&args->train, &metrics, &classes);
    }
    if (status != LK_OK)
        return lk__cli_fail(status);
    lk__report_suspect("eval", args->train.init_from);
    lk__report_metrics(&metrics, classes, args->json);
    return LK_EXIT_DONE;
}
