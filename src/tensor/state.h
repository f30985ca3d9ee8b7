/* state.h - what the library's other modules need of a state dict beside lockstep/state.h. */
#ifndef LK_TENSOR_STATE_H
#define LK_TENSOR_STATE_H

#include <lockstep/state.h>

#include "base/status.h"

/* If status is LK_OK, writes the state to *out, which owns it then; otherwise destroys the state. Returns status. */
lk_status lk__state_hand_over(lk_status status, lk_state *state, lk_state **out) LK_CHECKED;

#endif
