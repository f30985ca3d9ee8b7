/* checkpoint_compare.c - reports the differences between two models or checkpoints, each with its
 * kind: parameter, running statistic, optimiser, position or option. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/checkpoint/checkpoint_impl.h"

enum { TEXT_BYTES = 400, SENTENCE_BYTES = 1024 };

typedef struct listener {
    lk_difference_kind_fn report;
    void *arg;
    size_t *counts; /* (LK_DIFFERENCE_KIND_COUNT) */
} listener;

static void report_difference(const listener *to, lk_difference_kind kind, const char *key, const char *what)
{
    to->counts[kind]++;
    if (to->report)
        to->report(to->arg, kind, key, what);
}

/* Decides by PyTorch's names: files do not distinguish buffers from parameters. */
static lk_difference_kind kind_of(const char *key)
{
    static const char *const buffers[] = {"running_mean", "running_var", "num_batches_tracked"};
    const char *dot = strrchr(key, '.'), *last = dot ? dot + 1 : key;
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        if (strcmp(last, buffers[i]) == 0)
            return LK_DIFFERENCE_KIND_BUFFER;
    return LK_DIFFERENCE_KIND_PARAMETER;
}

static void report_model(void *arg, const char *key, const char *what)
{
    report_difference(arg, kind_of(key), key, what);
}

static void report_optimizer(void *arg, const char *key, const char *what)
{
    report_difference(arg, LK_DIFFERENCE_KIND_OPTIMIZER, key, what);
}

void lk__checkpoint_compare_models(const lk_state *a, const lk_state *b, lk_difference_kind_fn report, void *arg,
                                   size_t counts[LK_DIFFERENCE_KIND_COUNT])
{
    listener to = {.report = report, .arg = arg, .counts = counts};
    (void)lk_state_compare(a, b, report_model, &to);
}

void lk__checkpoint_note_readable(const char *text, char *out, size_t bytes)
{
    char *end = NULL;
    bool hexadecimal = strncmp(text + (*text == '-'), "0x", 2) == 0;
    double value = hexadecimal ? strtod(text, &end) : 0;
    if (hexadecimal && *end == '\0')
        snprintf(out, bytes, "%.17g", value);
    else
        snprintf(out, bytes, "%s", text);
}

/* Notes about how a checkpoint was made, not about what it contains: when replicas were compared,
 * what the data files were, the run folder and its time. Earlier versions do not write them. */
static bool is_history(const char *name)
{
    static const char *const history[] = {"agreed", "data-contents", "data-times", "run", "run-seconds"};
    for (size_t i = 0; i < sizeof history / sizeof *history; i++)
        if (strcmp(name, history[i]) == 0)
            return true;
    return false;
}

static void compare_note(const listener *to, const char *name, const char *a, const char *b)
{
    char x[TEXT_BYTES] = "", y[TEXT_BYTES] = "", what[SENTENCE_BYTES];
    if (is_history(name) || (a && b && strcmp(a, b) == 0))
        return;
    if (a)
        lk__checkpoint_note_readable(a, x, sizeof x);
    if (b)
        lk__checkpoint_note_readable(b, y, sizeof y);
    if (a && b)
        snprintf(what, sizeof what, "%s against %s", x, y);
    else
        snprintf(what, sizeof what, "only in the %s: %s", a ? "first" : "second", a ? x : y);
    report_difference(to, strncmp(name, "--", 2) == 0 ? LK_DIFFERENCE_KIND_OPTION : LK_DIFFERENCE_KIND_POSITION, name,
                      what);
}

static void compare_notes(const listener *to, const lk_checkpoint *a, const lk_checkpoint *b)
{
    const char *name;
    for (size_t i = 0; (name = lk_checkpoint_note_name(a, i)); i++)
        compare_note(to, name, lk_checkpoint_note(a, name), lk_checkpoint_note(b, name));
    for (size_t i = 0; (name = lk_checkpoint_note_name(b, i)); i++)
        if (!lk_checkpoint_note(a, name))
            compare_note(to, name, NULL, lk_checkpoint_note(b, name));
}

void lk__checkpoint_compare(const lk_checkpoint *a, const lk_checkpoint *b, lk_difference_kind_fn report, void *arg,
                            size_t counts[LK_DIFFERENCE_KIND_COUNT])
{
    listener to = {.report = report, .arg = arg, .counts = counts};
    (void)lk_state_compare(lk_checkpoint_model(a), lk_checkpoint_model(b), report_model, &to);
    (void)lk_state_compare(lk_checkpoint_optimizer(a), lk_checkpoint_optimizer(b), report_optimizer, &to);
    compare_notes(&to, a, b);
}
