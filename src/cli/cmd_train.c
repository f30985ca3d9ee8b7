/* cmd_train.c - `lockstep train`. */
#include "cli/cli.h"
#include "cli/report.h"

int lk__cmd_train(lk_args *args)
{
    bool data_given = args->train.data != NULL;
    lk_status status = lk__args_complete(args);
    if (status != LK_OK)
        return lk__cli_fail(status);
    lk_report report;
    lk__report_init(&report, args, data_given);
    lk_train_events events = lk__report_events(&report);
    lk_train_result result;
    status = lk__train(&args->train, &events, &result);
    lk__report_clear(&report);
    if (status != LK_OK)
        return lk__cli_fail(status);
    lk__report_end(&report, &result);
    return LK_EXIT_DONE;
}
