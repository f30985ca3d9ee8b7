/* saver.c - writing checkpoints during training: a locked folder, and a thread that writes one checkpoint
 * after another and removes old ones.
 *
 * The caller's thread uses the fields of a checkpoint while phase is not PHASE_WRITING, the saver's thread
 * while it is. The mutex protects phase and closing. */
#include "train/saver.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/trace.h"
#include "io/checkpoint/checkpoint.h"
#include "train/parts.h"

/* DIR_BYTES leaves room for names in the folder, also temporary ones. WHY_BYTES leaves room in the detail for
 * the path after the reason. YIELDS is added to the nice value of the thread. */
enum { PATH_BYTES = 4096, DIR_BYTES = PATH_BYTES - 128, DETAIL_BYTES = 2048, WHY_BYTES = 1200, YIELDS = 5 };

static const char PROBE[] = ".lk-probe.tmp";
static const double LOCK_SECONDS = 3;

typedef enum phase { PHASE_IDLE, PHASE_WRITING, PHASE_WRITTEN } phase;

struct lk_saver {
    char dir[DIR_BYTES]; /* without a slash at its end */
    size_t keep;
    lk_status (*complete)(void *arg, lk_checkpoint *checkpoint); /* or NULL */
    void *arg;
    int folder;    /* file descriptor of dir, locked */
    size_t made;   /* length of the part of dir that names the first folder created here; 0: all existed */
    uint64_t best; /* the step with the best test result; 0: none */
    bool threaded; /* the thread was started */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t turned; /* phase or closing has changed */
    phase phase;
    bool closing;
    lk_checkpoint *checkpoint;
    lk_fault_site site; /* of the thread that called lk__saver_put */
    lk_saver_saved saved;
    lk_status status; /* after a failure nothing more is saved */
    char detail[DETAIL_BYTES];
    char good[PATH_BYTES]; /* the last checkpoint that is known to be complete, or "" */
    char last[PATH_BYTES]; /* the same, for the caller's thread */
};

static lk_status set_dir(lk_saver *s, const char *dir)
{
    size_t length = strlen(dir);
    if (length == 0)
        return lk__fail(LK_STATUS_USAGE, "`checkpoint` '': an empty name; give a folder");
    while (length > 1 && dir[length - 1] == '/')
        length--;
    if (length >= sizeof s->dir)
        return lk__fail(LK_STATUS_USAGE, "`checkpoint`: the path is longer than %zu bytes", sizeof s->dir - 1);
    memcpy(s->dir, dir, length);
    return LK_OK;
}

static lk_status fail_folder(const lk_saver *s, const char *part, int error)
{
    bool usage = error == ENOENT || error == ENOTDIR;
    if (error != ENOTDIR && strcmp(s->dir, part) == 0)
        return lk__fail(usage ? LK_STATUS_USAGE : LK_STATUS_IO,
                        "`checkpoint` '%s' cannot be created: %s; give another folder", s->dir, strerror(error));
    return lk__fail(usage ? LK_STATUS_USAGE : LK_STATUS_IO,
                    error == ENOTDIR ? "`checkpoint` '%s' cannot be created: '%s' is not a folder; give another name"
                                     : "`checkpoint` '%s' cannot be created: '%s': %s; give another folder",
                    s->dir, part, strerror(error));
}

/* Creates one folder of the path, and syncs its parent so that it survives a crash. */
static lk_status make_folder(lk_saver *s, size_t length)
{
    char part[DIR_BYTES];
    struct stat info;
    memcpy(part, s->dir, length);
    part[length] = '\0';
    if (mkdir(part, 0777) == 0) {
        s->made = s->made ? s->made : length;
        return lk__folder_sync_around(part);
    }
    int error = errno;
    /* Errors of dir itself are found when it is opened. */
    if (error == EEXIST && !s->dir[length])
        return LK_OK;
    if (stat(part, &info) == 0)
        return S_ISDIR(info.st_mode) ? LK_OK : fail_folder(s, part, ENOTDIR);
    return fail_folder(s, part, error == EEXIST ? ENOENT : error);
}

static lk_status make_folders(lk_saver *s)
{
    for (size_t i = 1; i <= strlen(s->dir); i++)
        if (s->dir[i - 1] != '/' && (s->dir[i] == '/' || !s->dir[i]))
            LK_TRY(make_folder(s, i));
    return LK_OK;
}

/* Removes the folders that this saver has created, as long as they are empty. */
static void remove_folders(lk_saver *s)
{
    for (size_t i = strlen(s->dir); s->made && i >= s->made; i--) {
        if (s->dir[i - 1] == '/' || (s->dir[i] && s->dir[i] != '/'))
            continue;
        s->dir[i] = '\0';
        if (rmdir(s->dir) != 0)
            return;
    }
}

