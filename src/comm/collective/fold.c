/* fold.c - merges partial sums over the tree of shards.
 *
 * A plan has a list of steps for each output: push an input, or merge the two topmost entries. A run does all
 * steps for one block of elements, then for the next block, so that the stack stays in the nearest cache. The
 * last merge of an output writes to the output itself. The blocks of the stack are in host memory. */
#include "comm/collective/fold.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/tree.h"
#include "comm/collective/reduction.h"

enum { BLOCK_BYTES = 8192 };

typedef struct part {
    lk_schedule_subtree tree;
    int input;
} part;

struct lk_fold_plan {
    int in_count, out_count;
    int *steps;      /* indices of inputs, or LK_FOLD_MERGE */
    int *begin;      /* (out_count + 1) first step of each output */
    int *owner;      /* (in_count) the output that contains the input */
    uint8_t *blocks; /* (depth + out_count, BLOCK_BYTES) */
    int depth;       /* largest height of the stack */
};

/* Writes the steps of one output after the other, taking parts from left to right. */
typedef struct compiler {
    lk_fold_plan *plan;
    const part *parts; /* (plan->in_count) in the order of their first shard */
    int next, step, height, output;
} compiler;

static int by_first(const void *a, const void *b)
{
    const part *left = a, *right = b;
    return (left->tree.first > right->tree.first) - (left->tree.first < right->tree.first);
}

static bool at_hand(const compiler *c, lk_schedule_subtree tree)
{
    if (c->next == c->plan->in_count)
        return false;
    lk_schedule_subtree next = c->parts[c->next].tree;
    return next.first == tree.first && next.last == tree.last;
}

static lk_status compile(compiler *c, lk_schedule_subtree tree)
{
    lk_fold_plan *plan = c->plan;
    if (at_hand(c, tree)) {
        int input = c->parts[c->next++].input;
        plan->steps[c->step++] = input;
        plan->owner[input] = c->output;
        c->height++;
        plan->depth = c->height > plan->depth ? c->height : plan->depth;
        return LK_OK;
    }
    if (tree.last - tree.first < 2)
        return lk__fail(LK_STATUS_USAGE,
                        "shard %d is in none of the partial sums of the ranks: each shard must be in one", tree.first);
    int middle = lk__tree_middle(tree.first, tree.last);
    LK_TRY(compile(c, (lk_schedule_subtree){tree.first, middle}));
    LK_TRY(compile(c, (lk_schedule_subtree){middle, tree.last}));
    plan->steps[c->step++] = LK_FOLD_MERGE;
    c->height--;
    return LK_OK;
}

static lk_status compile_all(lk_fold_plan *plan, const part *parts, const lk_schedule_subtree *outputs)
{
    compiler c = {.plan = plan, .parts = parts};
    for (int i = 0; i < plan->out_count; i++) {
        /* Outputs are disjoint, in any order. */
        c.next = 0;
        while (c.next < plan->in_count && parts[c.next].tree.first < outputs[i].first)
            c.next++;
        c.height = 0;
        c.output = i;
        plan->begin[i] = c.step;
        LK_TRY(compile(&c, outputs[i]));
    }
    plan->begin[plan->out_count] = c.step;
    return LK_OK;
}

static lk_status fill(lk_fold_plan *plan, const lk_schedule_subtree *inputs, const lk_schedule_subtree *outputs)
{
    size_t in_count = (size_t)plan->in_count, out_count = (size_t)plan->out_count;
    LK_TRY(LK_ALLOC(2 * in_count, "a fold plan", &plan->steps));
    LK_TRY(LK_ALLOC(out_count + 1, "a fold plan", &plan->begin));
    LK_TRY(LK_ALLOC(in_count, "a fold plan", &plan->owner));
    part *parts;
    LK_TRY(LK_ALLOC(in_count, "a fold plan", &parts));
    for (int i = 0; i < plan->in_count; i++) {
        parts[i] = (part){inputs[i], i};
        plan->owner[i] = -1;
    }
    if (in_count)
        qsort(parts, in_count, sizeof *parts, by_first);
    lk_status status = compile_all(plan, parts, outputs);
    lk__mem_free(parts);
    LK_TRY(status);
    return LK_ALLOC(((size_t)plan->depth + out_count) * BLOCK_BYTES, "blocks of a fold", &plan->blocks);
}

