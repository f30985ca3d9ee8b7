/* advice.c - finds options with which a rank that lacks memory fits; each is measured before it is named. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "base/tree.h"
#include "parallel/memory/fit.h"

/* LOADED_BATCHES: batches that a loader holds. MOST_STAGES, MOST_TIMES: the largest values that are tried. */
enum { LOADED_BATCHES = 4, MOST_STAGES = 16, MOST_TIMES = 64, SPARE_BYTES = 16 << 20 };

void lk__fit_parts(const lk_engine_size *size, char text[LK_FIT_TEXT])
{
    char activations[64], number[LK_TEXT_AMOUNT];
    snprintf(activations, sizeof activations, "activations of %zu sample%s", size->samples,
             size->samples == 1 ? "" : "s");
    struct part {
        size_t bytes;
        const char *name;
    } parts[] = {{size->copies, "copies of what ranks exchange"},
                 {size->activations, activations},
                 {size->parameters, "parameters"},
                 {size->gradients, "gradients"},
                 {size->optimizer, "the optimiser's state"},
                 {size->statistics, "BatchNorm's statistics"},
                 {size->scratch, "scratch of kernels"}};
    enum { PARTS = sizeof parts / sizeof *parts };
    size_t used = 0;
    text[0] = '\0';
    for (int i = 1; size->host_only && i < PARTS; i++)
        parts[i].bytes = 0;
    for (int i = 0; i < PARTS; i++) {
        struct part *largest = &parts[0];
        for (int j = 1; j < PARTS; j++)
            largest = parts[j].bytes > largest->bytes ? &parts[j] : largest;
        if (largest->bytes == 0)
            break;
        int more = snprintf(text + used, LK_FIT_TEXT - used, "%s%s for %s", i > 0 ? ", " : "",
                            lk__text_amount(largest->bytes, number), largest->name);
        used = lk__size_min(used + (size_t)more, LK_FIT_TEXT - 1);
        largest->bytes = 0;
    }
}

/* The approximate memory of a run apart from its engine: batches in the loader, and copies of the states
 * that are saved. */
static size_t other_bytes(const lk_engine_rank_model *rank, const lk_engine_size *size, const lk_fit_shortage *shortage)
{
    const lk_grid *grid = &rank->grid;
    int shards = grid->bounds[grid->replica + 1] - grid->bounds[grid->replica];
    size_t sample = grid->stage == 0 ? lk__shape_sample(rank->graph->layers[0].shape) * sizeof(float) : 0;
    return SPARE_BYTES + size->parameters + size->optimizer + (size_t)shortage->peers * lk__engine_size_shared(size) +
           LOADED_BATCHES * sample * lk__shard_most(rank->opts.batch, rank->opts.shards, shards);
}

/* Whether the rank certainly fits, and its size. */
static bool fits(const lk_engine_rank_model *rank, const lk_fit_shortage *shortage, lk_engine_size *size)
{
    if (lk__engine_measure_rank(rank, size) != LK_OK)
        return false;
    size_t one = (shortage->room - shortage->room / 16) / (size_t)shortage->ranks;
    size_t spare = other_bytes(rank, size, shortage), total = lk__engine_size_total(size);
    return total <= one && spare <= one - total;
}

/* The largest value in [least,most] of an option with which the rank fits; 0 if there is none. */
static size_t largest_fit(lk_engine_rank_model *rank, size_t *option, size_t least, size_t most,
                          const lk_fit_shortage *shortage)
{
    lk_engine_size size;
    size_t given = *option, low = least, high = most + 1;
    *option = least;
    if (least > most || !fits(rank, shortage, &size)) {
        *option = given;
        return 0;
    }
    while (high - low > 1) {
        *option = low + (high - low) / 2;
        if (fits(rank, shortage, &size))
            low = *option;
        else
            high = *option;
    }
    *option = given;
    return low;
}

/* A number without digits after the first two. */
static size_t round_down(size_t value)
{
    size_t unit = 1;
    while (value / unit >= 100)
        unit *= 10;
    return value / unit * unit;
}

/* A wave has at least one whole shard. */
static size_t least_wave(const lk_engine_rank_model *rank)
{
    return lk__shard_most(rank->opts.batch, rank->opts.shards, 1);
}

static bool one_wave(const lk_engine_rank_model *rank)
{
    return lk__graph_takes_one_wave(rank->graph, rank->opts.bn);
}

