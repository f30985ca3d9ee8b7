/* guess.h - predicts the next frame between two ranks from the frames before it. Pure.
 *
 * Training repeats itself: after a frame of some shape usually comes the frame that came after it the last time, with
 * the same distance between their numbers. Sender and receiver of a pair add the same frames in the same order, so
 * both predict the same frame, and the sender need not send a header that the receiver already has. */
#ifndef LK_COMM_TRANSPORT_GUESS_H
#define LK_COMM_TRANSPORT_GUESS_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/transport/transport.h"

enum { LK_FRAME_SHAPES = 64 };

/* A frame that came after another one, and how much larger its call's number was. */
typedef struct lk_frame_successor {
    bool known;
    uint32_t step;
    lk_frame frame;
} lk_frame_successor;

/* One direction of a pair. Zeros: no frame yet. */
typedef struct lk_frame_guess {
    unsigned shape;  /* of the last frame */
    uint32_t number; /* of the last frame's call */
    lk_frame_successor after[LK_FRAME_SHAPES];
} lk_frame_guess;

/* The predicted frame; NULL: none. Borrowed until the next add. */
const lk_frame *lk__frame_guess(const lk_frame_guess *guess);
void lk__frame_guess_add(lk_frame_guess *guess, const lk_frame *frame);
bool lk__frame_same(const lk_frame *a, const lk_frame *b);

#endif
