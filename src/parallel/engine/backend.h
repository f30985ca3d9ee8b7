/* backend.h - the words of lk_engine_opts.backend that are not names of channels (tensor/channel.h). */
#ifndef LK_PARALLEL_ENGINE_BACKEND_H
#define LK_PARALLEL_ENGINE_BACKEND_H

typedef enum lk_engine_backend {
    LK_ENGINE_BACKEND_AUTO,
    LK_ENGINE_BACKEND_HOST, /* the group, in host memory */
    LK_ENGINE_BACKEND_MPI,  /* the group's own sums */
    LK_ENGINE_BACKEND_COUNT
} lk_engine_backend;

extern const char *const lk__engine_backend_names[LK_ENGINE_BACKEND_COUNT];

/* The meaning of a word; NULL: AUTO. COUNT: any other word, which names a channel. */
lk_engine_backend lk__engine_backend_find(const char *word);

#endif
