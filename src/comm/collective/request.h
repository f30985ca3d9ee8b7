/* request.h - what other modules may do with a request beside the public calls. */
#ifndef LK_COMM_COLLECTIVE_REQUEST_H
#define LK_COMM_COLLECTIVE_REQUEST_H

#include <lockstep/group.h>

#include "base/trace.h"

/* While a rank traces: the request is shown as a flight of this label and of `bytes` bytes, from its call until it is
 * done. Must be called before lk_request_wait and lk_request_test. */
void lk__request_label(lk_request *request, lk_trace_label label, size_t bytes);

#endif
