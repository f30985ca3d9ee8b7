/* outputs.h - the values of nodes that an engine gives to its caller: the input of the loss (the scores), and the nodes
 * of lk_engine_opts.outputs.
 *
 * After each piece of a forward pass, the stage that has a node copies its values to the caller's memory; at the end
 * the ranks gather the rows of all replicas. */
#ifndef LK_PARALLEL_STEP_OUTPUTS_H
#define LK_PARALLEL_STEP_OUTPUTS_H

#include "parallel/step/engine_impl.h"

/* Finds the nodes. names and stages: of lk_engine_opts; either may be NULL. ranks: of the job. */
lk_status lk__engine_outputs_create(const lk_graph *graph, const char *names, const char *stages, int ranks,
                                    lk_engine_outputs **out) LK_CHECKED;
void lk__engine_outputs_destroy(lk_engine_outputs *outputs);

/* (layers of the graph) whether a layer is a named output; borrowed, for lk_plan_opts.kept. NULL: none is. */
const bool *lk__engine_outputs_kept(const lk_engine_outputs *outputs);
/* Floats of a sample; 0 if there is no such output. */
size_t lk__engine_outputs_floats(const lk_engine_outputs *outputs, const char *node);
/* USAGE if nothing is wanted, a node is no output, or there is no memory for one. */
lk_status lk__engine_outputs_check(const lk_engine_outputs *outputs, const lk_engine_wanted *wanted) LK_CHECKED;

/* Before a pass: allocates the staging buffer, at the first call. */
lk_status lk__engine_outputs_prepare(lk_engine *engine) LK_CHECKED;
/* Copies the values of samples [begin, begin + n) of the part, which have just passed forward, to the rows of
 * part->wanted; only of nodes that this stage has. */
lk_status lk__engine_outputs_fetch(lk_engine *engine, const lk_engine_part *part, size_t begin, size_t n) LK_CHECKED;
/* Collective: after all pieces, gathers the rows of all ranks. */
lk_status lk__engine_outputs_share(lk_engine *engine, const lk_engine_part *part) LK_CHECKED;

#endif
