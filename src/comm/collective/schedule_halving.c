/* schedule_halving.c - allreduce by vector halving between hosts, along the tree of the shards.
 *
 * At height h of the tree, two neighbouring blocks of 2^(h-1) hosts merge. Each host of the left block has a
 * partner in the right block, which holds the same part of the vector. The two send each other one half of
 * that part and fold the other half, so that the halves shrink as the distance of the partners grows: most
 * bytes move between near hosts. The results return on the same way, with copies.
 *
 * If the number of hosts is no power of two, the last block of a height is short. Its hosts then send their
 * parts to the hosts of the left block, which own the sums of both blocks, and receive the results from them.
 * A rank sends and receives at most the bytes of the vector twice, whatever the number of hosts is. */
#include <assert.h>

#include "base/mem.h"
#include "base/tree.h"
#include "comm/collective/schedule_build.h"
#include "net/host.h"

/* The ranks of one rail, which is a span of the vector. */
typedef struct rail {
    lk_builder *build;
    lk_span whole;
    int hosts, host; /* host: this rank's */
    int *ranks;      /* (hosts) the rank of each host on the rail */
    bool member;     /* this rank is on the rail */
    int level;       /* of this rank's sums: of the last merge in which it took part */
} rail;

static int height_of(int hosts)
{
    static_assert(LK_MAX_RANKS <= 1 << (LK_MAX_PHASES / 2 - 1), "each level has a fold and a copy");
    static_assert(LK_MAX_RANKS == LK_MAX_SHARDS, "every rank can have a shard");
    int height = 0;
    while (hosts > 1 << height)
        height++;
    return height;
}

/* The hosts of a block that own the sum of the block: as many as the largest power of two allows. */
static int owners_of(const rail *r, int first, int h)
{
    int count = r->hosts - first < 1 << h ? r->hosts - first : 1 << h, owners = 1;
    while (2 * owners <= count)
        owners *= 2;
    return owners;
}

/* The part that a host owns of the sum of its block of 2^h hosts. Bit k of the host's index chooses a half in
 * merge k + 1, so the part is inside the part that the host owned before the merge. */
static lk_span part_of(const rail *r, int host, int h)
{
    int first = host >> h << h, index = host - first, owners = owners_of(r, first, h);
    lk_span part = index < owners ? r->whole : (lk_span){0};
    for (int k = 0; index < owners && 1 << k < owners; k++)
        part = lk__span_sub(part, 2, index >> k & 1);
    return part;
}

/* The merge at height h in which this rank takes part. */
typedef struct merge {
    int first, middle; /* first hosts of the block and of its right half */
    bool exists;       /* the right half has hosts */
    bool even;         /* the right half has as many hosts as the left half */
    bool left;         /* this rank is in the left half */
    int owners;        /* of an uneven merge: hosts of the right half that have parts */
} merge;

static merge merge_of(const rail *r, int h)
{
    merge m = {.first = r->host >> h << h};
    m.middle = m.first + (1 << (h - 1));
    m.exists = r->member && m.middle < r->hosts;
    m.even = r->hosts - m.first >= 1 << h;
    m.left = r->host < m.middle;
    m.owners = m.exists ? owners_of(r, m.middle, h - 1) : 0;
    return m;
}

/* The owner in the right half whose part contains the part of host `left` of an uneven merge. */
static int owner_for(const rail *r, const merge *m, int left)
{
    return r->ranks[m->middle + (left - m->first) % m->owners];
}

/* The move between this rank and a rank of the other half: down the tree in a copy, otherwise up. */
static void add_uneven(rail *r, const merge *m, int h, bool down)
{
    if (m->left) {
        lk_span mine = part_of(r, r->host, h);
        int owner = owner_for(r, m, r->host);
        if (down)
            lk__builder_send(r->build, owner, mine, false);
        else
            lk__builder_recv(r->build, owner, mine, false);
        return;
    }
    for (int left = m->first; left < m->middle && r->host < m->middle + m->owners; left++) {
        if (owner_for(r, m, left) != r->build->rank)
            continue;
        if (down)
            lk__builder_recv(r->build, r->ranks[left], part_of(r, left, h), false);
        else
            lk__builder_send(r->build, r->ranks[left], part_of(r, left, h), false);
    }
}

