/* fault.h - faults on request, for tests and drills: $LOCKSTEP_FAULT.
 *
 * The variable has faults separated by ';', each "action:key=value,...". The actions:
 *   kill, stop     sends SIGKILL or SIGSTOP to this process
 *   delay          sleeps; seconds=S
 *   slow           sleeps every time that a part of a step begins: op=data (a batch is made), forward,
 *                  backward (of a wave) or update; seconds=S
 *   write          makes a write (create, write, sync, rename ...) fail as on a full disk
 *   alloc          makes an allocation fail
 *   flip           inverts a bit of a parameter (op=step, the default), or of a byte that is written
 *                  to a file (op=save)
 * These keys say where a fault strikes. All must hold; a missing key allows any:
 *   rank=R         this rank
 *   step=N         this step of the run, from 1
 *   op=NAME        the start of this operation, or a write or an allocation inside it: step, eval,
 *                  save, load, record (a write to a run folder), read (of a data file), or a call of the
 *                  group (allreduce, broadcast ...)
 *   restart=K      a job that was restarted K times (--max-restarts)
 *   nth=K          the Kth time that the other keys hold; default 1. A fault strikes once; slow strikes
 *                  from the Kth time on.
 * A rank may be a thread, so the site is thread-local. Until it is set, it has the process's rank
 * and step 0. */
#ifndef LK_BASE_FAULT_H
#define LK_BASE_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Reads the variable once for the process. USAGE, with the position in the text, if it is
 * malformed: otherwise a test whose fault never strikes would pass. */
lk_status lk__fault_load(void) LK_CHECKED;
/* The text of the variable, "" without faults; the program prints it. */
const char *lk__fault_text(void);

/* A fault of the variable. */
typedef struct lk_fault_info {
    const char *text; /* in the variable, without end */
    int length;       /* of text */
    int rank;         /* -1: any */
    bool struck;      /* in this process */
    bool earlier;     /* the job was restarted: the fault may have struck in a process before this one */
} lk_fault_info;
/* The faults in the order of the variable; false after the last. */
bool lk__fault_at(size_t index, lk_fault_info *out);

extern atomic_bool lk__fault_on;

/* Costs one load while faults are off. */
static inline bool lk__fault_is_on(void)
{
    return atomic_load_explicit(&lk__fault_on, memory_order_relaxed);
}

/* The site of this thread: where its faults can strike. A thread that works for another one copies
 * that thread's site. lk__fault_enter returns the operation that the thread was inside, for
 * lk__fault_leave. `op` is not copied. */
typedef struct lk_fault_site {
    int rank; /* -1: the rank of the process */
    uint64_t step;
    const char *op; /* NULL: none */
} lk_fault_site;
lk_fault_site lk__fault_site(void);
void lk__fault_set_site(lk_fault_site site);
/* Sets the rank of threads without one; at first it is $RANK, or 0. -1: the process is no rank (a
 * launcher), so nothing strikes. A process that a launcher forks becomes a rank by this call, and
 * its counts start again. */
void lk__fault_set_process(int rank);
const char *lk__fault_enter(const char *op);
void lk__fault_leave(const char *before);

/* Called only while faults are on. */
void lk__fault_strike(const char *op);
bool lk__fault_fails_write(void);
bool lk__fault_fails_alloc(void);
bool lk__fault_flips(const char *op, size_t bits, size_t *bit);
void lk__fault_slows(const char *op);

/* The operation `op` begins: kill, stop and delay can strike. */
static inline void lk__fault_point(const char *op)
{
    if (lk__fault_is_on())
        lk__fault_strike(op);
}

/* A part of a step begins: only slow can strike. */
static inline void lk__fault_work(const char *op)
{
    if (lk__fault_is_on())
        lk__fault_slows(op);
}

/* Whether this write shall fail, with errno set to ENOSPC; kill, stop and delay can strike, too. */
static inline bool lk__fault_write(void)
{
    return lk__fault_is_on() && lk__fault_fails_write();
}

static inline bool lk__fault_alloc(void)
{
    return lk__fault_is_on() && lk__fault_fails_alloc();
}

/* Whether one of `bits` bits shall be inverted, and which one: the fault's bit=B modulo bits, else
 * one in the middle, for floats a sign bit. */
static inline bool lk__fault_flip(const char *op, size_t bits, size_t *bit)
{
    return lk__fault_is_on() && bits > 0 && lk__fault_flips(op, bits, bit);
}

#endif
