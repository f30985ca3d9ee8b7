/* argument.h - arguments of the public calls that cannot be: each is USAGE whose
 * detail names the call and the argument. `call` is the call's name in texts. */
#ifndef LK_COMM_COLLECTIVE_ARGUMENT_H
#define LK_COMM_COLLECTIVE_ARGUMENT_H

#include "comm/collective/group_impl.h"

/* Memory that a call needs. */
typedef struct lk_argument_memory {
    const char *name; /* "data.at"; NULL: none */
    const void *at;
    size_t count; /* elements; 0: at may be NULL */
} lk_argument_memory;

/* That there is a group, and that this process made it. */
lk_status lk__argument_group(const lk_group *group, const char *call) LK_CHECKED;
/* That a pointer is not NULL. */
lk_status lk__argument_set(const void *pointer, const char *name, const char *call) LK_CHECKED;
lk_status lk__argument_memory(const lk_argument_memory *memory, const char *call) LK_CHECKED;
/* That two memories share no byte. */
lk_status lk__argument_apart(const lk_argument_memory *a, const lk_argument_memory *b, size_t element,
                             const char *call) LK_CHECKED;
/* That bounds and roots describe shards of all ranks, and roots has this rank's
 * vectors, which are empty where count is 0. */
lk_status lk__argument_sums(const lk_group *group, const lk_shard_sums *sums, size_t count,
                            const char *call) LK_CHECKED;

#endif
