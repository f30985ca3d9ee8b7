/* fit.h - checks, before anything is allocated, whether the ranks of a host fit into its memory, and finds
 * options that make them fit. */
#ifndef LK_PARALLEL_MEMORY_FIT_H
#define LK_PARALLEL_MEMORY_FIT_H

#include "base/available.h"
#include "parallel/memory/memory.h"

/* Collective if the rank has a world. Must be called before any rank allocates; `available` must have been
 * read before that, too. Compares only memory that the engine certainly uses, so a run that may fit is
 * not refused. The lowest rank that lacks memory returns MEMORY, with amounts and advice; the other ranks
 * wait for it to abort the job and return PEER. */
lk_status lk__fit_check(const lk_engine_rank_model *rank, const lk_available *available) LK_CHECKED;

/* After a failed allocation: adds the rank's needs and advice to the detail; returns MEMORY. */
lk_status lk__fit_explain(const lk_engine_rank_model *rank) LK_CHECKED;

/* A lack of memory of ranks that all need as much as this one. */
typedef struct lk_fit_shortage {
    size_t room;  /* bytes that are available */
    int ranks;    /* ranks that share these bytes */
    bool process; /* the limit holds for one process; false: for the host */
    int peers;    /* ranks of other processes, whose gradients this process maps as well */
} lk_fit_shortage;

enum { LK_FIT_TEXT = 768 };

/* The parts of a size, largest first: "2.9 GB for activations of 512 samples, ...". */
void lk__fit_parts(const lk_engine_size *size, char text[LK_FIT_TEXT]);
/* Writes options with which the rank fits, each with the memory that it then needs, and whether it gives another
 * result: "`micro_batch` 64 (0.3 GB a rank)", "`precision` bf16 (1.1 GB a rank, another result)". Returns false, with
 * the text "", if there are none. The calling thread must be the only one that uses the rank's device. */
bool lk__fit_advice(const lk_engine_rank_model *rank, const lk_fit_shortage *shortage, char text[LK_FIT_TEXT]);

#endif
