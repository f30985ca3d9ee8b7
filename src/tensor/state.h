/* state.h - what the library's other modules need of a state dict beside lockstep/state.h. */
#ifndef LK_TENSOR_STATE_H
#define LK_TENSOR_STATE_H

#include <lockstep/state.h>

#include "base/status.h"

/* If status is LK_OK, writes the state to *out, which owns it then; otherwise destroys the state. Returns status. */
lk_status lk__state_hand_over(lk_status status, lk_state *state, lk_state **out) LK_CHECKED;

/* The hash of a tensor's name, type, shape and bytes. The seed covers all but the bytes. */
uint64_t lk__state_entry_seed(const lk_state_entry *entry);
uint64_t lk__state_entry_hash(const lk_state_entry *entry);

/* Computes the bytes of a tensor: 0 if one dimension is 0, however large the others are. false, and bytes is not
 * written, if they are more than size_t can count. */
bool lk__dtype_count_bytes(lk_dtype dtype, int ndim, const size_t *dims, size_t *bytes);

#endif
