/* mpi_open.c - opens and closes the MPI transport: starts MPI, agrees on tags, and gives memory back. */
#include <string.h>

#include "base/mem.h"
#include "comm/mpi/load.h"
#include "comm/mpi/session.h"
#include "comm/transport/doorbell.h"
#include "comm/transport/mpi_offer.h"
#include "comm/transport/mpi_state.h"
#include "comm/transport/tcp.h"

/* Moves an array to a larger block. */
static lk_status enlarge(void **array, size_t element, size_t used, size_t room)
{
    void *more = NULL;
    LK_TRY(lk__mem_alloc(room, element, "messages under way", &more));
    if (used > 0)
        memcpy(more, *array, used * element);
    lk__mem_free(*array);
    *array = more;
    return LK_OK;
}

lk_status lk__mpi_transport_room(lk_mpi_transport *t, int more)
{
    int room = t->room ? t->room : 64;
    size_t used = (size_t)t->count;
    while (room < t->count + more)
        room *= 2;
    if (room == t->room)
        return LK_OK;
    LK_TRY(enlarge((void **)&t->requests, sizeof *t->requests, used, (size_t)room));
    LK_TRY(enlarge((void **)&t->lives, sizeof *t->lives, used, (size_t)room));
    LK_TRY(enlarge((void **)&t->done, sizeof *t->done, 0, (size_t)room));
    t->room = room;
    return LK_OK;
}

/* MPI has ended too early, and may still refer to the memory. */
static void leave_memory(lk_mpi_transport *t)
{
    for (int r = 0; t->peers && r < t->size; r++)
        t->peers[r].buffer = t->peers[r].spare = NULL;
}

/* Gives up what is under way. Only the receives of the next headers are, except after a failure. A buffer that MPI may
 * still write to is left to MPI. */
static void give_up_lives(lk_mpi_transport *t)
{
    bool sends = false;
    if (t->world && !lk__mpi_world_runs(t->world)) {
        leave_memory(t);
        return;
    }
    lk__mpi_lock();
    for (int i = 0; i < t->count; i++) {
        lk_mpi_peer *peer = &t->peers[t->lives[i].peer];
        if (t->lives[i].slot != LK_MPI_NO_SLOT)
            sends = true;
        else if (!t->mpi->cancel(&t->requests[i]) && peer->state == LK_MPI_INBOX_ASKED)
            peer->buffer = peer->spare = NULL;
    }
    if (t->set && !sends)
        t->mpi->sum_close(&t->set);
    lk__mpi_unlock();
    if (sends && !t->world)
        lk__mpi_mark_failed();
}

/* Memory that MPI may still use is not freed. That happens only after a failure. */
void lk__mpi_transport_close(lk_transport *transport)
{
    lk_mpi_transport *t = (lk_mpi_transport *)transport;
    if (!t)
        return;
    give_up_lives(t);
    for (int r = 0; t->peers && r < t->size; r++) {
        lk__mem_free(t->peers[r].buffer);
        lk__mem_free(t->peers[r].spare);
    }
    for (int i = 0; i < LK_MPI_TICKETS; i++)
        if (t->slots[i].left == 0)
            lk__mem_free(t->slots[i].stage);
    lk__mem_free(t->peers);
    lk__mem_free(t->members);
    lk__mem_free(t->requests);
    lk__mem_free(t->lives);
    lk__mem_free(t->done);
    lk__mem_free(t);
}

static lk_status make(const lk_boot *boot, lk_mpi_transport **out)
{
    lk_mpi_transport *t = NULL;
    lk_tcp_checksum checksum = LK_TCP_CHECKSUM_HOSTS;
    lk_status status;
    LK_TRY(lk__tcp_checksum(&checksum));
    LK_TRY(LK_ALLOC(1, "an MPI transport", &t));
    t->base.type = &lk__transport_mpi;
    t->rank = boot->rank;
    t->timeout = boot->timeout;
    t->size = boot->size;
    t->garbage = -1;
    t->sums = checksum == LK_TCP_CHECKSUM_ALL;
    for (int i = 0; i < LK_MPI_TICKETS; i++)
        t->slots[i].next = i + 1;
    LK_TRY_GOTO(lk__mpi_transport_room(t, 2 * boot->size), close_transport);
    LK_TRY_GOTO(LK_ALLOC((size_t)boot->size, "members", &t->members), close_transport);
    memcpy(t->members, boot->members, (size_t)boot->size * sizeof *t->members);
    LK_TRY_GOTO(LK_ALLOC((size_t)boot->size, "peers", &t->peers), close_transport);
    *out = t;
    return LK_OK;
close_transport:
    lk__mpi_transport_close((lk_transport *)t);
    return status;
}

