/* resume.h - runs that save checkpoints, are stopped and resume from them, for the tests of this folder. */
#ifndef LK_TESTS_TRAIN_RESUME_H
#define LK_TESTS_TRAIN_RESUME_H

#include "io/checkpoint/checkpoint.h"
#include "tiny.h"

enum { STEPS = 6, BATCHES = 3 };

/* A run that gets a signal (to save or to stop) after one of its steps. */
typedef struct asked {
    record told;
    size_t after; /* step; 0: never */
    int signal_level;
    atomic_int *to;
    int saves;
    lk_train_saved saved[32];
    char paths[32][PATH];
} asked;

static inline void step_and_ask(void *arg, const lk_train_step *step)
{
    asked *a = arg;
    on_step(&a->told, step);
    if (a->to && step->step == a->after)
        atomic_store(a->to, a->signal_level);
}

static inline void count_saved(void *arg, const lk_train_saved *saved)
{
    asked *a = arg;
    assert_true(a->saves < 32);
    a->saved[a->saves] = *saved;
    snprintf(a->paths[a->saves], PATH, "%s", saved->path);
    a->saves++;
}

static inline lk_status run(const lk_train_opts *opts, int count, size_t after, int signal_level, asked *first,
                            lk_train_outcome *result)
{
    static asked all[MAX_RANKS];
    atomic_int to = LK_SIGNAL_LEVEL_NONE;
    lk_train_hooks hooks[MAX_RANKS];
    const char *devices[MAX_RANKS];
    for (int i = 0; i < count; i++) {
        asked *a = i == 0 ? first : &all[i];
        *a = (asked){.after = after, .signal_level = signal_level, .to = i == 0 && after ? &to : NULL};
        hooks[i] =
            (lk_train_hooks){.arg = a, .begin = on_start, .step = step_and_ask, .test = on_test, .saved = count_saved};
        devices[i] = "cpu";
    }
    lk_group_opts group = {.timeout = 60};
    lk_train_ranks ranks = {.opts = opts,
                            .count = count,
                            .devices = devices,
                            .group = &group,
                            .one_process = true,
                            .hooks = hooks,
                            .signal_level = &to};
    lk_train_failure failure;
    lk_status status = lk__train(&ranks, result, &failure);
    if (status != LK_OK)
        lk__train_failure_fini(&failure);
    return status;
}

static inline lk_train_outcome run_well(const lk_train_opts *opts, int count, asked *told)
{
    lk_train_outcome result;
    assert_ok(run(opts, count, 0, LK_SIGNAL_LEVEL_NONE, told, &result));
    return result;
}

/* Each case has its own folder of checkpoints. */
static inline lk_train_opts options_in(const char *name, char dir[PATH])
{
    lk_train_opts opts = options();
    opts.checkpoint = below(name, dir);
    opts.keep = 3;
    return opts;
}

static inline uint64_t uninterrupted(const lk_train_opts *opts)
{
    lk_train_opts plain = *opts;
    record told;
    plain.checkpoint = plain.resume = NULL;
    return train_well(&plain, &told).hash;
}

static lk_resume found; /* by resume_newest */

/* Sets opts->resume to the newest checkpoint in opts->checkpoint; valid until the next call. */
static inline void resume_newest(lk_train_opts *opts)
{
    lk__resume_fini(&found);
    assert_ok(lk__resume_find(NULL, opts->checkpoint, &found));
    opts->resume = found.path;
}

/* Stops a run after the step; opts->resume is then its checkpoint. */
static inline lk_train_outcome stop_after(lk_train_opts *opts, int count, size_t after)
{
    asked told;
    lk_train_outcome result;
    assert_ok(run(opts, count, after, LK_SIGNAL_LEVEL_STOP, &told, &result));
    assert_true(result.stopped);
    resume_newest(opts);
    return result;
}

/* Copies the checkpoint with another text of one note; NULL: without the note, as versions saved it that did not know
 * the note. */
static inline void change_note(const char *path, const char *changed, const char *value)
{
    lk_checkpoint *notes, *copy;
    lk_state *states[2];
    char file[PATH + 32];
    const char *name;
    assert_int_equal(lk_checkpoint_load_notes(path, &notes), LK_OK);
    for (int i = 0; i < 2; i++) {
        snprintf(file, sizeof file, "%.400s/%s.safetensors", path, i ? "optimizer" : "model");
        assert_int_equal(lk_state_load(file, &states[i]), LK_OK);
    }
    assert_int_equal(lk_checkpoint_create(states[0], states[1], &copy), LK_OK);
    for (size_t i = 0; (name = lk_checkpoint_note_name(notes, i)) != NULL; i++) {
        const char *text = strcmp(name, changed) == 0 ? value : lk_checkpoint_note(notes, name);
        if (text)
            assert_int_equal(lk_checkpoint_set_note(copy, name, text), LK_OK);
    }
    assert_int_equal(lk_checkpoint_save(copy, path), LK_OK);
    lk_checkpoint_destroy(copy);
    lk_checkpoint_destroy(notes);
}

static inline int clean_up(void **state)
{
    lk__resume_fini(&found);
    return temp_folder_tear_down(state);
}

#endif