static lk_status open_folder(lk_saver *s)
{
    LK_TRY(make_folders(s));
    s->folder = lk__fd_open(s->dir, O_RDONLY | O_DIRECTORY, 0);
    if (s->folder < 0 && errno == ENOTDIR)
        return lk__fail(LK_STATUS_USAGE, "`checkpoint` '%s' is not a folder; give another name", s->dir);
    if (s->folder < 0)
        return lk__fail(LK_STATUS_IO, "`checkpoint` '%s' cannot be opened: %s; give another folder", s->dir,
                        strerror(errno));
    if (lk__checkpoint_is(s->dir))
        return lk__fail(LK_STATUS_USAGE, "`checkpoint` '%s' is itself a checkpoint; give the folder that it is in",
                        s->dir);
    return LK_OK;
}

/* Locks the folder, because two runs would remove each other's checkpoints. Waits a few seconds, because a run
 * that was just killed may not have ended. If the file system cannot lock folders, there is no lock. */
static lk_status lock_folder(const lk_saver *s)
{
    static const struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};
    double until = lk__clock() + LOCK_SECONDS;
    while (flock(s->folder, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        if (lk__clock() >= until)
            return lk__fail(LK_STATUS_USAGE,
                            "`checkpoint` '%s': another run is saving there; wait until it ends, or give this one a "
                            "folder of its own",
                            s->dir);
        nanosleep(&pause, NULL);
    }
    return LK_OK;
}

/* A file or folder named "best" would prevent creating the link of this name. */
static lk_status check_best(const lk_saver *s)
{
    struct stat info;
    if (fstatat(s->folder, "best", &info, AT_SYMLINK_NOFOLLOW) != 0 || S_ISLNK(info.st_mode))
        return LK_OK;
    return lk__fail(LK_STATUS_USAGE,
                    "`checkpoint` '%s' has a file or folder 'best', where the link to the best checkpoint goes; remove "
                    "it, or give another folder",
                    s->dir);
}

/* Creates a folder and removes it. Permissions are not sufficient (read-only mounts, quotas). */
static lk_status probe(const lk_saver *s)
{
    bool created = !lk__fault_write() && mkdirat(s->folder, PROBE, 0777) == 0;
    if ((created || errno == EEXIST) && unlinkat(s->folder, PROBE, AT_REMOVEDIR) == 0)
        return LK_OK;
    return lk__fail(LK_STATUS_IO, "`checkpoint` '%s' cannot be written to: %s; give another folder", s->dir,
                    strerror(errno));
}

/* Whether a checkpoint, or a link to one, is in the saver's folder. */
static bool is_here(const lk_saver *s, const char *from)
{
    char around[PATH_BYTES + 4];
    struct stat there, here;
    snprintf(around, sizeof around, "%s/..", from ? from : "");
    return from && stat(around, &there) == 0 && fstat(s->folder, &here) == 0 && there.st_dev == here.st_dev &&
           there.st_ino == here.st_ino;
}

static lk_status check_steps(const lk_saver_opts *opts, bool here, const char *dir, const uint64_t *steps, size_t count)
{
    char newest[PATH_BYTES];
    if (count == 0)
        return LK_OK;
    LK_TRY(lk__checkpoint_path(dir, steps[count - 1], newest, sizeof newest));
    if (!here)
        return lk__fail(LK_STATUS_USAGE,
                        "`checkpoint` '%s' has %zu checkpoint%s of another run, the newest of step %llu; go on from it "
                        "with `resume` %s, or give another folder",
                        dir, count, count > 1 ? "s" : "", (unsigned long long)steps[count - 1],
                        opts->from ? dir : "auto");
    if (opts->exact && steps[count - 1] > opts->step)
        return lk__fail(LK_STATUS_USAGE,
                        "%s has checkpoints that are newer than the one to go on from, of step %llu, up to %s: save "
                        "elsewhere with `checkpoint`, go on from the newest with `resume` %s, or remove them",
                        dir, (unsigned long long)opts->step, newest, dir);
    return LK_OK;
}

/* Repairs the link `best`: a crash may have happened after the best checkpoint was saved and before the link
 * was changed. */
static lk_status mend_best(const lk_saver *s, uint64_t step)
{
    uint64_t now = 0;
    if (step != s->best || (lk__checkpoint_best(s->dir, &now) && now == step))
        return LK_OK;
    return lk__checkpoint_set_best(s->dir, step);
}

/* Checks the checkpoints in the folder. The one that the run resumes from has been verified, so it is the last
 * good one; the others may be damaged. */
