/* ours.h - a group of simulated ranks: Lockstep's programs, steps and MPI transport, without the control.
 *
 * There is no server and no thread: a rank alone in its process asks the other ranks by MPI's own calls, and
 * the rank that calls a sum is also the rank that runs it. */
#ifndef LK_BENCH_SCALE_OURS_H
#define LK_BENCH_SCALE_OURS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct scale_ours scale_ours;

typedef struct scale_ours_opts {
    int rank, size;
    int local;        /* ranks on each host */
    double fold_rate; /* bytes of results for each second of folding; 0: sums are really computed */
    bool direct;      /* one segment for each rank, whatever the number of hosts */
} scale_ours_opts;

/* Collective. Ends the run when it fails, as all functions here do. */
scale_ours *scale_ours_open(const scale_ours_opts *opts);
void scale_ours_close(scale_ours *ours);
/* Starts the sum of `count` floats. The sums of a group run in the order of their starts. */
void scale_ours_start(scale_ours *ours, float *data, size_t count);
/* Moves what can be moved; does not block. Returns whether sums are still under way. */
bool scale_ours_poll(scale_ours *ours);
/* Blocks until all sums are done. */
void scale_ours_wait(scale_ours *ours);

#endif
