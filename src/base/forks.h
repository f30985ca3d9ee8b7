/* forks.h - distinguishes a process from the one that forked it. Threads, sockets and shared memory of
 * the parent do not work in a forked child. */
#ifndef LK_BASE_FORKS_H
#define LK_BASE_FORKS_H

/* A number that differs between a process and a child that it forked after the first call; equal in
 * all threads. Costs a few nanoseconds. */
unsigned lk__forks(void);

#endif
