/* fit.c - compares what the ranks of a host and of a process will take with what
 * there is. */
#include "parallel/memory/fit.h"

#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"

enum { DETAIL = 2048 };

/* What a rank tells the others: numbers, as they go through a collective. */
typedef struct facts {
    uint64_t process; /* which one it is part of */
    int64_t host;     /* bytes that it takes of its host's memory */
    int64_t own;      /* of its process's limit */
} facts;

enum { FACTS = sizeof(facts) / sizeof(int64_t) };

/* What ranks take together of something that they share. */
typedef struct demand {
    size_t bytes;
    int ranks;
} demand;

/* Two containers of one host may have processes of the same number, but hardly
 * code at the same address as well. */
static uint64_t this_process(void)
{
    static const char anchor;
    return (uint64_t)getpid() << 32 ^ (uint64_t)(uintptr_t)&anchor;
}

/* Sums the facts of the ranks that share this host's memory, and this process. */
static lk_status gather(lk_group *world, const facts *mine, demand *host, demand *process)
{
    int ranks = world ? lk_group_size(world) : 1;
    facts *all;
    LK_TRY(LK_ALLOC((size_t)ranks, "ranks", &all));
    lk_status status = LK_OK;
    all[0] = *mine;
    if (world)
        status = lk_allgather(world, (lk_buffer){(void *)(uintptr_t)mine, FACTS, LK_DTYPE_I64}, NULL, all, NULL);
    *host = *process = (demand){0};
    for (int r = 0; status == LK_OK && r < ranks; r++) {
        if (world && !lk_group_is_local(world, r))
            continue;
        host->bytes += (size_t)all[r].host;
        host->ranks++;
        if (all[r].process != mine->process)
            continue;
        process->bytes += (size_t)all[r].own;
        process->ranks++;
    }
    lk__mem_free(all);
    return status;
}

/* Clearly more than there is: what the system tells is an estimate. */
static bool exceeds(const demand *d, lk_available_room room)
{
    return d->bytes - d->bytes / 16 > room.bytes;
}

/* What a run takes at its end at the latest, for its hash. */
static size_t copy_bytes(const lk_engine_size *size)
{
    return size->parameters;
}

static void describe(const lk_engine_rank_model *rank, const lk_engine_size *size, const demand *d,
                     lk_available_room room, const lk_fit_shortage *shortage, char text[DETAIL])
{
    char whole[LK_AMOUNT_TEXT], there[LK_AMOUNT_TEXT], copy[LK_AMOUNT_TEXT], parts[LK_FIT_TEXT], advice[LK_FIT_TEXT];
    char who[64] = "this rank needs", each[64] = "It needs";
    if (d->ranks > 1) {
        snprintf(who, sizeof who, "%d ranks of this %s need", d->ranks, shortage->process ? "process" : "host");
        snprintf(each, sizeof each,
                 "A rank needs %s:", lk__fit_amount(lk__engine_size_total(size) + copy_bytes(size), whole));
    }
    lk__fit_parts(size, parts);
    bool helps = lk__fit_advice(rank, shortage, advice);
    snprintf(text, DETAIL, "%s %s of memory, but %s leaves %s. %s %s%s%s for a copy of parameters. %s%s%s", who,
             lk__fit_amount(d->bytes, whole), room.limit, lk__fit_amount(room.bytes, there), each, parts,
             *parts ? ", " : "", lk__fit_amount(copy_bytes(size), copy),
             helps ? "It would fit with " : "It takes more memory, or a smaller model or batch", advice,
             shortage->process ? "; or raise the limit" : "");
}

