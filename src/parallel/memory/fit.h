/* fit.h - whether the memory of a rank is there before it is asked for, and what
 * to change where it is not. */
#ifndef LK_PARALLEL_MEMORY_FIT_H
#define LK_PARALLEL_MEMORY_FIT_H

#include "base/available.h"
#include "parallel/memory/memory.h"

/* Together, where the rank has a world, and before any rank allocates; available
 * must have been read before, too. A run that may fit is not refused: what is
 * compared is what the engine is sure to use. MEMORY at the lowest rank that lacks
 * memory, with amounts and advice; PEER at the others, once that one has told
 * them. */
lk_status lk__fit_check(const lk_engine_rank_model *rank, const lk_available *available) LK_CHECKED;

/* Adds to the detail of an allocation that failed what the rank needs and what to
 * change; returns MEMORY. */
lk_status lk__fit_explain(const lk_engine_rank_model *rank) LK_CHECKED;

/* Memory that is too little for ranks that are all like this one. */
typedef struct lk_fit_shortage {
    size_t room;  /* bytes that there are */
    int ranks;    /* that share them */
    bool process; /* the limit is a process's own, others have theirs */
    int peers;    /* ranks whose gradients a process maps beside its own */
} lk_fit_shortage;

enum { LK_FIT_TEXT = 512, LK_AMOUNT_TEXT = 32 };

/* Bytes as "1.5 GB" or "37.8 MB"; returns text. */
const char *lk__fit_amount(size_t bytes, char text[LK_AMOUNT_TEXT]);

/* The parts of a size, largest first: "2.9 GB for activations of 512 samples, ...". */
void lk__fit_parts(const lk_engine_size *size, char text[LK_FIT_TEXT]);
/* Options that would make the rank fit, found by measuring again with them:
 * "`micro_batch` 64 needs 0.3 GB". False, and "", where there are none. */
bool lk__fit_advice(const lk_engine_rank_model *rank, const lk_fit_shortage *shortage, char text[LK_FIT_TEXT]);

#endif
