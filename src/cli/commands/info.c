/* info.c - `lockstep info`: the tables of this build, the content of a file or a checkpoint, or a model. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <lockstep/version.h>

#include "base/libraries.h"
#include "base/mem.h"
#include "base/spec.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/commands/info_group.h"
#include "cli/commands/info_model.h"
#include "cli/report/json.h"
#include "comm/mpi/load.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/transport/transport.h"
#include "io/checkpoint/checkpoint.h"
#include "nn/init.h"
#include "optim/optim.h"
#include "tensor/cpu/cpu.h"

enum { KEY_COLUMN = 40, NOTE_COLUMN = 18 };

/* The text that the models of a family share is printed once, after the last of them. */
static void print_models(void)
{
    const lk_model_info *model;
    printf("models:\n");
    for (size_t i = 0; (model = lk_model_list(i)); i++) {
        const lk_model_info *next = lk_model_list(i + 1);
        printf("  %-12s %s\n", model->name, model->summary);
        if (*model->params && (!next || strcmp(model->params, next->params) != 0))
            printf("  %-12s %s\n", "", model->params);
    }
}

static void print_data(void)
{
    const lk_dataset_row *row;
    printf("data sets:\n");
    for (size_t i = 0; (row = lk_dataset_list(i)); i++)
        printf("  %-14s %s\n", row->name, row->summary);
}

static void print_rules(const char *title, const lk_optim_info *(*list)(size_t index))
{
    const lk_optim_info *row;
    printf("%s:\n", title);
    for (size_t i = 0; (row = list(i)); i++)
        printf("  %-11s %s\n", row->name, row->summary);
}

static void print_inits(void)
{
    const lk_init_info *row;
    printf("first weights:\n");
    for (size_t i = 0; (row = lk__init_list(i)); i++)
        printf("  %-16s %s\n", row->name, row->summary);
}

static void print_transforms(void)
{
    const lk_transform_info *row;
    printf("transforms of images:\n");
    for (size_t i = 0; (row = lk_transform_list(i)); i++)
        printf("  %-20s %s\n", row->name, row->summary);
}

/* The first line is beside the name, the others below. */
static void print_device(const char *name, const char *text)
{
    printf("  %-10s ", name);
    for (; *text; text++) {
        putchar(*text);
        if (*text == '\n')
            printf("  %-10s ", "");
    }
    putchar('\n');
}

static void print_devices(void)
{
    const lk_device_type *type;
    bool gpus = false;
    printf("devices:\n");
    for (size_t i = 0; (type = lk__device_list(i)); i++) {
        char text[8192] = "";
        type->describe(text, sizeof text);
        print_device(type->name, *text ? text : "none here");
        gpus |= strcmp(type->name, "cuda") == 0;
    }
    if (!gpus)
        print_device("cuda", "no GPU: this build is without CUDA");
    const lk_cpu_build *build;
    printf("kernels (the first is used, or the one in LOCKSTEP_ISA):\n");
    for (size_t i = 0; (build = lk__cpu_build_list(i)); i++)
        printf("  %-10s %zu float%s a vector\n", build->name, build->width, build->width == 1 ? "" : "s");
}

static void print_plugins(void)
{
    const lk_mpi_module *module;
    printf("plug-ins for MPI:\n");
    for (size_t i = 0; (module = lk__mpi_module_list(i)); i++) {
        char path[LK_MPI_PATH];
        bool here = lk__mpi_module_find(module, path) == LK_OK;
        printf("  %-10s %s\n", module->name, here ? path : "not found ($LOCKSTEP_PLUGINS may name its folder)");
    }
}

static void print_group(void)
{
    const lk_transport_type *type;
    const lk_rendezvous_method *method;
    printf("transports:\n");
    for (size_t i = 0; (type = lk__transport_list(i)); i++)
        printf("  %-10s %s\n", type->name, type->summary);
    print_plugins();
    printf("rendezvous:\n");
    for (size_t i = 0; (method = lk__rendezvous_list(i)); i++)
        printf("  %s\n", method->summary);
}

static void print_libraries(void)
{
    const lk_library *library;
    printf("optional libraries:\n");
    for (size_t i = 0; (library = lk__library_list(i)); i++)
        printf("  %-13s %s%s%s\n", library->name,
               library->present ? "" : "not in this build: ", lk__args_spell(library->use),
               library->present && library->loaded ? "; loaded when needed" : "");
}

static size_t print_entry(const lk_state_entry *entry)
{
    char shape[LK_TEXT_DIMS_BYTES(LK_MAX_DIMS)];
    lk__text_dims(entry->dims, entry->ndim, shape, sizeof shape);
    int gap = KEY_COLUMN - (int)lk__size_min(lk__cli_json_key(entry->name), KEY_COLUMN);
    printf("%*s %-5s %s\n", gap, "", lk_dtype_name(entry->dtype), shape);
    return entry->bytes / lk_dtype_size(entry->dtype);
}

