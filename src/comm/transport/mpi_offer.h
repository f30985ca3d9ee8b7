/* mpi_offer.h - what the ranks of a group tell each other before they use MPI, and what follows from it. */
#ifndef LK_COMM_TRANSPORT_MPI_OFFER_H
#define LK_COMM_TRANSPORT_MPI_OFFER_H

#include "comm/mpi/mpi.h"
#include "comm/transport/doorbell.h"
#include "comm/transport/transport.h"

typedef struct lk_mpi_offer {
    int32_t rank, size; /* MPI's */
    uint64_t cpus[LK_CPU_WORDS];
} lk_mpi_offer;

/* USAGE, the same at all ranks, if the ranks are not in one MPI job, or a group of all ranks lacks processes of it.
 * all (boot->size). */
lk_status lk__mpi_offer_check(const lk_boot *boot, const lk_mpi_place *place, const lk_mpi_offer *all) LK_CHECKED;
/* Whether this host has more ranks of the group than cores. */
bool lk__mpi_offer_crowded(const lk_boot *boot, const lk_mpi_offer *all);
/* The index of a rank among those of its process, and the largest number of ranks of one process. */
int lk__mpi_offer_index(const lk_mpi_offer *all, int rank);
int lk__mpi_offer_most(const lk_mpi_offer *all, int size);

#endif
