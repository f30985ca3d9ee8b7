/* report_keep.c - the output about checkpoints: the one that a run resumes from, those that it saves, and how
 * to resume a stopped run. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/job/signals.h"
#include "cli/options/resume.h"
#include "cli/report/json.h"
#include "cli/report/report.h"
#include "io/checkpoint/checkpoint.h"

/* Returns the lines of text, one with each call. */
static const char *next_line(const char **text, int *length)
{
    const char *line = *text;
    *length = (int)strcspn(line, "\n");
    *text += *length + (line[*length] == '\n');
    return *length ? line : NULL;
}

/* Not every checkpoint belongs to a step at which replicas were compared. */
static void print_doubt(const char *path, size_t agreed)
{
    if (agreed)
        printf("%s was saved without a comparison of replicas, which were last equal after step %zu\n", path, agreed);
    else
        printf("%s does not note whether replicas were equal, as earlier versions did not\n", path);
}

void lk__report_passed_over(FILE *to, const char *prefix)
{
    const char *why = lk__cli_resume_found()->why, *line;
    int length;
    while ((line = next_line(&why, &length)) != NULL)
        fprintf(to, "%spassed over: %.*s\n", prefix, length, line);
}

void lk__report_resumed(const lk_report *report, const lk_train_begin *start)
{
    const lk_resume *found = lk__cli_resume_found();
    const lk_train_opts *opts = &report->plan->train;
    bool by_steps = opts->max_steps && opts->max_steps <= opts->epochs * start->batches;
    const char *limit = by_steps ? "--max-steps" : "--epochs";
    size_t most = by_steps ? opts->max_steps : opts->epochs;
    lk__report_passed_over(stdout, "");
    if (report->args->resume_searched && !*found->path)
        printf("no run of this line in %s has a checkpoint yet: the run begins\n", report->args->log_dir);
    else if (report->args->resume && !*found->path)
        printf("no checkpoint in %s yet: the run begins\n", report->plan->train.checkpoint);
    if (*found->path && start->done == start->steps && start->done < opts->epochs * start->batches &&
        !(by_steps && start->done >= opts->max_steps))
        printf("--early-stop has ended the run of %s; a larger one goes on\n", found->path);
    else if (*found->path && start->done >= start->steps && (by_steps || start->extends))
        printf("%s has all steps that %s %zu asks for; a larger one goes on\n", found->path, limit, most);
    else if (*found->path && start->done >= start->steps)
        printf("%s has all steps that --epochs %zu asks for, and the rates of --schedule %s depend on that number: the "
               "run is complete; --init-from %s/%s starts another from its model\n",
               found->path, most, opts->schedule, found->path, lk__checkpoint_model);
    else if (*found->path)
        printf("going on from %s: %zu of %zu steps are done\n", found->path, start->done, start->steps);
    if (*found->path && start->agreed < start->done)
        print_doubt(found->path, start->agreed);
    if (start->touched)
        printf("files of --data %s have other times than when %s was saved: all sizes and a part of the contents are "
               "the same, but if an image was changed, the result is another one\n",
               opts->data, found->path);
    if (start->saved_shards)
        printf("%d shards instead of the checkpoint's %d (--reshard): from here on the result is another one\n",
               report->plan->train.shards, start->saved_shards);
    if (*start->other_device)
        printf("unlike the run of %s: %s; from here on bits may differ\n", found->path, start->other_device);
}

void lk__report_resumed_json(cJSON *line, const lk_train_begin *start)
{
    const lk_resume *found = lk__cli_resume_found();
    const char *why = found->why, *text;
    char passed[sizeof found->why];
    int length;
    cJSON_AddStringToObject(line, "resumed", found->path);
    cJSON_AddNumberToObject(line, "done", (double)start->done);
    cJSON_AddNumberToObject(line, "agreed", (double)start->agreed);
    cJSON_AddBoolToObject(line, "data_touched", start->touched);
    cJSON_AddStringToObject(line, "other_device", start->other_device);
    cJSON *list = cJSON_AddArrayToObject(line, "passed_over");
    while ((text = next_line(&why, &length)) != NULL) {
        snprintf(passed, sizeof passed, "%.*s", length, text);
        cJSON_AddItemToArray(list, cJSON_CreateString(passed));
    }
}

/* Whether a path is a file of such a checkpoint: suspect-step-000000080/model.safetensors. */
static bool is_in_suspect(const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    return slash && (size_t)snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path) < sizeof folder &&
           lk__checkpoint_is_suspect(folder);
}

/* path: a checkpoint, a file in one, or another file. */
void lk__report_suspect(const char *command, const char *path)
{
    if (path && (lk__checkpoint_is_suspect(path) || is_in_suspect(path)))
        fprintf(stderr,
                "lockstep %s: %s is of a checkpoint that was set aside, because replicas differed: its weights may be "
                "wrong\n",
                command, path);
}

