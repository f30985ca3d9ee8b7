/* init.h - the table of initialisation policies. */
#ifndef LK_NN_INIT_H
#define LK_NN_INIT_H

#include <stddef.h>

/* Rows of the table, NULL after the last. */
typedef struct lk_init_info {
    const char *name;
    const char *summary; /* includes the policy's parameters */
} lk_init_info;
const lk_init_info *lk__init_list(size_t index);

#endif
