/* resume.c - chooses the checkpoint to resume from: the one that the user names, or the newest undamaged one of
 * a folder. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint.h"
#include "train/parts.h"

static void add_why(lk_resume *resume, const char *text)
{
    size_t used = strlen(resume->why);
    snprintf(resume->why + used, sizeof resume->why - used, "%s%s", used ? "\n" : "", text);
}

static lk_status take(lk_resume *resume)
{
    LK_TRY(lk_checkpoint_verify(resume->path));
    return lk_checkpoint_load_notes(resume->path, &resume->notes);
}

/* Only damaged checkpoints are skipped. One that cannot be read for another reason, for example a lack of
 * memory, may be complete. */
static bool is_damage(lk_status status)
{
    return status == LK_STATUS_FORMAT || status == LK_STATUS_NOT_FOUND;
}

/* FORMAT if the checkpoint's step is not that of its name: somebody may have renamed the folder. */
static lk_status check_name(lk_resume *resume, uint64_t step)
{
    lk_position position;
    lk_status status = lk__position_read(resume->notes, resume->path, &position);
    if (status == LK_OK && position.step == step)
        return LK_OK;
    lk__resume_fini(resume);
    if (status != LK_OK)
        return status;
    return lk__fail(LK_STATUS_FORMAT, "%s is a checkpoint of step %zu, unlike its name", resume->path, position.step);
}

static lk_status take_newest(const char *dir, const uint64_t *steps, size_t count, lk_resume *resume)
{
    for (size_t i = count; i-- > 0;) {
        LK_TRY(lk__checkpoint_path(dir, steps[i], resume->path, sizeof resume->path));
        lk_status status = take(resume);
        if (status == LK_OK)
            status = check_name(resume, steps[i]);
        if (!is_damage(status))
            return status;
        add_why(resume, lk_error_detail());
    }
    return lk__fail(LK_STATUS_FORMAT,
                    "no checkpoint in %s is whole, of %zu; the newest: %.*s. Remove them to start from the beginning",
                    dir, count, (int)strcspn(resume->why, "\n"), resume->why);
}

/* named: the user has named the folder, so it must have a checkpoint. */
static lk_status find_newest(const char *dir, bool named, lk_resume *resume)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    LK_TRY(lk__checkpoint_mend(dir));
    LK_TRY(lk__checkpoint_list(dir, &steps, &count));
    lk_status status = LK_OK;
    if (count > 0)
        status = take_newest(dir, steps, count, resume);
    else if (named && lk__file_exists(dir))
        status = lk__fail(LK_STATUS_USAGE,
                          "`resume` %s: that is a file, not a checkpoint; weights alone are taken by `init_from` %s",
                          dir, dir);
    else if (named)
        status =
            lk__fail(LK_STATUS_NOT_FOUND,
                     "`resume` '%s': %s; it wants a checkpoint, or a folder of them as `checkpoint` made it", dir,
                     lk__path_is_folder(dir) ? "there is no checkpoint in that folder" : "there is no such folder");
    lk__mem_free(steps);
    return status;
}

static lk_status fail_suspect(const char *where)
{
    size_t length = strlen(where);
    while (length > 1 && where[length - 1] == '/')
        length--;
    while (length > 0 && where[length - 1] != '/')
        length--;
    while (length > 1 && where[length - 1] == '/')
        length--;
    return lk__fail(LK_STATUS_USAGE,
                    "`resume` %s: this checkpoint was set aside, because replicas differed after it was saved and were "
                    "last equal before: its weights may be wrong. Resume from the newest that is sound, with `resume` "
                    "%.*s",
                    where, length ? (int)length : 1, length ? where : ".");
}

static lk_status find(const char *where, const char *dir, lk_resume *resume)
{
    if (!where && !dir)
        return lk__fail(LK_STATUS_USAGE, "`resume` auto looks in the folder of `checkpoint`, or in the runs of "
                                         "`log_dir`: give one, or the checkpoint itself, as in `resume` "
                                         "DIR/step-000000500");
    if (!where || !lk__checkpoint_is(where))
        return find_newest(where ? where : dir, where != NULL, resume);
    if (lk__checkpoint_is_suspect(where))
        return fail_suspect(where);
    if ((size_t)snprintf(resume->path, sizeof resume->path, "%s", where) >= sizeof resume->path)
        return lk__fail(LK_STATUS_USAGE, "`resume`: the path is longer than %zu bytes", sizeof resume->path - 1);
    resume->exact = true;
    return take(resume);
}

lk_status lk__resume_find(const char *where, const char *dir, lk_resume *out)
{
    *out = (lk_resume){0};
    lk_status status = find(where, dir, out);
    if (status != LK_OK)
        lk__resume_fini(out);
    return status;
}

void lk__resume_fini(lk_resume *resume)
{
    lk_checkpoint_destroy(resume->notes);
    resume->notes = NULL;
}