static void print_state(const lk_state *state)
{
    size_t elements = 0;
    for (size_t i = 0; i < lk_state_count(state); i++)
        elements += print_entry(lk_state_at(state, i));
    printf("%zu tensors, %zu elements, hash %016" PRIx64 "\n", lk_state_count(state), elements, lk_state_hash(state));
}

/* A text of a file as one line, without control codes. */
static void print_cleaned(const char *text)
{
    char *line;
    if (lk__mem_copy_text(text, "a note", &line) != LK_OK)
        return;
    lk__text_clean(line, LK_TEXT_KIND_LINE);
    puts(line);
    lk__mem_free(line);
}

/* What the file says about itself. */
static void print_state_notes(const lk_state *state)
{
    const char *name;
    if (lk_state_note_name(state, 0))
        printf("notes:\n");
    for (size_t i = 0; (name = lk_state_note_name(state, i)); i++) {
        fputs("  ", stdout);
        int gap = NOTE_COLUMN - (int)lk__size_min(lk__cli_json_key(name), NOTE_COLUMN);
        printf("%*s ", gap, "");
        print_cleaned(lk_state_note(state, name));
    }
    if (lk_state_note_name(state, 0))
        printf("tensors:\n");
}

static lk_status print_file(const char *path)
{
    lk_state *state;
    LK_TRY(lk_state_load(path, &state));
    print_state_notes(state);
    print_state(state);
    lk_state_destroy(state);
    return LK_OK;
}

/* The text of a note for people. Epochs are counted from 0 in a checkpoint, and from 1 where people read them. */
static void write_note(const lk_checkpoint *checkpoint, const char *name, char *text, size_t bytes)
{
    long long epoch;
    const char *note = lk_checkpoint_note(checkpoint, name);
    if (strcmp(name, "epoch") == 0 && lk__number_parse_int(note, 0, LLONG_MAX - 1, &epoch))
        snprintf(text, bytes, "%lld", epoch + 1);
    else
        lk__checkpoint_note_readable(note, text, bytes);
}

/* Prints the notes that are options, or those that are not. */
static void print_notes(const lk_checkpoint *checkpoint, const char *title, bool options)
{
    const char *name;
    printf("%s:\n", title);
    for (size_t i = 0; (name = lk_checkpoint_note_name(checkpoint, i)); i++) {
        char text[1024];
        if ((strncmp(name, "--", 2) == 0) != options)
            continue;
        write_note(checkpoint, name, text, sizeof text);
        fputs("  ", stdout);
        int gap = NOTE_COLUMN - (int)lk__size_min(lk__cli_json_key(name), NOTE_COLUMN);
        printf("%*s ", gap, "");
        lk__cli_json_key(text);
        putchar('\n');
    }
}

static lk_status print_checkpoint(const char *path)
{
    lk_checkpoint *checkpoint;
    LK_TRY(lk_checkpoint_load(path, &checkpoint));
    print_notes(checkpoint, "position", false);
    print_notes(checkpoint, "options", true);
    printf("model:\n");
    print_state(lk_checkpoint_model(checkpoint));
    printf("optimiser:\n");
    print_state(lk_checkpoint_optimizer(checkpoint));
    lk_checkpoint_destroy(checkpoint);
    return LK_OK;
}

/* Refuses options that have no effect without a model. */
static lk_status check_options(const lk_args *args)
{
    bool model = args->train.model != NULL;
    if (args->group && (args->word_count > 0 || args->options_given > 1 + (size_t)args->json))
        return lk__fail(LK_STATUS_USAGE, "info --group describes this process, and takes no file and only --json: "
                                         "lockstep info --group");
    if (args->group)
        return LK_OK;
    if (model && args->word_count > 0)
        return lk__fail(LK_STATUS_USAGE, "info describes a file or a --model, not both: give one of them");
    if (!model && args->options_given > 0)
        return lk__fail(LK_STATUS_USAGE, "the options of info belong to --model: lockstep info --model NAME [options]");
    return lk__args_check_data(args);
}

static void print_build(void)
{
    printf("lockstep %s\n", LK_VERSION);
    print_devices();
    print_libraries();
    print_group();
    print_models();
    print_inits();
    print_data();
    print_transforms();
    print_rules("optimisers", lk_optimizer_list);
    print_rules("schedules", lk_lr_schedule_list);
}

int lk__cmd_info(lk_args *args)
{
    lk_status status = check_options(args);
    if (status == LK_OK && args->group)
        lk__cmd_info_group(args);
    else if (status == LK_OK && args->train.model)
        status = lk__cmd_info_model(args);
    else if (status == LK_OK && args->word_count == 1)
        status = lk__checkpoint_is(args->words[0]) ? print_checkpoint(args->words[0]) : print_file(args->words[0]);
    else if (status == LK_OK)
        print_build();
    return status == LK_OK ? LK_EXIT_DONE : lk__cli_fail(status);
}
