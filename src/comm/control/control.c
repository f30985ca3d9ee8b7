/* control.c - calls the functions of the control's kind. */
#include "comm/control/control.h"

#include "comm/control/control_type.h"

void lk__control_destroy(lk_control *control)
{
    if (control)
        control->type->destroy(control);
}

int lk__control_rank(const lk_control *control)
{
    return control->rank;
}

int lk__control_size(const lk_control *control)
{
    return control->size;
}

const lk_member *lk__control_members(const lk_control *control)
{
    return control->members;
}

const lk_token *lk__control_token(const lk_control *control)
{
    return &control->token;
}

double lk__control_timeout(const lk_control *control)
{
    return control->timeout;
}

void lk__control_notice(const lk_control *control, const char *text)
{
    if (control->notice)
        control->notice(control->notice_arg, text);
}

void lk__control_set_idle(lk_control *control, bool (*idle)(void *arg), void *arg)
{
    control->idle = idle;
    control->idle_arg = arg;
}

lk_status lk__control_exchange(lk_control *control, const void *mine, size_t bytes, void *all)
{
    return control->type->exchange(control, mine, bytes, all);
}

lk_status lk__control_check(lk_control *control)
{
    return control->type->check(control);
}

void lk__control_report(lk_control *control, const lk_call *calls, int count)
{
    control->type->report(control, calls, count);
}

void lk__control_abort(lk_control *control, lk_status status, const char *text)
{
    control->type->abort(control, status, text);
}

bool lk__control_unacknowledged(const lk_control *control)
{
    return control->type->unacknowledged && control->type->unacknowledged(control);
}

void lk__control_absent(const lk_control *control, uint8_t *absent)
{
    control->type->absent(control, absent);
}

bool lk__control_left(const lk_control *control, int rank)
{
    return control->type->left(control, rank);
}
