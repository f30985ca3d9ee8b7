/* guess.c - a table of successors, indexed by a few bits of the shape of the frame before. Two shapes with the same
 * bits only make predictions worse. */
#include "comm/transport/guess.h"

_Static_assert(LK_FRAME_SHAPES == 1 << (64 - 58), "the upper bits of a word are an index");

/* A frame without its number. The multiplier spreads sizes, which are often powers of two, over the upper bits. */
static unsigned shape_of(const lk_frame *frame)
{
    static const uint64_t spread = 0x9e3779b97f4a7c15u;
    uint64_t word = (frame->bytes * spread) ^ frame->call.count;
    word = (word * spread) ^ frame->call.detail ^ ((uint64_t)frame->part << 8) ^ frame->call.kind;
    return (unsigned)((word * spread) >> 58);
}

const lk_frame *lk__frame_guess(const lk_frame_guess *guess)
{
    const lk_frame_successor *next = &guess->after[guess->shape];
    return next->known ? &next->frame : NULL;
}

void lk__frame_guess_add(lk_frame_guess *guess, const lk_frame *frame)
{
    lk_frame_successor *last = &guess->after[guess->shape];
    last->known = true;
    last->step = frame->call.number - guess->number;
    last->frame = *frame;
    guess->number = frame->call.number;
    guess->shape = shape_of(frame);
    lk_frame_successor *next = &guess->after[guess->shape];
    next->frame.call.number = guess->number + next->step;
}

bool lk__frame_same(const lk_frame *a, const lk_frame *b)
{
    return a->bytes == b->bytes && a->part == b->part && lk__call_same(&a->call, &b->call);
}
