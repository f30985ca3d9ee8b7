/* predict.c - `lockstep predict FILE IMAGE...`: the classes of images, by a saved model. */
#define _DEFAULT_SOURCE /* scandir */
#include "train/predict.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/job/plan.h"
#include "cli/report/json.h"
#include "cli/report/report.h"
#include "data/codec/codec.h"

typedef struct prediction {
    const lk_args *args;
    lk_predictor *predictor;
    double *probabilities; /* (classes) */
    size_t *order;         /* (classes), the most probable first */
    bool failed;           /* at an image */
} prediction;

/* The `top` first elements of order; equal probabilities in the order of the classes. */
static void sort_top(prediction *p, size_t classes, size_t top)
{
    for (size_t i = 0; i < classes; i++)
        p->order[i] = i;
    for (size_t i = 0; i < top; i++)
        for (size_t j = classes - 1; j > i; j--)
            if (p->probabilities[p->order[j]] > p->probabilities[p->order[j - 1]]) {
                size_t kept = p->order[j];
                p->order[j] = p->order[j - 1];
                p->order[j - 1] = kept;
            }
}

static void print_json(const prediction *p, const lk_description *what, const char *path, size_t top)
{
    cJSON *line = cJSON_CreateObject(), *list;
    cJSON_AddStringToObject(line, "event", "predict");
    cJSON_AddStringToObject(line, "image", path);
    list = cJSON_AddArrayToObject(line, "classes");
    for (size_t i = 0; i < top; i++) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddNumberToObject(item, "index", (double)p->order[i]);
        cJSON_AddStringToObject(item, "name", what->names[p->order[i]]);
        cJSON_AddNumberToObject(item, "probability", p->probabilities[p->order[i]]);
        cJSON_AddItemToArray(list, item);
    }
    lk__cli_json_line(line);
}

static void print_text(const prediction *p, const lk_description *what, const char *path, size_t top)
{
    printf("%s:", path);
    for (size_t i = 0; i < top; i++) {
        printf("%s ", i ? "," : "");
        lk__cli_json_key(what->names[p->order[i]]);
        printf(" %.2f%%", 100 * p->probabilities[p->order[i]]);
    }
    printf("\n");
}

/* What could not be read: on stderr and, with --json, as an object, so that every image has one. */
static void print_trouble(prediction *p, const char *shown, lk_status status)
{
    p->failed = true;
    if (p->args->json) {
        cJSON *line = cJSON_CreateObject();
        cJSON_AddStringToObject(line, "event", "predict");
        cJSON_AddStringToObject(line, "image", shown);
        cJSON_AddStringToObject(line, "error", lk__args_spell(lk_error_detail()));
        lk__cli_json_line(line);
    }
    fflush(stdout);
    (void)lk__cli_fail(status);
}

/* A name may have any bytes. */
static const char *shown_path(const char *path, char out[LK_PATH_BYTES])
{
    snprintf(out, LK_PATH_BYTES, "%s", path);
    lk__text_clean(out, LK_TEXT_KIND_LINE);
    return out;
}

/* An image that cannot be read does not keep the others from being read. */
static void print_image(prediction *p, const char *path)
{
    const lk_description *what = lk__predictor_description(p->predictor);
    size_t classes = what->shape.classes, top = lk__size_min(p->args->top, classes);
    char shown[LK_PATH_BYTES];
    lk_status status = lk__predictor_image(p->predictor, path, p->probabilities);
    if (status != LK_OK) {
        print_trouble(p, shown_path(path, shown), status);
        return;
    }
    sort_top(p, classes, top);
    (p->args->json ? print_json : print_text)(p, what, shown_path(path, shown), top);
}

static int keep_images(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && lk__image_named(entry->d_name);
}

/* By bytes, independent of the locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void fail_folder(prediction *p, const char *path, const char *why)
{
    char shown[LK_PATH_BYTES];
    print_trouble(p, shown_path(path, shown), lk__fail(LK_STATUS_IO, "%s: %s", path, why));
}

/* The images of a folder, in the order of their names; not those of its folders. */
static void print_folder(prediction *p, const char *folder)
{
    struct dirent **list;
    int count = scandir(folder, &list, keep_images, by_name);
    if (count <= 0)
        fail_folder(p, folder, count < 0 ? strerror(errno) : "the folder has no image (.jpg, .jpeg or .png)");
    for (int i = 0; i < count; i++) {
        char path[LK_PATH_BYTES];
        if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name) < sizeof path)
            print_image(p, path);
        else
            fail_folder(p, folder, "a path is too long");
        free(list[i]);
    }
    if (count >= 0)
        free(list);
}

static void print_word(prediction *p, const char *word)
{
    if (lk__path_is_folder(word))
        print_folder(p, word);
    else
        print_image(p, word);
}

static lk_status predict(prediction *p, const lk_train_opts *opts)
{
    lk_status status;
    LK_TRY(lk__predictor_create(opts, &p->predictor));
    size_t classes = lk__predictor_description(p->predictor)->shape.classes;
    LK_TRY_GOTO(LK_ALLOC(classes, "probabilities", &p->probabilities), destroy_predictor);
    LK_TRY_GOTO(LK_ALLOC(classes, "classes", &p->order), destroy_predictor);
    for (size_t i = 1; i < p->args->word_count; i++)
        print_word(p, p->args->words[i]);
destroy_predictor:
    lk__mem_free(p->order);
    lk__mem_free(p->probabilities);
    lk__predictor_destroy(p->predictor);
    return status;
}

/* Uses the CPU if a GPU was not named and cannot be used. */
static lk_status plan_and_predict(prediction *p)
{
    lk_job_plan plan, cpu;
    LK_TRY(lk__job_plan_one_device(p->args, "predict", 1, &plan));
    if (plan.devices.named || lk__device_probe(plan.train.device, 0) == LK_OK)
        return predict(p, &plan.train);
    lk__job_plan_print_cpu("predict", lk_error_detail());
    lk__job_plan_on_cpu(p->args, &plan, &cpu);
    return predict(p, &cpu.train);
}

int lk__cmd_predict(lk_args *args)
{
    prediction p = {.args = args};
    args->train.init_from = args->words[0];
    lk_status status = lk__args_complete_devices(args);
    if (status == LK_OK)
        status = plan_and_predict(&p);
    if (status != LK_OK)
        return lk__cli_fail(status);
    lk__report_suspect("predict", args->train.init_from);
    lk__report_notice("predict", args->notice);
    return p.failed ? LK_EXIT_FAILED : LK_EXIT_DONE;
}
