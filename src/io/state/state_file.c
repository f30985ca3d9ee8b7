/* state_file.c - loads and saves state dicts. A file's content decides in which format it is read,
 * the ending of its name in which format it is written. A checkpoint is read as its model. */
#include "io/state/state_file.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint.h"
#include "io/state_format.h"

/* The first is the format of a file without an ending. */
static const lk_state_format *const formats[] = {&lk__state_format_safetensors, &lk__state_format_pth,
                                                 &lk__state_format_pth_legacy};

enum { FORMATS = sizeof formats / sizeof *formats };

/* NULL if no format has this ending. */
static const lk_state_format *format_by_ending(const char *path)
{
    for (size_t i = 0; i < FORMATS; i++)
        for (const char *const *ending = formats[i]->endings; *ending; ending++)
            if (lk__path_ends_with(path, *ending))
                return formats[i];
    return NULL;
}

/* An ending starts at a dot in the last part of the path, unless the dot is its first letter. */
static bool has_ending(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return *name && strchr(name + 1, '.') != NULL;
}

lk_status lk__state_file_check_ending(const char *path, bool needed)
{
    if (format_by_ending(path) || (!needed && !has_ending(path)))
        return LK_OK;
    char known[128] = "";
    size_t used = 0;
    for (size_t i = 0; i < FORMATS; i++)
        for (const char *const *ending = formats[i]->endings; *ending && used < sizeof known; ending++)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s (%s)", used ? ", " : "", *ending,
                                     formats[i]->name);
    return lk__fail(LK_STATUS_USAGE, "'%s': the ending of its name chooses the format: one of %s", path, known);
}

/* NULL if the content has no known format. */
static const lk_state_format *format_by_content(const lk_state_source *in, lk_status *status)
{
    uint8_t start[64];
    size_t bytes = (size_t)(in->size < sizeof start ? in->size : sizeof start);
    *status = lk__state_source_read(in, 0, start, bytes);
    for (size_t i = 0; *status == LK_OK && i < FORMATS; i++)
        if (formats[i]->probe(start, bytes))
            return formats[i];
    return NULL;
}

/* PNG and JPEG. */
static bool is_image(const lk_state_source *in)
{
    uint8_t start[4];
    return in->size >= sizeof start && lk__state_source_read(in, 0, start, sizeof start) == LK_OK &&
           (memcmp(start, "\x89PNG", 4) == 0 || memcmp(start, "\xff\xd8\xff", 3) == 0);
}

/* Chooses the format by the content. If the content has no known format, the format that the file most likely
 * has reports what is wrong. */
static lk_status load_source(const lk_state_source *in, lk_state **out)
{
    lk_status status;
    const lk_state_format *format = format_by_content(in, &status);
    LK_TRY(status);
    if (format)
        return format->load(in, out);
    if (is_image(in))
        return lk__fail(LK_STATUS_FORMAT, "%s is an image, no model; name a .safetensors or .pth file, or a checkpoint",
                        in->path);
    if (format_by_ending(in->path) == &lk__state_format_pth)
        return lk__fail(LK_STATUS_FORMAT,
                        "%s is not a file of torch.save: byte 0 starts neither a zip archive nor its older format",
                        in->path);
    return formats[0]->load(in, out);
}

static lk_status load_file(const char *path, lk_state **out)
{
    lk_state_source in;
    lk_status status = lk__state_source_open(path, &in);
    if (status == LK_STATUS_FORMAT)
        return lk__fail(status, "%s; name a .safetensors or .pth file, or a checkpoint", lk_error_detail());
    LK_TRY(status);
    status = load_source(&in, out);
    lk__state_source_close(&in);
    return status;
}

/* The folder of a run has the final state, and maybe a folder of checkpoints. */
static lk_status refuse_run_folder(const char *path)
{
    char model[4096];
    bool final = lk__path_join(path, "final.safetensors", model, sizeof model) && lk__file_exists(model);
    return lk__fail(LK_STATUS_USAGE, "%s is a run folder; name %s/%s", path, path,
                    final ? "final.safetensors" : "checkpoints/best or another of its checkpoints, if there are any");
}

static bool is_run_folder(const char *path)
{
    char run[4096];
    return lk__path_join(path, "run.json", run, sizeof run) && lk__file_exists(run);
}

/* The user probably means one of the checkpoints in the folder. */
static lk_status refuse_folder(const char *path)
{
    char newest[4096];
    uint64_t *steps = NULL;
    size_t count = 0;
    if (is_run_folder(path))
        return refuse_run_folder(path);
    LK_TRY(lk__checkpoint_list(path, &steps, &count));
    lk_status status = count ? lk__checkpoint_path(path, steps[count - 1], newest, sizeof newest) : LK_OK;
    lk__mem_free(steps);
    LK_TRY(status);
    if (count)
        return lk__fail(LK_STATUS_USAGE, "%s has %zu checkpoint%s; name one of them, as %s", path, count,
                        count == 1 ? "" : "s", newest);
    return lk__fail(LK_STATUS_FORMAT,
                    "%s is a folder, but no checkpoint; name a .safetensors or .pth file, or a "
                    "checkpoint",
                    path);
}

lk_status lk_state_load(const char *path, lk_state **out)
{
    LK_TRY(LK_GIVEN(path));
    LK_TRY(LK_GIVEN(out));
    if (lk__checkpoint_is(path))
        return lk__checkpoint_load_model(path, out);
    if (lk__path_is_folder(path))
        return refuse_folder(path);
    return load_file(path, out);
}

static void add_notes(const char *path, lk_state *state)
{
    lk_state_source in;
    lk_status status;
    if (lk__state_source_open(path, &in) != LK_OK)
        return;
    const lk_state_format *format = format_by_content(&in, &status);
    if (format && format->load_notes)
        status = format->load_notes(&in, state);
    lk__state_source_close(&in);
}

lk_status lk__state_file_notes(const char *path, lk_state **out)
{
    char inside[4096];
    if (lk__checkpoint_is(path)) {
        snprintf(inside, sizeof inside, "%s/%s", path, lk__checkpoint_model);
        path = inside;
    }
    LK_TRY(lk_state_create(out));
    add_notes(path, *out);
    return LK_OK;
}

lk_status lk_state_save(const lk_state *state, const char *path)
{
    LK_TRY(LK_GIVEN(state));
    LK_TRY(LK_GIVEN(path));
    const lk_state_format *format = format_by_ending(path);
    LK_TRY(lk__state_file_check_ending(path, false));
    return (format ? format : formats[0])->save(state, path);
}