static void fold_at(rail *r, int h, int level_out)
{
    merge m = merge_of(r, h);
    if (!m.exists) {
        lk__builder_copy(r->build);
        return;
    }
    lk_span mine = part_of(r, r->host, h);
    lk__builder_fold(r->build, r->level, level_out, m.even || m.left ? mine : (lk_span){0});
    r->level = level_out;
    if (m.even) {
        int partner = r->host ^ 1 << (h - 1);
        lk__builder_send(r->build, r->ranks[partner], part_of(r, partner, h), false);
        lk__builder_recv(r->build, r->ranks[partner], mine, false);
    } else {
        add_uneven(r, &m, h, false);
    }
}

static void copy_at(rail *r, int h)
{
    merge m = merge_of(r, h);
    lk__builder_copy(r->build);
    if (m.exists && m.even) {
        int partner = r->host ^ 1 << (h - 1);
        lk__builder_send(r->build, r->ranks[partner], part_of(r, r->host, h), false);
        lk__builder_recv(r->build, r->ranks[partner], part_of(r, partner, h), false);
    } else if (m.exists) {
        add_uneven(r, &m, h, true);
    }
}

/* Ranks on no rail have phases without moves, so that phases have equal numbers at all ranks. */
static void add_rail(lk_builder *build, size_t count)
{
    const lk_schedule_topology *topology = build->topology;
    rail r = {.build = build, .hosts = topology->hosts, .host = topology->host[build->rank]};
    r.whole = lk__builder_rail(build, count, build->rank);
    r.member = build->local[build->rank] < build->rails;
    r.level = build->flat ? LK_SCHEDULE_LEVEL_RANK : LK_SCHEDULE_LEVEL_HOST;
    build->status = LK_ALLOC((size_t)r.hosts, "a schedule", &r.ranks);
    if (build->status != LK_OK)
        return;
    for (int rank = 0; rank < topology->size; rank++)
        if (build->local[rank] == build->local[build->rank])
            r.ranks[topology->host[rank]] = rank;
    int top = height_of(r.hosts);
    for (int h = 1; h <= top; h++)
        fold_at(&r, h, h < top ? LK_SCHEDULE_LEVEL_BLOCK + h : LK_SCHEDULE_LEVEL_ALL);
    for (int h = top; h >= 1; h--)
        copy_at(&r, h);
    lk__mem_free(r.ranks);
}

lk_status lk__schedule_halving(const lk_schedule_topology *topology, int rank, size_t count, lk_schedule *out)
{
    lk_builder build;
    lk__builder_init(&build, topology, rank);
    lk__builder_hosts(&build);
    build.schedule.senders = build.most_local;
    if (build.status == LK_OK && !build.flat)
        lk__builder_fold_in_host(&build, count);
    if (build.status == LK_OK)
        add_rail(&build, count);
    if (build.status == LK_OK && !build.flat)
        lk__builder_allgather_in_host(&build, count);
    return lk__builder_finish(&build, out);
}

bool lk__schedule_hosts_even(const lk_schedule_topology *topology, const int *bounds)
{
    int shards = bounds[topology->size], each = 0;
    for (int r = 1; r < topology->size; r++) {
        int host = topology->host[r], step = host - topology->host[r - 1];
        if (step == 0)
            continue;
        each = each ? each : bounds[r];
        if (step != 1 || bounds[r] != host * each)
            return false;
    }
    int last = shards - (topology->hosts - 1) * each;
    return topology->hosts == 1 || (each > 0 && (each & (each - 1)) == 0 && last > 0 && last <= each);
}
