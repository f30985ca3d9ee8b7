/* thread.c - sets the stack size of threads, and says whether the first thread's stack is small. */
#include "base/thread.h"

#include <sys/resource.h>

enum { STACK_BYTES = 8 << 20, ENOUGH_BYTES = 1 << 20 };

int lk__thread_create(pthread_t *thread, void *(*run)(void *), void *arg)
{
    pthread_attr_t attr;
    int error = pthread_attr_init(&attr);
    if (error)
        return error;
    error = pthread_attr_setstacksize(&attr, STACK_BYTES);
    if (!error)
        error = pthread_create(thread, &attr, run, arg);
    pthread_attr_destroy(&attr);
    return error;
}

bool lk__thread_stack_is_small(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < ENOUGH_BYTES;
}
