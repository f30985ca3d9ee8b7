/* wire.h - the messages between a rank and the server of its job.
 *
 * Every message has the same header, then data whose length its kind limits. Numbers are little-endian. Pure
 * functions: everything that comes from a socket is checked here before it is used. */
#ifndef LK_COMM_CONTROL_WIRE_H
#define LK_COMM_CONTROL_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/control/control.h"

/* To the server: HELLO (a member), EXCHANGE (this rank's part), REPORT (calls), ABORT (text), LEAVE. From the
 * server: WELCOME (all members), REFUSED (text), WAITING (one byte for each rank; 1: it is awaited), ABSENT
 * (the answer to REPORT; 1: the rank is not known to be in the reporter's last call), EXCHANGED (all parts),
 * BROKEN (text), LEFT (rank), NOTICE (text for the user). */
typedef enum lk_wire_kind {
    LK_WIRE_KIND_HELLO,
    LK_WIRE_KIND_EXCHANGE,
    LK_WIRE_KIND_REPORT,
    LK_WIRE_KIND_ABORT,
    LK_WIRE_KIND_LEAVE,
    LK_WIRE_KIND_WELCOME,
    LK_WIRE_KIND_REFUSED,
    LK_WIRE_KIND_WAITING,
    LK_WIRE_KIND_ABSENT,
    LK_WIRE_KIND_EXCHANGED,
    LK_WIRE_KIND_BROKEN,
    LK_WIRE_KIND_LEFT,
    LK_WIRE_KIND_NOTICE,
    LK_WIRE_KIND_COUNT
} lk_wire_kind;

enum {
    LK_WIRE_HEAD = 24,
    LK_WIRE_MEMBER = 12 + LK_HOST_BYTES + LK_ADDRESS_BYTES,
    LK_WIRE_TEXT = 1024,
    /* The longest message to the server. lk__wire_from_server: the longest one to a rank of a job of `size`. */
    LK_WIRE_TO_SERVER = LK_WIRE_HEAD + LK_HISTORY * LK_CALL_BYTES,
};
size_t lk__wire_from_server(int size);

typedef struct lk_wire {
    lk_wire_kind kind;
    int rank;         /* the rank that the message is about; -1: none */
    int size;         /* of the job, as the sender knows it; must be equal at both ends */
    uint32_t number;  /* of the exchange */
    lk_status status; /* of ABORT, REFUSED and BROKEN; else LK_OK */
    const uint8_t *data;
    size_t bytes;
} lk_wire;

/* Writes LK_WIRE_HEAD + bytes bytes and returns that number. */
size_t lk__wire_encode(const lk_wire *message, uint8_t *out);

typedef enum lk_wire_result { LK_WIRE_RESULT_MORE, LK_WIRE_RESULT_WHOLE, LK_WIRE_RESULT_BAD } lk_wire_result;
/* Decodes the message at the start of in. WHOLE sets *out, whose data point into `in`, and *used. MORE: the
 * message is incomplete. BAD: no message of that direction begins so, or it is longer than `room` bytes. */
lk_wire_result lk__wire_decode(const uint8_t *in, size_t bytes, size_t room, bool from_server, lk_wire *out,
                               size_t *used);

void lk__wire_put_member(const lk_member *member, uint8_t out[LK_WIRE_MEMBER]);
/* Terminates the texts and makes them printable, whatever the bytes are. */
void lk__wire_get_member(const uint8_t in[LK_WIRE_MEMBER], lk_member *out);
/* Writes the text of a message, terminated and printable. */
void lk__wire_text(const lk_wire *message, char out[LK_WIRE_TEXT + 1]);
/* Decodes the calls of a REPORT. Returns their count, or -1 if one is impossible. */
int lk__wire_calls(const lk_wire *message, lk_call out[LK_HISTORY]);

#endif
