/* compare.c - `lockstep compare A B`: prints nothing if the bits are the same.
 *
 * Of two checkpoints tensors and position are compared, otherwise the models. Options are not compared; they
 * are printed if something differs, to help to find the reason. */
#include <stdio.h>

#include "cli/cli.h"
#include "cli/report/json.h"
#include "io/checkpoint/checkpoint.h"

/* How the lines of each kind begin, and how it is counted at the end. */
static const struct {
    const char *label, *one, *many;
} kinds[LK_DIFFERENCE_KIND_COUNT] = {
    [LK_DIFFERENCE_KIND_PARAMETER] = {"", "parameter", "parameters"},
    [LK_DIFFERENCE_KIND_BUFFER] = {"buffer ", "buffer", "buffers"},
    [LK_DIFFERENCE_KIND_OPTIMIZER] = {"optimiser ", "of the optimiser's tensors", "of the optimiser's tensors"},
    [LK_DIFFERENCE_KIND_POSITION] = {"position ", "note of the position", "notes of the position"},
    [LK_DIFFERENCE_KIND_OPTION] = {"option ", NULL, NULL},
};

static bool differ(const size_t counts[LK_DIFFERENCE_KIND_COUNT])
{
    bool any = false;
    for (int kind = 0; kind < LK_DIFFERENCE_KIND_COUNT; kind++)
        any |= kind != LK_DIFFERENCE_KIND_OPTION && counts[kind] > 0;
    return any;
}

static void print_difference(void *arg, lk_difference_kind kind, const char *key, const char *what)
{
    (void)arg;
    fputs(kinds[kind].label, stdout);
    lk__cli_json_key(key);
    fputs(": ", stdout);
    lk__cli_json_key(what);
    putchar('\n');
}

static void print_counts(const size_t counts[LK_DIFFERENCE_KIND_COUNT])
{
    const char *before = "differ: ";
    for (int kind = 0; kind < LK_DIFFERENCE_KIND_COUNT; kind++) {
        if (kind == LK_DIFFERENCE_KIND_OPTION || !counts[kind])
            continue;
        printf("%s%zu %s", before, counts[kind], counts[kind] == 1 ? kinds[kind].one : kinds[kind].many);
        before = ", ";
    }
    putchar('\n');
}

/* Two checkpoints, or two models. */
typedef struct pair {
    lk_checkpoint *checkpoints[2];
    lk_state *models[2];
} pair;

static void compare(const pair *p, lk_difference_kind_fn report, size_t counts[LK_DIFFERENCE_KIND_COUNT])
{
    if (p->checkpoints[0])
        lk__checkpoint_compare(p->checkpoints[0], p->checkpoints[1], report, NULL, counts);
    else
        lk__checkpoint_compare_models(p->models[0], p->models[1], report, NULL, counts);
}

/* Most pairs are equal, so differences are searched again for printing. */
static bool print_result(const pair *p, bool quiet)
{
    size_t counts[LK_DIFFERENCE_KIND_COUNT] = {0}, again[LK_DIFFERENCE_KIND_COUNT] = {0};
    compare(p, NULL, counts);
    if (!differ(counts))
        return false;
    if (!quiet) {
        compare(p, print_difference, again);
        print_counts(counts);
    }
    return true;
}

static lk_status load_pair(const char *const *paths, pair *out)
{
    bool checkpoints = lk__checkpoint_is(paths[0]) && lk__checkpoint_is(paths[1]);
    for (int i = 0; i < 2; i++) {
        LK_TRY(checkpoints ? lk_checkpoint_load(paths[i], &out->checkpoints[i])
                           : lk_state_load(paths[i], &out->models[i]));
        /* A model with the names that DistributedDataParallel gives it is the same model. */
        if (out->models[i])
            (void)lk_state_strip(out->models[i], "module.");
    }
    return LK_OK;
}

int lk__cmd_compare(lk_args *args)
{
    pair p = {0};
    lk_status status = load_pair(args->words, &p);
    bool different = status == LK_OK && print_result(&p, args->quiet);
    for (int i = 0; i < 2; i++) {
        lk_checkpoint_destroy(p.checkpoints[i]);
        lk_state_destroy(p.models[i]);
    }
    if (status != LK_OK) {
        /* Exit status 1 would mean that the models differ. */
        (void)lk__cli_fail(status);
        return LK_EXIT_USAGE;
    }
    /* main() prints the reason. */
    if (fflush(stdout) != 0 || ferror(stdout))
        return LK_EXIT_USAGE;
    return different ? LK_EXIT_FAILED : LK_EXIT_DONE;
}
