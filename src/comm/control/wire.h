/* wire.h - the messages between a rank and the server of its job.
 *
 * Every message has the same head and then data whose length its kind bounds.
 * Numbers are little-endian on every machine. Pure: bytes in, fields out; what
 * comes from a socket is bounded and checked here before anything looks at it. */
#ifndef LK_COMM_CONTROL_WIRE_H
#define LK_COMM_CONTROL_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/control/control.h"

/* To the server: HELLO (a member), EXCHANGE (this rank's part), REPORT (calls),
 * ABORT (text), LEAVE. From it: WELCOME (all members), REFUSED (text), WAITING
 * (a byte a rank: 1 where it is awaited), ABSENT (the answer to REPORT: 1 where a
 * rank is not known to be in the reporter's last call), EXCHANGED (all parts), BROKEN (text),
 * LEFT (rank), NOTICE (text for the user). */
typedef enum lk_wire_kind {
    LK_WIRE_HELLO,
    LK_WIRE_EXCHANGE,
    LK_WIRE_REPORT,
    LK_WIRE_ABORT,
    LK_WIRE_LEAVE,
    LK_WIRE_WELCOME,
    LK_WIRE_REFUSED,
    LK_WIRE_WAITING,
    LK_WIRE_ABSENT,
    LK_WIRE_EXCHANGED,
    LK_WIRE_BROKEN,
    LK_WIRE_LEFT,
    LK_WIRE_NOTICE,
    LK_WIRE_COUNT
} lk_wire_kind;

enum {
    LK_WIRE_HEAD = 24,
    LK_WIRE_MEMBER = 12 + LK_HOST_BYTES + LK_ADDRESS_BYTES,
    LK_WIRE_TEXT = 1024,
    /* The longest message to the server, and from it to a rank of `size`. */
    LK_WIRE_TO_SERVER = LK_WIRE_HEAD + LK_HISTORY * LK_CALL_BYTES,
};
size_t lk__wire_from_server(int size);

typedef struct lk_wire {
    lk_wire_kind kind;
    int rank;         /* whom it is about, -1 for nobody */
    int size;         /* of the job, as the sender knows it */
    uint32_t number;  /* of the exchange */
    lk_status status; /* of ABORT, REFUSED, BROKEN; LK_OK elsewhere */
    const uint8_t *data;
    size_t bytes;
} lk_wire;

/* Writes LK_WIRE_HEAD + bytes bytes and returns how many. */
size_t lk__wire_encode(const lk_wire *message, uint8_t *out);

typedef enum lk_wire_result { LK_WIRE_MORE, LK_WIRE_WHOLE, LK_WIRE_BAD } lk_wire_result;
/* The message at the start of `bytes` bytes: WHOLE sets *out, whose data point
 * into them, and *used; MORE when its end is still to come; BAD when no message
 * of that direction starts so, or one of more than `room` bytes. */
lk_wire_result lk__wire_decode(const uint8_t *in, size_t bytes, size_t room, bool from_server, lk_wire *out,
                               size_t *used);

void lk__wire_put_member(const lk_member *member, uint8_t out[LK_WIRE_MEMBER]);
/* Texts are ended and made printable, whatever came. */
void lk__wire_get_member(const uint8_t in[LK_WIRE_MEMBER], lk_member *out);
/* The text of a message, ended. */
void lk__wire_text(const lk_wire *message, char out[LK_WIRE_TEXT + 1]);
/* The calls of a REPORT; returns how many, -1 when one is impossible. */
int lk__wire_calls(const lk_wire *message, lk_call out[LK_HISTORY]);

#endif