static lk_status scan_folder(lk_saver *s, const lk_saver_opts *opts)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    bool here = is_here(s, opts->from);
    LK_TRY(lk__checkpoint_list(s->dir, &steps, &count));
    lk_status status = check_steps(opts, here, s->dir, steps, count);
    s->best = here ? opts->best : 0;
    for (size_t i = 0; i < count && here && status == LK_OK; i++) {
        if (steps[i] == opts->step)
            status = lk__checkpoint_path(s->dir, steps[i], s->good, sizeof s->good);
        if (status == LK_OK)
            status = mend_best(s, steps[i]);
    }
    lk__mem_free(steps);
    memcpy(s->last, s->good, sizeof s->last);
    return status;
}

lk_status lk__saver_open(const lk_saver_opts *opts, lk_saver **out)
{
    assert(opts->keep > 0);
    lk_saver *s;
    lk_status status;
    LK_TRY(LK_ALLOC(1, "the saver of checkpoints", &s));
    s->keep = opts->keep;
    s->complete = opts->complete;
    s->arg = opts->arg;
    s->folder = -1;
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->turned, NULL);
    LK_TRY_GOTO(set_dir(s, opts->dir), close_saver);
    LK_TRY_GOTO(open_folder(s), close_saver);
    LK_TRY_GOTO(lock_folder(s), close_saver);
    LK_TRY_GOTO(check_best(s), close_saver);
    LK_TRY_GOTO(probe(s), close_saver);
    LK_TRY_GOTO(lk__checkpoint_sweep(s->dir), close_saver);
    LK_TRY_GOTO(scan_folder(s, opts), close_saver);
    *out = s;
    return LK_OK;
close_saver:
    lk__saver_close(s);
    return status;
}

/* Removes all but the newest `keep` checkpoints and the best one. Those newer than the one just saved are
 * damaged and do not count. The oldest is removed first, so that a crash leaves the newest. */
static lk_status remove_old(const lk_saver *s, const uint64_t *steps, size_t count)
{
    uint64_t linked = 0;
    bool has_best = lk__checkpoint_best(s->dir, &linked);
    while (count > 0 && steps[count - 1] > s->saved.step)
        count--;
    for (size_t i = 0; i + s->keep < count; i++) {
        if ((has_best && steps[i] == linked) || steps[i] == s->best)
            continue;
        lk_status status = lk__checkpoint_remove(s->dir, steps[i]);
        /* NOT_FOUND: a user has removed it. */
        if (status != LK_OK && status != LK_STATUS_NOT_FOUND)
            return status;
    }
    return LK_OK;
}

static lk_status write_checkpoint(lk_saver *s)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    char whose[64];
    snprintf(whose, sizeof whose, "the model after step %llu", (unsigned long long)s->saved.step);
    LK_TRY(lk__train_check_finite(lk_checkpoint_model(s->checkpoint), whose));
    if (s->complete)
        LK_TRY(s->complete(s->arg, s->checkpoint));
    LK_TRY(lk_checkpoint_save(s->checkpoint, s->saved.path));
    memcpy(s->good, s->saved.path, sizeof s->good);
    if (s->saved.best) {
        s->best = s->saved.step;
        LK_TRY(lk__checkpoint_set_best(s->dir, s->saved.step));
    }
    LK_TRY(lk__checkpoint_list(s->dir, &steps, &count));
    lk_status status = remove_old(s, steps, count);
    lk__mem_free(steps);
    return status;
}

static void note_failure(lk_saver *s)
{
    const char *good = "; the last good checkpoint is %s; mend that and go on with `resume` auto";
    const char *none = "; there is no checkpoint in %s; mend that and start again";
    if (!lk__checkpoint_is(s->good))
        *s->good = '\0';
    int used = snprintf(s->detail, sizeof s->detail, "%.*s", WHY_BYTES, lk_error_detail());
    snprintf(s->detail + used, sizeof s->detail - (size_t)used, *s->good ? good : none, *s->good ? s->good : s->dir);
}

/* Writes the checkpoint and frees it, so that only one is in memory. */
static void serve(lk_saver *s)
{
    double began = lk__clock(), traced = lk__trace_begin();
    const char *before = lk__fault_enter("save");
    s->status = write_checkpoint(s);
    lk__trace_end(LK_TRACE_KIND_SAVE, "write checkpoint", (int)s->saved.step, traced);
    lk__fault_leave(before);
    /* Another command line would not help, so these become IO. */
    if (s->status == LK_STATUS_USAGE || s->status == LK_STATUS_NOT_FOUND)
        s->status = LK_STATUS_IO;
    if (s->status != LK_OK)
        note_failure(s);
    s->saved.seconds = lk__clock() - began;
    lk_checkpoint_destroy(s->checkpoint);
    s->checkpoint = NULL;
}

/* Lowers the priority of this thread (on Linux, not of the process) a little below that of training. Not more,
 * because the last save of a run that must stop must not be delayed by other programs. A failure only costs
 * training a little time. */
static void yield_to_training(void)
{
    (void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + YIELDS);
}

