/* thread.h - threads whose stacks have a size of our own. */
#ifndef LK_BASE_THREAD_H
#define LK_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* As pthread_create with a stack of 8 MB of address space, whatever `ulimit -s` says:
 * that limit is also the default size of a thread's stack. Returns 0 or an errno. */
int lk__thread_create(pthread_t *thread, void *(*run)(void *), void *arg);

/* Whether `ulimit -s` leaves the first thread less than this library may use. */
bool lk__thread_stack_is_small(void);

#endif
