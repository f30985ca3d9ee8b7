/* options_help.c - the help of a command, from the rows of its options. */
#include <string.h>

#include "cli/options/options.h"

enum { NAME_BYTES = 64, HELP_COLUMN = 30, HELP_BYTES = 512 };

static void help_row(const lk_options_set *set, const lk_option *row, FILE *out)
{
    char name[NAME_BYTES], left[2 * NAME_BYTES], help[HELP_BYTES];
    const char *arg = lk__options_value_name(row, name, sizeof name);
    bool optional = row->kind == LK_OPTION_KIND_OPTIONAL;
    int used = row->letter ? snprintf(left, sizeof left, "-%c, ", row->letter) : 0;
    snprintf(left + used, sizeof left - (size_t)used, "--%s%s%s%s", row->name, arg ? (optional ? " [" : " ") : "",
             arg ? arg : "", optional ? "]" : "");
    fprintf(out, "  %-*s %s", HELP_COLUMN, left, lk__options_spell(set, NULL, row->help, help, sizeof help));
    bool has_default = row->initial && row->kind != LK_OPTION_KIND_ALIAS;
    fprintf(out, has_default ? " (default %s)\n" : "\n", row->initial);
}

void lk__options_help(const lk_options_set *set, FILE *out)
{
    const char *group = "";
    for (size_t i = 0; i < set->count; i++) {
        if ((set->rows[i].commands & set->commands) == 0)
            continue;
        if (strcmp(group, set->rows[i].group) != 0) {
            group = set->rows[i].group;
            fprintf(out, "%s:\n", group);
        }
        help_row(set, &set->rows[i], out);
    }
}
