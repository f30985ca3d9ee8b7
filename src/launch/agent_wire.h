/* agent_wire.h - the messages between the launchers of a job.
 *
 * Node 0 has a link to every other node; the others have one link, to node 0. All messages have the same
 * size, so there is no length field that could be wrong. There are only a few messages for each node. */
#ifndef LK_LAUNCH_AGENT_WIRE_H
#define LK_LAUNCH_AGENT_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "launch/node.h"

typedef enum lk_message_kind {
    LK_MESSAGE_KIND_HELLO,   /* to node 0: node, nodes, ranks there, process id; in both directions: host name */
    LK_MESSAGE_KIND_REFUSED, /* to others: this node cannot take part; text: why */
    LK_MESSAGE_KIND_NOTICE,  /* to others: text for the user */
    LK_MESSAGE_KIND_PLAN,    /* to others: lk_launch_plan */
    LK_MESSAGE_KIND_DONE,    /* to node 0: all ranks ended with 0 */
    LK_MESSAGE_KIND_TROUBLE, /* to node 0: this node's ranks failed; lk_launch_verdict, `again` for a second signal */
    LK_MESSAGE_KIND_STOP,    /* to others: signal, grace in milliseconds; a second STOP with SIGKILL ends the grace */
    LK_MESSAGE_KIND_STOPPED, /* to node 0: no rank is left on this node */
    LK_MESSAGE_KIND_END,     /* to others: the job's lk_launch_verdict */
    LK_MESSAGE_KIND_COUNT
} lk_message_kind;

enum { LK_MESSAGE_NUMBERS = 8, LK_MESSAGE_NAME = 64, LK_MESSAGE_TEXT = 2048 };
enum { LK_MESSAGE_BYTES = 8 + 8 * LK_MESSAGE_NUMBERS + LK_MESSAGE_NAME + LK_MESSAGE_TEXT };

typedef struct lk_message {
    lk_message_kind kind;
    int64_t numbers[LK_MESSAGE_NUMBERS];
    char name[LK_MESSAGE_NAME];
    char text[LK_MESSAGE_TEXT];
} lk_message;

/* The encoding is the same on every machine. decode returns false for an unknown kind; it terminates the
 * texts and makes them printable, whatever the bytes are. */
void lk__message_encode(const lk_message *message, uint8_t out[LK_MESSAGE_BYTES]);
bool lk__message_decode(const uint8_t in[LK_MESSAGE_BYTES], lk_message *out);

/* Copy a cause to the first four numbers, name and text of a message, and back. */
void lk__message_set_cause(lk_message *message, const lk_cause *cause);
void lk__message_get_cause(const lk_message *message, lk_cause *out);

/* A connection to the launcher of another node. */
typedef struct lk_link {
    int fd; /* -1: closed */
    size_t got;
    uint8_t frame[LK_MESSAGE_BYTES]; /* the first `got` bytes have arrived */
    char host[LK_MESSAGE_NAME];      /* name of the peer's host, or its address while the name is unknown */
    int nproc;                       /* number of the peer's ranks; 0: unknown */
    long pid;                        /* the peer's process id; 0: unknown */
} lk_link;

/* Blocks for at most five seconds. A failed link returns CLOSED from receive after everything that the peer
 * sent was read. */
void lk__link_send(lk_link *link, const lk_message *message);
typedef enum lk_link_state { LK_LINK_STATE_IDLE, LK_LINK_STATE_MESSAGE, LK_LINK_STATE_CLOSED } lk_link_state;
/* Receives the next message; does not block. CLOSED: the peer is gone or sent an invalid message; the caller
 * closes the link. */
lk_link_state lk__link_receive(lk_link *link, lk_message *out);
void lk__link_close(lk_link *link);

#endif
