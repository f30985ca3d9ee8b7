/* settings.c - the options of a program become the settings of a run: defaults from the rows of table.c, ranges, and
 * what depends on several options. The program `lockstep` fills settings from its command line instead. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/spec.h"
#include "base/tree.h"
#include "nn/graph.h"
#include "parallel/layout/defaults.h"
#include "train/parts.h"

enum { NUMBER = 40 };

/* No model of the table has this name. */
static const char own_graph[] = "graph:";

/* In a public struct -1 says what 0 says in the rows: none. */
static bool has_none(const lk_option *row)
{
    return row->kind == LK_OPTION_KIND_INT && row->initial && row->min == 0;
}

static lk_status fail_range(const lk_option *row, const char *value)
{
    char least[LK_NUMBER_TEXT], most[LK_NUMBER_TEXT];
    return lk__fail(LK_STATUS_USAGE, "`%s` is %s and must be %s to %s, or 0 for the default%s", lk__option_field(row),
                    value, lk__number_text(row->min, least), lk__number_text(row->max, most),
                    has_none(row) ? ", or -1 for none" : "");
}

static double default_of(const lk_option *row)
{
    double value = 0;
    return row->initial && lk__number_parse_double(row->initial, &value) ? value : 0;
}

static lk_status fill_count(const lk_option *row, size_t *field)
{
    char text[NUMBER];
    snprintf(text, sizeof text, "%zu", *field);
    if (*field == 0)
        *field = (size_t)default_of(row);
    else if ((double)*field < row->min || (double)*field > row->max)
        return fail_range(row, text);
    return LK_OK;
}

static lk_status fill_int(const lk_option *row, int *field)
{
    char text[NUMBER];
    snprintf(text, sizeof text, "%d", *field);
    if (*field == 0)
        *field = row->choices ? LK_OPTION_WORD : (int)default_of(row);
    else if (*field == -1 && has_none(row))
        *field = 0;
    else if (*field < row->min || *field > row->max)
        return fail_range(row, text);
    return LK_OK;
}

static lk_status fill_real(const lk_option *row, double *field)
{
    char text[LK_NUMBER_TEXT];
    if (*field == 0)
        *field = default_of(row);
    else if (!(*field >= row->min && *field <= row->max)) /* NaN, too */
        return fail_range(row, lk__number_text(*field, text));
    return LK_OK;
}

static lk_status check_choice(const lk_option *row, int value)
{
    int count = 0;
    while (row->choices[count])
        count++;
    if (value >= 0 && value < count)
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE, "`%s` is %d, which is none of its %d values", lk__option_field(row), value, count);
}

static lk_status fill_text(const lk_option *row, const char **field)
{
    if (!*field)
        *field = row->initial;
    else if (!**field)
        return lk__fail(LK_STATUS_USAGE, "`%s` is empty; NULL is the default", lk__option_field(row));
    return LK_OK;
}

static lk_status fill(const lk_option *row, lk_train_opts *settings)
{
    void *field = (char *)settings + row->offset;
    switch (row->kind) {
    case LK_OPTION_KIND_COUNT:
        return fill_count(row, field);
    case LK_OPTION_KIND_INT:
        return fill_int(row, field);
    case LK_OPTION_KIND_REAL:
        return fill_real(row, field);
    case LK_OPTION_KIND_CHOICE:
        return check_choice(row, *(const int *)field);
    case LK_OPTION_KIND_TEXT:
    case LK_OPTION_KIND_SPEC:
    case LK_OPTION_KIND_TERMS:
    case LK_OPTION_KIND_OPTIONAL:
        return fill_text(row, field);
    default:
        return LK_OK; /* a flag, and the seed: 0 is a seed like any other */
    }
}

lk_status lk__train_settings(const lk_train_opts *given, lk_train_opts *out)
{
    lk_train_opts settings = *given;
    const lk_option *row;
    for (size_t i = 0; (row = lk__train_option(i)) != NULL; i++)
        LK_TRY(fill(row, &settings));
    if (!given->shards)
        settings.shards = 0; /* depends on the number of replicas */
    if (settings.seed > INT64_MAX)
        return lk__fail(LK_STATUS_USAGE, "`seed` is %" PRIu64 " and must be below 2^63", settings.seed);
    *out = settings;
    return LK_OK;
}

lk_status lk__train_accumulate(lk_train_opts *settings)
{
    size_t waves = settings->accumulate ? settings->accumulate : 1;
    if (settings->shards > LK_MAX_SHARDS / (int)waves)
        return lk__fail(LK_STATUS_USAGE,
                        "`accumulate` %zu makes %zu shards of `shards` %d, and at most %d are possible; give fewer of "
                        "one",
                        waves, waves * (size_t)settings->shards, settings->shards, LK_MAX_SHARDS);
    settings->accumulate = waves;
    settings->batch *= waves;
    settings->shards *= (int)waves;
    return LK_OK;
}

int lk__train_default_shards(const lk_train_opts *settings, int ranks)
{
    int waves = settings->accumulate ? (int)settings->accumulate : 1;
    int usual = lk__engine_default_shards(1, NULL), shards = lk__engine_default_shards(ranks, settings->stages);
    return (shards <= LK_MAX_SHARDS / waves ? shards : usual) * waves;
}

void lk__train_graph_text(const lk_graph *graph, char text[LK_TRAIN_GRAPH_TEXT])
{
    snprintf(text, LK_TRAIN_GRAPH_TEXT, "%shash=%016" PRIx64 ",parameters=%zu", own_graph, lk__graph_hash(graph),
             lk_graph_parameters(graph));
}

bool lk__train_is_graph(const char *model)
{
    return strncmp(model, own_graph, sizeof own_graph - 1) == 0;
}