/* Every rank receives with tags of its own: the first one, plus the sender's index in its process. The last tag of
 * rank 0 is for the set of processes that sum. */
static lk_status agree_tags(lk_mpi_transport *t, const lk_boot *boot, const lk_mpi_offer *all)
{
    int32_t mine = 0, *firsts = NULL;
    int most = lk__mpi_offer_most(all, boot->size);
    lk_status status = lk__mpi_tags(boot->world, most + 1, &mine);
    if (status == LK_OK)
        status = LK_ALLOC((size_t)boot->size, "tags", &firsts);
    LK_TRY_GOTO(lk__tcp_boot_agree(boot, status, "get tags of MPI"), free_firsts);
    LK_TRY_GOTO(boot->exchange(boot->arg, &mine, sizeof mine, firsts), free_firsts);
    t->sum_tag = firsts[0] + most;
    t->shares = most > 1;
    for (int r = 0; r < boot->size; r++) {
        t->peers[r].rank = all[r].rank;
        t->peers[r].tag_to = firsts[r] + lk__mpi_offer_index(all, boot->rank);
        t->peers[r].tag_from = mine + lk__mpi_offer_index(all, r);
    }
free_firsts:
    lk__mem_free(firsts);
    return status;
}

static lk_status exchange_offers(lk_mpi_transport *t, const lk_boot *boot, const lk_mpi_place *place, lk_mpi_offer *all)
{
    lk_mpi_offer mine = {.rank = place->rank, .size = place->size};
    lk__bell_cpus(mine.cpus);
    LK_TRY(boot->exchange(boot->arg, &mine, sizeof mine, all));
    LK_TRY(lk__mpi_offer_check(boot, place, all));
    t->crowded = lk__mpi_offer_crowded(boot, all);
    return agree_tags(t, boot, all);
}

/* All ranks have loaded their plug-in before one of them starts MPI, which blocks until all do. */
static lk_status start_mpi(const lk_boot *boot, const lk_mpi **mpi, lk_mpi_place *place)
{
    if (boot->world) {
        *mpi = boot->world->mpi;
        *place = boot->world->place;
        return lk__tcp_boot_agree(boot, lk__mpi_world_level(boot->world, boot->progress), "use the program's MPI");
    }
    LK_TRY(lk__tcp_boot_agree(boot, lk__mpi_load(mpi), "load its plug-in for MPI"));
    return lk__tcp_boot_agree(boot, lk__mpi_start(boot->timeout, mpi, place), "start MPI");
}

lk_status lk__mpi_transport_open(const lk_boot *boot, lk_transport **out)
{
    lk_mpi_transport *t = NULL;
    lk_mpi_offer *all = NULL;
    const lk_mpi *mpi = NULL;
    lk_mpi_place place;
    lk_status status;
    LK_TRY(start_mpi(boot, &mpi, &place));
    status = make(boot, &t);
    if (status == LK_OK)
        status = LK_ALLOC((size_t)boot->size, "ranks of MPI", &all);
    LK_TRY_GOTO(lk__tcp_boot_agree(boot, status, "get memory for its MPI transport"), close_transport);
    t->mpi = mpi;
    t->world = boot->world;
    t->comm = boot->world ? boot->world->comm : 0;
    LK_TRY_GOTO(exchange_offers(t, boot, &place, all), close_transport);
    lk__mem_free(all);
    *out = &t->base;
    return LK_OK;
close_transport:
    lk__mem_free(all);
    lk__mpi_transport_close((lk_transport *)t);
    return status;
}
