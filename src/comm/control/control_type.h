/* control_type.h - the interface of the two kinds of control: a connection to the job's server
 * (control_job.c) and a table that threads share (control_threads.c). */
#ifndef LK_COMM_CONTROL_CONTROL_TYPE_H
#define LK_COMM_CONTROL_CONTROL_TYPE_H

#include "comm/control/control.h"

/* Each slot does what control.h says about the function of the same name. */
typedef struct lk_control_type {
    lk_status (*exchange)(lk_control *control, const void *mine, size_t bytes, void *all);
    lk_status (*check)(lk_control *control);
    void (*report)(lk_control *control, const lk_call *calls, int count);
    void (*abort)(lk_control *control, lk_status status, const char *text);
    void (*absent)(const lk_control *control, uint8_t *absent);
    bool (*unacknowledged)(const lk_control *control); /* optional: always false */
    bool (*left)(const lk_control *control, int rank);
    void (*destroy)(lk_control *control); /* leaves and frees */
} lk_control_type;

/* Every kind of control begins with this struct. */
struct lk_control {
    const lk_control_type *type;
    int rank, size;
    lk_member *members; /* (size), owned */
    lk_token token;
    double timeout;
    lk_notice_fn notice;
    void *notice_arg;
    bool (*idle)(void *arg); /* or NULL; see lk__control_set_idle */
    void *idle_arg;
};

#endif