/* Whether a way to fit keeps the result. */
typedef enum outcome { OUTCOME_SAME, OUTCOME_ANOTHER } outcome;

/* Appends an option to the text, with the memory that a rank then needs. */
static void add_way(const lk_engine_rank_model *rank, const char *way, outcome gives, char text[LK_FIT_TEXT])
{
    lk_engine_size size;
    char number[LK_TEXT_AMOUNT];
    size_t used = strlen(text);
    if (lk__engine_measure_rank(rank, &size) == LK_OK)
        snprintf(text + used, LK_FIT_TEXT - used, "%s%s (%s a rank%s)", used ? ", or with " : "", way,
                 lk__text_amount(lk__engine_size_total(&size), number),
                 gives == OUTCOME_ANOTHER ? ", another result" : "");
}

/* Smaller waves, which do not change the result. `also` names the options that were changed before, which do. The size
 * of a wave is that of the whole shards that it holds. */
static bool try_micro_batch(lk_engine_rank_model rank, const lk_fit_shortage *shortage, const char *also,
                            char text[LK_FIT_TEXT])
{
    char way[128];
    lk_engine_size size;
    size_t most = rank.opts.micro_batch ? rank.opts.micro_batch : rank.opts.batch;
    if (one_wave(&rank))
        return false;
    size_t wave = largest_fit(&rank, &rank.opts.micro_batch, least_wave(&rank), most - 1, shortage);
    if (!wave)
        return false;
    rank.opts.micro_batch = wave;
    if (lk__engine_measure_rank(&rank, &size) != LK_OK)
        return false;
    snprintf(way, sizeof way, "%s`micro_batch` %zu", also, size.samples);
    add_way(&rank, way, *also ? OUTCOME_ANOTHER : OUTCOME_SAME, text);
    return true;
}

static bool try_bn_shard(lk_engine_rank_model rank, const lk_fit_shortage *shortage, char text[LK_FIT_TEXT])
{
    if (!one_wave(&rank))
        return false;
    rank.opts.bn = LK_BN_MODE_SHARD;
    return try_micro_batch(rank, shortage, "`bn` shard ", text);
}

static bool try_batch(lk_engine_rank_model rank, const lk_fit_shortage *shortage, char text[LK_FIT_TEXT])
{
    char way[128];
    if (!one_wave(&rank))
        rank.opts.micro_batch = 1;
    size_t batch = largest_fit(&rank, &rank.opts.batch, 1, rank.opts.batch - 1, shortage);
    if (!batch)
        return false;
    rank.opts.batch = round_down(batch);
    /* The text says batches, because with --accumulate the user's option is a part of the batch. */
    snprintf(way, sizeof way, "%sbatches of %zu samples by `batch`", one_wave(&rank) ? "" : "`micro_batch` 1 and ",
             rank.opts.batch);
    add_way(&rank, way, OUTCOME_ANOTHER, text);
    return true;
}

static bool try_optimizer(lk_engine_rank_model rank, const lk_fit_shortage *shortage, char text[LK_FIT_TEXT])
{
    static const char *const lighter[] = {"sgd:momentum=.9", "sgd"};
    char way[64];
    lk_engine_size given, size;
    if (lk__engine_measure_rank(&rank, &given) != LK_OK)
        return false;
    for (size_t i = 0; i < sizeof lighter / sizeof *lighter; i++) {
        rank.opts.optimizer = lighter[i];
        if (!fits(&rank, shortage, &size) || size.optimizer >= given.optimizer)
            continue;
        snprintf(way, sizeof way, "`optimizer` %s", lighter[i]);
        add_way(&rank, way, OUTCOME_ANOTHER, text);
        return true;
    }
    return false;
}

/* Activations of half the size, on devices that store bf16. */
static bool try_bf16(lk_engine_rank_model rank, const lk_fit_shortage *shortage, char text[LK_FIT_TEXT])
{
    lk_device *dev = rank.dev; /* of this rank alone */
    lk_engine_size wide, narrow;
    if (dev->type->host_memory || dev->values != LK_DTYPE_F32 ||
        !lk__device_has_precision(dev->type->name, LK_PRECISION_BF16) || lk__engine_measure_rank(&rank, &wide) != LK_OK)
        return false;
    dev->values = LK_DTYPE_BF16;
    bool helps = fits(&rank, shortage, &narrow) && lk__engine_size_total(&narrow) < lk__engine_size_total(&wide);
    if (helps)
        add_way(&rank, "`precision` bf16", OUTCOME_ANOTHER, text);
    dev->values = LK_DTYPE_F32;
    return helps;
}

