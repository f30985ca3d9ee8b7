/* verify.c - `lockstep verify DIR`: checks that checkpoints, and the final state of a run folder, are as
 * they were saved; prints one line for each.
 * Repairs nothing. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/options/run_folder.h"
#include "cli/report/json.h"
#include "io/checkpoint/checkpoint.h"
#include "record/runs.h"

typedef struct verdict {
    const lk_args *args;
    size_t checked, damaged;
} verdict;

/* A path that was typed may end with slashes, which are printed. */
static const char *last_part(const char *path)
{
    size_t length;
    return lk__path_last(path, &length);
}

static void print_json(const char *path, lk_status status, const lk_checkpoint_size *size)
{
    cJSON *line = cJSON_CreateObject();
    cJSON_AddStringToObject(line, "checkpoint", path);
    cJSON_AddBoolToObject(line, "whole", status == LK_OK);
    if (status == LK_OK) {
        cJSON_AddNumberToObject(line, "model_tensors", (double)size->model);
        cJSON_AddNumberToObject(line, "optimizer_tensors", (double)size->optimizer);
        cJSON_AddNumberToObject(line, "bytes", (double)size->bytes);
    } else {
        cJSON_AddStringToObject(line, "why", lk__args_spell(lk_error_detail()));
    }
    lk__cli_json_line(line);
}

static void print_text(const char *path, lk_status status, const lk_checkpoint_size *size, const char *mark)
{
    char bytes[LK_TEXT_AMOUNT];
    lk__cli_json_key(last_part(path));
    if (status == LK_OK)
        printf(": whole%s; %zu tensors of the model and %zu of the optimiser, %s\n", mark, size->model, size->optimizer,
               lk__text_amount(size->bytes, bytes));
    else
        printf(": %s%s: %s\n",
               status == LK_STATUS_FORMAT || status == LK_STATUS_NOT_FOUND ? "damaged" : "cannot be read", mark,
               lk__args_spell(lk_error_detail()));
}

/* Fails only if the error says nothing about the checkpoint. */
static lk_status verify_one(verdict *v, const char *path, const char *mark)
{
    lk_checkpoint_size size;
    lk_status status = lk__checkpoint_verify(path, &size);
    if (status == LK_STATUS_MEMORY)
        return status;
    v->checked++;
    v->damaged += status != LK_OK;
    if (v->args->json)
        print_json(path, status, &size);
    else if (!v->args->quiet)
        print_text(path, status, &size, mark);
    return LK_OK;
}

static void print_unfinished(const verdict *v, const char *name)
{
    if (v->args->json) {
        cJSON *line = cJSON_CreateObject();
        cJSON_AddStringToObject(line, "unfinished", name);
        lk__cli_json_line(line);
    } else if (!v->args->quiet) {
        printf("%s: an unfinished save, which does no harm; the next run in this folder removes it\n", name);
    }
}

/* A complete checkpoint may have such a name after a crash. */
static lk_status verify_aside(verdict *v, const char *dir, const char *name)
{
    char own[LK_CHECKPOINT_NAME], path[LK_PATH_BYTES], mark[LK_CHECKPOINT_NAME + 128];
    LK_TRY(lk__checkpoint_waiting(dir, name, own));
    if (!*own) {
        print_unfinished(v, name);
        return LK_OK;
    }
    if (!lk__path_join(dir, name, path, sizeof path))
        return lk__fail(LK_STATUS_USAGE, "%s/%s: the path is too long", dir, name);
    snprintf(mark, sizeof mark,
             " (this is %s, which a killed save was replacing: the next run in this folder gives it its name back)",
             own);
    return verify_one(v, path, mark);
}

static void print_suspect(const verdict *v, const char *name)
{
    if (v->args->json) {
        cJSON *line = cJSON_CreateObject();
        cJSON_AddStringToObject(line, "suspect", name);
        lk__cli_json_line(line);
    } else if (!v->args->quiet) {
        printf("%s: set aside, because replicas differed after it was saved; no run resumes from it\n", name);
    }
}

/* Prints what a crash left behind and what was set aside, so that the user knows what it is. */
static lk_status verify_asides(verdict *v, const char *dir)
{
    DIR *names = opendir(dir);
    const struct dirent *entry;
    lk_status status = LK_OK;
    if (!names && errno == ENOMEM)
        return lk__fail_memory(0, dir);
    while (names && status == LK_OK && (entry = readdir(names)))
        if (lk__file_is_aside(entry->d_name))
            status = verify_aside(v, dir, entry->d_name);
        else if (lk__checkpoint_is_suspect(entry->d_name))
            print_suspect(v, entry->d_name);
    if (names)
        closedir(names);
    return status;
}

