/* safetensors.h - parts of reading and writing .safetensors files, for checkpoints. */
#ifndef LK_IO_SAFETENSORS_H
#define LK_IO_SAFETENSORS_H

#include <lockstep/state.h>

#include "base/file.h"
#include "io/state_source.h"

/* Calls visit for each tensor of a file, in the order of the file. Entries are borrowed and have
 * no data. */
typedef void (*lk_safetensors_fn)(void *arg, const lk_state_entry *entry);
lk_status lk__safetensors_list(const lk_state_source *in, lk_safetensors_fn visit, void *arg) LK_CHECKED;

/* Writes the content of a .safetensors file; path is for messages. */
lk_status lk__safetensors_write(const lk_state *state, const char *path, lk_writer *writer) LK_CHECKED;
/* The order of the tensors in such a file; sorted has room for all. */
void lk__safetensors_order(const lk_state *state, const lk_state_entry **sorted);

#endif
