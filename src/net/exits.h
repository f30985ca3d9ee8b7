/* exits.h - the ranks that have exited with status 0, as their launcher notes them for ranks that still wait.
 *
 * A rank that exits before it has joined would be awaited until the timeout. The launcher of all ranks of a job keeps
 * one byte for each rank in memory that other processes of the user can read; the variable LOCKSTEP_EXITS, "PORT
 * PATH", says where it is. PORT is that of the job, so that another job inside of a rank does not take these notes for
 * its own. Where the memory cannot be made or read, nothing is known. */
#ifndef LK_NET_EXITS_H
#define LK_NET_EXITS_H

#include <stdbool.h>
#include <stdint.h>

#define LK_EXITS_VARIABLE "LOCKSTEP_EXITS"

enum { LK_EXITS_TEXT = 64 };

typedef struct lk_exits {
    int fd;                   /* -1: none */
    char text[LK_EXITS_TEXT]; /* the value of the variable; "": none */
} lk_exits;

/* For the launcher: makes the memory of a job whose rank 0 listens at `port`. Ends with the process, or with fini. */
void lk__exits_init(int port, int ranks, lk_exits *out);
void lk__exits_fini(lk_exits *exits);
/* The rank has exited with status 0. */
void lk__exits_note(const lk_exits *exits, int rank);

/* For ranks: finds the notes about the job at `port` in the environment; "" if there are none. */
void lk__exits_find(int port, char path[LK_EXITS_TEXT]);
/* gone[r] (count) is 1 for each process r that has exited with status 0. Returns whether there is one. Does not block.
 */
bool lk__exits_read(const char *path, int count, uint8_t *gone);

#endif
