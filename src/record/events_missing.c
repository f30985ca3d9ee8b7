/* events_missing.c - in place of events.c in a build without protobuf-c: no event files are written. */
#include "record/events.h"

const bool lk__record_events_possible = false;

lk_status lk__record_events_open(const char *folder, lk_record_events **out)
{
    (void)folder;
    *out = NULL;
    return LK_OK;
}

void lk__record_events_close(lk_record_events *events)
{
    (void)events;
}

lk_status lk__record_events_row(lk_record_events *events, lk_record_kind kind, const lk_record_row *row)
{
    (void)events;
    (void)kind;
    (void)row;
    return LK_OK;
}

lk_status lk__record_events_state(lk_record_events *events, size_t step, const char *prefix, const lk_state *state)
{
    (void)events;
    (void)step;
    (void)prefix;
    (void)state;
    return LK_OK;
}
