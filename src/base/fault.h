/* fault.h - faults on request, for tests and drills: $LOCKSTEP_FAULT.
 *
 * The variable has faults with ';' between them, each "action:key=value,...":
 *   kill, stop     SIGKILL or SIGSTOP to this process
 *   delay          seconds=S: sleeps
 *   write          a write (create, write, sync, rename ...) fails as on a full disk
 *   alloc          an allocation fails
 *   flip           a bit is inverted: of a parameter (op=step, the default), or of a byte
 *                  on its way into a file (op=save)
 * and where it strikes, all of which must hold:
 *   rank=R         at this rank; at any
 *   step=N         in this step of the run, from 1; in any
 *   op=NAME        where this operation begins, or at a write or an allocation inside it:
 *                  step, eval, save, load, or a call of the group (allreduce, broadcast
 *                  ...); in any
 *   restart=K      in a job that was started again K times (--max-restarts); in any
 *   nth=K          the Kth time that the rest holds; the first. Faults strike once.
 * A rank is a thread: its place is thread-local, and its process's rank and step 0
 * until it is set. */
#ifndef LK_BASE_FAULT_H
#define LK_BASE_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Reads the variable, once for the process. USAGE, with the place in the text,
 * where it is malformed: a fault that never strikes would make a test that cannot
 * fail. */
lk_status lk__fault_load(void) LK_CHECKED;
/* What was asked for, "" for nothing: the program says so. */
const char *lk__fault_text(void);

extern atomic_bool lk__fault_on;

/* One load, where faults are off. */
static inline bool lk__fault_is_on(void)
{
    return atomic_load_explicit(&lk__fault_on, memory_order_relaxed);
}

/* This thread's place. A thread that works for another takes over that one's.
 * enter returns the operation that it was inside, for leave; it still is, unless
 * set_place comes in between. Names are not copied. */
typedef struct lk_fault_site {
    int rank; /* -1: the process's */
    uint64_t step;
    const char *op; /* NULL: none */
} lk_fault_site;
lk_fault_site lk__fault_site(void);
void lk__fault_set_site(lk_fault_site place);
/* The rank of threads that have none: at first $RANK, or 0. -1 where the process is
 * no rank, as a launcher: then nothing strikes. What a launcher forks becomes a rank
 * by this call, and counts anew. */
void lk__fault_set_process(int rank);
const char *lk__fault_enter(const char *op);
void lk__fault_leave(const char *before);

/* Out of line, where faults are on. */
void lk__fault_strike(const char *op);
bool lk__fault_fails_write(void);
bool lk__fault_fails_alloc(void);
bool lk__fault_flips(const char *op, size_t bits, size_t *bit);

/* A point at which kill, stop and delay may strike: the operation `op` begins. */
static inline void lk__fault_point(const char *op)
{
    if (lk__fault_is_on())
        lk__fault_strike(op);
}

/* Whether the write at hand shall fail, with errno set to ENOSPC; kill, stop and
 * delay may strike here, too. */
static inline bool lk__fault_write(void)
{
    return lk__fault_is_on() && lk__fault_fails_write();
}

static inline bool lk__fault_alloc(void)
{
    return lk__fault_is_on() && lk__fault_fails_alloc();
}

/* Whether a bit shall be inverted here, of `bits` there are, and which: the fault's
 * bit=B modulo bits, else one in the middle: of floats, a sign. */
static inline bool lk__fault_flip(const char *op, size_t bits, size_t *bit)
{
    return lk__fault_is_on() && bits > 0 && lk__fault_flips(op, bits, bit);
}

#endif
