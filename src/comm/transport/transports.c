/* transports.c - the table of transports that a user can name. */
#include <stdio.h>
#include <string.h>

#include "comm/transport/transport.h"

static const lk_transport_type *const transports[] = {&lk__transport_auto, &lk__transport_shm, &lk__transport_tcp,
                                                      &lk__transport_mpi};
enum { TRANSPORT_COUNT = sizeof transports / sizeof *transports };

const lk_transport_type *lk__transport_list(size_t index)
{
    return index < TRANSPORT_COUNT ? transports[index] : NULL;
}

static const char *known_names(char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < TRANSPORT_COUNT && used < bytes; i++) {
        int added = snprintf(text + used, bytes - used, "%s%s", i ? ", " : "", transports[i]->name);
        used += added > 0 ? (size_t)added : 0;
    }
    return text;
}

lk_status lk__transport_find(const char *name, const lk_transport_type **out)
{
    for (size_t i = 0; i < TRANSPORT_COUNT; i++) {
        if (strcmp(transports[i]->name, name) == 0) {
            *out = transports[i];
            return LK_OK;
        }
    }
    char known[128];
    return lk__fail(LK_STATUS_USAGE, "no transport is called \"%s\"; there are: %s", name,
                    known_names(known, sizeof known));
}
