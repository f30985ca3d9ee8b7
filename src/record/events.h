/* events.h - TensorBoard's event files.
 *
 * A file is a sequence of records: the length (8 bytes), its masked CRC-32C, the data, their masked CRC-32C, all
 * little-endian. The data are an Event of tfevents.proto. A build without protobuf-c writes no event files. */
#ifndef LK_RECORD_EVENTS_H
#define LK_RECORD_EVENTS_H

#include <lockstep/state.h>

#include "record/columns.h"

/* Whether this build has protobuf-c. */
extern const bool lk__record_events_possible;
/* In the name of every event file. */
extern const char lk__record_events_mark[];

typedef struct lk_record_events lk_record_events;

/* Creates events.out.tfevents.SECONDS.HOST.PID.N in the folder. In a build without protobuf-c *out stays NULL, and the
 * functions below do nothing. */
lk_status lk__record_events_open(const char *folder, lk_record_events **out) LK_CHECKED;
void lk__record_events_close(lk_record_events *events);

/* Writes the numbers of a row as "COLUMN/KIND": "loss/train", "top1/test"; but not step, epoch and seconds, which are
 * no results, and no numbers that are not finite. */
lk_status lk__record_events_row(lk_record_events *events, lk_record_kind kind, const lk_record_row *row) LK_CHECKED;
/* Writes a histogram of every f32 tensor of the state, as "PREFIX/KEY". */
lk_status lk__record_events_state(lk_record_events *events, size_t step, const char *prefix,
                                  const lk_state *state) LK_CHECKED;

/* Bytes of a record around its data: in all, and before the data. */
enum { LK_RECORD_FRAME = 16, LK_RECORD_FRAME_HEAD = 12 };
/* Fills the bytes around the data, which are at record + LK_RECORD_FRAME_HEAD. */
void lk__record_events_frame(uint8_t *record, size_t body_bytes);
/* The length of the record at the front of data, with its frame; 0 if it is incomplete or damaged. */
size_t lk__record_events_next(const uint8_t *data, size_t bytes, size_t *body_bytes);

/* Moves the records up to `step` to the front of data and returns their bytes; a damaged record and all after it are
 * left out. */
size_t lk__record_events_keep(char *data, size_t bytes, size_t step);

#endif
