/* deadline.c - the end of a wait, with notices. */
#include "net/deadline.h"

#include <stdio.h>

#include "base/clock.h"

void lk__deadline_init(lk_deadline *deadline, double timeout, lk_notice_fn notice, void *arg)
{
    double now = lk__clock();
    *deadline = (lk_deadline){
        .timeout = timeout, .end = now + timeout, .next = now + LK_NOTICE_SECONDS, .notice = notice, .arg = arg};
}

bool lk__deadline_over(const lk_deadline *deadline)
{
    return lk__clock() >= deadline->end;
}

double lk__deadline_wake(const lk_deadline *deadline)
{
    return deadline->next < deadline->end ? deadline->next : deadline->end;
}

void lk__deadline_notice(lk_deadline *deadline, const char *what)
{
    double now = lk__clock();
    if (now < deadline->next || now >= deadline->end)
        return;
    deadline->next += LK_NOTICE_SECONDS;
    if (!deadline->notice)
        return;
    char text[1200];
    snprintf(text, sizeof text, "%s, %.0f s left", what, deadline->end - now);
    deadline->notice(deadline->arg, text);
}
