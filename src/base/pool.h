/* pool.h - a fixed set of threads that run the tasks of an index range together.
 *
 * Which thread runs which task is not determined. So a task of a kernel owns outputs, or whole subtrees
 * of the sum tree (tree.h); no task splits a leaf. Each thread begins with its own share of the index
 * range: the same share in every run of as many tasks. So a task mostly finds its data in the cache of
 * the core that wrote them. */
#ifndef LK_BASE_POOL_H
#define LK_BASE_POOL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct lk_pool lk_pool;

/* threads includes the caller: 1 starts none. crowded: the threads of all ranks here outnumber the
 * cores. */
lk_status lk__pool_create(int threads, bool crowded, lk_pool **out) LK_CHECKED;
void lk__pool_destroy(lk_pool *pool);
int lk__pool_threads(const lk_pool *pool);
/* Whether waiting threads spin before they sleep: only if every thread has a core. */
bool lk__pool_spins(const lk_pool *pool);

/* Runs task(arg, index, thread) once for every index in [0,tasks), on the caller and on the threads
 * that are free, and returns when all are done. thread is in [0,threads); no two running tasks share
 * it, so it may index scratch memory. Tasks must not call lk__pool_run of the same pool, and must not
 * wait for each other: where help has not paid (payoff.h), the caller does all of them. */
typedef void (*lk_pool_fn)(void *arg, size_t index, int thread);
void lk__pool_run(lk_pool *pool, size_t tasks, lk_pool_fn task, void *arg);
/* The same, but each thread does the tasks of its part from the last to the first: what the run
 * before wrote last is still in a near cache. */
void lk__pool_run_backwards(lk_pool *pool, size_t tasks, lk_pool_fn task, void *arg);

#endif
