/* reduction.c - reductions of the program's own. */
#include "comm/collective/reduction.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

typedef struct own_reduction {
    char *name;
    lk_reduction_fn combine;
    void *arg;
} own_reduction;

enum { MOST = LK_REDUCTION_LIMIT - LK_REDUCTION_COUNT };

/* Rows are added, never changed: readers need no lock. */
static own_reduction rows[MOST];
static atomic_int count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static lk_status check_name(const char *name)
{
    if (!*name)
        return lk__fail(LK_STATUS_USAGE, "the name of a reduction is empty");
    for (int i = 0; i < atomic_load(&count); i++)
        if (strcmp(rows[i].name, name) == 0)
            return lk__fail(LK_STATUS_USAGE,
                            "there is already a reduction '%s': register it once and keep its number, or give this one "
                            "another name",
                            name);
    return LK_OK;
}

/* The caller has the lock. */
static lk_status add_row(const char *name, lk_reduction_fn combine, void *arg, lk_reduction *out)
{
    int at = atomic_load(&count);
    LK_TRY(check_name(name));
    if (at == MOST)
        return lk__fail(LK_STATUS_USAGE,
                        "reduction '%s': this process has registered %d reductions, and more are not "
                        "possible",
                        name, MOST);
    LK_TRY(lk__mem_copy_text(name, "a name", &rows[at].name));
    rows[at].combine = combine;
    rows[at].arg = arg;
    *out = (lk_reduction)(LK_REDUCTION_COUNT + at);
    atomic_store(&count, at + 1);
    return LK_OK;
}

lk_status lk_reduction_register(const char *name, lk_reduction_fn combine, void *arg, lk_reduction *out)
{
    LK_TRY(LK_GIVEN(name));
    LK_TRY(LK_GIVEN(combine));
    LK_TRY(LK_GIVEN(out));
    pthread_mutex_lock(&lock);
    lk_status status = add_row(name, combine, arg, out);
    pthread_mutex_unlock(&lock);
    return status;
}

bool lk__reduction_known(lk_reduction op)
{
    return (unsigned)op < (unsigned)(LK_REDUCTION_COUNT + atomic_load(&count));
}

uint64_t lk__reduction_identity(lk_reduction op)
{
    if (op < LK_REDUCTION_COUNT)
        return 0;
    const char *name = rows[op - LK_REDUCTION_COUNT].name;
    return lk__hash(name, strlen(name), 1);
}

void lk__reduction_run(const lk_reduction_run *run)
{
    if (run->op < LK_REDUCTION_COUNT) {
        run->device->kernels->reduce(run->device, run->dtype, run->op, run->count, run->left, run->right, run->out);
        return;
    }
    const own_reduction *row = &rows[run->op - LK_REDUCTION_COUNT];
    row->combine(row->arg, run->dtype, run->left, run->right, run->out, run->count);
}
