/* argument.h - checks of the arguments of public calls. A failure is USAGE, and its detail names the call and
 * the argument. `call` is the call's name in texts. */
#ifndef LK_COMM_COLLECTIVE_ARGUMENT_H
#define LK_COMM_COLLECTIVE_ARGUMENT_H

#include "comm/collective/group_impl.h"

/* A buffer that a call needs. */
typedef struct lk_argument_memory {
    const char *name; /* "data.at"; NULL: none */
    const void *at;
    size_t count; /* elements; 0: at may be NULL */
} lk_argument_memory;

/* Checks that group is not NULL and was made by this process. */
lk_status lk__argument_group(const lk_group *group, const char *call) LK_CHECKED;
/* Checks that a pointer is not NULL. */
lk_status lk__argument_set(const void *pointer, const char *name, const char *call) LK_CHECKED;
lk_status lk__argument_memory(const lk_argument_memory *memory, const char *call) LK_CHECKED;
/* Checks that two buffers do not overlap. */
lk_status lk__argument_apart(const lk_argument_memory *a, const lk_argument_memory *b, size_t element,
                             const char *call) LK_CHECKED;
/* Checks that bounds describes the shards of all ranks and that roots has this rank's vectors of `count`
 * elements. */
lk_status lk__argument_sums(const lk_group *group, const lk_shard_sums *sums, size_t count,
                            const char *call) LK_CHECKED;

#endif
