/* checkpoint_load.c - loads checkpoints; everything is verified before it is used. */
#include "base/fault.h"
#include "io/checkpoint/checkpoint_impl.h"

static lk_status load(const char *folder, bool states, lk_checkpoint **out)
{
    lk_manifest manifest = {0};
    lk_checkpoint *checkpoint;
    lk_status status;
    LK_TRY(lk__checkpoint_put_back(folder));
    LK_TRY(lk_checkpoint_create(NULL, NULL, &checkpoint));
    LK_TRY_GOTO(lk__manifest_read(folder, &manifest, checkpoint), destroy_checkpoint);
    for (int part = 0; states && part < LK_PARTS; part++)
        LK_TRY_GOTO(lk__checkpoint_read_part(folder, part, &manifest.parts[part], &checkpoint->states[part]),
                    fini_manifest);
    *out = checkpoint;
    checkpoint = NULL;
fini_manifest:
    lk__manifest_fini(&manifest);
destroy_checkpoint:
    lk_checkpoint_destroy(checkpoint);
    return status;
}

lk_status lk_checkpoint_load(const char *folder, lk_checkpoint **out)
{
    LK_TRY(LK_GIVEN(folder));
    LK_TRY(LK_GIVEN(out));
    lk__fault_point("load");
    const char *before = lk__fault_enter("load");
    lk_status status = load(folder, true, out);
    lk__fault_leave(before);
    return status;
}

lk_status lk_checkpoint_load_notes(const char *folder, lk_checkpoint **out)
{
    LK_TRY(LK_GIVEN(folder));
    LK_TRY(LK_GIVEN(out));
    return load(folder, false, out);
}
