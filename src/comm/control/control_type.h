/* control_type.h - what control.c asks of its two kinds: a connection to the
 * server of a job (control_job.c), and a table that threads share
 * (control_threads.c). */
#ifndef LK_COMM_CONTROL_CONTROL_TYPE_H
#define LK_COMM_CONTROL_CONTROL_TYPE_H

#include "comm/control/control.h"

/* The slots do what control.h says of the function of that name. */
typedef struct lk_control_type {
    lk_status (*exchange)(lk_control *control, const void *mine, size_t bytes, void *all);
    lk_status (*check)(lk_control *control);
    void (*report)(lk_control *control, const lk_call *calls, int count);
    void (*abort)(lk_control *control, lk_status status, const char *text);
    void (*absent)(const lk_control *control, uint8_t *absent);
    bool (*unacknowledged)(const lk_control *control); /* NULL: never */
    bool (*left)(const lk_control *control, int rank);
    void (*destroy)(lk_control *control); /* frees */
} lk_control_type;

/* Every kind starts with this. */
struct lk_control {
    const lk_control_type *type;
    int rank, size;
    lk_member *members; /* (size), owned */
    lk_token token;
    double timeout;
    lk_notice_fn notice;
    void *notice_arg;
    bool (*idle)(void *arg); /* or NULL: lk__control_set_idle */
    void *idle_arg;
};

#endif
