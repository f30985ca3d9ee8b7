/* forks.c - counts the forks that led to this process. */
#include "base/forks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

static _Atomic unsigned forks;
static atomic_bool watched;

static void count_fork(void)
{
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

/* Without memory for the handler, a child counts as its parent; nothing else fails. */
static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, count_fork);
    atomic_store_explicit(&watched, true, memory_order_release);
}

unsigned lk__forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!atomic_load_explicit(&watched, memory_order_acquire))
        (void)pthread_once(&once, watch_forks);
    return atomic_load_explicit(&forks, memory_order_relaxed);
}
