/* info_build.c - `lockstep info` without a file or a model: what this build and this machine can do. A list of the text
 * is an array of objects in JSON. */
#include "cli/commands/info_build.h"

#include <stdio.h>
#include <string.h>

#include <lockstep/version.h>

#include "base/libraries.h"
#include "cli/options/args.h"
#include "cli/report/json.h"
#include "comm/mpi/load.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/transport/transport.h"
#include "nn/init.h"
#include "optim/optim.h"
#include "tensor/cpu/cpu.h"

/* Names of the fields that are printed as text. The text of rows with the same params is printed once, after the last
 * of them. */
static const char NAME[] = "name", SUMMARY[] = "summary", PARAMS[] = "params";

static cJSON *add_row(cJSON *rows, const char *name, const char *summary)
{
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, NAME, name);
    cJSON_AddStringToObject(row, SUMMARY, summary);
    cJSON_AddItemToArray(rows, row);
    return row;
}

static void add_devices(cJSON *rows)
{
    const lk_device_type *type;
    bool gpus = false;
    for (size_t i = 0; (type = lk__device_list(i)); i++) {
        char text[8192] = "";
        type->describe(text, sizeof text);
        add_row(rows, type->name, *text ? text : "none here");
        gpus |= strcmp(type->name, "cuda") == 0;
    }
    if (!gpus)
        add_row(rows, "cuda", "no GPU: this build is without CUDA");
}

static void add_kernels(cJSON *rows)
{
    const lk_cpu_build *build;
    for (size_t i = 0; (build = lk__cpu_build_list(i)); i++) {
        char text[64];
        snprintf(text, sizeof text, "%zu float%s a vector", build->width, build->width == 1 ? "" : "s");
        cJSON_AddNumberToObject(add_row(rows, build->name, text), "floats", (double)build->width);
    }
}

static void add_libraries(cJSON *rows)
{
    const lk_library *library;
    for (size_t i = 0; (library = lk__library_list(i)); i++) {
        char text[1024];
        snprintf(text, sizeof text, "%s%s%s",
                 library->present ? "" : "not in this build: ", lk__args_spell(library->use),
                 library->present && library->loaded ? "; loaded when needed" : "");
        cJSON_AddBoolToObject(add_row(rows, library->name, text), "present", library->present);
    }
}

static void add_transports(cJSON *rows)
{
    const lk_transport_type *type;
    for (size_t i = 0; (type = lk__transport_list(i)); i++)
        add_row(rows, type->name, type->summary);
}

static void add_plugins(cJSON *rows)
{
    const lk_mpi_module *module;
    for (size_t i = 0; (module = lk__mpi_module_list(i)); i++) {
        char path[LK_MPI_PATH];
        bool here = lk__mpi_module_find(module, path) == LK_OK;
        cJSON *row = add_row(rows, module->name, here ? path : "not found ($LOCKSTEP_PLUGINS may name its folder)");
        cJSON_AddBoolToObject(row, "present", here);
    }
}

static void add_rendezvous(cJSON *rows)
{
    const lk_rendezvous_method *method;
    for (size_t i = 0; (method = lk__rendezvous_list(i)); i++)
        add_row(rows, method->scheme, method->summary);
}

static void add_models(cJSON *rows)
{
    const lk_model_info *model;
    for (size_t i = 0; (model = lk_model_list(i)); i++)
        cJSON_AddStringToObject(add_row(rows, model->name, model->summary), PARAMS, model->params);
}

static void add_inits(cJSON *rows)
{
    const lk_init_info *row;
    for (size_t i = 0; (row = lk__init_list(i)); i++)
        add_row(rows, row->name, row->summary);
}

static void add_data(cJSON *rows)
{
    const lk_dataset_row *row;
    for (size_t i = 0; (row = lk_dataset_list(i)); i++)
        add_row(rows, row->name, row->summary);
}

static void add_transforms(cJSON *rows)
{
    const lk_transform_info *row;
    for (size_t i = 0; (row = lk_transform_list(i)); i++)
        add_row(rows, row->name, row->summary);
}

static void add_optimizers(cJSON *rows)
{
    const lk_optim_info *row;
    for (size_t i = 0; (row = lk_optimizer_list(i)); i++)
        add_row(rows, row->name, row->summary);
}

static void add_schedules(cJSON *rows)
{
    const lk_optim_info *row;
    for (size_t i = 0; (row = lk_lr_schedule_list(i)); i++)
        add_row(rows, row->name, row->summary);
}

static const struct list {
    const char *key, *title;
    int column; /* width of the names in the text; 0: the text has no names */
    void (*add)(cJSON *rows);
} lists[] = {
    {"devices", "devices", 10, add_devices},
    {"kernels", "kernels (the first is used, or the one in LOCKSTEP_ISA)", 10, add_kernels},
    {"libraries", "optional libraries", 13, add_libraries},
    {"transports", "transports", 10, add_transports},
    {"mpi_plugins", "plug-ins for MPI", 10, add_plugins},
    {"rendezvous", "rendezvous", 0, add_rendezvous},
    {"models", "models", 12, add_models},
    {"inits", "first weights", 16, add_inits},
    {"data_sets", "data sets", 14, add_data},
    {"transforms", "transforms of images", 20, add_transforms},
    {"optimizers", "optimisers", 11, add_optimizers},
    {"schedules", "schedules", 11, add_schedules},
};

/* The first line of the text is beside the name, the others below. */
static void print_text(int column, const char *name, const char *text)
{
    printf("  %-*s%s", column, column ? name : "", column ? " " : "");
    for (; *text; text++) {
        putchar(*text);
        if (*text == '\n')
            printf("  %-*s ", column, "");
    }
    putchar('\n');
}

static const char *field(const cJSON *row, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(row, name));
    return text ? text : "";
}

static void print_list(const struct list *list, const cJSON *rows)
{
    printf("%s:\n", list->title);
    for (const cJSON *row = rows->child; row; row = row->next) {
        const char *params = field(row, PARAMS);
        print_text(list->column, field(row, NAME), field(row, SUMMARY));
        if (*params && strcmp(params, field(row->next, PARAMS)) != 0)
            print_text(list->column, "", params);
    }
}

void lk__cmd_info_build(bool json)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "version", LK_VERSION);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        lists[i].add(cJSON_AddArrayToObject(object, lists[i].key));
    if (json) {
        lk__cli_json_line(object);
        return;
    }
    printf("lockstep %s\n", LK_VERSION);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        print_list(&lists[i], cJSON_GetObjectItem(object, lists[i].key));
    cJSON_Delete(object);
}