void lk__report_notice(const char *command, const char *notice)
{
    if (*notice)
        fprintf(stderr, "lockstep %s: %s\n", command, notice);
}

static void json_saved(const lk_train_saved *saved)
{
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "event", "checkpoint");
    cJSON_AddNumberToObject(line, "step", (double)saved->step);
    cJSON_AddStringToObject(line, "path", saved->path);
    cJSON_AddBoolToObject(line, "best", saved->best);
    cJSON_AddBoolToObject(line, "again", saved->again);
    cJSON_AddNumberToObject(line, "seconds", saved->seconds);
    lk__cli_json_line(line);
}

void lk__report_saved(const lk_report *report, const lk_train_saved *saved)
{
    if (report->args->json)
        json_saved(saved);
    else
        printf(saved->again ? "Checkpoint %s now has its test%s\n" : "Checkpoint saved to %s%s\n", saved->path,
               saved->best ? ", the best so far" : "");
}

/* Another command line helps, and resuming does not. */
static bool is_refused(const lk_train_failure *failure)
{
    return !failure->begun && (failure->status == LK_STATUS_USAGE || failure->status == LK_STATUS_MISMATCH);
}

/* A checkpoint that is still being written may not be completed, so it is not named. */
void lk__report_last(const lk_args *args, const lk_train_failure *failure)
{
    const char *last = failure->checkpoint;
    if (is_refused(failure) || !failure->saves)
        return;
    if (failure->writing && *last)
        fprintf(
            stderr,
            "lockstep train: the last checkpoint is %s, and one of step %zu is being written; --resume auto goes on "
            "from the newest that is whole\n",
            last, failure->writing);
    else if (failure->writing)
        fprintf(stderr,
                "lockstep train: a checkpoint of step %zu is being written, the first; --resume auto goes on from it "
                "if it becomes whole\n",
                failure->writing);
    else if (*last && !strstr(failure->detail, last))
        fprintf(stderr, "lockstep train: the last checkpoint is %s; --resume auto goes on from there\n", last);
    else if (!*last && failure->begun)
        fprintf(stderr, "lockstep train: there is no checkpoint in %s yet; the same line starts the run again\n",
                args->train.checkpoint);
}

/* Prints a word as a shell reads it. */
static void print_word(const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+=:,@%";
    if (*word && !word[strspn(word, plain)]) {
        fputs(word, stderr);
        return;
    }
    fputc('\'', stderr);
    for (; *word; word++)
        fputs(*word == '\'' ? "'\\''" : (const char[]){*word, '\0'}, stderr);
    fputc('\'', stderr);
}

static void json_stopped(const lk_train_outcome *result, const char *signal)
{
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "event", "stopped");
    cJSON_AddStringToObject(line, "signal", signal);
    cJSON_AddNumberToObject(line, "rank", result->stop_rank);
    cJSON_AddNumberToObject(line, "step", (double)result->steps);
    cJSON_AddStringToObject(line, "checkpoint", result->checkpoint);
    lk__cli_json_line(line);
}

static const char *signal_name(int number)
{
    return number == SIGINT ? "SIGINT" : number == SIGHUP ? "SIGHUP" : number == SIGUSR1 ? "SIGUSR1" : "SIGTERM";
}

/* The end of the line at rank 0. */
static void print_kept(const lk_args *args, const lk_train_outcome *result)
{
    if (!*result->checkpoint) {
        fputs("nothing was saved: --checkpoint DIR keeps what was done\n", stderr);
        return;
    }
    if (args->requeue) {
        fprintf(stderr, "the run so far is saved in %s, from where the job's next run goes on\n", result->checkpoint);
        return;
    }
    fprintf(stderr, "the run so far is saved in %s. Go on with: lockstep train --resume ", result->checkpoint);
    print_word(args->train.checkpoint);
    if (args->log_dir) {
        fputs(" --log-dir ", stderr);
        print_word(args->log_dir);
    }
    fputc('\n', stderr);
}

/* The signal is not named if this process received it too: a launcher passes its signals on to all ranks. */
void lk__report_stopped(const lk_report *report, const lk_train_outcome *result)
{
    const char *signal = signal_name(result->stop_signal);
    if (report->rank == 0 && report->args->json)
        json_stopped(result, signal);
    fflush(stdout);
    fputs("lockstep train: ", stderr);
    if (*result->stop_host && !lk__job_signals_stop())
        fprintf(stderr, "rank %d on host %s got ", result->stop_rank, result->stop_host);
    fprintf(stderr, "%s after step %zu; ", signal, result->steps);
    if (report->rank == 0)
        print_kept(report->args, result);
    else
        fputs("all ranks stop, and rank 0 says what was saved\n", stderr);
}