/* A checkpoint that was put is written even if the saver is being closed. */
static void *saver_main(void *arg)
{
    lk_saver *s = arg;
    yield_to_training();
    lk__trace_thread(0, "saver", -1); /* only rank 0 saves */
    pthread_mutex_lock(&s->mutex);
    while (s->phase == PHASE_WRITING || !s->closing) {
        if (s->phase != PHASE_WRITING) {
            pthread_cond_wait(&s->turned, &s->mutex);
            continue;
        }
        pthread_mutex_unlock(&s->mutex);
        lk__fault_set_site(s->site);
        serve(s);
        pthread_mutex_lock(&s->mutex);
        s->phase = PHASE_WRITTEN;
        pthread_cond_signal(&s->turned);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* Starts the thread with all signals blocked: the threads of the program handle them. */
static bool start_thread(lk_saver *s)
{
    sigset_t all, before;
    if (s->threaded)
        return true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    s->threaded = lk__thread_create(&s->thread, saver_main, s) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return s->threaded;
}

static void set_phase(lk_saver *s, phase next)
{
    pthread_mutex_lock(&s->mutex);
    s->phase = next;
    pthread_cond_signal(&s->turned);
    pthread_mutex_unlock(&s->mutex);
}

/* The phase. With may_wait, blocks until it is not PHASE_WRITING; then the caller may use all fields. */
static phase get_phase(lk_saver *s, bool may_wait)
{
    pthread_mutex_lock(&s->mutex);
    while (may_wait && s->phase == PHASE_WRITING)
        pthread_cond_wait(&s->turned, &s->mutex);
    phase now = s->phase;
    pthread_mutex_unlock(&s->mutex);
    if (now == PHASE_WRITTEN)
        memcpy(s->last, s->good, sizeof s->last);
    return now;
}

static lk_status prepare(lk_saver *s, uint64_t step, bool best)
{
    (void)get_phase(s, true);
    lk_saver_saved next = {.step = step, .best = best, .again = step == s->saved.step};
    if (s->status != LK_OK)
        return lk__fail(s->status, "%s", s->detail);
    LK_TRY(lk__checkpoint_path(s->dir, step, next.path, sizeof next.path));
    s->saved = next;
    s->site = lk__fault_site();
    return LK_OK;
}

lk_status lk__saver_put(lk_saver *saver, lk_checkpoint *checkpoint, uint64_t step, bool best)
{
    lk_status status = prepare(saver, step, best);
    if (status != LK_OK) {
        lk_checkpoint_destroy(checkpoint);
        return status;
    }
    saver->checkpoint = checkpoint;
    /* If the thread cannot be started, the caller's thread writes. */
    if (start_thread(saver)) {
        set_phase(saver, PHASE_WRITING);
    } else {
        serve(saver);
        set_phase(saver, PHASE_WRITTEN);
    }
    return LK_OK;
}

static lk_status get_result(lk_saver *s, bool may_wait, bool *done, lk_saver_saved *out)
{
    phase now = get_phase(s, may_wait);
    if (now == PHASE_WRITTEN && s->status != LK_OK)
        return lk__fail(s->status, "%s", s->detail);
    if (now == PHASE_WRITTEN) {
        *out = s->saved;
        set_phase(s, PHASE_IDLE);
    }
    *done = now == PHASE_WRITTEN;
    return LK_OK;
}

lk_status lk__saver_poll(lk_saver *saver, bool *done, lk_saver_saved *out)
{
    return get_result(saver, false, done, out);
}

lk_status lk__saver_wait(lk_saver *saver, bool *done, lk_saver_saved *out)
{
    return get_result(saver, true, done, out);
}

uint64_t lk__saver_writing(lk_saver *saver)
{
    return get_phase(saver, false) == PHASE_WRITING ? saver->saved.step : 0;
}

lk_status lk__saver_distrust(lk_saver *saver, uint64_t last, size_t *count, char example[LK_CHECKPOINT_PATH])
{
    (void)get_phase(saver, true);
    LK_TRY(lk__checkpoint_distrust(saver->dir, last, count, example));
    if (!lk__checkpoint_is(saver->last))
        *saver->last = '\0';
    return LK_OK;
}

const char *lk__saver_last(const lk_saver *saver)
{
    return saver->last;
}

void lk__saver_close(lk_saver *saver)
{
    if (saver == NULL)
        return;
    if (saver->threaded) {
        pthread_mutex_lock(&saver->mutex);
        saver->closing = true;
        pthread_cond_signal(&saver->turned);
        pthread_mutex_unlock(&saver->mutex);
        pthread_join(saver->thread, NULL);
    }
    pthread_cond_destroy(&saver->turned);
    pthread_mutex_destroy(&saver->mutex);
    lk__fd_close(&saver->folder);
    remove_folders(saver);
    lk__mem_free(saver);
}