static lk_status verify_steps(verdict *v, const char *dir, const uint64_t *steps, size_t count)
{
    char path[LK_PATH_BYTES];
    uint64_t best = 0;
    bool marked = lk__checkpoint_best(dir, &best);
    for (size_t i = 0; i < count; i++) {
        LK_TRY(lk__checkpoint_path(dir, steps[i], path, sizeof path));
        LK_TRY(verify_one(v, path, marked && steps[i] == best ? " (the best)" : ""));
    }
    return verify_asides(v, dir);
}

static void print_final(const verdict *v, const char *path, const char *trouble, const char *hash)
{
    if (v->args->json) {
        cJSON *line = cJSON_CreateObject();
        cJSON_AddStringToObject(line, "final", path);
        cJSON_AddBoolToObject(line, "whole", !trouble);
        if (trouble)
            cJSON_AddStringToObject(line, "why", trouble);
        lk__cli_json_line(line);
    } else if (!v->args->quiet && trouble)
        printf("%s: damaged: %s\n", last_part(path), trouble);
    else if (!v->args->quiet)
        printf("%s: whole; state hash %s\n", last_part(path), hash);
}

/* The final state of a run that is done, whose hash run.json has. */
static lk_status verify_final(verdict *v, const char *folder)
{
    char path[LK_PATH_BYTES], wanted[32], hash[32] = "", why[128];
    lk_record *record;
    lk_state *state;
    LK_TRY(lk__record_open_within(folder, (lk_record_limits){.tail = 1, .no_ranks = true}, &record));
    snprintf(wanted, sizeof wanted, "%s", lk__record_text(record, "hash"));
    lk__record_close(record);
    if (!*wanted || !lk__path_join(folder, "final.safetensors", path, sizeof path))
        return LK_OK;
    lk_status status = lk_state_load(path, &state);
    if (status == LK_STATUS_MEMORY)
        return status;
    if (status == LK_OK) {
        snprintf(hash, sizeof hash, "%016" PRIx64, lk_state_hash(state));
        lk_state_destroy(state);
    }
    snprintf(why, sizeof why, "its state hash is %s, and run.json has %s", hash, wanted);
    bool same = strcmp(hash, wanted) == 0;
    v->checked++;
    v->damaged += !same;
    print_final(v, path, same ? NULL : status == LK_OK ? why : lk__args_spell(lk_error_detail()), hash);
    return LK_OK;
}

static lk_status verify_folder(verdict *v, const char *dir)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    LK_TRY(lk__checkpoint_list(dir, &steps, &count));
    lk_status status = verify_steps(v, dir, steps, count);
    lk__mem_free(steps);
    return status;
}

static lk_status verify_run(verdict *v, const char *folder)
{
    char path[LK_PATH_BYTES];
    if (!lk__path_join(folder, "checkpoints", path, sizeof path))
        return lk__fail(LK_STATUS_USAGE, "%s: the path is too long", folder);
    LK_TRY(verify_folder(v, path));
    LK_TRY(verify_final(v, folder));
    if (v->checked == 0)
        return lk__fail(LK_STATUS_NOT_FOUND,
                        "nothing to verify: %s is the folder of a run that is not done, and it has no checkpoint "
                        "(`save_every` N of train saves some)",
                        folder);
    return LK_OK;
}

static lk_status verify(verdict *v, const char *dir)
{
    if (lk__checkpoint_is(dir))
        return verify_one(v, dir, "");
    if (lk__cli_run_is(dir))
        return verify_run(v, dir);
    lk_status status = verify_folder(v, dir);
    if (status == LK_OK && v->checked == 0)
        return lk__fail(LK_STATUS_NOT_FOUND,
                        "nothing to verify: '%s' is no checkpoint, and has none; give a folder as train --checkpoint "
                        "makes it, or a run folder of train --log-dir",
                        dir);
    return status;
}

int lk__cmd_verify(lk_args *args)
{
    verdict v = {.args = args};
    lk_status status = verify(&v, args->words[0]);
    if (status != LK_OK)
        return lk__cli_fail(status);
    return v.damaged ? LK_EXIT_FAILED : LK_EXIT_DONE;
}