/* Cuts the model into stages and makes rank the largest of them. */
static bool largest_stage(lk_engine_rank_model *rank, int stages)
{
    int count, first[LK_MAX_STAGES + 1], largest = 0;
    char spec[16];
    size_t most = 0;
    snprintf(spec, sizeof spec, "%d", stages);
    if (lk__partition(rank->graph, spec, &count, first) != LK_OK)
        return false;
    rank->grid.stages = count;
    for (int pass = 0; pass <= count; pass++) {
        lk_engine_size size;
        rank->grid.stage = pass < count ? pass : largest;
        rank->grid.first_layer = first[rank->grid.stage];
        rank->grid.last_layer = first[rank->grid.stage + 1];
        if (lk__engine_measure_rank(rank, &size) != LK_OK)
            return false;
        if (pass < count && lk__engine_size_total(&size) > most) {
            most = lk__engine_size_total(&size);
            largest = pass;
        }
    }
    return true;
}

/* Fewer layers for each rank; the number of ranks on this host stays. */
static bool try_stages(lk_engine_rank_model rank, const lk_fit_shortage *shortage, char text[LK_FIT_TEXT])
{
    char way[128];
    lk_engine_size size;
    for (int stages = rank.grid.stages + 1; stages <= MOST_STAGES; stages++) {
        lk_engine_rank_model cut = rank;
        if (!largest_stage(&cut, stages))
            return false;
        if (!fits(&cut, shortage, &size))
            continue;
        snprintf(way, sizeof way, "`stages` %d, each stage %s", stages,
                 shortage->process ? "in a process of its own" : "on a host of its own like this one");
        add_way(&cut, way, OUTCOME_SAME, text);
        return true;
    }
    return false;
}

/* Makes rank the largest of that many replicas, sharing that many shards; bounds (replicas + 1). */
static void set_shares(lk_engine_rank_model *rank, int replicas, int shards, int *bounds)
{
    for (int r = 0; r <= replicas; r++)
        bounds[r] = (int)lk__shard_begin((size_t)shards, replicas, r);
    rank->opts.shards = shards;
    rank->grid.replicas = replicas;
    rank->grid.replica = replicas - 1; /* no replica has more shards */
    rank->grid.bounds = bounds;
}

/* Smaller shards make smaller waves possible. */
static bool try_shards(lk_engine_rank_model rank, const lk_fit_shortage *shortage, char text[LK_FIT_TEXT])
{
    int bounds[LK_MAX_SHARDS + 1];
    char also[64];
    for (int shards = 2 * rank.opts.shards; shards <= LK_MAX_SHARDS && !one_wave(&rank); shards *= 2) {
        set_shares(&rank, rank.grid.replicas, shards, bounds);
        snprintf(also, sizeof also, "`shards` %d ", shards);
        if (try_micro_batch(rank, shortage, also, text))
            return true;
    }
    return false;
}

/* Fewer samples for each rank. */
static bool try_hosts(lk_engine_rank_model rank, const lk_fit_shortage *shortage, char text[LK_FIT_TEXT])
{
    int bounds[LK_MAX_SHARDS + 1], replicas = rank.grid.replicas;
    char way[128];
    lk_engine_size size;
    for (int times = 2; !shortage->process && times <= MOST_TIMES && times * replicas <= rank.opts.shards; times++) {
        set_shares(&rank, times * replicas, rank.opts.shards, bounds);
        if (!fits(&rank, shortage, &size))
            continue;
        snprintf(way, sizeof way, "%d times as many hosts and ranks", times);
        add_way(&rank, way, OUTCOME_SAME, text);
        return true;
    }
    return false;
}

bool lk__fit_advice(const lk_engine_rank_model *rank, const lk_fit_shortage *shortage, char text[LK_FIT_TEXT])
{
    text[0] = '\0';
    if (try_micro_batch(*rank, shortage, "", text)) {
        (void)try_bf16(*rank, shortage, text);
        return true;
    }
    (void)try_shards(*rank, shortage, text);
    (void)try_bn_shard(*rank, shortage, text);
    (void)try_batch(*rank, shortage, text);
    (void)try_optimizer(*rank, shortage, text);
    if (!*text)
        (void)try_stages(*rank, shortage, text);
    (void)try_bf16(*rank, shortage, text);
    (void)try_hosts(*rank, shortage, text);
    return *text != '\0';
}
