/* call.h - what the ranks of a group must agree on in a call.
 *
 * A call is described by a few numbers. They travel with every frame and in every report. Two ranks disagree
 * when their numbers differ. */
#ifndef LK_COMM_CALL_H
#define LK_COMM_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include <lockstep/group.h>

/* X(name, text) */
#define LK_CALL_KIND_LIST(X)            \
    X(ALLREDUCE, "allreduce")           \
    X(REDUCE, "reduce")                 \
    X(REDUCE_SCATTER, "reduce_scatter") \
    X(BROADCAST, "broadcast")           \
    X(ALLGATHER, "allgather")           \
    X(GATHER, "gather")                 \
    X(SCATTER, "scatter")               \
    X(ALLTOALL, "alltoall")             \
    X(BARRIER, "barrier")               \
    X(MESSAGE, "message")

typedef enum lk_call_kind {
#define LK_CALL_KIND_ENUM(name, text) LK_CALL_KIND_##name,
    LK_CALL_KIND_LIST(LK_CALL_KIND_ENUM)
#undef LK_CALL_KIND_ENUM
        LK_CALL_KIND_COUNT
} lk_call_kind;

enum { LK_CALL_BYTES = 32 };

typedef struct lk_call {
    uint32_t group;  /* which group of the job */
    uint32_t number; /* collectives of a group count from 0; messages count from 0 for each direction of a pair */
    uint8_t kind;    /* lk_call_kind */
    uint8_t dtype;   /* lk_dtype */
    uint8_t op;      /* lk_reduction; 0: none */
    int32_t root;    /* -1: none */
    uint64_t count;  /* elements of the whole vector; 0 where every rank has its own count */
    uint64_t detail; /* hash of counts and shard bounds; 0: none */
} lk_call;

bool lk__call_same(const lk_call *a, const lk_call *b);
/* The name of the call's kind, as "allreduce"; a literal. */
const char *lk__call_name(const lk_call *call);
/* Writes a text such as "allreduce #41 (1024 f32, sum)" for messages, and returns text. Calls that differ
 * have different texts, except for a hash collision in detail (probability 2^-32). */
enum { LK_CALL_TEXT = 128 };
const char *lk__call_text(const lk_call *call, char text[LK_CALL_TEXT]);

/* The encoding is the same on every machine. decode returns false, and leaves out unchanged, when a field is
 * impossible (a root for a kind without root, more bytes than memory can hold, ...). */
void lk__call_encode(const lk_call *call, uint8_t out[LK_CALL_BYTES]);
bool lk__call_decode(const uint8_t in[LK_CALL_BYTES], lk_call *out);

#endif