lk_status lk__fold_plan_create(int shards, const lk_schedule_subtree *inputs, int in_count,
                               const lk_schedule_subtree *outputs, int out_count, lk_fold_plan **out)
{
    for (int i = 0; i < out_count; i++)
        assert(0 <= outputs[i].first && outputs[i].first < outputs[i].last && outputs[i].last <= shards);
    (void)shards;
    lk_fold_plan *plan;
    LK_TRY(LK_ALLOC(1, "a fold plan", &plan));
    *plan = (lk_fold_plan){.in_count = in_count, .out_count = out_count};
    lk_status status;
    LK_TRY_GOTO(fill(plan, inputs, outputs), destroy_plan);
    *out = plan;
    return LK_OK;
destroy_plan:
    lk__fold_plan_destroy(plan);
    return status;
}

void lk__fold_plan_destroy(lk_fold_plan *plan)
{
    if (!plan)
        return;
    lk__mem_free(plan->steps);
    lk__mem_free(plan->begin);
    lk__mem_free(plan->owner);
    lk__mem_free(plan->blocks);
    lk__mem_free(plan);
}

const int *lk__fold_plan_steps(const lk_fold_plan *plan, int output, int *count)
{
    *count = plan->begin[output + 1] - plan->begin[output];
    return plan->steps + plan->begin[output];
}

/* Elements [first, first+count) of all vectors. */
typedef struct block {
    const lk_fold *fold;
    size_t size; /* bytes of an element */
    size_t first, count;
    bool divide;
} block;

static void run_output(const lk_fold_plan *plan, const block *b, int output, void *to)
{
    const lk_kernels *kernels = b->fold->device->kernels;
    const void *stack[LK_TREE_MAX_DEPTH];
    int height = 0, count;
    const int *steps = lk__fold_plan_steps(plan, output, &count);
    for (int i = 0; i < count; i++) {
        if (steps[i] != LK_FOLD_MERGE) {
            stack[height++] = (const uint8_t *)b->fold->inputs[steps[i]] + b->first * b->size;
            continue;
        }
        height--;
        bool final = i + 1 == count;
        void *sum = final ? to : plan->blocks + (size_t)(height - 1) * BLOCK_BYTES;
        lk__reduction_run(&(lk_reduction_run){.device = b->fold->device,
                                              .dtype = b->fold->dtype,
                                              .op = b->fold->op,
                                              .count = b->count,
                                              .left = stack[height - 1],
                                              .right = stack[height],
                                              .out = sum});
        stack[height - 1] = sum;
    }
    if (stack[0] != to)
        kernels->copy_bytes(b->fold->device, b->count * b->size, stack[0], to);
    if (b->divide)
        kernels->divide(b->fold->device, b->fold->dtype, b->count, b->fold->divisor, to);
}

/* Whether an output overwrites an input that a later output needs. */
static bool clobbers(const lk_fold_plan *plan, const lk_fold *fold)
{
    for (int o = 0; o + 1 < plan->out_count; o++) {
        for (int i = 0; i < plan->in_count; i++) {
            if (plan->owner[i] > o && fold->inputs[i] == fold->outputs[o])
                return true;
        }
    }
    return false;
}

static void run_block(const lk_fold_plan *plan, const block *b, bool buffered)
{
    uint8_t *buffer = plan->blocks + (size_t)plan->depth * BLOCK_BYTES; /* (out_count, BLOCK_BYTES) */
    const lk_fold *fold = b->fold;
    for (int o = 0; o < plan->out_count; o++) {
        uint8_t *to = (uint8_t *)fold->outputs[o] + b->first * b->size;
        run_output(plan, b, o, buffered ? buffer + (size_t)o * BLOCK_BYTES : to);
    }
    for (int o = 0; o < plan->out_count && buffered; o++) {
        uint8_t *to = (uint8_t *)fold->outputs[o] + b->first * b->size;
        fold->device->kernels->copy_bytes(fold->device, b->count * b->size, buffer + (size_t)o * BLOCK_BYTES, to);
    }
}

void lk__fold_run(const lk_fold_plan *plan, const lk_fold *fold)
{
    block b = {.fold = fold, .size = lk_dtype_size(fold->dtype)};
    b.divide = fold->last && fold->op == LK_REDUCTION_MEAN && fold->divisor != 1;
    bool buffered = clobbers(plan, fold);
    /* At most one merge, written to the output: nothing has to stay in the cache. */
    bool whole = plan->out_count == 1 && plan->begin[1] <= 3 && !b.divide;
    size_t most = whole ? fold->count : BLOCK_BYTES / b.size;
    for (; b.first < fold->count; b.first += b.count) {
        b.count = lk__size_min(most, fold->count - b.first);
        run_block(plan, &b, buffered);
    }
}
