/* checkpoint_verify.c - compares a checkpoint with its manifest, and loads its parts. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "io/checkpoint/checkpoint_impl.h"
#include "io/state_format.h"
#include "tensor/state.h"

bool lk__checkpoint_is(const char *path)
{
    char notes[LK_CHECKPOINT_PATH];
    struct stat info;
    return lk__path_join(path, lk__checkpoint_notes, notes, sizeof notes) && stat(notes, &info) == 0;
}

/* The manifest lists the part, so a missing file is FORMAT. */
static lk_status open_part(const char *folder, int part, char path[LK_CHECKPOINT_PATH], lk_state_source *out)
{
    LK_TRY(lk__checkpoint_join(folder, lk__checkpoint_parts[part], path));
    lk_status status = lk__state_source_open(path, out);
    if (status == LK_STATUS_NOT_FOUND)
        return lk__fail(LK_STATUS_FORMAT, "%s is missing", path);
    return status;
}

/* Checks the loaded state in memory: the file was read twice. */
static lk_status check_state(const char *path, const lk_manifest_part *sum, const lk_state *state)
{
    bool same = lk_state_count(state) == sum->count;
    size_t i = 0;
    for (; same && i < sum->count; i++)
        same = lk__state_entry_hash(lk_state_at(state, i)) == sum->tensors[i].hash;
    if (!same)
        return lk__fail(LK_STATUS_FORMAT,
                        "%s was whole, but then tensor %zu was read otherwise; suspect the disk or the memory", path,
                        i);
    return LK_OK;
}

lk_status lk__checkpoint_read_part(const char *folder, int part, const lk_manifest_part *sum, lk_state **out)
{
    char path[LK_CHECKPOINT_PATH];
    lk_state_source in;
    lk_state *state = NULL;
    lk_status status;
    LK_TRY(open_part(folder, part, path, &in));
    LK_TRY_GOTO(lk__manifest_part_check(&in, sum), close_source);
    if (!out)
        goto close_source;
    LK_TRY_GOTO(lk__state_format_safetensors.load(&in, &state), close_source);
    LK_TRY_GOTO(check_state(path, sum, state), destroy_state);
    *out = state;
    state = NULL;
destroy_state:
    lk_state_destroy(state);
close_source:
    lk__state_source_close(&in);
    return status;
}

lk_status lk__checkpoint_verify(const char *folder, lk_checkpoint_size *out)
{
    lk_manifest manifest = {0};
    lk_status status;
    LK_TRY(lk__manifest_read(folder, &manifest, NULL));
    lk_checkpoint_size size = {.bytes = manifest.bytes};
    for (int part = 0; part < LK_PARTS; part++) {
        LK_TRY_GOTO(lk__checkpoint_read_part(folder, part, &manifest.parts[part], NULL), fini_manifest);
        size.bytes += manifest.parts[part].bytes;
    }
    size.model = manifest.parts[LK_PART_MODEL].count;
    size.optimizer = manifest.parts[LK_PART_OPTIMIZER].count;
    *out = size;
fini_manifest:
    lk__manifest_fini(&manifest);
    return status;
}

lk_status lk_checkpoint_verify(const char *folder)
{
    LK_TRY(LK_GIVEN(folder));
    lk_checkpoint_size size;
    return lk__checkpoint_verify(folder, &size);
}

lk_status lk__checkpoint_load_model(const char *folder, lk_state **out)
{
    lk_manifest manifest = {0};
    LK_TRY(lk__manifest_read(folder, &manifest, NULL));
    lk_status status = lk__checkpoint_read_part(folder, LK_PART_MODEL, &manifest.parts[LK_PART_MODEL], out);
    lk__manifest_fini(&manifest);
    return status;
}
