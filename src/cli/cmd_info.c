/* cmd_info.c - `lockstep info`: the tables of this build, or a file's keys. */
#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/json.h"
#include "comm/rendezvous.h"
#include "comm/transport.h"
#include "launch/bind.h"
#include "optim/optim.h"
#include "tensor/cpu/cpu.h"

enum { KEY_COLUMN = 40 };

static void print_models(void)
{
    const lk_model_info *model;
    printf("models:\n");
    for (size_t i = 0; (model = lk_model_list(i)); i++) {
        printf("  %-10s %s\n", model->name, model->summary);
        if (*model->params)
            printf("  %-10s %s\n", "", model->params);
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
        printf("  %-10s %s\n", row->name, row->summary);
}

static void print_devices(void)
{
    const lk_device_type *type;
    printf("devices:\n");
    for (size_t i = 0; (type = lk__device_list(i)); i++) {
        char text[256] = "";
        type->describe(text, sizeof text);
        printf("  %-10s %s\n", type->name, *text ? text : "none here");
    }
    const lk_cpu_build *build;
    printf("kernels (the first is used, or the one in LOCKSTEP_ISA):\n");
    for (size_t i = 0; (build = lk__cpu_build_list(i)); i++)
        printf("  %-10s %zu floats a vector\n", build->name, build->width);
}

static void print_group(void)
{
    const lk_transport_type *type;
    const lk_method *method;
    printf("transports:\n");
    for (size_t i = 0; (type = lk__transport_list(i)); i++)
        printf("  %-10s %s\n", type->name, type->summary);
    printf("ways to meet:\n");
    for (size_t i = 0; (method = lk__method_list(i)); i++)
        printf("  %s\n", method->summary);
    printf("binding ranks to cores: %s\n", lk__bind_available() ? "hwloc" : "no, this build has no hwloc");
}

static size_t print_entry(const lk_entry *entry)
{
    char shape[128] = "[";
    size_t used = 1;
    for (int d = 0; d < entry->ndim && used < sizeof shape; d++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%zu", d ? ", " : "", entry->dims[d]);
    int gap = KEY_COLUMN - (int)lk__min_size(lk__print_key(entry->name), KEY_COLUMN);
    printf("%*s %-5s %s]\n", gap, "", lk_dtype_name(entry->dtype), shape);
    return entry->bytes / lk_dtype_size(entry->dtype);
}

static lk_status print_file(const char *path)
{
    lk_state *state;
    LK_TRY(lk_state_load(path, &state));
    size_t elements = 0;
    for (size_t i = 0; i < lk_state_count(state); i++)
        elements += print_entry(lk_state_at(state, i));
    printf("%zu tensors, %zu elements, hash %016" PRIx64 "\n", lk_state_count(state), elements, lk_state_hash(state));
    lk_state_destroy(state);
    return LK_OK;
}

int lk__cmd_info(lk_args *args)
{
    if (args->word_count == 1) {
        lk_status status = print_file(args->words[0]);
        return status == LK_OK ? LK_EXIT_DONE : lk__cli_fail(status);
    }
    printf("lockstep %s\n", LK_VERSION);
    print_devices();
    print_group();
    print_models();
    print_data();
    print_rules("optimisers", lk__optim_list);
    print_rules("schedules", lk__schedule_list);
    return LK_EXIT_DONE;
}
