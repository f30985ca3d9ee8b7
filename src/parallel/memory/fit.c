/* fit.c - compares the needs of the ranks of a host and of a process with the available memory. */
#include "parallel/memory/fit.h"

#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"

enum { DETAIL = 2048 };

/* The numbers that each rank gives to an allgather. */
typedef struct facts {
    uint64_t process; /* identifies the process of the rank */
    int64_t host;     /* bytes of host memory that the rank needs */
    int64_t own;      /* bytes that count against the limit of its process */
} facts;

enum { FACTS = sizeof(facts) / sizeof(int64_t) };

/* The total need of the ranks that share a limit. */
typedef struct demand {
    size_t bytes;
    int ranks;
} demand;

/* Two containers of a host may have processes with the same id; the address makes a collision unlikely. */
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

/* Whether the need exceeds the room by more than 1/16: the room is an estimate. */
static bool exceeds(const demand *d, lk_available_room room)
{
    return d->bytes - d->bytes / 16 > room.bytes;
}

/* A run copies the parameters, at its end at the latest, to hash them. */
static size_t copy_bytes(const lk_engine_size *size)
{
    return size->parameters;
}

static void describe(const lk_engine_rank_model *rank, const lk_engine_size *size, const demand *d,
                     lk_available_room room, const lk_fit_shortage *shortage, char text[DETAIL])
{
    char whole[LK_TEXT_AMOUNT], there[LK_TEXT_AMOUNT], copy[LK_TEXT_AMOUNT], parts[LK_FIT_TEXT], advice[LK_FIT_TEXT];
    char who[64] = "this rank needs", each[64] = "It needs";
    if (d->ranks > 1) {
        snprintf(who, sizeof who, "%d ranks of this %s need", d->ranks, shortage->process ? "process" : "host");
        snprintf(each, sizeof each,
                 "A rank needs %s:", lk__text_amount(lk__engine_size_total(size) + copy_bytes(size), whole));
    }
    lk__fit_parts(size, parts);
    bool helps = lk__fit_advice(rank, shortage, advice);
    snprintf(text, DETAIL, "%s %s of memory, but %s leaves %s. %s %s%s%s for a copy of parameters. %s%s%s", who,
             lk__text_amount(d->bytes, whole), room.limit, lk__text_amount(room.bytes, there), each, parts,
             *parts ? ", " : "", lk__text_amount(copy_bytes(size), copy),
             helps ? "It would fit with " : "It takes more memory, or a smaller model or batch", advice,
             shortage->process ? "; or raise the limit" : "");
}

/* Collective: describes this rank's shortage in text, if there is one; keeps a text that is not empty. */
static lk_status find_shortage(const lk_engine_rank_model *rank, const lk_available *available,
                               const lk_engine_size *size, char text[DETAIL])
{
    demand host, process;
    lk_group *world = rank->grid.world;
    size_t whole = lk__engine_size_total(size) + copy_bytes(size);
    /* The group's gradients are in shared memory. */
    size_t shared = rank->grid.sums && available->process.unshared ? lk__engine_size_shared(size) : 0;
    facts mine = {.process = this_process(), .host = (int64_t)whole, .own = (int64_t)(whole - shared)};
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

/* Collective: the lowest rank with a text fails with it; the others wait for that rank to abort the job. */
static lk_status fail_at_first_rank(lk_group *world, const char *text)
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

/* Writes `why`, the rank's needs and advice; room is SIZE_MAX if it is not known. */
static void explain(const lk_engine_rank_model *rank, const char *why, size_t room, char text[DETAIL])
{
    char parts[LK_FIT_TEXT], advice[LK_FIT_TEXT], whole[LK_TEXT_AMOUNT], needs[LK_FIT_TEXT + 64] = "";
    lk_engine_size size;
    lk_fit_shortage shortage = {.room = room, .ranks = 1, .process = true};
    if (lk__engine_measure_rank(rank, &size) == LK_OK) {
        lk__fit_parts(&size, parts);
        snprintf(needs, sizeof needs, ". This rank needs %s in all: %s",
                 lk__text_amount(lk__engine_size_total(&size), whole), parts);
        /* If the room is not known, or is not what was short, options are advised that need half as much. */
        if (room >= lk__engine_size_total(&size))
            shortage.room = lk__engine_size_total(&size) / 2;
    }
    bool helps = lk__fit_advice(rank, &shortage, advice);
    snprintf(text, DETAIL, "%s%s%s%s", why, needs, helps ? ". Less is needed with " : "", advice);
}

lk_status lk__fit_check(const lk_engine_rank_model *rank, const lk_available *available)
{
    char text[DETAIL] = "", why[DETAIL];
    lk_engine_size size = {0};
    lk_status status = lk__engine_measure_rank(rank, &size);
    if (status == LK_STATUS_MEMORY) { /* the size overflows */
        snprintf(why, sizeof why, "%s", lk_error_detail());
        explain(rank, why, lk__size_min(available->host.bytes, available->process.bytes), text);
    } else {
        LK_TRY(status);
    }
    LK_TRY(find_shortage(rank, available, &size, text));
    return fail_at_first_rank(rank->grid.world, text);
}

lk_status lk__fit_explain(const lk_engine_rank_model *rank)
{
    char why[DETAIL], text[DETAIL];
    const lk_device_type *type = rank->dev->type;
    snprintf(why, sizeof why, "%s", lk_error_detail());
    explain(rank, why, type->room ? type->room(rank->dev) : SIZE_MAX, text);
    return lk__fail(LK_STATUS_MEMORY, "%s", text);
}
