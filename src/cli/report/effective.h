/* effective.h - the options of a run as it runs: given, from files, and by default. */
#ifndef LK_CLI_REPORT_EFFECTIVE_H
#define LK_CLI_REPORT_EFFECTIVE_H

#include <cjson/cJSON.h>

#include "cli/job/plan.h"

/* Adds each option as "name": "value" to the object. Options that say where results go or how this process joined
 * (--checkpoint, --log-dir, --rank ...) are left out. */
void lk__effective_add(const lk_args *args, const lk_job_plan *plan, cJSON *object);
/* The same as a YAML file for --config, with a comment at its head; the caller frees *out. `comment` is one
 * line. A value that is not UTF-8 becomes a comment. Paths are absolute, and --data-dir is the folder in which
 * data were found by name, so that the file can be used from any directory. */
lk_status lk__effective_yaml(const lk_args *args, const lk_job_plan *plan, const char *comment, char **out,
                             size_t *bytes) LK_CHECKED;

#endif
