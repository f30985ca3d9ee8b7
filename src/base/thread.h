/* thread.h - threads with a fixed stack size. */
#ifndef LK_BASE_THREAD_H
#define LK_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* pthread_create with a stack of 8 MiB of address space. Otherwise `ulimit -s` would set the size.
 * Returns 0 or an errno. */
int lk__thread_create(pthread_t *thread, void *(*run)(void *), void *arg);

/* Whether `ulimit -s` gives the first thread less stack than this library may use. */
bool lk__thread_stack_is_small(void);

#endif
