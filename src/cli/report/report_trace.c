/* report_trace.c - what a trace says: the parts of a step at each rank, and what holds the steps back. */
#include <stdio.h>

#include "cli/cli.h"
#include "cli/report/json.h"
#include "cli/report/report.h"

/* With more ranks than this, only the sentence is printed. */
enum { MOST_ROWS = 16 };

static double ms(double seconds)
{
    return 1e3 * seconds;
}

/* Columns of parts that no rank has are left out: `device` without GPUs, `waiting` with one rank. */
static bool is_shown(const lk_train_trace *trace, int part)
{
    for (int r = 0; r < trace->ranks; r++)
        if (trace->rows[r].parts[part] > 0)
            return true;
    return false;
}

static void print_table(const lk_train_trace *trace)
{
    printf("milliseconds a step\nrank      step");
    for (int p = 0; p < LK_TRAIN_TRACE_PART_COUNT; p++)
        if (is_shown(trace, p))
            printf(" %9s", lk__train_trace_parts[p]);
    printf("\n");
    for (int r = 0; r < trace->ranks; r++) {
        printf("%4d %9.1f", r, ms(trace->rows[r].step));
        for (int p = 0; p < LK_TRAIN_TRACE_PART_COUNT; p++)
            if (is_shown(trace, p))
                printf(" %9.1f", ms(trace->rows[r].parts[p]));
        printf("\n");
    }
}

static void print_verdict(const lk_train_trace *trace)
{
    const lk_train_trace_row *row = &trace->rows[trace->slowest];
    const char *part = lk__train_trace_parts[trace->part];
    double in_part = ms(row->parts[trace->part]), step = ms(row->step);
    if (trace->ranks == 1)
        printf("trace: the longest part of a step is %s: %.1f of %.1f ms\n", part, in_part, step);
    else if (trace->holds_back)
        printf(
            "trace: rank %d holds the steps back: %s takes %.1f of its %.1f ms a step, %.1f ms more than at the other "
            "ranks, which wait %.1f ms for it\n",
            row->rank, part, in_part, step, ms(trace->more), ms(trace->awaited));
    else
        printf("trace: no rank holds the others back: rank %d waits least, %.1f ms a step less than the others\n",
               row->rank, ms(trace->awaited));
}

static void text_trace(const lk_train_trace *trace)
{
    if (trace->error)
        fprintf(stderr, "lockstep train: the trace was not written: %s\n", lk__args_spell(trace->error));
    else
        printf("Trace of steps %zu-%zu written to %s\n", trace->first, trace->last, trace->path);
    if (trace->dropped)
        fprintf(stderr,
                "lockstep train: %zu of %zu spans did not fit into memory and are not in the trace; trace fewer "
                "steps\n",
                trace->dropped, trace->dropped + trace->spans);
    if (trace->ranks <= MOST_ROWS)
        print_table(trace);
    print_verdict(trace);
}

static void json_trace(const lk_train_trace *trace)
{
    cJSON *line = cJSON_CreateObject(), *ranks;
    cJSON_AddStringToObject(line, "event", "trace");
    cJSON_AddStringToObject(line, "path", trace->error ? "" : trace->path);
    cJSON_AddStringToObject(line, "error", trace->error ? trace->error : "");
    cJSON_AddNumberToObject(line, "first", (double)trace->first);
    cJSON_AddNumberToObject(line, "last", (double)trace->last);
    cJSON_AddNumberToObject(line, "spans", (double)trace->spans);
    cJSON_AddNumberToObject(line, "dropped", (double)trace->dropped);
    ranks = cJSON_AddArrayToObject(line, "ranks");
    for (int r = 0; r < trace->ranks; r++) {
        cJSON *row = cJSON_CreateObject();
        cJSON_AddNumberToObject(row, "rank", trace->rows[r].rank);
        cJSON_AddNumberToObject(row, "step_ms", ms(trace->rows[r].step));
        cJSON *parts = cJSON_AddObjectToObject(row, "parts_ms");
        for (int p = 0; p < LK_TRAIN_TRACE_PART_COUNT; p++)
            cJSON_AddNumberToObject(parts, lk__train_trace_parts[p], ms(trace->rows[r].parts[p]));
        cJSON_AddItemToArray(ranks, row);
    }
    cJSON_AddBoolToObject(line, "holds_back", trace->holds_back);
    cJSON_AddNumberToObject(line, "slowest", trace->slowest);
    cJSON_AddStringToObject(line, "part", lk__train_trace_parts[trace->part]);
    cJSON_AddNumberToObject(line, "more_ms", ms(trace->more));
    cJSON_AddNumberToObject(line, "awaited_ms", ms(trace->awaited));
    lk__cli_json_line(line);
}

void lk__report_trace(const lk_train_trace *trace, bool json)
{
    (json ? json_trace : text_trace)(trace);
}
