/* backend.c - the words of lk_engine_opts.backend. */
#include "parallel/engine/backend.h"

#include <string.h>

const char *const lk__engine_backend_names[LK_ENGINE_BACKEND_COUNT] = {
    [LK_ENGINE_BACKEND_AUTO] = "auto", [LK_ENGINE_BACKEND_HOST] = "host", [LK_ENGINE_BACKEND_MPI] = "mpi"};

lk_engine_backend lk__engine_backend_find(const char *word)
{
    int i = LK_ENGINE_BACKEND_AUTO;
    while (word && i < LK_ENGINE_BACKEND_COUNT && strcmp(word, lk__engine_backend_names[i]) != 0)
        i++;
    return (lk_engine_backend)i;
}
