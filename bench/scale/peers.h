/* peers.h - what Lockstep's sums are compared with: a ring, and the algorithm that MPI selects. Neither follows
 * the tree of the shards, so their bits depend on the number of ranks. */
#ifndef LK_BENCH_SCALE_PEERS_H
#define LK_BENCH_SCALE_PEERS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct scale_peer {
    void (*sum)(float *data, size_t count);
} scale_peer;

/* "ring" or "mpi"; returns false for another name. fold_rate: as of scale_ours. */
bool scale_peer_open(const char *name, double fold_rate, scale_peer *out);
/* Blocks until the sum is done. */
void scale_peer_sum(const scale_peer *peer, float *data, size_t count);

#endif