/* Writes this rank's complaint into text, unless there is one. */
static lk_status complain(const lk_engine_rank_model *rank, const lk_available *available, const lk_engine_size *size,
                          char text[DETAIL])
{
    demand host, process;
    lk_group *world = rank->grid.world;
    /* Gradients in a group's memory are not counted by every limit on processes. */
    size_t whole = lk__engine_size_total(size) + copy_bytes(size);
    facts mine = {.process = this_process(),
                  .host = (int64_t)whole,
                  .own = (int64_t)(whole - (rank->grid.sums ? lk__engine_size_shared(size) : 0))};
    LK_TRY(gather(world, &mine, &host, &process));
    if (*text)
        return LK_OK;
    if (exceeds(&process, available->process)) {
        lk_fit_shortage shortage = {.room = available->process.bytes,
                                    .ranks = process.ranks,
                                    .process = true,
                                    .peers = host.ranks - process.ranks};
        describe(rank, size, &process, available->process, &shortage, text);
    } else if (exceeds(&host, available->host)) {
        lk_fit_shortage shortage = {.room = available->host.bytes, .ranks = host.ranks};
        describe(rank, size, &host, available->host, &shortage, text);
    }
    return LK_OK;
}

/* One rank fails, of all that have something to say; the others wait to be told. */
static lk_status settle(lk_group *world, const char *text)
{
    int64_t first = INT64_MAX;
    if (!world)
        return *text ? lk__fail(LK_STATUS_MEMORY, "%s", text) : LK_OK;
    if (*text)
        first = lk_group_rank(world);
    LK_TRY(lk_allreduce(world, (lk_buffer){&first, 1, LK_DTYPE_I64}, LK_REDUCTION_MIN, NULL));
    if (first == lk_group_rank(world))
        return lk__fail(LK_STATUS_MEMORY, "%s", text);
    return first == INT64_MAX ? LK_OK : lk_barrier(world, NULL);
}

/* Appends what the rank needs and what to change to `why`. */
static void explain(const lk_engine_rank_model *rank, const char *why, size_t room, char text[DETAIL])
{
    char parts[LK_FIT_TEXT], advice[LK_FIT_TEXT], whole[LK_AMOUNT_TEXT], needs[LK_FIT_TEXT + 64] = "";
    lk_engine_size size;
    lk_fit_shortage shortage = {.room = room, .ranks = 1, .process = true};
    if (lk__engine_measure_rank(rank, &size) == LK_OK) {
        lk__fit_parts(&size, parts);
        snprintf(needs, sizeof needs, ". This rank needs %s in all: %s",
                 lk__fit_amount(lk__engine_size_total(&size), whole), parts);
        /* How much there is, nobody knows for sure; half of it is worth a try. */
        shortage.room = lk__size_min(room, lk__engine_size_total(&size) / 2);
    }
    bool helps = lk__fit_advice(rank, &shortage, advice);
    bool wide = !rank->dev->type->host_memory && rank->dev->values == LK_DTYPE_F32;
    const char *narrow = wide ? "`precision` bf16" : "";
    snprintf(text, DETAIL, "%s%s%s%s%s%s", why, needs, helps || *narrow ? ". Less is needed with " : "", advice,
             helps && *narrow ? ", or with " : "", narrow);
}

lk_status lk__fit_check(const lk_engine_rank_model *rank, const lk_available *available)
{
    char text[DETAIL] = "", why[DETAIL];
    lk_engine_size size = {0};
    lk_status status = lk__engine_measure_rank(rank, &size);
    if (status == LK_STATUS_MEMORY) { /* more than can be addressed */
        snprintf(why, sizeof why, "%s", lk_error_detail());
        explain(rank, why, lk__size_min(available->host.bytes, available->process.bytes), text);
    } else {
        LK_TRY(status);
    }
    LK_TRY(complain(rank, available, &size, text));
    return settle(rank->grid.world, text);
}

lk_status lk__fit_explain(const lk_engine_rank_model *rank)
{
    char why[DETAIL], text[DETAIL];
    const lk_device_type *type = rank->dev->type;
    snprintf(why, sizeof why, "%s", lk_error_detail());
    explain(rank, why, type->room ? type->room(rank->dev) : SIZE_MAX, text);
    return lk__fail(LK_STATUS_MEMORY, "%s", text);
}
