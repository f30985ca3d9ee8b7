/* info.c - `lockstep info`: chooses what to describe. */
#include "cli/cli.h"
#include "cli/commands/info_build.h"
#include "cli/commands/info_file.h"
#include "cli/commands/info_group.h"
#include "cli/commands/info_model.h"

/* Refuses options that have no effect without a model. */
static lk_status check_options(const lk_args *args)
{
    bool model = args->train.model != NULL;
    size_t others = args->options_given - (size_t)args->json;
    if (args->group && (args->word_count > 0 || others > 1))
        return lk__fail(LK_STATUS_USAGE, "info --group describes this process, and takes no file and only --json: "
                                         "lockstep info --group");
    if (args->group)
        return LK_OK;
    if (model && args->word_count > 0)
        return lk__fail(LK_STATUS_USAGE, "info describes a file or a --model, not both: give one of them");
    if (!model && others > 0)
        return lk__fail(LK_STATUS_USAGE, "the options of info, except --json, belong to --model: lockstep info --model "
                                         "NAME [options]");
    return lk__args_check_data(args);
}

int lk__cmd_info(lk_args *args)
{
    lk_status status = check_options(args);
    if (status == LK_OK && args->group)
        lk__cmd_info_group(args);
    else if (status == LK_OK && args->train.model)
        status = lk__cmd_info_model(args);
    else if (status == LK_OK && args->word_count == 1)
        status = lk__cmd_info_file(args->words[0], args->json);
    else if (status == LK_OK)
        lk__cmd_info_build(args->json);
    return status == LK_OK ? LK_EXIT_DONE : lk__cli_fail(status);
}
