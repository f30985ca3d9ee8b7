/* forks.h - which process of a line of forks this one is. What threads, sockets
 * and shared memory belong to is of no use in a process that was forked later. */
#ifndef LK_BASE_FORKS_H
#define LK_BASE_FORKS_H

/* Differs between a process and one that was forked from it after the first call;
 * the same in all threads. A few nanoseconds. */
unsigned lk__forks(void);

#endif
