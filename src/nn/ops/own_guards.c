/* own_guards.c - arrays with watched floats around them. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "nn/ops/own_trial.h"

/* Floats before and after the array; those before may be fewer by the shift. */
enum { GUARD = 80 };
/* A number, because a NaN to which a function adds stays a NaN. */
static const float mark = 0x1.5a5a5ap-4f;
static const char what[] = "the check of own functions";

static size_t floats_of(const lk_op_guarded *g)
{
    return g->room + 2 * GUARD;
}

lk_status lk__op_guarded_init(lk_device *dev, const char *name, size_t room, lk_op_guarded *g)
{
    *g = (lk_op_guarded){.room = room, .first = GUARD};
    snprintf(g->name, sizeof g->name, "%s", name);
    LK_TRY(LK_ALLOC(floats_of(g), what, &g->put));
    LK_TRY(LK_ALLOC(floats_of(g), what, &g->seen));
    return dev->type->alloc(dev, floats_of(g) * sizeof *g->block, what, (void **)&g->block);
}

void lk__op_guarded_fini(lk_device *dev, lk_op_guarded *g)
{
    lk__mem_free(g->put);
    lk__mem_free(g->seen);
    if (g->block)
        dev->type->free(dev, g->block);
}

static lk_status upload(lk_device *dev, const lk_op_guarded *g)
{
    return dev->type->upload(dev, g->put, floats_of(g) * sizeof *g->put, g->block);
}

/* Fills everything with the mark. */
static void begin(lk_op_guarded *g, size_t count, size_t shift)
{
    g->first = GUARD - shift;
    g->count = count;
    for (size_t i = 0; i < floats_of(g); i++)
        g->put[i] = mark;
}

lk_status lk__op_guarded_put(lk_device *dev, lk_op_guarded *g, const float *values, size_t count, size_t shift)
{
    begin(g, count, shift);
    memcpy(g->put + g->first, values, count * sizeof *values);
    return upload(dev, g);
}

lk_status lk__op_guarded_fill(lk_device *dev, lk_op_guarded *g, float value, size_t count)
{
    begin(g, count, 0);
    for (size_t i = 0; i < count; i++)
        g->put[g->first + i] = value;
    return upload(dev, g);
}

float *lk__op_guarded_at(const lk_op_guarded *g)
{
    return g->block + g->first;
}

const float *lk__op_guarded_seen(const lk_op_guarded *g)
{
    return g->seen + g->first;
}

static lk_status fail_at(const lk_op_guarded *g, size_t i, const char *who)
{
    size_t end = g->first + g->count;
    bool before = i < g->first, after = i >= end;
    if (!before && !after)
        return lk__fail(LK_STATUS_MISMATCH, "%s has changed element %zu of %s from %.9g to %.9g; it may only read %s",
                        who, i - g->first, g->name, (double)g->put[i], (double)g->seen[i], g->name);
    return lk__fail(LK_STATUS_MISMATCH, "%s has written %.9g outside of %s, which has %zu floats: %zu float%s %s", who,
                    (double)g->seen[i], g->name, g->count, before ? g->first - i : i - end + 1,
                    (before ? g->first - i : i - end + 1) == 1 ? "" : "s",
                    before ? "before its first one" : "after its last one");
}

lk_status lk__op_guarded_check(lk_device *dev, lk_op_guarded *g, const char *who, bool written)
{
    LK_TRY(dev->type->download(dev, g->block, floats_of(g) * sizeof *g->seen, g->seen));
    for (size_t i = 0; i < floats_of(g); i++) {
        bool inside = i >= g->first && i < g->first + g->count;
        if ((written && inside) || memcmp(&g->put[i], &g->seen[i], sizeof *g->seen) == 0)
            continue;
        return fail_at(g, i, who);
    }
    return LK_OK;
}
