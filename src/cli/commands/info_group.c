/* info_group.c - `lockstep info --group`: this process as a task of a job, as text or as one JSON object. */
#include "cli/commands/info_group.h"

#include <stdio.h>
#include <string.h>

#include "cli/job/join.h"
#include "cli/report/json.h"
#include "comm/detect/task.h"
#include "comm/rendezvous/rendezvous.h"
#include "net/token.h"

enum { DEED_BYTES = 1024 };

static const char *const keys[] = {[LK_TOKEN_ORIGIN_GIVEN] = "the token of the job",
                                   [LK_TOKEN_ORIGIN_SECRET] = "your secret",
                                   [LK_TOKEN_ORIGIN_OPEN] = "a key that anybody can guess (LOCKSTEP_INSECURE)"};

/* Writes where a rank of this task connects to the others, and what the key of the job is. */
static lk_status describe_meeting(const lk_args *args, const lk_task *task, const lk_join *join, char text[DEED_BYTES])
{
    const lk_job_channel_task process = {
        .rank = join->rank, .size = join->processes, .threads = join->group.threads, .backend = args->backend};
    lk_meeting_plan plan;
    char ports[48] = "";
    bool given = false;
    lk_token token;
    lk_token_origin origin = LK_TOKEN_ORIGIN_GIVEN;
    LK_TRY(lk__token_find(NULL, &token, &given));
    LK_TRY(lk__meeting_env_plan(task, &process, given, &plan));
    if (plan.channel) {
        snprintf(text, DEED_BYTES, "joins as rank %d of %d; rank 0 sends its address%s through the launcher's channel",
                 join->rank, join->processes, given ? "" : " and a token");
        return LK_OK;
    }
    if (!given)
        LK_TRY(lk__token_origin_of_jobs(&origin));
    if (plan.ports > 1)
        snprintf(ports, sizeof ports, " or one of the next %d", plan.ports - 1);
    snprintf(text, DEED_BYTES, "joins as rank %d of %d at %s, port %d%s, with %s", join->rank, join->processes,
             plan.host, plan.first, ports, keys[origin]);
    return LK_OK;
}

/* Writes what `lockstep train` without options of ranks would do here. */
static void describe_deed(const lk_args *args, const lk_task *task, char text[DEED_BYTES], char note[LK_JOIN_TEXT])
{
    lk_join join = {0};
    lk_status status = lk__join_find(args, &join);
    bool joins = status == LK_OK && join.way == LK_JOIN_WAY_ENV;
    if (joins)
        status = describe_meeting(args, task, &join, text);
    if (status != LK_OK)
        snprintf(text, DEED_BYTES, "refuses to start: %s", lk__args_spell(lk_error_detail()));
    else if (!joins)
        snprintf(text, DEED_BYTES, "trains alone in this process%s%s", *join.note ? ": " : "", join.note);
    snprintf(note, LK_JOIN_TEXT, "%s", joins ? join.note : "");
}

static const char *source_of(const lk_task *task, const lk_task_value *value, char *text, size_t bytes)
{
    if (!value->known)
        return "not known";
    snprintf(text, bytes, value->launcher ? "%s (%s)" : "%s", value->source,
             value->launcher ? lk__task_launcher_name(task, value->launcher) : "");
    return text;
}

static void print_values(const lk_task *task)
{
    for (int i = 0; i < LK_TASK_QUANTITY_COUNT; i++) {
        const lk_task_value *value = &task->values[i];
        char source[128];
        bool array = i == LK_TASK_QUANTITY_ARRAY_RANK || i == LK_TASK_QUANTITY_ARRAY_SIZE;
        if (array && !value->known)
            continue;
        printf("  %-20s ", lk__task_quantity_name((lk_task_quantity)i));
        int gap = 20 - (int)lk__cli_json_key(value->known ? value->text : "");
        printf("%*s %s\n", gap > 0 ? gap : 0, "", source_of(task, value, source, sizeof source));
    }
}

/* Inside a step, Slurm's variables have the numbers of the step instead of the job's. */
static void print_allocation(const lk_task *task)
{
    const lk_task_allocation *all = &task->allocation;
    if (!all->scheduler)
        return;
    printf("inside %s job %s", all->scheduler->name, all->job);
    if (!task->launcher && all->tasks > 0)
        printf(", which has %d task%s", all->tasks, all->tasks == 1 ? "" : "s");
    if (!task->launcher && all->nodes > 0)
        printf(" on %d node%s", all->nodes, all->nodes == 1 ? "" : "s");
    putchar('\n');
}

static void print_text(const lk_task *task, const char *deed, const char *note)
{
    char text[320];
    lk__task_text(task, text, sizeof text);
    printf("started by %s\n", task->launcher ? text : "no launcher that is known");
    for (int i = 0; task->left_out[i]; i++)
        printf("left out: %s, in a task of which %s has started this process\n", task->left_out[i]->name,
               task->by_run ? lk__task_launcher_name(task, task->launcher) : "another launcher");
    print_allocation(task);
    print_values(task);
    if (*task->problem)
        printf("problem: %s\n", task->problem);
    printf("lockstep train %s\n", deed);
    if (*note)
        printf("note: %s\n", note);
}

static void add_values(cJSON *object, const lk_task *task)
{
    cJSON *list = cJSON_AddArrayToObject(object, "quantities");
    for (int i = 0; i < LK_TASK_QUANTITY_COUNT; i++) {
        const lk_task_value *value = &task->values[i];
        cJSON *entry = cJSON_CreateObject();
        cJSON_AddStringToObject(entry, "name", lk__task_quantity_name((lk_task_quantity)i));
        cJSON_AddBoolToObject(entry, "known", value->known);
        cJSON_AddStringToObject(entry, "value", value->text);
        cJSON_AddStringToObject(entry, "source", value->source);
        cJSON_AddStringToObject(entry, "launcher",
                                value->known && value->launcher ? lk__task_launcher_name(task, value->launcher) : "");
        cJSON_AddItemToArray(list, entry);
    }
}

static void print_json(const lk_task *task, const char *deed, const char *note)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "launcher", task->launcher ? lk__task_launcher_name(task, task->launcher) : "");
    cJSON *list = cJSON_AddArrayToObject(object, "left_out");
    for (int i = 0; task->left_out[i]; i++)
        cJSON_AddItemToArray(list, cJSON_CreateString(task->left_out[i]->name));
    cJSON_AddStringToObject(object, "scheduler", task->allocation.scheduler ? task->allocation.scheduler->name : "");
    cJSON_AddStringToObject(object, "job", task->allocation.job);
    cJSON_AddNumberToObject(object, "tasks", task->allocation.tasks);
    cJSON_AddNumberToObject(object, "nodes", task->allocation.nodes);
    add_values(object, task);
    cJSON_AddStringToObject(object, "problem", task->problem);
    cJSON_AddStringToObject(object, "train", deed);
    cJSON_AddStringToObject(object, "note", note);
    lk__cli_json_line(object);
}

void lk__cmd_info_group(const lk_args *args)
{
    lk_task task;
    char deed[DEED_BYTES], note[LK_JOIN_TEXT];
    lk__task_find(NULL, NULL, &task);
    describe_deed(args, &task, deed, note);
    (args->json ? print_json : print_text)(&task, deed, note);
}
